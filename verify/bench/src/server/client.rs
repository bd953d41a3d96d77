//! The client: pipelines that were written beforehand, answers that are counted.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::processes::Contestant;
use super::wire::Wire;

const KEYS: u64 = 100_000;
/// Prime to their number: all are asked for before any comes again.
const STEP: u64 = 61_803;
/// Pipelines that are written beforehand, and then sent over and over.
const PIPELINES: usize = 2_000;

/// What one slice showed.
pub(super) struct Lap {
    pub(super) nanos_per_decision: f64,
    pub(super) p99_micros: f64,
    pub(super) server_nanos_per_decision: f64,
}

struct Connection {
    stream: TcpStream,
    /// The number of the next stream, where the protocol has streams.
    next_stream: u32,
    /// What has arrived of an answer that is not whole yet.
    arrived: Vec<u8>,
}

pub(super) struct Client {
    wire: Wire,
    connections: Vec<Connection>,
    pipeline: usize,
    /// All pipelines, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    next: usize,
    buffer: Vec<u8>,
}

impl Client {
    pub(super) fn connect(contestant: &Contestant, connections: usize, pipeline: usize) -> Client {
        let connect = |_| {
            let stream = TcpStream::connect(contestant.address).expect("the server listens");
            stream.set_nodelay(true).expect("a socket");
            stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
            (&stream).write_all(&contestant.request.wire().greeting()).expect("the server reads");
            Connection { stream, next_stream: 1, arrived: Vec::new() }
        };
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        // The same keys in the same order for every contestant, as far from each other as can be: a key that
        // came twice as often would be refused by a fast server.
        let mut number = 0;
        for _ in 0..PIPELINES {
            for _ in 0..pipeline {
                number = (number + STEP) % KEYS;
                let key = format!("user:{number:011}");
                contestant.request.write(&key, &mut bytes);
            }
            ends.push(bytes.len());
        }
        let connections = (0..connections).map(connect).collect();
        let wire = contestant.request.wire();
        Client { wire, connections, pipeline, bytes, ends, next: 0, buffer: vec![0; 64 * 1024] }
    }

    /// Asks and is answered for a while.
    pub(super) fn run(&mut self, slice: Duration, contestant: &Contestant) -> Lap {
        let (mut pipelines, mut times) = (0, Vec::with_capacity(1 << 16));
        let mut sent = vec![Instant::now(); self.connections.len()];
        let busy_before = contestant.processor_nanos();
        let began = Instant::now();
        while began.elapsed() < slice {
            for (number, sent) in sent.iter_mut().enumerate() {
                *sent = Instant::now();
                self.send(number);
            }
            for (number, sent) in sent.iter().enumerate() {
                self.receive(number, contestant.name);
                times.push(sent.elapsed());
            }
            pipelines += self.connections.len();
        }
        let elapsed = began.elapsed();
        let decisions = (pipelines * self.pipeline) as f64;
        times.sort_unstable();
        Lap {
            nanos_per_decision: elapsed.as_nanos() as f64 / decisions,
            p99_micros: times[(times.len() - 1) * 99 / 100].as_nanos() as f64 / 1e3,
            server_nanos_per_decision: (contestant.processor_nanos() - busy_before) / decisions,
        }
    }

    fn send(&mut self, number: usize) {
        let start = if self.next == 0 { 0 } else { self.ends[self.next - 1] };
        let pipeline = &mut self.bytes[start..self.ends[self.next]];
        let connection = &mut self.connections[number];
        self.wire.number(pipeline, &mut connection.next_stream);
        connection.stream.write_all(pipeline).expect("the server reads");
        self.next = (self.next + 1) % PIPELINES;
    }

    fn receive(&mut self, number: usize, name: &str) {
        let Connection { stream, arrived, .. } = &mut self.connections[number];
        let mut missing = self.pipeline;
        while missing > 0 {
            let length = stream.read(&mut self.buffer).expect("the server answers");
            assert!(length > 0, "{name} closed a connection");
            arrived.extend_from_slice(&self.buffer[..length]);
            let (answers, taken) = self.wire.answers(arrived).unwrap_or_else(|answer| panic!("{name}: {answer}"));
            arrived.drain(..taken);
            missing = missing.checked_sub(answers).expect("no more answers than requests");
        }
    }
}
