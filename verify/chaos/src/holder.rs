//! A process that reserves and settles without end, to be killed.
//!
//! It is this program again. It writes a line before and after each step, with the
//! time of the store, so what it held is known however it ends:
//!
//! - `held ID ASKED ANSWERED ESTIMATE`: a reservation was made between these times;
//! - `settling ID AT ACTUAL`: it is settled from this time on;
//! - `settled ID`: the store has answered that.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, thread};

use tidegate::{Amounts, Limit, Limiter, Policy, Request, ReserveOutcome, Rule};
use tidegate_redis::{RedisStore, Servers};
use tidegate_testkit::servers::{Connection, Directory, Process, Reply, Server, eventually};
use tidegate_testkit::{Random, block_on};

use crate::client::{launch, program};
use crate::trial::{KEY, SLACK};

/// The rule of the permits.
pub(crate) const PERMITS: &str = "permits";

/// The unit of the other rule, and its name.
const TOKENS: &str = "tokens";

/// Threads of a process that reserve.
const CALLERS: u64 = 3;

/// After a refusal.
const PAUSE: Duration = Duration::from_millis(4);

/// What a holder is told.
#[derive(Clone, Debug, clap::Args)]
pub struct HolderOptions {
    /// Where the store is
    #[arg(long)]
    address: SocketAddr,
    /// The limit of tokens
    #[arg(long)]
    limit: Limit,
    /// The limit of reservations in flight
    #[arg(long)]
    permits: Limit,
    /// What chance follows from
    #[arg(long)]
    seed: u64,
    /// Reserves until there is such a file
    #[arg(long)]
    until: PathBuf,
}

/// Both limits, which every reservation has to pass.
pub(crate) fn policy(limit: Limit, permits: Limit) -> Policy {
    Policy::new().rule(Rule::new(TOKENS, limit).unit(TOKENS)).limit(PERMITS, permits)
}

/// Reserves and settles until it is told to end.
///
/// # Errors
/// When it cannot write what it holds, or read the time of the store.
pub fn run(options: &HolderOptions) -> io::Result<()> {
    let servers = Servers::parse(&format!("redis://{}", options.address)).map_err(io::Error::other)?;
    let builder = RedisStore::builder(servers).prefix("chaos").deadline(SLACK).connect_timeout(SLACK);
    let store = builder.build().map_err(io::Error::other)?;
    let limiter = Limiter::with_store(policy(options.limit, options.permits), store.clone());
    let limiter = limiter.map_err(io::Error::other)?;
    let is_over = AtomicBool::new(false);
    let reserve = |mut random: Random| {
        let mut clock = Connection::open(options.address)?;
        while !is_over.load(Ordering::Relaxed) {
            hold(&limiter, options.permits.period(), &mut clock, &mut random)?;
        }
        io::Result::Ok(())
    };
    thread::scope(|scope| {
        let mut random = Random::new(options.seed);
        let callers: Vec<_> =
            (0..CALLERS).map(|_| random.fork()).map(|random| scope.spawn(|| reserve(random))).collect();
        while !options.until.exists() {
            thread::sleep(Duration::from_millis(10));
        }
        is_over.store(true, Ordering::Relaxed);
        callers.into_iter().try_for_each(|caller| caller.join().expect("a caller does not panic"))
    })?;
    block_on(store.close());
    Ok(())
}

/// Makes one reservation, holds it for a while, and settles it to its estimate or less.
fn hold(
    limiter: &Limiter<RedisStore>,
    expiry: Duration,
    clock: &mut Connection,
    random: &mut Random,
) -> io::Result<()> {
    let estimate = random.within(1..=3);
    let asked = store_time(clock)?;
    let reservation = match block_on(limiter.reserve_async(Request::new(KEY).amount(TOKENS, estimate))) {
        Ok(ReserveOutcome::Made(reservation)) => reservation,
        Ok(ReserveOutcome::Refused(_)) => {
            thread::sleep(PAUSE);
            return Ok(());
        }
        Err(error) => return say(&format!("doubt {error}")),
    };
    let id = reservation.id().to_owned();
    say(&format!("held {id} {asked} {} {estimate}", store_time(clock)?))?;
    // Some are settled when their permit has expired, and another reservation may have it.
    let length = if random.percent(3) { expiry * 3 / 2 } else { Duration::from_millis(random.within(10..=200)) };
    thread::sleep(length);
    let actual = if random.percent(70) { estimate } else { random.within(0..=estimate) };
    say(&format!("settling {id} {} {actual}", store_time(clock)?))?;
    match block_on(reservation.settle_async(Amounts::new().amount(TOKENS, actual))) {
        Ok(_) => say(&format!("settled {id}")),
        Err(error) => say(&format!("doubt {error}")),
    }
}

fn store_time(clock: &mut Connection) -> io::Result<u64> {
    Ok(micros(&clock.command(&["TIME"])?))
}

