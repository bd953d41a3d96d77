//! Descriptor files that decide, on any store.
//!
//! Every descriptor of a request becomes a check. The store gets all of them
//! in one slice, so either every descriptor is charged or none is: a request
//! that one limit refuses costs the others nothing. Three kinds stand apart.
//! Descriptors that only ask are asked first, since a store would not let them
//! hold back the others. So are those with `quota_mode`, of which one that
//! passes is enough: those that are over are left out. Shadows come last, each
//! alone, and what they say refuses nobody.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use tidegate::kernel::{Verb, Verdict};
use tidegate::{
    Check, ConfigError, FailureMode, ImmediateStore, Key, KeyPart, Limit, MemoryStore, Meter, Micros, Name,
    Predecessor, Setting, Store, StoreError,
};

use super::{EnvoyConfig, Matched, Metadata, Meters, Unit, meter_of};

/// Decides requests by descriptor files.
///
/// ```
/// use tidegate::MemoryStore;
/// use tidegate_config::envoy::{self, Descriptor, EnvoyLimiter};
///
/// let config = envoy::parse(
///     "
/// domain: edge
/// descriptors:
///   - key: remote_address
///     rate_limit: { unit: day, requests_per_unit: 1 }
/// ",
///     "edge.yaml".as_ref(),
/// )?;
/// let limiter = EnvoyLimiter::new(config, MemoryStore::default())?;
/// let request = [Descriptor::new(&[("remote_address", "50.0.0.1")])];
/// # tidegate_testkit::block_on(async {
/// let allowed = async || Ok::<_, tidegate::StoreError>(limiter.decide("edge", &request).await?.is_none_or(|a| a.allowed));
/// assert!(allowed().await? && !allowed().await?);
/// # Ok::<(), tidegate::StoreError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct EnvoyLimiter<S = MemoryStore> {
    config: RwLock<Arc<EnvoyConfig>>,
    /// Limits that descriptors had and have not now, by their ids, until when
    /// their use matters to one of another unit. Held while the files change.
    changing: Mutex<HashMap<String, (Meter, Micros)>>,
    store: S,
    on_failure: Option<FailureMode>,
    spends_the_rest: bool,
    local: OnceLock<MemoryStore>,
}

/// Keys that the limits remember which stand in for a store that is away.
const LOCAL_KEYS: usize = 100_000;

/// The rule of limits that come with a request.
const OVERRIDE: Name = Name::literal("override");

/// A descriptor of a request: one hit, unless told otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor<'r> {
    entries: &'r [(&'r str, &'r str)],
    hits: Hits,
    limit: Option<(Unit, u32)>,
}

impl<'r> Descriptor<'r> {
    /// Keys and their values.
    #[must_use]
    pub fn new(entries: &'r [(&'r str, &'r str)]) -> Descriptor<'r> {
        Descriptor { entries, hits: Hits::Charge(1), limit: None }
    }

    /// Sets what is to be done.
    #[must_use]
    pub fn hits(mut self, hits: Hits) -> Descriptor<'r> {
        self.hits = hits;
        self
    }

    /// Brings a limit of so many requests per unit, whatever the files say of the
    /// descriptor. It counts together with a limit of the files that has the same
    /// unit.
    #[must_use]
    pub fn limit(mut self, unit: Unit, requests: u32) -> Descriptor<'r> {
        self.limit = Some((unit, requests));
        self
    }
}

/// What a descriptor asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hits {
    /// To be charged so many.
    Charge(u64),
    /// Whether one more hit would pass, without charging any.
    Peek,
    /// To be given back so many.
    Refund(u64),
}

/// What became of a request.
#[derive(Clone, Debug)]
#[must_use = "an answer that nobody looks at limits nothing"]
#[non_exhaustive]
pub struct Answer {
    /// Whether the request may pass.
    pub allowed: bool,
    /// What each of its descriptors says, in their order.
    pub statuses: Vec<Status>,
}

