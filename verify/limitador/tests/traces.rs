//! Random limits and requests: limitador and tidegate give the same answers.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use limitador::limit::{Context, Limit, Namespace};
use limitador::reservation::{ReservationId, ReservationLimits};
use limitador::{RateLimiter, RateLimiterBuilder};
use serde_json::{Value, json};
use tidegate::kernel::Verb;
use tidegate::{CheckError, Limiter, ManualClock, MemoryStore, Micros, Request};
use tidegate_testkit::{Random, block_on};

const TRACES: u64 = 300;
const STEPS: u64 = 120;
const DAY: u64 = 86_400;
const KEYS: [&str; 3] = ["method", "user.id", "path"];
const VALUES: [&str; 5] = ["GET", "POST", "/api/x", "/api", "it's"];

/// The entries of the two descriptors that every request has.
type Descriptors = [Vec<(&'static str, &'static str)>; 2];

fn expression(random: &mut Random) -> String {
    let (descriptor, key) = (random.within(0..=1), random.choose(&KEYS));
    match key {
        "user.id" => format!("descriptors[{descriptor}]['{key}']"),
        _ if random.percent(50) => format!("descriptors[{descriptor}].{key}"),
        _ => format!("descriptors[{descriptor}][\"{key}\"]"),
    }
}

fn text(random: &mut Random) -> String {
    format!("'{}'", random.choose(&VALUES).replace('\'', "\\'"))
}

/// A condition that both understand.
fn condition(random: &mut Random) -> String {
    let (value, one, other) = (expression(random), text(random), text(random));
    let simple = match random.within(0..=9) {
        0 | 1 => format!("{value} == {one}"),
        2 => format!("{one} != {value}"),
        3 => format!("{value}.startsWith({one})"),
        4 => format!("{value}.endsWith({one})"),
        5 => format!("{value}.contains({one})"),
        6 => format!("'{}' in descriptors[{}]", random.choose(&KEYS), random.within(0..=1)),
        7 => format!("{value} in [{one}, {other}]"),
        8 => format!("({value} == {one} || {value} == {other})"),
        _ => format!("!({value} in [{one}, {other}])"),
    };
    if random.percent(20) && !simple.starts_with('!') { format!("!({simple})") } else { simple }
}

fn limit(random: &mut Random) -> Value {
    let list = |random: &mut Random, most: u64, make: fn(&mut Random) -> String| -> Vec<String> {
        (0..random.within(0..=most)).map(|_| make(random)).collect()
    };
    let mut conditions = list(random, 2, condition);
    if random.percent(20) {
        conditions.push(format!("{} && {}", condition(random), condition(random)));
    }
    json!({
        "namespace": random.choose(&["shop", "mail"]),
        "max_value": random.within(0..=6),
        "seconds": random.choose(&[DAY, 2 * DAY, 7 * DAY]),
        "conditions": conditions,
        "variables": list(random, 2, expression),
    })
}

struct Both {
    there: RateLimiter,
    limits: Vec<Limit>,
    here: Limiter,
    clock: ManualClock,
    /// Reservations that are open: their namespace and descriptors, and their ids there and here.
    open: Vec<(&'static str, Descriptors, Option<ReservationId>, String)>,
    reserved: u64,
}

impl Both {
    /// Both by the same file; none if it is one that no policy can ask.
    fn new(file: &Value) -> Option<Both> {
        let text = file.to_string();
        let limits: Vec<Limit> = serde_json::from_str(&text).expect("limitador reads it");
        let policy = tidegate_config::limitador::parse(&text, Path::new("limits.yaml")).ok()?;
        // Of Epoch, whole weeks: all windows begin here.
        let clock = ManualClock::default();
        clock.set(Micros::new(2_800 * 7 * DAY * 1_000_000));
        let store = MemoryStore::builder().clock(clock.clone()).build().expect("valid settings");
        let here = Limiter::builder(policy).store(store).build().expect("a policy");
        let holds = ReservationLimits { max_fraction: 1.0, max_ttl: Duration::from_secs(DAY) };
        let there = RateLimiterBuilder::new(10_000).reservation_limits(holds).build();
        limits.iter().for_each(|limit| assert!(there.add_limit(limit.clone())));
        Some(Both { there, limits, here, clock, open: Vec::new(), reserved: 0 })
    }

