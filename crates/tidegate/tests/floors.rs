//! Priorities: what a class of requests leaves to the others.

use std::future::Future;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, Meter, Store, StoreError};
use tidegate::{
    CheckError, Clock, ConfigError, FailureMode, Floor, Limit, Limiter, ManualClock, MemoryStore, Micros, Overflow,
    Policy, PriorityClasses, Request, Rule, Setting, WarmUp,
};
use tidegate_testkit::block_on;

const LONG: Duration = Duration::from_secs(1_000_000);

fn classes() -> PriorityClasses {
    PriorityClasses::by("priority")
        .class("critical", Floor::NONE)
        .class("normal", Floor::Percent(20))
        .class("low", Floor::Percent(50))
}

fn rule(limit: &str) -> Rule {
    Rule::new("api", limit.parse().expect("a limit")).priority(classes())
}

fn limiter(policy: impl Into<Policy>) -> (Limiter, ManualClock) {
    let clock = ManualClock::default();
    clock.advance(Duration::from_secs(1_700_000_000));
    let store = MemoryStore::builder().max_keys(100).clock(clock.clone()).build().expect("valid settings");
    (Limiter::with_store(policy, store).expect("a valid policy"), clock)
}

fn by(class: &'static str) -> Request<'static> {
    Request::new("acme").with("priority", class)
}

fn left(limiter: &Limiter, request: Request<'_>) -> u64 {
    limiter.peek(request).expect("an answer").remaining().expect("a limit")
}

const EVERY_KIND: [&str; 7] = [
    "10/h",
    "leaky 10/h",
    "fixed 10/h",
    "fixed 10/h from-first",
    "sliding 10/h",
    "sliding-log 10/h",
    "in-flight 10 for 1h",
];

#[test]
fn each_class_takes_while_more_than_its_floor_is_left() {
    for words in EVERY_KIND {
        let (limiter, _) = limiter(rule(words));
        let admitted = |class: &'static str| (0..20).filter(|_| limiter.allow(by(class))).count();
        assert_eq!(["low", "normal", "critical"].map(admitted), [5, 3, 2], "{words}");
        assert_eq!(limiter.peek(by("low").cost(0)).map(|peek| peek.is_allowed()).ok(), Some(true), "{words}");
    }
}

#[test]
fn an_unknown_value_and_none_are_of_the_class_with_the_highest_floor() {
    let (limiter, _) = limiter(rule("10/h"));
    assert_eq!([left(&limiter, by("low")), left(&limiter, by("unheard-of"))], [5, 5]);
    assert_eq!([left(&limiter, Request::new("acme")), left(&limiter, by("critical"))], [5, 10]);
}

#[test]
fn the_wait_is_that_of_the_class() {
    let (limiter, clock) = limiter(rule("10/h"));
    assert!(limiter.allow(by("critical").cost(10)));
    let waits = ["critical", "normal", "low"].map(|class| limiter.check(by(class)).expect("an answer").retry_after());
    assert_eq!(waits, [360, 1_080, 2_160].map(|seconds| Some(Duration::from_secs(seconds))));
    clock.advance(Duration::from_micros(2_160_000_000 - 1));
    assert!(!limiter.allow(by("low")));
    clock.advance(Duration::from_micros(1));
    assert!(limiter.allow(by("low")));
}

#[test]
fn refill_after_is_when_more_becomes_available() {
    for words in ["10/h", "leaky 10/h", "7/h burst 10"] {
        let (limiter, clock) = limiter(rule(words));
        let limit: Limit = words.parse().expect("a limit");
        let decision = limiter.check(by("low").cost(2)).expect("an answer");
        assert_eq!((decision.floor(), decision.capacity()), (5, Some(10)));
        let before = left(&limiter, by("low"));
        let more_after = limit.more_after(&decision);
        clock.advance(more_after - Duration::from_micros(3));
        assert_eq!(left(&limiter, by("low")), before, "{words}: too late");
        clock.advance(Duration::from_micros(3));
        assert!(left(&limiter, by("low")) > before, "{words}: too early");
    }
}

#[test]
fn tiers_overrides_and_candidates_keep_back_their_own_share() {
    let rule = rule("10/h")
        .tier("plan", "pro", Limit::per_hour(100))
        .override_exactly("plan", "free", Limit::per_hour(4))
        .override_exactly("plan", "none", Setting::Unlimited)
        .candidate(Limit::per_hour(20));
    let (limiter, _) = limiter(rule);
    let of = |plan| left(&limiter, by("low").with("plan", plan).rule("api"));
    assert_eq!([of("pro"), of("free"), of("other")], [50, 2, 5]);
    assert!(limiter.peek(by("low").with("plan", "none")).is_ok_and(|decision| decision.is_unlimited()));
    let explained = limiter.explain(by("low")).expect("an answer").to_string();
    assert!(
        explained.contains("api (candidate) (shadow): 20/h for \"acme\" allows a cost of 1, 10 left"),
        "{explained}"
    );
}

#[test]
fn a_cost_above_the_floor_can_never_pass_and_an_estimate_is_clamped_to_what_the_class_may_take() {
    let (strict, _) = limiter(rule("10/h"));
    let error = strict.check(by("low").cost(6)).expect_err("never");
    assert!(matches!(error, CheckError::Unsatisfiable { cost: 6, capacity: 5, floor: 5, .. }), "{error:?}");
    assert!(
        error.to_string().contains("the limit of 5, beside 5 kept back from its class, of rule \"api\""),
        "{error}"
    );
    assert!(strict.allow(by("critical").cost(6)));
    let (clamping, _) = limiter(rule("10/h").clamp_estimate());
    assert!(clamping.allow(by("low").cost(100)));
    assert_eq!(left(&clamping, by("critical")), 5);
}

#[test]
fn a_class_with_no_units_is_invalid() {
    let too_high = |limit: &str, floor| {
        let rule = Rule::new("api", limit.parse().expect("a limit"))
            .priority(PriorityClasses::by("class").class("low", floor));
        Limiter::builder(rule).build().err()
    };
    for (limit, floor) in [("1/s", Floor::Percent(1)), ("10/s", Floor::Percent(100)), ("10/s", Floor::Units(10))] {
        let error = too_high(limit, floor).expect("nothing is left");
        assert!(matches!(&error, ConfigError::FloorTooHigh { class, .. } if class.starts_with("low (")), "{error}");
    }
    assert_eq!(
        [too_high("10/s", Floor::Units(9)), too_high("10/s", Floor::Percent(99))].map(|none| none.is_some()),
        [false, true]
    );
}

#[test]
fn explain_says_the_class_and_that_only_its_floor_refuses() {
    let (limiter, _) = limiter(rule("10/h"));
    assert!(limiter.allow(by("low").cost(5)));
    let explained = |class| limiter.explain(by(class)).expect("an answer").to_string();
    assert_eq!(
        explained("low"),
        "refused: below the floor of low (50%) by \"api\", retry after 360s\n  \
         api: refused: below the floor of low (50%); 10/h for \"acme\" refuses a cost of 1, retry after 360s  <- binds\n"
    );
    assert!(explained("normal").contains("allows a cost of 1, 3 left (class normal (20%))"));
    assert!(limiter.allow(by("critical").cost(5)));
    assert!(explained("critical").starts_with("refused by \"api\": retry after 360s"), "{}", explained("critical"));
    assert!(explained("low").starts_with("refused by \"api\": retry after 2160s"), "{}", explained("low"));
}

#[test]
fn former_use_counts_for_every_class() {
    for words in EVERY_KIND {
        let (limiter, _) = limiter(rule("20/h"));
        assert!(limiter.allow(by("critical").cost(8)));
        limiter.set_policy(rule(words)).expect("a valid policy");
        assert_eq!(limiter.check(by("low")).map(|decision| decision.is_allowed()).ok(), Some(false), "{words}");
        assert_eq!([left(&limiter, by("normal")), left(&limiter, by("critical"))], [0, 2], "{words}");
        assert!(limiter.allow(by("critical").cost(if words.starts_with("in") { 1 } else { 2 })), "{words}");
    }
    // Another floor is the same limit, and what was used counts.
    let (limiter, _) = limiter(rule("10/h"));
    assert!(limiter.allow(by("low").cost(5)));
    let stricter = PriorityClasses::by("priority").class("critical", Floor::Units(4)).class("low", Floor::Percent(60));
    limiter.set_policy(rule("10/h").priority(stricter)).expect("a valid policy");
    assert_eq!([left(&limiter, by("critical")), left(&limiter, by("low"))], [1, 0]);
}

#[test]
fn requests_decided_together_leave_what_the_strictest_of_them_leaves() {
    let (limiter, _) = limiter(rule("10/h"));
    let together = |requests: &[Request<'_>]| {
        let decisions = limiter.check_all(requests).expect("answers");
        decisions.iter().all(tidegate::Decision::is_allowed)
    };
    assert!(together(&[by("critical").cost(2), by("low").cost(3)]));
    assert!(!together(&[by("critical"), by("low")]), "the low one would take below its floor");
    assert!(!together(&[by("low"), by("critical")]), "in whatever order");
    assert!(
        !together(&[by("low"), by("normal"), by("critical")]) && !together(&[by("normal"), by("low"), by("critical")])
    );
    assert_eq!(left(&limiter, by("critical")), 5);
    let never = limiter.check_all(&[by("critical").cost(4), by("low").cost(2)]);
    assert!(matches!(never, Err(CheckError::Unsatisfiable { cost: 6, .. })), "{never:?}");
    assert!(together(&[by("critical").cost(2), by("critical").cost(3)]));
}

#[test]
fn a_report_is_not_held_back_beside_a_charge_and_one_unit_is_a_floor() {
    let classes = PriorityClasses::by("priority").class("critical", Floor::NONE).class("low", Floor::Units(1));
    let (limiter, _) = limiter(Rule::new("api", Limit::per_hour(3)).priority(classes));
    let both = |verb| block_on(limiter.decide_all_async(&[(verb, by("low")), (Verb::Charge, by("critical"))]));
    for (verb, allowed) in [(Verb::Report, true), (Verb::Charge, false), (Verb::Peek, false)] {
        let decisions = both(verb).expect("answers");
        let all = decisions.iter().all(|decision| decision.as_ref().is_ok_and(tidegate::Decision::is_allowed));
        assert_eq!((all, left(&limiter, by("critical"))), (allowed, 1), "{verb:?}");
    }
    limiter.reset(by("critical")).expect("an answer");
    let below = [(Verb::Report, by("low")), (Verb::Charge, by("critical").cost(2))];
    let decisions = block_on(limiter.decide_all_async(&below)).expect("answers");
    assert!(decisions.iter().all(|decision| decision.as_ref().is_ok_and(tidegate::Decision::is_allowed)));
    assert_eq!(left(&limiter, by("critical")), 0, "below the floor of the one that reports");
}

#[test]
fn refunds_reports_and_reservations_are_not_held_back() {
    let (limiter, _) = limiter(rule("10/h"));
    assert!(limiter.allow(by("critical").cost(10)));
    limiter.refund(by("low").cost(10)).expect("an answer");
    assert_eq!(left(&limiter, by("critical")), 10);
    let reported = limiter.report(by("low").cost(12)).expect("an answer");
    assert_eq!((reported.remaining(), reported.unrecorded()), (Some(0), 0));
    limiter.reset(by("low")).expect("an answer");
    let reservation = limiter.reserve(by("low").cost(4)).expect("an answer").made().expect("it fits above the floor");
    assert!(limiter.reserve(by("low").cost(2)).expect("an answer").made().is_none());
    let _ = reservation.settle(7).expect("settled");
    assert_eq!(left(&limiter, by("critical")), 3, "what was spent is charged below the floor");
    let again = by("low").id("once");
    assert!(!limiter.allow(again.clone()));
    assert!(
        limiter.allow(by("critical").id("twice"))
            && limiter.check(by("critical").id("twice")).is_ok_and(|answer| answer.is_repeated())
    );
}

struct Idle;

impl Wake for Idle {
    fn wake(self: Arc<Self>) {}
}

fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(&Waker::from(Arc::new(Idle)))) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

