//! The server as its protocols find it.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::TcpStream;

use tidegate::{ManualClock, MemoryStore};
use tidegate_server::{Server, Settings};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_on_a_manual_clock_starts_answers_and_drains() {
    let store = MemoryStore::builder().clock(ManualClock::default()).build().unwrap();
    let settings = Settings { http: vec!["127.0.0.1:0".parse().unwrap()], ..Settings::default() };
    let server = Server::start(settings, store).await.unwrap();
    let address = server.http_socket().unwrap();
    let answer = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    assert!(answer.await.unwrap().starts_with("HTTP/1.1 200 OK"));
    assert!(server.drain().await);
}