/// What one descriptor says.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Status {
    /// Whether it lets the request pass. A shadow always does.
    pub allowed: bool,
    /// What applies to it, if anything does.
    pub setting: Option<Setting>,
    /// In what time; none if there is no limit.
    pub unit: Option<Unit>,
    /// Which limit of which file that is: see [`Matched::path`].
    pub rule: Option<Name>,
    /// What the file calls the limit.
    pub name: Option<Arc<str>>,
    /// Whose limit it is, if it refuses.
    pub refused_key: Option<Key<'static>>,
    /// Hits that are left.
    pub remaining: u64,
    /// How long to wait for this to pass; nothing if it does, and if it never
    /// will.
    pub retry_after: Option<Duration>,
    /// How long until nothing of what was charged counts: the rest of the unit.
    pub reset_after: Duration,
    /// Whether it only watches.
    pub shadow: bool,
    /// Whether it only watches, and would have refused.
    pub shadow_refuses: bool,
    /// Whether a stand-in answered, because the store did not.
    pub degraded: bool,
    /// What the file wants Envoy to be told if this passes.
    pub metadata: Option<Arc<Metadata>>,
}

impl<S: Store> EnvoyLimiter<S> {
    /// Makes a configuration ready to decide.
    ///
    /// # Errors
    /// If its limits are more than the process can have [names](Name::MOST).
    pub fn new(mut config: EnvoyConfig, store: S) -> Result<EnvoyLimiter<S>, ConfigError> {
        config.make_meters(&HashMap::new(), Micros::ZERO)?;
        let (config, changing) = (RwLock::new(Arc::new(config)), Mutex::default());
        Ok(EnvoyLimiter { config, changing, store, on_failure: None, spends_the_rest: false, local: OnceLock::new() })
    }

    /// Says what answers when the store cannot. Without this, the caller gets
    /// the error.
    #[must_use]
    pub fn on_failure(mut self, mode: FailureMode) -> EnvoyLimiter<S> {
        self.on_failure = Some(mode);
        self
    }

    /// Lets a limit that refuses a charge lose what it has left, as in the
    /// reference service, where refused hits count too. For hits that are told
    /// when the work is done already, such as Envoy's `apply_on_stream_done`:
    /// otherwise those that do not fit would cost nothing.
    #[must_use]
    pub fn spending_the_rest(mut self) -> EnvoyLimiter<S> {
        self.spends_the_rest = true;
        self
    }

    /// What it decides by.
    #[must_use]
    pub fn config(&self) -> Arc<EnvoyConfig> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Decides by other files from now on. What was used of a limit stays
    /// used where the same descriptor has another limit now, also if it had
    /// none for a while.
    ///
    /// # Errors
    /// If its limits are more than the process can have [names](Name::MOST).
    /// Then nothing has changed.
    pub fn set_config(&self, mut config: EnvoyConfig) -> Result<(), ConfigError> {
        let mut past = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let (current, now) = (self.config(), self.store.clock().now());
        past.retain(|_, (_, until)| *until > now);
        let mut former: Meters<'_> = past.iter().map(|(id, (meter, _))| (&**id, meter)).collect();
        former.extend(current.meters());
        config.make_meters(&former, now)?;
        let kept = config.meters();
        past.retain(|id, _| !kept.contains_key(&**id));
        for (id, meter) in current.meters().into_iter().filter(|(id, _)| !kept.contains_key(id)) {
            let inherited = meter.predecessors().iter().map(Predecessor::until).max().unwrap_or_default();
            past.insert(id.to_owned(), (meter.clone(), now.saturating_add(meter.horizon()).max(inherited)));
        }
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
        Ok(())
    }

