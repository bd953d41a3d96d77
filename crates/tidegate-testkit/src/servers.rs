//! Real Redis and Valkey servers on loopback, and faults to try them with.
//!
//! What a store promises on a server can only be seen on one. Each type here
//! starts processes, waits until they answer, and ends them when it is
//! dropped; they end as well when the process of the tests is killed, so a
//! `static` may hold them. Everything works through `&self`, from any thread.
//!
//! - [`Program`]: which server the tests run on.
//! - [`Server`] and [`TlsServer`]: one of them, to command, pause and kill.
//! - [`Cluster`]: three masters and three replicas, with failovers and
//!   migrations of slots, step by step.
//! - [`SentinelSet`]: a master, two replicas and three sentinels.
//! - [`ChaosProxy`]: a connection that delays, stalls, loses replies or breaks.
//! - [`Load`]: callers that ask without end, and what became of them.
//! - [`Permit`]: as many servers at once as the machine bears, over all processes of tests.
//! - [`Process`] and [`Directory`]: any other program, for as long as it is needed.
//! - [`Connection`] and [`Reply`]: as much of the protocol as tests need.
//!
//! Nothing here listens beyond loopback, and nothing is kept: the directories
//! of the servers are removed with them. Failures panic, with the server's log.
//!
//! ```no_run
//! use tidegate_testkit::servers::{ChaosProxy, Fault, Server};
//!
//! let server = Server::start_with(&[("maxmemory", "2mb")]);
//! let proxy = ChaosProxy::start(server.address());
//! server.command(&["SET", "tide", "high"]);
//! proxy.set(Fault::SwallowReplies);
//! println!("{} behind {}", server.program().version(), proxy.url());
//! ```

mod clocks;
mod cluster;
mod connection;
mod gate;
mod load;
mod process;
mod program;
mod proxy;
mod sentinel;
mod server;
mod slots;
mod tls;

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

pub use cluster::{Cluster, Migration};
pub use connection::{Connection, Reply};
pub use gate::Permit;
pub use load::{Admission, CallId, Load, Outcome, Tally};
pub use process::{Directory, Process};
pub use program::Program;
pub use proxy::{ChaosProxy, Fault};
pub use sentinel::SentinelSet;
pub use server::Server;
pub use slots::{SLOTS, slot_of};
pub use tls::{ClientCertificates, TlsServer};

/// The guard against tests that hang, the only one: whatever a test waits for
/// comes about long before, on a machine ten times slower as well.
pub const GUARD: Duration = Duration::from_secs(300);

/// Between two looks: often enough for a test, too seldom to load a core.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Looks again and again until there is something to see.
///
/// ```
/// use tidegate_testkit::servers::eventually;
///
/// let mut looks = 0;
/// let seen = eventually("a third look", || {
///     looks += 1;
///     if looks < 3 { Err(format!("{looks} so far")) } else { Ok(looks) }
/// });
/// assert_eq!(seen, 3);
/// ```
///
/// # Panics
///
/// After the [`GUARD`], with what was missing at the last look.
pub fn eventually<T, E: Display>(what: &str, mut look: impl FnMut() -> Result<T, E>) -> T {
    let began = Instant::now();
    loop {
        match look() {
            Ok(seen) => return seen,
            Err(missing) if began.elapsed() > GUARD => panic!("waited {GUARD:?} for {what}: {missing}"),
            Err(_) => thread::sleep(BETWEEN_LOOKS),
        }
    }
}
