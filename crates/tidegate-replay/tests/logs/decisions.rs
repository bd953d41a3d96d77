//! Decisions are those of the reference, in every format and order.

use std::collections::BTreeMap;

use tidegate_replay::report::{KeyReport, RuleReport};
use tidegate_replay::{Format, Replay, Report, Source};
use tidegate_testkit::Random;

use crate::generated::{Entry, Written, disordered, entries};
use crate::reference::{by_rule, policy, refusals};

const POLICIES: [&str; 6] = [
    "[rules.address]\nlimit = '10/min burst 3'\nkey = ['ip']\n",
    "[rules.plain]\nlimit = 'fixed 4/10s'\n",
    "
    [rules.orders]
    limit = 'sliding-log 5/10s'
    key = ['user']
    missing = 'shared'
    match = { path = { prefix = '/api/' } }
    overrides.user = { bob = 'unlimited', 'c*' = '1/min' }
    [rules.posts]
    limit = 'sliding-counter 6/20s'
    key = ['ip', 'method']
    match = { method = 'POST' }
    cost = { times = 2 }
    [default]
    limit = 'leaky 2/s queue 4'
    key = []
    ",
    "
    [rules.all]
    limit = 'fixed 30/min from-first'
    key = []
    [rules.endpoint]
    limit = '20/min burst 2'
    key = [{ attribute = 'ip', ipv4 = 24, ipv6 = 32 }, 'endpoint']
    candidate = '5/min'
    [lists]
    deny = [{ ip = '192.0.2.3' }]
    allow = [{ query = 'q=1' }]
    ",
    "
    [rules.user]
    limit = '6/min burst 2'
    key = ['user']
    missing = 'skip'
    [rules.watched]
    limit = '1/h'
    key = ['user']
    shadow = true
    ",
    "[rules.query]\nlimit = '2/s'\nkey = ['query', 'user', 'path', 'ip', 'method', 'endpoint']\nmissing = 'shared'\n[rules.out]\nlimit = 'blocked'\nmatch = { path = '/static/a.css' }\n",
];

fn run(new: &str, old: Option<&str>, text: String) -> Report {
    let mut replay = Replay::new(policy(new)).held_back(64).max_keys(1_000);
    if let Some(old) = old {
        replay = replay.against(policy(old));
    }
    replay.run([Source::stream("log", std::io::Cursor::new(text))]).unwrap_or_else(|error| panic!("{error}"))
}

fn counted(rules: &[RuleReport]) -> BTreeMap<String, u64> {
    rules.iter().map(|rule| (rule.rule.clone(), rule.refused)).collect()
}

fn sum_by_rule(keys: &[KeyReport]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for key in keys {
        assert_eq!(key.error, 0, "there is room for all of them");
        *counts.entry(key.rule.clone()).or_default() += key.count;
    }
    counts
}

/// All that a report says of what was refused, when and by whom.
fn expect(report: &Report, entries: &[Entry], refused: &[Option<String>], case: &str) {
    let count = refused.iter().flatten().count() as u64;
    assert_eq!((report.refused, report.admitted), (count, entries.len() as u64 - count), "{case}");
    assert_eq!(counted(&report.rules), by_rule(refused), "{case}");
    assert_eq!((report.broken, report.late, report.undecided), (0, 0, 0), "{case}");
    if report.refused_keys.len() < 20 {
        assert_eq!(sum_by_rule(&report.refused_keys), by_rule(refused), "{case}");
    }
    for bin in &report.timeline.bins {
        let start = bin.at.0.get();
        let within = |at: u64| (start..start + report.timeline.width_us).contains(&at);
        let here = entries.iter().zip(refused).filter(|(entry, _)| within(entry.at));
        let (no, yes): (Vec<_>, Vec<_>) = here.partition(|(_, rule)| rule.is_some());
        assert_eq!((bin.admitted, bin.refused), (yes.len() as u64, no.len() as u64), "{case}: {}", bin.at);
    }
}