#[test]
fn a_class_that_waits_does_not_hold_up_another_one() {
    let (limiter, clock) = limiter(rule("10/h"));
    assert!(limiter.allow(by("low").cost(5)));
    let mut first = pin!(limiter.acquire_async(by("low"), LONG));
    let mut second = pin!(limiter.acquire_async(Request::new("acme"), LONG));
    assert!(poll(first.as_mut()).is_none() && poll(second.as_mut()).is_none());
    let mut critical = pin!(limiter.acquire_async(by("critical"), LONG));
    assert!(poll(critical.as_mut()).is_some_and(|outcome| outcome.is_ok()), "it need not wait");
    clock.advance(Duration::from_secs(720));
    // In the order of arrival within a class, of which an unknown one is part.
    assert!(poll(second.as_mut()).is_none());
    assert!(poll(first.as_mut()).is_some());
    assert!(poll(second.as_mut()).is_none());
    // What any class gives back may be enough for all of them.
    limiter.refund(by("critical")).expect("an answer");
    assert!(poll(second.as_mut()).is_some_and(|outcome| outcome.is_ok()));
}

#[test]
fn a_limit_that_keys_climb_to_keeps_back_its_share_of_every_step() {
    for words in ["100/h", "leaky 100/h", "fixed 100/h", "sliding 100/h", "sliding-log 100/h"] {
        let climb = WarmUp::new(10, Duration::from_secs(100)).expect("a warm-up");
        let (limiter, clock) = limiter(rule(words).warm_up(climb));
        assert_eq!(
            [left(&limiter, by("critical")), left(&limiter, by("normal")), left(&limiter, by("low"))],
            [10, 8, 5]
        );
        assert!(limiter.allow(by("low").cost(5)) && !limiter.allow(by("low")), "{words}");
        let wait = limiter.check(by("low")).expect("an answer").retry_after().expect("it passes later");
        clock.advance(wait - Duration::from_micros(1));
        assert!(!limiter.allow(by("low")), "{words}");
        clock.advance(Duration::from_micros(1));
        assert!(limiter.allow(by("low")), "{words}");
    }
    let climb = WarmUp::new(1, Duration::from_secs(100)).expect("a warm-up");
    let error = Limiter::builder(rule("100/h").warm_up(climb)).build().err();
    assert!(matches!(error, Some(ConfigError::FloorTooHigh { .. })), "a new key would leave the class nothing");
}

