//! `MULTI`, `EXEC`, `DISCARD`: queued commands are answered together, or not run at all.

use std::io::{Read, Write};
use std::net::TcpStream;

use tidegate_testkit::servers::{Connection, Reply, Server};

use crate::resp::harness::{TestServer, ask, numbers, refusal};

const ABORTED: &str = "EXECABORT Transaction discarded because of previous errors.";

fn status(word: &str) -> Reply {
    Reply::Status(word.into())
}

/// What remains of a bucket of 10.
fn remaining(connection: &mut Connection, key: &str) -> i64 {
    numbers(&ask(connection, &format!("CL.THROTTLE {key} 9 1 3600 0")))[2]
}

#[test]
fn queued_commands_are_charged_by_exec_and_not_before() {
    let server = TestServer::start();
    let (mut connection, mut other) = (server.connect(), server.connect());
    assert_eq!(ask(&mut connection, "MULTI"), status("OK"));
    for _ in 0..3 {
        assert_eq!(ask(&mut connection, "CL.THROTTLE alice 9 1 3600"), status("QUEUED"));
    }
    assert_eq!(remaining(&mut other, "alice"), 10);
    let answers = ask(&mut connection, "EXEC");
    assert_eq!(answers.items().iter().map(|answer| numbers(answer)[2]).collect::<Vec<_>>(), [9, 8, 7]);
    assert_eq!(remaining(&mut other, "alice"), 7);
    // It is over.
    assert_eq!(remaining(&mut connection, "alice"), 7);
    assert_eq!(refusal(ask(&mut connection, "EXEC")), "ERR EXEC without MULTI");
}

#[test]
fn a_command_that_cannot_be_queued_aborts_the_transaction() {
    let server = TestServer::start();
    let mut connection = server.connect();
    for bad in ["FOO", "ECHO", "CLIENT FOO", "COMMAND COUNT all"] {
        ask(&mut connection, "MULTI");
        assert_eq!(ask(&mut connection, "CL.THROTTLE alice 9 1 3600"), status("QUEUED"));
        refusal(ask(&mut connection, bad));
        assert_eq!(ask(&mut connection, "TIDEGATE.CHECK KEY alice LIMIT 10/h"), status("QUEUED"));
        assert_eq!(refusal(ask(&mut connection, "EXEC")), ABORTED, "{bad}");
        assert_eq!(remaining(&mut connection, "alice"), 10, "{bad}");
    }
}

#[test]
fn transactions_are_answered_as_by_redis() {
    let (server, redis) = (TestServer::start(), Server::start());
    let conversations = [
        "MULTI|PING|ECHO tide|EXEC|PING",
        "MULTI|EXEC",
        "MULTI|PING|MULTI|PING|EXEC",
        "MULTI|PING|DISCARD|PING|EXEC",
        "EXEC",
        "DISCARD",
        "MULTI|FOO|PING|EXEC|PING",
        "MULTI|PING|ECHO|EXEC",
        "MULTI|ECHO|DISCARD|MULTI|PING|EXEC",
        "MULTI all|EXEC",
        "MULTI|PING|DISCARD all|EXEC",
        "MULTI|WATCH a|PING|EXEC",
        "MULTI|UNWATCH|EXEC|UNWATCH",
        "WATCH",
        "MULTI|CLIENT SETNAME me|CLIENT GETNAME|SELECT 0|SELECT 1000000|EXEC|CLIENT GETNAME",
        "MULTI|CLIENT FOO|EXEC",
        "MULTI|CLIENT ID 1|EXEC",
        "MULTI|COMMAND NONE|EXEC",
        "MULTI|AUTH ebb|AUTH default ebb|EXEC",
        "MULTI|CLIENT SETNAME me|RESET|EXEC|CLIENT GETNAME",
        "MULTI|PING|QUIT",
    ];
    for conversation in conversations {
        let (mut ours, mut theirs) = (server.connect(), Connection::open(redis.address()).expect("a connection"));
        for line in conversation.split('|') {
            assert_eq!(ask(&mut ours, line), ask(&mut theirs, line), "{line} in {conversation}");
        }
        let goes_on = !conversation.ends_with("QUIT");
        for mut connection in [ours, theirs] {
            let pong = connection.command(&["ECHO", "again"]);
            assert_eq!(pong.is_ok(), goes_on, "{conversation}: {pong:?}");
        }
    }
}

/// The protocol changes between two answers of one array, as in Redis.
#[test]
fn hello_is_queued() {
    let server = TestServer::start();
    let mut stream = TcpStream::connect(server.address()).expect("a connection");
    stream.write_all(b"MULTI\r\nCLIENT GETNAME\r\nHELLO 3\r\nCLIENT GETNAME\r\nEXEC\r\nQUIT\r\n").expect("it reads");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("answers, and the end");
    let queued = "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n$-1\r\n%7\r\n$6\r\nserver\r\n";
    assert!(said.starts_with(queued) && said.ends_with("modules\r\n*0\r\n_\r\n+OK\r\n"), "{said:?}");
}

