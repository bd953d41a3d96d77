//! A cluster of six real nodes: the decisions are the same, slots move, masters
//! come and go.

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use crate::support::cluster::{UNHURRIED, masters, set_node_timeout, url_of};
use crate::support::load::{MAX_CALL, failure_of, hasty, load};
use crate::support::timeline::{RESOLUTION, Timeline, is_pending, skip};
use crate::support::{LONG_PAUSES, RUNTIME, SHORT_PAUSES, build};
use tidegate::kernel::{Admission, Kernel, Reading, Verb, Verdict};
use tidegate::store::{Check, Former, Meter, Store};
use tidegate::{Key, Limit, ManualClock, MemoryStore, Micros, Name, WarmUp};
use tidegate_redis::{BreakerSettings, Builder, RedisFailure, RedisStore};
use tidegate_testkit::block_on;
use tidegate_testkit::servers::{Cluster, GUARD, Permit, Tally, eventually, slot_of};

struct Clusters {
    /// Three masters, for tests that do them no harm.
    calm: Cluster,
    /// Six nodes, for tests that move slots and end nodes, one at a time.
    rough: Mutex<Cluster>,
    _permit: Permit,
}

/// Both with one permit, as large as other tests of a cluster take: a second
/// one could wait for the first.
static CLUSTERS: LazyLock<Clusters> =
    LazyLock::new(|| Clusters { _permit: Permit::wait(6), calm: masters(), rough: Mutex::new(Cluster::start()) });

/// Milliseconds after which nodes that are silent are replaced, where they must be.
const HURRIED: &str = "3000";

/// An instant of no importance, in 2023.
const START: Micros = Micros::new(1_700_000_003_123_457);

const CALLERS: usize = 16;

/// By a clock that stands still, exactly its burst is admitted.
const BURST: u64 = 1_000;
const LIMIT: Limit = Limit::per_hour(BURST);

/// The cluster for rough tests, as good as new.
fn rough() -> MutexGuard<'static, Cluster> {
    let cluster = CLUSTERS.rough.lock().unwrap_or_else(PoisonError::into_inner);
    for node in (0..cluster.size()).map(|node| cluster.node(node)).filter(|node| !node.is_running()) {
        node.restart();
    }
    // Nodes that hurry learn from each other sooner.
    set_node_timeout(&cluster, HURRIED);
    cluster.wait_until_healthy();
    set_node_timeout(&cluster, UNHURRIED);
    cluster
}

/// A store on a cluster, whose clock stands until it is set.
fn store_on(cluster: &Cluster, settings: impl FnOnce(Builder) -> Builder) -> (RedisStore, ManualClock) {
    let clock = ManualClock::at(START);
    (build(settings(support::builder(&url_of(cluster)).clock(clock.clone()))), clock)
}

fn calm_store() -> (RedisStore, ManualClock) {
    store_on(&CLUSTERS.calm, |builder| builder)
}

/// A caller whose slot is on this master.
fn caller_on(cluster: &Cluster, master: usize) -> String {
    let mut names = (0..).map(|number| format!("caller{number}"));
    names.find(|name| cluster.master_of(slot_of(name.as_bytes())) == master).expect("names without end")
}

/// One limit of one caller.
#[derive(Clone)]
struct Account {
    meter: Meter,
    key: Key<'static>,
}

impl Account {
    fn new(limit: Limit, key: &str) -> Account {
        Account { meter: Meter::new(Name::literal("rule"), limit), key: Key::from(key).into_owned() }
    }

    fn check(&self, verb: Verb) -> Check<'_> {
        Check::new(&self.meter, &self.key, verb, 1).expect("a cost of one")
    }

    fn charge(&self, store: &RedisStore) -> Verdict {
        decide(store, &[self.check(Verb::Charge)])[0]
    }

    fn peek(&self, store: &RedisStore) -> Verdict {
        decide(store, &[self.check(Verb::Peek)])[0]
    }
}

