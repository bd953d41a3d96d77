//! The trace format: what is printed parses back, and what does not parse is
//! told with its line and what could have stood there.

use std::num::NonZeroU32;

use tidegate::{Limit, ManualClock, Micros};
use tidegate_testkit::{Action, Answer, OracleStore, Random, Step, Trace};

#[test]
fn every_form_of_a_line_is_read() {
    let text = "
        # a comment
        limit 5/10s            # and another
        limit fixed 100/min
        start 2min

        0ms    alice         1      -> allow 4
        1.5ms  alice         2 x3      allow 4 delay 20ms reset 1s
        1500us \"a \\\"b\\\" #1\" peek 3 -> wait 1us
        0s     x1            refund 4  -> allow 0
        1h     b             reset     -> wait 9s left 7 reset 10s
    ";
    let trace = Trace::parse(text).expect("a trace");
    assert_eq!(trace.limits().len(), 2);
    assert_eq!(trace.start(), Micros::new(120_000_000));
    let printed: Vec<String> = trace.steps().map(ToString::to_string).collect();
    assert_eq!(
        printed,
        [
            "0s alice 1 -> allow 4",
            "1.5ms alice 2 x3 -> allow 4 delay 20ms reset 1s",
            "1.5ms \"a \\\"b\\\" #1\" peek 3 -> wait 1us",
            "0s x1 refund 4 -> allow 0",
            "3600s b reset -> wait 9s left 7 reset 10s",
        ],
    );
    assert_eq!(Trace::parse(&trace.to_string()), Ok(trace));
}

#[test]
fn an_unreadable_line_is_told_with_its_number_and_what_was_expected() {
    let a_time = "expected a time such as 0ms, 1.9s or 1500us, found";
    let a_verb = "expected a cost, peek, report, refund or reset, found";
    let an_answer = "expected allow, wait or impossible, found";
    let a_limit = "expected a line such as `limit 5/10s` before the first request, found";
    let table: [(&str, String); 26] = [
        ("", format!("line 1: {a_limit} the end")),
        ("\n# nothing\n", format!("line 3: {a_limit} the end")),
        ("0s a 1 -> allow 1", format!("line 1: {a_limit} \"0s\"")),
        ("\nlimit 5 a second", "line 2: cannot read \"5 a second\" as a limit: expected a rate such as 100/min, found \"5\"".into()),
        ("limit 0/s", "line 1: count is zero: give at least 1".into()),
        ("limit 5/s\nlimit 5/s", "line 2: expected another limit than before, found 5/s again".into()),
        ("limit 5/s\nstart\n", format!("line 2: {a_time} the end of the line")),
        ("limit 5/s\nstart 5s 5s\n", "line 2: expected the end of the line, found \"5s\"".into()),
        ("limit 5/s\nstart 5s\nstart 6s\n", format!("line 3: {a_time} \"start\"")),
        ("limit 5/s\n0s a 1 allow 4\nlimit 6/s", format!("line 3: {a_time} \"limit\"")),
        ("limit 5/s\n0 a 1 -> allow 1", format!("line 2: {a_time} \"0\"")),
        ("limit 5/s\n0.1us a 1 -> allow 1", format!("line 2: {a_time} \"0.1us\"")),
        ("limit 5/s\n\n-1s a 1 -> allow 1", format!("line 3: {a_time} \"-1s\"")),
        ("limit 5/s\n0s", "line 2: expected a key, found the end of the line".into()),
        ("limit 5/s\n0s #a 1 -> allow 1", "line 2: expected a key, found the end of the line".into()),
        ("limit 5/s\n0s a", format!("line 2: {a_verb} the end of the line")),
        ("limit 5/s\n0s a one -> allow 1", format!("line 2: {a_verb} \"one\"")),
        ("limit 5/s\n0s a peek -> allow 1", "line 2: expected a cost: a whole number, found \"->\"".into()),
        ("limit 5/s\n0s a 1 x0 -> allow 1", "line 2: expected a repetition such as x100, found \"x0\"".into()),
        ("limit 5/s\n0s a 1", format!("line 2: {an_answer} the end of the line")),
        ("limit 5/s\n0s a 1 ->", format!("line 2: {an_answer} the end of the line")),
        ("limit 5/s\n0s a 1 -> yes", format!("line 2: {an_answer} \"yes\"")),
        ("limit 5/s\n0s a 1 -> allow", "line 2: expected the remaining units after allow, found the end of the line".into()),
        ("limit 5/s\n0s a 1 -> wait 5", format!("line 2: {a_time} \"5\"")),
        ("limit 5/s\n0s a 1 -> impossible 1", "line 2: expected the end of the line, found \"1\"".into()),
        (
            "limit 5/s\n0s \"a 1 -> allow 1",
            "line 2: expected a closing quote, and \\\\, \\\", \\n, \\r or \\t for what cannot stand in quotes, found `\"a 1 -> allow 1`".into(),
        ),
    ];
    for (text, message) in table {
        let error = Trace::parse(text).expect_err(text);
        assert_eq!(error.to_string(), message, "{text:?}");
    }
}

