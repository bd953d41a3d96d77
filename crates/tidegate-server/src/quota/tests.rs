//! Many clients as Envoy has them, in simulated time: the limit holds at every instant, whatever dies.

use proptest::prelude::*;
use tidegate::{Clock as _, Limit, Limiter, ManualClock, MemoryStore, Policy, Request, Rule};
use tidegate_testkit::Random;

use super::*;
use crate::quota::pool::Grant;

const SECOND: u64 = 1_000_000;
const STEP: u64 = SECOND / 10;
const TTL: Micros = Micros::new(4 * SECOND);

/// One client, with the arithmetic of Envoy's filter: an equal bucket goes on, another one starts as full as
/// the last one was, and one after the last has run out starts full.
#[derive(Default)]
struct Envoy {
    lease: Option<Lease<Arc<MemoryStore>>>,
    /// Messages on their way, and when they arrive.
    mail: Vec<(u64, Action)>,
    bucket: Option<Bucket>,
    allows_all: bool,
    expires: u64,
    server: usize,
    /// Requests in a second.
    load: u64,
    credit: u64,
    allowed: u64,
    denied: u64,
    reported: u64,
    passed: u64,
    messages: u64,
}

struct Bucket {
    grant: Grant,
    /// In tokens times the microseconds of an interval.
    level: u128,
    at: u64,
}

impl Bucket {
    fn scale(&self) -> u128 {
        u128::from(self.grant.fill_interval * SECOND)
    }

    fn fill(&mut self, now: u64) {
        let gained = u128::from(self.grant.tokens_per_fill) * u128::from(now - self.at);
        self.level = (self.level + gained).min(u128::from(self.grant.max_tokens) * self.scale());
        self.at = now;
    }
}

impl Envoy {
    fn receive(&mut self, now: u64, action: Action) {
        self.messages += 1;
        self.expires = now + TTL.get();
        self.allows_all = action == Action::AllowAll;
        self.bucket = match (action, self.bucket.take()) {
            (Action::Assign(grant), Some(bucket)) if bucket.grant == grant => Some(bucket),
            (Action::Assign(grant), Some(mut bucket)) => {
                bucket.fill(now);
                let whole = u128::from(bucket.grant.max_tokens) * bucket.scale();
                let tokens = u128::from(grant.max_tokens) * bucket.level / whole;
                let level = tokens * u128::from(grant.fill_interval * SECOND);
                Some(Bucket { grant, level, at: now })
            }
            (Action::Assign(grant), None) => {
                let level = u128::from(grant.max_tokens) * u128::from(grant.fill_interval * SECOND);
                Some(Bucket { grant, level, at: now })
            }
            (Action::AllowAll | Action::DenyAll | Action::Abandon, _) => None,
        };
    }

    /// One request: whether it passes.
    fn request(&mut self, now: u64) -> bool {
        if now >= self.expires {
            (self.bucket, self.allows_all) = (None, false);
        }
        let passes = self.allows_all
            || self.bucket.as_mut().is_some_and(|bucket| {
                bucket.fill(now);
                let passes = bucket.level >= bucket.scale();
                bucket.level -= if passes { bucket.scale() } else { 0 };
                passes
            });
        *(if passes { &mut self.allowed } else { &mut self.denied }) += 1;
        self.passed += u64::from(passes);
        passes
    }
}

/// The limit itself, which every admitted request is charged to.
struct Truth {
    burst: u64,
    count: u64,
    period: u64,
    used: u128,
    at: u64,
}

impl Truth {
    fn charge(&mut self, now: u64) -> bool {
        let drained = u128::from(self.count) * u128::from(now - self.at);
        self.used = self.used.saturating_sub(drained) + u128::from(self.period);
        self.at = now;
        self.used <= u128::from(self.burst) * u128::from(self.period)
    }
}

struct World {
    clock: ManualClock,
    now: u64,
    limiter: Limiter<Arc<MemoryStore>>,
    servers: Vec<Arc<Quotas<Arc<MemoryStore>>>>,
    sharing: Sharing,
    envoys: Vec<Envoy>,
    truth: Truth,
    /// How often clients report.
    every: u64,
    /// Until when the servers do nothing.
    stalls: u64,
    random: Random,
}