fn try_decide(store: &RedisStore, checks: &[Check<'_>]) -> Result<Vec<Verdict>, RedisFailure> {
    let mut verdicts = vec![Verdict::default(); checks.len()];
    let decided = RUNTIME.block_on(store.decide(checks, &mut verdicts));
    decided.map(|_| verdicts).map_err(|error| failure_of(&error))
}

fn decide(store: &RedisStore, checks: &[Check<'_>]) -> Vec<Verdict> {
    try_decide(store, checks).unwrap_or_else(|failure| panic!("no answer: {failure:?}"))
}

fn round_trips(store: &RedisStore, act: impl FnOnce()) -> u64 {
    let before = store.statistics().round_trips;
    act();
    store.statistics().round_trips - before
}

tidegate_testkit::conformance!(decisions, calm_store);

mod slices {
    use super::*;

    const KINDS: [Limit; 5] = [
        Limit::per_second(5),
        Limit::leaky_bucket(3, Duration::from_secs(1)).queue(4),
        Limit::fixed_window(4, Duration::from_secs(60)),
        Limit::sliding_log(6, Duration::from_secs(10)),
        Limit::sliding_counter(7, Duration::from_secs(10)),
    ];

    /// A caller on each of the three masters.
    fn callers() -> [String; 3] {
        [0, 1, 2].map(|master| caller_on(&CLUSTERS.calm, master))
    }

    #[test]
    fn all_limits_of_a_caller_are_one_round_trip() {
        let (store, _) = calm_store();
        let accounts = KINDS.map(|limit| Account::new(limit, "alice"));
        let checks = accounts.each_ref().map(|account| account.check(Verb::Charge));
        decide(&store, &checks);
        assert_eq!(round_trips(&store, || drop(decide(&store, &checks))), 1);
    }

    #[test]
    fn a_slice_of_two_slots_charges_both_or_none_in_both_orders() {
        let [here, there, _] = callers();
        for (limit, other) in KINDS.into_iter().flat_map(|limit| KINDS.map(|other| (limit, other))) {
            let (store, _) = calm_store();
            let (spent, free) = (Account::new(limit, &here), Account::new(other, &there));
            free.charge(&store);
            while spent.charge(&store).allowed {}
            let (refusal, before) = (spent.charge(&store), free.peek(&store));
            for _ in 0..3 {
                let verdicts = decide(&store, &[spent.check(Verb::Charge), free.check(Verb::Charge)]);
                assert_eq!(verdicts, [refusal, before], "{limit} refuses, then {other}");
                let verdicts = decide(&store, &[free.check(Verb::Charge), spent.check(Verb::Charge)]);
                assert_eq!(verdicts, [before, refusal], "{other}, then {limit} refuses");
                assert_eq!(free.peek(&store), before, "{other} beside {limit} that refuses");
            }
            let verdicts = decide(&store, &[free.check(Verb::Charge), spent.check(Verb::Peek)]);
            assert!(verdicts[0].allowed, "{other}: a peek that waits is no refusal");
            assert_eq!(verdicts[0].remaining + 1, before.remaining, "{other}");
        }
    }

    #[test]
    fn a_refused_slice_gives_nothing_back_either() {
        let [here, there, _] = callers();
        let (store, _) = calm_store();
        let limits = [Limit::per_hour(2), Limit::per_hour(3), Limit::per_hour(4)];
        let [spent, refunded, charged] =
            [(0, &there), (1, &here), (2, &here)].map(|(n, key)| Account::new(limits[n], key));
        for account in [&spent, &refunded] {
            while account.charge(&store).allowed {}
        }
        let accounts = [&charged, &refunded, &spent];
        let before = accounts.map(|account| account.peek(&store));
        let verbs = [Verb::Charge, Verb::Refund, Verb::Charge];
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let verdicts = decide(&store, &order.map(|index| accounts[index].check(verbs[index])));
            // A refund always passes.
            assert!(order.iter().zip(verdicts).all(|(index, verdict)| verdict.allowed == (*index != 2)), "{order:?}");
            assert_eq!(accounts.map(|account| account.peek(&store)), before, "{order:?}");
        }
    }

    /// The look before a slice that spans slots gives nothing back, to former limits neither.
    #[test]
    fn a_former_limit_gives_back_once_and_only_if_all_slots_pass() {
        fn check(account: &Account, verb: Verb, cost: u64) -> Check<'_> {
            Check::new(&account.meter, &account.key, verb, cost).expect("a small cost")
        }
        let [here, there, _] = callers();
        let [old, new] = [100, 10].map(|count| Account::new(Limit::per_hour(count), &here));
        let other = Account::new(Limit::per_hour(1), &there);
        let former = [Former { meter: &old.meter, until: Micros::MAX }];
        for (verb, beside, left) in [
            (Verb::Refund, Verb::Refund, 58),
            (Verb::Refund, Verb::Charge, 50),
            (Verb::Reset, Verb::Refund, 100),
            (Verb::Reset, Verb::Charge, 50),
        ] {
            let (store, clock) = calm_store();
            let memory = MemoryStore::builder().clock(clock).build().expect("valid settings");
            let ask = |checks: &[Check<'_>]| {
                let mut here = vec![Verdict::default(); checks.len()];
                block_on(memory.decide(checks, &mut here)).expect("the memory store answers");
                let remaining = |verdicts: &[Verdict]| verdicts.iter().map(|v| v.remaining).collect::<Vec<_>>();
                assert_eq!(remaining(&decide(&store, checks)), remaining(&here), "{verb:?} beside {beside:?}");
                here[0].remaining
            };
            ask(&[check(&old, Verb::Charge, 50)]);
            ask(&[check(&other, Verb::Charge, 1)]);
            ask(&[check(&new, Verb::Charge, 1).with_former(&former)]);
            let given_back = if verb == Verb::Refund { 8 } else { 0 };
            ask(&[check(&new, verb, given_back).with_former(&former), check(&other, beside, 1)]);
            assert_eq!(ask(&[check(&old, Verb::Peek, 0)]), left, "{verb:?} beside {beside:?}");
        }
    }

    /// Refuses what it let pass when it was looked at, once something has happened in between.
    struct Overtaken {
        clock: ManualClock,
        meanwhile: Box<dyn Fn() + Send + Sync>,
        has_happened: Once,
    }

    impl Kernel for Overtaken {
        type State = ();

        fn capacity(&self) -> u64 {
            1
        }

        fn admit(&self, (): &(), now: Micros, _: u64) -> Admission {
            if now == START {
                self.clock.set(Micros::new(START.get() + 1));
                return Admission::PASS;
            }
            self.has_happened.call_once(&self.meanwhile);
            Admission::Wait { retry_after: Micros::new(1) }
        }

        fn charge(&self, (): &mut (), now: Micros, _: u64) -> Reading {
            self.read(&(), now)
        }

        fn read(&self, (): &(), _: Micros) -> Reading {
            Reading { remaining: 0, reset_after: Micros::ZERO }
        }

        fn forget_at(&self, (): &()) -> Micros {
            Micros::ZERO
        }

        fn encode(&self, (): &(), _: &mut Vec<u8>) {}

        fn decode(&self, bytes: &[u8]) -> Option<()> {
            bytes.is_empty().then_some(())
        }
    }

    /// What has drained since is not taken from what others were charged.
    #[test]
    fn a_charge_of_a_limit_that_warms_up_is_undone_as_far_as_it_is_there() {
        let [here, there, _] = callers();
        let clock = ManualClock::at(START);
        let of_one_prefix = |builder: Builder| builder.prefix("warming").clock(clock.clone());
        let [store, others] = [(); 2].map(|()| store_on(&CLUSTERS.calm, of_one_prefix).0);
        let climb = WarmUp::new(5, Duration::from_secs(100)).expect("a warm-up");
        let mut warming = Account::new("10/10s".parse().expect("a limit"), &here);
        warming.meter = warming.meter.warming_up(climb);
        let meanwhile = {
            let (clock, warming) = (clock.clone(), warming.clone());
            move || {
                clock.advance(Duration::from_secs(9));
                let check = Check::new(&warming.meter, &warming.key, Verb::Charge, 3).expect("a small cost");
                std::thread::scope(|scope| scope.spawn(|| decide(&others, &[check])).join()).expect("an answer");
            }
        };
        let overtaken = Overtaken { clock, meanwhile: Box::new(meanwhile), has_happened: Once::new() };
        let (meter, key) = (Meter::custom(Name::literal("overtaken"), overtaken), Key::from(there.as_str()));
        let check = Check::new(&warming.meter, &warming.key, Verb::Charge, 3).expect("a small cost");
        let refused = Check::new(&meter, &key, Verb::Charge, 1).expect("a cost of one");
        let verdicts = decide(&store, &[check, refused]);
        assert!(!verdicts[1].allowed);
        assert_eq!(warming.peek(&store).remaining, 2, "what the other was charged is there");
    }

    /// Counts for ever; something happens when it is charged and no longer looked at.
    pub(super) struct Kept {
        pub(super) charges: AtomicU64,
        pub(super) meanwhile: Box<dyn Fn() + Send + Sync>,
    }

    impl Kernel for Kept {
        type State = u8;

        fn capacity(&self) -> u64 {
            5
        }

        fn admit(&self, used: &u8, _: Micros, cost: u64) -> Admission {
            let fits = u64::from(*used) + cost <= 5;
            if fits { Admission::PASS } else { Admission::Wait { retry_after: Micros::MAX } }
        }

        fn charge(&self, used: &mut u8, now: Micros, _: u64) -> Reading {
            if self.charges.fetch_add(1, Ordering::Relaxed) == 1 {
                (self.meanwhile)();
            }
            *used += 1;
            self.read(used, now)
        }

        fn read(&self, used: &u8, _: Micros) -> Reading {
            Reading { remaining: u64::from(5 - used), reset_after: Micros::MAX }
        }

        fn forget_at(&self, _: &u8) -> Micros {
            Micros::LATEST
        }

        fn encode(&self, used: &u8, bytes: &mut Vec<u8>) {
            bytes.push(*used);
        }

        fn decode(&self, bytes: &[u8]) -> Option<u8> {
            bytes.first().copied()
        }
    }

    #[test]
    fn a_kernel_that_gives_nothing_back_is_charged_last() {
        let [here, there, _] = callers();
        let of_one_prefix = |builder: Builder| builder.prefix("kept");
        let [store, others] = [(); 2].map(|()| store_on(&CLUSTERS.calm, of_one_prefix).0);
        let spent = Account::new(Limit::per_hour(2), &there);
        let meanwhile = {
            let spent = spent.clone();
            move || std::thread::scope(|scope| drop(scope.spawn(|| while spent.charge(&others).allowed {}).join()))
        };
        let kept = Kept { charges: AtomicU64::new(0), meanwhile: Box::new(meanwhile) };
        let kept = Account { meter: Meter::custom(Name::literal("kept"), kept), key: Key::from(&*here).into_owned() };
        let verdicts = decide(&store, &[kept.check(Verb::Charge), spent.check(Verb::Charge)]);
        let is_admitted = verdicts.iter().all(|verdict| verdict.allowed);
        assert_eq!((is_admitted, kept.peek(&store).remaining), (true, 4), "the other one was charged before");
    }

    #[test]
    fn a_refusal_in_the_last_of_three_slots_is_as_if_never_asked() {
        let [first, second, third] = callers().map(|caller| Account::new(Limit::per_hour(5), &caller));
        let (store, _) = calm_store();
        while third.charge(&store).allowed {}
        let before = [&first, &second, &third].map(|account| account.peek(&store));
        let checks = [&first, &second, &third].map(|account| account.check(Verb::Charge));
        assert_eq!(decide(&store, &checks), before);
        assert_eq!([&first, &second, &third].map(|account| account.peek(&store)), before);
    }

    /// Slices of both orders by many callers; `meanwhile` happens after every
    /// thirty of them, however slow the machine. The time before and after each
    /// that was admitted.
    fn race(
        store: &RedisStore,
        accounts: [&Account; 2],
        meanwhile: impl Fn() + Clone + Send + Sync + 'static,
    ) -> Vec<[Micros; 2]> {
        let made = Arc::new(AtomicU64::new(0));
        let callers = (0..8).map(|caller| {
            let (store, made, meanwhile) = (store.clone(), made.clone(), meanwhile.clone());
            let mut accounts = accounts.map(Account::clone);
            if caller % 2 == 1 {
                accounts.reverse();
            }
            RUNTIME.spawn(async move {
                let mut admitted = Vec::new();
                let checks = accounts.each_ref().map(|account| account.check(Verb::Charge));
                for _ in 0..60 {
                    let (before, mut verdicts) = (store.clock().now(), [Verdict::default(); 2]);
                    store.decide(&checks, &mut verdicts).await.expect("an answer");
                    if verdicts.iter().all(|verdict| verdict.allowed) {
                        admitted.push([before, store.clock().now()]);
                    }
                    if made.fetch_add(1, Ordering::Relaxed) % 30 == 29 {
                        meanwhile();
                    }
                }
                admitted
            })
        });
        let callers: Vec<_> = callers.collect();
        let admitted = callers.into_iter().map(|caller| RUNTIME.block_on(caller).expect("a caller does not panic"));
        admitted.flatten().collect()
    }

    #[test]
    fn racing_slices_never_admit_more_than_either_key_allows() {
        let [here, there, _] = callers();
        let (store, _) = calm_store();
        let small = Account::new(Limit::per_hour(30), &here);
        let large = Account::new(Limit::sliding_log(50, Duration::from_secs(60)), &there);
        let admitted = race(&store, [&small, &large], || {}).len() as u64;
        assert!((1..=30).contains(&admitted), "{admitted}");
        // What was refused was given back to the last unit.
        assert_eq!(small.peek(&store).remaining, 30 - admitted);
        assert_eq!(large.peek(&store).remaining, 50 - admitted);
    }

    #[test]
    fn racing_slices_over_the_edges_of_windows_stay_within_each_window() {
        const PERIOD: Duration = Duration::from_secs(10);
        let [here, there, _] = callers();
        let (store, clock) = calm_store();
        let small = Account::new(Limit::fixed_window(9, PERIOD), &here);
        let large = Account::new(Limit::fixed_window(12, PERIOD), &there);
        let admitted = race(&store, [&small, &large], move || clock.advance(PERIOD / 4));
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        for times in admitted {
            // Of one that met an edge, each half may be of either window.
            let [before, after] = times.map(|time| time.get() / Micros::from_duration(PERIOD).get());
            if before == after {
                *counts.entry(before).or_default() += 1;
            }
        }
        println!("admitted by window: {counts:?}");
        assert!(counts.len() > 1 && counts.values().all(|count| *count <= 9), "{counts:?}");
    }
}