/// Keys of all kinds of characters.
fn random_key(random: &mut Random) -> String {
    const CHARACTERS: [char; 16] =
        ['a', 'b', '1', ' ', '#', '"', '\\', '\n', '\r', '\t', '-', '>', '/', 'é', '\u{2028}', '\u{0}'];
    (0..random.within(0..=6)).map(|_| random.choose(&CHARACTERS)).collect()
}

fn random_step(random: &mut Random) -> Step {
    let time = |random: &mut Random| Micros::new(random.magnitude(0..=Micros::MAX.get()));
    let maybe = |random: &mut Random| random.percent(50).then(|| time(random));
    let cost = random.magnitude(0..=u64::MAX);
    let action = random.choose(&[Action::Charge(cost), Action::Peek(cost), Action::Refund(cost), Action::Reset]);
    let answer = match random.within(0..=2) {
        0 => Answer::Allow { remaining: cost, delay: maybe(random).unwrap_or_default(), reset_after: maybe(random) },
        1 => Answer::Wait {
            retry_after: time(random),
            remaining: random.percent(50).then_some(7),
            reset_after: maybe(random),
        },
        _ => Answer::Impossible,
    };
    let times = NonZeroU32::new(random.within(1..=3) as u32).expect("at least one");
    Step { at: time(random), key: random_key(random), action, times, answer }
}

#[test]
fn any_trace_is_printed_so_that_it_parses_back() {
    let mut random = Random::new(29);
    for _ in 0..2_000 {
        let start = Micros::new(random.magnitude(0..=Micros::MAX.get()));
        let mut trace = Trace::of([Limit::per_second(1), Limit::per_minute(2)]).starting_at(start);
        for _ in 0..random.within(0..=5) {
            trace.push(random_step(&mut random));
        }
        let printed = trace.to_string();
        assert_eq!(Trace::parse(&printed), Ok(trace), "{printed}");
    }
}

#[test]
fn a_mismatch_shows_the_line_what_was_expected_and_what_came() {
    let table = [
        ("0s a 1 -> allow 0", "line 4: 0s a 1 -> allow 0\n  expected allow 0\n  got      allow 1 reset 500ms"),
        ("0s a 1 -> wait 1s", "line 4: 0s a 1 -> wait 1s\n  expected wait 1s\n  got      allow 1 reset 500ms"),
        (
            "0s a 1 x3 -> allow 0",
            "line 4: 0s a 1 x3 -> allow 0\n  expected allow 0\n  got      wait 500ms left 0 reset 1s (3 of 3)",
        ),
        ("0s a 3 -> allow 0", "line 4: 0s a 3 -> allow 0\n  expected allow 0\n  got      impossible"),
        (
            "0s a 1 -> allow 1 reset 1s",
            "line 4: 0s a 1 -> allow 1 reset 1s\n  expected allow 1 reset 1s\n  got      allow 1 reset 500ms",
        ),
        (
            "0s a 1 -> allow 1 delay 1s",
            "line 4: 0s a 1 -> allow 1 delay 1s\n  expected allow 1 delay 1s\n  got      allow 1 reset 500ms",
        ),
    ];
    for (line, message) in table {
        let trace = Trace::parse(&format!("limit 2/s\n# two a second\n\n{line}\n")).expect(line);
        let clock = ManualClock::default();
        let mismatch = trace.replay_on(OracleStore::new(clock.clone()), &clock).expect_err(line);
        assert_eq!(mismatch.to_string(), message);
    }
}