fn below(random: &mut Random, bound: u64) -> u64 {
    random.within(0..=bound - 1)
}

fn quotas(store: &Arc<MemoryStore>, sharing: Sharing, name: u64) -> Arc<Quotas<Arc<MemoryStore>>> {
    Arc::new(Quotas::new(Arc::clone(store), TTL, sharing, format!("server-{name}")))
}

impl World {
    fn new(limit: Limit, servers: usize, loads: &[u64], seed: u64) -> World {
        let clock = ManualClock::default();
        let now = 1_700_000_000 * SECOND;
        clock.set(Micros::new(now));
        let store = Arc::new(MemoryStore::builder().clock(clock.clone()).max_keys(1_000).build().expect("a store"));
        let policy = Policy::new().rule(Rule::new("all", limit).key(["bucket"]));
        let limiter = Limiter::with_store(policy, Arc::clone(&store)).expect("a limiter");
        let sharing = if servers > 1 { Sharing::WithOthers } else { Sharing::Alone };
        let envoy = |(place, load): (usize, &u64)| Envoy { load: *load, server: place % servers, ..Envoy::default() };
        let (burst, period) = (limit.capacity(), Micros::from_duration(limit.period()).get());
        World {
            servers: (0..servers as u64).map(|name| quotas(&store, sharing, name)).collect(),
            clock,
            now,
            limiter,
            sharing,
            envoys: loads.iter().enumerate().map(envoy).collect(),
            truth: Truth { burst, count: limit.count(), period, used: 0, at: now },
            every: SECOND,
            stalls: 0,
            random: Random::new(seed),
        }
    }

    /// A tenth of a second: requests, reports, messages that take up to a second.
    fn step(&mut self, delays: bool) {
        self.now += STEP;
        self.clock.set(Micros::new(self.now));
        let limits = self.limiter.limits_of(Request::without_key().with("bucket", "b")).expect("a request that fits");
        for (place, envoy) in self.envoys.iter_mut().enumerate() {
            let now = self.now;
            let due: Vec<_> = envoy.mail.extract_if(.., |(at, _)| *at <= now).collect();
            due.into_iter().for_each(|(_, action)| envoy.receive(now, action));
            envoy.credit += envoy.load;
            while envoy.credit >= 10 {
                envoy.credit -= 10;
                assert!(!envoy.request(now) || self.truth.charge(now), "client {place} is beyond the limit");
            }
            let server = &self.servers[envoy.server];
            let is_new = envoy.lease.is_none() && envoy.allowed + envoy.denied > 0;
            if is_new {
                let limited = server.limited(limits.as_deref());
                envoy.lease = Some(Lease::new(Arc::clone(server), limited));
            }
            let Some(lease) = &mut envoy.lease else { continue };
            if is_new || now - envoy.reported >= self.every {
                lease.report(envoy.allowed, envoy.denied);
                (envoy.allowed, envoy.denied, envoy.reported) = (0, 0, now);
            }
            if now < self.stalls {
                continue;
            }
            let stepped = futures_util::FutureExt::now_or_never(lease.step()).expect("memory answers at once");
            if let Some(action) = stepped.expect("memory does not fail") {
                let delay = if delays { below(&mut self.random, DELIVERY.get() / STEP) * STEP } else { 0 };
                let at = (now + delay).max(envoy.mail.last().map_or(0, |(at, _)| *at));
                envoy.mail.push((at, action));
                if action == Action::Abandon {
                    envoy.lease = None;
                }
            }
        }
    }

    /// What each client let pass in so many seconds.
    fn run(&mut self, seconds: u64) -> Vec<u64> {
        let before: Vec<u64> = self.envoys.iter().map(|envoy| envoy.passed).collect();
        (0..seconds * SECOND / STEP).for_each(|_| self.step(false));
        self.envoys.iter().zip(before).map(|(envoy, before)| envoy.passed - before).collect()
    }

