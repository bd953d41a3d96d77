//! Clients that mean no good, or have no manners: bounded, answered, and gone.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tidegate_testkit::servers::{Connection, GUARD, Reply, eventually};

use crate::resp::harness::{TestServer, ask, refusal};

/// What the server says to `bytes` until it hangs up.
fn said(server: &TestServer, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address()).expect("a connection");
    stream.set_read_timeout(Some(GUARD)).expect("a socket");
    // It may hang up before it has heard everything.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{:?}", bytes.escape_ascii().to_string()),
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_key_an_id_and_a_value_have_up_to_4096_bytes_as_in_http() {
    let server = TestServer::start();
    let mut connection = server.connect();
    for command in [
        "TIDEGATE.CHECK KEY ?",
        "TIDEGATE.CHECK user ?",
        "TIDEGATE.CHECK user a ? x",
        "TIDEGATE.CHECK user a ATTRIBUTE ? x",
        "TIDEGATE.RESERVE user a ID ?",
        "TIDEGATE.EXPLAIN user ?",
        "CL.THROTTLE ? 9 9 60",
        "THROTTLE ? 9 9 60",
    ] {
        let mut asked = |length: usize| ask(&mut connection, &command.replace('?', &"x".repeat(length)));
        assert!(!asked(4_096).is_error(), "{command}");
        let words = refusal(asked(4_097));
        assert!(words.contains("4097 bytes") && words.contains("at most 4096"), "{command}: {words}");
    }
}

#[test]
fn hostile_frames_are_answered_and_the_connection_closed() {
    let server = TestServer::start();
    let nested = "*1\r\n".repeat(10_000);
    let long = "a".repeat(64 * 1024);
    let cases = [
        ("*1000000000\r\n", "invalid multibulk length"),
        ("*9999999999999999999999\r\n", "invalid multibulk length"),
        ("*x\r\n", "invalid multibulk length"),
        ("*1\r\n$1000000000\r\n", "invalid bulk length"),
        ("*1\r\n$-7\r\n", "invalid bulk length"),
        (&nested, "expected '$', got '*'"),
        ("*2\r\n:1\r\n", "expected '$', got ':'"),
        ("ECHO \"never closed\r\n", "unbalanced quotes in request"),
        (&long, "too big inline request"),
        ("*1\r\n$4\r\nPINGPONG\r\n", "expected the end of a line"),
    ];
    for (bytes, words) in cases {
        let shown = &bytes[..bytes.len().min(40)];
        assert_eq!(said(&server, bytes.as_bytes()), format!("-ERR Protocol error: {words}\r\n"), "{shown:?}");
        // What came before it is answered.
        let after = format!("PING\r\nCL.THROTTLE a 0 1 1 0\r\n{bytes}");
        let expected = format!("+PONG\r\n*5\r\n:0\r\n:1\r\n:1\r\n:-1\r\n:0\r\n-ERR Protocol error: {words}\r\n");
        assert_eq!(said(&server, after.as_bytes()), expected, "{shown:?}");
    }
    assert_eq!(ask(&mut server.connect(), "PING"), Reply::Status("PONG".into()));
}

