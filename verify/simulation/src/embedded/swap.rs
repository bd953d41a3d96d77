//! States that the client decides on, and those that are not ours.

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::Kept;
use tidegate::{Limit, Micros};
use tidegate_redis::RedisFailure;
use tidegate_redis::internals::{Form, Outcome, Step, Task};

use super::START;
use super::account::Account;
use super::keyspace::{Keyspace, Output};
use super::store::{EmbeddedStore, Settings};

const SETTINGS: Settings = Settings { kept_longer_ms: 1_000, strict: false, by_server_time: false, expires: true };

fn kept(bytes: &str) -> Option<Kept> {
    Some(Kept { bytes: bytes.into(), forget_at: Micros::new(START + 1_500_001) })
}

/// A swap of a state, together with a charge of all that a limit has.
fn swap(account: &Account, state: &str, passes: bool) -> Outcome {
    let check = account.check(Verb::Charge, 5);
    let limit = check.meter().limit().expect("a limit of ours");
    let decide = Task::Decide { check, limit };
    let swap = Task::Swap {
        form: Form::Text,
        state: state.into(),
        passes,
        after: kept("after"),
        healed: kept("healed"),
        verdict: None,
    };
    let key = EmbeddedStore::key_of(&check);
    let steps = vec![Step { key, task: decide }, Step { key: b"custom".into(), task: swap }];
    account.store.run(&account.store.call(steps)).expect("a reply").outcome
}

/// A swap alone: what the state was, what came of it, and until when the new one is kept.
struct Alone {
    form: Form,
    state: &'static str,
    after: Option<Kept>,
    passes: bool,
}

impl Alone {
    const KEY: &[u8] = b"custom";

    fn run(self, account: &Account, others: Vec<Step<'_>>) -> (Outcome, String) {
        let Alone { form, state, after, passes } = self;
        let verdict =
            Some(Verdict { remaining: 7, reset_after: Micros::new(8), delay: Micros::new(9), ..Verdict::default() });
        let swap =
            Task::Swap { form, state: state.into(), passes, after, healed: kept("healed").filter(|_| passes), verdict };
        let steps = [vec![Step { key: Self::KEY.into(), task: swap }], others].concat();
        let call = account.store.call(steps);
        let reply = account.store.run(&call).expect("a reply");
        if reply.outcome == Outcome::CarriedOut {
            let told = reply.verdict(0, &call.steps[0].task).expect("what the client said");
            assert_eq!((told.remaining, told.reset_after.get(), told.delay.get()), (7, 8, 9));
        }
        (reply.outcome, String::from_utf8_lossy(reply.state(0)).into_owned())
    }
}

fn list(account: &Account) -> String {
    let mut keyspace = account.store.keyspace();
    match keyspace.call(b"LRANGE", &[Alone::KEY, b"0", b"-1"]) {
        Ok(Output::Several(numbers)) => String::from_utf8_lossy(&numbers.join(&b':')).into_owned(),
        other => panic!("no list: {other:?}"),
    }
}