#[test]
fn decisions_are_those_of_the_reference_in_every_format() {
    for seed in 0..8 {
        let mut random = Random::new(seed);
        let all = entries(&mut random, 500);
        for written in Written::ALL {
            let told: Vec<Entry> = all.iter().map(|entry| written.told(entry)).collect();
            for new in POLICIES {
                // A log without users has nothing to say of them.
                let case = format!("{written:?}, seed {seed}: {new}");
                let report = run(new, None, written.write(&told));
                expect(&report, &told, &refusals(policy(new), &told), &case);
                let format = match written {
                    Written::Combined | Written::Common => Format::Combined,
                    Written::Envoy | Written::Istio => Format::Envoy,
                    Written::Json | Written::EnvoyJson => Format::Json,
                    Written::Csv => Format::Csv,
                };
                assert_eq!(report.sources[0].format, format, "{case}");
            }
        }
    }
}

#[test]
fn lines_without_the_key_attribute_are_undecided_in_every_format() {
    const BY_USER: &str = "[rules.api]\nlimit = '5/min'\nkey = ['user']\nmatch = { path = { prefix = '/api/' } }\n";
    let all = entries(&mut Random::new(11), 500);
    for written in Written::ALL {
        let told: Vec<Entry> = all.iter().map(|entry| written.told(entry)).collect();
        let lacks = |entry: &&Entry| entry.user.is_none() && entry.path.starts_with("/api/");
        let lacking = told.iter().filter(lacks).count() as u64;
        let whole: Vec<Entry> = told.iter().filter(|entry| !lacks(entry)).cloned().collect();
        let report = run(BY_USER, None, written.write(&told));
        let case = format!("{written:?}: {report}");
        assert!(lacking > 25, "{case}");
        assert_eq!((report.requests(), report.undecided), (500, lacking), "{case}");
        let refused = refusals(policy(BY_USER), &whole).iter().flatten().count() as u64;
        assert_eq!(report.refused, refused, "those that lack it take nothing from the others: {case}");
        let [undecided] = &*report.undecided_reasons else { panic!("{case}") };
        let (rule, attribute) = (undecided.rule.as_deref(), undecided.attribute.as_deref());
        assert_eq!((undecided.reason, rule, attribute), ("missing-attribute", Some("api"), Some("user")));
        assert_eq!(undecided.lines, lacking);
        assert!(undecided.example.text.contains("path=/api/"), "{undecided:?}");
        for shown in [report.to_string(), report.to_html().replace("&quot;", "\"")] {
            assert!(shown.contains("rule \"api\": key attribute \"user\" is missing"), "{shown}");
        }
        assert!(report.inconclusive.is_some_and(|why| why.contains(&format!("{lacking} of 500 lines"))), "{written:?}");
    }
}

#[test]
fn lines_without_an_address_or_key_are_undecided() {
    let text = "time,ip,host\n1,192.0.2.1,a\n1,somewhere.example,a\n1,elsewhere.example,a\n1,,a\n";
    let report = run("[rules.address]\nlimit = '5/min'\nkey = ['ip']\n", None, text.to_owned());
    let reasons: Vec<_> = report.undecided_reasons.iter().map(|why| (why.reason, why.lines)).collect();
    assert_eq!(reasons, [("not-an-address", 2), ("missing-attribute", 1)]);
    assert!(report.undecided_reasons[0].example.reason.contains("\"somewhere.example\""), "{report}");
    let report = run("[rules.plain]\nlimit = '5/min'\n", None, text.to_owned());
    let [keyless] = &*report.undecided_reasons else { panic!("{report}") };
    assert_eq!((report.admitted, keyless.attribute.as_deref(), keyless.lines), (3, Some("key"), 1));
}

