//! Lines that tell how long requests lasted and what they cost: reservations.

use std::fmt::Write;

use tidegate_replay::{MAX_IN_FLIGHT, Replay, Report, Source, Utc};
use tidegate_testkit::Random;

use tidegate::Micros;

use crate::reference::policy;

const START: u64 = 1_700_000_000_000_000;

fn replay(rules: &str, maps: &[(&str, &str)], log: &str) -> Report {
    let replay = maps.iter().fold(Replay::new(policy(rules)), |replay, (name, field)| replay.map(*name, *field));
    replay.run([Source::stream("log", std::io::Cursor::new(log.to_owned()))]).unwrap_or_else(|error| panic!("{error}"))
}

/// A request of a key: when it came, and how long it lasted, in milliseconds.
type Run = (u64, u64, u64);

/// How many intervals of a key, or of all keys, cover an instant.
fn covering(intervals: &[Run], key: Option<u64>, at: u64) -> u64 {
    let covers = |run: &&Run| key.is_none_or(|key| run.0 == key) && (run.1..run.1 + run.2).contains(&at);
    intervals.iter().filter(covers).count() as u64
}

#[test]
fn in_flight_requests_match_a_manual_count() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let (permits, expiry) = (random.within(1..=6), random.within(500..=4_500));
        let mut runs: Vec<Run> =
            (0..400).map(|_| (random.within(0..=2), random.within(0..=20_000), random.within(1..=3_000))).collect();
        // A log has its lines by the ends of requests.
        runs.sort_by_key(|(_, at, lasts)| at + lasts);
        let log = runs.iter().fold(String::new(), |mut log, (key, at, lasts)| {
            let (end, seconds) = (Utc(Micros::new(START + (at + lasts) * 1_000)), *lasts as f64 / 1_000.0);
            let _ = writeln!(log, r#"{{"time_iso8601":"{end}","key":"{key}","request_time":{seconds}}}"#);
            log
        });
        let rules = format!("[rules.at-once]\nlimit = 'in-flight {permits} for {expiry}ms'\n");
        let report = replay(&rules, &[("duration", "request_time")], &log);

        runs.sort_by_key(|(_, at, _)| *at);
        let (mut held, mut run): (Vec<Run>, Vec<Run>) = (Vec::new(), Vec::new());
        let (mut most_held, mut most_run) = (0, 0);
        for (key, at, lasts) in runs {
            if covering(&held, Some(key), at) < permits {
                held.push((key, at, lasts.min(expiry)));
                run.push((key, at, lasts));
                most_held = most_held.max(covering(&held, Some(key), at));
                most_run = most_run.max(covering(&run, None, at));
            }
        }
        assert!(most_held <= permits);
        assert_eq!((report.admitted, report.late, report.unsettled), (run.len() as u64, 0, 0), "seed {seed}");
        assert_eq!(report.limits[0].most_in_flight, Some(most_held), "seed {seed}");
        assert_eq!(report.most_in_flight, most_run, "seed {seed}");
    }
}

