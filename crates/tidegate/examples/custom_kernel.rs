//! An algorithm of one's own: a quota by calendar month, in UTC.
//!
//! The built-in windows are all of one length; months are not. A kernel says
//! what the limit means, and the memory store does the rest: it keeps the
//! state of each key, forgets it in time, and charges this limit and built-in
//! ones together or not at all.

use std::collections::BTreeMap;
use std::error::Error;

use tidegate::kernel::{Admission, Kernel, Reading};
use tidegate::store::Meter;
use tidegate::{Clock, Limit, Limiter, ManualClock, MemoryStore, Micros, Name, Policy};

/// At most `count` in every calendar month.
struct MonthlyQuota {
    count: u64,
}

/// What was used in the latest month that was charged.
#[derive(Default)]
struct Used {
    /// Months since January 1970.
    month: u64,
    count: u64,
}

impl MonthlyQuota {
    /// The state as of `now`: of another month only if that is a later one,
    /// so that a clock that goes back grants nothing.
    fn seen(&self, state: &Used, now: Micros) -> Used {
        let month = month_of(now);
        if state.count > 0 && state.month >= month { Used { ..*state } } else { Used { month, count: 0 } }
    }
}

impl Kernel for MonthlyQuota {
    type State = Used;

    fn admit(&self, state: &Used, now: Micros, cost: u64) -> Admission {
        let seen = self.seen(state, now);
        if seen.count + cost <= self.count {
            return Admission::PASS;
        }
        Admission::Wait { retry_after: start_of(seen.month + 1).saturating_since(now) }
    }

    fn charge(&self, state: &mut Used, now: Micros, cost: u64) -> Reading {
        *state = self.seen(state, now);
        state.count += cost;
        self.read(state, now)
    }

    fn refund(&self, state: &mut Used, now: Micros, cost: u64) {
        *state = self.seen(state, now);
        state.count = state.count.saturating_sub(cost);
    }

    fn read(&self, state: &Used, now: Micros) -> Reading {
        let Used { month, count } = self.seen(state, now);
        let end = if count == 0 { Micros::ZERO } else { start_of(month + 1) };
        Reading { remaining: self.count - count, reset_after: end.saturating_since(now) }
    }

    fn heal(&self, state: &Used, now: Micros) -> Option<Used> {
        let too_far = state.count > 0 && state.month > month_of(now) + 1;
        too_far.then(|| Used { month: month_of(now), count: self.count })
    }

    fn encode(&self, state: &Used, bytes: &mut Vec<u8>) {
        bytes.extend(state.month.to_le_bytes());
        bytes.extend(state.count.to_le_bytes());
    }

    fn decode(&self, bytes: &[u8]) -> Option<Used> {
        let (month, count) = bytes.split_first_chunk()?;
        let state = Used { month: u64::from_le_bytes(*month), count: u64::from_le_bytes(count.try_into().ok()?) };
        (state.month <= month_of(Micros::MAX) && state.count <= self.count).then_some(state)
    }
}

const DAY: u64 = 86_400_000_000;

/// Days from January 1970 to the first of a month, in the Gregorian calendar.
fn days_before(month: u64) -> u64 {
    // Years begin in March here, so that a leap day is the last of its year.
    let (years, months) = (1970 + (month + 10) / 12 - 1, (month + 10) % 12);
    years * 365 + years / 4 - years / 100 + years / 400 + (153 * months + 2) / 5 - 719_468
}

fn start_of(month: u64) -> Micros {
    Micros::new(days_before(month) * DAY)
}

fn month_of(now: Micros) -> u64 {
    let day = now.get() / DAY;
    // No month is longer than 31 days, so this is not too late.
    let guess = day / 31;
    (guess..).take_while(|month| days_before(*month) <= day).last().unwrap_or(guess)
}

fn main() -> Result<(), Box<dyn Error>> {
    let quota = Meter::custom(Name::literal("month"), MonthlyQuota { count: 100 });
    let policy = Policy::new().meter(quota).limit("day", Limit::per_day(4));
    let new_year_2024 = Micros::new(1_704_067_200_000_000);
    let clock = ManualClock::at(new_year_2024);
    let limiter = Limiter::with_store(policy, MemoryStore::builder().clock(clock.clone()).build()?)?;
    let allowed_at = |now: Micros| {
        clock.set(now);
        limiter.peek("alice").map(|decision| decision.is_allowed())
    };

    // Five requests a day for fourteen months: what passed, and by whom the
    // rest was refused.
    let mut months: BTreeMap<u64, [u64; 3]> = BTreeMap::new();
    for step in 0..5 * 425 {
        let now = new_year_2024.saturating_add(Micros::new(step * DAY / 5));
        clock.set(now);
        let decision = limiter.check("alice")?;
        let [admitted, by_month, by_day] = months.entry(month_of(now)).or_default();
        if decision.is_allowed() {
            *admitted += 1;
            continue;
        }
        *(if decision.rule() == "month" { by_month } else { by_day }) += 1;
        let promised = clock.now().saturating_add(Micros::from_duration(decision.retry_after().unwrap_or_default()));
        let too_early = Micros::new(promised.get() - 1);
        assert!(allowed_at(promised)? && !allowed_at(too_early)?, "refused until the promised instant");
    }

    println!("100 a month and 4 a day; five requests a day\n");
    println!("{:<10}{:>10}{:>20}{:>10}", "", "admitted", "refused by month", "by day");
    for (month, [admitted, by_month, by_day]) in months {
        assert!(admitted <= 100, "no month lets more pass than its quota");
        println!("{}-{:02}   {admitted:>10}{by_month:>20}{by_day:>10}", 1970 + month / 12, month % 12 + 1);
    }
    Ok(())
}
