//! A store beside the oracle: the same random probes to both, and every
//! field of every verdict compared.
//!
//! A scenario is a few limits and keys, and a clock that dwells, creeps,
//! jumps to the instants where answers change, leaps ahead by years and goes
//! back. Every refusal is tried out at the instant it promises, and a
//! microsecond before. Where the two differ, what led there is cut down to
//! the shortest trace that still does.

mod limits;
mod shrink;
mod traffic;

use std::fmt;

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, Meter, Store};
use tidegate::{Algorithm, Key, Limit, ManualClock, Micros, Name};

use self::shrink::Case;
use self::traffic::{Mood, Subject};
use crate::block_on::block_on;
use crate::oracle::{Ask, Oracle};
use crate::random::Random;
use crate::trace::Trace;

/// A comparison to be run.
#[derive(Clone, Copy, Debug)]
pub struct Differential<'a> {
    /// The algorithms to choose limits from.
    pub algorithms: &'a [Algorithm],
    /// How many decisions to compare, at the least.
    pub decisions: u64,
    /// What the random choices start from.
    pub seed: u64,
}

/// What was compared.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Verdicts that were compared.
    pub decisions: u64,
    /// Those of charges, without the ones that tried a promise out.
    pub charges: u64,
    /// Charges that their limit refused.
    pub refused: u64,
    /// Refusals whose waiting time was tried out.
    pub tried: u64,
    /// Slices of more than one check.
    pub slices: u64,
    /// Verdicts on a state from the future.
    pub healed: u64,
    /// The limits, one for each scenario that it was in.
    pub limits: Vec<Limit>,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { decisions, charges, refused, tried, slices, healed, limits } = self;
        let share = refused * 1_000 / charges.max(&1);
        write!(
            f,
            "{decisions} decisions on {} limits: {charges} charges, {}.{} % refused, {tried} waits tried out, \
             {slices} slices, {healed} on states from the future",
            limits.len(),
            share / 10,
            share % 10,
        )
    }
}

/// Where a store and the oracle part.
#[derive(Debug, thiserror::Error)]
#[error("{limit}: seed {seed}, scenario {scenario}, at {now}: {what}\n{reproduction}")]
pub struct Difference {
    /// The seed of the whole comparison.
    pub seed: u64,
    /// Which scenario it was, counted from 1.
    pub scenario: u64,
    /// The limit.
    pub limit: Limit,
    /// The time.
    pub now: Micros,
    /// What differs.
    pub what: String,
    /// How to get there.
    pub reproduction: Reproduction,
}

/// The way to a difference.
#[derive(Debug)]
pub enum Reproduction {
    /// The shortest trace that shows it, with the oracle's answers.
    Trace(Trace),
    /// What was asked about that state, which alone does not show it.
    History(Trace),
}

impl fmt::Display for Reproduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reproduction::Trace(trace) => write!(f, "this trace, with the oracle's answers, shows it:\n{trace}"),
            Reproduction::History(trace) => write!(f, "asked one by one, the store answers right:\n{trace}"),
        }
    }
}

impl Differential<'_> {
    /// Runs scenario after scenario, each on a new store, until enough has
    /// been compared.
    ///
    /// # Errors
    /// At the first difference.
    pub fn run<S: Store>(&self, make: impl Fn() -> (S, ManualClock)) -> Result<Tally, Box<Difference>> {
        let mut tally = Tally::default();
        let mut seeds = Random::new(self.seed);
        for number in 1.. {
            if tally.decisions >= self.decisions {
                break;
            }
            let setting = Setting::new(&mut seeds.fork(), self.algorithms);
            let mut scenario = Scenario::new(&setting, make(), seeds.fork());
            if let Err(found) = scenario.play(&mut tally) {
                let Found { subject, limit, now, what } = found;
                let key = &setting.keys[scenario.subjects[subject].key];
                let history = scenario.history.into_iter().filter(|event| event.probe.subject == subject);
                let reproduction = Case::new(limit, key, &make).shortest(history.collect());
                let (seed, scenario) = (self.seed, number);
                return Err(Box::new(Difference { seed, scenario, limit, now, what, reproduction }));
            }
        }
        Ok(tally)
    }
}

/// The limits and keys of a scenario.
struct Setting {
    meters: Vec<Meter>,
    keys: Vec<Key<'static>>,
}

const RULES: [Name; 3] = [Name::literal("first"), Name::literal("second"), Name::literal("third")];

impl Setting {
    fn new(random: &mut Random, algorithms: &[Algorithm]) -> Setting {
        let rules = &RULES[..random.within(1..=3) as usize];
        let meter = |rule: &Name| Meter::new(rule.clone(), limits::limit(random, algorithms));
        let meters = rules.iter().map(meter).collect();
        let keys = (0..random.within(1..=4)).map(Key::from).collect();
        Setting { meters, keys }
    }