mod moving_slots {
    use super::slices::Kept;
    use super::*;

    #[test]
    fn a_slot_that_moved_is_found_again_and_its_counts_with_it() {
        let cluster = rough();
        let (store, _) = store_on(&cluster, |builder| builder);
        let (alice, slot) = (Account::new(LIMIT, "alice"), slot_of(b"alice"));
        assert_eq!(alice.charge(&store).remaining, BURST - 1);
        let (from, to) = (cluster.master_of(slot), other_master(&cluster, slot));
        cluster.migrate_slot(slot, to);
        let trips = round_trips(&store, || assert_eq!(alice.charge(&store).remaining, BURST - 2));
        // Sent to the old master, and on to the new one, which may not know the script yet.
        assert!((2..=3).contains(&trips), "{trips}");
        let trips = round_trips(&store, || assert_eq!(alice.charge(&store).remaining, BURST - 3));
        assert_eq!(trips, 1, "it is remembered");
        cluster.migrate_slot(slot, from);
        assert_eq!(alice.charge(&store).remaining, BURST - 4);
    }

    #[test]
    fn a_slot_on_its_way_is_answered_in_both_places() {
        let cluster = rough();
        let (store, _) = store_on(&cluster, |builder| builder);
        let slot = slot_of(b"alice");
        let old =
            [LIMIT, Limit::fixed_window(BURST, Duration::from_secs(3_600))].map(|limit| Account::new(limit, "alice"));
        let new = [Limit::per_hour(7), Limit::sliding_log(7, Duration::from_secs(60))]
            .map(|limit| Account::new(limit, "alice"));
        let both = |accounts: &[Account; 2]| {
            let checks = accounts.each_ref().map(|account| account.check(Verb::Charge));
            decide(&store, &checks).iter().map(|verdict| verdict.remaining).collect::<Vec<u64>>()
        };
        assert_eq!(both(&old), [BURST - 1; 2]);
        let migration = cluster.begin_migration(slot, other_master(&cluster, slot));
        assert_eq!(both(&old), [BURST - 2; 2], "nothing has moved yet");
        assert_eq!(migration.move_some(1), 1);
        assert_eq!(both(&old), [BURST - 3; 2], "one key has moved, and one has not");
        assert_eq!(both(&new), [6; 2], "neither key has been there before");
        assert_eq!(both(&old), [BURST - 4; 2]);
        // The old master refuses to give up a slot with keys; those of the new caller are at the new one.
        migration.move_keys();
        assert_eq!(both(&old), [BURST - 5; 2], "both have moved");
        assert_eq!(both(&new), [5; 2]);
        migration.finish();
        assert_eq!((both(&old), both(&new)), (vec![BURST - 6; 2], vec![4; 2]));
    }

