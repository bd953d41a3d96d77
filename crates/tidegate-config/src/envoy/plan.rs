//! What a request asks of which states, and what its descriptors say.

use std::borrow::Cow;
use std::sync::Arc;

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, Demand, Former, Meter};
use tidegate::{Key, KeyPart, Limit, Micros, Name, Setting};

use super::request::{Descriptor, Hits, Status};
use super::{EnvoyConfig, FormerLimit, Matched, Metadata, Unit, meter_of};

/// The rule of limits that come with a request.
const OVERRIDE: Name = Name::literal("override");

/// What is to be asked for a request.
pub(super) struct Plan<'c> {
    /// One for each descriptor.
    pub(super) lines: Vec<Line<'c>>,
    /// One for each state: no slice may ask about one twice.
    pub(super) accounts: Vec<Account<'c>>,
}

/// A descriptor of the request, and what it meets.
pub(super) struct Line<'c> {
    setting: Option<Setting>,
    unit: Option<Unit>,
    role: Role,
    /// Whether it counts among the quotas. Without a limit it is one that passes.
    quota: bool,
    hits: Hits,
    rule: Option<Name>,
    name: Option<&'c Arc<str>>,
    metadata: Option<&'c Arc<Metadata>>,
    account: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Enforced,
    /// Refuses only together with all others.
    Quota,
    Shadow,
}

/// Which limits refuse only together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Quotas {
    /// Those with `quota_mode`.
    #[default]
    OfTheFiles,
    All,
}

/// When an account is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Before anything is charged: it only wants to know.
    Peek,
    /// Before anything is charged, to see whether it passes.
    Quota,
    /// With all others, all or nothing.
    Together,
    /// After the others, by itself.
    Alone,
}

/// Whether what is asked for is done, or only what it would come to said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carry {
    Out,
    Nothing,
}

impl Carry {
    pub(super) fn unless(refused: bool) -> Carry {
        if refused { Carry::Nothing } else { Carry::Out }
    }
}

/// A state, and what all descriptors of the request that share it want of it.
pub(super) struct Account<'c> {
    meter: Cow<'c, Meter>,
    former: Vec<Former<'c>>,
    key: Key<'static>,
    pub(super) phase: Phase,
    demand: Demand,
    pub(super) verdict: Verdict,
}

impl<'c> Plan<'c> {
    pub(super) fn new(
        config: &'c EnvoyConfig,
        domain: &str,
        descriptors: &[Descriptor<'_>],
        quotas: Quotas,
    ) -> Plan<'c> {
        // A descriptor that brings a limit does not ask the files.
        let asked = descriptors.iter().map(|asked| if asked.limit.is_some() { &[] } else { asked.entries });
        let matched = config.limits_by_descriptor(domain, asked);
        let mut plan = Plan { lines: Vec::with_capacity(descriptors.len()), accounts: Vec::new() };
        for (descriptor, matched) in descriptors.iter().zip(matched) {
            plan.add(domain, descriptor, matched, quotas);
        }
        plan
    }

    fn add(&mut self, domain: &str, descriptor: &Descriptor<'_>, matched: Option<Matched<'c, '_>>, quotas: Quotas) {
        let is_quota = quotas == Quotas::All;
        let mut line = Line {
            setting: descriptor.limit.map(|(unit, requests)| unit.setting(requests)),
            unit: descriptor.limit.map(|(unit, _)| unit),
            role: if is_quota { Role::Quota } else { Role::Enforced },
            quota: is_quota,
            hits: descriptor.hits,
            rule: descriptor.limit.map(|_| OVERRIDE),
            name: None,
            metadata: None,
            account: None,
        };
        let mut former: &'c [FormerLimit] = &[];
        let mut charged: Option<(Cow<'c, Meter>, Key<'static>)> = None;
        if let Some(Setting::Limit(limit)) = line.setting {
            charged = Some((Cow::Owned(meter_of(limit)), key(domain, descriptor.entries.iter().copied())));
        } else if let Some(matched) = matched {
            (line.setting, line.unit) = (Some(matched.setting), matched.unit);
            line.quota |= matched.quota;
            line.role = match (matched.shadow, line.quota) {
                (true, _) => Role::Shadow,
                (false, true) => Role::Quota,
                (false, false) => Role::Enforced,
            };
            (line.rule, line.name, line.metadata) = (matched.rule, matched.name, matched.metadata);
            let entries = matched.key.iter().map(|(name, value)| (*name, value.as_ref()));
            charged = matched.meter.map(|meter| (Cow::Borrowed(meter), key(domain, entries)));
            former = matched.former;
        }
        line.account = charged.map(|(meter, key)| {
            let place = self.account(meter, key, line.role, line.hits);
            self.accounts[place].add_former(former);
            place
        });
        self.lines.push(line);
    }

