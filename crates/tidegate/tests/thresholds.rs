//! Observers are told once for each key, threshold and period.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::{
    Event, Floor, Limit, Limiter, ManualClock, MemoryStore, Micros, Observer, Policy, PriorityClasses, Request, Rule,
    ThresholdEvent,
};
use tidegate_testkit::MeddlingClock;

#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl Observer for Told {
    fn observe(&self, _: &Event<'_>) {}

    fn crossed(&self, event: &ThresholdEvent<'_>) {
        let ThresholdEvent { rule, key, percent, used, capacity, reset_after, at, shadow, .. } = event;
        assert!(*used >= 1 && *used <= *capacity && *reset_after > Duration::ZERO && at.get() > 0);
        let shadow = if *shadow { " shadow" } else { "" };
        let words = format!("{rule} {key} {percent}% {used}/{capacity}{shadow}");
        self.0.lock().expect("no panic").push(words);
    }
}

impl Told {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("no panic"))
    }
}

fn store(clock: &ManualClock) -> MemoryStore {
    MemoryStore::builder().max_keys(100).clock(clock.clone()).build().expect("a store")
}

fn limiter(policy: impl Into<Policy>, clock: &ManualClock) -> (Limiter, Arc<Told>) {
    let told = Arc::new(Told::default());
    let builder = Limiter::builder(policy).store(store(clock)).observer(told.clone());
    (builder.build().expect("a policy"), told)
}

fn clock() -> ManualClock {
    ManualClock::at(Micros::new(1_700_000_000_000_000))
}

#[test]
fn a_window_tells_each_threshold_once_and_again_in_the_next() {
    let clock = clock();
    let rule = Rule::new("api", Limit::fixed_window(10, Duration::from_secs(60))).notify([100, 50, 80]);
    let (limiter, told) = limiter(rule.expect("thresholds"), &clock);
    for _ in 0..2 {
        (0..12).for_each(|_| _ = limiter.allow("alice"));
        assert_eq!(told.take(), ["api alice 50% 5/10", "api alice 80% 8/10", "api alice 100% 10/10"]);
        clock.advance(Duration::from_secs(60));
    }
    let _ = limiter.check(Request::new("bob").cost(10)).expect("an answer");
    assert_eq!(told.take(), ["api bob 50% 10/10", "api bob 80% 10/10", "api bob 100% 10/10"]);
}

#[test]
fn use_that_hovers_around_a_threshold_tells_it_once_a_period() {
    let clock = clock();
    let (limiter, told) = limiter(Rule::new("api", Limit::per_minute(60)).notify([50]).expect("thresholds"), &clock);
    let _ = limiter.check(Request::new("alice").cost(29)).expect("an answer");
    for _ in 0..60 {
        let _ = limiter.check(Request::new("alice").cost(1)).expect("an answer");
        clock.advance(Duration::from_secs(1));
    }
    assert_eq!(told.take(), ["api alice 50% 30/60"]);
    let _ = limiter.check("alice").expect("an answer");
    assert_eq!(told.take(), ["api alice 50% 30/60"], "a period later");
    limiter.refund(Request::new("alice").cost(5)).expect("an answer");
    let _ = limiter.check(Request::new("alice").cost(4)).expect("an answer");
    assert_eq!(told.take(), [""; 0]);
    let _ = limiter.check("alice").expect("an answer");
    assert_eq!(told.take(), ["api alice 50% 30/60"], "after a refund");
}

#[test]
fn shadow_rules_tell_theirs_and_tiers_have_thresholds_of_their_own_limit() {
    let clock = clock();
    let limit = |count| Limit::fixed_window(count, Duration::from_secs(60));
    let notified = |rule: Rule| rule.notify([50]).expect("thresholds");
    let policy = Policy::new()
        .rule(notified(Rule::new("plans", limit(4)).key(["user"]).tier("plan", "pro", limit(8))))
        .rule(notified(Rule::new("watched", limit(6)).key(["user"]).shadow()));
    let (limiter, told) = limiter(policy, &clock);
    let ask = |user, plan| limiter.check(Request::user(user).with("plan", plan)).expect("an answer");
    (0..4).for_each(|_| _ = ask("alice", "free"));
    assert_eq!(told.take(), ["plans alice 50% 2/4", "watched alice 50% 3/6 shadow"]);
    (0..4).for_each(|_| _ = ask("bob", "pro"));
    assert_eq!(told.take(), ["watched bob 50% 3/6 shadow", "plans bob 50% 4/8"]);
}

#[test]
fn requests_that_share_a_check_and_batches_tell_each_crossing_once() {
    let clock = clock();
    let rule = Rule::new("api", Limit::fixed_window(4, Duration::from_secs(60))).notify([50, 100]).expect("thresholds");
    let (limiter, told) = limiter(rule, &clock);
    limiter.check_all(&[Request::new("alice"), Request::new("alice")]).expect("an answer");
    assert_eq!(told.take(), ["api alice 50% 2/4"]);
    limiter.check_many(["bob"; 5]).expect("an answer");
    assert_eq!(told.take(), ["api bob 50% 2/4", "api bob 100% 4/4"]);
    let _ = limiter.report(Request::new("carol").cost(9)).expect("an answer");
    assert_eq!(told.take(), ["api carol 50% 4/4", "api carol 100% 4/4"]);
}

