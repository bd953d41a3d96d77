//! Limits on one redis-server, beside what else one can do there.
//!
//! The server's time is the processor time that its process took. It is
//! measured with one request at a time, as a lone caller has it, and with 64
//! callers on one connection, whose requests the client sends in batches.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Client, Script};
use tidegate::kernel::{self, Bucket, Kernel, LimitKernel, Verb};
use tidegate::{Amounts, Limit, Limiter, Micros, Policy, Request, Rule};
use tidegate_redis::{Lease, RedisStore};
use tidegate_testkit::servers::Server;
use tokio::runtime::Runtime;

use crate::measure::{Run, Series, race};
use crate::report::{Goal, Table};
use crate::session::Session;

/// Decisions in a slice, which takes about as long as the others' slices.
const DECISIONS: usize = 2_000;
const CALLERS: usize = 64;

/// So large that nothing is refused.
const LIMIT: Limit = Limit::per_second(1_000_000).burst(1_000_000_000);

const ONE: &str = "tidegate, one bucket";
const THREE: &str = "tidegate, three limits";
const LEAST: &str = "INCR and PEXPIRE";
const SWAPS: &str = "GET and compare-and-swap";
const WITH_ID: &str = "a check with an id";
const RESERVED: &str = "a reservation";
const SETTLED: &str = "its settlement";
const LEASED: &str = "tidegate, leased";
const LEASED_ALONE: &str = "tidegate, leased, 1 caller";
const LEASED_FEW: &str = "tidegate, leased, 16 callers";
const LEASED_MANY: &str = "tidegate, leased, 256 callers";

struct Bench {
    runtime: Runtime,
    server: Server,
    connection: MultiplexedConnection,
}

pub(crate) fn redis(session: &mut Session) {
    let names = ["redis, server time", "redis, hot key", "redis, leased", "redis, per decision", "redis, memory"];
    let corrected = "redis, reserved, server time";
    if !names.iter().chain([&corrected]).any(|name| session.wants(name)) {
        return;
    }
    if std::process::Command::new("redis-server").arg("--version").output().is_err() {
        println!("no redis-server here: `cargo xtask install` installs one\n");
        return;
    }
    let bench = Bench::start();
    if session.wants(names[0]) {
        bench.server_time(session, "redis, server time, one request at a time", 1);
        bench.server_time(session, "redis, server time, 64 callers", CALLERS);
    }
    if session.wants(corrected) {
        bench.reserved(session, &format!("{corrected}, one bucket"), LIMIT.into());
        bench.reserved(session, &format!("{corrected}, three limits"), calls());
    }
    if session.wants(names[1]) {
        bench.hot_key(session);
    }
    if session.wants(names[2]) {
        bench.leased(session);
        bench.small_lease(session);
        bench.rare_keys(session);
    }
    if session.wants(names[3]) {
        bench.per_decision(session);
    }
    if session.wants(names[4]) {
        bench.memory(session);
    }
}

impl Bench {
    fn start() -> Bench {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().expect("a runtime");
        let server = Server::start();
        let client = Client::open(server.url()).expect("the URL of a server");
        let connection = runtime.block_on(client.get_multiplexed_async_connection()).expect("a connection");
        Bench { runtime, server, connection }
    }

    fn limiter(&self, policy: impl Into<Policy>) -> Limiter<RedisStore> {
        self.limiter_with(policy, None)
    }

    fn limiter_with(&self, policy: impl Into<Policy>, lease: Option<Lease>) -> Limiter<RedisStore> {
        let _entered = self.runtime.enter();
        let servers = tidegate_redis::Servers::parse(&self.server.url()).expect("the URL of a server");
        let mut builder = RedisStore::builder(servers).deadline(Duration::from_secs(10));
        if let Some(lease) = lease {
            builder = builder.lease("leased", lease);
        }
        Limiter::with_store(policy, builder.build().expect("valid settings")).expect("a valid policy")
    }

