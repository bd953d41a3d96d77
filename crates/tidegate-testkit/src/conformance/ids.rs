//! Requests with ids are carried out once.

use std::time::Duration;

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, RequestId, Store, StoreError};
use tidegate::{Key, ManualClock};

use super::{Account, Bench, limits};
use crate::block_on::block_on;

const ID: RequestId<'static> = RequestId::once("order-17", 1);

fn charge<'a, S: Store>(account: &'a Account<'_, S>, cost: u64, id: &'a RequestId<'a>) -> Check<'a> {
    account.check(Verb::Charge, cost).with_id(id)
}

/// The same id, and the same request, gets the same answer and takes nothing.
pub fn a_request_with_an_id_is_charged_once<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits() {
        let bench = Bench::new(make);
        let (alice, bob) = (bench.account(limit, "alice"), bench.account(limit, "bob"));
        let first = bench.decide(&[charge(&alice, 2, &ID)])[0];
        assert!(first.allowed && !first.repeated, "{limit}");
        for _ in 0..3 {
            bench.clock.advance(Duration::from_millis(5));
            let before = alice.peek(1);
            let again = bench.decide(&[charge(&alice, 2, &ID)])[0];
            assert_eq!(again, Verdict { repeated: true, ..first }, "{limit}");
            assert_eq!(alice.peek(1), before, "{limit}: charged again");
        }
        assert!(!bench.decide(&[charge(&bob, 2, &ID)])[0].repeated, "{limit}: an id belongs to its key");
        let other = RequestId { text: "order-18", ..ID };
        assert!(!bench.decide(&[charge(&alice, 1, &other)])[0].repeated, "{limit}: another id");
        // Of several limits, all or none. They begin with the same part, as a
        // store of several servers may ask for.
        let twice = ["orders", "returns"].map(|what| bench.account(limit, Key::from(("alice", what))));
        // A reset needs no id, and neither does a peek.
        for (verb, text) in [(Verb::Charge, "slice"), (Verb::Reset, "reset"), (Verb::Peek, "peek")] {
            let id = RequestId { text, ..ID };
            let slice = || bench.decide(&[twice[0].check(verb, 1).with_id(&id), charge(&twice[1], 1, &id)]);
            let (first, again) = (slice(), slice());
            for (first, again) in first.iter().zip(again) {
                assert_eq!(again, Verdict { repeated: true, ..*first }, "{limit} {verb:?}");
            }
            assert_eq!(twice[1].peek(1).remaining, first[1].remaining, "{limit} {verb:?}");
        }
        // A refund is given once, too, and has ids of its own.
        let given = |id| bench.decide(&[alice.check(Verb::Refund, 1).with_id(id)])[0];
        let (first, again) = (given(&ID), given(&ID));
        assert_eq!(again, Verdict { repeated: true, ..first }, "{limit}: a refund");
        // So is a report, whatever of it was not recorded.
        let reported = || bench.decide(&[bob.check(Verb::Report, 100).with_id(&ID)])[0];
        let (first, again) = (reported(), reported());
        assert!(first.unrecorded > 0 && !first.repeated, "{limit}");
        assert_eq!(again, Verdict { repeated: true, ..first }, "{limit}: a report");
    }
}

/// A refusal charges nothing, so the request may be sent again.
pub fn an_id_of_a_refused_request_may_be_tried_again<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits() {
        let bench = Bench::new(make);
        let account = bench.account(limit, "alice");
        assert!(account.takes_all(), "{limit}");
        let refused = bench.decide(&[charge(&account, 1, &ID)])[0];
        assert!(!refused.allowed && !refused.repeated, "{limit}");
        bench.clock.advance(refused.retry_after.to_duration());
        let admitted = bench.decide(&[charge(&account, 1, &ID)])[0];
        assert!(admitted.allowed && !admitted.repeated, "{limit}");
        assert!(bench.decide(&[charge(&account, 1, &ID)])[0].repeated, "{limit}");
    }
}

/// An id stands for one request.
pub fn an_id_for_another_request_is_an_error<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits() {
        let bench = Bench::new(make);
        let account = bench.account(limit, "alice");
        assert!(bench.decide(&[charge(&account, 1, &ID)])[0].allowed, "{limit}");
        let before = account.peek(1);
        let mut verdicts = [Verdict::default()];
        let check = charge(&account, 2, &RequestId { payload: 2, ..ID });
        let error = block_on(bench.store.decide(&[check], &mut verdicts)).err();
        assert!(matches!(&error, Some(StoreError::IdReused { id }) if id == ID.text), "{limit}: {error:?}");
        assert_eq!(account.peek(1), before, "{limit}: charged all the same");
    }
}
