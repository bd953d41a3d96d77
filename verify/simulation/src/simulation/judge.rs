//! The books: what was asked, carried out and admitted, and whether every
//! promise was kept.
//!
//! An admission counts at the instant at which a server carried it out, or, if
//! it came from a lease, at which it was handed out. All instants are those of
//! the world, whatever the servers' clocks say; what their errors may cost is
//! written down as it happens.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use tidegate::kernel::{LimitKernel, Verb};
use tidegate::store::Check;
use tidegate::{Algorithm, Limit, Micros};
use tidegate_redis::internals::{id_key, state_key};

use super::scenario::{PREFIX, Scenario};

pub(super) struct Judge {
    is_strict: bool,
    /// What all leases together may let pass in one interval beyond the limit.
    excess: u64,
    has_leases: bool,
    accounts: BTreeMap<Vec<u8>, Account>,
    ids: BTreeMap<Vec<u8>, Id>,
    /// What the fallback of each process admitted, by state.
    local: BTreeMap<(u64, Vec<u8>), (Limit, Vec<Admission>)>,
    /// When a clock was read, by what it said.
    readings: HashMap<u64, u64>,
    events: Vec<Event>,
    broken: Option<String>,
}

/// One state, over all servers that have ever had it.
struct Account {
    limit: Limit,
    is_leased: bool,
    /// Calls that charge it, and those of them that a server answered.
    asked: u64,
    answered: u64,
    /// Units, in all.
    charged: u64,
    refunded: u64,
    admitted: u64,
    /// Units that admitted callers wanted to give back.
    to_refund: u64,
    first_charge: Option<u64>,
    admissions: Vec<Admission>,
    refunds: Vec<Admission>,
}

#[derive(Clone, Copy)]
struct Admission {
    at: u64,
    cost: u64,
}

/// A request with an id.
#[derive(Default)]
struct Id {
    carried_out: Vec<u64>,
    is_admitted: bool,
}

/// Something that lets more pass, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// States were lost; for the time of the event, two servers may have answered.
    Loss,
    /// A clock was set ahead by so many microseconds.
    Leap(u64),
    /// The windows of a clock begin elsewhere now.
    Realigned,
}

impl Judge {
    pub(super) fn new(scenario: &Scenario) -> Judge {
        Judge {
            is_strict: scenario.is_strict,
            has_leases: scenario.lease.is_some(),
            excess: scenario.lease.map_or(0, |lease| lease.excess(scenario.processes as u64)) + scenario.under_way(),
            accounts: BTreeMap::new(),
            ids: BTreeMap::new(),
            local: BTreeMap::new(),
            readings: HashMap::new(),
            events: Vec::new(),
            broken: None,
        }
    }

    /// A promise is broken; the first one counts.
    pub(super) fn breaks(&mut self, promise: String) {
        self.broken.get_or_insert(promise);
    }

    /// The number of the event.
    pub(super) fn happened(&mut self, event: Event) -> usize {
        self.events.push(event);
        self.events.len() - 1
    }

    /// An event is over only now.
    pub(super) fn lasted(&mut self, event: usize, until: u64) {
        self.events[event].to = until;
    }

    /// A clock is read; false if it said so before.
    pub(super) fn reads(&mut self, reading: u64, instant: u64) -> bool {
        if self.readings.contains_key(&reading) {
            return false;
        }
        self.readings.insert(reading, instant);
        true
    }

    /// A process asks its store.
    pub(super) fn asked(&mut self, checks: &[Check<'_>], is_leased: impl Fn(&Check<'_>) -> bool) {
        for check in checks {
            let Some(limit) = check.meter().limit() else { continue };
            let account = self.accounts.entry(state_key(PREFIX, check)).or_insert_with(|| Account::new(limit));
            account.is_leased |= is_leased(check);
            match check.verb() {
                Verb::Charge => account.asked += 1,
                Verb::Refund => account.to_refund += check.cost(),
                Verb::Peek | Verb::Report | Verb::Reset | Verb::Settle(_) | Verb::Renew(_) => {}
            }
        }
    }

