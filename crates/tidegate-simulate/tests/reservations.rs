//! Requests that last: the answers are those of the library's reservations, and what is in flight
//! is what one counts by hand.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tidegate::{Amounts, Limit, Limiter, ManualClock, MemoryStore, Micros, Request, Reservation};
use tidegate_simulate::{Arrival, Scenario, Traffic, every_algorithm};

const LENGTH: Duration = Duration::from_secs(5);

fn traffic() -> impl Strategy<Value = Traffic> {
    let part = (1u64..40, 1u64..8, 0u64..8, 0u64..8, 1u64..1_500, 0u64..3_000).prop_map(
        |(rate, cost, least, more, shortest, longer)| {
            let (most, longest) = (least + more, shortest + longer);
            format!("poisson {rate}/s cost {cost} actual {least}..{most} lasting {shortest}ms..{longest}ms")
        },
    );
    let even = (1u64..20, 1u64..20).prop_map(|(size, tenths)| {
        format!("bursts {size} every {}ms lasting {}ms", tenths * 100, 2_100 - tenths * 100)
    });
    (part, even).prop_map(|(part, even)| format!("{part} + {even}; 2 clients: {part}").parse().unwrap())
}

/// A client, and from when until when.
type Interval = (u32, u64, u64);

/// How many of these intervals of the client cover an instant.
fn covering(intervals: &[Interval], client: u32, at: u64) -> u64 {
    intervals.iter().filter(|(of, from, to)| *of == client && (*from..*to).contains(&at)).count() as u64
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn the_answers_are_those_of_reservations(
        traffic in traffic(), count in 8u64..40, permits in 1u64..12, seed in 0u64..1_000, expiry in 100u64..4_000,
    ) {
        let mut limits = every_algorithm(Limit::per_second(count)).unwrap();
        limits.push(Limit::in_flight(permits, Duration::from_millis(expiry)));
        limits.push(Limit::sliding_log(count, Duration::from_millis(expiry)).debt(3));
        let clock = ManualClock::default();
        let limiter = |limit: &Limit| {
            let store = MemoryStore::builder().max_keys(64).clock(clock.clone()).build().unwrap();
            Limiter::with_store(*limit, store).unwrap()
        };
        let limiters: Vec<Limiter> = limits.iter().map(limiter).collect();
        let mut simulation = Scenario::new(traffic).limits(limits).seed(seed).lasting(LENGTH).start().unwrap();
        let mut open: BTreeMap<(Micros, Arrival, usize), Reservation> = BTreeMap::new();
        let mut number = 0;
        while let Some(answer) = simulation.step() {
            let arrival = answer.arrival;
            number += 1;
            while let Some(first) = open.first_entry().filter(|first| first.key().0 <= arrival.at) {
                let ((ends, ended, _), reservation) = first.remove_entry();
                clock.set(ends);
                let settled = reservation.settle(Amounts::from(ended.actual)).unwrap();
                prop_assert!(settled.is_allowed());
            }
            clock.set(arrival.at);
            for (index, (limiter, verdict)) in limiters.iter().zip(answer.verdicts).enumerate() {
                let outcome = limiter.reserve(Request::new(u64::from(arrival.client)).cost(arrival.cost)).unwrap();
                prop_assert_eq!(outcome.decision().is_allowed(), verdict.allowed, "at {}", arrival.at);
                if let Some(reservation) = outcome.made() {
                    prop_assert_eq!(reservation.decision().remaining(), Some(verdict.remaining));
                    open.insert((arrival.at.saturating_add(arrival.lasts.unwrap()), arrival, number * 7 + index), reservation);
                }
            }
        }
    }

    #[test]
    fn in_flight_requests_match_a_manual_count(
        traffic in traffic(), permits in 1u64..12, seed in 0u64..1_000, expiry in 100u64..4_000,
    ) {
        let limit = Limit::in_flight(permits, Duration::from_millis(expiry));
        let mut simulation = Scenario::new(traffic).limits([limit]).seed(seed).lasting(LENGTH).start().unwrap();
        // Of each request that is admitted: when its permit is given back or expires, and when it ends.
        let (mut held, mut run): (Vec<Interval>, Vec<Interval>) = Default::default();
        while let Some(answer) = simulation.step() {
            let (Arrival { at, client, .. }, lasts) = (answer.arrival, answer.arrival.lasts.unwrap().get());
            let at = at.get();
            prop_assert_eq!(answer.verdicts[0].allowed, covering(&held, client, at) < permits);
            if answer.verdicts[0].allowed {
                held.push((client, at, at + lasts.min(expiry * 1_000)));
                run.push((client, at, at + lasts));
                prop_assert!(covering(&held, client, at) <= permits);
            }
        }
        let flow = &simulation.report().outcomes[0].flow;
        let level = |at: u64| (0..3).map(|client| covering(&run, client, at)).max().unwrap();
        prop_assert_eq!(flow.passed.requests, run.len() as u64);
        prop_assert_eq!(flow.most_in_flight, run.iter().map(|(_, at, _)| level(*at)).max().unwrap_or(0));
        let width = flow.series.width().get();
        for (bin, start) in flow.series.bins().iter().zip((0..).step_by(width as usize)) {
            let within = run.iter().map(|(_, at, _)| *at).filter(|at| (start..start + width).contains(at));
            prop_assert_eq!(bin.in_flight, within.chain([start]).map(level).max().unwrap(), "at {}", start);
        }
    }

    #[test]
    fn how_long_requests_last_does_not_change_when_they_come(seed in 0u64..1_000, longest in 2u64..9) {
        let times = |words: &str| -> Vec<Micros> {
            words.parse::<Traffic>().unwrap().arrivals(seed).take(50).map(|arrival| arrival.at).collect()
        };
        prop_assert_eq!(times("poisson 5/s"), times(&format!("poisson 5/s actual 0..9 lasting 1s..{longest}s")));
    }
}