    #[test]
    fn a_refused_slice_of_a_slot_on_its_way_charges_nothing() {
        let cluster = rough();
        let (store, _) = store_on(&cluster, |builder| builder);
        let slot = slot_of(b"alice");
        let accounts = [Limit::per_hour(3), LIMIT].map(|limit| Account::new(limit, "alice"));
        while accounts[0].charge(&store).allowed {}
        accounts[1].charge(&store);
        let before = accounts.each_ref().map(|account| account.peek(&store));
        let migration = cluster.begin_migration(slot, other_master(&cluster, slot));
        migration.move_some(1);
        for order in [[0, 1], [1, 0]] {
            let checks = order.map(|index| accounts[index].check(Verb::Charge));
            assert_eq!(decide(&store, &checks), order.map(|index| before[index]));
            assert_eq!(accounts.each_ref().map(|account| account.peek(&store)), before);
        }
        migration.move_keys();
        migration.finish();
    }

    #[test]
    fn a_kernel_that_gives_nothing_back_is_charged_last_while_its_slot_moves() {
        let cluster = rough();
        let (store, _) = store_on(&cluster, |builder| builder);
        let spent = Account::new(Limit::per_hour(2), "alice");
        let kept = Kept { charges: AtomicU64::new(0), meanwhile: Box::new(|| ()) };
        let kept = Account { meter: Meter::custom(Name::literal("kept"), kept), key: Key::from("alice") };
        while spent.charge(&store).allowed {}
        kept.charge(&store);
        let migration = cluster.begin_migration(slot_of(b"alice"), other_master(&cluster, slot_of(b"alice")));
        migration.move_some(1);
        let verdicts = decide(&store, &[kept.check(Verb::Charge), spent.check(Verb::Charge)]);
        assert!(!verdicts[1].allowed);
        assert_eq!(kept.peek(&store).remaining, 4);
        migration.move_keys();
        migration.finish();
    }

