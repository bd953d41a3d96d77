//! The honest client: 200 checks a second on one connection that it keeps.

use std::io::{self, BufReader};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::target::{Io, Target, Way, read_answer};
use super::wire;

const INTERVAL: Duration = Duration::from_millis(5);

/// Keys that it asks about, one after the other.
const KEYS: u64 = 100;

/// The client at work.
pub(super) struct Honest {
    stop: Arc<AtomicBool>,
    client: JoinHandle<Tally>,
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
        let (way, stop) = (target.way().clone(), Arc::<AtomicBool>::default());
        let stopped = Arc::clone(&stop);
        Honest { stop, client: thread::spawn(move || ask_until(&stopped, &way)) }
    }

    pub(super) fn finish(self) -> Tally {
        self.stop.store(true, Ordering::Relaxed);
        self.client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn ask_until(stopped: &AtomicBool, way: &Way) -> Tally {
    let (mut tally, mut kept, began) = (Tally::default(), None, Instant::now());
    for number in 0.. {
        let due = began + INTERVAL * number;
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