#[test]
fn changing_the_thresholds_forgets_nothing_that_was_used() {
    let clock = clock();
    let rule = || Rule::new("api", Limit::fixed_window(10, Duration::from_secs(60)));
    let (limiter, told) = limiter(rule(), &clock);
    let _ = limiter.check(Request::new("alice").cost(6)).expect("an answer");
    limiter.set_policy(rule().notify([50, 80]).expect("thresholds")).expect("a policy");
    let _ = limiter.check(Request::new("alice").cost(2)).expect("an answer");
    assert_eq!(told.take(), ["api alice 80% 8/10"]);
    assert_eq!(limiter.peek("alice").expect("an answer").remaining(), Some(2));
}

#[test]
fn a_threshold_that_a_charge_reached_is_told_once_though_the_charge_is_made_anew() {
    type Ask = fn(&Limiter, Request<'static>) -> bool;
    let [alone, of_many]: [Ask; 2] = [
        |limiter, request| limiter.allow(request),
        |limiter, request| limiter.check_many([request]).is_ok_and(|decisions| decisions[0].is_allowed()),
    ];
    let meanwhile = [(0, "api alice 80% 80/100"), (1, "api alice 80% 81/100"), (5, "api alice 80% 83/100")];
    let cases = meanwhile.into_iter().flat_map(|case| [(case, alone, None), (case, of_many, None)]);
    // While a limit warms up, what it leaves does not say what is used.
    let warming = [((5, "api alice 80% 80/100"), alone, Some("90 over 1s"))];
    for ((meanwhile, crossed), ask, warm_up) in cases.chain(warming) {
        let (clock, told) = (MeddlingClock::at(Micros::new(1_700_000_000_000_000)), Arc::new(Told::default()));
        let store = MemoryStore::builder().max_keys(100).clock(clock.clone()).build().expect("a store");
        let policy = move || {
            let rule = Rule::new("api", Limit::per_hour(100)).notify([80]).expect("thresholds");
            Policy::new().rule(match warm_up {
                Some(words) => rule.warm_up(words.parse().expect("a warm-up")),
                None => rule,
            })
        };
        let builder = Limiter::builder(policy()).store(store).observer(told.clone());
        let limiter = builder.build().expect("a policy");
        let _ = limiter.check(Request::new("alice").cost(78)).expect("an answer");
        let (changed, other, meddler) = (limiter.clone(), limiter.clone(), clock.clone());
        clock.first(move || {
            changed.set_policy(policy().limit("all", Limit::per_hour(1_000))).expect("a policy");
            // When the charge by the first policy is given back.
            meddler.first(move || _ = other.allow(Request::new("alice").cost(meanwhile)));
        });
        assert!(ask(&limiter, Request::new("alice").cost(2)) && clock.is_done());
        assert_eq!(told.take(), [crossed], "{meanwhile} meanwhile");
    }
}

#[test]
fn an_observer_that_panics_keeps_no_other_from_being_told() {
    struct Panics;
    impl Observer for Panics {
        fn observe(&self, _: &Event<'_>) {}
        fn crossed(&self, _: &ThresholdEvent<'_>) {
            panic!("on purpose");
        }
    }
    let told = Arc::new(Told::default());
    let rule = Rule::new("api", Limit::per_hour(1)).notify([100]).expect("thresholds");
    let limiter = Limiter::builder(rule).observer(Panics).observer(told.clone()).build().expect("a policy");
    assert!(limiter.allow("alice"));
    assert_eq!(told.take(), ["api alice 100% 1/1"]);
}

/// What is used, and not what a class or a step of a warm-up leaves.
#[test]
fn what_is_used_is_told_below_a_floor_and_in_a_warm_up() {
    let classes = PriorityClasses::by("class").class("low", Floor::Percent(50)).class("high", Floor::NONE);
    let rule = Rule::new("api", Limit::per_hour(10)).priority(classes).notify([30]).expect("thresholds");
    let (limiter, told) = limiter(rule, &clock());
    let _ = limiter.check(Request::new("alice").with("class", "low").cost(3)).expect("an answer");
    assert_eq!(told.take(), ["api alice 30% 3/10"]);
    for words in ["100/min", "fixed 100/min", "sliding-log 100/min"] {
        let rule =
            Rule::new("api", words.parse().expect("a limit")).warm_up("10 over 10min".parse().expect("a warm-up"));
        let (limiter, told) = self::limiter(rule.notify([5]).expect("thresholds"), &clock());
        let _ = limiter.check(Request::new("alice").cost(5)).expect("an answer");
        assert_eq!(told.take(), ["api alice 5% 5/100"], "{words}");
    }
}
