//! Attacks on memory: little traffic that makes the server hold much.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use super::wire::{self, ATTACKER};
use super::{Attack, BOUNDS, Bounds, SERVER, Server, Target};
use crate::findings::Findings;

const MIB: u32 = 1 << 20;

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "grpc-declared-length",
        what: "800 streams of gRPC, each with a message that declares 4 MiB and never comes",
        is_quick: true,
        server: Server { flags: &["--body-seconds", "2"], ..SERVER },
        bounds: Bounds { peak: 128, ..BOUNDS },
        make: declared_lengths,
    },
    Attack {
        name: "grpc-reflection",
        what: "the same on reflection, where it is switched on",
        is_quick: true,
        server: Server { flags: &["--grpc-reflection", "--body-seconds", "2"], ..SERVER },
        bounds: Bounds { peak: 128, ..BOUNDS },
        make: reflection,
    },
    Attack {
        name: "half-bodies",
        what: "1,500 bodies that stop one byte before their end",
        is_quick: true,
        server: Server { flags: &["--body-seconds", "5"], files: 8_192, ..SERVER },
        // 375 MB arrive in a quarter of a second, and both processors are busy with copying them.
        bounds: Bounds { p99: Duration::from_millis(100), peak: 400 },
        make: half_bodies,
    },
    Attack {
        name: "waiters",
        what: "6,000 callers that wait a minute for their turn",
        is_quick: false,
        server: Server {
            // Two protocols of so many connections fit into the open files that most machines grant.
            flags: &["--max-waiters", "5000", "--max-connections", "8000", "--max-connections-per-address", "8000"],
            files: 17_000,
            ..SERVER
        },
        // All ask within 50 ms; an honest request waits for as long as 6,000 others take, some 20 us each.
        bounds: Bounds { p99: Duration::from_millis(250), peak: 400 },
        make: waiters,
    },
];

/// A message of another length than the one that came is refused, and the stream ends.
fn declared_lengths(target: &mut Target, claims: &mut Findings) {
    let methods = [
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/Watch",
        "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
    ];
    declare(target.http(), &methods, claims);
}

fn reflection(target: &mut Target, claims: &mut Findings) {
    declare(target.http(), &["/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"; 4], claims);
}

fn declare(address: SocketAddr, methods: &[&str], claims: &mut Findings) {
    let held: Vec<TcpStream> =
        methods.iter().filter_map(|method| wire::declare(address, method, 200, 4 * MIB).ok()).collect();
    claims.claim(held.len() == methods.len(), || "the attacker could not connect".into());
    // Longer than the time that a body may take.
    thread::sleep(Duration::from_secs(3));
}

fn half_bodies(target: &mut Target, claims: &mut Findings) {
    let body = vec![b' '; (256 << 10) - 1];
    let head = wire::post("/v1/check", "", "").replace("content-length: 0", "content-length: 262144");
    let mut held = Vec::new();
    for mut stream in wire::connect_many(ATTACKER, target.http(), 1_500) {
        // Where the server has had enough, it says so and closes.
        if stream.write_all(head.as_bytes()).and_then(|()| send_slowly(&mut stream, &body)).is_ok() {
            held.push(stream);
        }
    }
    claims.claim(!held.is_empty(), || "no body was taken".into());
    let answer = target.post("/v1/check", r#"{"key":"beside"}"#);
    claims.claim(answer.as_ref().is_ok_and(|answer| answer.status == 200), || format!("a small body: {answer:?}"));
}

/// Gives up when the server does not read.
fn send_slowly(stream: &mut TcpStream, body: &[u8]) -> std::io::Result<()> {
    stream.set_write_timeout(Some(Duration::from_millis(200)))?;
    stream.write_all(body)
}

/// The first in the queue waits for nearly a minute, which is within its timeout; all others wait for it.
fn waiters(target: &mut Target, claims: &mut Findings) {
    let ask =
        |key: &str| wire::post("/v1/acquire", "", &format!(r#"{{"key":"{key}","limit":"1/min","timeout_ms":60000}}"#));
    let first = target.send(ATTACKER, &ask("held"));
    claims.claim(first.as_ref().is_ok_and(|answer| answer.status == 200), || format!("the first: {first:?}"));
    let mut waiting = wire::connect_many(ATTACKER, target.http(), 6_000);
    let asked = waiting.iter_mut().filter_map(|stream| stream.write_all(ask("held").as_bytes()).ok()).count();
    claims.claim(asked >= 5_000, || format!("only {asked} could ask"));
    let beyond = target.send(ATTACKER, &ask("held"));
    claims.claim(beyond.as_ref().is_ok_and(|answer| answer.status == 503), || format!("one too many: {beyond:?}"));
}