#[test]
fn a_custom_kernel_admits_what_fits_above_the_floor() {
    let Some(kernel) = log_kernel() else { panic!("a sliding log") };
    let (limiter, clock) = limiter(Rule::of_meter(Meter::custom("api", kernel)).priority(classes()));
    let admitted = |class: &'static str| (0..20).filter(|_| limiter.allow(by(class))).count();
    assert_eq!(["low", "normal", "critical"].map(admitted), [5, 3, 2]);
    let wait = limiter.check(by("low")).expect("an answer").retry_after().expect("it passes later");
    clock.advance(wait);
    assert!(limiter.allow(by("low")));
}

fn log_kernel() -> Option<tidegate::kernel::Log> {
    match Limit::sliding_log(10, Duration::from_secs(60)).kernel() {
        tidegate::kernel::LimitKernel::Log(log) => Some(log),
        tidegate::kernel::LimitKernel::Bucket(_) | tidegate::kernel::LimitKernel::Window(_) => None,
    }
}

/// A store that never answers.
struct Down(ManualClock);

impl Store for Down {
    async fn decide(&self, _: &[Check<'_>], _: &mut [Verdict]) -> Result<Micros, StoreError> {
        Err(StoreError::Failed { source: "away".into() })
    }

    fn clock(&self) -> &dyn Clock {
        &self.0
    }
}

#[test]
fn a_fallback_keeps_back_its_share_of_the_floor_rounded_up() {
    let four = NonZeroU32::new(4).expect("four");
    let at = |mode| {
        Limiter::with_store(rule("40/h").on_failure(mode), Down(ManualClock::default())).expect("a valid policy")
    };
    let local = at(FailureMode::Local { processes: four });
    let admitted = |class: &'static str| {
        let allowed =
            |_: &usize| tidegate_testkit::block_on(local.check_async(by(class))).is_ok_and(|it| it.is_allowed());
        (0..20).filter(allowed).count()
    };
    assert_eq!(["low", "normal", "critical"].map(admitted), [5, 3, 2]);
    let open = tidegate_testkit::block_on(at(FailureMode::Open).check_async(by("low"))).expect("an answer");
    assert_eq!(open.remaining(), Some(20));
}