    /// One of the things that go wrong.
    fn break_something(&mut self) {
        let clients = self.envoys.len() as u64;
        let place = below(&mut self.random, clients) as usize;
        let servers = self.servers.len() as u64;
        match below(&mut self.random, 7) {
            // The stream ends, and what was on its way is lost; the client goes on, perhaps at another server.
            0 | 1 => {
                let server = below(&mut self.random, servers) as usize;
                let envoy = &mut self.envoys[place];
                (envoy.lease, envoy.server) = (None, server);
                envoy.mail.clear();
            }
            // The client dies, and another one comes.
            2 => {
                let (load, server) = (self.envoys[place].load, self.envoys[place].server);
                let (passed, messages) = (self.envoys[place].passed, self.envoys[place].messages);
                self.envoys[place] = Envoy { load, server, passed, messages, ..Envoy::default() };
            }
            3 => self.envoys[place].load = self.random.choose(&[0, 1, 20, 300, 2_000]),
            // A server starts anew. Alone, it has lost its ledgers.
            4 => {
                let server = below(&mut self.random, servers) as usize;
                for envoy in self.envoys.iter_mut().filter(|envoy| envoy.server == server) {
                    envoy.lease = None;
                    envoy.mail.clear();
                }
                let store = match self.sharing {
                    Sharing::WithOthers => Arc::clone(self.limiter.store()),
                    Sharing::Alone => {
                        let store = MemoryStore::builder().clock(self.clock.clone()).max_keys(1_000).build();
                        Arc::new(store.expect("a store"))
                    }
                };
                self.servers[server] = quotas(&store, self.sharing, self.random.number());
            }
            // The servers stand still, and their clients do not.
            5 => self.stalls = self.now + below(&mut self.random, 8 * SECOND),
            // Time passes for all, as if the machine stood still; messages are lost, which would arrive too late.
            _ => {
                self.now += below(&mut self.random, 6 * SECOND / STEP) * STEP;
                for envoy in &mut self.envoys {
                    let was = !envoy.mail.is_empty();
                    envoy.mail.clear();
                    envoy.lease = envoy.lease.take().filter(|_| !was);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn assigned_shares_never_exceed_the_limit(
        seed in any::<u64>(),
        servers in 1..4_usize,
        // Some are more than the limit is divided among at once.
        clients in prop_oneof![15 => 1..7_usize, 1 => 65..80_usize],
        // Or as much as comes in so many periods.
        burst in prop_oneof![(1..300_u64).prop_map(Ok), (1..4_u64).prop_map(Err)],
        count in 1..300_u64,
        seconds in 1..4_u64,
        every in 2..30_u64,
    ) {
        let burst = burst.unwrap_or_else(|periods| periods * count);
        // A bucket that takes longer than a time to live to fill hands out less than the limit's burst.
        let limit = Limit::token_bucket(count, Micros::new(seconds * SECOND).to_duration()).burst(burst);
        prop_assume!(count * TTL.get() >= seconds * SECOND);
        let mut world = World::new(limit, servers, &vec![300; clients], seed);
        world.every = every * STEP;
        for _ in 0..400 {
            world.step(true);
            if below(&mut world.random, 12) == 0 {
                world.break_something();
            }
        }
    }
}

#[test]
fn the_busy_client_gets_most_of_the_limit_and_the_others_what_they_need() {
    let mut world = World::new(Limit::per_second(100), 1, &[2_000, 10, 1], 1);
    world.run(15);
    let seconds = 20;
    let passed = world.run(seconds);
    assert!(passed[0] >= 80 * seconds && passed[1] >= 9 * seconds && passed[2] >= 1, "{passed:?}");
    (world.envoys[0].load, world.envoys[2].load) = (1, 2_000);
    world.run(15);
    let passed = world.run(seconds);
    assert!(passed[2] >= 80 * seconds && passed[1] >= 9 * seconds && passed[0] >= 1, "{passed:?}");
}

#[test]
fn clients_of_several_servers_share_evenly() {
    let mut world = World::new(Limit::per_second(100), 2, &[2_000], 1);
    world.run(15);
    let alone = world.run(10)[0];
    assert!(alone >= 950, "{alone}");
    world.envoys.push(Envoy { load: 2_000, server: 1, ..Envoy::default() });
    world.run(30);
    let passed = world.run(20);
    assert!(passed.iter().all(|passed| *passed >= 700), "{passed:?}");
    // What a client of one server no longer needs is soon with that of another.
    world.every = 6 * SECOND;
    (world.envoys[0].load, world.envoys[1].load) = (1, 2_000);
    world.run(20);
    let passed = world.run(20);
    assert!(passed[1] >= 1_600 && passed[0] >= 18, "{passed:?}");
}

#[test]
fn a_steady_client_hears_less_than_once_a_second() {
    let mut world = World::new(Limit::per_second(100), 1, &[2_000, 200, 1, 50, 5], 1);
    world.every = 2 * STEP;
    world.run(20);
    let before: Vec<u64> = world.envoys.iter().map(|envoy| envoy.messages).collect();
    world.run(100);
    for (envoy, before) in world.envoys.iter().zip(before) {
        assert!(envoy.messages - before < 100, "{}", envoy.messages - before);
    }
}

#[test]
fn a_client_without_requests_or_reports_is_abandoned() {
    let mut world = World::new(Limit::per_second(100), 1, &[2_000, 1], 1);
    world.run(30);
    world.envoys[1].load = 0;
    world.run(601);
    assert!(world.envoys[1].lease.is_none() && world.envoys[0].lease.is_some());
    world.every = u64::MAX;
    world.run(61);
    let passed = world.run(20);
    assert!(passed[0] > 0, "it subscribes again with its next request: {passed:?}");
}

#[test]
fn a_server_alone_assigns_nothing_while_assignments_of_the_one_before_may_live() {
    let mut world = World::new(Limit::per_second(100), 1, &[2_000], 1);
    assert_eq!(world.run(5), [0]);
    assert!(world.run(3)[0] > 0);
}

#[test]
fn a_bucket_of_several_limits_keeps_all_of_them() {
    let clock = ManualClock::default();
    clock.set(Micros::new(1_700_000_000 * SECOND));
    let store = Arc::new(MemoryStore::builder().clock(clock.clone()).build().expect("a store"));
    let policy = Policy::new()
        .rule(Rule::new("user", Limit::per_second(60)).key(["user"]))
        .rule(Rule::new("all", Limit::per_second(100)).key(["domain"]));
    let limiter = Limiter::with_store(policy, Arc::clone(&store)).expect("a limiter");
    let quotas = quotas(&store, Sharing::WithOthers, 1);
    let mut leases: Vec<_> = ["alice", "bob"]
        .iter()
        .map(|user| {
            let request = Request::without_key().with("user", *user).with("domain", "edge");
            let limits = limiter.limits_of(request).expect("a request that fits");
            Lease::new(Arc::clone(&quotas), quotas.limited(limits.as_deref()))
        })
        .collect();
    let mut granted = vec![0; 2];
    for _ in 0..300 {
        clock.set(Micros::new(clock.now().get() + STEP));
        for (lease, granted) in leases.iter_mut().zip(&mut granted) {
            lease.report(1_000, 1_000);
            let stepped = futures_util::FutureExt::now_or_never(lease.step()).expect("memory answers at once");
            if let Some(Action::Assign(grant)) = stepped.expect("memory does not fail") {
                *granted = grant.max_tokens;
            }
        }
        assert!(granted.iter().sum::<u32>() <= 100 && granted.iter().all(|tokens| *tokens <= 60), "{granted:?}");
    }
    assert!(granted.iter().sum::<u32>() >= 80, "{granted:?}");
}

type Memory = Arc<MemoryStore>;

/// So many clients of one limit, on a server that assigns already.
fn crowd(limit: Limit, clients: usize) -> (ManualClock, Arc<Quotas<Memory>>, Vec<Lease<Memory>>) {
    let clock = ManualClock::default();
    clock.set(Micros::new(1_700_000_000 * SECOND));
    let store = Arc::new(MemoryStore::builder().clock(clock.clone()).build().expect("a store"));
    let policy = Policy::new().rule(Rule::new("all", limit).key(["domain"]));
    let limiter = Limiter::with_store(policy, Arc::clone(&store)).expect("a limiter");
    let quotas = quotas(&store, Sharing::Alone, 1);
    clock.advance(Micros::new(60 * SECOND).to_duration());
    let limits = limiter.limits_of(Request::without_key().with("domain", "edge")).expect("a request that fits");
    let limited = quotas.limited(limits.as_deref());
    let leases = (0..clients).map(|_| Lease::new(Arc::clone(&quotas), limited.clone())).collect();
    (clock, quotas, leases)
}

/// How often clients were looked at to divide limits.
fn visits(quotas: &Quotas<Memory>) -> usize {
    quotas.groups.lock().expect("a lock").values().map(|group| group.visits()).sum()
}

fn step(lease: &mut Lease<Memory>) -> Option<Action> {
    let stepped = futures_util::FutureExt::now_or_never(lease.step()).expect("memory answers at once");
    stepped.expect("memory does not fail")
}

#[test]
fn the_work_of_a_round_grows_with_the_clients_of_a_limit_and_not_with_their_square() {
    for clients in [64, 1_000, 4_000] {
        let (clock, quotas, mut leases) = crowd(Limit::per_second(10_000), clients);
        let (rounds, mut told) = (20, vec![0; clients]);
        for round in 0..rounds {
            clock.advance(Micros::new(SECOND / 4).to_duration());
            for (place, (lease, told)) in leases.iter_mut().zip(&mut told).enumerate() {
                // Each wants something else every second.
                lease.report((place + round) as u64, 0);
                *told += usize::from(step(lease).is_some());
            }
        }
        assert!(told.iter().all(|told| *told > 0), "each of {clients} is told something");
        let visits = visits(&quotas);
        assert!(visits <= clients * 64 * rounds, "{visits} visits of {clients} clients");
    }
}

#[test]
fn a_client_that_waits_asks_again_only_after_a_while() {
    // A token at a time, which the first one has.
    let (clock, quotas, mut leases) = crowd(Limit::per_second(1), 2);
    assert!(matches!(step(&mut leases[0]), Some(Action::Assign(_))));
    assert_eq!(step(&mut leases[1]), Some(Action::DenyAll));
    for _ in 0..3 {
        clock.advance(Micros::new(SECOND + RETRY.get()).to_duration());
        let before = visits(&quotas);
        for _ in 0..100 {
            step(&mut leases[1]);
        }
        assert_eq!(visits(&quotas) - before, 2, "it asks once");
    }
}

#[test]
fn many_clients_share_as_few_do() {
    // More than a limit is divided among at once.
    let mut loads = vec![400; 80];
    loads[..10].fill(10);
    let mut world = World::new(Limit::per_second(800), 1, &loads, 1);
    world.run(30);
    let seconds = 20;
    let passed = world.run(seconds);
    let (modest, busy) = passed.split_at(10);
    assert!(modest.iter().all(|passed| *passed >= seconds), "{passed:?}");
    assert!(busy.iter().all(|passed| (9 * seconds..=12 * seconds).contains(passed)), "{passed:?}");
    assert!(passed.iter().sum::<u64>() >= 700 * seconds, "{passed:?}");
    // One that comes now has its part soon.
    world.envoys.push(Envoy { load: 400, ..Envoy::default() });
    world.run(20);
    let passed = world.run(seconds);
    assert!(passed[80] >= 8 * seconds, "{passed:?}");
}

#[test]
fn a_limit_without_clients_is_forgotten() {
    let (_, quotas, mut leases) = crowd(Limit::per_second(100), 2);
    let groups = || quotas.groups.lock().expect("a lock").len();
    assert_eq!(groups(), 1);
    leases.pop();
    assert_eq!(groups(), 1, "the other client has it still");
    leases[0].limit(Limited::Unlimited);
    assert_eq!(groups(), 0);
}