/// What `TIME` replies, in microseconds: the clock that decides.
pub(crate) fn micros(time: &Reply) -> u64 {
    match time.items() {
        [seconds, micros] => (seconds.integer() * 1_000_000 + micros.integer()).unsigned_abs(),
        other => panic!("TIME replies {other:?}"),
    }
}

/// A line, whole or not at all: it goes out in one write.
fn say(line: &str) -> io::Result<()> {
    io::stdout().lock().write_all(format!("{}\n", line.replace('\n', " ")).as_bytes())
}

/// A reservation, as far as its holder has told. Times are those of the store, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    pub(crate) asked: u64,
    pub(crate) answered: u64,
    estimate: u64,
    /// When it was settled at the earliest, and to what.
    settling: Option<(u64, u64)>,
    is_settled: bool,
}

impl Hold {
    /// One that is never settled.
    pub(crate) fn open(asked: u64, answered: u64) -> Hold {
        Hold { asked, answered, estimate: 0, settling: None, is_settled: false }
    }

    /// When its permit may have been given back or have expired, and not before.
    pub(crate) fn until(&self, expiry: Duration) -> u64 {
        let expires = self.asked.saturating_add(u64::try_from(expiry.as_micros()).unwrap_or(u64::MAX));
        self.settling.map_or(expires, |(at, _)| at.min(expires))
    }

    /// The least that it is charged in the end.
    pub(crate) fn cost(&self) -> u64 {
        self.settling.map_or(self.estimate, |(_, actual)| actual)
    }
}

/// What a holder has written down.
#[derive(Debug, Default)]
pub(crate) struct Diary {
    pub(crate) holds: HashMap<String, Hold>,
    pub(crate) doubts: Vec<String>,
}

/// A process that reserves and settles.
#[derive(Debug)]
pub(crate) struct Holder {
    process: Process,
    directory: Directory,
    words: Vec<String>,
}

impl Holder {
    pub(crate) fn start(server: &Server, limit: Limit, permits: Limit, random: &mut Random) -> Holder {
        let directory = Directory::create();
        let (address, limit, permits) = (server.address().to_string(), limit.to_string(), permits.to_string());
        let until = directory.path().join("until").display().to_string();
        let program = program().display().to_string();
        let words = [&program, "holder", "--address", &address, "--limit", &limit, "--permits", &permits];
        let words: Vec<String> = words.into_iter().chain(["--until", &until]).map(str::to_owned).collect();
        let process = launch(&seeded(&words, random), &directory);
        Holder { process, directory, words }
    }

    /// Ends it at once, wherever it is.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    pub(crate) fn start_again(&mut self, random: &mut Random) {
        let successor = launch(&seeded(&self.words, random), &self.directory);
        std::mem::replace(&mut self.process, successor).make_way();
    }

    /// Waits until it has made so many reservations, in all its lives.
    pub(crate) fn wait_for_holds(&self, holds: usize) {
        eventually("a holder to make a reservation", || match self.diary() {
            diary if diary.holds.len() >= holds => Ok(()),
            diary => Err(format!("{} reservations of {holds}; {:?}", diary.holds.len(), diary.doubts)),
        });
    }

    /// Lets it end in good order.
    pub(crate) fn finish(&mut self) {
        self.directory.write("until", "now");
        eventually("a holder to end", || if self.process.has_ended() { Ok(()) } else { Err("it reserves on") });
    }

    /// What it has written so far. A panic of it would stand there as well.
    pub(crate) fn diary(&self) -> Diary {
        let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        // The last line may be on its way.
        let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let mut diary = Diary::default();
        whole.lines().for_each(|line| diary.read(line));
        diary
    }
}

impl Diary {
    /// How many reservations are not known to be settled.
    pub(crate) fn unsettled(&self) -> usize {
        self.holds.values().filter(|hold| !hold.is_settled).count()
    }

    fn read(&mut self, line: &str) {
        let number = |word: &str| word.parse().unwrap_or_else(|_| panic!("a holder says {line:?}"));
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["held", id, asked, answered, estimate] => {
                let hold = Hold { estimate: number(estimate), ..Hold::open(number(asked), number(answered)) };
                self.holds.insert((*id).to_owned(), hold);
            }
            ["settling", id, at, actual] => self.hold(id).settling = Some((number(at), number(actual))),
            ["settled", id] => self.hold(id).is_settled = true,
            ["doubt", ..] => self.doubts.push(line.to_owned()),
            _ => panic!("a holder says {line:?}"),
        }
    }

    fn hold(&mut self, id: &str) -> &mut Hold {
        self.holds.get_mut(id).unwrap_or_else(|| panic!("{id} was not held"))
    }
}

/// Words with another seed for each life of a holder.
fn seeded(words: &[String], random: &mut Random) -> Vec<String> {
    [words, &["--seed".into(), random.number().to_string()]].concat()
}
