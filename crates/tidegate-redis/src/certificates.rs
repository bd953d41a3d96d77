//! Certificates for servers that speak TLS.

use std::fmt;

/// Whom to trust, and what to show, in PEM format. Without an authority, those
/// of the system are trusted; without a certificate, none is shown.
#[derive(Clone, Default)]
#[must_use = "certificates do nothing until servers are parsed with them"]
pub struct Certificates {
    authority: Option<Vec<u8>>,
    client: Option<(Vec<u8>, Vec<u8>)>,
}

impl Certificates {
    /// Trusts servers whose certificate one of these authorities has signed, and no others.
    pub fn authority(mut self, pem: impl Into<Vec<u8>>) -> Certificates {
        self.authority = Some(pem.into());
        self
    }

    /// Shows this chain of certificates to servers that ask for one, with the
    /// private key of its first.
    pub fn client(mut self, certificate_pem: impl Into<Vec<u8>>, key_pem: impl Into<Vec<u8>>) -> Certificates {
        self.client = Some((certificate_pem.into(), key_pem.into()));
        self
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (authority, client) = (self.authority.is_some(), self.client.is_some());
        f.debug_struct("Certificates").field("authority", &authority).field("client", &client).finish()
    }
}

impl From<Certificates> for redis::TlsCertificates {
    fn from(certificates: Certificates) -> redis::TlsCertificates {
        let config = |(client_cert, client_key)| redis::ClientTlsConfig { client_cert, client_key };
        redis::TlsCertificates { client_tls: certificates.client.map(config), root_cert: certificates.authority }
    }
}
