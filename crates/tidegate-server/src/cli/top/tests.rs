//! Screens drawn from pictures that the server makes.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;
use serde_json::{Value, json};

use super::feed::{News, Refused};
use super::view::{Latency, View};
use super::{Wish, draw};
use crate::screen::live::Picture;

/// A server after so many seconds of the same: 90 admitted and 10 refused in
/// each.
fn picture(seconds: u64) -> Value {
    json!({
        "version": "0.1.0", "time_us": 1_700_000_000_000_000u64 + seconds * 1_000_000,
        "uptime_us": seconds * 1_000_000, "leaving": false, "connections": 3, "failures": 0,
        "store": {
            "kind": "memory", "reachable": true, "breaker": null, "keys": 7, "max_keys": 1_000_000,
            "overflows": 0, "round_trips": 0, "failures": 0, "calls_skipped": 0, "outages": 0, "leased": 0, "repeated": 0
        },
        "policy": { "file": "policy.toml", "generation": 2, "since_us": 0, "errors": null },
        "rules": [
            {
                "rule": "orders", "limit": "100/min burst 20", "key": ["user"], "shadow": false,
                "allowed": 90 * seconds, "refused": 10 * seconds, "degraded": 0, "shadow_allowed": 0, "shadow_refused": 0,
                "missing": 0, "reported": 0, "unrecorded": 0
            },
            {
                "rule": "login", "limit": "sliding-log 5/10min", "key": null, "shadow": true,
                "allowed": 0, "refused": 0, "degraded": 0, "shadow_allowed": 5, "shadow_refused": 1,
                "missing": 0, "reported": 0, "unrecorded": 0
            }
        ],
        "latency": [{
            "protocol": "http", "sum_us": 0,
            "buckets": [
                { "within_us": 100, "count": 80 * seconds },
                { "within_us": 1_000, "count": 20 * seconds },
                { "within_us": null, "count": 0 }
            ]
        }],
        "reservations": { "open": 0, "expired": 0, "oldest": [] },
        "top_refused": [
            { "rule": "orders", "key": "alice", "refused": 8 * seconds, "error": 0 },
            { "rule": "orders", "key": "bob", "refused": 2 * seconds, "error": 1 }
        ],
        "recent_refusals": [
            {
                "at_us": 1_700_000_000_000_000u64 + seconds * 1_000_000, "rule": "orders", "key": "alice", "times": 8,
                "cost": 1, "limit": 20, "retry_after_us": 599_001,
                "request": { "rule": "orders", "attributes": { "user": "alice" }, "cost": 1 }
            },
            {
                "at_us": 1_700_000_000_000_000u64, "rule": "orders", "key": "bob", "times": 2,
                "cost": 1, "limit": 20, "retry_after_us": null, "request": null
            }
        ]
    })
}

fn read(picture: Value) -> Picture {
    serde_json::from_value(picture).expect("it is what the server writes")
}

fn news(picture: Value) -> News {
    News::Picture(Box::new(read(picture)))
}

/// What is seen after four seconds.
fn view() -> View {
    let mut view = View::new("127.0.0.1:7400", read(picture(1)));
    (2..=4).for_each(|seconds| view.hear(news(picture(seconds))));
    view
}

fn screen(view: &View) -> String {
    let mut terminal = Terminal::new(TestBackend::new(110, 18)).expect("it is in memory");
    terminal.draw(|frame| draw::draw(frame, view)).expect("it is in memory");
    let buffer = terminal.backend().buffer();
    let line = |line: &[ratatui::buffer::Cell]| line.iter().map(ratatui::buffer::Cell::symbol).collect::<String>();
    let lines: Vec<String> = buffer.content.chunks(110).map(|cells| line(cells).trim_end().to_owned()).collect();
    lines.join("\n")
}

#[test]
fn a_screen_shows_all_that_there_is() {
    let expected = "\
tidegate 0.1.0 at 127.0.0.1:7400, up 4s, 3 connections
policy.toml, generation 2
 rules ───────────────────────────────────────────────────────────────────────────────────────────────────────
rule                 limit                 admitted/s refused/s   refused admitted          refused
orders               100/min burst 20              90        10        40               ███               ███
login (shadow)       sliding-log 5/10min            0         0         1

 answers ────────────────────────────────────────────── store ────────────────────────────────────────────────
http 100/s, half within 100us, 99% within 1ms          memory: answers, 7 of 1000000 keys, 0 without room

 refused most ────────────────────────────── refused of late ─────────────────────────────────────────────────
       32 alice               orders          0s ago alice           orders            8x retry after 600ms
       ~8 bob                 orders          4s ago bob             orders            2x for good




q leaves, arrows choose a refusal, r resets its key";
    assert_eq!(screen(&view()), expected);
}