    #[test]
    fn slots_migrated_under_load_fail_no_call() {
        let cluster = rough();
        for limits in [&[LIMIT][..], &[LIMIT, Limit::fixed_window(BURST + 1, Duration::from_secs(86_400))]] {
            let (store, _) = store_on(&cluster, |builder| builder);
            let load = load(&store, CALLERS, "alice", limits);
            let slot = slot_of(b"alice");
            for moves in 1..=3 {
                load.wait_for_admitted(moves * BURST / 5);
                let migration = cluster.begin_migration(slot, other_master(&cluster, slot));
                load.wait_for_answers(20);
                migration.move_some(1);
                load.wait_for_answers(20);
                migration.move_keys();
                load.wait_for_answers(20);
                migration.finish();
            }
            let tally = load.exhaust();
            println!("{} limits while their slot moved: {tally}", limits.len());
            assert_eq!((tally.admitted, tally.in_doubt + tally.turned_away), (BURST, 0), "{tally}");
        }
    }

    #[test]
    fn a_flushed_script_is_sent_again() {
        let cluster = rough();
        let (store, _) = store_on(&cluster, |builder| builder);
        let load = load(&store, CALLERS, "alice", &[LIMIT]);
        for flush in 1..=3 {
            load.wait_for_admitted(flush * BURST / 5);
            for node in 0..cluster.size() {
                cluster.node(node).command(&["SCRIPT", "FLUSH"]);
            }
        }
        let tally = load.exhaust();
        assert_eq!((tally.admitted, tally.in_doubt + tally.turned_away), (BURST, 0), "{tally}");
    }