    /// The account of a state, which may have been asked about before.
    fn account(&mut self, meter: Cow<'c, Meter>, key: Key<'static>, role: Role, hits: Hits) -> usize {
        let peeks = hits == Hits::Peek;
        let phase = match role {
            Role::Shadow => Phase::Alone,
            Role::Enforced | Role::Quota if peeks => Phase::Peek,
            Role::Quota => Phase::Quota,
            Role::Enforced => Phase::Together,
        };
        // A limit of the files and one that came with the request may have one state.
        let charges = |phase| matches!(phase, Phase::Quota | Phase::Together);
        let is_same = |account: &Account<'_>| {
            let is_turn = account.phase == phase || charges(account.phase) && charges(phase);
            let is_state = account.key == key && account.meter.identity() == meter.identity();
            is_state && is_turn && account.demand.change().is_none() == peeks
        };
        let place = match self.accounts.iter().position(is_same) {
            Some(place) => {
                let account = &mut self.accounts[place];
                // The narrower one decides, and one that is enforced is no quota.
                if meter.capacity() < account.meter.capacity() {
                    account.meter = meter;
                }
                if phase == Phase::Together {
                    account.phase = phase;
                }
                place
            }
            None => {
                // A shadow whose store fails has nothing against the request.
                let (former, verdict) = (Vec::new(), Verdict { allowed: true, ..Verdict::default() });
                self.accounts.push(Account { meter, former, key, phase, demand: Demand::default(), verdict });
                self.accounts.len() - 1
            }
        };
        let (verb, cost) = hits.asks();
        self.accounts[place].demand.add(verb, cost);
        place
    }

    /// Quotas that pass are charged with all others.
    pub(super) fn leave_out_exhausted_quotas(&mut self) {
        for account in self.accounts.iter_mut().filter(|account| account.phase == Phase::Quota) {
            if !account.refuses() {
                account.phase = Phase::Together;
            }
        }
    }

    /// Whether anything was given back, which cannot be given back again, or reported,
    /// which counts on when it moves.
    pub(super) fn is_final(&self) -> bool {
        self.accounts.iter().any(|account| matches!(account.asks().0, Verb::Refund | Verb::Report))
    }

    /// Whether it is clear already that the request is refused.
    pub(super) fn is_refused(&self) -> bool {
        // As in the reference service: a quota that is unlimited is none, and one that is a shadow always passes.
        let is_quota = |line: &&Line<'_>| line.quota && line.setting != Some(Setting::Unlimited);
        let mut quotas = self.lines.iter().filter(is_quota).peekable();
        let out_of_quota = quotas.peek().is_some() && quotas.all(|line| line.role == Role::Quota && self.refuses(line));
        out_of_quota || self.lines.iter().any(|line| line.role == Role::Enforced && self.refuses(line))
    }

    pub(super) fn is_refused_together(&self) -> bool {
        self.accounts.iter().any(|account| account.phase == Phase::Together && account.refuses())
    }

    /// What was charged with all others.
    pub(super) fn charged(&self) -> impl Iterator<Item = (Check<'_>, Verdict)> {
        let together = self.accounts.iter().filter(|account| account.phase == Phase::Together);
        together.filter_map(|account| Some((account.check(Carry::Out)?, account.verdict)))
    }

    fn account_of(&self, line: &Line<'_>) -> Option<&Account<'c>> {
        self.accounts.get(line.account?)
    }

    /// Whether a descriptor is over its limit, as far as is known.
    fn refuses(&self, line: &Line<'_>) -> bool {
        match line.setting {
            None | Some(Setting::Unlimited) => false,
            Some(Setting::Blocked) => !line.hits.is_final(),
            Some(Setting::Limit(_)) => self.account_of(line).is_some_and(|account| match account.phase {
                // It has not been asked yet.
                Phase::Together => account.is_hopeless(),
                Phase::Peek | Phase::Quota | Phase::Alone => account.refuses(),
            }),
        }
    }

    pub(super) fn status(&self, line: &Line<'_>, now: Micros) -> Status {
        let Verdict { remaining, retry_after, reset_after, degraded, unrecorded, .. } =
            match (line.setting, self.account_of(line)) {
                (Some(Setting::Limit(limit)), Some(account)) => account.verdict_by(limit),
                (_, Some(account)) => account.verdict,
                (None | Some(Setting::Unlimited | Setting::Limit(_)), None) => {
                    Verdict { remaining: u64::MAX, ..Verdict::default() }
                }
                (Some(Setting::Blocked), None) => Verdict::default(),
            };
        let hopeless = self.account_of(line).is_none_or(Account::is_hopeless);
        let refuses = match self.account_of(line) {
            Some(account) => account.refuses(),
            None => self.refuses(line),
        };
        Status {
            allowed: !refuses || line.role == Role::Shadow,
            setting: line.setting,
            unit: line.unit,
            rule: line.rule.clone(),
            name: line.name.cloned(),
            refused_key: self.account_of(line).filter(|_| refuses).map(|account| account.key.clone()),
            remaining,
            retry_after: (refuses && !hopeless).then(|| retry_after.to_duration()),
            reset_after: match (reset_after, line.unit) {
                // Of what is not used nothing is kept, but the unit ends all the same.
                (Micros::ZERO, Some(unit)) => unit.rest(now),
                (reset_after, _) => reset_after.to_duration(),
            },
            quota: line.quota,
            shadow: line.role == Role::Shadow,
            shadow_refuses: refuses && line.role == Role::Shadow,
            degraded,
            unrecorded,
            metadata: line.metadata.cloned(),
        }
    }
}