#[test]
fn requests_without_a_key_attribute_are_shown() {
    let mut lacking = picture(5);
    lacking["rules"][0]["missing"] = 3.into();
    let shown = screen(&View::new("127.0.0.1:7400", read(lacking)));
    assert!(shown.contains("0 by a fallback, 0 errors, 3 missing key attributes"), "{shown}");
}

#[test]
fn reservations_are_shown_with_who_holds_the_oldest() {
    let mut held = picture(5);
    let since = held["time_us"].as_u64().unwrap_or_default() - 3_000_000;
    let oldest = json!({
        "id": "r-1", "rule": "at once", "key": "alice", "cost": 1, "since_us": since, "expires_us": since + 60_000_000
    });
    held["reservations"] = json!({ "open": 1, "expired": 2, "oldest": [oldest] });
    let shown = screen(&View::new("127.0.0.1:7400", read(held)));
    assert!(shown.contains("1 reservation open, oldest alice for 3s, 2 expired"), "{shown}");
}

#[test]
fn long_times_have_room_and_are_never_told_too_short() {
    for (retry_after, words) in [
        (599_001_u64, "retry after 600ms"),
        (9_999_001, "retry after 10s"),
        (3_592_161_000, "retry after 60min"),
        (86_399_000_001, "retry after 24h"),
        (40 * 86_400_000_000, "retry after 40day"),
    ] {
        let mut later = picture(93_784);
        later["recent_refusals"][0]["retry_after_us"] = retry_after.into();
        let shown = screen(&View::new("127.0.0.1:7400", read(later)));
        assert!(shown.contains("up 1day 2h,"), "{shown}");
        assert!(shown.lines().any(|line| line.contains("8x") && line.ends_with(words)), "{words}: {shown}");
        assert!(shown.contains(" 26h ago bob"), "{shown}");
    }
}

#[test]
fn a_reset_is_asked_for_and_confirmed() {
    let mut view = view();
    assert!(matches!(view.press(KeyCode::Char('r')), Wish::Nothing));
    assert!(screen(&view).ends_with("choose a key by the arrows"));
    view.press(KeyCode::Down);
    view.press(KeyCode::Char('r'));
    assert!(screen(&view).ends_with("forget what \"alice\" has used of orders? y or n"));
    assert!(matches!(view.press(KeyCode::Char('n')), Wish::Nothing));
    view.press(KeyCode::Char('r'));
    let Wish::Reset(request) = view.press(KeyCode::Char('y')) else { panic!("the key is reset") };
    assert_eq!(request.attributes["user"], "alice");
    view.hear(News::Reset(Ok(())));
    assert!(screen(&view).ends_with("the key begins anew"));
    view.press(KeyCode::Down);
    view.press(KeyCode::Char('r'));
    assert!(screen(&view).ends_with("this request cannot be asked again: it is not text"));
    assert!(matches!(view.press(KeyCode::Char('q')), Wish::Leave));
}

#[test]
fn what_is_chosen_stays_chosen_when_the_list_moves() {
    let mut view = view();
    view.press(KeyCode::End);
    assert_eq!(view.chosen().map(|(place, it)| (place, &*it.key)), Some((1, "bob")));
    let mut moved = picture(5);
    moved["recent_refusals"].as_array_mut().expect("a list").reverse();
    view.hear(news(moved));
    assert_eq!(view.chosen().map(|(place, it)| (place, &*it.key)), Some((0, "bob")));
    let mut gone = picture(6);
    gone["recent_refusals"] = json!([]);
    view.hear(news(gone));
    assert_eq!(view.chosen().map(|(place, _)| place), None);
    view.press(KeyCode::Down);
}

#[test]
fn rates_are_by_the_second_however_late_a_picture_comes() {
    let mut view = View::new("here", read(picture(1)));
    view.hear(news(picture(11)));
    let rates = view.rates("orders").expect("it decided");
    assert_eq!((rates.allowed.back(), rates.refused.back()), (Some(&90), Some(&10)));
    let expected = Latency { protocol: "http".into(), per_second: 100, median_us: Some(100), p99_us: Some(1_000) };
    assert_eq!(view.latencies(), [expected]);
    // A server that began anew counts from nothing.
    view.hear(news(picture(2)));
    assert!(view.rates("orders").is_none() && view.latencies().is_empty());
}

#[test]
fn silence_is_told_and_ends() {
    let mut view = view();
    view.hear(News::Silence(Refused::Unauthorized));
    assert!(screen(&view).ends_with("give it by --token or TIDEGATE_TOKEN"));
    view.hear(news(picture(5)));
    assert!(screen(&view).ends_with("r resets its key"));
}

#[test]
fn no_screen_is_too_small() {
    for (width, height) in [(1, 1), (20, 3), (40, 8), (300, 80)] {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("it is in memory");
        terminal.draw(|frame| draw::draw(frame, &view())).expect("it is in memory");
    }
}
