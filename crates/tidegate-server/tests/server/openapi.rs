//! The OpenAPI document is true: schemathesis reads it, asks what it allows
//! and what it does not, and compares.

use std::process::Command;

use tidegate_testkit::servers::{GUARD, Permit};

use crate::server::client::{curl, post};
use crate::server::running::{Folder, Running, workspace};

/// A response without an end, which a client that waits for the end cannot compare.
const ENDLESS: &str = "/admin/v1/live/stream";

/// Takes any method, which the document cannot say.
const ANY_METHOD: &str = "/v1/forward-auth";

/// Whether a request is admitted depends on more than its shape. And wrong tokens, which are slowed down, have tests of
/// their own.
const UNCHECKED: &str = "positive_data_acceptance,ignored_auth";

/// Enough to find a wrong shape; more finds the same.
const EXAMPLES: &str = "25";

#[test]
fn the_document_is_served_and_lists_every_path() {
    let server = Running::start(&[]);
    let document = curl(&[&server.url("/openapi.json")]).json();
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    for (path, methods) in document["paths"].as_object().unwrap().iter().filter(|(path, _)| *path != ENDLESS) {
        for method in methods.as_object().unwrap().keys() {
            let answer = curl(&["-X", &method.to_uppercase(), &server.url(path)]);
            assert!(![404, 405].contains(&answer.status), "{method} {path}: {answer:?}");
        }
    }
}

#[test]
fn every_example_is_admitted_every_outcome_is_listed_and_what_needs_a_right_says_so() {
    let server = Running::start(&["--admin-token", "s3cret", "--anonymous", "check"]);
    let document = curl(&[&server.url("/openapi.json")]).json();
    let schemas = &document["components"]["schemas"];
    let [by_policy, by_limit] = [&schemas["ByPolicy"], &schemas["ByLimit"]];
    let acquire = schemas["AcquireRequest"]["oneOf"].as_array().unwrap().iter();
    let shapes =
        [("/v1/check", by_policy), ("/v1/check", by_limit)].into_iter().chain(acquire.map(|it| ("/v1/acquire", it)));
    let reserve = schemas["ReservationRequest"]["oneOf"].as_array().unwrap().iter();
    let calls = ["/v1/reserve", "/v1/renew", "/v1/settle", "/v1/release"];
    let shapes = shapes.chain(reserve.flat_map(|shape| calls.map(|path| (path, shape))));
    for (path, shape) in shapes {
        for example in shape["examples"].as_array().expect("each shape has an example") {
            assert_eq!(post(&server.url(path), &example.to_string()).status, 200, "{path}: {example}");
        }
    }
    for (path, statuses) in [
        ("/v1/check", &["200", "400", "403", "422", "429", "503"][..]),
        ("/v1/acquire", &["200", "400", "403", "422", "429", "503"]),
        ("/v1/peek", &["200", "400", "422", "503"]),
        ("/v1/reserve", &["200", "400", "403", "422", "429", "503"]),
        ("/v1/settle", &["200", "400", "404", "422", "503"]),
        ("/v1/renew", &["200", "400", "403", "404", "409", "422", "503"]),
        ("/v1/release", &["200", "400", "404", "422", "503"]),
    ] {
        let listed = &document["paths"][path]["post"]["responses"];
        assert!(statuses.iter().all(|status| listed.get(status).is_some()), "{path}: {listed}");
    }
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let is_open = ["/healthcheck", "/healthz", "/readyz", "/openapi.json"].contains(&path.as_str());
            assert_eq!(operation.get("security").is_none(), is_open, "{method} {path}");
            for status in ["401", "403", "421", "429"] {
                let is_listed = operation["responses"].get(status).is_some();
                assert!(is_open || is_listed, "{method} {path}: {status}");
            }
        }
    }
}

#[test]
fn answers_are_as_the_document_says() {
    let program = workspace().join("target/programs/schemathesis/bin/schemathesis");
    let program = std::env::var_os("TIDEGATE_SCHEMATHESIS").map_or(program, Into::into);
    assert!(program.exists(), "schemathesis is missing: run `cargo xtask install`");
    let _permit = Permit::wait(2);
    // It takes a body that is too long for one that was accepted: all that it sends are shorter than this.
    let server = Running::start(&["--admin-token", "s3cret", "--max-body", "4194304"]);
    let folder = Folder::new();
    let runs = [
        (UNCHECKED.to_owned(), ["--exclude-path", ENDLESS, "--exclude-path", ANY_METHOD].as_slice()),
        (format!("{UNCHECKED},unsupported_method"), &["--include-path", ANY_METHOD]),
    ];
    for (unchecked, paths) in runs {
        let output = Command::new(&program)
            .args(["run", &server.url("/openapi.json"), "--header", "Authorization: Bearer s3cret"])
            .args(["--checks", "all", "--exclude-checks", &unchecked])
            .args(paths)
            .args(["--max-examples", EXAMPLES, "--seed", "1", "--phases", "examples,coverage,fuzzing"])
            // How fast it is on this machine is not tested here.
            .args(["--request-timeout", &GUARD.as_secs().to_string(), "--suppress-health-check", "too_slow"])
            .current_dir(folder.path(""))
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(curl(&[&server.url("/healthz")]).status, 200);
}