impl<'c> Account<'c> {
    fn add_former(&mut self, limits: &'c [FormerLimit]) {
        let others = limits.iter().filter(|(meter, _)| meter.identity() != self.meter.identity());
        self.former = others.map(|(meter, until)| Former { meter, until: *until }).collect();
    }

    fn asks(&self) -> (Verb, u64) {
        self.demand.change().unwrap_or_else(|| self.demand.look())
    }

    /// Whether no waiting would help.
    fn is_hopeless(&self) -> bool {
        let (verb, cost) = self.asks();
        matches!(verb, Verb::Charge | Verb::Peek) && cost > self.meter.capacity()
    }

    /// What it says to a descriptor whose limit may be wider than that which decides.
    fn verdict_by(&self, limit: Limit) -> Verdict {
        let wider = limit.capacity().saturating_sub(self.meter.capacity());
        Verdict { remaining: self.verdict.remaining.saturating_add(wider), ..self.verdict }
    }

    pub(super) fn refuses(&self) -> bool {
        match self.asks() {
            (Verb::Report | Verb::Refund, _) => false,
            _ => self.is_hopeless() || !self.verdict.allowed,
        }
    }

    pub(super) fn check(&self, carry: Carry) -> Option<Check<'_>> {
        let (verb, cost) = self.asks();
        let verb = if carry == Carry::Nothing || self.is_hopeless() { Verb::Peek } else { verb };
        let cost = if verb == Verb::Report { cost } else { cost.min(self.meter.capacity()) };
        Some(Check::new(&self.meter, &self.key, verb, cost).ok()?.with_former(&self.former))
    }
}

/// The key of a state. What is said last comes first, because the first part
/// chooses the slot of a cluster: the last value is that which most callers
/// differ in, and which the descriptors of one request have in common.
fn key<'e>(domain: &'e str, entries: impl DoubleEndedIterator<Item = (&'e str, &'e str)>) -> Key<'static> {
    let parts = entries.rev().flat_map(|(name, value)| [value, name]).chain([domain]);
    Key::of(parts.map(KeyPart::from))
}
