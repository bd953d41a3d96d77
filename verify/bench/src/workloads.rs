//! The workloads that are checks and nothing else.

use crate::contestants::{
    BATCH_OF_16, BATCH_OF_64, COARSE_TIDEGATE, Contestant, DIRECT, GOVERNOR, KEYED, TIDEGATE, Terms, WHOLE_DECISION,
    enter,
};
use crate::measure::{Run, Series, Stopwatch, race};
use crate::report::{Goal, Table};
use crate::session::Session;
use crate::slices::{Course, Manner, Outcome};
use crate::visits::{self, MILLION, VISITS};

fn faster_than_governor(ours: &'static str, times: f64) -> Goal {
    Goal::TimesBelow { ours, theirs: GOVERNOR, times }
}

/// A million keys that are all known and live: uniform and Zipf.
pub(crate) fn known_keys(session: &mut Session) {
    let at_least = |times| vec![faster_than_governor(TIDEGATE, times)];
    let uniform = [
        ("uniform, 1 thread, back to back", Manner::BackToBack, {
            let variants = [(TIDEGATE, 6.0), (COARSE_TIDEGATE, 9.0), (BATCH_OF_16, 12.0), (BATCH_OF_64, 12.0)];
            variants.map(|(ours, times)| faster_than_governor(ours, times)).into()
        }),
        ("uniform, 1 thread, each waited for", Manner::InTurn, at_least(4.0)),
        ("uniform, 2 threads", Manner::TwoThreads, at_least(5.0)),
    ];
    let zipf =
        [("zipf, 1 thread", Manner::BackToBack, at_least(4.0)), ("zipf, 2 threads", Manner::TwoThreads, at_least(4.0))];
    if !uniform.iter().chain(&zipf).any(|(name, ..)| session.wants(name)) {
        return;
    }
    let entries = enter(&KEYED, Terms::LIVE, MILLION);
    for (_, contestant) in &entries {
        fill(&**contestant, MILLION);
    }
    let mut run = |visits: &[String], courses: Vec<(&str, Manner, Vec<Goal>)>| {
        for (name, manner, goals) in courses {
            if session.wants(name) {
                let course = Course { visits, manner, answer: Outcome::Allowed };
                session.add(Table::of_checks(name, course.contest(session.pace, &entries), goals));
            }
        }
    };
    run(&visits::uniform(MILLION, VISITS), uniform.into());
    run(&visits::zipf(MILLION, VISITS), zipf.into());
}

/// Lets a contestant see every key once.
fn fill(contestant: &dyn Contestant, keys: usize) {
    const STEP: usize = 1 << 16;
    for first in (0..keys).step_by(STEP) {
        let some = visits::each(first..keys.min(first + STEP));
        assert_eq!(contestant.check_each(&some), some.len(), "a new key was refused");
    }
}

/// One key that all threads ask for.
pub(crate) fn hot_key(session: &mut Session) {
    let visits = visits::hot();
    let courses = [
        ("hot key, 1 thread", Manner::BackToBack, Terms::GENEROUS, Outcome::Allowed),
        ("hot key, 2 threads", Manner::TwoThreads, Terms::GENEROUS, Outcome::Allowed),
        ("hot key refused, 1 thread", Manner::BackToBack, Terms::REFUSING, Outcome::Refused),
        ("hot key refused, 2 threads", Manner::TwoThreads, Terms::REFUSING, Outcome::Refused),
    ];
    for (name, manner, terms, answer) in courses {
        if !session.wants(name) {
            continue;
        }
        let entries = enter(&KEYED, terms, MILLION);
        for (_, contestant) in &entries {
            fill(&**contestant, 1);
        }
        let goals = vec![faster_than_governor(TIDEGATE, 2.0), faster_than_governor(WHOLE_DECISION, 1.3)];
        let course = Course { visits: &visits, manner, answer };
        session.add(Table::of_checks(name, course.contest(session.pace, &entries), goals));
    }
}

/// A limiter without keys.
pub(crate) fn no_keys(session: &mut Session) {
    let visits = visits::hot();
    let courses = [("no keys, 1 thread", Manner::BackToBack), ("no keys, 2 threads", Manner::TwoThreads)];
    for (name, manner) in courses {
        if !session.wants(name) {
            continue;
        }
        let entries = enter(&DIRECT, Terms::GENEROUS, MILLION);
        let goals = vec![faster_than_governor(TIDEGATE, 1.0), faster_than_governor(COARSE_TIDEGATE, 2.5)];
        let course = Course { visits: &visits, manner, answer: Outcome::Allowed };
        session.add(Table::of_checks(name, course.contest(session.pace, &entries), goals));
    }
}

/// A million new keys, into an empty limiter.
pub(crate) fn new_keys(session: &mut Session) {
    const NAME: &str = "new keys, 1 thread";
    if !session.wants(NAME) {
        return;
    }
    let keys = visits::each(0..MILLION);
    let runs = KEYED.iter().map(|(name, make)| {
        let run = || {
            let contestant = make(Terms::LIVE, MILLION);
            let stopwatch = Stopwatch::start();
            let allowed = contestant.check_each(&keys);
            let lap = stopwatch.stop();
            assert_eq!(allowed, keys.len(), "a new key was refused");
            lap.nanos() / keys.len() as f64
        };
        Run { name, run: Box::new(run) }
    });
    let series = race(session.pace.fills, runs.collect());
    session.add(Table::of_checks(NAME, series, vec![faster_than_governor(TIDEGATE, 4.0)]));
}

/// The same limiter with more and more keys.
pub(crate) fn growth(session: &mut Session) {
    const NAME: &str = "growth";
    const LARGEST: usize = 10 * MILLION;
    if !session.wants(NAME) {
        return;
    }
    let sizes = [
        (10_000, 1 << 20, ["tidegate, 10^4 keys", "governor, 10^4 keys"]),
        (MILLION, VISITS, ["tidegate, 10^6 keys", "governor, 10^6 keys"]),
        (LARGEST, 2 * VISITS, ["tidegate, 10^7 keys", "governor, 10^7 keys"]),
    ];
    let makes: Vec<_> = KEYED.into_iter().filter(|(name, _)| [TIDEGATE, GOVERNOR].contains(name)).collect();
    let fields = sizes.map(|(keys, visits, names)| {
        let entries = enter(&makes, Terms::LIVE, LARGEST);
        for (_, contestant) in &entries {
            fill(&**contestant, keys);
        }
        (names, entries, visits::uniform(keys, visits))
    });
    let pace = session.pace;
    let runs = fields.iter().flat_map(|(names, entries, visits)| {
        let course = Course { visits, manner: Manner::BackToBack, answer: Outcome::Allowed };
        names.iter().zip(entries).map(move |(name, (_, contestant))| course.turn(pace, name, &**contestant))
    });
    let series = race(pace.rounds, runs.collect());
    let [few_ours, few_theirs, .., many_ours, many_theirs] = &series[..] else {
        unreachable!("every size has two contestants");
    };
    let growth = |name, many: &Series, few: &Series| Series { name, ..many.over(few) };
    let ratios = vec![growth(TIDEGATE, many_ours, few_ours), growth(GOVERNOR, many_theirs, few_theirs)];
    let goals = vec![Goal::AtMost { ours: TIDEGATE, bound: 4.0 }];
    session.add(Table::of_checks(NAME, series, Vec::new()));
    let name = "growth, 10^7 keys over 10^4".into();
    session.add(Table { name, unit: "times", series: ratios, goals });
}
