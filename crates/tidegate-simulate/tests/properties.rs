//! Whatever the traffic and the limits: the answers are those of the library's
//! front door, the measures those that a patient person would count, and the
//! bounds of the algorithms hold.

use std::time::Duration;

use proptest::prelude::*;
use tidegate::kernel::Verdict;
use tidegate::{Algorithm, Limit, Limiter, ManualClock, MemoryStore, Micros, Request};
use tidegate_simulate::{Arrival, Decided, Scenario, ScenarioError, Traffic, every_algorithm};

/// One request as a limit saw it.
#[derive(Clone, Copy, Debug)]
struct Seen {
    at: u64,
    client: u32,
    cost: u64,
    allowed: bool,
    leaves: u64,
}

/// One request as each limit saw it.
fn seen(answer: Decided<'_>) -> Vec<Seen> {
    let Arrival { at, client, cost, .. } = answer.arrival;
    let seen = |verdict: &Verdict| Seen {
        at: at.get(),
        client,
        cost,
        allowed: verdict.allowed,
        leaves: at.saturating_add(verdict.delay).get(),
    };
    answer.verdicts.iter().map(seen).collect()
}

fn limits() -> impl Strategy<Value = Limit> {
    (1u64..40, 1u64..40, prop::sample::select(vec!["100ms", "700ms", "1s", "3s"]), prop::bool::ANY).prop_map(
        |(count, burst, period, from_first)| {
            let limit: Limit = format!("{count}/{period} burst {burst}").parse().unwrap();
            if from_first && burst % 2 == 0 {
                format!("fixed {count}/{period} from-first").parse().unwrap()
            } else {
                limit
            }
        },
    )
}

fn part() -> impl Strategy<Value = String> {
    let shape = prop_oneof![
        (1u64..80).prop_map(|rate| format!("{rate}/s")),
        (1u64..80).prop_map(|rate| format!("poisson {rate}/s")),
        (1u64..60, 1u64..3_000).prop_map(|(size, every)| format!("bursts {size} every {every}ms")),
        (1u64..60, 100u64..3_000, 1u64..=100)
            .prop_map(|(size, every, within)| format!("bursts {size} every {every}ms within {within}ms")),
        (1u64..200, 1u64..900, 1u64..2_000)
            .prop_map(|(rate, on, off)| format!("on-off {rate}/s {on}ms on {off}ms off")),
        (1u64..20, 20u64..90, 1u64..6).prop_map(|(low, high, day)| format!("diurnal {low}/s to {high}/s every {day}s")),
    ];
    (shape, 0u64..2_000).prop_map(|(shape, from)| match from {
        0..1_000 => shape,
        from => format!("{shape} from {from}ms"),
    })
}

fn traffic() -> impl Strategy<Value = Traffic> {
    let client = prop::collection::vec(part(), 1..3).prop_map(|parts| parts.join(" + "));
    let words = prop::collection::vec(client, 1..4).prop_map(|clients| clients.join("; "));
    words.prop_map(|words| words.parse().unwrap())
}

#[test]
fn even_traffic_is_even_whenever_it_is_looked_at() {
    let limits = every_algorithm("10/s".parse().unwrap()).unwrap();
    let mut simulation = Scenario::new("10/s".parse().unwrap()).limits(limits).start().unwrap();
    while simulation.step().is_some() {
        let report = simulation.report();
        assert_eq!(report.offered.smoothness, Some(1_000), "at {}", simulation.now());
        let even = |outcome: &tidegate_simulate::Outcome| outcome.flow.smoothness.is_some_and(|index| index <= 1_000);
        assert!(report.outcomes.iter().all(even), "at {}: {}", simulation.now(), report.table());
    }
}

/// The most of `seen` that was admitted of one client in a period.
fn worst_window(seen: &[Seen], period: u64) -> u64 {
    let admitted = || seen.iter().filter(|it| it.allowed);
    let within = |first: &Seen| {
        admitted()
            .filter(|it| it.client == first.client && (first.at..first.at + period).contains(&it.at))
            .map(|it| it.cost)
            .sum()
    };
    admitted().map(within).max().unwrap_or(0)
}

