//! The honest client: 200 checks a second, on a few connections that it keeps. One
//! answer that takes long delays the next on its connection, not all of them.

use std::io::{self, BufReader};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::target::{Io, Target, Way, read_answer};
use super::wire;

const INTERVAL: Duration = Duration::from_millis(5);

/// Connections, each of which asks in its turn.
const CONNECTIONS: u32 = 8;

/// Keys that it asks about, one after the other.
const KEYS: u64 = 100;

/// The client at work.
pub(super) struct Honest {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Tally>>,
}

/// What became of its requests.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// From the instant at which a request was due, so that a stall counts for all that it delays.
    latencies: Vec<Duration>,
    pub(super) failed: u64,
    /// Why the first one failed.
    pub(super) why: String,
}

impl Tally {
    pub(super) fn asked(&self) -> usize {
        self.latencies.len()
    }

    pub(super) fn percentile(&self, percent: usize) -> Duration {
        let mut latencies = self.latencies.clone();
        latencies.sort_unstable();
        latencies.get(latencies.len() * percent / 100).or(latencies.last()).copied().unwrap_or_default()
    }
}

impl Honest {
    pub(super) fn start(target: &Target) -> Honest {
        let (stop, began) = (Arc::<AtomicBool>::default(), Instant::now());
        let client = |number| {
            let (way, stopped) = (target.way().clone(), Arc::clone(&stop));
            thread::spawn(move || ask_until(&stopped, &way, began + INTERVAL * number))
        };
        let clients = (0..CONNECTIONS).map(client).collect();
        Honest { stop, clients }
    }

    pub(super) fn finish(self) -> Tally {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Tally::default();
        for client in self.clients {
            let own = client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            all.latencies.extend(own.latencies);
            all.failed += own.failed;
            if all.why.is_empty() {
                all.why = own.why;
            }
        }
        all
    }
}

fn ask_until(stopped: &AtomicBool, way: &Way, began: Instant) -> Tally {
    let (mut tally, mut kept) = (Tally::default(), None);
    for number in 0.. {
        let due = began + INTERVAL * CONNECTIONS * number;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if stopped.load(Ordering::Relaxed) {
            break;
        }
        let body = format!(r#"{{"key":"honest-{}"}}"#, u64::from(number) % KEYS);
        if let Err(error) = ask(&mut kept, way, &wire::post("/v1/check", "", &body)) {
            kept = None;
            tally.failed += 1;
            if tally.why.is_empty() {
                tally.why = error.to_string();
            }
        }
        tally.latencies.push(due.elapsed());
    }
    tally
}

fn ask(kept: &mut Option<BufReader<Box<dyn Io>>>, way: &Way, request: &str) -> io::Result<()> {
    let connection = match kept {
        Some(connection) => connection,
        None => kept.insert(BufReader::new(way.connect(Ipv4Addr::LOCALHOST)?)),
    };
    connection.get_mut().write_all(request.as_bytes())?;
    let answer = read_answer(connection)?;
    if answer.status == 200 { Ok(()) } else { Err(io::Error::other(format!("{} {}", answer.status, answer.body))) }
}
