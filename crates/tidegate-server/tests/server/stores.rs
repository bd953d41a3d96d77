//! Where states are kept: across restarts, on Redis, and when it is away.

use std::path::Path;

use tidegate_testkit::servers::{self, ClientCertificates, Program, TlsServer, eventually};

use crate::server::client::{Answer, curl, post};
use crate::server::commands::ended_at_its_start;
use crate::server::running::{Folder, Running, ask, tidegate};

fn check(server: &Running) -> Answer {
    post(&server.url("/v1/check"), r#"{"key": "alice", "limit": "2/h"}"#)
}

#[test]
fn a_snapshot_carries_the_states_over_a_restart() {
    let folder = Folder::new();
    let snapshot = folder.path("states");
    let server = Running::start(&["--snapshot", &snapshot]);
    assert_eq!(check(&server).json()["remaining"], 1);
    assert!(server.stop().success());
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&snapshot).unwrap().permissions().mode() & 0o777, 0o600);
    let server = Running::start(&["--snapshot", &snapshot]);
    assert_eq!(check(&server).json()["remaining"], 0);
    assert_eq!(check(&server).status, 429);
}

#[test]
fn a_server_that_is_killed_loses_no_more_than_since_its_last_snapshot() {
    let folder = Folder::new();
    let snapshot = folder.path("states");
    let server = Running::start(&["--snapshot", &snapshot, "--snapshot-every", "1"]);
    assert_eq!(check(&server).json()["remaining"], 1);
    // One that is written from now on has the check in it.
    let inline = folder.path("states.inline");
    let _ = std::fs::remove_file(&inline);
    eventually("the states to be written", || if Path::new(&inline).exists() { Ok(()) } else { Err("not yet") });
    // Killed, without a word.
    drop(server);
    let server = Running::start(&["--snapshot", &snapshot, "--snapshot-every", "0"]);
    assert_eq!(check(&server).json()["remaining"], 0);
}

#[test]
fn a_snapshot_that_could_not_be_written_in_the_end_is_refused_at_the_start() {
    let folder = Folder::new();
    let nowhere = folder.path("missing/states");
    let mut command = tidegate();
    command.args(["serve", "--http", "127.0.0.1:0", "--snapshot", &nowhere]);
    let errors = ended_at_its_start(command);
    assert!(errors.contains(&nowhere), "{errors}");
    // Where it can be, nothing is left of the trial.
    let server = Running::start(&["--snapshot", &folder.path("states")]);
    assert_eq!(std::fs::read_dir(folder.path("")).unwrap().count(), 0);
    assert!(server.stop().success());
}

