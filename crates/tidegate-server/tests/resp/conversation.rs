//! What clients say before they come to the point, and what they are told.

use tidegate_testkit::servers::{Connection, Reply};

use crate::resp::harness::{TestServer, ask, numbers, refusal};

fn status(word: &str) -> Reply {
    Reply::Status(word.into())
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.into())
}

#[test]
fn commands_are_answered_as_redis_answers_them() {
    let server = TestServer::start();
    let mut connection = server.connect();
    let cases = [
        ("PING", status("PONG")),
        ("ping tide", bulk("tide")),
        ("ECHO tide", bulk("tide")),
        ("SELECT 0", status("OK")),
        ("CLIENT SETNAME me", status("OK")),
        ("CLIENT GETNAME", bulk("me")),
        ("CLIENT SETINFO LIB-NAME test", status("OK")),
        ("client setinfo lib-ver 1.0", status("OK")),
        ("CLIENT NO-EVICT ON", status("OK")),
        ("COMMAND COUNT", Reply::Integer(27)),
        ("COMMAND GETKEYS CL.THROTTLE alice 1 1 1", Reply::Array(vec![bulk("alice")])),
        ("COMMAND GETKEYS WATCH a b", Reply::Array(vec![bulk("a"), bulk("b")])),
        ("RESET", status("RESET")),
        ("CLIENT GETNAME", Reply::Nil),
    ];
    for (line, reply) in cases {
        assert_eq!(ask(&mut connection, line), reply, "{line}");
    }
    let refusals = [
        ("FOO", "ERR unknown command 'FOO', with args beginning with: "),
        ("get a b", "ERR unknown command 'get', with args beginning with: 'a' 'b' "),
        ("ECHO", "ERR wrong number of arguments for 'echo' command"),
        ("PING a b", "ERR wrong number of arguments for 'ping' command"),
        ("SELECT 1", "ERR DB index is out of range"),
        ("SELECT one", "ERR value is not an integer or out of range"),
        ("CLIENT", "ERR wrong number of arguments for 'client' command"),
        ("CLIENT ID 1", "ERR wrong number of arguments for 'client|id' command"),
        ("CLIENT KILL a", "ERR unknown subcommand 'KILL'. Try CLIENT HELP."),
        ("CLIENT SETINFO LIB-COLOUR red", "ERR Unrecognized option 'LIB-COLOUR'"),
        ("COMMAND NONE", "ERR unknown subcommand 'NONE'. Try COMMAND HELP."),
        ("COMMAND COUNT all", "ERR wrong number of arguments for 'command|count' command"),
        ("COMMAND GETKEYS PING a", "ERR The command has no key arguments"),
        ("HELLO 4", "NOPROTO unsupported protocol version"),
        ("HELLO three", "ERR Protocol version is not an integer or out of range"),
        ("HELLO 3 LATER", "ERR Syntax error in HELLO option 'LATER'"),
    ];
    for (line, words) in refusals {
        assert_eq!(refusal(ask(&mut connection, line)), words, "{line}");
    }
}

#[test]
fn invalid_throttles_are_errors() {
    let server = TestServer::start();
    let mut connection = server.connect();
    let usage = "Cell error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]";
    let refusals = [
        ("CL.THROTTLE", usage),
        ("CL.THROTTLE a 1 1", usage),
        ("CL.THROTTLE a 1 1 1 1 1", usage),
        ("CL.THROTTLE a b 1 1", "Cell error: Couldn't parse as integer: b"),
        ("CL.THROTTLE a 1 1 1 1.5", "Cell error: Couldn't parse as integer: 1.5"),
        ("CL.THROTTLE a -1 1 1", "Cell error: max_burst is -1: give at least 0"),
        ("CL.THROTTLE a 1 0 1", "Cell error: count per period is 0: give at least 1"),
        ("CL.THROTTLE a 1 1 -5", "Cell error: period is -5: give at least 1"),
        ("CL.THROTTLE a 1 9000000000000 1", "Cell error: count is 9000000000000: give at most 1000000000000"),
        (
            "CL.THROTTLE a 9223372036854775807 1 1",
            "Cell error: burst is 9223372036854775808: give at most 1000000000000",
        ),
        ("THROTTLE a 1 1", "ERR wrong number of arguments for 'throttle' command"),
        ("THROTTLE a x 1 1", "ERR invalid max_burst"),
        ("THROTTLE a 1 x 1", "ERR invalid count_per_period"),
        ("THROTTLE a 1 1 x", "ERR invalid period"),
        ("THROTTLE a 1 1 1 x", "ERR invalid quantity"),
        ("THROTTLE a 1 1 1 -1", "ERR negative quantity: -1"),
        ("THROTTLE a 0 1 1", "ERR invalid rate limit parameters"),
        ("THROTTLE a 2 1 1 3", "ERR a quantity of 3 can never fit a burst of 2: ask for less or raise the burst"),
    ];
    for (line, words) in refusals {
        assert_eq!(refusal(ask(&mut connection, line)), words, "{line}");
    }
}