    /// Begins the next day: limits whose windows end forget what they counted.
    fn next_day(&mut self) {
        while !self.open.is_empty() {
            self.commit(0, 0);
        }
        self.clock.advance(Duration::from_secs(DAY));
        let day = tidegate::Clock::now(&self.clock).get() / 1_000_000;
        for limit in self.limits.iter().filter(|limit| day.is_multiple_of(limit.seconds())) {
            self.there.delete_limit(limit).expect("in memory");
            assert!(self.there.add_limit(limit.clone()));
        }
    }

    /// Whether each refuses.
    fn ask(&mut self, verb: Verb, namespace: &'static str, descriptors: &Descriptors, hits: u64) -> (bool, bool) {
        let (values, domain) = (context(descriptors), Namespace::from(namespace));
        let there = match verb {
            Verb::Charge => self.there.check_rate_limited_and_update(&domain, &values, hits).map(bool::from),
            Verb::Peek => self.there.is_rate_limited(&domain, &values, hits).map(bool::from),
            _ => self.there.update_counters(&domain, &values, hits).map(|()| false),
        };
        let attributes = attributes(descriptors);
        let here = block_on(self.here.decide_async(verb, request(namespace, &attributes).cost(hits)));
        let here = match here {
            Ok(decision) => !decision.is_allowed() && verb != Verb::Report,
            Err(CheckError::Unsatisfiable { .. }) => true,
            Err(error) => panic!("{error}"),
        };
        (there.expect("in memory"), here)
    }

    fn reserve(&mut self, namespace: &'static str, descriptors: &Descriptors, amount: u64) -> (bool, bool) {
        let (values, domain) = (context(descriptors), Namespace::from(namespace));
        let there = self.there.reserve(&domain, &values, amount, None).expect("in memory");
        self.reserved += 1;
        let (attributes, id) = (attributes(descriptors), format!("reservation {}", self.reserved));
        let asked = request(namespace, &attributes).cost(amount).into_estimate().id(&id);
        let here = match block_on(self.here.decide_async(Verb::Charge, asked)) {
            Ok(decision) => !decision.is_allowed(),
            Err(CheckError::Unsatisfiable { .. }) => true,
            Err(error) => panic!("{error}"),
        };
        if !there.limited && !here {
            self.open.push((namespace, descriptors.clone(), there.reservation_id, id));
        }
        (there.limited, here)
    }

    fn commit(&mut self, place: usize, actual: u64) {
        let (namespace, descriptors, there, here) = self.open.remove(place);
        let (values, domain) = (context(&descriptors), Namespace::from(namespace));
        let committed = self.there.commit_reservation(&domain, &values, there.as_ref(), actual).expect("in memory");
        let attributes = attributes(&descriptors);
        let asked = request(namespace, &attributes).id(&here).into_settlement(actual);
        let settled = block_on(self.here.decide_async(Verb::SETTLE, asked));
        match settled {
            Ok(_) => {}
            // Where no limit applied, nothing is held in either.
            Err(CheckError::NotReserved { .. }) => assert!(!committed.reservation_released),
            Err(error) => panic!("{error}"),
        }
    }
}

fn context(descriptors: &Descriptors) -> Context<'static> {
    let maps = descriptors.iter().map(|entries| {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<HashMap<_, _>>()
    });
    let mut context = Context::default();
    context.list_binding("descriptors".to_owned(), maps.collect());
    context
}

fn attributes(descriptors: &Descriptors) -> Vec<(String, &'static str)> {
    let each = (0..).zip(descriptors).flat_map(|(number, entries)| entries.iter().map(move |entry| (number, entry)));
    each.map(|(number, (key, value))| (tidegate_config::limitador::attribute(number, key), *value)).collect()
}

fn request<'a>(namespace: &'a str, attributes: &'a [(String, &'static str)]) -> Request<'a> {
    let request = Request::without_key().with(tidegate_config::limitador::NAMESPACE, namespace);
    attributes.iter().fold(request, |request, (name, value)| request.with(name, *value))
}

fn descriptors(random: &mut Random) -> Descriptors {
    let mut one = || {
        let mut entries: Vec<(&str, &str)> = Vec::new();
        for key in KEYS {
            if random.percent(70) {
                entries.push((key, random.choose(&VALUES)));
            }
        }
        entries
    };
    [one(), one()]
}