#[test]
fn servers_on_one_redis_share_their_limits() {
    let redis = servers::Server::start();
    let url = redis.url();
    let [one, other] = [(); 2].map(|()| Running::start(&["--store", &url]));
    assert_eq!(check(&one).status, 200);
    assert_eq!(check(&other).status, 200);
    assert_eq!((check(&one).status, check(&other).status), (429, 429));
    assert_eq!(ask(&["check", "alice", "--limit", "2/h", "--store", &url]).status.code(), Some(1));
    let batch = post(&one.url("/v1/check"), r#"[{"key": "a", "limit": "1/h"}, {"key": "a", "limit": "1/h"}]"#).json();
    assert_eq!((&batch[0]["allowed"], &batch[1]["allowed"]), (&true.into(), &false.into()));
    let apart = Running::start(&["--store", &url, "--store-prefix", "apart"]);
    assert_eq!(check(&apart).status, 200);
    let metrics = curl(&[&one.url("/metrics")]).body;
    assert!(metrics.contains("tidegate_store_breakers_open 0\n"), "{metrics}");
    assert!(one.stop().success());
}

#[test]
fn the_check_command_gives_the_store_as_long_as_it_is_told() {
    let redis = servers::Server::start();
    redis.pause();
    let output = ask(&["check", "alice", "--limit", "2/h", "--store", &redis.url(), "--store-deadline-ms", "7"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("no answer within 7ms"), "{said}");
    redis.resume();
}

#[test]
fn a_store_that_is_away_is_a_503_or_whatever_was_asked_for() {
    let redis = servers::Server::start();
    let (url, folder) = (redis.url(), Folder::new());
    let strict = Running::start(&["--store", &url]);
    let open = Running::start(&["--store", &url, "--on-failure", "open"]);
    let local = Running::start(&["--store", &url, "--on-failure", "local:2"]);
    assert_eq!(check(&strict).status, 200);
    redis.kill();
    let problem = check(&strict);
    assert_eq!((problem.status, problem.header("retry-after")), (503, Some("1")));
    assert_eq!(problem.json()["type"], "urn:problem-type:tidegate:unavailable");
    for _ in 0..3 {
        let answer = check(&open);
        assert_eq!((answer.status, &answer.json()["degraded"]), (200, &true.into()));
    }
    assert_eq!((check(&local).status, check(&local).status), (200, 429));
    // Enough failures open the breaker. Then a server without a failure mode is not ready; others are, and say so.
    let by_rule = "[rules.all]\nlimit = \"2/h\"\nkey = [\"user\"]\non_failure = \"open\"\n";
    let by_rule = Running::start(&["--store", &url, "--policy", &folder.write("policy.toml", by_rule)]);
    for (server, status, said) in [
        (&strict, 503, "the store is unreachable"),
        (&open, 200, "degraded"),
        (&local, 200, "degraded"),
        (&by_rule, 200, "degraded"),
    ] {
        let ready = eventually("the breaker to open", || {
            check(server);
            let ready = curl(&[&server.url("/readyz")]);
            if ready.body == "ready\n" { Err(ready.body) } else { Ok(ready) }
        });
        assert_eq!(ready.status, status);
        assert!(ready.body.starts_with(said), "{ready:?}");
        assert_eq!(curl(&[&server.url("/healthz")]).status, 200, "it is alive");
        assert_eq!(ask(&["ready", "--server", server.address()]).status.success(), status == 200);
    }
    let metrics = curl(&[&strict.url("/metrics")]).body;
    assert!(metrics.contains("tidegate_store_breakers_open 1\n"), "{metrics}");
    assert!(metrics.contains("tidegate_errors_total{reason=\"unavailable\"}"), "{metrics}");
    let metrics = curl(&[&open.url("/metrics")]).body;
    let degraded =
        metrics.lines().find_map(|line| line.strip_prefix("tidegate_degraded_decisions_total{rule=\"inline\"} "));
    assert!(degraded.is_some_and(|count| count.parse::<u64>().unwrap() >= 3), "{metrics}");
}

/// What a client is told, and whether anything of it is Redis's own text.
fn is_general(said: &str) -> bool {
    let words = ["NOAUTH", "Authentication", "OOM", "maxmemory", "not allowed", "script"];
    said.contains("the store refused the command") && !words.iter().any(|word| said.contains(word))
}

#[test]
fn a_store_that_refuses_everything_is_not_ready_until_it_decides_again() {
    for [spoil, heal] in [[["requirepass", "secret"], ["requirepass", ""]], [["maxmemory", "1"], ["maxmemory", "0"]]] {
        let redis = servers::Server::start();
        let mut operator = servers::Connection::open(redis.address()).unwrap();
        let mut set = |[name, value]: [&str; 2]| {
            assert!(!operator.command(&["CONFIG", "SET", name, value]).unwrap().is_error());
        };
        set(spoil);
        let server = Running::start(&["--store", &redis.url(), "--resp", "127.0.0.1:0"]);
        let open = Running::start(&["--store", &redis.url(), "--on-failure", "open"]);
        let problem = check(&server);
        assert_eq!(
            (problem.status, problem.json()["type"].as_str()),
            (503, Some("urn:problem-type:tidegate:unavailable"))
        );
        assert!(is_general(&problem.body), "{problem:?}");
        let limit = r#"{"requestsPerUnit": 1, "unit": "DAY"}"#;
        let descriptor = format!(r#"{{"entries": [{{"key": "a", "value": "b"}}], "limit": {limit}}}"#);
        let envoy = post(&server.url("/json"), &format!(r#"{{"domain": "d", "descriptors": [{descriptor}]}}"#));
        assert!(envoy.status == 503 && is_general(&envoy.body), "{envoy:?}");
        let mut resp = servers::Connection::open(server.address_of("resp").parse().unwrap()).unwrap();
        let servers::Reply::Error(words) = resp.command(&["CL.THROTTLE", "a", "0", "1", "60"]).unwrap() else {
            panic!()
        };
        assert!(words.starts_with("UNAVAILABLE ") && is_general(&words), "{words}");
        let ready = curl(&[&server.url("/readyz")]);
        assert!(ready.status == 503 && ready.body.starts_with("the store refuses commands"), "{ready:?}");
        assert_eq!(check(&open).json()["degraded"], true);
        let degraded = curl(&[&open.url("/readyz")]);
        assert!(degraded.status == 200 && degraded.body.starts_with("degraded"), "{degraded:?}");
        let metrics = curl(&[&server.url("/metrics")]).body;
        assert!(metrics.contains("tidegate_store_refusing 1\n"), "{metrics}");
        set(heal);
        // No request comes meanwhile, as it is not ready.
        assert_eq!(curl(&[&server.url("/readyz")]).body, "ready\n");
        assert_eq!((check(&server).status, curl(&[&open.url("/readyz")]).body.as_str()), (200, "ready\n"));
    }
}

#[test]
fn a_store_that_asks_for_a_certificate_is_shown_one() {
    if !Program::from_environment().speaks_tls() {
        println!("{} is built without TLS", Program::from_environment().version());
        return;
    }
    let redis = TlsServer::start_with(ClientCertificates::Required, &[]);
    let (url, folder) = (redis.url(), Folder::new());
    let ca = folder.write("ca.pem", redis.authority());
    let certificate = folder.write("client.pem", redis.client_certificate());
    let key = folder.write("client.key", redis.client_key());
    let trusting = ["--store", &url, "--store-tls-ca", &ca];
    let showing = ["--store-tls-certificate", &certificate, "--store-tls-key", &key];
    assert_eq!(check(&Running::start(&[&trusting[..], &showing].concat())).status, 200);
    assert_eq!(check(&Running::start(&trusting)).status, 503, "without a certificate there is no connection");
    for (arguments, said) in [
        (vec!["--store", &url, "--store-tls-key", &key], "--store-tls-certificate and --store-tls-key"),
        (vec!["--store-tls-ca", &ca], "rediss://"),
        (vec!["--store", "redis://127.0.0.1:1", "--store-tls-ca", &ca], "rediss"),
        (vec!["--store", &url, "--store-tls-ca", "/missing.pem"], "/missing.pem"),
    ] {
        let mut command = tidegate();
        command.args(["serve", "--http", "127.0.0.1:0"]).args(&arguments);
        let errors = ended_at_its_start(command);
        assert!(errors.contains(said), "{arguments:?}: {errors}");
    }
}

#[test]
fn a_shadow_rule_refuses_nothing_while_the_store_is_away() {
    let redis = servers::Server::start();
    let folder = Folder::new();
    let policy = folder.write("policy.toml", "[rules.watching]\nlimit = \"1/h\"\nshadow = true\n");
    let server = Running::start(&["--store", &redis.url(), "--policy", &policy]);
    let check = || post(&server.url("/v1/check"), r#"{"key": "alice", "rule": "watching"}"#).status;
    assert_eq!((check(), check()), (200, 200));
    redis.kill();
    assert_eq!(check(), 200);
}
