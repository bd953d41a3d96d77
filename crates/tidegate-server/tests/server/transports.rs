//! TLS, clients that show certificates, Unix sockets, HTTP/2.

use rcgen::{CertificateParams, CertifiedIssuer, DnType, KeyPair};

use crate::client::{ALICE, curl};
use crate::running::{Folder, Running};

/// An authority, and two that it vouches for.
pub(crate) struct Certificates {
    folder: Folder,
}

impl Certificates {
    pub(crate) fn new() -> Certificates {
        let folder = Folder::new();
        let mut authority = CertificateParams::default();
        authority.distinguished_name.push(DnType::CommonName, "an authority");
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        folder.write("ca.pem", &authority.pem());
        for name in ["server", "client"] {
            let key = KeyPair::generate().unwrap();
            let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
            let mut certificate = CertificateParams::new(names).unwrap();
            certificate.distinguished_name.push(DnType::CommonName, name);
            let certificate = certificate.signed_by(&key, &authority).unwrap();
            folder.write(&format!("{name}.pem"), &certificate.pem());
            folder.write(&format!("{name}.key"), &key.serialize_pem());
        }
        Certificates { folder }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path(name)
    }

    pub(crate) fn start(&self, more: &[&str]) -> Running {
        let (certificate, key) = (self.path("server.pem"), self.path("server.key"));
        let tls = ["--tls-certificate", &certificate, "--tls-key", &key];
        Running::start(&[&tls, more].concat())
    }
}

#[test]
fn tls_is_spoken_with_whoever_trusts_the_authority() {
    let certificates = Certificates::new();
    let server = certificates.start(&[]);
    let url = format!("https://{}/healthz", server.address());
    let ca = certificates.path("ca.pem");
    for version in ["--http1.1", "--http2"] {
        assert_eq!(curl(&[version, "--cacert", &ca, &url]).status, 200);
    }
    let stranger = std::process::Command::new("curl").args(["-s", &url]).status().unwrap();
    assert!(!stranger.success());
    let plain = std::process::Command::new("curl").args(["-s", &server.url("/healthz")]).status().unwrap();
    assert!(!plain.success());
    assert!(server.banner.contains("https://"));
}

#[test]
fn clients_without_a_certificate_are_turned_away_if_asked_for() {
    let certificates = Certificates::new();
    let ca = certificates.path("ca.pem");
    let server = certificates.start(&["--tls-client-ca", &ca]);
    let url = format!("https://{}/healthz", server.address());
    let (certificate, key) = (certificates.path("client.pem"), certificates.path("client.key"));
    assert_eq!(curl(&["--cacert", &ca, "--cert", &certificate, "--key", &key, &url]).status, 200);
    let nobody = std::process::Command::new("curl").args(["-s", "--cacert", &ca, &url]).status().unwrap();
    assert!(!nobody.success());
}

#[test]
fn a_unix_socket_serves_and_goes_with_the_server() {
    let folder = Folder::new();
    let path = folder.path("socket");
    let address = format!("unix:{path}");
    let start = || Running::with(|command| command.args(["--http", &address]));
    let server = start();
    assert_eq!(curl(&["--unix-socket", &path, "http://x/healthz"]).status, 200);
    assert!(server.stop().success());
    assert!(!std::path::Path::new(&path).exists());
    // What a server that was killed left behind is no hindrance.
    drop(start());
    assert!(std::path::Path::new(&path).exists());
    drop(start());
}

#[test]
fn http_2_is_spoken_without_tls_to_those_who_begin_with_it() {
    let server = Running::start(&[]);
    let answer = curl(&["--http2-prior-knowledge", "--json", ALICE, &server.url("/v1/check")]);
    assert_eq!(answer.status, 200);
}
