//! Seeds, replays, and defects that must be found.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tidegate::Decision;
use tidegate_redis::internals::Defect;
use tokio::time::{Instant, sleep};

use super::defect::PlantedDefect;
use super::process::Processes;
use super::scenario::Scenario;
use super::world::World;
use super::{Broken, Tally, Telling, simulate};
use crate::embedded::host::Planted;

/// Stories of each run of the tests; a long run tells more.
const SEEDS: u64 = 1_500;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Tells one story twice: aloud if a promise was broken.
fn tell(seed: u64, telling: Telling) -> Result<Tally, Box<Broken>> {
    let told = simulate(seed, None, telling);
    let tally = told.or_else(|_| simulate(seed, None, Telling::Aloud))?;
    assert_eq!(simulate(seed, None, Telling::Silently).ok(), Some(tally), "seed {seed} tells two stories");
    Ok(tally)
}

/// As many threads as there are processors tell stories until one is broken.
fn tell_all(first: u64, count: u64) -> Result<Tally, Box<Broken>> {
    let telling = if count == 1 { Telling::Aloud } else { Telling::Silently };
    let (next, sum, broken) = (AtomicU64::new(first), Mutex::new(Tally::default()), Mutex::new(None));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < first + count) {
                    match tell(seed, telling) {
                        Ok(tally) => sum.lock().expect("not poisoned").add(&tally),
                        Err(found) => {
                            next.store(first + count, Ordering::Relaxed);
                            broken.lock().expect("not poisoned").get_or_insert(found);
                        }
                    }
                }
            });
        }
    });
    match broken.into_inner().expect("not poisoned") {
        Some(broken) => Err(broken),
        None => Ok(sum.into_inner().expect("not poisoned")),
    }
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.events += other.events;
        self.requests += other.requests;
        self.admitted += other.admitted;
        self.losses += other.losses;
        self.faults += other.faults;
        self.virtual_micros += other.virtual_micros;
    }
}

#[test]
fn every_seed_keeps_every_promise() {
    let (first, count) = (number("TIDEGATE_SEED", 1), number("TIDEGATE_SEEDS", SEEDS));
    let sum = tell_all(first, count).unwrap_or_else(|broken| panic!("{broken}"));
    let Tally { events, requests, admitted, losses, faults, virtual_micros, .. } = sum;
    let hours = virtual_micros / 3_600_000_000;
    println!(
        "{count} seeds from {first}: {requests} requests, {admitted} of them admitted by the servers, {faults} faults, \
         {losses} losses of states, {events} events, {hours} virtual hours; every promise kept"
    );
}

/// One seed, with its events printed.
#[test]
fn the_same_seed_is_the_same_story() {
    let told = |seed| simulate(seed, None, Telling::Silently).map(|tally| tally.hash).ok();
    assert!((1..=20).all(|seed| told(seed).is_some() && told(seed) == told(seed)));
    assert_ne!(told(1), told(2));
}

/// As servers and balancers do with those that are idle.
#[test]
fn a_connection_closed_while_idle_fails_no_call() {
    let scenario = Scenario { processes: 1, callers: 0, on_failure: None, faults: Vec::new(), ..Scenario::drawn(1) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let world = World::new(scenario, 1, Telling::Silently);
        let processes = Processes::start(&world, Instant::now());
        for limiter in processes.limiters() {
            for idle in [0, 20, 300, 86_400] {
                world.lock().cut_all(0);
                sleep(Duration::from_secs(idle)).await;
                let decision = limiter.check_async("alice").await;
                assert!(decision.as_ref().is_ok_and(Decision::is_allowed), "{idle} s: {decision:?}");
            }
        }
    });
}

/// What is broken by a defect, in one of the first stories in which it could matter.
fn found(defect: PlantedDefect, could_matter: fn(&Scenario) -> bool) -> String {
    let mut seeds = (1..).filter(|seed| could_matter(&Scenario::drawn(*seed))).take(500);
    let broken = seeds.find_map(|seed| simulate(seed, Some(defect), Telling::Silently).err());
    let broken = broken.unwrap_or_else(|| panic!("{defect:?} is not found"));
    println!("{defect:?}, seed {}: {}", broken.seed, broken.promise);
    broken.promise
}

fn found_in_script(from: &'static str, to: &'static str, could_matter: fn(&Scenario) -> bool) -> String {
    assert!(tidegate_redis::scripts().iter().any(|(_, text)| text.contains(from)), "no script says {from:?}");
    found(PlantedDefect::Script(Planted { from, to }), could_matter)
}

fn is_leased(scenario: &Scenario) -> bool {
    scenario.lease.is_some()
}

fn is_not_leased(scenario: &Scenario) -> bool {
    scenario.lease.is_none()
}

fn is_strict(scenario: &Scenario) -> bool {
    scenario.is_strict
}

#[test]
fn a_grant_that_counts_twice_is_found() {
    assert!(found(PlantedDefect::Leases(Defect::GrantsTwice), is_leased).contains("admitted"));
}

#[test]
fn a_lease_that_is_given_back_and_kept_is_found() {
    assert!(found(PlantedDefect::Leases(Defect::KeepsWhatItGaveBack), is_leased).contains("given back"));
}

#[test]
fn a_refund_of_what_was_not_answered_is_found() {
    assert!(found(PlantedDefect::RefundsUponFailure, is_not_leased).contains("given back"));
}

#[test]
fn a_charge_that_is_sent_again_is_found() {
    let is_cut_short = |scenario: &Scenario| is_not_leased(scenario) && format!("{scenario:?}").contains("CutAfter");
    let promise = found(PlantedDefect::SendsAgain, is_cut_short);
    assert!(promise.contains("asked for") || promise.contains("given back"), "{promise}");
}

#[test]
fn a_call_without_a_deadline_is_found() {
    let promise = found(PlantedDefect::HasNoDeadline, is_not_leased);
    assert!(promise.contains("takes") || promise.contains("waits"), "{promise}");
}

#[test]
fn a_breaker_that_never_closes_is_found() {
    assert!(found(PlantedDefect::NeverLooksAgain, is_not_leased).contains("get no calls"));
}

#[test]
fn chance_that_no_seed_knows_of_is_found() {
    let told = || simulate(1, Some(PlantedDefect::ReadsTheRealClock), Telling::Silently).map(|tally| tally.hash).ok();
    assert_ne!(told(), told());
}

#[test]
fn an_id_that_is_not_noted_is_found() {
    assert!(
        found_in_script("if once and outcome == ' 1' then", "if false then", is_not_leased).contains("carried out")
    );
}

#[test]
fn a_strict_mode_that_trusts_any_history_is_found() {
    found_in_script("if known == history and", "if known and", is_strict);
}

#[test]
fn a_history_from_the_future_is_found() {
    assert!(
        found_in_script("known == history and (strict == 2 or tonumber(at) <= now)", "known == history", is_strict)
            .contains("never gets back")
    );
}

#[test]
fn a_state_that_expires_too_soon_is_found() {
    found_in_script("(cell + 2 * horizon) * size", "cell * size", is_not_leased);
}

/// The bucket's clamp: a key that was idle for long has no more than a burst.
#[test]
fn a_burst_that_grows_with_idleness_is_found() {
    let clamped = "if at >= tick then\n      level = at - tick > horizon and EXACT or (at - tick) * drain + fraction";
    found_in_script(clamped, "if state then\n      level = (at - tick) * drain + fraction", is_not_leased);
}