fn string(account: &Account) -> Option<String> {
    account.store.keyspace().string(b"custom").map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

#[test]
pub(super) fn a_swap_is_carried_out_with_the_others_or_not_at_all() {
    let account = Account::new(Limit::per_second(5), SETTINGS);
    account.peek(START, 0);
    assert_eq!((swap(&account, "", false), string(&account).as_deref()), (Outcome::Refused, Some("healed")));
    assert!(!account.is_kept(), "charged although the swap refuses");
    assert_eq!((swap(&account, "", true), string(&account).as_deref()), (Outcome::Overtaken, Some("healed")));
    assert!(!account.is_kept(), "charged although the swap was overtaken");
    assert_eq!((swap(&account, "healed", true), string(&account).as_deref()), (Outcome::CarriedOut, Some("after")));
    assert_eq!(account.peek(START, 0).remaining, 0);
    assert_eq!((swap(&account, "after", true), string(&account).as_deref()), (Outcome::Refused, Some("healed")));
    // As long as it matters, in whole milliseconds, and a second.
    let kept_until = Micros::new(START + 1_501_000 + 1_000_000);
    assert_eq!(account.store.keyspace().kept_until(b"custom"), Some(kept_until));
}

#[test]
pub(super) fn a_list_is_swapped_as_a_string_is() {
    let account = Account::new(Limit::per_second(5), SETTINGS);
    account.peek(START, 0);
    let swap = |state, after| Alone { form: Form::List, state, after, passes: true }.run(&account, Vec::new());
    assert_eq!(swap("", kept("3:5:1")).0, Outcome::CarriedOut);
    assert_eq!(list(&account), "3:5:1");
    let kept_until = Micros::new(START + 1_501_000 + 1_000_000);
    assert_eq!(account.store.keyspace().kept_until(Alone::KEY), Some(kept_until));
    assert_eq!(swap("3:5", kept("4:6:2")), (Outcome::Overtaken, "3:5:1".to_owned()));
    assert_eq!(swap("3:5:1", kept("4:6:2:7:3")).0, Outcome::CarriedOut);
    assert_eq!(list(&account), "4:6:2:7:3");
    assert_eq!(swap("4:6:2:7:3", None).0, Outcome::CarriedOut);
    assert_eq!(list(&account), "4:6:2:7:3", "there was nothing to write");
    assert_eq!(swap("4:6:2:7:3", kept("")).0, Outcome::CarriedOut);
    assert!(!account.store.keyspace().holds(Alone::KEY), "an empty state is none");
}

#[test]
pub(super) fn a_state_may_be_of_any_bytes_and_its_time_may_be_over() {
    let account = Account::new(Limit::per_second(5), SETTINGS);
    account.peek(START, 0);
    let swap = |state, after, passes| Alone { form: Form::Text, state, after, passes }.run(&account, Vec::new());
    let odd = "- a%20 b\n-";
    for forget_at in [0, START - 1, START].map(Micros::new) {
        let kept = Some(Kept { bytes: odd.into(), forget_at });
        let before = string(&account).map_or("", |_| odd);
        assert_eq!(swap(before, kept, true).0, Outcome::CarriedOut, "{forget_at}");
        assert_eq!(string(&account).as_deref(), Some(odd));
        assert_eq!(account.store.keyspace().kept_until(Alone::KEY), Some(Micros::new(START + 1_000_000)));
    }
    assert_eq!(swap("another", None, true), (Outcome::Overtaken, odd.to_owned()));
    for (before, after) in [(odd, "x"), ("x", ""), ("", odd)] {
        assert_eq!(swap(before, kept(after), true).0, Outcome::CarriedOut, "{after:?}");
        assert_eq!(string(&account).unwrap_or_default(), after);
        assert_eq!(account.store.keyspace().holds(Alone::KEY), !after.is_empty(), "{after:?}");
    }
    assert_eq!(swap(odd, None, false), (Outcome::Refused, odd.to_owned()));
    assert_eq!(string(&account).as_deref(), Some(odd));
}

/// The last that is still a state: what comes after it is foreign.
#[test]
pub(super) fn a_state_at_its_bound_is_one_and_beyond_it_none() {
    const LAST: u64 = (1 << 53) - 1;
    // A tick of the first drains three units of a third.
    let strings = [
        (
            "3/us burst 5",
            [format!("{LAST}:2"), "5:2".into(), LAST.to_string()],
            [format!("{}:2", LAST + 1), "5:3".into()],
        ),
        ("5/s", [LAST.to_string(), "0".into(), "7:0".into()], [(LAST + 1).to_string(), "7:1".into()]),
        (
            "fixed 2/s",
            [format!("{LAST}:2:0"), format!("0:{LAST}:0"), "0:2:2".into()],
            [format!("{}:1:0", LAST + 1), format!("0:{}:0", LAST + 1)],
        ),
        // In all, and with the limit's own count, as many million as can be counted exactly.
        (
            "sliding 2/s",
            [format!("{LAST}:2:0"), format!("0:0:{}", LAST / 1_000_000 - 2), "0:4:4".into()],
            [format!("0:0:{}", LAST / 1_000_000 - 1), format!("0:{}:1", LAST / 1_000_000 - 2)],
        ),
    ];
    for (limit, states, foreign) in strings {
        let limit: Limit = limit.parse().expect("a limit");
        for (state, is_one) in
            states.iter().map(|state| (state, true)).chain(foreign.iter().map(|state| (state, false)))
        {
            let set = |keyspace: &mut Keyspace, key: &[u8]| drop(keyspace.call(b"SET", &[key, state.as_bytes()]));
            assert_eq!(is_taken_for_a_state(limit, set), is_one, "{limit} on {state}");
        }
    }
    let log = |words: &'static str| {
        let push = move |keyspace: &mut Keyspace, key: &[u8]| {
            for word in words.split(' ') {
                keyspace.call(b"RPUSH", &[key, word.as_bytes()]).expect("a list");
            }
        };
        is_taken_for_a_state("sliding-log 2/s".parse().expect("a limit"), push)
    };
    for state in ["0 5 1", "0 9007199254740991 1", "4 5 5 6 6", "0 0 1"] {
        assert!(log(state), "{state}");
    }
    for foreign in [
        "0",
        "0 5",
        "0 5 1 6",
        "0 9007199254740992 1",
        "0 1700000003123456.5 1",
        "0 -1 1",
        "0 x 1",
        "x 1700000003123456 1",
    ] {
        assert!(!log(foreign), "{foreign}");
    }
}

fn is_taken_for_a_state(limit: Limit, put: impl Fn(&mut Keyspace, &[u8])) -> bool {
    let account = Account::new(limit, SETTINGS);
    account.set(START);
    let check = account.check(Verb::Charge, 1);
    let key = EmbeddedStore::key_of(&check);
    put(&mut account.store.keyspace(), &key);
    let call = account.store.call(vec![Step { key, task: Task::Decide { check, limit } }]);
    match account.store.run(&call) {
        Ok(reply) => {
            reply.verdict(0, &call.steps[0].task).map(|_| true).expect("what the script takes for a state is one")
        }
        Err(RedisFailure::ForeignKey { .. }) => false,
        Err(failure) => panic!("{limit}: {failure:?}"),
    }
}

#[test]
pub(super) fn what_no_limit_wrote_is_an_error() {
    let limits = ["2/s", "leaky 2/s", "fixed 2/s", "sliding 2/s", "sliding-log 2/s"];
    for limit in limits.map(|words| words.parse::<Limit>().expect("a limit")) {
        for foreign in ["hello", "1:2:3:4", "-1", "1.5:0:0", "", "1:", "99999999999999999:1:1"] {
            let account = Account::new(limit, SETTINGS);
            account.peek(START, 0);
            let check = account.check(Verb::Charge, 1);
            let key = EmbeddedStore::key_of(&check);
            account.store.keyspace().call(b"SET", &[&key, foreign.as_bytes()]).expect("a command");
            let task = Task::Decide { check, limit };
            let failure = account.store.run(&account.store.call(vec![Step { key, task }]));
            assert!(matches!(failure, Err(RedisFailure::ForeignKey { .. })), "{limit} on {foreign:?}: {failure:?}");
        }
    }
}
