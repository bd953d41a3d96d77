//! Clients that are slow, many, rude, or gone.

use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate::ManualClock;
use tidegate_server::Server;
use tidegate_testkit::Random;
use tidegate_testkit::servers::eventually;

use crate::server::client::{ALICE, Connection, PLAIN, curl, post};
use crate::server::running::Running;
use crate::server::same_as_library::{settings, store};

#[test]
fn requests_are_served_beside_ten_thousand_idle_connections() {
    const IDLE: usize = 10_000;
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let files = maximum.unwrap_or(u64::MAX);
    assert!(files > IDLE as u64 + 500, "{files} open files are too few for this test: raise the limit (ulimit -n)");
    let server = Running::start(&["--max-connections-per-address", "20000"]);
    let idle: Vec<TcpStream> = (0..IDLE).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    // Each look is a connection, too.
    let mut wanted = IDLE;
    eventually("all connections to be accepted", || {
        wanted += 1;
        let metrics = curl(&[&server.url("/metrics")]).body;
        let mut lines = metrics.lines();
        let count = lines.find_map(|line| line.strip_prefix("tidegate_connections_total{protocol=\"http\"} "));
        let count: usize = count.unwrap().parse().unwrap();
        if count < wanted { Err(format!("{count} of {wanted}")) } else { Ok(()) }
    });
    assert_eq!(post(&server.url("/v1/check"), ALICE).status, 200);
    drop(idle);
    assert!(server.stop().success());
}

