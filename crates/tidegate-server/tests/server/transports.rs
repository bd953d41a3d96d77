//! TLS, Unix sockets, HTTP/2.

use std::fs::File;
use std::process::Command;

use rcgen::{CertificateParams, CertifiedIssuer, DnType, KeyPair, SerialNumber};
use tidegate_testkit::servers::eventually;

use crate::server::client::{ALICE, curl};
use crate::server::running::{Folder, Running, ask};

/// The serial number of the client's certificate.
pub(super) const CLIENT: u64 = 7;

/// An authority, and two that it vouches for.
pub(crate) struct Certificates {
    pub(super) folder: Folder,
    pub(super) authority: CertifiedIssuer<'static, KeyPair>,
}

impl Certificates {
    pub(crate) fn new() -> Certificates {
        let folder = Folder::new();
        let mut authority = CertificateParams::default();
        authority.distinguished_name.push(DnType::CommonName, "an authority");
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        folder.write("ca.pem", &authority.pem());
        let certificates = Certificates { folder, authority };
        certificates.issue("server", 1);
        certificates.issue("client", CLIENT);
        certificates
    }

    /// Gives a certificate of that serial number to a name.
    fn issue(&self, name: &str, serial: u64) {
        let key = KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut certificate = CertificateParams::new(names).unwrap();
        certificate.distinguished_name.push(DnType::CommonName, name);
        certificate.serial_number = Some(SerialNumber::from(serial));
        let certificate = certificate.signed_by(&key, &self.authority).unwrap();
        self.folder.write(&format!("{name}.pem"), &certificate.pem());
        self.folder.write(&format!("{name}.key"), &key.serialize_pem());
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
fn tls_clients_that_trust_the_authority_are_served() {
    let certificates = Certificates::new();
    let server = certificates.start(&[]);
    let url = format!("https://{}/healthz", server.address());
    let ca = certificates.path("ca.pem");
    for version in ["--http1.1", "--http2"] {
        assert_eq!(curl(&[version, "--cacert", &ca, &url]).status, 200);
    }
    let stranger = Command::new("curl").args(["-s", &url]).status().unwrap();
    assert!(!stranger.success());
    let plain = Command::new("curl").args(["-s", &server.url("/healthz")]).status().unwrap();
    assert!(!plain.success());
    assert!(server.banner.contains("https://"));
}

#[test]
fn commands_speak_tls() {
    let certificates = Certificates::new();
    let server = certificates.start(&[]);
    let url = format!("https://{}", server.address());
    let ca = certificates.path("ca.pem");
    for words in [&["ready"][..], &["check", "alice"], &["explain", "alice"]] {
        let trusted = ask(&[words, &["--server", &url, "--server-tls-ca", &ca]].concat());
        assert_eq!(trusted.status.code(), Some(0), "{words:?}: {trusted:?}");
        let stranger = ask(&[words, &["--server", &url]].concat());
        let told = String::from_utf8(stranger.stderr).unwrap();
        assert!(stranger.status.code() == Some(2) && told.contains("--server-tls-ca"), "{words:?}: {told}");
    }
}

/// The serial number of the certificate that a server shows.
fn serial(server: &Running, certificates: &Certificates) -> String {
    let url = format!("https://{}/healthz", server.address());
    let (ca, format) = (certificates.path("ca.pem"), "%{certs}");
    let shown = Command::new("curl").args(["-s", "-o", "/dev/null", "-w", format, "--cacert", &ca, &url]).output();
    let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
    shown.lines().find_map(|line| line.strip_prefix("Serial Number:")).unwrap_or(&shown).to_owned()
}

#[test]
fn certificates_are_followed_and_bad_ones_change_nothing() {
    let certificates = Certificates::new();
    let (certificate, key, log) =
        (certificates.path("server.pem"), certificates.path("server.key"), certificates.path("log"));
    let server = Running::with(|command| {
        let tls = ["--tls-certificate", &certificate, "--tls-key", &key];
        command.args(["--http", "127.0.0.1:0"]).args(tls).stderr(File::create(&log).unwrap())
    });
    let first = serial(&server, &certificates);
    let refusals = || std::fs::read_to_string(&log).unwrap().matches("the TLS files: refused").count();
    certificates.folder.write("server.key", "no key");
    eventually("the file without a key to be refused", || if refusals() >= 1 { Ok(()) } else { Err("it is not") });
    assert_eq!(serial(&server, &certificates), first);
    // Told by a signal, the files are read again though nothing has changed.
    let before = refusals();
    server.hang_up();
    eventually("the files to be read again", || if refusals() > before { Ok(()) } else { Err("they are not") });
    certificates.issue("server", 2);
    eventually("the new certificate to be shown", || match serial(&server, &certificates) {
        shown if shown != first => Ok(()),
        shown => Err(shown),
    });
    assert!(server.stop().success());
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
fn http_2_without_tls_is_spoken_to_clients_that_begin_with_it() {
    let server = Running::start(&[]);
    let answer = curl(&["--http2-prior-knowledge", "--json", ALICE, &server.url("/v1/check")]);
    assert_eq!(answer.status, 200);
}
