//! One request on a store that never waits, where nothing matters but limits.
//!
//! There are no observers, failure modes, ids or shadow rules, and the policy is
//! the same before and after. Then the [protocol](super::ask) is a resolution, one
//! slice for the store, and a comparison, and needs no lists on the heap. In every
//! other case the protocol decides.

use smallvec::{SmallVec, smallvec};

use super::Limiter;
use crate::decision::Decision;
use crate::kernel::{Verb, Verdict};
use crate::policy::Resolution;
use crate::request::Request;
use crate::store::{Check, CheckError, ImmediateStore, Meter, Store, StoreError};

/// One for each limit of a request, on the stack up to 16.
type OnStack<T> = SmallVec<[T; 16]>;

impl<S: ImmediateStore> Limiter<S> {
    /// Decides a request; nothing if that is for the protocol to do.
    ///
    /// # Errors
    /// As [`Limiter::check`].
    #[inline(never)]
    pub(super) fn try_decide_direct(
        &self,
        verb: Verb,
        request: &Request<'_>,
        tell: impl FnOnce(&Decision, &[Check<'_>]),
    ) -> Result<Option<Decision>, CheckError> {
        let decide = |checks: &[Check<'_>]| {
            let (verdict, binding) = self.decide_all_now(checks)?;
            Ok((verdict.allowed, binding.map_or_else(Decision::unlimited, |meter| meter.decision(verdict))))
        };
        self.try_direct(verb, request, decide, tell)
    }

    /// Whether a request is admitted; nothing if that is for the protocol to say.
    #[inline(never)]
    pub(super) fn try_admit_direct(&self, request: &Request<'_>) -> Result<Option<bool>, CheckError> {
        let admit = |checks: &[Check<'_>]| {
            let is_admitted = match checks {
                [] => true,
                [check] => self.store().admits_now(*check)?,
                several => self.store().admits_all_now(several)?,
            };
            Ok((is_admitted, is_admitted))
        };
        self.try_direct(Verb::Charge, request, admit, |_, _| {})
    }

    /// Asks by the policy in force. `ask` says whether the checks were admitted, and the
    /// answer.
    #[inline(always)]
    fn try_direct<T>(
        &self,
        verb: Verb,
        request: &Request<'_>,
        ask: impl FnOnce(&[Check<'_>]) -> Result<(bool, T), StoreError>,
        tell: impl FnOnce(&T, &[Check<'_>]),
    ) -> Result<Option<T>, CheckError> {
        let inner = &*self.inner;
        if !self.is_quiet() || request.id.is_some() {
            return Ok(None);
        }
        let fast = inner.policies.fast();
        let Some(version) = fast.version() else { return Ok(None) };
        let current = inner.policies.current();
        if !current.is_quiet {
            return Ok(None);
        }
        let (mut keys, mut former) = (SmallVec::new(), SmallVec::new());
        let mut resolution = None;
        let mut checks: OnStack<Check<'_>> = SmallVec::new();
        if let Some(direct) =
            current.direct.as_ref().filter(|direct| direct.find(request, &mut keys, &mut former).is_some())
        {
            direct.checks(verb, request, &keys, &former, |check| checks.push(check))?;
        } else {
            let resolution = resolution.insert(Resolution::default());
            current.policy.resolve_into(request, resolution);
            if !resolution.is_only_limits() {
                return Ok(None);
            }
            for applied in &resolution.enforced {
                checks.push(applied.check(verb)?);
            }
        }
        let (is_admitted, answer) = ask(&checks)?;
        let is_moot = verb.is_final() || (verb == Verb::Charge && !is_admitted);
        if !is_moot && !fast.is(version) {
            if verb == Verb::Charge {
                self.give_back_all(&checks);
            }
            return Ok(None);
        }
        inner.policies.settle(&current, inner.store.clock());
        tell(&answer, &checks);
        Ok(Some(answer))
    }

    /// Decides all or none: what the limits say together, and which of them binds.
    #[inline(always)]
    fn decide_all_now<'c>(&self, checks: &[Check<'c>]) -> Result<(Verdict, Option<&'c Meter>), StoreError> {
        if let [check] = checks {
            let mut verdict = Verdict::default();
            self.store().decide_one_now(*check, &mut verdict)?;
            return Ok((verdict, Some(check.meter())));
        }
        let mut verdicts: OnStack<Verdict> = smallvec![Verdict::default(); checks.len()];
        let [first, ..] = checks else { return Ok((Verdict { allowed: true, ..Verdict::default() }, None)) };
        self.store().decide_now(checks, &mut verdicts)?;
        let (mut all, mut binding) = (verdicts[0], first.meter());
        for (verdict, check) in verdicts.iter().zip(checks).skip(1) {
            let (both, other_binds) = all.and(*verdict);
            all = both;
            if other_binds {
                binding = check.meter();
            }
        }
        Ok((all, Some(binding)))
    }

    /// Gives back what was charged by a policy that was no longer in force.
    #[cold]
    pub(super) fn give_back_all(&self, checks: &[Check<'_>]) {
        let refunds: Vec<Check<'_>> = checks.iter().map(Check::as_refund).collect();
        let _ = self.store().decide_now(&refunds, &mut vec![Verdict::default(); refunds.len()]);
    }
}
