//! Clients that people have connect unchanged: redis-cli, redis-py, redis-rs.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use redis::{AsyncConnectionConfig, Commands, FromRedisValue};
use tidegate_testkit::servers::GUARD;

use crate::resp::harness::TestServer;

/// What a program prints, if it ends well.
fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; `cargo xtask install` gets it"));
    let (told, complaints) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && complaints.is_empty(), "{command:?}: {told}{complaints}");
    told.into_owned()
}

fn redis_cli(server: &TestServer, arguments: &[&str]) -> String {
    let port = server.address().port().to_string();
    printed(Command::new("redis-cli").args(["-p", &port]).args(arguments))
}

#[test]
fn redis_cli_shows_answers_of_both_versions() {
    let server = TestServer::start();
    let throttle = ["CL.THROTTLE", "alice", "15", "30", "60"];
    assert_eq!(redis_cli(&server, &throttle), "0\n16\n15\n-1\n2\n");
    assert_eq!(redis_cli(&server, &[&["-3"], &throttle[..]].concat()), "0\n16\n14\n-1\n4\n");
    let check = ["TIDEGATE.CHECK", "KEY", "alice", "LIMIT", "1/min"];
    let json = redis_cli(&server, &[&["-3", "--json"], &check[..]].concat());
    let expected = r#"{"allowed":true,"rule":"inline","limit":1,"remaining":0,"retry_after_us":0,"reset_after_us":60000000,"delay_us":0,"degraded":false}"#;
    assert_eq!(json.trim_end(), expected);
}