#[test]
fn a_browser_is_hung_up_on() {
    let server = TestServer::start();
    assert_eq!(said(&server, b"POST / HTTP/1.1\r\nHost: x\r\n\r\nCL.THROTTLE a 1 1 1\r\n"), "");
    let words = "-ERR unknown command 'GET', with args beginning with: '/' 'HTTP/1.1' \r\n";
    assert_eq!(said(&server, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"), words);
}

#[test]
fn nothing_that_a_client_sends_becomes_a_second_reply() {
    let server = TestServer::start();
    let mut connection = server.connect();
    let reply = connection.command(&["a\r\n+OK\r\n", "b\r\nc"]).expect("a reply");
    assert_eq!(reply, Reply::Error("ERR unknown command 'a  +OK  ', with args beginning with: 'b  c' ".into()));
    assert_eq!(ask(&mut connection, "PING"), Reply::Status("PONG".into()));
}

#[test]
fn half_a_command_is_not_waited_for_for_ever() {
    let server = TestServer::start_with(|settings| settings.idle_seconds = 1);
    let mut idle = server.connect();
    let began = Instant::now();
    assert_eq!(said(&server, b"*2\r\n$4\r\nECHO\r\n$5\r\ntid"), "");
    assert!(began.elapsed() >= Duration::from_secs(1));
    // A client that has sent nothing may be idle for longer.
    assert_eq!(ask(&mut idle, "PING"), Reply::Status("PONG".into()));
}

#[test]
fn an_idle_connection_ends_in_time() {
    let server = TestServer::start_with(|settings| settings.resp_idle_seconds = 1);
    assert_eq!(said(&server, b""), "");
    assert_eq!(said(&server, b"PING\r\n"), "+PONG\r\n", "also after a command");
}

/// Half of a long command takes all that there is; others are answered, and what was taken comes back.
#[test]
fn a_long_command_beyond_the_budget_is_not_read_on_and_harms_no_other() {
    let server = TestServer::start_with(|settings| (settings.max_buffered, settings.idle_seconds) = (64 * 1024, 1));
    let buffered = |bytes: &str| {
        eventually("what is buffered to be counted", || {
            let text = server.server().app().records.metrics.text();
            let found = text.lines().find_map(|line| line.strip_prefix("tidegate_buffered_bytes ")).expect("a gauge");
            if found == bytes { Ok(()) } else { Err(found.to_owned()) }
        });
    };
    let argument = "x".repeat(60_000);
    let long = format!("*4\r\n{}", format!("${}\r\n{argument}\r\n", argument.len()).repeat(3));
    let mut stream = TcpStream::connect(server.address()).expect("a connection");
    stream.write_all(long.as_bytes()).expect("the socket takes it");
    buffered("49152");
    assert_eq!(ask(&mut server.connect(), "PING"), Reply::Status("PONG".into()));
    stream.set_read_timeout(Some(GUARD)).expect("a socket");
    match stream.read(&mut [0]) {
        Ok(read) => assert_eq!(read, 0, "it says nothing, and ends"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    buffered("0");
}

#[test]
fn a_transaction_beyond_the_budget_is_aborted() {
    let server = TestServer::start_with(|settings| settings.max_buffered = 8 * 1024);
    let mut connection = server.connect();
    let (message, mut queued) = ("x".repeat(1_000), 0);
    assert_eq!(ask(&mut connection, "MULTI"), Reply::Status("OK".into()));
    let words = loop {
        match ask(&mut connection, &format!("ECHO {message}")) {
            Reply::Error(words) => break words,
            reply => assert_eq!(reply, Reply::Status("QUEUED".into())),
        }
        queued += 1;
    };
    assert!((8..16).contains(&queued) && words.contains("--max-buffered"), "{queued}: {words}");
    assert!(matches!(ask(&mut connection, "EXEC"), Reply::Error(words) if words.starts_with("EXECABORT")));
    assert_eq!(ask(&mut connection, "PING"), Reply::Status("PONG".into()));
}

#[test]
fn a_command_may_arrive_in_any_pieces() {
    let server = TestServer::start();
    let mut connection = server.connect();
    let bytes = b"*5\r\n$11\r\nCL.THROTTLE\r\n$5\r\nalice\r\n$1\r\n0\r\n$1\r\n1\r\n$2\r\n60\r\nPING\r\n";
    for byte in bytes {
        connection.send_bytes(&[*byte]).expect("the server reads");
    }
    assert_eq!(connection.receive().expect("a reply").items().len(), 5);
    assert_eq!(connection.receive().expect("a reply"), Reply::Status("PONG".into()));
}

/// Its answers wait in bounded room, its commands in the socket; and when it
/// reads at last, it gets all of them.
#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    let server = TestServer::start();
    let mut stream = TcpStream::connect(server.address()).expect("a connection");
    stream.set_write_timeout(Some(Duration::from_millis(300))).expect("a socket");
    let message = "x".repeat(60_000);
    let command = format!("*2\r\n$4\r\nECHO\r\n${}\r\n{message}\r\n", message.len()).into_bytes();
    let most = 64 << 20;
    let mut sent = 0;
    let mut unfinished = 0;
    while sent < most && unfinished == 0 {
        let mut rest = &command[..];
        while !rest.is_empty() {
            match stream.write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    unfinished = rest.len();
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
        sent += command.len() - rest.len();
    }
    assert!(sent < most, "the server took {sent} bytes from a client that reads nothing");
    let whole = sent / command.len();
    stream.set_read_timeout(Some(GUARD)).expect("a socket");
    let reply = format!("${}\r\n{message}\r\n", message.len()).into_bytes();
    let mut received = vec![0; reply.len()];
    for _ in 0..whole {
        stream.read_exact(&mut received).expect("every answer");
        assert!(received == reply);
    }
}

/// Every command that was sent before the server left is answered.
#[test]
fn a_drain_loses_no_answer() {
    let server = TestServer::start();
    let address = server.address();
    let (say, busy) = mpsc::channel();
    let clients: Vec<_> = (0..8)
        .map(|client| {
            let say = say.clone();
            std::thread::spawn(move || {
                let mut connection = Connection::open(address).expect("a connection");
                let line = format!("CL.THROTTLE user{client} 1000000 1 1\r\n").repeat(50);
                let mut answered = 0;
                loop {
                    if connection.send_bytes(line.as_bytes()).is_err() {
                        return answered;
                    }
                    for number in 0..50 {
                        match connection.receive() {
                            Ok(reply) => assert_eq!(reply.items()[0].integer(), 0),
                            // It ends between pipelines, or not at all.
                            Err(_) if number == 0 => return answered,
                            Err(error) => panic!("{number} of 50 answered: {error}"),
                        }
                    }
                    answered += 50;
                    if answered == 50 {
                        say.send(()).expect("the test waits");
                    }
                }
            })
        })
        .collect();
    for _ in 0..8 {
        busy.recv_timeout(GUARD).expect("every client is answered");
    }
    let app = Arc::clone(server.server().app());
    assert!(server.drain());
    let answered: u64 = clients.into_iter().map(|client| client.join().expect("no answer is lost")).sum();
    let counted = format!("tidegate_decisions_total{{rule=\"inline\",outcome=\"allowed\"}} {answered}\n");
    assert!(app.records.metrics.text().contains(&counted), "{answered}");
}