    fn other_master(cluster: &Cluster, slot: u16) -> usize {
        let owner = cluster.master_of(slot);
        cluster.masters().into_iter().find(|master| *master != owner).expect("three masters")
    }
}

mod faults {
    use super::*;

    /// Something happens to a master under load; what came of it once the limit
    /// is used up, by which time callers are answered again.
    fn befalls(what: &str, node_timeout: &str, happens: impl FnOnce(&Cluster, usize)) -> Tally {
        let cluster = rough();
        set_node_timeout(&cluster, node_timeout);
        let (store, _) = store_on(&cluster, hasty);
        // Another one in each test: a node that was just elected cannot be replaced at once.
        let master = cluster.masters()[0];
        let load = load(&store, CALLERS, &caller_on(&cluster, master), &[LIMIT]);
        load.wait_for_admitted(BURST / 3);
        let (began, epoch) = (Instant::now(), epoch(&cluster));
        happens(&cluster, master);
        let healed = began.elapsed();
        let recovered = load.wait_for_answers(CALLERS as u64);
        let tally = load.exhaust();
        println!("{what}: healed after {healed:?}, answers {recovered:?} later; {tally}");
        assert!(tally.longest < MAX_CALL, "{what}: {tally}");
        assert!(tally.admitted + tally.in_doubt >= BURST, "{what}: {tally}");
        // One, unless a busy machine was the reason for more.
        let elections = self::epoch(&cluster) - epoch;
        assert!(elections > 0 && tally.admitted <= (1 + elections) * BURST, "{what}: {tally}, {elections} elections");
        tally
    }

