//! Tests: the largest numbers that are counted exactly, and what is beyond them.

use crate::kernel::*;
use crate::time::Micros;

const NOW: u64 = 1_700_000_000_000_000;

fn sliding(count: u64, period: u64) -> Window {
    Window::new(count, period, Style::Sliding)
}

#[test]
fn the_largest_debt_of_a_bucket_leaves_every_sum_exact() {
    for (count, burst) in [(7, 9), (1_000_003, 1), (1 << 40, 12)] {
        let bucket = Bucket::new(count, 1, burst, false).expect("a bucket");
        assert_eq!((bucket.drain(), bucket.scale()), (count, 1));
        let largest = bucket.with_debt(bucket.debt_bound());
        assert_eq!(largest.ceiling() + 2 * count, EXACT - 1, "{count} burst {burst}");
    }
}

#[test]
fn the_largest_debt_of_a_sliding_counter_leaves_every_product_exact() {
    for (count, period) in [(1, 1), (2, 1), (5, 1), (7, 10), (8, 10), (1_000, 1_000_003)] {
        let window = sliding(count, period);
        let debt = window.debt_bound();
        // Two windows with debt, and the count of one more.
        let products = |debt| (2 * (count + debt) + count) * window.period_in_ticks();
        assert!(products(debt) < EXACT && products(debt + 1) >= EXACT, "{count}/{period}");
    }
}

#[test]
fn a_window_has_no_state_beyond_what_can_be_counted() {
    for style in [Style::FixedFromEpoch, Style::FixedFromFirst] {
        let window = Window::new(5, 8, style);
        assert!(window.state(0, window.most(), 0).is_some(), "{style:?}");
        assert!(window.state(0, window.most() + 1, 0).is_none(), "{style:?}");
        assert_eq!(window.most(), EXACT - 1, "{style:?}");
    }
    // Of a period of eight, an eighth of what is exact is the first that is not counted.
    let window = sliding(5, 8);
    for (current, previous) in [(EXACT / 8 - 5, 0), (0, EXACT / 8 - 5), (EXACT / 8 - 7, 2)] {
        assert!(window.state(0, current, previous).is_none(), "{current} {previous}");
        let one_less = if current > 0 { (current - 1, previous) } else { (current, previous - 1) };
        assert!(window.state(0, one_less.0, one_less.1).is_some(), "{current} {previous}");
    }
}

#[test]
fn a_bucket_that_is_far_ahead_of_the_clock_is_as_full_as_it_can_be() {
    // A tick drains 2^20, so that 2^44 ticks drain more than a number can hold.
    let bucket = Bucket::new(1 << 20, 1, 5, false).expect("a bucket").with_debt(3);
    for ahead in [1, 1 << 43, 1 << 44, (1 << 44) + 1] {
        for fraction in [0, 1, (1 << 20) - 1] {
            let state = bucket.state(NOW + ahead, fraction).expect("a state");
            assert_eq!(bucket.level_with_debt(&state, NOW), 8, "{fraction} and {ahead} ticks");
        }
    }
}

#[test]
fn a_charge_of_which_more_has_drained_than_can_be_counted_is_gone() {
    let bucket = Bucket::new(1 << 20, 1, 1 << 22, false).expect("a bucket");
    let mut state = BucketState::default();
    bucket.charge(&mut state, Micros::new(NOW), 1 << 22);
    let before = state;
    let charged = Charged { at: Micros::new(NOW - (1 << 44)), cost: 5 };
    bucket.undo(&mut state, Micros::new(NOW), charged, 0);
    assert_eq!(state, before, "what is there now is another charge");
}

#[test]
fn a_charge_of_another_limit_may_be_more_than_can_be_counted_here() {
    let bucket = Bucket::new(1, 1 << 20, 3, false).expect("a bucket");
    assert_eq!((bucket.drain(), bucket.scale()), (1, 1 << 20));
    let left_of = |charged, kept| {
        let mut state = BucketState::default();
        bucket.charge(&mut state, Micros::new(NOW), 3);
        bucket.undo(&mut state, Micros::new(NOW), charged, kept);
        bucket.level_with_debt(&state, NOW) >> 20
    };
    // All of it is taken back.
    assert_eq!(left_of(Charged { at: Micros::new(NOW), cost: 1 << 44 }, 0), 0);
    // What has drained is of what is kept.
    let charged = Charged { at: Micros::new(NOW - (1 << 20)), cost: (1 << 44) + 1 };
    assert_eq!(left_of(charged, 1 << 44), 2);
}

#[test]
fn a_log_records_up_to_its_ceiling_and_nothing_where_more_is_there() {
    let (narrow, wide) = (Log::new(5, 10).with_debt(3), Log::new(9, 10));
    assert_eq!((narrow.ceiling(), wide.ceiling()), (8, 9));
    for (used, cost, unrecorded, total) in [(5, 3, 0, 8), (5, 4, 1, 8), (8, 1, 1, 8), (9, 2, 2, 9)] {
        let mut state = LogState::default();
        wide.charge(&mut state, Micros::new(NOW), used);
        assert_eq!(narrow.report(&mut state, Micros::new(NOW), cost), unrecorded, "{cost} beside {used}");
        assert_eq!(wide.read(&state, Micros::new(NOW)).remaining, 9 - total, "{cost} beside {used}");
    }
}