#[test]
fn a_transaction_needs_the_password() {
    let server = TestServer::start_with(|settings| settings.resp_password = Some("tide".into()));
    let mut connection = server.connect();
    for line in ["MULTI", "EXEC", "DISCARD", "WATCH a"] {
        assert_eq!(refusal(ask(&mut connection, line)), "NOAUTH Authentication required.", "{line}");
    }
}

#[test]
fn watch_is_an_error_and_unwatch_is_not() {
    let server = TestServer::start();
    let mut connection = server.connect();
    let words = "ERR WATCH is not supported: EXEC does not know whether a key was changed; send MULTI without it";
    assert_eq!(refusal(ask(&mut connection, "WATCH alice")), words);
    assert_eq!(ask(&mut connection, "UNWATCH"), status("OK"));
}

/// Throttles are decided together, up to some number and of some limits at a time;
/// others are asked in between.
#[test]
fn exec_answers_as_if_each_command_had_been_waited_for() {
    let (together, apart) = (TestServer::start(), TestServer::start());
    let (mut transaction, mut waiting) = (together.connect(), apart.connect());
    let line = |number: usize| match number / 300 {
        0 => format!("CL.THROTTLE key{} 99 1 60", number % 2),
        1 => format!("CL.THROTTLE key{} 9 {} 60", number % 3, 1 + number % 40),
        _ => match number % 5 {
            0 | 1 => format!("CL.THROTTLE key{} 9 1 60", number % 3),
            2 => format!("ECHO {number}"),
            3 => "CL.THROTTLE key0 nine 1 60".to_owned(),
            _ => format!("TIDEGATE.CHECK KEY key2 LIMIT 10/min COST {}", number % 3),
        },
    };
    for round in 0..2 {
        ask(&mut transaction, "MULTI");
        for number in 0..900 {
            assert_eq!(ask(&mut transaction, &line(number)), status("QUEUED"));
        }
        let answers = ask(&mut transaction, "EXEC");
        assert_eq!(answers.items().len(), 900);
        for (number, answer) in answers.items().iter().enumerate() {
            assert_eq!(*answer, ask(&mut waiting, &line(number)), "{round}: {}", line(number));
        }
    }
}

#[test]
fn exec_on_redis_keeps_the_order_of_a_key() {
    let redis = Server::start();
    let server = TestServer::start_on_redis(&redis.url());
    let mut connection = server.connect();
    ask(&mut connection, "MULTI");
    for _ in 0..12 {
        ask(&mut connection, "CL.THROTTLE alice 9 1 3600");
    }
    let answers: Vec<Vec<i64>> = ask(&mut connection, "EXEC").items().iter().map(numbers).collect();
    let expected = (0..12).map(|number| (i64::from(number >= 10), (9 - number).max(0)));
    assert_eq!(answers.iter().map(|answer| (answer[0], answer[2])).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

/// Answers that are longer than the room for those that are not read: some are sent
/// before the others are made.
#[test]
fn exec_may_answer_more_than_is_held_at_a_time() {
    let server = TestServer::start();
    let mut connection = server.connect();
    let document = ask(&mut connection, "COMMAND DOCS");
    const TIMES: usize = 200;
    let bytes =
        format!("MULTI\r\n{}EXEC\r\nPING\r\n", "CL.THROTTLE alice 999 1 3600\r\nCOMMAND DOCS\r\n".repeat(TIMES));
    connection.send_bytes(bytes.as_bytes()).expect("the server reads");
    for _ in 0..=2 * TIMES {
        connection.receive().expect("OK or QUEUED");
    }
    let answers = connection.receive().expect("answers");
    for (number, answers) in answers.items().chunks(2).enumerate() {
        assert_eq!(numbers(&answers[0])[2], 999 - number as i64);
        assert_eq!(answers[1], document);
    }
    assert_eq!(connection.receive().expect("a reply"), status("PONG"));
}

#[test]
fn a_transaction_has_bounds() {
    use tidegate_server::resp::transaction::{MAX_QUEUED_BYTES, MAX_QUEUED_COMMANDS};
    let server = TestServer::start();
    let mut connection = server.connect();
    let message = "x".repeat(60_000);
    let fitting = MAX_QUEUED_BYTES / 60_100;
    let words = format!("ERR a transaction has at most {MAX_QUEUED_COMMANDS} commands and {MAX_QUEUED_BYTES} bytes");
    for (line, fitting) in [("PING".to_owned(), MAX_QUEUED_COMMANDS), (format!("ECHO {message}"), fitting)] {
        ask(&mut connection, "MULTI");
        for number in 0..fitting {
            assert_eq!(ask(&mut connection, &line), status("QUEUED"), "{number}");
        }
        let reply = refusal(ask(&mut connection, &line));
        assert!(reply.starts_with(&words), "{reply}");
        assert_eq!(ask(&mut connection, &line), status("QUEUED"), "and dropped, as after any error");
        assert_eq!(refusal(ask(&mut connection, "EXEC")), ABORTED);
        // As many as fit are answered.
        ask(&mut connection, "MULTI");
        for _ in 0..fitting {
            ask(&mut connection, &line);
        }
        assert_eq!(ask(&mut connection, "EXEC").items().len(), fitting);
    }
}