/// Counts of answers: passed, refused.
fn run(seed: u64, counts: &mut [u64; 2]) -> bool {
    let mut random = Random::new(seed);
    let mut limits: Vec<Value> = (0..random.within(1..=4)).map(|_| limit(&mut random)).collect();
    // There, limits that differ only in their number are one.
    let identity = |limit: &Value| {
        let sorted = |field: &str| {
            let mut texts: Vec<String> = limit[field].as_array().into_iter().flatten().map(Value::to_string).collect();
            texts.sort();
            texts.dedup();
            texts
        };
        (limit["namespace"].to_string(), limit["seconds"].as_u64(), sorted("conditions"), sorted("variables"))
    };
    let mut seen = std::collections::HashSet::new();
    limits.retain(|limit| seen.insert(identity(limit)));
    let file = Value::Array(limits);
    let Some(mut both) = Both::new(&file) else { return false };
    let requests: Vec<Descriptors> = (0..4).map(|_| descriptors(&mut random)).collect();
    // There, checks do not see what is reserved: a trace has either.
    let reserves = seed % 2 == 1;
    for step in 0..STEPS {
        let namespace = random.choose(&["shop", "mail", "other"]);
        let descriptors = requests[random.within(0..=3) as usize].clone();
        let hits = random.within(1..=3);
        let (there, here) = match random.within(0..=19) {
            0 => {
                both.next_day();
                continue;
            }
            1..=2 => both.ask(Verb::Report, namespace, &descriptors, hits),
            3..=9 if reserves && !both.open.is_empty() => {
                let place = random.within(0..=both.open.len() as u64 - 1) as usize;
                both.commit(place, random.within(0..=4));
                continue;
            }
            _ if reserves => both.reserve(namespace, &descriptors, hits),
            3..=5 => both.ask(Verb::Peek, namespace, &descriptors, hits),
            _ => both.ask(Verb::Charge, namespace, &descriptors, hits),
        };
        assert_eq!(there, here, "seed {seed}, step {step}: {namespace} {descriptors:?} {hits}, limits:\n{file:#}");
        counts[usize::from(here)] += 1;
    }
    true
}

#[test]
fn limitador_and_tidegate_give_the_same_answers() {
    let mut counts = [0, 0];
    if let Some(seed) = std::env::var("TIDEGATE_SEED").ok().and_then(|seed| seed.parse().ok()) {
        assert!(run(seed, &mut counts), "no policy can ask this");
        return;
    }
    let asked = (0..TRACES).filter(|seed| run(*seed, &mut counts)).count();
    assert!(asked as u64 > TRACES * 3 / 4, "of {TRACES} files, {asked} could be asked");
    assert!(counts.iter().all(|count| *count > 2_000), "passed, refused: {counts:?}");
}

/// What the two files of one meaning differ in, and by design: where windows begin.
#[test]
fn windows_begin_with_the_unit_of_time_and_not_with_the_first_request() {
    let file = json!([{ "namespace": "n", "max_value": 1, "seconds": DAY, "conditions": [], "variables": [] }]);
    let both = Both::new(&file).expect("a policy");
    both.clock.advance(Duration::from_secs(DAY - 1));
    let ask = || both.here.allow(request("n", &[]));
    assert!(ask() && !ask());
    both.clock.advance(Duration::from_secs(1));
    assert!(ask(), "a new day, a second after the first request");
}

#[test]
fn a_limit_on_a_descriptor_that_the_request_lacks_does_not_apply() {
    let limit = |conditions: &[&str], variables: &[&str]| json!([{ "namespace": "n", "max_value": 0, "seconds": DAY, "conditions": conditions, "variables": variables }]);
    for file in [limit(&["descriptors[2].path == 'GET'"], &[]), limit(&[], &["descriptors[2].path"])] {
        let both = Both::new(&file).expect("a policy");
        let descriptors: Descriptors = [vec![("path", "GET")], Vec::new()];
        assert!(both.here.allow(request("n", &attributes(&descriptors))));
        let (values, domain) = (context(&descriptors), Namespace::from("n"));
        let asked = || both.there.is_rate_limited(&domain, &values, 1).map(bool::from);
        let there = std::panic::catch_unwind(std::panic::AssertUnwindSafe(asked));
        assert!(!matches!(there, Ok(Ok(_))), "there, the call fails: {file}");
    }
}