    /// Lets `callers` make [`DECISIONS`] decisions among them.
    fn run<F, D>(&self, callers: usize, decide: F)
    where
        F: Fn() -> D + Send + Sync + 'static,
        D: Future<Output = ()> + Send,
    {
        self.run_each(callers, DECISIONS / callers, decide);
    }

    /// Lets each of `callers` make so many decisions.
    fn run_each<F, D>(&self, callers: usize, decisions: usize, decide: F)
    where
        F: Fn() -> D + Send + Sync + 'static,
        D: Future<Output = ()> + Send,
    {
        let decide = Arc::new(decide);
        self.runtime.block_on(async {
            if callers == 1 {
                for _ in 0..decisions {
                    decide().await;
                }
                return;
            }
            let tasks: Vec<_> = (0..callers)
                .map(|_| {
                    let decide = Arc::clone(&decide);
                    tokio::spawn(async move {
                        for _ in 0..decisions {
                            decide().await;
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.expect("the caller ends");
            }
        });
    }

    /// Processor time of the server, in nanoseconds.
    fn server_nanos(&self) -> f64 {
        let path = format!("/proc/{}/schedstat", self.server.process_id());
        let times = std::fs::read_to_string(path).unwrap_or_default();
        times.split_whitespace().next().and_then(|time| time.parse().ok()).unwrap_or(f64::NAN)
    }

    fn server_time(&self, session: &mut Session, name: &str, callers: usize) {
        let (one, three) = (self.limiter(LIMIT), self.limiter(three_limits()));
        let least = self.least();
        let per_decision = |began: f64| (self.server_nanos() - began) / (DECISIONS / callers * callers) as f64;
        let runs = vec![
            Run { name: ONE, run: Box::new(|| self.timed(callers, check(&one), per_decision)) },
            Run { name: THREE, run: Box::new(|| self.timed(callers, check(&three), per_decision)) },
            Run { name: LEAST, run: Box::new(|| self.timed(callers, least.clone(), per_decision)) },
        ];
        let series = race(session.pace.rounds, runs);
        let goals = vec![
            Goal::AtMostTimes { ours: ONE, theirs: LEAST, times: 1.6 },
            Goal::AtMostTimes { ours: THREE, theirs: ONE, times: 2.0 },
        ];
        session.add(Table::of_checks(name, series, goals));
    }

    /// A reservation and its settlement, each beside a check with an id.
    fn reserved(&self, session: &mut Session, name: &str, policy: Policy) {
        let limiter = self.limiter(policy);
        let step = |verb: Verb, of: fn(Request<'_>) -> Request<'_>| {
            let began = self.server_nanos();
            self.runtime.block_on(async {
                for number in 0..DECISIONS {
                    let id = number.to_string();
                    let request =
                        of(Request::new("alice").amount("tokens", 500).id(&id).lasts(Duration::from_secs(60)));
                    assert!(limiter.decide_async(verb, request).await.expect("an answer").is_allowed());
                }
            });
            (self.server_nanos() - began) / DECISIONS as f64
        };
        fn reserve(request: Request<'_>) -> Request<'_> {
            request.into_estimate()
        }
        let settle: fn(Request<'_>) -> Request<'_> =
            |request| request.into_settlement(Amounts::new().amount("tokens", 300));
        let mut rounds: [Vec<f64>; 3] = Default::default();
        for _ in 0..session.pace.rounds {
            self.server.command(&["FLUSHALL", "SYNC"]);
            rounds[0].push(step(Verb::Charge, |request| request));
            self.server.command(&["FLUSHALL", "SYNC"]);
            rounds[1].push(step(Verb::Charge, reserve));
            rounds[2].push(step(Verb::SETTLE, settle));
        }
        self.server.command(&["FLUSHALL", "SYNC"]);
        let series = [WITH_ID, RESERVED, SETTLED].into_iter().zip(rounds);
        let series = series.map(|(name, rounds)| Series { name, rounds }).collect();
        let goals = vec![
            Goal::AtMostTimes { ours: RESERVED, theirs: WITH_ID, times: 1.6 },
            Goal::AtMostTimes { ours: SETTLED, theirs: WITH_ID, times: 1.6 },
        ];
        session.add(Table::of_checks(name, series, goals));
    }

    fn timed<D: Future<Output = ()> + Send>(
        &self,
        callers: usize,
        decide: impl Fn() -> D + Send + Sync + 'static,
        per_decision: impl Fn(f64) -> f64,
    ) -> f64 {
        let began = self.server_nanos();
        self.run(callers, decide);
        per_decision(began)
    }

    fn hot_key(&self, session: &mut Session) {
        let one = self.limiter(LIMIT);
        let swaps = self.swaps();
        let per_decision = |began: Instant| began.elapsed().as_nanos() as f64 / (DECISIONS / CALLERS * CALLERS) as f64;
        let runs = vec![
            Run {
                name: ONE,
                run: Box::new(|| {
                    let began = Instant::now();
                    self.run(CALLERS, check(&one));
                    per_decision(began)
                }),
            },
            Run {
                name: SWAPS,
                run: Box::new(|| {
                    let began = Instant::now();
                    self.run(CALLERS, swaps.clone());
                    per_decision(began)
                }),
            },
        ];
        let series = race(session.pace.fills.max(3), runs);
        let goals = vec![Goal::TimesBelow { ours: ONE, theirs: SWAPS, times: 10.0 }];
        session.add(Table::of_checks("redis, hot key, 64 callers, time per decision", series, goals));
    }

    fn leased(&self, session: &mut Session) {
        let one = self.limiter(LIMIT);
        let lease = Lease { chunk: 1_000_000, ttl: Duration::from_secs(60) };
        let leased = self.limiter_with(Policy::new().limit("leased", LIMIT), Some(lease));
        let time = |limiter: &Limiter<RedisStore>| {
            self.runtime.block_on(async {
                let began = Instant::now();
                for _ in 0..DECISIONS {
                    assert!(limiter.check_async("alice").await.expect("an answer").is_allowed());
                }
                began.elapsed().as_nanos() as f64 / DECISIONS as f64
            })
        };
        let runs = vec![
            Run { name: LEASED, run: Box::new(|| time(&leased)) },
            Run { name: ONE, run: Box::new(|| time(&one)) },
        ];
        let series = race(session.pace.rounds, runs);
        let goals = vec![Goal::TimesBelow { ours: LEASED, theirs: ONE, times: 100.0 }];
        session.add(Table::of_checks("redis, leased, time per decision", series, goals));
    }

    /// A chunk that is used up at once: what callers wait for is shared.
    fn small_lease(&self, session: &mut Session) {
        let lease = Lease { chunk: 10, ttl: Duration::from_secs(60) };
        let leased = self.limiter_with(Policy::new().limit("leased", LIMIT), Some(lease));
        let time = |callers: usize| {
            // Enough for each that it matters little how they begin.
            let decisions = (DECISIONS / callers).max(50);
            let began = Instant::now();
            self.run_each(callers, decisions, check(&leased));
            began.elapsed().as_nanos() as f64 / (decisions * callers) as f64
        };
        let runs = vec![
            Run { name: LEASED_MANY, run: Box::new(|| time(256)) },
            Run { name: LEASED_FEW, run: Box::new(|| time(16)) },
            Run { name: LEASED_ALONE, run: Box::new(|| time(1)) },
        ];
        let series = race(session.pace.rounds, runs);
        let goals = vec![Goal::TimesBelow { ours: LEASED_MANY, theirs: LEASED_ALONE, times: 4.0 }];
        session.add(Table::of_checks("redis, leased, chunks of 10 of a hot key, time per decision", series, goals));
    }

    /// Keys that are asked for once: a lease is of no use to them, and no burden.
    fn rare_keys(&self, session: &mut Session) {
        let one = self.limiter(LIMIT);
        let lease = Lease { chunk: 1_000, ttl: Duration::from_secs(1) };
        let leased = self.limiter_with(Policy::new().limit("leased", LIMIT), Some(lease));
        let key = Cell::new(0_u64);
        let time = |limiter: &Limiter<RedisStore>| {
            self.runtime.block_on(async {
                let began = Instant::now();
                for _ in 0..DECISIONS {
                    key.set(key.get() + 1);
                    let decision = limiter.check_async(&format!("user{:012}", key.get())).await;
                    assert!(decision.expect("an answer").is_allowed());
                }
                began.elapsed().as_nanos() as f64 / DECISIONS as f64
            })
        };
        let runs = vec![
            Run { name: LEASED, run: Box::new(|| time(&leased)) },
            Run { name: ONE, run: Box::new(|| time(&one)) },
        ];
        let series = race(session.pace.rounds, runs);
        let goals = vec![Goal::AtMostTimes { ours: LEASED, theirs: ONE, times: 1.05 }];
        session.add(Table::of_checks("redis, leased, keys that are seen once, time per decision", series, goals));
        self.server.command(&["FLUSHALL", "SYNC"]);
    }

    /// What a decision takes: round trips, and commands inside the server.
    fn per_decision(&self, session: &mut Session) {
        let (one, three) = (self.limiter(LIMIT), self.limiter(three_limits()));
        let least = self.least();
        let mut trips = Vec::new();
        let mut operations = Vec::new();
        let mut count = |name, run: &dyn Fn()| {
            run();
            let (trips_before, before) = self.commands();
            run();
            let (trips_after, after) = self.commands();
            let each = |difference: u64| difference as f64 / DECISIONS as f64;
            trips.push(Series { name, rounds: vec![each(trips_after - trips_before)] });
            operations.push(Series { name, rounds: vec![each(after - before)] });
        };
        count(ONE, &|| self.run(1, check(&one)));
        count(THREE, &|| self.run(1, check(&three)));
        count(LEAST, &|| self.run(1, least.clone()));
        for (name, unit, series) in [
            ("redis, per decision, round trips", "round trips", trips),
            ("redis, per decision, commands in the server", "commands", operations),
        ] {
            session.add(Table { name: name.into(), unit, series, goals: Vec::new() });
        }
    }

    /// Scripts called by clients, and commands in all but those.
    fn commands(&self) -> (u64, u64) {
        let statistics = self.server.command(&["INFO", "commandstats"]).text();
        let mut counts = (0, 0);
        for line in statistics.lines() {
            let Some((name, rest)) = line.strip_prefix("cmdstat_").and_then(|line| line.split_once(":calls=")) else {
                continue;
            };
            let calls: u64 = rest.split(',').next().and_then(|calls| calls.parse().ok()).unwrap_or(0);
            match name {
                "evalsha" | "eval" => counts.0 += calls,
                "info" | "ping" | "client|setinfo" | "hello" => {}
                _ => counts.1 += calls,
            }
        }
        counts
    }

    /// What the server's memory grows by, for each key.
    fn memory(&self, session: &mut Session) {
        const KEYS: usize = 10_000;
        let limits = [
            ("token bucket, 100/s", "100/s burst 1000000"),
            ("token bucket, 7/s", "7/s burst 1000000"),
            ("leaky bucket", "leaky 100/s queue 1000000"),
            ("fixed window", "fixed 1000/h"),
            ("sliding counter", "sliding 1000/h"),
            ("sliding log, 1 entry", "sliding-log 1000/h"),
            ("sliding log, 100 entries", "sliding-log 1000/h"),
        ];
        let used = || self.server.info("memory", "used_memory").parse::<f64>().unwrap_or(f64::NAN);
        let mut series = Vec::new();
        for (name, words) in limits {
            self.server.command(&["FLUSHALL", "SYNC"]);
            let limiter = self.limiter(words.parse::<Limit>().expect("a limit"));
            let visits = if name.ends_with("100 entries") { 100 } else { 2 };
            let keys = if visits == 100 { KEYS / 10 } else { KEYS };
            let before = used();
            self.runtime.block_on(async {
                for _ in 0..visits {
                    let visit = (0..keys).map(|key| {
                        let limiter = limiter.clone();
                        async move { limiter.check_async(&format!("user{key:012}")).await }
                    });
                    for decision in futures_util::future::join_all(visit).await {
                        assert!(decision.expect("an answer").is_allowed());
                    }
                    if name.ends_with("1 entry") {
                        break;
                    }
                }
            });
            series.push(Series { name, rounds: vec![(used() - before) / keys as f64] });
        }
        let name = "redis, memory of a key of 16 characters".into();
        session.add(Table { name, unit: "bytes", series, goals: Vec::new() });
        self.server.command(&["FLUSHALL", "SYNC"]);
    }

    /// The smallest script that counts and expires atomically.
    fn least(&self) -> impl Fn() -> BoxedDecision + Clone + Send + Sync + 'static + use<> {
        let script = "local count = redis.call('INCR', KEYS[1]) redis.call('PEXPIRE', KEYS[1], ARGV[1]) return count";
        let script = Arc::new(Script::new(script));
        let connection = self.connection.clone();
        move || {
            let (script, mut connection) = (Arc::clone(&script), connection.clone());
            Box::pin(async move {
                let count: u64 = script
                    .key("tidegate:{alice}:least")
                    .arg(60_000)
                    .invoke_async(&mut connection)
                    .await
                    .expect("an answer");
                assert!(count > 0);
            })
        }
    }

    /// A bucket as clients without a script of their own do it: read, decide,
    /// write if it has not changed.
    fn swaps(&self) -> impl Fn() -> BoxedDecision + Clone + Send + Sync + 'static + use<> {
        let LimitKernel::Bucket(bucket) = LIMIT.kernel() else { unreachable!("LIMIT is a bucket") };
        let script = "if (redis.call('GET', KEYS[1]) or '') == ARGV[1] then \
                      redis.call('SET', KEYS[1], ARGV[2], 'PX', 2000000) return 1 end return 0";
        let script = Arc::new(Script::new(script));
        let connection = self.connection.clone();
        move || {
            let (script, mut connection) = (Arc::clone(&script), connection.clone());
            Box::pin(async move {
                loop {
                    let known: Option<u64> = redis::cmd("GET")
                        .arg("tidegate:{alice}:swapped")
                        .query_async(&mut connection)
                        .await
                        .expect("an answer");
                    let after = charged(&bucket, known.unwrap_or(0));
                    let known = known.map_or_else(String::new, |known| known.to_string());
                    let key = script.key("tidegate:{alice}:swapped");
                    let mut call = key;
                    let swapped: u64 =
                        call.arg(known).arg(after).invoke_async(&mut connection).await.expect("an answer");
                    if swapped == 1 {
                        return;
                    }
                }
            })
        }
    }
}

type BoxedDecision = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// The state of a bucket after a charge of one, now.
fn charged(bucket: &Bucket, at: u64) -> u64 {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let now = Micros::from_duration(now);
    let mut state = bucket.state(at, 0).expect("a state of this bucket");
    let (verdict, _) = kernel::decide(bucket, &mut state, now, Verb::Charge, 1);
    assert!(verdict.allowed);
    bucket.forget_at(&state).get()
}

fn check(limiter: &Limiter<RedisStore>) -> impl Fn() -> BoxedDecision + Send + Sync + 'static + use<> {
    let limiter = limiter.clone();
    move || {
        let limiter = limiter.clone();
        Box::pin(async move {
            assert!(limiter.check_async("alice").await.expect("an answer").is_allowed());
        })
    }
}

/// What a call of a language model is asked for: requests, tokens, and how many are in flight.
fn calls() -> Policy {
    Policy::new()
        .limit("requests", LIMIT)
        .rule(Rule::new("tokens", LIMIT).unit("tokens"))
        .limit("at once", Limit::in_flight(10_000, Duration::from_secs(60)))
}

fn three_limits() -> Policy {
    let larger = |burst| Limit::per_second(1_000_000).burst(burst);
    Policy::new().limit("a", LIMIT).limit("b", larger(2_000_000_000)).limit("c", larger(3_000_000_000))
}