    /// Grows with every election.
    fn epoch(cluster: &Cluster) -> u64 {
        let info = cluster.node(cluster.masters()[0]).command(&["CLUSTER", "INFO"]).text();
        let epoch = info.lines().find_map(|line| line.strip_prefix("cluster_current_epoch:"));
        epoch.and_then(|epoch| epoch.trim().parse().ok()).expect("an epoch")
    }

    #[test]
    fn a_failover_by_agreement_admits_exactly_the_limit() {
        let tally = befalls("failover", UNHURRIED, |cluster, master| _ = cluster.failover(master));
        assert!(tally.admitted <= BURST, "{tally}");
        assert!(tally.in_doubt > 0 || tally.admitted == BURST, "{tally}");
    }

    #[test]
    fn a_takeover_admits_at_most_another_burst() {
        let tally = befalls("takeover", UNHURRIED, |cluster, master| _ = cluster.takeover(master));
        assert!(tally.admitted <= 2 * BURST, "{tally}");
    }

    #[test]
    fn a_killed_master_is_replaced_and_costs_at_most_another_burst() {
        befalls("kill", HURRIED, |cluster, master| {
            cluster.node(master).kill();
            cluster.wait_until_healthy();
        });
    }

    #[test]
    fn a_master_that_hangs_is_replaced_and_costs_at_most_another_burst() {
        befalls("pause", HURRIED, |cluster, master| {
            cluster.node(master).pause();
            cluster.wait_until_healthy();
        });
    }