#[test]
fn changes_are_the_difference_of_the_refusals_of_both_policies() {
    for seed in 0..20 {
        let mut random = Random::new(100 + seed);
        let all = entries(&mut random, 600);
        let (new, old) = (random.choose(&POLICIES), random.choose(&POLICIES));
        let report = run(new, Some(old), Written::Json.write(&all));
        let (now, before) = (refusals(policy(new), &all), refusals(policy(old), &all));
        let against = report.against.as_ref().expect("there is another policy");
        let case = format!("seed {seed}: {new} against {old}");
        expect(&report, &all, &now, &case);
        assert_eq!(against.refused, before.iter().flatten().count() as u64, "{case}");
        let only = |one: &[Option<String>], other: &[Option<String>]| -> Vec<Option<String>> {
            one.iter().zip(other).filter(|(_, other)| other.is_none()).map(|(one, _)| one.clone()).collect()
        };
        let (newly_refused, newly_admitted) = (only(&now, &before), only(&before, &now));
        for (change, truth) in [(&against.newly_refused, newly_refused), (&against.newly_admitted, newly_admitted)] {
            assert_eq!(change.count, truth.iter().flatten().count() as u64, "{case}");
            assert_eq!(counted(&change.rules), by_rule(&truth), "{case}");
            if change.keys.len() < 20 {
                assert_eq!(sum_by_rule(&change.keys), by_rule(&truth), "{case}");
            }
            assert_eq!(change.examples.len() as u64, change.count.min(5), "{case}");
        }
        let in_bins = report.timeline.bins.iter().map(|bin| (bin.newly_refused, bin.newly_admitted));
        let sums = in_bins.fold((0, 0), |(refused, admitted), (more, others)| (refused + more, admitted + others));
        assert_eq!(sums, (against.newly_refused.count, against.newly_admitted.count), "{case}");
    }
}

#[test]
fn lines_out_of_order_are_decided_at_their_times() {
    for seed in 0..6 {
        let mut random = Random::new(200 + seed);
        // Equal times keep the order of the log, so none are equal here.
        let mut all = entries(&mut random, 20_000);
        all.iter_mut().enumerate().for_each(|(number, entry)| entry.at += number as u64 * 1_000);
        let shuffled = disordered(&all, 60, &mut random);
        let new = POLICIES[seed as usize];
        let report = run(new, None, Written::Json.write(&shuffled));
        expect(&report, &all, &refusals(policy(new), &all), &format!("seed {seed}: {new}"));
    }
}

#[test]
fn a_line_that_comes_too_late_is_counted_and_decided_at_the_time_reached() {
    let mut text = String::new();
    for second in 0..10_000 {
        text += &format!("{{\"time\": {}, \"user\": \"a\"}}\n", 1_000_000 + second);
    }
    text += "{\"time\": 1000000, \"user\": \"late\"}\n{\"time\": 1000001, \"user\": \"late\"}\n";
    let report = run("[rules.user]\nlimit = 'fixed 1/s'\nkey = ['user']\n", None, text);
    // By their own times both would pass; at one instant, only one of them.
    assert_eq!((report.late, report.admitted, report.refused), (2, 10_001, 1));
    assert!(report.late_by_us > 0);
    assert_eq!(report.refused_keys[0].key, "late");
    assert!(report.to_string().contains("2 lines were late"), "{report}");
}

#[test]
fn several_logs_are_read_in_the_order_of_their_times_whatever_order_they_come_in() {
    let mut random = Random::new(7);
    let all = entries(&mut random, 30_000);
    let new = POLICIES[0];
    let truth = refusals(policy(new), &all);
    let source = |number: usize, entries: &[Entry]| {
        Source::stream(format!("log {number}"), std::io::Cursor::new(Written::Json.write(entries)))
    };
    // Rotated, the newest first; and from two hosts, each with half of it.
    let (early, late) = all.split_at(14_000);
    let half = |odd: usize| -> Vec<Entry> {
        all.iter().enumerate().filter(|(n, _)| n % 2 == odd).map(|(_, e)| e.clone()).collect()
    };
    for logs in [vec![source(0, late), source(1, early)], vec![source(0, &half(0)), source(1, &half(1))]] {
        let report = Replay::new(policy(new)).run(logs).expect("they can be read");
        assert_eq!(report.late, 0);
        assert_eq!(report.lines, 30_000);
        // Lines of one instant may be taken in another order.
        let refused = truth.iter().flatten().count() as u64;
        assert!(report.refused.abs_diff(refused) <= refused / 50, "{} and {refused}", report.refused);
    }
}

