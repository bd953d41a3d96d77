//! Every state of every model is visited: as it is, nothing is found; with a
//! defect, that is.
//!
//! `TIDEGATE_MODEL=large cargo test --release -p tidegate-proof -- --nocapture` visits larger ones.

use std::fmt::Debug;
use std::hash::Hash;

use stateright::{Checker, HasDiscoveries, Model};
use tidegate_proof::failover::{self, Failover, Mode};
use tidegate_proof::ids::{self, Ids};
use tidegate_proof::leases::{self, Leases};
use tidegate_proof::quotas::{self, Quotas};
use tidegate_proof::reservations::{self, Reservations};

/// Where the search for a defect ends that is not found: some of them never end.
const MAX_STATES: usize = 5_000_000;

/// Visits every state, and sees that all properties hold.
fn holds<M>(name: &str, model: M)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let checker = model.checker().threads(2).spawn_bfs().join();
    checker.assert_properties();
    println!("{name}: {} states, nothing found", checker.unique_state_count());
}

/// Looks for a state in which the property does not hold, and finds one.
fn is_found<M>(name: &str, model: M, property: &'static str)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let found = HasDiscoveries::AllOf([property].into());
    // One thread, so that the shortest way there is found.
    let checker = model.checker().finish_when(found).target_state_count(MAX_STATES).spawn_bfs().join();
    let path = checker.discovery(property).unwrap_or_else(|| panic!("{name} is not noticed by: {property}"));
    println!("{name}: {:?}", path.into_actions());
}

#[test]
fn leases_hand_out_what_was_charged_and_no_process_holds_more_than_a_chunk() {
    holds("leases", Leases::new(None));
}

#[test]
fn defects_with_leases_are_found() {
    use leases::Defect::{AcceptsEveryGrant, GivesBackWhatWasUsed, PutsBackBeyondTheChunk};
    let paid = "since the start no more is admitted than the limit allows";
    is_found("a grant that counts twice", Leases::new(Some(AcceptsEveryGrant)), paid);
    is_found("a lease given back whole", Leases::new(Some(GivesBackWhatWasUsed)), paid);
    let held = "no process holds more than a chunk";
    is_found("units put back without end", Leases::new(Some(PutsBackBeyondTheChunk)), held);
}

#[test]
fn a_lost_server_costs_a_burst_and_in_strict_mode_nothing() {
    holds("failover", Failover::new(Mode::Usual, 0, None));
    holds("failover, strict", Failover::new(Mode::Strict, 0, None));
}

/// The honest exception: while two servers both take themselves for the
/// primary, both admit at the rate of the limit.
#[test]
fn a_primary_that_has_not_heard_costs_its_rate_for_as_long() {
    holds("two primaries", Failover::new(Mode::Usual, 1, None));
    holds("two primaries, strict", Failover::new(Mode::Strict, 1, None));
}

#[test]
fn defects_with_histories_are_found() {
    use failover::Defect::{ForgetsSince, TrustsAnyHistory, TrustsTheFirstLook};
    for defect in [TrustsAnyHistory, TrustsTheFirstLook, ForgetsSince] {
        let model = Failover::new(Mode::Strict, 0, Some(defect));
        is_found(&format!("{defect:?}"), model, "the bound");
    }
}

#[test]
fn a_request_with_an_id_is_charged_once_however_often_it_is_sent() {
    holds("ids", Ids::new(None));
}

#[test]
fn defects_with_ids_are_found() {
    use ids::Defect::{LooksFirst, NotesLater, RemembersRefusals};
    let once = "a server that knows an id charged it once";
    is_found("an id that is looked up first", Ids::new(Some(LooksFirst)), once);
    is_found("an id that is noted later", Ids::new(Some(NotesLater)), once);
    let checker = Ids::new(Some(RemembersRefusals)).checker().spawn_bfs().join();
    let later = checker.discovery("a refused id is admitted later");
    assert!(later.is_none(), "a refused id stays refused: {later:?}");
}

/// A record that expires before the permit, and one that is kept longer.
const RECORDS: [u64; 2] = [1, 3];

#[test]
fn a_reservation_is_settled_once_and_its_permit_expires() {
    for (permits, lasts) in [1, 2].into_iter().flat_map(|permits| RECORDS.map(|lasts| (permits, lasts))) {
        holds(&format!("{permits} permits, records for {lasts}"), Reservations::new(permits, lasts, None));
    }
}

#[test]
fn defects_with_reservations_are_found() {
    use reservations::Defect::{RemembersTheFirstInstant, RenewsUnchecked, RenewsWithoutUndo, SettlesWithoutAMark};
    let held = "what counts is held, from its last renewal to its expiry";
    for (defect, property) in [
        (SettlesWithoutAMark, "no correction is made twice"),
        (SettlesWithoutAMark, held),
        (RenewsUnchecked, "no renewal brings back a permit"),
        (RenewsUnchecked, "no more permits than the limit"),
        (RenewsWithoutUndo, "no more permits than the limit"),
        (RemembersTheFirstInstant, held),
    ] {
        // One that is settled twice gives back another permit, of which there must be one.
        let permits = if defect == SettlesWithoutAMark { 2 } else { 1 };
        is_found(&format!("{defect:?}"), Reservations::new(permits, 3, Some(defect)), property);
    }
}

#[test]
fn a_unit_that_clients_use_by_themselves_has_one_client_at_a_time() {
    holds("a log that outlives the server", Quotas::new(true, None));
    holds("a log that does not", Quotas::new(false, None));
}

#[test]
fn errors_with_quotas_are_found() {
    use quotas::Planted::{AssignsAtOnceAfterALoss, ForgetsDelivery, FreesAtOnce, SendsWithoutRenewal};
    for planted in [FreesAtOnce, ForgetsDelivery, SendsWithoutRenewal, AssignsAtOnceAfterALoss] {
        let keeps_log = planted != AssignsAtOnceAfterALoss;
        is_found(&format!("{planted:?}"), Quotas::new(keeps_log, Some(planted)), "a unit has one client at a time");
    }
}