#[test]
fn debt_is_how_long_a_client_waits_for_the_next_unit() {
    // Ten are charged, thirty are taken: the bucket owes twenty, the log all of its debt.
    let traffic = "bursts 1 every 1min cost 10 actual 30 lasting 1s".parse().unwrap();
    let report = Scenario::new(traffic).limits(every_algorithm(Limit::per_second(10)).unwrap()).run().unwrap();
    let debt = |index: usize| report.outcomes[index].flow.longest_debt.to_duration();
    assert_eq!([0, 3].map(debt), [Duration::from_millis(1_100), Duration::from_secs(1)]);
    assert!(report.table().to_string().contains("longest\n"), "{}", report.table());
    let exact = "bursts 1 every 1min cost 10 lasting 1s".parse().unwrap();
    let report = Scenario::new(exact).limits([Limit::per_second(10)]).run().unwrap();
    assert_eq!(report.outcomes[0].flow.longest_debt, Micros::ZERO);
}

#[test]
fn an_expiry_shorter_than_requests_last_is_seen() {
    let traffic = "10/s lasting 10s".parse().unwrap();
    let report = Scenario::new(traffic).limits([Limit::in_flight(5, Duration::from_secs(2))]).run().unwrap();
    assert_eq!(report.outcomes[0].peak(), 25);
    assert!(report.chart().to_string().contains("in-flight 5 for 2s: 150 of 600 admitted, up to 25 in flight"));
}

#[test]
fn a_permit_is_one_whatever_a_request_costs() {
    let traffic = "1/s cost 40 lasting 3s".parse().unwrap();
    let report = Scenario::new(traffic).limits([Limit::in_flight(3, Duration::from_secs(60))]).run().unwrap();
    assert_eq!((report.outcomes[0].flow.passed.requests, report.outcomes[0].peak()), (60, 3));
}

#[test]
fn without_a_duration_permits_are_held_until_they_expire() {
    let report = Scenario::new("1/s".parse().unwrap()).limits([Limit::in_flight(5, Duration::from_secs(20))]).run();
    let report = report.unwrap();
    assert_eq!((report.outcomes[0].flow.passed.requests, report.outcomes[0].peak()), (15, 5));
    assert!(report.chart().to_string().contains("15 of 60 admitted, up to 5 in 20s"));
}

#[test]
fn more_than_can_be_kept_in_flight_is_refused() {
    let scenario = Scenario::new("1000/s lasting 1h".parse().unwrap()).limits([Limit::per_second(1)]);
    let error = scenario.run().unwrap_err().to_string();
    assert!(error.starts_with("about 3600000 requests would be in flight at once: have at most 1000000"), "{error}");
}
