//! Charges to states that sit in their home lines or in their bucket of the heap: what
//! nearly every check comes to.
//!
//! The planner locks the lines in their order, asks the kernels, and writes
//! only if all of them admit. It does nothing at all unless every charge is
//! simple. Where one is not (a new key, a key in its second line, a state to be
//! healed, something that a former limit still holds, a kernel of the user's own),
//! it says so, and the [round](super::round) decides.
//!
//! One charge to a narrow bucket is the same without a list, and without a lock where
//! charges are being refused. Where that one is not simple, a
//! [single check](super::single) decides.

use super::MemoryStore;
use super::line_lock::LockedLine;
use super::pack::Pack;
use super::shelf::{Lock, NARROW, WIDE};
use super::table::{Approach, Place, Table};
use crate::kernel::{Admission, Bucket, BucketState, Kernel, Reading, Verdict};
use crate::store::{Check, MeterKernel};
use crate::time::Micros;

/// The most states that are looked at for one plan.
const MAX_TARGETS: usize = 16;
/// Up to so many share a smaller plan, which takes less time to set up.
const USUAL_TARGETS: usize = 4;

/// The states that are looked at for some checks.
#[inline(always)]
fn count_targets(checks: &[Check<'_>]) -> usize {
    checks.iter().map(|check| 1 + check.former().len()).sum()
}

/// The bucket of a check that charges a state of one word.
#[inline(always)]
fn narrow_bucket<'a>(check: &Check<'a>) -> Option<&'a Bucket> {
    match check.meter().kernel() {
        MeterKernel::Bucket(bucket) if check.meter().is_simple() && check.is_charge() => Some(bucket),
        MeterKernel::Bucket(_) | MeterKernel::Window(_) | MeterKernel::Heap(_) => None,
    }
}

/// The bucket of a check that the planner can charge by itself.
#[inline(always)]
pub(super) fn simple_bucket<'a>(check: &Check<'a>) -> Option<&'a Bucket> {
    narrow_bucket(check).filter(|_| check.former().is_empty())
}

/// A narrow state to be charged, on its way; that of a former limit has no bucket.
#[derive(Clone, Copy)]
struct Entry<'a> {
    approach: Approach<'a>,
    check: usize,
    bucket: Option<&'a Bucket>,
}

/// A state whose line is locked, and those before it.
struct Held<'h, 't> {
    line: &'h LockedLine<'t>,
    home: Place,
    before: Option<&'h Held<'h, 't>>,
}