    /// A process knows that what it asked for was not even sent.
    pub(super) fn not_sent(&mut self, checks: &[Check<'_>]) {
        for check in checks.iter().filter(|check| check.verb() == Verb::Charge) {
            if let Some(account) = self.accounts.get_mut(&state_key(PREFIX, check)) {
                account.asked -= 1;
            }
        }
    }

    /// A server answered.
    pub(super) fn executed(&mut self, executed: &Executed, instant: u64) {
        for step in executed.steps.iter().filter(|step| step.verb == b'C') {
            if let Some(account) = self.accounts.get_mut(&step.key) {
                account.answered += 1;
            }
        }
        if !executed.carried_out {
            return;
        }
        if let Some(id) = &executed.id {
            self.ids.entry(id.clone()).or_default().carried_out.push(instant);
        }
        for step in &executed.steps {
            let Some(account) = self.accounts.get_mut(&step.key) else { continue };
            let units = account.units(step.cost);
            match step.verb {
                b'C' => {
                    account.charged += units;
                    account.first_charge.get_or_insert(instant);
                }
                b'R' => {
                    account.refunded += units;
                    account.refunds.push(Admission { at: instant, cost: units });
                }
                _ => {}
            }
        }
    }

    /// A store let checks pass, at a time of its own; `now` is the world's.
    pub(super) fn admitted(&mut self, checks: &[Check<'_>], at: Micros, now: u64) {
        if let Some(id) = checks.first().and_then(Check::id) {
            let id = self.ids.entry(id_key(PREFIX, &checks[0], id.text)).or_default();
            if std::mem::replace(&mut id.is_admitted, true) {
                return;
            }
        }
        let at = self.readings.get(&at.get()).copied().unwrap_or(now);
        for check in checks.iter().filter(|check| check.cost() > 0) {
            let name = state_key(PREFIX, check);
            let Some(account) = self.accounts.get_mut(&name) else { continue };
            account.admitted += check.cost();
            account.admissions.push(Admission { at, cost: check.cost() });
            let given_back = if account.is_leased { account.refunded } else { 0 };
            if account.admitted + given_back > account.charged {
                let Account { admitted, charged, .. } = *account;
                let name = String::from_utf8_lossy(&name).into_owned();
                self.breaks(format!("{name}: {admitted} admitted and {given_back} given back of {charged} charged"));
            }
        }
    }

    /// The fallback of one life of a process admitted a cost.
    pub(super) fn stood_in(&mut self, life: u64, key: &str, limit: Limit, (at, cost): (u64, u64)) {
        let key = format!("{limit} {key}").into_bytes();
        self.local.entry((life, key)).or_insert((limit, Vec::new())).1.push(Admission { at, cost });
    }

    /// Whether every promise was kept.
    pub(super) fn verdict(&mut self) -> Result<(), String> {
        let found = self.broken.take().or_else(|| self.find_broken());
        found.map_or(Ok(()), Err)
    }

    fn find_broken(&self) -> Option<String> {
        let accounts = self.accounts.iter().find_map(|(name, account)| {
            let broken = self.bound(account).or_else(|| account.sent_twice(self.has_leases))?;
            Some(format!("{}: {broken}", String::from_utf8_lossy(name)))
        });
        let local = || {
            self.local.iter().find_map(|((life, key), (limit, admissions))| {
                let broken = exceeded(*limit, admissions, |_, _| 0)?;
                Some(format!("life {life} standing in for {}: {broken}", String::from_utf8_lossy(key)))
            })
        };
        accounts.or_else(local).or_else(|| self.charged_more_than_once())
    }

    /// The bound of the limit in every interval, and since the start without
    /// what was borrowed before.
    fn bound(&self, account: &Account) -> Option<String> {
        let Account { limit, is_leased, .. } = *account;
        let excess = if is_leased { self.excess } else { 0 };
        let refunds: &[Admission] = if is_leased { &[] } else { &account.refunds };
        let more = |from, to| self.more(limit, from, to) + sum_within(refunds, from, to);
        if let Some(broken) = exceeded(limit, &account.admissions, |from, to| more(from, to) + excess) {
            return Some(broken);
        }
        let first = account.first_charge.filter(|_| is_leased)?;
        let mut admissions = account.admissions.clone();
        admissions.sort_by_key(|admission| admission.at);
        let mut sum = 0;
        admissions.iter().find_map(|admission| {
            sum += admission.cost;
            let most = most(limit, admission.at.saturating_sub(first)) + more(first, admission.at);
            (sum > most).then(|| format!("{sum} of {most} since the start"))
        })
    }

    /// What may pass beyond the limit in an interval, for what happened then.
    fn more(&self, limit: Limit, from: u64, to: u64) -> u64 {
        let events = self.events.iter().filter(|event| event.from <= to && event.to >= from);
        events.map(|event| event.allows(limit, self.is_strict)).sum()
    }

    fn charged_more_than_once(&self) -> Option<String> {
        self.ids.iter().find_map(|(name, id)| {
            let first = *id.carried_out.first().unwrap_or(&u64::MAX);
            let forgotten = self.events.iter().filter(|event| event.what != What::Realigned && event.to >= first);
            let most = 1 + forgotten.count();
            let times = id.carried_out.len();
            let name = String::from_utf8_lossy(name);
            if times > most {
                return Some(format!("{name}: carried out {times} times, which only {most} could be"));
            }
            (id.is_admitted && times == 0).then(|| format!("{name}: admitted and never carried out"))
        })
    }
}

impl Account {
    fn new(limit: Limit) -> Account {
        Account {
            limit,
            is_leased: false,
            asked: 0,
            answered: 0,
            charged: 0,
            refunded: 0,
            admitted: 0,
            to_refund: 0,
            first_charge: None,
            admissions: Vec::new(),
            refunds: Vec::new(),
        }
    }

    /// The units of a cost as the script has it.
    fn units(&self, cost: u64) -> u64 {
        match self.limit.kernel() {
            LimitKernel::Bucket(bucket) => cost / bucket.scale(),
            LimitKernel::Window(_) | LimitKernel::Log(_) => cost,
        }
    }

    /// What was carried out more often than it was asked for. Beside a lease, what was charged for a
    /// caller that is gone is given back.
    fn sent_twice(&self, has_leases: bool) -> Option<String> {
        let Account { asked, answered, charged, refunded, admitted, .. } = *self;
        let gone = if has_leases { charged.saturating_sub(admitted) } else { 0 };
        let to_refund = self.to_refund + gone;
        if self.is_leased {
            return None;
        }
        if answered > asked {
            return Some(format!("{asked} charges asked for, {answered} answered"));
        }
        (refunded > to_refund).then(|| format!("{refunded} given back, {to_refund} wanted to be"))
    }
}

impl Event {
    /// What this lets pass beyond a limit, in an interval that it is part of.
    fn allows(&self, limit: Limit, is_strict: bool) -> u64 {
        let Event { from, to, what } = *self;
        let is_fixed = limit.algorithm() == Algorithm::FixedWindow;
        let is_bucket = matches!(limit.kernel(), LimitKernel::Bucket(_));
        // The windows of before and those of after may both be cut by it.
        let whole = if is_fixed { 2 * limit.capacity() } else { limit.capacity() };
        // Where windows begin elsewhere a sliding counter rounds up once more.
        let rounded = u64::from(limit.algorithm() == Algorithm::SlidingCounter);
        match what {
            What::Loss => {
                let lost = if is_strict { 0 } else { whole };
                let beside = match to - from {
                    0 => 0,
                    length if is_bucket => earned(limit, length) + 1,
                    length => most(limit, length),
                };
                lost + beside
            }
            What::Leap(by) if is_bucket => limit.capacity().min(earned(limit, by) + 1),
            What::Leap(_) => whole + rounded,
            What::Realigned if is_fixed => limit.capacity(),
            What::Realigned => rounded,
        }
    }
}

/// What a rate earns, rounded down.
fn earned(limit: Limit, length: u64) -> u64 {
    (u128::from(limit.count()) * u128::from(length) / limit.period().as_micros()) as u64
}

/// The most that a limit lets pass in an interval of this length, both ends
/// included.
fn most(limit: Limit, length: u64) -> u64 {
    let period = limit.period().as_micros() as u64;
    match limit.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => limit.capacity() + earned(limit, length),
        Algorithm::SlidingCounter => limit.count() + (limit.count() * length.saturating_sub(1)).div_ceil(period),
        Algorithm::FixedWindow => limit.count() * (length.div_ceil(period) + 1),
        Algorithm::SlidingLog => limit.count() * (length / period + 1),
    }
}

/// The first interval in which more passed than the limit and `more` allow.
fn exceeded(limit: Limit, admissions: &[Admission], more: impl Fn(u64, u64) -> u64) -> Option<String> {
    let mut admissions = admissions.to_vec();
    admissions.sort_by_key(|admission| admission.at);
    for (index, first) in admissions.iter().enumerate() {
        let mut sum = 0;
        for last in &admissions[index..] {
            sum += last.cost;
            let plain = most(limit, last.at - first.at);
            if sum > plain && sum > plain + more(first.at, last.at) {
                let allowed = plain + more(first.at, last.at);
                return Some(format!("{sum} of {allowed} from {} to {}", first.at, last.at));
            }
        }
    }
    None
}

fn sum_within(refunds: &[Admission], from: u64, to: u64) -> u64 {
    refunds.iter().filter(|refund| (from..=to).contains(&refund.at)).map(|refund| refund.cost).sum()
}

/// A call of the script, and what became of it.
#[derive(Debug)]
pub(super) struct Executed {
    steps: Vec<Step>,
    id: Option<Vec<u8>>,
    carried_out: bool,
}

#[derive(Debug)]
struct Step {
    key: Vec<u8>,
    verb: u8,
    cost: u64,
}

impl Executed {
    /// From the words after the script's name, and the reply if there was one.
    pub(super) fn read(call: &[&[u8]], reply: Option<&redis::Value>) -> Executed {
        let count = call.first().and_then(|count| std::str::from_utf8(count).ok()?.parse().ok()).unwrap_or(0);
        let (keys, arguments) = call[1..].split_at(count);
        let is_id = |key: &&[u8]| key.windows(5).any(|part| part == b"}%id:");
        let states = keys.iter().zip(arguments).filter(|(key, packed)| packed.len() >= 10 && !is_id(key));
        let steps = states
            .map(|(key, packed)| {
                let cost = packed[2..].first_chunk().map_or(0.0, |bytes| f64::from_le_bytes(*bytes));
                Step { key: key.to_vec(), verb: packed[1], cost: cost as u64 }
            })
            .collect();
        let carried_out = match reply {
            // A reply that was given before begins otherwise.
            Some(redis::Value::BulkString(words)) if !words.starts_with(b"=") => {
                words.split(|byte| *byte == b' ').nth(2) == Some(b"1")
            }
            _ => false,
        };
        Executed { steps, id: keys.iter().find(|key| is_id(key)).map(|key| key.to_vec()), carried_out }
    }
}

impl fmt::Display for Executed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            write!(f, "{}{} {} ", char::from(step.verb), step.cost, String::from_utf8_lossy(&step.key))?;
        }
        match &self.id {
            Some(id) => write!(f, "{}", String::from_utf8_lossy(id)),
            None => Ok(()),
        }
    }
}
