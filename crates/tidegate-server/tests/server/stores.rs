//! Where states are kept: across restarts, on Redis, and when it is away.

use tidegate_testkit::servers::{self, eventually};

use crate::client::{Answer, curl, post};
use crate::commands::ended_at_its_start;
use crate::running::{Folder, Running, ask, tidegate};

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

#[test]
fn a_rule_that_only_watches_refuses_nobody_while_the_store_is_away() {
    let redis = servers::Server::start();
    let folder = Folder::new();
    let policy = folder.write("policy.toml", "[rules.watching]\nlimit = \"1/h\"\nshadow = true\n");
    let server = Running::start(&["--store", &redis.url(), "--policy", &policy]);
    let check = || post(&server.url("/v1/check"), r#"{"key": "alice", "rule": "watching"}"#).status;
    assert_eq!((check(), check()), (200, 200));
    redis.kill();
    assert_eq!(check(), 200);
}
