//! Clients that show certificates: who is served, and what each may do.

use std::process::Command;

use rcgen::{CertificateRevocationListParams, KeyIdMethod, RevokedCertParams, SerialNumber, date_time_ymd};
use tidegate_testkit::servers::eventually;

use crate::server::client::curl;
use crate::server::running::{Folder, ask};
use crate::server::transports::{CLIENT, Certificates};

impl Certificates {
    /// Writes the list of certificates that are revoked.
    fn revoke(&self, serials: &[u64]) -> String {
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2026, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2026, 1, 1),
            next_update: date_time_ymd(2126, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        self.folder.write("revoked.pem", &list.signed_by(&self.authority).unwrap().pem().unwrap())
    }
}

#[test]
fn clients_without_a_certificate_are_refused_if_asked_for() {
    let certificates = Certificates::new();
    let ca = certificates.path("ca.pem");
    let server = certificates.start(&["--tls-client-ca", &ca]);
    let url = format!("https://{}/healthz", server.address());
    let (certificate, key) = (certificates.path("client.pem"), certificates.path("client.key"));
    assert_eq!(curl(&["--cacert", &ca, "--cert", &certificate, "--key", &key, &url]).status, 200);
    let stranger = Command::new("curl").args(["-s", "--cacert", &ca, &url]).status().unwrap();
    assert!(!stranger.success());
}

#[test]
fn clients_whose_certificate_is_revoked_are_refused() {
    let certificates = Certificates::new();
    let (ca, list) = (certificates.path("ca.pem"), certificates.revoke(&[CLIENT + 1]));
    let server = certificates.start(&["--tls-client-ca", &ca, "--tls-client-crl", &list]);
    let url = format!("https://{}/healthz", server.address());
    let (certificate, key) = (certificates.path("client.pem"), certificates.path("client.key"));
    let is_served = || {
        let arguments = ["-s", "--cacert", &ca, "--cert", &certificate, "--key", &key, &url];
        Command::new("curl").args(arguments).output().unwrap().status.success()
    };
    assert!(is_served());
    certificates.revoke(&[CLIENT]);
    eventually("the client to be turned away", || if is_served() { Err("it is served") } else { Ok(()) });
    certificates.revoke(&[]);
    eventually("the client to be served", || if is_served() { Ok(()) } else { Err("it is not") });
}

#[test]
fn certificates_have_the_rights_that_the_file_gives_them() {
    let (certificates, folder) = (Certificates::new(), Folder::new());
    let lines = "[[certificate]]\nname = \"cn:client\"\nrights = [\"metrics\"]\n";
    let (ca, tokens) = (certificates.path("ca.pem"), folder.write("tokens.toml", lines));
    let (certificate, key) = (certificates.path("client.pem"), certificates.path("client.key"));
    let mapped = certificates.start(&["--tls-client-ca", &ca, "--tokens", &tokens]);
    let plain = certificates.start(&["--tls-client-ca", &ca]);
    for (server, expected) in [(&mapped, [403, 403, 200, 403]), (&plain, [200, 403, 403, 403])] {
        for way in ["--http1.1", "--http2"] {
            let shown = [way, "--cacert", &ca, "--cert", &certificate, "--key", &key];
            let status = |path: &str, body: &[&str]| {
                let url = format!("https://{}{path}", server.address());
                curl(&[&shown[..], body, &[&url]].concat()).status
            };
            let body = ["--data-binary", r#"{"key": "alice", "limit": "5/h"}"#];
            let statuses = [
                status("/v1/check", &body),
                status("/v1/reset", &body),
                status("/metrics", &[]),
                status("/admin/v1/policy", &[]),
            ];
            assert_eq!(statuses, expected, "{way}");
        }
    }
}

#[test]
fn certificates_of_clients_without_one_of_the_server_are_refused_at_the_start() {
    let output = ask(&["serve", "--http", "127.0.0.1:0", "--tls-client-ca", "ca.pem"]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && errors.contains("needs --tls-certificate"), "{errors}");
}
