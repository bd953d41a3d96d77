//! The end of a server: everything that was asked is answered.

use std::io::ErrorKind;
use std::sync::Barrier;
use std::thread;

use tidegate_testkit::servers;

use crate::server::client::{ALICE, Connection};
use crate::server::running::Running;

/// What became of one client of a server that leaves.
#[derive(Debug, Default)]
struct Story {
    answered: u64,
    told_to_leave: bool,
    dropped: bool,
}

/// Plain checks, and requests that hyper reads.
#[test]
fn a_server_that_is_told_to_leave_under_load_drops_no_answer() {
    for path in ["/v1/check", "/v1/peek"] {
        drops_no_answer_at(path);
    }
}

fn drops_no_answer_at(path: &str) {
    const CLIENTS: usize = 16;
    // Long beside the time that a client takes for one more request.
    let server = Running::start(&["--drain-grace-ms", "10000"]);
    let address = server.address().to_owned();
    let busy = Barrier::new(CLIENTS + 1);
    let (stories, status) = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (address, busy) = (&address, &busy);
                scope.spawn(move || {
                    let mut connection = Connection::open(address);
                    let mut story = Story::default();
                    let request = format!(r#"{{"key": "client {number}", "limit": "1000000/s"}}"#);
                    loop {
                        match connection.post(path, &request) {
                            Ok(answer) => {
                                assert_eq!(answer.status, 200);
                                story.answered += 1;
                                story.told_to_leave = answer.header("connection") == Some("close");
                            }
                            Err(_) => story.dropped = true,
                        }
                        if story.answered == 20 {
                            busy.wait();
                        }
                        // A client that is told so sends no more requests here.
                        if story.told_to_leave || story.dropped {
                            return story;
                        }
                    }
                })
            })
            .collect();
        busy.wait();
        let status = server.stop();
        (clients.into_iter().map(|client| client.join().unwrap()).collect::<Vec<_>>(), status)
    });
    assert!(status.success());
    for story in &stories {
        assert!(story.told_to_leave && !story.dropped && story.answered > 20, "{story:?}");
    }
}

/// RESP has no word for it: a connection closes between two answers, and a command that comes too late is
/// not carried out.
#[test]
fn clients_of_resp_that_ask_on_and_on_see_an_end_between_answers() {
    const CLIENTS: usize = 16;
    let server = Running::start(&["--resp", "127.0.0.1:0"]);
    let address = server.address_of("resp").parse().unwrap();
    let busy = Barrier::new(CLIENTS + 1);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let busy = &busy;
                scope.spawn(move || {
                    let mut connection = servers::Connection::open(address).unwrap();
                    let (key, mut answered) = (number.to_string(), 0);
                    loop {
                        match connection.command(&["CL.THROTTLE", &key, "1000", "1000", "1"]) {
                            Ok(reply) => assert_eq!(reply.items().len(), 5),
                            Err(error) => return (answered, error.kind()),
                        }
                        answered += 1;
                        if answered == 20 {
                            busy.wait();
                        }
                    }
                })
            })
            .collect();
        busy.wait();
        assert!(server.stop().success());
        for client in clients {
            let (answered, ended) = client.join().unwrap();
            assert!(answered >= 20);
            // A client that was held up for long finds that it can send no more.
            assert!(matches!(ended, ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe), "{ended:?}");
        }
    });
}

#[test]
fn readiness_ends_before_service_does() {
    let mut server = Running::start(&["--drain-grace-ms", "10000"]);
    let mut connection = Connection::open(server.address());
    assert_eq!(connection.post("/v1/check", ALICE).unwrap().status, 200);
    server.terminate();
    let probe = || {
        let mut connection = Connection::open(server.address());
        connection.send(b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        connection.answer().unwrap().status
    };
    while probe() == 200 {}
    assert_eq!(probe(), 503);
    let last = connection.post("/v1/check", ALICE).unwrap();
    assert_eq!((last.status, last.header("connection")), (200, Some("close")));
    assert!(server.wait().success());
}

#[test]
fn silent_connections_do_not_delay_the_shutdown() {
    let server = Running::start(&[]);
    let mut silent = Connection::open(server.address());
    let mut halfway = Connection::open(server.address());
    halfway.send(b"POST /v1/check HTTP/1.1\r\nhost:").unwrap();
    let mut idle = Connection::open(server.address());
    assert_eq!(idle.post("/v1/check", ALICE).unwrap().status, 200);
    assert!(server.stop().success(), "a drain that waits for them fails after --drain-seconds");
    assert!(silent.is_closed() && halfway.is_closed() && idle.is_closed());
}

#[test]
fn waiting_callers_are_sent_elsewhere_and_a_second_signal_ends_it_at_once() {
    let server = Running::start(&["--drain-grace-ms", "100"]);
    let request = r#"{"key": "a", "limit": "1/min", "timeout_ms": 60000}"#;
    let mut connection = Connection::open(server.address());
    assert_eq!(connection.post("/v1/acquire", request).unwrap().status, 200);
    connection.ask("/v1/acquire", request).unwrap();
    // Time for the server to begin with it, which it does before it closes at the latest.
    assert_eq!(Connection::open(server.address()).post("/v1/check", ALICE).unwrap().status, 200);
    let status = server.stop();
    let answer = connection.answer().unwrap();
    assert_eq!(answer.status, 503);
    assert!(answer.json()["detail"].as_str().unwrap().contains("shutting down"));
    assert!(status.success());

    let mut server = Running::start(&["--drain-grace-ms", "3600000"]);
    let _connected = Connection::open(server.address()).post("/v1/check", ALICE).unwrap();
    let _idle = Connection::open(server.address());
    server.terminate();
    let mut connection = Connection::open(server.address());
    while connection.post("/v1/check", ALICE).unwrap().header("connection") != Some("close") {
        connection = Connection::open(server.address());
    }
    server.terminate();
    assert_eq!(server.wait().code(), Some(130));
}
