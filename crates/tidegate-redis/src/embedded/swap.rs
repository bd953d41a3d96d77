//! States that the client decides on, and those that are not ours.

use tidegate::kernel::Verb;
use tidegate::store::Kept;
use tidegate::{Limit, Micros};

use super::START;
use super::account::Account;
use super::store::{EmbeddedStore, Settings};
use crate::failure::RedisFailure;
use crate::script::{Outcome, Task, Turn};
use crate::state::Form;

const SETTINGS: Settings = Settings { kept_longer_ms: 1_000, strict: false, by_server_time: false, expires: true };

fn kept(bytes: &str) -> Option<Kept> {
    Some(Kept { bytes: bytes.into(), forget_at: Micros::new(START + 1_500_001) })
}

/// A swap of a state, together with a charge of all that a limit has.
fn swap(account: &Account, state: &str, passes: bool) -> Outcome {
    let check = account.check(Verb::Charge, 5);
    let limit = check.meter().limit().expect("a limit of ours");
    let decide = Task::Decide { check, limit, verb: Verb::Charge };
    let swap = Task::Swap {
        form: Form::Text,
        state: state.into(),
        passes,
        after: kept("after"),
        healed: kept("healed"),
        verdict: None,
    };
    let key = EmbeddedStore::key_of(&check);
    let turns = vec![Turn { key, task: decide }, Turn { key: b"custom".into(), task: swap }];
    account.store.run(&account.store.call(turns)).expect("a reply").outcome
}

fn string(account: &Account) -> Option<String> {
    account.store.keyspace().string(b"custom").map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

#[test]
fn a_swap_is_carried_out_with_the_others_or_not_at_all() {
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
fn what_no_limit_wrote_is_an_error() {
    let limits = ["2/s", "leaky 2/s", "fixed 2/s", "sliding 2/s", "sliding-log 2/s"];
    for limit in limits.map(|words| words.parse::<Limit>().expect("a limit")) {
        for foreign in ["hello", "1:2:3:4", "-1", "1.5:0:0", "", "1:", "99999999999999999:1:1"] {
            let account = Account::new(limit, SETTINGS);
            account.peek(START, 0);
            let check = account.check(Verb::Charge, 1);
            let key = EmbeddedStore::key_of(&check);
            account.store.keyspace().call(b"SET", &[&key, foreign.as_bytes()]).expect("a command");
            let task = Task::Decide { check, limit, verb: Verb::Charge };
            let failure = account.store.run(&account.store.call(vec![Turn { key, task }]));
            assert!(matches!(failure, Err(RedisFailure::ForeignKey { .. })), "{limit} on {foreign:?}: {failure:?}");
        }
    }
}