/// Charges these states, in the order of their lines, if all of them have room: each line
/// stays locked until the states after it are charged.
fn fill_from(
    entries: &[Entry<'_>],
    checks: &[Check<'_>],
    now: Micros,
    before: Option<&Held<'_, '_>>,
    tell: &mut impl FnMut(usize, &Bucket, BucketState, u64, Micros),
) -> Option<()> {
    let [Entry { approach, check, bucket }, rest @ ..] = entries else { return Some(()) };
    let home = approach.home;
    let mut own = None;
    let line = match before {
        Some(held) if held.home.line == home.line => {
            let mut held = Some(held);
            while let Some(other) = held.filter(|other| other.home.line == home.line) {
                if other.home.tag == home.tag {
                    return None;
                }
                held = other.before;
            }
            before?.line
        }
        Some(_) | None => own.insert(LockedLine::lock(approach.line)),
    };
    let held = Held { line, home, before };
    let Some(bucket) = bucket else {
        return Table::<1>::is_absent(line, home.tag, now)
            .then(|| fill_from(rest, checks, now, Some(&held), tell))
            .flatten();
    };
    let slot = Table::<1>::find(line, home.tag)?;
    let (state, level) = fill(bucket, Table::<1>::read(line, slot), now, checks[*check].cost())?;
    let level = level?;
    fill_from(rest, checks, now, Some(&held), tell)?;
    Table::<1>::write(line, slot, bucket.pack(&state));
    tell(*check, bucket, state, level, now);
    Some(())
}

/// Where the state of a limit is looked for, and what for.
#[derive(Clone, Copy)]
struct Target {
    /// The shelf, and the line or bucket there: what is locked, in this order.
    place: (usize, usize),
    /// The tag of the home line, or the fingerprint on the heap.
    mark: u64,
    /// The check that it is for.
    check: usize,
    /// Whether it is to be charged; of a former limit, there must be nothing to move.
    is_charged: bool,
}

const NOWHERE: Target = Target { place: (0, 0), mark: 0, check: 0, is_charged: false };

/// A charge that could be carried out.
#[derive(Clone, Copy)]
struct Charge {
    /// The place of its line or bucket among the locked ones.
    lock: usize,
    slot: usize,
    check: usize,
    admission: Admission,
}

const NO_CHARGE: Charge = Charge { lock: 0, slot: 0, check: 0, admission: Admission::PASS };

impl MemoryStore {
    /// Charges one bucket: the state afterwards, and the level if it is
    /// admitted. If that is not simple, nothing has changed: the home line,
    /// locked, if the bucket is not there.
    #[inline(always)]
    pub(super) fn charge_one<'t>(
        &'t self,
        bucket: &Bucket,
        cost: u64,
        approach: Approach<'t>,
        now: Micros,
    ) -> Result<(BucketState, Option<u64>), Option<LockedLine<'t>>> {
        // A refusal changes nothing, so it needs no lock.
        if Table::has_refused(approach.line) {
            if let Some(words) = self.narrow.glance(approach) {
                if let Some((state, None)) = fill(bucket, words, now, cost) {
                    return Ok((state, None));
                }
            }
        }
        let line = LockedLine::lock(approach.line);
        let Some(slot) = Table::<1>::find(&line, approach.home.tag) else { return Err(Some(line)) };
        let Some((state, filled)) = fill(bucket, Table::<1>::read(&line, slot), now, cost) else { return Err(None) };
        if filled.is_some() {
            Table::<1>::write(&line, slot, bucket.pack(&state));
        }
        Table::note_refused(&line, filled.is_none());
        Ok((state, filled))
    }

    /// Charges narrow buckets, if all of them have room, and says when; `None` if they
    /// do not, or if that is not simple, and nothing has changed. `tell` is called with
    /// the number of each check and its state and level afterwards.
    #[inline(always)]
    pub(super) fn fill_all<'a>(
        &'a self,
        checks: &[Check<'a>],
        tell: impl FnMut(usize, &Bucket, BucketState, u64, Micros),
    ) -> Option<Micros> {
        if !checks.iter().all(|check| narrow_bucket(check).is_some()) {
            return None;
        }
        match count_targets(checks) {
            count if count <= USUAL_TARGETS => self.fill_up_to::<USUAL_TARGETS>(checks, tell),
            count if count <= MAX_TARGETS => self.fill_up_to::<MAX_TARGETS>(checks, tell),
            _ => None,
        }
    }

    #[inline(always)]
    fn fill_up_to<'a, const MAX: usize>(
        &'a self,
        checks: &[Check<'a>],
        mut tell: impl FnMut(usize, &Bucket, BucketState, u64, Micros),
    ) -> Option<Micros> {
        let first = checks.first()?;
        let first =
            Entry { approach: self.narrow.approach(self.fingerprint(*first)), check: 0, bucket: narrow_bucket(first) };
        let (mut entries, mut count) = ([first; MAX], 1);
        let mut add = |entry: Entry<'a>| {
            // In the order of their lines.
            let mut place = count;
            while place > 0 && entries[place - 1].approach.home.line > entry.approach.home.line {
                entries[place] = entries[place - 1];
                place -= 1;
            }
            entries[place] = entry;
            count += 1;
        };
        for (index, check) in checks.iter().enumerate() {
            if index > 0 {
                let approach = self.narrow.approach(self.fingerprint(*check));
                add(Entry { approach, check: index, bucket: narrow_bucket(check) });
            }
            for former in check.former() {
                if !former.meter.is_simple() {
                    return None;
                }
                let former = Check { meter: former.meter, former: &[], ..*check };
                add(Entry { approach: self.narrow.approach(self.fingerprint(former)), check: index, bucket: None });
            }
        }
        let now = self.clock.now();
        fill_from(&entries[..count], checks, now, None, &mut tell).map(|()| now)
    }

    /// Charges all or none. If that is not simple, nothing has changed: the time, if
    /// the clock was read.
    pub(super) fn charge_all(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, Option<Micros>> {
        let is_one_of = |check: &Check<'_>| {
            check.is_charge() && !check.meter().is_custom() && check.meter().thresholds().is_empty()
        };
        if !checks.iter().all(is_one_of) {
            return Err(None);
        }
        match count_targets(checks) {
            count if count <= USUAL_TARGETS => self.charge_up_to::<USUAL_TARGETS>(checks, verdicts),
            count if count <= MAX_TARGETS => self.charge_up_to::<MAX_TARGETS>(checks, verdicts),
            _ => Err(None),
        }
    }

    /// [`charge_all`](Self::charge_all) for at most `MAX` targets.
    fn charge_up_to<const MAX: usize>(
        &self,
        checks: &[Check<'_>],
        verdicts: &mut [Verdict],
    ) -> Result<Micros, Option<Micros>> {
        let mut targets = [NOWHERE; MAX];
        let mut count = 0;
        let mut add = |target: Target| {
            // In the order of their places.
            let mut place = count;
            while place > 0 && targets[place - 1].place > target.place {
                targets[place] = targets[place - 1];
                place -= 1;
            }
            targets[place] = target;
            count += 1;
        };
        for (index, check) in checks.iter().enumerate() {
            add(self.target(check, index, true));
            for former in check.former() {
                add(self.target(&Check { meter: former.meter, former: &[], ..*check }, index, false));
            }
        }
        let now = self.clock.now();
        self.charge_targets(&targets, count, checks, verdicts, now).map(|()| now).ok_or(Some(now))
    }

    /// Charges what sits in these targets, in the order of their places.
    #[inline(always)]
    fn charge_targets<const MAX: usize>(
        &self,
        targets: &[Target; MAX],
        count: usize,
        checks: &[Check<'_>],
        verdicts: &mut [Verdict],
        now: Micros,
    ) -> Option<()> {
        let mut locks: [Option<Lock<'_>>; MAX] = [const { None }; MAX];
        let mut charges = [NO_CHARGE; MAX];
        let (mut planned, mut last, mut all_pass) = (0, usize::MAX, true);
        for (index, target) in targets[..count].iter().enumerate() {
            let before = index.checked_sub(1).map(|before| &targets[before]);
            if before.is_none_or(|before| before.place != target.place) {
                last = index;
                locks[last] = Some(self.lock(target));
            } else if targets[last..index].iter().any(|other| other.mark == target.mark) {
                // Perhaps the same state twice, which the round reports.
                return None;
            }
            let (check, lock) = (&checks[target.check], locks[last].as_mut()?);
            if target.is_charged {
                let (slot, admission) = admit(lock, target, check, now)?;
                all_pass &= matches!(admission, Admission::Pass { .. });
                charges[planned] = Charge { lock: last, slot, check: target.check, admission };
                planned += 1;
            } else if !is_absent(lock, target, now) {
                return None;
            }
        }
        for Charge { lock, slot, check, admission } in &charges[..planned] {
            let (reading, ahead) = conclude(locks[*lock].as_mut()?, *slot, &checks[*check], now, all_pass);
            verdicts[*check] = Verdict { ahead, ..Verdict::new(*admission, reading) };
        }
        Some(())
    }

    #[inline(always)]
    fn target(&self, check: &Check<'_>, index: usize, is_charged: bool) -> Target {
        let fingerprint = self.fingerprint(*check);
        let shelf = self.shelf_of(*check);
        let approach = match shelf {
            NARROW => self.narrow.approach(fingerprint),
            WIDE => self.wide().approach(fingerprint),
            _ => {
                let place = (shelf, self.heap().bucket(fingerprint));
                return Target { place, mark: fingerprint, check: index, is_charged };
            }
        };
        let home = approach.home;
        Target { place: (shelf, home.line), mark: home.tag, check: index, is_charged }
    }

    #[inline(always)]
    fn lock(&self, target: &Target) -> Lock<'_> {
        let (shelf, number) = target.place;
        match shelf {
            NARROW => Lock::Line(self.narrow.lock(number)),
            WIDE => Lock::Line(self.wide().lock(number)),
            _ => Lock::Bucket(self.heap().lock(number)),
        }
    }
}

/// The slot of a charge, and whether it is admitted; `None` if the key is not there or
/// its state is to be healed.
#[inline(always)]
fn admit(lock: &mut Lock<'_>, target: &Target, check: &Check<'_>, now: Micros) -> Option<(usize, Admission)> {
    let cost = check.cost();
    match (lock, check.meter().kernel(), target.place.0) {
        (Lock::Line(line), MeterKernel::Bucket(kernel), NARROW) => {
            admit_in::<1, _>(line, target.mark, kernel, now, cost)
        }
        (Lock::Line(line), MeterKernel::Window(kernel), NARROW) => {
            admit_in::<1, _>(line, target.mark, kernel, now, cost)
        }
        (Lock::Line(line), MeterKernel::Bucket(kernel), _) => admit_in::<3, _>(line, target.mark, kernel, now, cost),
        (Lock::Line(line), MeterKernel::Window(kernel), _) => admit_in::<3, _>(line, target.mark, kernel, now, cost),
        (Lock::Bucket(bucket), MeterKernel::Heap(kernel), _) => {
            let slot = bucket.iter().position(|entry| entry.fingerprint() == target.mark)?;
            let state = bucket[slot].decoded(kernel);
            kernel.heal(state, now).is_none().then(|| (slot, kernel.admit(state, now, cost)))
        }
        (_, _, _) => None,
    }
}

#[inline(always)]
fn admit_in<const STATE: usize, K: Pack<STATE>>(
    line: &LockedLine<'_>,
    tag: u64,
    kernel: &K,
    now: Micros,
    cost: u64,
) -> Option<(usize, Admission)> {
    let slot = Table::<STATE>::find(line, tag)?;
    let state = kernel.unpack(Table::<STATE>::read(line, slot));
    kernel.heal(&state, now).is_none().then(|| (slot, kernel.admit(&state, now, cost)))
}

/// Carries a charge out, or not, and says what is left then, and how far the state's time is ahead.
#[inline(always)]
fn conclude(lock: &mut Lock<'_>, slot: usize, check: &Check<'_>, now: Micros, is_charged: bool) -> (Reading, Micros) {
    let cost = if is_charged { check.cost() } else { 0 };
    match (lock, check.meter().kernel()) {
        (Lock::Line(line), MeterKernel::Bucket(kernel)) if kernel.is_narrow() => {
            conclude_in::<1, _>(line, slot, kernel, now, cost)
        }
        (Lock::Line(line), MeterKernel::Window(kernel)) if kernel.is_narrow() => {
            conclude_in::<1, _>(line, slot, kernel, now, cost)
        }
        (Lock::Line(line), MeterKernel::Bucket(kernel)) => conclude_in::<3, _>(line, slot, kernel, now, cost),
        (Lock::Line(line), MeterKernel::Window(kernel)) => conclude_in::<3, _>(line, slot, kernel, now, cost),
        (Lock::Bucket(bucket), MeterKernel::Heap(kernel)) => {
            let entry = &mut bucket[slot];
            if !is_charged {
                return (kernel.read(entry.decoded(kernel), now), Micros::ZERO);
            }
            let state = entry.decoded(kernel);
            let told = (kernel.charge(state, now, cost), kernel.ahead(state, now));
            entry.renew(kernel);
            told
        }
        (_, _) => unreachable!("what was admitted has its state where its kernel keeps it"),
    }
}

#[inline(always)]
fn conclude_in<const STATE: usize, K: Pack<STATE>>(
    line: &LockedLine<'_>,
    slot: usize,
    kernel: &K,
    now: Micros,
    cost: u64,
) -> (Reading, Micros) {
    let mut state = kernel.unpack(Table::<STATE>::read(line, slot));
    if cost == 0 {
        return (kernel.read(&state, now), Micros::ZERO);
    }
    let reading = kernel.charge(&mut state, now, cost);
    Table::<STATE>::write(line, slot, kernel.pack(&state));
    (reading, kernel.ahead(&state, now))
}

/// Whether a former limit holds nothing that could move.
fn is_absent(lock: &mut Lock<'_>, target: &Target, now: Micros) -> bool {
    match (lock, target.place.0) {
        (Lock::Line(line), NARROW) => Table::<1>::is_absent(line, target.mark, now),
        (Lock::Line(line), _) => Table::<3>::is_absent(line, target.mark, now),
        (Lock::Bucket(bucket), _) => {
            !bucket.iter().any(|entry| entry.fingerprint() == target.mark && entry.until() > now)
        }
    }
}

/// The state of a bucket after a charge, and the level if there is room;
/// `None` if the state is to be healed.
#[inline(always)]
fn fill(bucket: &Bucket, words: [u64; 1], now: Micros, cost: u64) -> Option<(BucketState, Option<u64>)> {
    let mut state = bucket.unpack(words);
    let filled = bucket.fill_if_room(&mut state, now, cost);
    // A bucket that is to be healed is fuller than full.
    if filled.is_none() && bucket.heal(&state, now).is_some() {
        return None;
    }
    Some((state, filled))
}

#[cfg(all(test, not(loom)))]
mod tests;