    fn subjects(&self) -> Vec<Subject> {
        let mut subjects = Vec::new();
        for (meter, limit) in self.meters.iter().enumerate().filter_map(|(index, meter)| Some((index, meter.limit()?)))
        {
            subjects.extend((0..self.keys.len()).map(|key| Subject::new(meter, key, limit)));
        }
        subjects
    }
}

/// One check of one of the subjects.
#[derive(Clone, Copy, Debug)]
struct Probe {
    subject: usize,
    verb: Verb,
    cost: u64,
    /// What its class leaves to others.
    floor: u64,
}

/// What was once asked about a subject: enough to ask it again alone.
#[derive(Clone, Copy, Debug)]
struct Event {
    now: Micros,
    probe: Probe,
}

/// A difference just found.
struct Found {
    subject: usize,
    limit: Limit,
    now: Micros,
    what: String,
}

struct Scenario<'a, S> {
    setting: &'a Setting,
    store: S,
    clock: ManualClock,
    oracle: Oracle,
    random: Random,
    subjects: Vec<Subject>,
    history: Vec<Event>,
    now: Micros,
}

impl<'a, S: Store> Scenario<'a, S> {
    fn new(setting: &'a Setting, (store, clock): (S, ManualClock), mut random: Random) -> Scenario<'a, S> {
        let now = traffic::first_instant(&mut random);
        let (oracle, subjects) = (Oracle::new(), setting.subjects());
        Scenario { setting, store, clock, oracle, random, subjects, history: Vec::new(), now }
    }

    fn play(&mut self, tally: &mut Tally) -> Result<(), Found> {
        tally.limits.extend(self.setting.meters.iter().filter_map(Meter::limit));
        self.introduce(tally)?;
        let (mut charges, mut refused) = (0, 0);
        let mut focus = 0;
        for _ in 0..self.random.within(20..=300) {
            if self.random.percent(35) {
                focus = self.random.within(0..=self.subjects.len() as u64 - 1) as usize;
            }
            // To end up at one refusal in three: those of `Mood::Patient` come on top.
            let mood = if refused * 100 < charges * 29 { Mood::Pressing } else { Mood::Patient };
            self.now = self.subjects[focus].next_instant(&mut self.random, self.now, mood);
            let probes = self.probes(focus, mood);
            let verdicts = self.compare(&probes, tally)?;
            for (probe, verdict) in probes.iter().zip(&verdicts) {
                if probe.verb == Verb::Charge {
                    charges += 1;
                    refused += u64::from(!verdict.allowed);
                }
                if !verdict.allowed && !matches!(probe.verb, Verb::Renew(_)) {
                    self.try_the_promise(*probe, *verdict, tally)?;
                }
            }
            tally.slices += u64::from(probes.len() > 1);
        }
        tally.charges += charges;
        tally.refused += refused;
        Ok(())
    }

    /// Asks about every subject for the first time, all at one instant.
    ///
    /// A store may forget a key that has become as if never used, to make
    /// room for a new one; if the clock then goes back before that, it is not
    /// as the oracle remembers it. After this there are no new keys.
    fn introduce(&mut self, tally: &mut Tally) -> Result<(), Found> {
        let random = &mut self.random;
        let first = |(index, subject): (usize, &Subject)| {
            let cost = random.magnitude(1..=subject.limit.capacity());
            Probe { subject: index, verb: traffic::verb(random, subject), cost, floor: 0 }
        };
        let probes: Vec<Probe> = self.subjects.iter().enumerate().map(first).collect();
        let together = self.random.within(1..=4) as usize;
        for probes in probes.chunks(together) {
            self.compare(probes, tally)?;
        }
        for subject in 0..self.subjects.len() {
            self.compare(&[Probe { subject, verb: Verb::Reset, cost: 0, floor: 0 }], tally)?;
            self.compare(&[Probe { subject, verb: Verb::Charge, cost: 1, floor: 0 }], tally)?;
        }
        Ok(())
    }

    fn probes(&mut self, focus: usize, mood: Mood) -> Vec<Probe> {
        let random = &mut self.random;
        let mut asked = vec![focus];
        if self.subjects.len() > 1 && random.percent(15) {
            for _ in 0..random.within(1..=3) {
                let another = random.within(0..=self.subjects.len() as u64 - 1) as usize;
                if !asked.contains(&another) {
                    asked.push(another);
                }
            }
        }
        let probe = |subject: usize| {
            let verb = traffic::verb(random, &self.subjects[subject]);
            let (cost, floor) = (self.subjects[subject].cost(random, verb, mood), self.subjects[subject].floor(random));
            let above = self.subjects[subject].limit.capacity() - floor;
            let cost = if matches!(verb, Verb::Charge | Verb::Peek) { cost.min(above) } else { cost };
            Probe { subject, verb, cost, floor }
        };
        asked.into_iter().map(probe).collect()
    }

    /// Asks the store and the oracle, and compares what they say.
    fn compare(&mut self, probes: &[Probe], tally: &mut Tally) -> Result<Vec<Verdict>, Found> {
        self.history.extend(probes.iter().map(|probe| Event { now: self.now, probe: *probe }));
        let verdicts = self.ask(probes, self.now, tally)?;
        let is_refused = |(probe, verdict): (&Probe, &Verdict)| probe.verb.can_refuse() && !verdict.allowed;
        if probes.len() > 1 && probes.iter().zip(&verdicts).any(is_refused) {
            // Nothing was carried out: alone, these would only have looked.
            let first = self.history.len() - probes.len();
            self.history[first..].iter_mut().for_each(|event| event.probe.verb = Verb::Peek);
        }
        for (probe, verdict) in probes.iter().zip(&verdicts) {
            self.subjects[probe.subject].hear(self.now, probe.verb, probe.cost, *verdict);
        }
        Ok(verdicts)
    }

    fn ask(&mut self, probes: &[Probe], now: Micros, tally: &mut Tally) -> Result<Vec<Verdict>, Found> {
        let Setting { meters, keys } = self.setting;
        let subjects = &self.subjects;
        let meter = |probe: &Probe| meters[subjects[probe.subject].meter].clone().with_floor(probe.floor);
        let of_classes: Vec<Meter> = probes.iter().map(meter).collect();
        let pairs = probes.iter().zip(&of_classes);
        let checks = pairs.map(|(Probe { subject, verb, cost, .. }, meter)| {
            let key = &keys[subjects[*subject].key];
            Check::new(meter, key, *verb, *cost).expect("no cost is above the capacity")
        });
        let checks: Vec<Check<'_>> = checks.collect();
        let asks: Vec<Ask<'_>> = checks.iter().filter_map(Ask::of).collect();
        tally.healed += asks.iter().filter(|ask| self.oracle.heals(ask, now)).count() as u64;
        tally.decisions += probes.len() as u64;
        let right = self.oracle.decide(&asks, now);
        let mut verdicts = vec![Verdict::default(); checks.len()];
        self.clock.set(now);
        let at = block_on(self.store.decide(&checks, &mut verdicts));
        let differs = |index: usize, what: String| {
            let subject = probes[index].subject;
            Found { subject, limit: subjects[subject].limit, now, what }
        };
        match at {
            Ok(at) if at == now => {}
            Ok(at) => return Err(differs(0, format!("the store says that it decided at {at}"))),
            Err(error) => return Err(differs(0, format!("the store had no answer: {error:?}"))),
        }
        match verdicts.iter().zip(&right).position(|(verdict, right)| verdict != right) {
            None => Ok(verdicts),
            Some(index) => {
                let (probe, verdict, right) = (probes[index], verdicts[index], right[index]);
                let what = format!("{probe:?} of {}\n  expected {right:?}\n  got      {verdict:?}", probes.len());
                Err(differs(index, what))
            }
        }
    }

    /// Comes back at the instant that a refusal promises, and one microsecond
    /// before it: the caller is alone, so there it passes and here it does not.
    fn try_the_promise(&mut self, probe: Probe, refusal: Verdict, tally: &mut Tally) -> Result<(), Found> {
        let promised = Micros::new(self.now.get() + refusal.retry_after.get());
        if promised > Micros::LATEST || self.is_from_the_future(probe) {
            return Ok(());
        }
        tally.tried += 1;
        let peek = Probe { verb: Verb::Peek, ..probe };
        let just_before = Micros::new(promised.get() - 1);
        for (now, passes) in [(just_before, false), (promised, true)] {
            self.history.push(Event { now, probe: peek });
            let verdict = self.ask(&[peek], now, tally)?[0];
            if verdict.allowed != passes || (!passes && verdict.retry_after != Micros::new(1)) {
                let limit = self.subjects[probe.subject].limit;
                let what = format!("the promise of {refusal:?} is broken, also by the oracle: {verdict:?}");
                return Err(Found { subject: probe.subject, limit, now, what });
            }
            self.history.pop();
        }
        Ok(())
    }

    /// Whether the state is still one to be healed. Only a check that writes
    /// does heal it: before that, a refusal speaks of the full state at its
    /// own time, and the next one will do so at the next.
    fn is_from_the_future(&self, probe: Probe) -> bool {
        let Subject { meter, key, limit, .. } = self.subjects[probe.subject];
        let (rule, key) = (self.setting.meters[meter].name(), &self.setting.keys[key]);
        let Probe { verb, cost, floor, .. } = probe;
        self.oracle
            .heals(&Ask { rule, limit, key, verb, cost, floor, notify: &[], former: &[], corrected: None }, self.now)
    }
}