const KEY_ALONE: &str = "ERR a limit that comes with the request replaces the policy and goes by the key alone: send \
                         \"key\" beside \"limit\", and neither \"attributes\" nor \"rule\"";
const COST_TOO_HIGH: &str = "ERR the cost is 9007199254740992: send a whole number from 0 to 9007199254740991";

#[test]
fn questions_that_could_be_taken_for_others_are_refused() {
    let server = TestServer::start();
    let mut connection = server.connect();
    let refusals = [
        ("TIDEGATE.CHECK user", "ERR 'user' is the last argument: give a value after it"),
        ("TIDEGATE.CHECK user alice COST", "ERR 'COST' is the last argument: give a value after it"),
        ("TIDEGATE.CHECK user alice cost many", "ERR a cost of 'many' is not a whole number from 0 on"),
        ("TIDEGATE.CHECK user alice COST -1", "ERR a cost of '-1' is not a whole number from 0 on"),
        ("TIDEGATE.CHECK user alice COST 9007199254740992", COST_TOO_HIGH),
        ("TIDEGATE.CHECK user alice user bob", "ERR attribute \"user\" is given twice"),
        ("TIDEGATE.CHECK COST 1 cost 2", "ERR 'cost' is given twice"),
        ("TIDEGATE.CHECK user a AMOUNT tokens", "ERR 'AMOUNT' is the last argument: give a value after it"),
        ("TIDEGATE.CHECK user a AMOUNT tokens -1", "ERR an amount of '-1' is not a whole number from 0 on"),
        ("TIDEGATE.CHECK user a AMOUNT b 1 amount b 2", "ERR amount \"b\" is given twice"),
        (
            "TIDEGATE.CHECK user a TTL 5",
            "ERR the time to live is how long the id is remembered: send \"id\" beside it, or leave it out",
        ),
        ("TIDEGATE.CHECK user a ID x TTL soon", "ERR a TTL of 'soon' is not a whole number of milliseconds"),
        ("TIDEGATE.RESERVE user a ID x TTL 0", "ERR the time to live is 0 ms: send a whole number from 1 to 86400000"),
        (
            "TIDEGATE.SETTLE user a",
            "ERR id is missing: send the id of the reservation, a text of your choice that no other request has",
        ),
        (
            "TIDEGATE.RENEW user a ID x",
            "NOTRESERVED no reservation \"x\" is open for this key: none was made, or its time is over; report what \
             was spent instead",
        ),
        ("TIDEGATE.CHECK LIMIT 1/s", KEY_ALONE),
        ("TIDEGATE.CHECK user a LIMIT 1/s", KEY_ALONE),
        ("TIDEGATE.CHECK KEY a path / LIMIT 1/s", KEY_ALONE),
        ("TIDEGATE.CHECK KEY a RULE r LIMIT 1/s", KEY_ALONE),
        (
            "TIDEGATE.CHECK",
            "ERR the request has neither a key nor attributes: send attributes, such as a user, or a key",
        ),
        (
            "TIDEGATE.PEEK COST 2 ID order-17",
            "ERR the request has neither a key nor attributes: send attributes, such as a user, or a key",
        ),
        (
            "TIDEGATE.CHECK user alice KEY ",
            "ERR key is empty: send the key that the request counts against, or leave it out",
        ),
        (
            "TIDEGATE.CHECK user alice RULE unknown",
            "UNKNOWNRULE the policy has no rule \"unknown\": ask for one that it has, or for none",
        ),
        (
            "TIDEGATE.CHECK user alice COST 21",
            "UNSATISFIABLE a cost of 21 can never fit the limit of 20 of rule \"everyone\": split the request or raise the limit",
        ),
    ];
    for (line, words) in refusals {
        assert_eq!(refusal(ask(&mut connection, line)), words, "{line}");
    }
    assert!(
        refusal(ask(&mut connection, "TIDEGATE.CHECK KEY a LIMIT lots"))
            .starts_with("ERR cannot read \"lots\" as a limit")
    );
    // What is called like an option can be an attribute all the same.
    let amounts: String = (0..17).map(|number| format!(" AMOUNT u{number} 1")).collect();
    let error = refusal(ask(&mut connection, &format!("TIDEGATE.CHECK user alice{amounts}")));
    assert_eq!(error, "ERR the request has 17 amounts: send at most 16");
    let error = refusal(ask(&mut connection, &format!("TIDEGATE.CHECK user a AMOUNT {} 1", "u".repeat(65))));
    assert_eq!(error, "ERR the name of a unit has 65 bytes: send at most 64");
    let reply = ask(&mut connection, "TIDEGATE.CHECK user alice ATTRIBUTE cost 21");
    assert_eq!(reply.items()[1], Reply::Integer(1));
}

