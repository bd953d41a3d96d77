use super::*;

const STYLES: [Style; 3] = [Style::FixedFromEpoch, Style::FixedFromFirst, Style::Sliding];
const NOW: Micros = Micros::new(1_003);

/// Five, or as many, in ten microseconds.
fn window(count: u64, style: Style) -> Window {
    Window::new(count, 10, style)
}

fn state(start: u64, current: u64, previous: u64) -> WindowState {
    WindowState { start, current, previous }
}

#[test]
fn a_tick_is_as_long_as_exact_sums_need() {
    let most = (1 << 51) - 1;
    let cases = [
        (1, most, (1, most)),
        (1, most + 1, (10, most / 10 + 1)),
        // Ten times that fits; a microsecond more is a whole tick more.
        (1, 10 * most, (10, most)),
        (1, 10 * most + 1, (100, most / 10 + 1)),
        (1_000_000_000_000, 1_000_000, (1_000, 1_000)),
    ];
    for (count, period, expected) in cases {
        let window = Window::new(count, period, Style::Sliding);
        assert_eq!((window.tick(), window.period_in_ticks()), expected, "{count} in {period}");
        assert_eq!(window.period(), window.tick() * window.period_in_ticks());
        assert!(window.period() >= period, "{count} in {period}");
        let fixed = Window::new(count, period, Style::FixedFromEpoch);
        assert_eq!((fixed.tick(), fixed.period_in_ticks(), fixed.period()), (1, period, period));
    }
}

#[test]
fn numbers_that_no_window_could_have_are_no_state() {
    let coarse = Window { tick: 10, ..window(5, Style::Sliding) };
    let cases = [
        (window(5, Style::Sliding), (EXACT - 1, 5, 5), true),
        (window(5, Style::Sliding), (EXACT, 5, 5), false),
        (window(5, Style::Sliding), (0, EXACT / 10 - 8, 3), true),
        (window(5, Style::Sliding), (0, EXACT / 10 - 7, 3), false),
        (window(5, Style::Sliding), (0, u64::MAX, u64::MAX), false),
        (window(5, Style::FixedFromEpoch), (0, EXACT - 1, 0), true),
        (window(5, Style::FixedFromEpoch), (0, EXACT, 0), false),
        (window(5, Style::FixedFromFirst), (0, EXACT - 1, 5), true),
        (window(5, Style::FixedFromFirst), (0, 5, 6), false),
        (coarse, (EXACT / 10 - 1, 0, 0), true),
        (coarse, (EXACT / 10, 0, 0), false),
    ];
    for (window, (start, current, previous), is_state) in cases {
        let expected = is_state.then_some(state(start, current, previous));
        assert_eq!(window.state(start, current, previous), expected);
        let bytes = [start, current, previous].map(u64::to_le_bytes).concat();
        assert_eq!(window.decode(&bytes), expected);
        assert_eq!(window.decode(&bytes[..23]), None);
    }
}

#[test]
fn a_report_counts_up_to_the_ceiling() {
    for style in STYLES {
        let window = window(5, style).with_debt(3);
        for (cost, current, unrecorded) in [(0, 2, 0), (1, 3, 0), (6, 8, 0), (7, 8, 1), (u64::MAX, 8, u64::MAX - 6)] {
            let mut reported = state(1_000, 2, 0);
            assert_eq!(window.report(&mut reported, NOW, cost), unrecorded, "{style:?} {cost}");
            assert_eq!(reported, state(1_000, current, 0), "{style:?} {cost}");
        }
        // Another limit may have left more.
        let mut more = state(1_000, 9, 0);
        assert_eq!((window.report(&mut more, NOW, 2), more), (2, state(1_000, 9, 0)), "{style:?}");
        let mut unused = WindowState::default();
        assert_eq!((window.report(&mut unused, NOW, 0), unused), (0, WindowState::default()), "{style:?}");
    }
}

#[test]
fn a_refund_takes_from_this_window_and_then_from_the_last() {
    let cases = [(0, (2, 3)), (1, (1, 3)), (2, (0, 3)), (3, (0, 2)), (4, (0, 1))];
    for (cost, (current, previous)) in cases {
        let mut refunded = state(1_000, 2, 3);
        window(5, Style::Sliding).refund(&mut refunded, NOW, cost);
        assert_eq!(refunded, state(1_000, current, previous), "{cost}");
    }
    for (cost, style) in [5, 6, u64::MAX].into_iter().flat_map(|cost| STYLES.map(|style| (cost, style))) {
        let mut refunded = state(1_000, 2, if style == Style::Sliding { 3 } else { 0 });
        window(5, style).refund(&mut refunded, NOW, cost);
        assert_eq!(refunded, WindowState::default(), "{style:?}");
    }
    let mut halved = state(1_000, 2, 1);
    window(5, Style::Sliding).refund(&mut halved, NOW, 1);
    assert_eq!(halved, state(1_000, 1, 1));
}

#[test]
fn a_state_is_healed_that_is_more_than_its_windows_and_a_second_ahead() {
    let second = MIN_GRACE;
    let now = Micros::new(1_700_000_003_123_456);
    for (period, style, ahead) in [
        (10, Style::FixedFromEpoch, second),
        (10, Style::FixedFromFirst, second),
        (10, Style::Sliding, second),
        (3 * second, Style::FixedFromEpoch, 3 * second),
        (3 * second, Style::FixedFromFirst, 3 * second),
        (3 * second, Style::Sliding, 6 * second),
    ] {
        for tick in [1, 10] {
            let window = Window { period: period.div_ceil(tick), tick, ..window(5, style) };
            let (now_in_ticks, ahead) = (now.get() / tick, ahead / tick);
            assert_eq!(window.heal(&state(now_in_ticks + ahead, 1, 0), now), None, "{window:?}");
            let start = match style {
                Style::FixedFromFirst => now_in_ticks,
                _ => now_in_ticks - now_in_ticks % window.period,
            };
            assert_eq!(window.heal(&state(now_in_ticks + ahead + 1, 1, 0), now), Some(state(start, 5, 0)));
        }
    }
}

#[test]
fn a_state_is_forgotten_with_its_windows_and_reset_when_no_whole_unit_of_it_counts() {
    for (style, current, previous, forget_at, reset_at) in [
        (Style::FixedFromEpoch, 1, 0, 10_100, 10_100_u64),
        (Style::FixedFromFirst, 1, 0, 10_100, 10_100),
        (Style::Sliding, 1, 0, 10_200, 10_110),
        (Style::Sliding, 2, 0, 10_200, 10_160),
        (Style::Sliding, 5, 0, 10_200, 10_190),
        (Style::Sliding, 1, 5, 10_200, 10_110),
        (Style::Sliding, 0, 1, 10_100, 10_010),
        (Style::Sliding, 0, 3, 10_100, 10_070),
        (Style::Sliding, 0, 0, 0, 0),
    ] {
        let window = Window { tick: 10, ..window(5, style) };
        let state = state(1_000, current, previous);
        assert_eq!(window.forget_at(&state), Micros::new(forget_at), "{style:?} {current} {previous}");
        let reset_after = window.read(&state, Micros::new(10_003)).reset_after;
        assert_eq!(reset_after.get(), reset_at.saturating_sub(10_003), "{style:?} {current} {previous}");
    }
}