    /// Charges every descriptor, or none if one of them refuses; nothing if no
    /// file is about the domain. Descriptors that no file knows let everything
    /// pass.
    ///
    /// More hits than a limit could ever hold are refused, without a time to
    /// wait: for Envoy an error would be a reason to let the request pass.
    ///
    /// # Errors
    /// Whatever kept the store from answering, if nothing stands in for it.
    pub async fn decide(&self, domain: &str, descriptors: &[Descriptor<'_>]) -> Result<Option<Answer>, StoreError> {
        loop {
            let config = self.config();
            if !config.has_domain(domain) {
                return Ok(None);
            }
            if let Some(answer) = self.decide_by(&config, domain, descriptors).await? {
                return Ok(Some(answer));
            }
        }
    }

    /// Decides by these files; nothing if others have taken over meanwhile, to
    /// which what was used may have moved already.
    async fn decide_by(
        &self,
        config: &Arc<EnvoyConfig>,
        domain: &str,
        descriptors: &[Descriptor<'_>],
    ) -> Result<Option<Answer>, StoreError> {
        let mut plan = Plan::new(config, domain, descriptors);
        self.ask(&mut plan.accounts, Turn::Peek, Carry::Nothing).await?;
        self.ask(&mut plan.accounts, Turn::Quota, Carry::Nothing).await?;
        plan.leave_out_exhausted_quotas();
        let mut refused = plan.is_refused();
        self.ask(&mut plan.accounts, Turn::Together, if refused { Carry::Nothing } else { Carry::Out }).await?;
        refused |= plan.is_refused_together();
        if !refused && !Arc::ptr_eq(config, &self.config()) && !plan.gives_back() {
            self.give_back(&plan.accounts).await;
            return Ok(None);
        }
        if refused && self.spends_the_rest {
            self.spend_the_rest(&mut plan.accounts).await;
        }
        let carry = if refused { Carry::Nothing } else { Carry::Out };
        for account in &mut plan.accounts {
            // A shadow without an answer is none, and nobody's loss.
            let _ = self.ask(std::slice::from_mut(account), Turn::Alone, carry).await;
        }
        let now = self.store.clock().now();
        let statuses = plan.lines.iter().map(|line| plan.status(line, now)).collect();
        Ok(Some(Answer { allowed: !refused, statuses }))
    }

    /// Asks those whose turn it is.
    async fn ask(&self, accounts: &mut [Account<'_>], turn: Turn, carry: Carry) -> Result<(), StoreError> {
        let mine = accounts.iter().enumerate().filter(|(_, account)| account.turn == turn);
        let (places, checks): (Vec<usize>, Vec<Check<'_>>) =
            mine.filter_map(|(place, account)| Some((place, account.check(carry)?))).unzip();
        if checks.is_empty() {
            return Ok(());
        }
        let mut verdicts = vec![Verdict::default(); checks.len()];
        if let Err(error) = self.store.decide(&checks, &mut verdicts).await {
            self.stand_in(&checks, &mut verdicts, error)?;
        }
        for (place, verdict) in places.into_iter().zip(verdicts) {
            accounts[place].verdict = verdict;
        }
        Ok(())
    }

    /// Gives back what was charged by files that were no longer in force. If it
    /// cannot be, it was charged in vain: against the caller.
    async fn give_back(&self, accounts: &[Account<'_>]) {
        let charged = accounts.iter().filter(|account| account.turn == Turn::Together && !account.verdict.degraded);
        let checks = charged.filter_map(|account| {
            let (verb, cost) = account.asks();
            Check::new(&account.meter, &account.key, Verb::Refund, cost).ok().filter(|_| verb == Verb::Charge)
        });
        let checks: Vec<Check<'_>> = checks.collect();
        if !checks.is_empty() {
            let _ = self.store.decide(&checks, &mut vec![Verdict::default(); checks.len()]).await;
        }
    }

    /// Takes all that is left from those that have refused, as far as the store
    /// can: they have refused all the same.
    async fn spend_the_rest(&self, accounts: &mut [Account<'_>]) {
        for account in accounts {
            if account.turn != Turn::Together || !account.refuses() || account.verdict.degraded {
                continue;
            }
            let Ok(check) = Check::new(&account.meter, &account.key, Verb::Charge, account.verdict.remaining) else {
                continue;
            };
            // Someone else may have taken some of it: then that was spent.
            let mut verdicts = [Verdict::default()];
            if self.store.decide(&[check], &mut verdicts).await.is_ok() {
                account.verdict.remaining = verdicts[0].remaining;
            }
        }
    }

    /// Answers in place of a store that failed. Nobody gives anything back in its
    /// place: refunds are passed over, and where there is nothing else that is the
    /// answer.
    fn stand_in(&self, checks: &[Check<'_>], verdicts: &mut [Verdict], error: StoreError) -> Result<(), StoreError> {
        let asks = |check: &Check<'_>| matches!(check.verb(), Verb::Charge | Verb::Peek);
        let askable = checks.iter().any(asks);
        let mode = self.on_failure.filter(|_| askable && matches!(error, StoreError::Failed { .. }));
        match mode {
            None => return Err(error),
            Some(FailureMode::Open) => {
                for (check, verdict) in checks.iter().zip(&mut *verdicts) {
                    *verdict = Verdict { allowed: true, remaining: check.meter().capacity(), ..Verdict::default() };
                }
            }
            Some(FailureMode::Closed) => {
                verdicts.fill(Verdict { retry_after: FailureMode::RETRY_AFTER, ..Verdict::default() });
            }
            Some(FailureMode::Local { processes }) => {
                let share = |check: &Check<'_>| match check.meter().limit() {
                    Some(limit) => meter_of(limit.share(processes)),
                    None => check.meter().clone(),
                };
                let shares: Vec<Meter> = checks.iter().map(share).collect();
                let is_fit = |(check, share): (&Check<'_>, &Meter)| !asks(check) || check.cost() <= share.capacity();
                let fit = checks.iter().zip(&shares).all(is_fit);
                let local = checks.iter().zip(&shares).filter_map(|(check, share)| {
                    // More than the share can ever hold: the store must be back first.
                    let verb = if fit && asks(check) { check.verb() } else { Verb::Peek };
                    Check::new(share, check.key(), verb, check.cost().min(share.capacity())).ok()
                });
                self.local_store().decide_now(&local.collect::<Vec<_>>(), verdicts)?;
                for ((check, share), verdict) in checks.iter().zip(&shares).zip(&mut *verdicts) {
                    if check.cost() > share.capacity() {
                        (verdict.allowed, verdict.retry_after) = (false, FailureMode::RETRY_AFTER);
                    }
                }
            }
        }
        for verdict in verdicts {
            verdict.degraded = true;
        }
        Ok(())
    }

    fn local_store(&self) -> &MemoryStore {
        self.local.get_or_init(|| MemoryStore::builder().max_keys(LOCAL_KEYS).build().unwrap_or_default())
    }
}

/// What is to be asked for a request.
struct Plan<'c> {
    /// One for each descriptor.
    lines: Vec<Line<'c>>,
    /// One for each state: no slice may ask about one twice.
    accounts: Vec<Account<'c>>,
}

/// A descriptor of the request, and what it meets.
struct Line<'c> {
    setting: Option<Setting>,
    unit: Option<Unit>,
    role: Role,
    hits: Hits,
    rule: Option<Name>,
    name: Option<&'c Arc<str>>,
    metadata: Option<&'c Arc<Metadata>>,
    account: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Enforced,
    /// Refuses only together with all others.
    Quota,
    Shadow,
}

/// When an account is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
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
enum Carry {
    Out,
    Nothing,
}

/// A state, and what all descriptors of the request that share it want of it.
struct Account<'c> {
    meter: Cow<'c, Meter>,
    key: Key<'static>,
    turn: Turn,
    peeks: bool,
    charge: u64,
    refund: u64,
    verdict: Verdict,
}

impl<'c> Plan<'c> {
    fn new(config: &'c EnvoyConfig, domain: &str, descriptors: &[Descriptor<'_>]) -> Plan<'c> {
        // A descriptor that brings a limit does not ask the files.
        let asked = descriptors.iter().map(|asked| if asked.limit.is_some() { &[] } else { asked.entries });
        let matched = config.limits_by_descriptor(domain, asked);
        let mut plan = Plan { lines: Vec::with_capacity(descriptors.len()), accounts: Vec::new() };
        for (descriptor, matched) in descriptors.iter().zip(matched) {
            plan.add(domain, descriptor, matched);
        }
        plan
    }

    fn add(&mut self, domain: &str, descriptor: &Descriptor<'_>, matched: Option<Matched<'c, '_>>) {
        let mut line = Line {
            setting: descriptor.limit.map(|(unit, requests)| unit.setting(requests)),
            unit: descriptor.limit.map(|(unit, _)| unit),
            role: Role::Enforced,
            hits: descriptor.hits,
            rule: descriptor.limit.map(|_| OVERRIDE),
            name: None,
            metadata: None,
            account: None,
        };
        let mut charged: Option<(Cow<'c, Meter>, Key<'static>)> = None;
        if let Some(Setting::Limit(limit)) = line.setting {
            charged = Some((Cow::Owned(meter_of(limit)), key(domain, descriptor.entries.iter().copied())));
        } else if let Some(matched) = matched {
            (line.setting, line.unit) = (Some(matched.setting), matched.unit);
            line.role = match (matched.shadow, matched.quota) {
                (true, _) => Role::Shadow,
                (false, true) => Role::Quota,
                (false, false) => Role::Enforced,
            };
            (line.rule, line.name, line.metadata) = (matched.rule, matched.name, matched.metadata);
            let entries = matched.key.iter().map(|(name, value)| (*name, value.as_ref()));
            charged = matched.meter.map(|meter| (Cow::Borrowed(meter), key(domain, entries)));
        }
        line.account = charged.map(|(meter, key)| self.account(meter, key, line.role, line.hits));
        self.lines.push(line);
    }

    /// The account of a state, which may have been asked about before.
    fn account(&mut self, meter: Cow<'c, Meter>, key: Key<'static>, role: Role, hits: Hits) -> usize {
        let peeks = hits == Hits::Peek;
        let turn = match role {
            Role::Shadow => Turn::Alone,
            Role::Enforced | Role::Quota if peeks => Turn::Peek,
            Role::Quota => Turn::Quota,
            Role::Enforced => Turn::Together,
        };
        // A limit of the files and one that came with the request may have one state.
        let charges = |turn| matches!(turn, Turn::Quota | Turn::Together);
        let is_same = |account: &Account<'_>| {
            let is_turn = account.turn == turn || charges(account.turn) && charges(turn);
            let is_state = account.key == key && account.meter.identity() == meter.identity();
            is_state && is_turn && account.peeks == peeks
        };
        let place = match self.accounts.iter().position(is_same) {
            Some(place) => {
                let account = &mut self.accounts[place];
                // The narrower one decides, and one that is enforced is no quota.
                if meter.capacity() < account.meter.capacity() {
                    account.meter = meter;
                }
                if turn == Turn::Together {
                    account.turn = turn;
                }
                place
            }
            None => {
                // A shadow whose store fails has nothing against the request.
                let (charge, refund, verdict) = (0, 0, Verdict { allowed: true, ..Verdict::default() });
                self.accounts.push(Account { meter, key, turn, peeks, charge, refund, verdict });
                self.accounts.len() - 1
            }
        };
        let account = &mut self.accounts[place];
        match hits {
            Hits::Charge(hits) => account.charge = account.charge.saturating_add(hits),
            Hits::Refund(hits) => account.refund = account.refund.saturating_add(hits),
            Hits::Peek => account.charge = 1,
        }
        place
    }

    /// Quotas that pass are charged with all others.
    fn leave_out_exhausted_quotas(&mut self) {
        for account in self.accounts.iter_mut().filter(|account| account.turn == Turn::Quota) {
            if !account.refuses() {
                account.turn = Turn::Together;
            }
        }
    }

    /// Whether anything was given back, which cannot be given back again.
    fn gives_back(&self) -> bool {
        self.accounts.iter().any(|account| account.asks().0 == Verb::Refund)
    }

    /// Whether it is clear already that the request is refused.
    fn is_refused(&self) -> bool {
        let mut quotas = self.lines.iter().filter(|line| line.role == Role::Quota).peekable();
        let out_of_quota = quotas.peek().is_some() && quotas.all(|line| self.refuses(line));
        out_of_quota || self.lines.iter().any(|line| line.role == Role::Enforced && self.refuses(line))
    }

    fn is_refused_together(&self) -> bool {
        self.accounts.iter().any(|account| account.turn == Turn::Together && account.refuses())
    }

    fn account_of(&self, line: &Line<'_>) -> Option<&Account<'c>> {
        self.accounts.get(line.account?)
    }

    /// Whether a descriptor is over its limit, as far as is known.
    fn refuses(&self, line: &Line<'_>) -> bool {
        match line.setting {
            None | Some(Setting::Unlimited) => false,
            Some(Setting::Blocked) => !matches!(line.hits, Hits::Refund(_)),
            Some(Setting::Limit(_)) => self.account_of(line).is_some_and(|account| match account.turn {
                // Nobody has asked yet.
                Turn::Together => account.is_hopeless(),
                Turn::Peek | Turn::Quota | Turn::Alone => account.refuses(),
            }),
        }
    }

    fn status(&self, line: &Line<'_>, now: Micros) -> Status {
        let Verdict { remaining, retry_after, reset_after, degraded, .. } = match (line.setting, self.account_of(line))
        {
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
            rule: line.rule,
            name: line.name.cloned(),
            refused_key: self.account_of(line).filter(|_| refuses).map(|account| account.key.clone()),
            remaining,
            retry_after: (refuses && !hopeless).then(|| retry_after.to_duration()),
            reset_after: match (reset_after, line.unit) {
                // Of what is not used nothing is kept, but the unit ends all the same.
                (Micros::ZERO, Some(unit)) => unit.rest(now),
                (reset_after, _) => reset_after.to_duration(),
            },
            shadow: line.role == Role::Shadow,
            shadow_refuses: refuses && line.role == Role::Shadow,
            degraded,
            metadata: line.metadata.cloned(),
        }
    }
}

impl Account<'_> {
    /// What comes of charges and refunds together.
    fn asks(&self) -> (Verb, u64) {
        match self.charge.checked_sub(self.refund) {
            Some(cost) => (Verb::Charge, cost),
            None => (Verb::Refund, (self.refund - self.charge).min(self.meter.capacity())),
        }
    }

    /// Whether no waiting would help.
    fn is_hopeless(&self) -> bool {
        self.asks().1 > self.meter.capacity()
    }

    /// What it says to a descriptor whose limit may be wider than that which decides.
    fn verdict_by(&self, limit: Limit) -> Verdict {
        let wider = limit.capacity().saturating_sub(self.meter.capacity());
        Verdict { remaining: self.verdict.remaining.saturating_add(wider), ..self.verdict }
    }

    fn refuses(&self) -> bool {
        match self.asks() {
            (Verb::Refund, _) => false,
            _ => self.is_hopeless() || !self.verdict.allowed,
        }
    }

    fn check(&self, carry: Carry) -> Option<Check<'_>> {
        let (verb, cost) = self.asks();
        let verb = if self.peeks || carry == Carry::Nothing || self.is_hopeless() { Verb::Peek } else { verb };
        Check::new(&self.meter, &self.key, verb, cost.min(self.meter.capacity())).ok()
    }
}

/// The key of a state. What is said last comes first, because the first part
/// chooses the slot of a cluster: the last value is that which most callers
/// differ in, and which the descriptors of one request have in common.
fn key<'e>(domain: &'e str, entries: impl DoubleEndedIterator<Item = (&'e str, &'e str)>) -> Key<'static> {
    let parts = entries.rev().flat_map(|(name, value)| [value, name]).chain([domain]);
    Key::of(parts.map(KeyPart::from))
}