#[test]
fn a_request_with_an_id_is_charged_once() {
    let server = TestServer::start();
    let mut connection = server.connect();
    let mut remaining = |line: &str| ask(&mut connection, line).items()[7].integer();
    assert_eq!(remaining("TIDEGATE.CHECK user alice COST 3 ID order-17"), 17);
    assert_eq!(remaining("TIDEGATE.CHECK user alice COST 3 ID order-17"), 17);
    assert_eq!(remaining("TIDEGATE.CHECK user alice COST 3"), 14);
    let reused = refusal(ask(&mut connection, "TIDEGATE.CHECK user alice COST 4 ID order-17"));
    let said = "the request id \"order-17\" was used for another request: give each request an id of its own";
    assert_eq!(reused, format!("IDREUSED {said}"));
}

#[test]
fn every_algorithm_is_a_command_away() {
    let server = TestServer::start();
    let mut connection = server.connect();
    for (limit, waits) in [("1/min", 60), ("sliding-log 1/min", 60), ("sliding 1/min", 61), ("leaky 1/min", 60)] {
        let words = ["TIDEGATE.CHECK", "KEY", "alice", "LIMIT", limit];
        let allowed = |reply: &Reply| (reply.items()[1].integer(), reply.items()[9].integer());
        assert_eq!(allowed(&connection.command(&words).expect("a reply")), (1, 0), "{limit}");
        let (passes, retry_after) = allowed(&connection.command(&words).expect("a reply"));
        assert!(passes == 0 && retry_after <= waits * 1_000_000, "{limit}: {retry_after}");
    }
    // The same limit of the same key, whichever command asks.
    assert_eq!(numbers(&ask(&mut connection, "CL.THROTTLE alice 0 1 60"))[..3], [1, 1, 0]);
}

#[test]
fn info_has_sections() {
    let server = TestServer::start();
    let mut connection = server.connect();
    let text = |reply: Reply| reply.text();
    let all = text(ask(&mut connection, "INFO"));
    for field in ["# Server\r\n", "redis_version:", "# Clients\r\nconnected_clients:1\r\n", "tidegate_store:memory"] {
        assert!(all.contains(field), "{all}");
    }
    assert!(text(ask(&mut connection, "INFO clients")).starts_with("# Clients"));
    assert_eq!(text(ask(&mut connection, "INFO commandstats")), "");
}

#[test]
fn hello_switches_to_resp3_and_back() {
    let server = TestServer::start();
    let mut stream = std::net::TcpStream::connect(server.address()).expect("a connection");
    let mut say = |line: &str, expected: &str| {
        use std::io::{Read, Write};
        stream.write_all(format!("{line}\r\n").as_bytes()).expect("the server reads");
        let mut answer = vec![0; expected.len()];
        stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(String::from_utf8_lossy(&answer), expected, "{line}");
    };
    say("CLIENT GETNAME", "$-1\r\n");
    let version = env!("CARGO_PKG_VERSION");
    let hello = format!(
        "%7\r\n$6\r\nserver\r\n$8\r\ntidegate\r\n$7\r\nversion\r\n${}\r\n{version}\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:1\r\n\
         $4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n",
        version.len()
    );
    say("HELLO 3 SETNAME me", &hello);
    say("CLIENT GETNAME", "$2\r\nme\r\n");
    say(
        "TIDEGATE.CHECK KEY alice LIMIT 1/min",
        "%8\r\n$7\r\nallowed\r\n#t\r\n$4\r\nrule\r\n$6\r\ninline\r\n$5\r\nlimit\r\n:1\r\n$9\r\nremaining\r\n:0\r\n\
         $14\r\nretry_after_us\r\n:0\r\n$14\r\nreset_after_us\r\n:60000000\r\n$8\r\ndelay_us\r\n:0\r\n$8\r\ndegraded\r\n#f\r\n",
    );
    say("CL.THROTTLE bob 0 1 60", "*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:60\r\n");
    say("RESET", "+RESET\r\n");
    say("CLIENT GETNAME", "$-1\r\n");
}