#[test]
fn redis_cli_types_lines_and_pipes_protocol() {
    use std::io::Write;
    use std::process::Stdio;
    let server = TestServer::start_with(|settings| settings.resp_password = Some("tide".into()));
    let port = server.address().port().to_string();
    let run = |arguments: &[&str], input: &str| {
        let mut command = Command::new("redis-cli");
        command.args(["-p", &port, "--no-auth-warning", "-a", "tide"]).args(arguments);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("redis-cli is missing: run `cargo xtask install`");
        child.stdin.take().expect("an input").write_all(input.as_bytes()).expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(run(&[], "PING\nECHO \"high tide\"\nSELECT 0\n"), "PONG\nhigh tide\nOK\n");
    let transaction = "MULTI\nPING\nCL.THROTTLE eve 9 1 60\nEXEC\n";
    assert_eq!(run(&[], transaction), "OK\nQUEUED\nQUEUED\nPONG\n0\n10\n9\n-1\n60\n");
    let pipe = run(&["--pipe", "--pipe-timeout", "0"], &"CL.THROTTLE bob 9 1 60\r\n".repeat(500));
    assert!(pipe.ends_with("errors: 0, replies: 500\n"), "{pipe}");
}

const REDIS_PY: &str = r#"
import sys, redis
port = int(sys.argv[1])
for protocol in (2, 3):
    patient = dict(socket_timeout=None, socket_connect_timeout=None)
    client = redis.Redis(port=port, protocol=protocol, decode_responses=True, client_name="test", db=0, **patient)
    assert client.ping() is True
    assert client.client_getname() == "test"
    assert client.info("server")["tidegate_version"]
    key = f"alice{protocol}"
    assert client.execute_command("CL.THROTTLE", key, 15, 30, 60) == [0, 16, 15, -1, 2]
    assert client.execute_command("THROTTLE", "crab" + key, 10, 100, 60) == [1, 10, 9, 5, 0]
    answer = client.execute_command("TIDEGATE.CHECK", "user", key, "COST", 3)
    if protocol == 3:
        assert answer["allowed"] is True and answer["remaining"] == 17 and answer["rule"] == "everyone", answer
    else:
        answer = dict(zip(answer[::2], answer[1::2]))
        assert answer["allowed"] == 1 and answer["remaining"] == 17, answer
    with client.pipeline(transaction=False) as pipeline:
        for _ in range(100):
            pipeline.execute_command("CL.THROTTLE", "pipe" + key, 49, 1, 60)
        limited = [reply[0] for reply in pipeline.execute()]
    assert limited == [0] * 50 + [1] * 50, limited
    throttle = ("CL.THROTTLE", "transaction" + key, 9, 1, 3600)
    with client.pipeline() as transaction:
        for _ in range(3):
            transaction.execute_command(*throttle)
        assert [reply[2] for reply in transaction.execute()] == [9, 8, 7]
    for word in ("NONSENSE", "ECHO"):
        with client.pipeline() as transaction:
            transaction.execute_command(*throttle)
            transaction.execute_command(word)
            try:
                transaction.execute()
                raise SystemExit("no error")
            except redis.ResponseError as error:
                assert word in str(error), error
    with client.pipeline() as transaction:
        try:
            transaction.watch(key)
            raise SystemExit("no error")
        except redis.ResponseError as error:
            assert str(error).startswith("WATCH is not supported"), error
    assert client.execute_command(*throttle, 0)[2] == 7, "an aborted transaction is not charged"
    try:
        client.execute_command("NONSENSE")
        raise SystemExit("no error")
    except redis.ResponseError as error:
        assert str(error).startswith("unknown command 'NONSENSE'"), error
    assert "cl.throttle" in {name.lower() for name in client.command_list()}
    client.close()
print("well")
"#;

#[test]
fn redis_py_connects_unchanged() {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/programs/redis/bin/python3");
    assert!(python.exists(), "redis-py is missing: run `cargo xtask install`");
    let server = TestServer::start();
    let port = server.address().port().to_string();
    let told = printed(Command::new(python).args(["-c", REDIS_PY, &port]));
    assert_eq!(told, "well\n");
}

#[test]
fn redis_rs_connects_unchanged() {
    let server = TestServer::start_with(|settings| settings.resp_password = Some("tide".into()));
    for version in ["resp2", "resp3"] {
        let url = format!("redis://:tide@{}/0?protocol={version}", server.address());
        let client = redis::Client::open(url).expect("a URL");
        let mut connection = client.get_connection().expect("a connection");
        let numbers: Vec<i64> =
            redis::cmd("CL.THROTTLE").arg(version).arg(15).arg(30).arg(60).query(&mut connection).expect("numbers");
        assert_eq!(numbers, [0, 16, 15, -1, 2]);
        let answer: HashMap<String, redis::Value> =
            redis::cmd("TIDEGATE.CHECK").arg("user").arg(version).query(&mut connection).expect("a map");
        assert_eq!(u64::from_redis_value(answer["remaining"].clone()).expect("a number"), 19);
        assert!(bool::from_redis_value(answer["allowed"].clone()).expect("a truth"));
        let mut pipeline = redis::pipe();
        for _ in 0..100 {
            pipeline.cmd("CL.THROTTLE").arg(format!("pipe{version}")).arg(49).arg(1).arg(60);
        }
        let answers: Vec<[i64; 5]> = pipeline.query(&mut connection).expect("answers");
        assert_eq!(answers.iter().filter(|answer| answer[0] == 1).count(), 50);
        let mut transaction = redis::pipe();
        transaction.atomic();
        for _ in 0..3 {
            transaction.cmd("CL.THROTTLE").arg(format!("transaction{version}")).arg(9).arg(1).arg(60);
        }
        let answers: Vec<[i64; 5]> = transaction.query(&mut connection).expect("answers");
        assert_eq!(answers.iter().map(|answer| answer[2]).collect::<Vec<_>>(), [9, 8, 7]);
        let unknown: redis::RedisResult<String> = connection.get("a");
        assert!(unknown.expect_err("there is no GET").to_string().contains("unknown command 'GET'"));
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let client = redis::Client::open(format!("redis://:tide@{}", server.address())).expect("a URL");
        // Half a second unless set.
        let patient =
            AsyncConnectionConfig::new().set_connection_timeout(Some(GUARD)).set_response_timeout(Some(GUARD));
        let connection = client.get_multiplexed_async_connection_with_config(&patient).await;
        let mut connection = connection.expect("a connection");
        let pong: String = redis::cmd("PING").query_async(&mut connection).await.expect("a word");
        assert_eq!(pong, "PONG");
    });
}