#[test]
fn every_format_tells_how_long_requests_lasted() {
    // The first lasts from 0 s to 2 s, the second from 1 s to 3 s, the third from 2 s on.
    let nginx = r#"192.0.2.1 - - [29/Feb/2024:12:00:02 +0000] "GET / HTTP/1.1" 200 5 "-" "curl" "-" 2.000
192.0.2.1 - - [29/Feb/2024:12:00:03 +0000] "GET / HTTP/1.1" 200 5 "-" "curl" "10.0.0.1" rt=2.000 urt="1.9"
192.0.2.1 - - [29/Feb/2024:12:00:04 +0000] "GET / HTTP/1.1" 200 5 "-" "curl" 2.000
"#;
    let apache = nginx.replace(":02 ", ":00 ").replace(":03 ", ":01 ").replace(":04 ", ":02 ");
    let line = |second: u64| {
        format!(r#"[2024-02-29T12:00:0{second}Z] "GET / HTTP/1.1" 200 - 0 5 2000 - "192.0.2.1" "a" "i" "h" "u""#)
    };
    let envoy = [0, 1, 2].map(line).join("\n");
    let line = |end: u64| format!(r#"{{"ts":{},"remote_ip":"192.0.2.1","duration":2.0}}"#, 1_709_208_000 + end);
    let caddy = [2, 3, 4].map(line).join("\n");
    let line = |second: u64| format!("2024-02-29T12:00:0{second}Z,192.0.2.1,2000000000");
    let traefik = format!("StartUTC,ClientHost,Duration\n{}\n", [0, 1, 2].map(line).join("\n"));
    let rules = "[rules.at-once]\nlimit = 'in-flight 1 for 1h'\nkey = ['ip']\n";
    for (maps, log) in [
        (&[("duration", "request_time")][..], nginx),
        (&[("duration", "duration"), ("start", "time")], &apache),
        (&[("duration_ms", "duration")], &envoy),
        (&[("duration", "duration")], &caddy),
        (&[("duration_ns", "Duration")], &traefik),
    ] {
        let report = replay(rules, maps, log);
        assert_eq!((report.admitted, report.refused, report.most_in_flight), (2, 1, 1), "{log}{report}");
        assert_eq!(report.refused_examples[0].at.to_string(), "2024-02-29T12:00:01Z", "{log}");
        assert!(report.to_string().contains("at once: 1\n  at-once: 1 in flight for one key, at most\n"), "{report}");
    }
    // Without durations, permits are held until they expire.
    let report = replay(rules, &[], nginx);
    assert_eq!((report.admitted, report.most_in_flight), (1, 0));
    assert!(report.to_string().contains("name the field by --map duration=FIELD, or duration_ms=FIELD"), "{report}");
}

#[test]
fn a_request_is_settled_to_its_actual_cost() {
    let log = "time,user,tokens,used,seconds\n0,a,400,1000,1\n2,a,100,100,1\n20,a,600,200,1\n22,a,500,500,1\n";
    let rules = "[rules.tokens]\nlimit = 'sliding-log 1000/10s'\nkey = ['user']\n";
    let maps = [("cost", "tokens"), ("actual", "used"), ("duration", "seconds"), ("start", "time")];
    let report = replay(rules, &maps, log);
    // The second finds nothing left; the fourth finds what the third gave back.
    assert_eq!((report.admitted, report.refused), (3, 1), "{report}");
    assert_eq!(report.limits[0].longest_debt_us, 9_000_000);
    assert!(report.to_string().contains("  tokens: a key in debt waits up to 9 s for the next unit\n"), "{report}");
    assert!(report.to_html().contains("a key in debt waits up to 9 s for the next unit"));
    // By the estimates alone, it is the fourth.
    let report = replay(rules, &[("cost", "tokens")], log);
    assert_eq!((report.admitted, report.refused_examples[0].line), (3, 5));
    // Without durations, an actual cost is known at once.
    let report = replay(rules, &[("cost", "tokens"), ("actual", "used")], log);
    assert_eq!((report.admitted, report.refused_examples[0].line, report.unsettled), (3, 3, 0));
}

#[test]
fn requests_beyond_the_in_flight_bound_are_counted_and_not_settled() {
    let lines = MAX_IN_FLIGHT as u64 + 1_000;
    let line = |number: u64| format!("{}.{:06},{number},3600\n", number / 1_000, number % 1_000 * 1_000);
    let log = "time,user,s\n".to_owned() + &(0..lines).map(line).collect::<String>();
    let rules = "[rules.at-once]\nlimit = 'in-flight 1 for 2h'\nkey = ['user']\n";
    let report = replay(rules, &[("duration", "s"), ("start", "time")], &log);
    assert_eq!((report.admitted, report.most_in_flight), (lines, MAX_IN_FLIGHT as u64));
    // The store has as much room, and some of its shards are full a little sooner.
    assert!((1_000..10_000).contains(&report.unsettled), "{}", report.unsettled);
    assert!(report.to_string().contains("requests could not be settled"), "{report}");
}

#[test]
fn both_policies_settle_what_they_admitted() {
    let log = "time,user,s\n0,a,2\n1,a,2\n2,a,2\n3,a,2\n";
    let rules = |permits: u64| format!("[rules.at-once]\nlimit = 'in-flight {permits} for 1h'\nkey = ['user']\n");
    let replay = Replay::new(policy(&rules(1))).against(policy(&rules(2))).map("duration", "s").map("start", "time");
    let report = replay.run([Source::stream("log", log.as_bytes())]).unwrap_or_else(|error| panic!("{error}"));
    let against = report.against.as_ref().unwrap_or_else(|| panic!("{report}"));
    assert_eq!((report.admitted, against.admitted, against.newly_refused.count), (2, 4, 2));
}

#[test]
fn durations_that_are_none_break_their_lines_and_a_field_that_no_line_has_is_told() {
    let log = "time,user,s\n1,a,-1\n2,a,x\n3,a,1e9\n4,a,NaN\n5,a,1e-3\n6,a,-\n";
    let report = replay("[rules.ip]\nlimit = '5/s'\nkey = ['user']\n", &[("duration", "s")], log);
    assert_eq!((report.broken, report.admitted), (4, 2), "{report}");
    assert!(
        report.broken_examples[0].reason.starts_with("the duration \"-1\" is not a number from 0 to 49 days: name")
    );
    let json = "{\"time\":1,\"user\":\"a\"}\n";
    let report =
        replay("[rules.ip]\nlimit = '5/s'\nkey = ['user']\n", &[("duration", "seconds"), ("actual", "b")], json);
    assert_eq!(report.missing, ["duration", "actual"]);
    assert!(report.to_string().contains("note: no line has \"duration\", which is needed"), "{report}");
}

#[test]
fn a_column_that_is_named_and_not_there_is_an_error_with_the_columns_that_are() {
    let log = "time,user,s\n1,a,1\n";
    let replay = Replay::new(policy("[rules.ip]\nlimit = '5/s'\nkey = ['user']\n")).map("duration", "seconds");
    let error = replay.run([Source::stream("log", std::io::Cursor::new(log))]).expect_err("there is no such column");
    assert_eq!(error.to_string(), "the format csv has no field \"seconds\", but: time, user, s");
}

#[test]
fn csv_is_known_by_the_end_of_its_name() {
    let log = "when,user\n1,a\n";
    let run = |name: &str| {
        let replay = Replay::new(policy("[rules.ip]\nlimit = '5/s'\nkey = ['user']\n")).map("time", "when");
        replay.run([Source::stream(name, std::io::Cursor::new(log))])
    };
    assert!(run("log").is_err(), "nothing tells what it is");
    assert_eq!(run("log.csv").map(|report| report.admitted).unwrap_or_default(), 1);
}