#[test]
fn fields_map_to_the_configured_attributes() {
    let text = r#"{"when":"2024-01-01T00:00:00Z","who":{"name":"alice","org.id":7},"w":3,"rid":"a"}
{"when":"2024-01-01T00:00:00Z","who":{"name":"alice","org.id":7},"w":3,"rid":"a"}
{"when":"2024-01-01T00:00:00Z","who":{"name":"bob","org.id":7},"w":2,"rid":"b"}
{"when":"2024-01-01T00:00:00Z","who":{"name":"alice","org.id":7},"w":1,"rid":"a"}
"#;
    let mapped = |id: bool| {
        let mut replay = Replay::new(policy("[rules.user]\nlimit = '3/min'\nkey = ['user']\n"))
            .map("time", "when")
            .map("user", "who.name")
            .map("cost", "w");
        if id {
            replay = replay.map("id", "rid");
        }
        replay.run([Source::stream("log", text.as_bytes())]).expect("it can be read")
    };
    let report = mapped(false);
    assert_eq!((report.admitted, report.refused), (2, 2));
    // An id seen before is charged once; with another cost it is an error.
    let report = mapped(true);
    assert_eq!((report.admitted, report.refused, report.repeated, report.undecided), (3, 0, 1, 1));
    let reused = &report.undecided_reasons[0];
    assert_eq!((reused.reason, reused.lines, reused.example.line), ("id-reused", 1, 4));
    assert!(reused.example.reason.contains("was used for another request"), "{reused:?}");
}

#[test]
fn an_attribute_that_no_line_has_is_told() {
    let report = run(
        "[rules.tenant]\nlimit = '1/s'\nkey = ['tenant']\n",
        None,
        Written::Csv.write(&entries(&mut Random::new(1), 5)),
    );
    assert_eq!(report.missing, ["tenant"]);
    assert!(report.to_string().contains("--map tenant=FIELD"), "{report}");
    let replay = Replay::new(policy(POLICIES[0])).map("usr", "name");
    let report = replay.run([Source::stream("log", &b""[..])]).expect("it can be read");
    assert_eq!(report.unused, ["usr"]);
}

#[test]
fn headroom_is_what_the_busiest_keys_used_at_their_peak() {
    let mut text = String::from("time,user\n");
    for (user, requests) in [("a", 1), ("b", 5), ("c", 10), ("d", 11)] {
        (0..requests).for_each(|_| text += &format!("2024-01-01T00:00:00Z,{user}\n"));
    }
    let report = run("[rules.user]\nlimit = 'fixed 10/h'\nkey = ['user']\n", None, text);
    let limit = &report.limits[0];
    assert_eq!((limit.asked, limit.refused, limit.keys, limit.is_exact), (27, 1, 4, true));
    let nearest: Vec<(&str, u16)> = limit.nearest.iter().map(|near| (&*near.key, near.peak)).collect();
    assert_eq!(nearest, [("d", 1_001), ("c", 1_000), ("b", 500), ("a", 100)]);
    assert_eq!((limit.peak_median, limit.peak_most), (1_000, 1_001));
    assert_eq!(limit.peaks, [0, 250, 0, 0, 0, 250, 0, 0, 0, 250, 250]);
}

#[test]
fn shadows_and_candidates_are_counted_apart() {
    let text = "time,user\n".to_owned() + &"2024-01-01T00:00:00Z,a\n".repeat(5);
    let report = run("[rules.user]\nlimit = '4/h'\nkey = ['user']\ncandidate = '2/h'\n", None, text);
    let limits: Vec<_> =
        report.limits.iter().map(|limit| (&*limit.rule, limit.shadow, limit.asked, limit.refused)).collect();
    assert_eq!(limits, [("user", false, 5, 1), ("user (candidate)", true, 5, 3)]);
    assert_eq!((report.admitted, report.refused), (4, 1));
}
