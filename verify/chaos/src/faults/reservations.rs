//! Processes that are killed while they hold reservations.
//!
//! Every time here is that of the store, so a busy machine changes what happens and
//! never what is claimed about it.

use std::thread;
use std::time::{Duration, Instant};

use tidegate::{Limit, Limiter, Request, ReserveOutcome};
use tidegate_testkit::block_on;
use tidegate_testkit::servers::{Admission, Server, eventually};

use crate::bound::tightest;
use crate::findings::Findings;
use crate::holder::{Diary, Hold, Holder, PERMITS, micros, policy};
use crate::trial::{KEY, Trial};

const HOLDERS: usize = 3;

pub(super) fn holder_killed(trial: &mut Trial) -> Findings {
    killed(trial, 10)
}

pub(super) fn holder_killed_often(trial: &mut Trial) -> Findings {
    killed(trial, 100)
}

/// Three processes that reserve and settle, of which one is killed again and again.
fn killed(trial: &mut Trial, times: u64) -> Findings {
    let server = Server::start();
    let expiry = Duration::from_millis(trial.random.within(300..=500));
    let permits = Limit::in_flight(trial.random.within(2..=4), expiry);
    let limit = Limit::token_bucket(trial.random.within(15..=40), Duration::from_secs(1));
    let limit = limit.burst(trial.random.within(5..=20));

    let start = |_| Holder::start(&server, limit, permits, &mut trial.random);
    let mut holders: Vec<Holder> = (0..HOLDERS).map(start).collect();
    holders.iter().for_each(|holder| holder.wait_for_holds(1));
    let (mut kills, mut left) = (0, [0; HOLDERS]);
    // A kill between two reservations leaves nothing behind, and is not what this is about.
    while kills < times || left == [0; HOLDERS] {
        thread::sleep(Duration::from_millis(trial.random.within(0..=100)));
        let number = trial.random.choose(&[0, 1, 2]);
        let victim = &mut holders[number];
        victim.kill();
        kills += 1;
        let diary = victim.diary();
        left[number] = diary.unsettled();
        victim.start_again(&mut trial.random);
        victim.wait_for_holds(diary.holds.len() + 1);
    }
    holders.iter_mut().for_each(Holder::finish);
    let left: usize = left.into_iter().sum();

    let mut findings = Findings { notes: vec![format!("{limit}, {permits}")], ..Findings::default() };
    let diaries: Vec<Diary> = holders.iter().map(Holder::diary).collect();
    let doubts: Vec<&String> = diaries.iter().flat_map(|diary| &diary.doubts).collect();
    findings.claim(doubts.is_empty(), || format!("the store was well, and these had no answer: {doubts:?}"));
    let mut holds: Vec<Hold> = diaries.iter().flat_map(|diary| diary.holds.values().copied()).collect();
    judge_cost(&mut findings, &holds, limit);

    let taken = take_all(&mut findings, trial, &server, limit, permits);
    findings.calls += holds.len() as u64 + permits.count();
    holds.extend(taken);
    let most = most_at_once(&holds, expiry);
    findings.claim(most <= permits.count(), || format!("{most} permits were held at once, by {permits}"));
    findings.notes.push(format!("{kills} kills left {left} reservations, {most} permits were held at once"));
    findings
}

/// Whether no interval saw more charged, in the end, than the limit admits in it.
fn judge_cost(findings: &mut Findings, holds: &[Hold], limit: Limit) {
    let Some(first) = holds.iter().map(|hold| hold.asked).min() else { return };
    let base = Instant::now();
    let at = |micros: u64| base + Duration::from_micros(micros - first);
    let unit = |hold: &Hold| Admission { asked: at(hold.asked), answered: at(hold.answered), degraded: false };
    let units: Vec<Admission> =
        holds.iter().flat_map(|hold| vec![unit(hold); usize::try_from(hold.cost()).unwrap_or(0)]).collect();
    // By the clock of the store alone, so without any slack.
    let bound = |length: Duration| {
        let earned = u128::from(limit.count()) * length.as_nanos() / limit.period().as_nanos();
        limit.capacity() + u64::try_from(earned).unwrap_or(u64::MAX)
    };
    let last = holds.iter().map(|hold| hold.answered).max().unwrap_or(first);
    findings.admitted += units.len() as u64;
    findings.bound += bound(Duration::from_micros(last - first));
    if let Some(worst) = tightest(&units, bound) {
        findings.claim(worst.admitted <= worst.most, || {
            format!("{} were charged within {:?}, of {} at most by {limit}", worst.admitted, worst.length, worst.most)
        });
    }
}

/// Takes every permit, once those that were left behind must have expired.
fn take_all(findings: &mut Findings, trial: &Trial, server: &Server, limit: Limit, permits: Limit) -> Vec<Hold> {
    let now = || micros(&server.command(&["TIME"]));
    let expired = now() + u64::try_from(permits.period().as_micros()).unwrap_or(u64::MAX);
    eventually("the permits to expire", || match now() {
        now if now >= expired => Ok(()),
        now => Err(format!("{} us to go", expired - now)),
    });
    let limiter = Limiter::with_store(policy(limit, permits), trial.store(&server.url())).expect("a valid policy");
    let mut taken = Vec::new();
    // One more than there are: it is refused, or one of the others has expired.
    for number in 0..=permits.count() {
        let asked = now();
        let reserved = block_on(limiter.reserve_async(Request::new(KEY).rule(PERMITS)));
        if number < permits.count() {
            let is_made = reserved.as_ref().is_ok_and(|outcome| outcome.decision().is_allowed());
            findings.claim(is_made, || format!("with all expired, permit {number} of {permits}: {reserved:?}"));
        }
        if let Ok(ReserveOutcome::Made(reservation)) = reserved {
            taken.push(Hold::open(asked, now()));
            reservation.leave_open();
        }
    }
    taken
}

/// The most permits that were certainly held at the same time.
fn most_at_once(holds: &[Hold], expiry: Duration) -> u64 {
    let span = |hold: &Hold| (hold.answered, hold.until(expiry));
    // Of one instant, the ends come first.
    let mut turns: Vec<(u64, i64)> =
        holds.iter().map(span).filter(|(from, to)| from < to).flat_map(|(from, to)| [(from, 1), (to, -1)]).collect();
    turns.sort_unstable();
    let mut held = 0;
    let held = turns.into_iter().map(|(_, turn)| {
        held += turn;
        held
    });
    held.max().unwrap_or(0).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_overlap_only_where_both_are_certain() {
        let expiry = Duration::from_micros(100);
        let open = |from: u64| Hold::open(from, from + 10);
        let table: [(&[Hold], u64); 4] = [
            (&[], 0),
            (&[open(0), open(100)], 1),
            (&[open(0), open(89)], 2),
            (&[open(0), Hold::open(0, 300), open(5), open(50)], 3),
        ];
        for (holds, most) in table {
            assert_eq!(most_at_once(holds, expiry), most, "{holds:?}");
        }
    }
}
