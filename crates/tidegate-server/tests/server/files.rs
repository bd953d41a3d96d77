//! Paths that lead to no regular file: what hangs a reader is refused.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use tidegate_testkit::servers::eventually;

use crate::server::client::post;
use crate::server::running::{Folder, Running, ask, tidegate};

const NOT_REGULAR: &str = "not a regular file";

/// Puts a FIFO, which no process writes to, in the place of whatever is there.
fn make_fifo(path: &str) {
    let beside = format!("{path}.fifo");
    assert!(Command::new("mkfifo").arg(&beside).status().unwrap().success());
    std::fs::rename(&beside, path).unwrap();
}

#[test]
fn a_policy_file_that_becomes_a_fifo_is_refused_and_neither_reload_nor_end_hangs() {
    let folder = Folder::new();
    let write = |limit: &str| {
        let beside = folder.write("new", &format!("[rules.all]\nlimit = \"{limit}\"\n"));
        std::fs::rename(beside, folder.path("policy.toml")).unwrap();
    };
    write("10/d");
    let (policy, log) = (folder.path("policy.toml"), folder.path("log"));
    let server = Running::with(|command| {
        command.args(["--http", "127.0.0.1:0", "--policy", &policy]).stderr(File::create(&log).unwrap())
    });
    let limit = || post(&server.url("/v1/check"), r#"{"key": "alice"}"#).json()["limit"].as_u64().unwrap();
    let until_refused = |times: usize| {
        eventually("the FIFO to be refused", || {
            let log = std::fs::read_to_string(&log).unwrap();
            if log.matches(NOT_REGULAR).count() >= times { Ok(()) } else { Err(log) }
        });
    };
    make_fifo(&policy);
    until_refused(1);
    assert_eq!(limit(), 10);
    server.hang_up();
    until_refused(2);
    write("20/d");
    eventually("the file that is back to be read", || match limit() {
        20 => Ok(()),
        limit => Err(format!("the limit is {limit}")),
    });
    make_fifo(&policy);
    until_refused(3);
    assert!(server.stop().success());
}

#[test]
fn what_is_no_regular_file_is_refused_at_the_start() {
    let folder = Folder::new();
    let fifo = |name: &str| {
        make_fifo(&folder.path(name));
        folder.path(name)
    };
    let toml = fifo("a.toml");
    let includes = folder.write("includes.toml", "include = [\"a.toml\"]\n");
    let (yaml, pem) = (fifo("a.yaml"), fifo("a.pem"));
    for arguments in [
        &["--policy", &toml][..],
        &["--policy", &includes],
        &["--settings", &toml],
        &["--envoy-config", &yaml],
        &["--admin-token-file", &pem],
        &["--snapshot", &pem],
        &["--tls-certificate", &pem, "--tls-key", &pem],
        &["--tls-certificate", "/dev/zero", "--tls-key", &pem],
        &["--store", "rediss://127.0.0.1:1", "--store-tls-ca", &pem],
        &["--store", "rediss://127.0.0.1:1", "--store-tls-certificate", &pem, "--store-tls-key", &pem],
    ] {
        let output = tidegate().arg("serve").args(["--http", "127.0.0.1:0"]).args(arguments).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && errors.contains(NOT_REGULAR), "{arguments:?}: {errors}");
    }
    let validated = ask(&["validate", &toml]);
    assert!(!validated.status.success(), "{validated:?}");
    assert!(Path::new(&toml).exists());
}
