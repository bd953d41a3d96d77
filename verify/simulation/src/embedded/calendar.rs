//! Periods of the calendar that the client chose by a time that is not the server's.

use tidegate::kernel::Verb;
use tidegate::{Limit, Micros};
use tidegate_redis::internals::{Call, Named, Outcome, Reply, Step, Task};

use super::START;
use super::account::Account;
use super::host;
use super::store::{EmbeddedStore, Settings};

const SETTINGS: Settings = Settings { kept_longer_ms: 1_000, strict: false, by_server_time: true, expires: false };

const HOUR: u64 = 3_600_000_000;

#[test]
pub(super) fn a_period_that_is_not_the_servers_is_refused_and_nothing_is_done() {
    let limit: Limit = "5/hour in UTC".parse().expect("a limit");
    let account = Account::new(limit, SETTINGS);
    let start = START - START % HOUR;
    for (now, believed, is_period) in [
        (START, START, true),
        (START, start, true),
        (START, start + HOUR - 1, true),
        (START, start - 1, false),
        (START, start + HOUR, false),
        (START, 0, false),
        (start, start + 1, true),
        (start, start - 1, false),
        (start + HOUR, start + HOUR - 1, false),
        (start + HOUR - 1, start, true),
        (start + HOUR - 1, start + HOUR, false),
    ] {
        let before = account.peek(now, 0);
        let check = account.check(Verb::Charge, 1);
        let task = Task::Decide { check, limit };
        let step = Step { key: EmbeddedStore::key_of(&check), task };
        let call = Call { believed: Micros::new(believed), ..account.store.call(vec![step]) };
        let reply = {
            let mut keyspace = account.store.keyspace();
            keyspace.now = Micros::new(now);
            let value = host::run(&call.command(Named::ByDigest, call.believed), &mut keyspace).expect("a reply");
            Reply::read(&value).expect("a reply")
        };
        let expected = if is_period { Outcome::CarriedOut } else { Outcome::OtherPeriod };
        assert_eq!((reply.outcome, reply.now), (expected, Micros::new(now)), "{believed} believed at {now}");
        let used = u64::from(is_period);
        assert_eq!(account.peek(now, 0).remaining, before.remaining - used, "{believed} believed at {now}");
        // Asked as a client asks, it is charged to the period that it is.
        assert!(account.charge(now, 1).allowed);
        assert_eq!(account.peek(now, 0).remaining, before.remaining - used - 1);
        account.ask(now, Verb::Reset, 0);
    }
}