    #[test]
    fn a_hanging_node_does_not_block_calls_to_other_nodes() {
        // Nodes that do not hurry: no replica takes its place.
        let (cluster, timeline) = (rough(), Timeline::start());
        let store = store_of(&timeline, &cluster, LONG_PAUSES);
        let (hanging, other) = (cluster.masters()[0], cluster.masters()[1]);
        let [waiting, served] = [hanging, other].map(|master| Account::new(LIMIT, &caller_on(&cluster, master)));
        for account in [&waiting, &served] {
            timeline.run(charge(&store, account)).expect("an answer");
        }
        cluster.node(hanging).pause();
        let mut calls: Vec<_> = (0..CALLERS).map(|_| Box::pin(charge(&store, &waiting))).collect();
        timeline.run(async {
            for call in &mut calls {
                assert!(is_pending(call.as_mut()).await);
            }
            for _ in 0..20 {
                charge(&store, &served).await.expect("an answer beside calls that hang");
            }
        });
        for call in calls {
            let (outcome, took) = timeline.run_ahead(call);
            assert!(matches!(outcome, Err(RedisFailure::Deadline { .. })), "{outcome:?}");
            assert!(took <= GUARD + RESOLUTION, "took {took:?}");
        }
        for _ in 0..20 {
            let turned_away = timeline.run(charge(&store, &waiting));
            assert!(matches!(turned_away, Err(RedisFailure::Away { .. })), "{turned_away:?}");
            timeline.run(charge(&store, &served)).expect("an answer");
        }
        assert_eq!(store.statistics().away, 1, "only what is asked there is away");
        cluster.node(hanging).resume();
        timeline.run(skip(GUARD));
        timeline.run(charge(&store, &waiting)).expect("an answer");
        assert_eq!(store.statistics().away, 0);
    }

    #[test]
    fn a_cluster_without_a_majority_is_a_failure_in_time_and_recovers_by_itself() {
        let (cluster, timeline) = (rough(), Timeline::start());
        let store = store_of(&timeline, &cluster, SHORT_PAUSES);
        let masters = cluster.masters();
        let account = Account::new(LIMIT, &caller_on(&cluster, masters[0]));
        timeline.run(charge(&store, &account)).expect("an answer");
        set_node_timeout(&cluster, HURRIED);
        for master in &masters[1..] {
            cluster.node(*master).pause();
        }
        let last_word =
            eventually("the cluster to be down", || timeline.run_out_of_time(&store, charge(&store, &account)));
        assert!(last_word.contains("cluster is down"), "{last_word}");
        for master in &masters[1..] {
            cluster.node(*master).resume();
        }
        eventually("an answer", || timeline.run(charge(&store, &account)));
    }

    /// A store whose deadlines expire when the test says so.
    fn store_of(timeline: &Timeline, cluster: &Cluster, breaker: BreakerSettings) -> RedisStore {
        timeline.build(support::builder(&url_of(cluster)).clock(ManualClock::at(START)).breaker(breaker))
    }

    async fn charge(store: &RedisStore, account: &Account) -> Result<Verdict, RedisFailure> {
        let mut verdicts = [Verdict::default()];
        let decided = store.decide(&[account.check(Verb::Charge)], &mut verdicts).await;
        decided.map(|_| verdicts[0]).map_err(|error| failure_of(&error))
    }
}