#[test]
fn keys_without_room_share_a_state_and_its_floors() {
    for overflow in [Overflow::Share, Overflow::Allow] {
        let store = MemoryStore::builder().max_keys(1).overflow(overflow).clock(ManualClock::default()).build();
        let limiter = Limiter::with_store(rule("10/h"), store.expect("valid settings")).expect("a valid policy");
        let keys: Vec<String> = (0..200).map(|number| number.to_string()).collect();
        for key in &keys {
            let request = |class: &'static str| Request::new(key.as_str()).with("priority", class);
            let decision = limiter.check(request("low")).expect("an answer");
            let (low, whole) = (decision.remaining().expect("a limit"), left(&limiter, request("critical")));
            assert!(low <= 5 && (overflow == Overflow::Allow || low == whole.saturating_sub(5)), "{low} of {whole}");
        }
    }
}

#[test]
fn a_snapshot_is_the_same_for_every_class() {
    let (limiter, clock) = limiter(rule("sliding-log 10/h"));
    assert!(limiter.allow(by("low").cost(4)));
    let mut snapshot = Vec::new();
    limiter.store().snapshot(&mut snapshot).expect("it can be written");
    let store = MemoryStore::builder().max_keys(100).clock(clock).restore(&*snapshot).expect("it can be read");
    let again = Limiter::with_store(rule("sliding-log 10/h"), store).expect("a valid policy");
    assert_eq!([left(&again, by("low")), left(&again, by("critical"))], [1, 6]);
}
