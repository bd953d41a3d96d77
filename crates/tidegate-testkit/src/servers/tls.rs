//! A server that speaks TLS, with certificates of its own authority.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

use super::process::Directory;
use super::program::Program;
use super::server::{Role, Server};

/// Whether clients must show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientCertificates {
    /// They are not asked for one.
    Unused,
    /// One that is shown must be good.
    Optional,
    /// Without one there is no connection.
    Required,
}

/// A running server whose port speaks TLS only; killed when dropped.
///
/// Its certificate holds for `127.0.0.1` and `localhost`, and is signed by an
/// authority made for this server alone.
///
/// ```no_run
/// use tidegate_testkit::servers::TlsServer;
///
/// let server = TlsServer::start();
/// println!("connect to {} and trust {}", server.url(), server.authority());
/// ```
#[derive(Debug)]
pub struct TlsServer {
    server: Server,
    authority: String,
    client_certificate: String,
    client_key: String,
}

impl TlsServer {
    /// Starts one that asks clients for no certificate.
    ///
    /// # Panics
    ///
    /// When it does not start, for example because the program does not
    /// [speak TLS](Program::speaks_tls). So do the other ways to start one.
    pub fn start() -> TlsServer {
        TlsServer::start_with(ClientCertificates::Unused, &[])
    }

    /// Starts one with further directives.
    pub fn start_with(clients: ClientCertificates, directives: &[(&str, &str)]) -> TlsServer {
        TlsServer::start_on(&Program::from_environment(), clients, directives)
    }

    /// Starts one of a given program.
    pub fn start_on(program: &Program, clients: ClientCertificates, directives: &[(&str, &str)]) -> TlsServer {
        let issuer = Authority::create();
        let own = issuer.sign(&["127.0.0.1", "localhost"], ExtendedKeyUsagePurpose::ServerAuth);
        let client = issuer.sign(&["client.tidegate.test"], ExtendedKeyUsagePurpose::ClientAuth);
        let directory = Directory::in_memory();
        let shown = |path: PathBuf| path.display().to_string();
        let authority = shown(directory.write("authority.pem", &issuer.certificate));
        let certificate = shown(directory.write("certificate.pem", &own.certificate));
        let key = shown(directory.write("key.pem", &own.key));
        let clients = match clients {
            ClientCertificates::Unused => "no",
            ClientCertificates::Optional => "optional",
            ClientCertificates::Required => "yes",
        };
        let tls = [
            ("tls-ca-cert-file", authority.as_str()),
            ("tls-cert-file", certificate.as_str()),
            ("tls-key-file", key.as_str()),
            ("tls-auth-clients", clients),
        ];
        let server = Server::launch(program, Role::TlsServer, directory, &[&tls[..], directives].concat());
        TlsServer {
            server,
            authority: issuer.certificate,
            client_certificate: client.certificate,
            client_key: client.key,
        }
    }

    /// The server, to command, pause, kill or restart.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Where it listens, as clients are told: `rediss://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// The certificate of the authority, in PEM: what clients must trust.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// A certificate that a client can show, in PEM.
    pub fn client_certificate(&self) -> &str {
        &self.client_certificate
    }

    /// The key to the certificate of a client, in PEM.
    pub fn client_key(&self) -> &str {
        &self.client_key
    }
}

/// Who signs certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

/// A certificate and its key, in PEM.
struct Signed {
    certificate: String,
    key: String,
}

impl Authority {
    fn create() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "tidegate tests");
        let key = KeyPair::generate().expect("keys can be made");
        let certificate = params.self_signed(&key).expect("the parameters are valid").pem();
        Authority { issuer: Issuer::new(params, key), certificate }
    }

    fn sign(&self, names: &[&str], purpose: ExtendedKeyUsagePurpose) -> Signed {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("the names are valid");
        params.extended_key_usages.push(purpose);
        let key = KeyPair::generate().expect("keys can be made");
        let certificate = params.signed_by(&key, &self.issuer).expect("the parameters are valid").pem();
        Signed { certificate, key: key.serialize_pem() }
    }
}