#[test]
fn only_a_ping_is_answered_without_the_password() {
    let server = TestServer::start_with(|settings| settings.resp_password = Some("tide".into()));
    let mut connection = server.connect();
    assert_eq!(ask(&mut connection, "PING"), status("PONG"));
    for line in ["CL.THROTTLE a 1 1 1", "TIDEGATE.CHECK user alice", "INFO"] {
        assert_eq!(refusal(ask(&mut connection, line)), "NOAUTH Authentication required.", "{line}");
    }
    assert!(
        refusal(ask(&mut connection, "HELLO 3")).starts_with("NOAUTH HELLO must be called with the client already")
    );
    let wrong = "WRONGPASS invalid username-password pair or user is disabled.";
    for line in ["AUTH ebb", "AUTH tid", "AUTH tidex", "AUTH alice tide", "HELLO 2 AUTH default ebb"] {
        assert_eq!(refusal(ask(&mut connection, line)), wrong, "{line}");
    }
    assert_eq!(ask(&mut connection, "AUTH tide"), status("OK"));
    assert_eq!(ask(&mut connection, "PING"), status("PONG"));
    assert_eq!(ask(&mut connection, "RESET"), status("RESET"));
    assert_eq!(refusal(ask(&mut connection, "ECHO a")), "NOAUTH Authentication required.");
    assert!(!ask(&mut connection, "HELLO 2 AUTH default tide").is_error());
    assert_eq!(ask(&mut connection, "PING"), status("PONG"));
}

#[test]
fn quit_is_answered_and_then_the_connection_ends() {
    let server = TestServer::start();
    let mut connection = server.connect();
    connection.send_bytes(b"PING\r\nQUIT\r\nPING\r\n").expect("the server reads");
    assert_eq!(connection.receive().expect("a reply"), status("PONG"));
    assert_eq!(connection.receive().expect("a reply"), status("OK"));
    assert!(connection.receive().is_err());
}

#[test]
fn a_unix_socket_will_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("resp.sock");
    let address = format!("unix:{}", path.display()).parse().expect("an address");
    let _server = TestServer::start_with(|settings| settings.resp = vec![address]);
    let mut connection = Connection::open_unix(&path).expect("a connection");
    assert_eq!(ask(&mut connection, "PING"), status("PONG"));
}

#[test]
fn decisions_are_counted() {
    let server = TestServer::start();
    let mut connection = server.connect();
    for _ in 0..5 {
        ask(&mut connection, "CL.THROTTLE alice 2 1 60");
    }
    // Neither of them is a charge.
    ask(&mut connection, "CL.THROTTLE alice 2 1 60 -1");
    ask(&mut connection, "TIDEGATE.PEEK user alice");
    let metrics = server.server().app().records.metrics.text();
    for line in [
        "tidegate_decisions_total{rule=\"inline\",outcome=\"allowed\"} 3\n",
        "tidegate_decisions_total{rule=\"inline\",outcome=\"refused\"} 2\n",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
}

/// Whichever command it was, on whichever store.
#[test]
fn questions_without_an_answer_are_counted() {
    let closed_port = "redis://127.0.0.1:1";
    let server = TestServer::start_on_redis(closed_port);
    let mut connection = server.connect();
    for (number, line) in [
        "CL.THROTTLE alice 1 1 60",
        "THROTTLE alice 1 1 60",
        "TIDEGATE.CHECK KEY alice LIMIT 1/min",
        "TIDEGATE.EXPLAIN KEY alice LIMIT 1/min",
    ]
    .into_iter()
    .enumerate()
    {
        let error = refusal(ask(&mut connection, line));
        assert!(error.starts_with("UNAVAILABLE the store gave no answer: "), "{line}: {error}");
        let counted = format!("tidegate_errors_total{{reason=\"unavailable\"}} {}\n", number + 1);
        let metrics = server.server().app().records.metrics.text();
        assert!(metrics.contains(&counted), "{line}: {metrics}");
    }
}