/// The smallest bucket that lets the same pass, by trying all intervals.
fn burst(seen: &[Seen], count: u64, period: u64) -> u64 {
    let admitted: Vec<&Seen> = seen.iter().filter(|it| it.allowed).collect();
    let mut most = 0;
    for (index, first) in admitted.iter().enumerate() {
        let mut units = 0;
        for last in admitted[index..].iter().filter(|it| it.client == first.client) {
            units += last.cost;
            let above = u128::from(units * period).saturating_sub(u128::from((last.at - first.at) * count));
            most = most.max(above.div_ceil(u128::from(period)) as u64);
        }
    }
    most
}

fn smoothness(seen: &[Seen], period: u64, length: u64) -> Option<u32> {
    let width = (period / 10).max(1);
    let mut bins = vec![0u128; length.div_ceil(width) as usize];
    for it in seen.iter().filter(|it| it.allowed) {
        if let Some(bin) = bins.get_mut((it.leaves / width) as usize) {
            *bin += u128::from(it.cost);
        }
    }
    let (sum, squares): (u128, u128) = (bins.iter().sum(), bins.iter().map(|bin| bin * bin).sum());
    (sum > 0).then(|| (sum * sum * 1_000 / (bins.len() as u128 * squares)) as u32)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_answers_are_those_of_a_limiter(limit in limits(), traffic in traffic(), seed in 0u64..1_000) {
        let limits = every_algorithm(limit).unwrap();
        let clock = ManualClock::default();
        let limiter = |limit: &Limit| {
            let store = MemoryStore::builder().max_keys(64).clock(clock.clone()).build().unwrap();
            Limiter::with_store(*limit, store).unwrap()
        };
        let limiters: Vec<Limiter> = limits.iter().map(limiter).collect();
        let mut simulation =
            Scenario::new(traffic).limits(limits).seed(seed).lasting(Duration::from_secs(5)).start().unwrap();
        while let Some(answer) = simulation.step() {
            clock.set(answer.arrival.at);
            for (limiter, verdict) in limiters.iter().zip(answer.verdicts) {
                let decision = limiter.check(Request::new(u64::from(answer.arrival.client))).unwrap();
                prop_assert_eq!(decision.is_allowed(), verdict.allowed);
                prop_assert_eq!(decision.remaining(), Some(verdict.remaining));
                prop_assert_eq!(decision.retry_after(), Some(verdict.retry_after.to_duration()));
                prop_assert_eq!(decision.delay(), verdict.delay.to_duration());
            }
        }
    }

    #[test]
    fn the_measures_are_those_that_one_counts_by_hand(
        limit in limits(), traffic in traffic(), cost in 1u64..4, seed in 0u64..1_000,
    ) {
        let words = traffic.to_string().replace(" +", &format!(" cost {cost} +"));
        let limit = limit.try_burst(limit.capacity().max(4)).unwrap_or(limit);
        prop_assume!(limit.count() >= 4);
        let limits = every_algorithm(limit).unwrap();
        let length = Micros::new(4_321_000);
        let mut simulation =
            Scenario::new(words.parse().unwrap()).limits(limits).seed(seed).lasting(length.to_duration()).start().unwrap();
        let mut answers = Vec::new();
        while let Some(answer) = simulation.step() {
            answers.push(seen(answer));
        }
        let report = simulation.report();
        for (index, outcome) in report.outcomes.iter().enumerate() {
            let seen: Vec<Seen> = answers.iter().map(|seen| seen[index]).collect();
            let (count, period) = (outcome.limit.count(), Micros::from_duration(outcome.limit.period()).get());
            let flow = &outcome.flow;
            let units = |allowed| seen.iter().filter(|it| it.allowed == allowed).map(|it| it.cost).sum::<u64>();
            prop_assert_eq!(outcome.offered.requests as usize, answers.len());
            prop_assert_eq!((flow.passed.units, outcome.refused().units), (units(true), units(false)));
            prop_assert_eq!(flow.passed.requests + outcome.refused().requests, outcome.offered.requests);
            prop_assert_eq!(flow.worst_window.units, worst_window(&seen, period));
            prop_assert_eq!(flow.burst, burst(&seen, count, period));
            prop_assert_eq!(flow.smoothness, smoothness(&seen, period, length.get()));
            let longest = seen.iter().filter(|it| it.allowed).map(|it| it.leaves - it.at).max().unwrap_or(0);
            prop_assert_eq!(flow.longest_delay.get(), longest);
            let bins = flow.series.bins();
            prop_assert_eq!(bins.iter().map(|bin| bin.admitted).sum::<u64>(), flow.passed.units);
            prop_assert_eq!(bins.iter().map(|bin| bin.fullest_window).max().unwrap_or(0), flow.worst_window.units);
            // Whatever was admitted before the bin and has not expired is in its window.
            for (bin, start) in bins.iter().zip((0..).step_by(flow.series.width().get() as usize)) {
                let in_force = |client| {
                    let counts = |it: &&Seen| it.allowed && it.client == client && it.at < start && it.at + period > start;
                    seen.iter().filter(counts).map(|it| it.cost).sum::<u64>()
                };
                let least = (0..report.traffic.clients()).map(in_force).max().unwrap_or(0);
                prop_assert!(bin.fullest_window >= least, "{} < {least} at {start}", bin.fullest_window);
            }
            let left = seen.iter().filter(|it| it.allowed && it.leaves < length.get()).map(|it| it.cost).sum::<u64>();
            prop_assert_eq!(bins.iter().map(|bin| bin.leaving).sum::<u64>(), left);
        }
    }

    #[test]
    fn the_bounds_of_the_algorithms_hold(limit in limits(), traffic in traffic(), seed in 0u64..1_000) {
        let scenario = Scenario::new(traffic).limits(every_algorithm(limit).unwrap()).seed(seed);
        let report = scenario.lasting(Duration::from_secs(8)).run().unwrap();
        for outcome in &report.outcomes {
            let (count, capacity) = (outcome.limit.count(), outcome.limit.capacity());
            let worst = outcome.flow.worst_window.units;
            match outcome.limit.algorithm() {
                Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                    prop_assert!(worst <= capacity + count && outcome.flow.burst <= capacity);
                }
                Algorithm::FixedWindow => prop_assert!(worst <= 2 * count),
                Algorithm::SlidingLog => prop_assert!(worst <= count),
                Algorithm::SlidingCounter => prop_assert!(worst <= 2 * count && outcome.flow.burst <= count + 1),
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_report_however_it_is_run(
        limit in limits(), traffic in traffic(), seed in 0u64..1_000, pause in 1u64..900_000,
    ) {
        let scenario = Scenario::new(traffic).limits([limit]).seed(seed).lasting(Duration::from_secs(4));
        let report = scenario.clone().run().unwrap();
        prop_assert_eq!(&report, &scenario.clone().run().unwrap());
        let mut piecewise = scenario.start().unwrap();
        for time in (pause..4_000_000 + pause).step_by(pause as usize) {
            while let Some(answer) = piecewise.step_before(Micros::new(time)) {
                prop_assert!(answer.arrival.at < Micros::new(time));
            }
            prop_assert!(piecewise.next_at().is_none_or(|at| at.get() >= time));
            let _ = piecewise.report();
        }
        prop_assert_eq!(report, piecewise.report());
    }
}

/// Sentences with holes for rates, times and numbers, and what may stand in them: the small, the large, and nonsense.
const SENTENCES: [&str; 8] = [
    "R",
    "poisson R",
    "bursts N every T",
    "bursts N every T within T",
    "on-off R T on T off",
    "diurnal R to R every T",
    "N",
    "",
];
const ENDS: [&str; 9] = [
    "",
    " from T",
    " until T",
    " cost N",
    " from T until T",
    " from",
    " lasting T",
    " actual N lasting T..T",
    " actual N..N lasting T",
];
const RATES: [&str; 6] = ["5/s", "1/us", "1/520weeks", "3/day", "1_000/h", "0/s"];
const TIMES: [&str; 7] = ["1us", "10s", "2min", "520weeks", "day", "0s", "s5"];
const NUMBERS: [&str; 6] = ["1", "20", "1000000", "1000000000000", "0", "é"];

fn anything() -> impl Strategy<Value = String> {
    let choice = (0..SENTENCES.len(), 0..ENDS.len(), prop::collection::vec(0usize..42, 8));
    choice.prop_map(|(sentence, end, chosen)| {
        let (words, mut chosen) = (format!("{}{}", SENTENCES[sentence], ENDS[end]), chosen.into_iter());
        let mut choose = |from: &[&'static str]| from[chosen.next().unwrap_or(0) % from.len()];
        let fill = |letter| match letter {
            'R' => choose(&RATES).to_owned(),
            'T' => choose(&TIMES).to_owned(),
            'N' => choose(&NUMBERS).to_owned(),
            other => other.to_string(),
        };
        words.chars().map(fill).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn words_are_read_or_refused_and_what_is_read_can_be_simulated(
        parts in prop::collection::vec(anything(), 1..3), joint in prop::sample::select(vec!["; bob: ", "; 3 clients: ", " + ", ":"]),
        seed in 0u64..9,
    ) {
        let words = parts.join(joint);
        let Ok(traffic) = words.parse::<Traffic>() else { return Ok(()) };
        prop_assert_eq!(Ok(traffic.clone()), traffic.to_string().parse(), "{}", words);
        for limit in ["1000000/s", "1000000000000/day"] {
            let limits = every_algorithm(limit.parse().unwrap()).unwrap();
            let scenario = Scenario::new(traffic.clone()).limits(limits).seed(seed).lasting(Scenario::MAX_LENGTH);
            let mut simulation = match scenario.start() {
                Err(ScenarioError::TooManyInFlight { requests, .. }) => {
                    prop_assert!(requests > Scenario::MAX_IN_FLIGHT && words.contains("lasting"));
                    continue;
                }
                started => started.unwrap(),
            };
            for _ in 0..500 {
                let _ = simulation.step();
            }
            let report = simulation.report();
            let drawn = (report.table().to_string(), report.chart().to_string(), report.picture().to_svg());
            prop_assert!(drawn.2.ends_with("</svg>\n"));
        }
    }
}

#[test]
fn a_simulation_of_so_many_requests_has_that_many() {
    let scenario = Scenario::new("poisson 50/s".parse().unwrap()).limits([Limit::per_second(1)]);
    let report = scenario.clone().lasting_requests(1_234).unwrap().run().unwrap();
    assert_eq!(report.offered.passed.requests, 1_234);
    let error = Scenario::new("1/s until 10s".parse().unwrap()).lasting_requests(11).unwrap_err();
    assert_eq!(error.to_string(), "the traffic ends after 10 of 11 requests: give a length of time instead");
}

#[test]
fn an_invalid_scenario_says_why() {
    let traffic: Traffic = "1/s cost 5".parse().unwrap();
    let why = |scenario: Scenario| scenario.start().map(drop).unwrap_err().to_string();
    assert!(why(Scenario::new(traffic.clone())).contains("give at least one"));
    assert!(why(Scenario::new(traffic.clone()).limits([Limit::per_second(4)])).contains("can never pass 4/s"));
    assert!(why(Scenario::new(traffic.clone()).limits([Limit::per_second(9); 17])).contains("at most 16"));
    let scenario = Scenario::new(traffic).limits([Limit::per_second(9)]);
    assert!(why(scenario.clone().lasting(Duration::ZERO)).contains("choose another length"));
    assert!(why(scenario.lasting(Duration::MAX)).contains("choose another length"));
}