#[test]
fn connections_beyond_the_bound_are_closed_and_room_comes_back() {
    let server = Running::start(&["--max-connections", "2"]);
    let mut inside: Vec<Connection> = (0..2).map(|_| Connection::open(server.address())).collect();
    for connection in &mut inside {
        assert_eq!(connection.post("/v1/check", ALICE).unwrap().status, 200);
    }
    assert!(Connection::open(server.address()).is_closed());
    assert_eq!(inside[0].post("/v1/check", ALICE).unwrap().status, 200);
    drop(inside);
    eventually("room after all have left", || match Connection::open(server.address()).post("/v1/check", ALICE) {
        Ok(answer) if answer.status == 200 => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

#[test]
fn a_head_or_a_body_that_never_ends_is_not_waited_for() {
    let server = Running::start(&["--idle-seconds", "1"]);
    let mut slow_head = Connection::open(server.address());
    slow_head.send(b"POST /v1/check HTTP/1.1\r\nhost: x\r\n").unwrap();
    let mut silent = Connection::open(server.address());
    // A request that comes too late for the server finds the connection closed, and another one is opened.
    let (mut silent_again, answer) = eventually("an answer", || {
        let mut connection = Connection::open(server.address());
        connection.post("/v1/check", ALICE).map(|answer| (connection, answer))
    });
    assert_eq!(answer.status, 200);
    assert!(slow_head.is_closed() && silent.is_closed() && silent_again.is_closed());

    let server = Running::start(&["--body-seconds", "1"]);
    let mut slow_body = Connection::open(server.address());
    slow_body.send(b"POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 5\r\n\r\n{").unwrap();
    assert_eq!(slow_body.answer().unwrap().status, 408);
    assert!(slow_body.is_closed());
}

#[test]
fn drops_of_a_head_do_not_buy_more_time() {
    let server = Running::start(&["--idle-seconds", "1"]);
    let mut connection = Connection::open(server.address());
    let mut drops = ["GET /healthz HTTP/1.1\r\n"].into_iter().chain(std::iter::repeat("x: y\r\n"));
    let last_words = eventually("the server to close the connection", || {
        // It may be closed by now.
        let _ = connection.send(drops.next().unwrap().as_bytes());
        connection.last_words().ok_or("it still reads")
    });
    assert_eq!(last_words, "", "a head that is too long has an answer");
}

#[test]
fn bytes_that_are_not_http_get_an_error_or_a_close_and_others_are_served() {
    let server = Running::start(&[]);
    let long_head = [b"GET /".as_slice(), &[b'a'; 100_000]].concat();
    let many_fields = ["GET / HTTP/1.1\r\nhost: x\r\n".to_owned(), "a: b\r\n".repeat(1_000), "\r\n".into()].concat();
    for bytes in [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".as_slice(),
        b"\0\0\0\0\0\0\0\0\r\n\r\n",
        b"*1\r\n$4\r\nPING\r\n\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET  HTTP/1.1\r\n\r\n",
        b"POST /v1/check HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/check HTTP/1.1\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        b"POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
          transfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        b"POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
          transfer-encoding: chunked\r\n\r\nxyz\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        &long_head,
        many_fields.as_bytes(),
    ] {
        let mut connection = Connection::open(server.address());
        // It may be closed before all is sent.
        let _ = connection.send(bytes);
        let shown = bytes[..bytes.len().min(60)].escape_ascii();
        match connection.answer() {
            Ok(answer) => assert!((400..500).contains(&answer.status), "{shown}: {answer:?}"),
            Err(error) => assert!(error.kind() != std::io::ErrorKind::WouldBlock, "{shown}: {error}"),
        }
        assert_eq!(curl(&[&server.url("/healthz")]).status, 200, "{shown}");
    }
}

#[test]
fn connections_closed_in_the_middle_leave_nothing_behind() {
    let server = Running::start(&[]);
    for half in [
        "POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-len",
        "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 20\r\n\r\n{\"key\":",
    ] {
        for _ in 0..50 {
            Connection::open(server.address()).send(half.as_bytes()).unwrap();
        }
    }
    assert_eq!(post(&server.url("/v1/check"), ALICE).status, 200);
    assert!(server.stop().success());
}

/// By a manual clock: the one unit that comes is for the caller that is still there.
#[test]
fn a_waiting_caller_that_disconnects_gives_up_its_place_in_the_queue() {
    let clock = ManualClock::default();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(Server::start(settings(), store(&clock))).unwrap();
    let address = server.http_socket().unwrap().to_string();
    let acquire = || {
        let mut connection = Connection::open(&address);
        connection.ask("/v1/acquire", r#"{"key": "a", "limit": "1/s", "timeout_ms": 60000}"#).unwrap();
        connection
    };
    assert_eq!(acquire().answer().unwrap().status, 200);
    let waiting: Vec<Connection> = (0..100).map(|_| acquire()).collect();
    // Time for them to wait; without it they would disconnect earlier, which must do no harm either.
    thread::sleep(Duration::from_millis(200));
    drop(waiting);
    eventually("the connections to end", || match server.app().guards.connections.open() {
        0 => Ok(()),
        open => Err(format!("{open} are open")),
    });
    let mut last = acquire();
    clock.advance(Duration::from_secs(1));
    assert_eq!(last.answer().unwrap().status, 200);
    assert!(runtime.block_on(server.drain()));
}

#[test]
fn questions_with_bytes_changed_at_random_are_answered_one_way_or_the_other() {
    const REQUESTS: [&str; 4] = [
        r#"{"key": "alice", "limit": "100/min burst 20", "cost": 3}"#,
        r#"{"attributes": {"user": "alice", "n": -7, "e": "\u00e9"}, "rule": "everyone"}"#,
        r#"[{"key": "a"}, {"key": "b", "limit": "sliding-log 5/s"}, {"cost": 0}]"#,
        r#"{"key": null, "limit": null, "timeout_ms": 5}"#,
    ];
    let server = Running::start(&[]);
    let mut random = Random::new(7);
    let mut connection = Connection::open(server.address());
    for _ in 0..4_000 {
        let mut body = random.choose(&REQUESTS).as_bytes().to_vec();
        for _ in 0..random.within(1..=4) {
            let place = random.within(0..=body.len() as u64 - 1) as usize;
            match random.within(0..=3) {
                0 => body[place] = random.number() as u8,
                1 => body.truncate(place.max(1)),
                2 => body.insert(place, random.choose(b"{}[]\",:0-9e.\\")),
                _ => drop(body.remove(place)),
            }
            if body.is_empty() {
                body.push(b'{');
            }
        }
        let path = random.choose(&[
            "check", "peek", "report", "refund", "reset", "acquire", "explain", "reserve", "settle", "renew", "release",
        ]);
        let head = format!("POST /v1/{path} HTTP/1.1\r\n{PLAIN}content-length: {}\r\n\r\n", body.len());
        connection.send(&[head.as_bytes(), &body].concat()).unwrap();
        let answer = connection.answer().unwrap();
        let shown = body.escape_ascii();
        assert!([200, 400, 403, 404, 422, 429].contains(&answer.status), "{shown}: {answer:?}");
    }
}

#[test]
fn requests_in_a_row_are_answered_in_their_order() {
    let server = Running::start(&[]);
    let mut connection = Connection::open(server.address());
    let body = r#"{"key": "a", "limit": "50/d"}"#;
    let request = format!("POST /v1/check HTTP/1.1\r\n{PLAIN}content-length: {}\r\n\r\n{body}", body.len());
    connection.send(request.repeat(50).as_bytes()).unwrap();
    for remaining in (0..50).rev() {
        assert_eq!(connection.answer().unwrap().json()["remaining"], remaining);
    }
}

#[test]
fn a_server_that_is_to_wait_for_ever_does() {
    let longest = u64::MAX.to_string();
    let server = Running::start(&["--idle-seconds", &longest, "--body-seconds", &longest, "--resp", "127.0.0.1:0"]);
    assert_eq!(post(&server.url("/v1/check"), ALICE).status, 200);
    assert_eq!(curl(&[&server.url("/healthz")]).status, 200);
    let mut half = Connection::open(server.address_of("resp"));
    half.send(b"*1\r\n$4\r\nPI").unwrap();
    thread::sleep(Duration::from_millis(100));
    half.send(b"NG\r\n*1\r\n$4\r\nQUIT\r\n").unwrap();
    assert!(half.is_closed());
    assert!(server.stop().success());
}
