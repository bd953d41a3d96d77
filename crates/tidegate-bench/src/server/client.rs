//! The client: pipelines that were written beforehand, answers that are counted.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::processes::Contestant;

const KEYS: u64 = 100_000;
/// Pipelines that are written beforehand, and then sent over and over.
const PIPELINES: usize = 2_000;
/// Every answer is an array of five numbers.
const LINES: usize = 6;

/// What one slice showed.
pub(super) struct Lap {
    pub(super) nanos_per_decision: f64,
    pub(super) p99_micros: f64,
    pub(super) server_nanos_per_decision: f64,
}

pub(super) struct Client {
    connections: Vec<TcpStream>,
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
            stream
        };
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        // The same keys in the same order for everybody.
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..PIPELINES {
            for _ in 0..pipeline {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let key = format!("user:{:011}", (random >> 33) % KEYS);
                write_command(&mut bytes, contestant.words(&key));
            }
            ends.push(bytes.len());
        }
        let connections = (0..connections).map(connect).collect();
        Client { connections, pipeline, bytes, ends, next: 0, buffer: vec![0; 64 * 1024] }
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
        let pipeline = &self.bytes[start..self.ends[self.next]];
        self.connections[number].write_all(pipeline).expect("the server reads");
        self.next = (self.next + 1) % PIPELINES;
    }

    fn receive(&mut self, number: usize, name: &str) {
        let mut missing = self.pipeline * LINES;
        while missing > 0 {
            let length = self.connections[number].read(&mut self.buffer).expect("the server answers");
            let answers = &self.buffer[..length];
            assert!(length > 0 && answers[0] != b'-', "{name}: {}", String::from_utf8_lossy(answers));
            let lines = answers.iter().filter(|byte| **byte == b'\n').count();
            missing = missing.checked_sub(lines).expect("no more answers than questions");
        }
    }
}

fn write_command(bytes: &mut Vec<u8>, words: Vec<&str>) {
    bytes.extend(format!("*{}\r\n", words.len()).bytes());
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
    }
}
