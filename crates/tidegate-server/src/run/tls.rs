//! TLS from files: a certificate, its key, whose clients are let in, and which
//! of them no longer are.
//!
//! All files are read together, and again when they change: connections that
//! begin then go by the new ones. What cannot be used changes nothing. Sessions
//! are kept with the files that they began by, so none is resumed past a
//! revocation.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tidegate_config::watch::{Builder, ReadFile};
use tidegate_config::{read_file, watch_files};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::run::causes::in_full;

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
    /// Certificates were to be refused that nothing asks for.
    #[error("--tls-client-crl needs --tls-client-ca")]
    ListsOnly,
    /// A file could not be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
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
    /// The system has no authorities that could sign a server's certificate.
    #[error("the system has no certificate authorities: install them (ca-certificates)")]
    Authorities,
    /// A revocation list cannot be used.
    #[error("a revocation list of --tls-client-crl cannot be used")]
    RevocationList {
        /// Why.
        source: VerifierBuilderError,
    },
}

/// The files that TLS is made of.
#[derive(Clone, Debug)]
pub(crate) struct TlsFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// Clients must show a certificate by one of these.
    pub(crate) client_ca: Option<PathBuf>,
    /// Certificates of clients that are refused all the same.
    pub(crate) client_crls: Vec<PathBuf>,
}

/// Protocols to offer (ALPN), the first preferred.
pub(crate) type Protocols = &'static [&'static [u8]];

/// TLS as its files have it. Clones follow the same files.
#[derive(Clone)]
pub(crate) struct Tls {
    files: TlsFiles,
    current: Arc<RwLock<Arc<ServerConfig>>>,
    protocols: Protocols,
}

impl Tls {
    /// Reads the files.
    pub(crate) fn load(files: TlsFiles) -> Result<Tls, TlsError> {
        let config = files.config(&mut |path| Ok(read_file(path)?))?;
        Ok(Tls { files, current: Arc::new(RwLock::new(Arc::new(config))), protocols: &[] })
    }

    /// The same for a listener that speaks these protocols.
    pub(crate) fn speaking(&self, protocols: Protocols) -> Tls {
        Tls { protocols, ..self.clone() }
    }

    /// Accepts a connection by what the files said last.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let current = Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner));
        // A handful of pointers, beside a handshake that signs.
        let mut config = ServerConfig::clone(&current);
        config.alpn_protocols = self.protocols.iter().map(|protocol| protocol.to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }

    /// Follows the files.
    pub(crate) fn follow(self) -> Builder<ServerConfig> {
        let Tls { files, current, .. } = self;
        watch_files(
            move |read| files.config(read).map_err(|error| in_full(&error)),
            move |config| {
                *current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
                Ok(())
            },
        )
    }
}

impl TlsFiles {
    fn config(&self, read: &mut ReadFile<'_>) -> Result<ServerConfig, TlsError> {
        let mut read = |path: &Path| read(path).map_err(|source| TlsError::Unreadable { path: path.into(), source });
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = certificates(&self.certificate, &read(&self.certificate)?)?;
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key)?)
            .map_err(|error| no_pem(&self.key, "private key", Some(error)))?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&self.certificate, error))?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates(path, &read(path)?)? {
                    roots.add(authority).map_err(|error| unusable(path, error))?;
                }
                let mut revoked: Vec<CertificateRevocationListDer<'static>> = Vec::new();
                for path in &self.client_crls {
                    revoked.extend(pem(path, "revocation list (X509 CRL)", &read(path)?)?);
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = verifier.with_crls(revoked).build().map_err(|error| match error {
                    VerifierBuilderError::InvalidCrl(_) => TlsError::RevocationList { source: error },
                    other => unusable(path, other),
                })?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        builder.with_single_cert(chain, key).map_err(|error| unusable(&self.certificate, error))
    }
}

/// TLS as a client speaks it, to servers that these authorities vouch for, or else those of the system.
pub(crate) fn connector(authorities: Option<&Path>) -> Result<TlsConnector, TlsError> {
    let mut roots = RootCertStore::empty();
    match authorities {
        Some(path) => {
            let text = read_file(path).map_err(io::Error::from);
            let text = text.map_err(|source| TlsError::Unreadable { path: path.into(), source })?;
            for authority in certificates(path, &text)? {
                roots.add(authority).map_err(|error| unusable(path, error))?;
            }
        }
        None => {
            let (added, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if added == 0 {
                return Err(TlsError::Authorities);
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|_| TlsError::Authorities)?.with_root_certificates(roots).with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn certificates(path: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    pem(path, "certificate", text)
}

/// All parts of a kind that a file has, if it has any.
fn pem<T: PemObject>(path: &Path, what: &'static str, text: &[u8]) -> Result<Vec<T>, TlsError> {
    let found: Vec<T> =
        T::pem_slice_iter(text).collect::<Result<_, _>>().map_err(|error| no_pem(path, what, Some(error)))?;
    if found.is_empty() { Err(no_pem(path, what, None)) } else { Ok(found) }
}

fn no_pem(path: &Path, what: &'static str, source: Option<rustls::pki_types::pem::Error>) -> TlsError {
    TlsError::Pem { path: path.into(), what, source }
}

fn unusable(path: &Path, error: impl std::error::Error + Send + Sync + 'static) -> TlsError {
    TlsError::Unusable { path: path.into(), source: Box::new(error) }
}
