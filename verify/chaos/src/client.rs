//! A client in a process of its own, to be killed and paused.
//!
//! It is this program again: it asks a store without end, and writes a line for
//! everyone who is admitted. A line that was written stays, however the process ends.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{env, fs, io, thread};

use tidegate::{Limit, Policy};
use tidegate_redis::{Lease, RedisStore, Servers};
use tidegate_testkit::block_on;
use tidegate_testkit::servers::{Admission, Directory, Outcome, Process, eventually};

use crate::pressure::outcome;
use crate::trial::{KEY, SLACK};

/// The name of the limit that clients share.
pub(crate) const RULE: &str = "client";

/// Threads that ask. As many charges may be on their way when it is killed.
pub(crate) const CALLERS: u64 = 3;

const PAUSE: Duration = Duration::from_millis(4);

/// For how long a client keeps what it has borrowed.
const LEASE_TTL: Duration = Duration::from_millis(500);

/// What a client is told.
#[derive(Clone, Debug, clap::Args)]
pub struct ClientOptions {
    /// The URL of the store
    #[arg(long)]
    url: String,
    /// The limit, in words
    #[arg(long)]
    limit: Limit,
    /// Units to borrow at a time, if any
    #[arg(long)]
    lease: Option<u64>,
    /// Asks until there is such a file
    #[arg(long)]
    until: PathBuf,
}

/// Asks until it is told to end, and gives back what it has borrowed.
///
/// # Errors
/// When it cannot write what it has been told.
pub fn run(options: &ClientOptions) -> io::Result<()> {
    let servers = Servers::parse(&options.url).map_err(io::Error::other)?;
    let mut builder = RedisStore::builder(servers).prefix("chaos").deadline(SLACK).connect_timeout(SLACK);
    if let Some(chunk) = options.lease {
        builder = builder.lease(RULE, Lease { chunk, ttl: LEASE_TTL });
    }
    let store = builder.build().map_err(io::Error::other)?;
    let limiter = tidegate::Limiter::with_store(Policy::new().limit(RULE, options.limit), store.clone());
    let limiter = limiter.map_err(io::Error::other)?;
    let is_over = AtomicBool::new(false);
    let ask = || {
        while !is_over.load(Ordering::Relaxed) {
            let asked = SystemTime::now();
            let outcome = outcome(block_on(limiter.check_async(KEY)));
            say(asked, &outcome)?;
            thread::sleep(PAUSE);
        }
        io::Result::Ok(())
    };
    thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(ask)).collect();
        while !options.until.exists() {
            thread::sleep(Duration::from_millis(10));
        }
        is_over.store(true, Ordering::Relaxed);
        callers.into_iter().try_for_each(|caller| caller.join().expect("a caller does not panic"))
    })?;
    block_on(store.close());
    Ok(())
}

/// A line, whole or not at all: it goes out in one write.
fn say(asked: SystemTime, outcome: &Outcome) -> io::Result<()> {
    let micros = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
    let line = match outcome {
        Outcome::Admitted { .. } => format!("admitted {} {}\n", micros(asked), micros(SystemTime::now())),
        Outcome::Refused { .. } | Outcome::TurnedAway { .. } => return Ok(()),
        Outcome::InDoubt { why } => format!("doubt {}\n", why.replace('\n', " ")),
    };
    io::stdout().lock().write_all(line.as_bytes())
}

/// A client in a process of its own.
#[derive(Debug)]
pub(crate) struct Client {
    process: Process,
    directory: Directory,
    words: Vec<String>,
}

/// A moment before any client starts, by both clocks. All diaries go by the same one, so their times
/// compare even if this process was kept waiting between the two readings.
static START: LazyLock<(Instant, SystemTime)> = LazyLock::new(|| (Instant::now(), SystemTime::now()));

/// What a client has written down.
#[derive(Debug, Default)]
pub(crate) struct Diary {
    pub(crate) admissions: Vec<Admission>,
    pub(crate) in_doubt: u64,
}

impl Client {
    pub(crate) fn start(url: &str, limit: Limit, lease: Option<u64>) -> Client {
        Client::start_by(&["env"], url, limit, lease)
    }

    /// Starts one by a command that becomes it.
    pub(crate) fn start_by(command: &[&str], url: &str, limit: Limit, lease: Option<u64>) -> Client {
        LazyLock::force(&START);
        let directory = Directory::create();
        let until = directory.path().join("until").display().to_string();
        let (program, limit) = (program().display().to_string(), limit.to_string());
        let mut words = [command, &[&program, "client", "--url", url, "--limit", &limit, "--until", &until]].concat();
        let lease = lease.map(|chunk| chunk.to_string());
        if let Some(lease) = &lease {
            words.extend(["--lease", lease]);
        }
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let process = launch(&words, &directory);
        Client { process, directory, words }
    }

    /// Lets it end in good order, and starts it again.
    pub(crate) fn restart(&mut self) {
        self.finish();
        fs::remove_file(self.directory.path().join("until")).expect("it was just written");
        let successor = launch(&self.words, &self.directory);
        std::mem::replace(&mut self.process, successor).make_way();
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    pub(crate) fn pause(&mut self) {
        self.process.pause();
    }

    pub(crate) fn resume(&mut self) {
        self.process.resume();
    }

    /// Waits until it has been admitted so often.
    pub(crate) fn wait_for_admitted(&self, admitted: usize) {
        eventually("a client to be admitted", || match self.diary().admissions.len() {
            count if count >= admitted => Ok(()),
            count => Err(format!("{count} admissions of {admitted}; it says {:?}", self.log())),
        });
    }

    /// Lets it end in good order.
    pub(crate) fn finish(&mut self) {
        self.directory.write("until", "now");
        eventually("a client to end", || if self.process.has_ended() { Ok(()) } else { Err("it asks on") });
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// What it has written so far. A panic of it would stand there as well.
    pub(crate) fn diary(&self) -> Diary {
        // Instants are not for other processes; the wall clock is, and servers decide by it.
        let (instant, system) = *START;
        let at = |micros: &str| {
            let time = UNIX_EPOCH + Duration::from_micros(micros.parse().unwrap_or(0));
            instant + time.duration_since(system).unwrap_or_default()
        };
        let mut diary = Diary::default();
        let log = self.log();
        // The last line may be on its way.
        let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
        for line in whole.lines() {
            match line.split(' ').collect::<Vec<_>>().as_slice() {
                ["admitted", asked, answered] => {
                    diary.admissions.push(Admission { asked: at(asked), answered: at(answered), degraded: false });
                }
                ["doubt", ..] => diary.in_doubt += 1,
                _ => panic!("a client says {line:?}"),
            }
        }
        diary
    }
}

/// Starts a command whose words go to a log beside those of its predecessors.
pub(crate) fn launch(words: &[String], directory: &Directory) -> Process {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (first, rest) = words.split_first().expect("there are words");
    Process::start(Path::new(first), rest, directory, &directory.path().join("log"))
}

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Says which program clients are: this one, unless it is a test of it.
pub fn set_program(path: impl Into<PathBuf>) {
    let _ = PROGRAM.set(path.into());
}

pub(crate) fn program() -> &'static Path {
    PROGRAM.get_or_init(|| env::current_exe().expect("a program has a path"))
}
