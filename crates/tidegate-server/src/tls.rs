//! TLS from files: a certificate, its key, and whose clients are let in.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio_rustls::TlsAcceptor;

use crate::settings::Settings;

/// Why TLS cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A certificate without its key, or the other way round.
    #[error("a certificate and its key go together: give both --tls-certificate and --tls-key")]
    Half,
    /// Clients were to be verified, but without TLS there is nothing to verify.
    #[error("--tls-client-ca needs --tls-certificate and --tls-key")]
    ClientsOnly,
    /// A file could not be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{} has no {what} in PEM format", path.display())]
    Pem {
        /// Which.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// What is wrong with it, if there is anything in it.
        source: Option<rustls::pki_types::pem::Error>,
    },
    /// The certificate, the key or the authority cannot be used.
    #[error("the certificate in {} cannot be used", path.display())]
    Unusable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// The files that TLS is made of.
pub(crate) struct TlsFiles {
    certificate: PathBuf,
    key: PathBuf,
    /// Clients must show a certificate by one of these.
    client_ca: Option<PathBuf>,
}

impl TlsFiles {
    /// The files that the settings name, if they name any.
    pub(crate) fn of(settings: &Settings) -> Result<Option<TlsFiles>, TlsError> {
        let client_ca = settings.tls_client_ca.clone();
        match (settings.tls_certificate.clone(), settings.tls_key.clone()) {
            (Some(certificate), Some(key)) => Ok(Some(TlsFiles { certificate, key, client_ca })),
            (None, None) if client_ca.is_some() => Err(TlsError::ClientsOnly),
            (None, None) => Ok(None),
            (Some(_), None) | (None, Some(_)) => Err(TlsError::Half),
        }
    }

    /// An acceptor that speaks the given protocols (ALPN), the first preferred.
    pub(crate) fn acceptor(&self, protocols: &[&[u8]]) -> Result<TlsAcceptor, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = certificates(&self.certificate)?;
        let key = private_key(&self.key)?;
        let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&self.certificate, error))?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates(path)? {
                    roots.add(authority).map_err(|error| unusable(path, error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| unusable(path, error))?)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| unusable(&self.certificate, error))?;
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let no = |source| TlsError::Pem { path: path.into(), what: "certificate", source };
    let found = found.map_err(|error| no(Some(error)))?;
    if found.is_empty() { Err(no(None)) } else { Ok(found) }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|error| TlsError::Pem {
        path: path.into(),
        what: "private key",
        source: Some(error),
    })
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Unreadable { path: path.into(), source })
}

fn unusable(path: &Path, error: impl std::error::Error + Send + Sync + 'static) -> TlsError {
    TlsError::Unusable { path: path.into(), source: Box::new(error) }
}
