//! No line stops a replay, whatever it is.

use std::io::{Cursor, Write};

use tidegate_replay::{Format, MAX_LINE_BYTES, Replay, ReplayError, Report, Source};
use tidegate_testkit::Random;

use crate::generated::{Written, entries};
use crate::reference::policy;

const POLICY: &str = "[rules.address]\nlimit = '5/min'\nkey = ['ip']\nmatch = { path = { prefix = '/' } }\n";

fn run(bytes: impl Into<Vec<u8>>) -> Result<Report, ReplayError> {
    Replay::new(policy(POLICY)).run([Source::stream("log", Cursor::new(bytes.into()))])
}

#[test]
fn broken_lines_are_counted_shown_and_left_out() {
    for written in Written::ALL {
        let good = written.write(&entries(&mut Random::new(1), 50));
        let whole = run(good.clone()).expect("it can be read");
        let junk: [&[u8]; 5] = [
            b"\x00\xff\x16\x03\x01 binary \xc3\x28",
            b"not a line of any log",
            b"192.0.2.1 - - [31/Dec/1969:23:59:59 +0000] \"GET / HTTP/1.1\" 200 1",
            b"{\"time\": \"2024-02-30T00:00:00Z\"}",
            b"[yesterday] \"GET / HTTP/1.1\" 200 - 0 0 0 0",
        ];
        let mut spoilt = Vec::new();
        for (number, line) in good.lines().enumerate() {
            spoilt.extend_from_slice(line.as_bytes());
            spoilt.push(b'\n');
            if number % 10 == 5 {
                spoilt.extend_from_slice(junk[number / 10]);
                spoilt.extend_from_slice(b"\n\n   \n");
            }
        }
        spoilt.extend(std::iter::repeat_n(b'x', MAX_LINE_BYTES + 1));
        let report = run(spoilt).expect("it can be read");
        assert_eq!(report.broken, 6, "{written:?}: {:?}", report.broken_examples);
        assert_eq!((report.admitted, report.refused), (whole.admitted, whole.refused), "{written:?}");
        assert_eq!(report.lines, report.requests() + report.broken);
        assert_eq!(report.broken_examples.len(), 5, "the first few are shown");
        let first = &report.broken_examples[0];
        assert_eq!((&*first.source, first.line), ("log", 7));
        assert!(!first.reason.is_empty() && !first.text.contains('\0'), "{first:?}");
        assert!(report.to_string().contains(&format!("log:{}: ", first.line)), "{report}");
    }
}

#[test]
fn times_that_limits_do_not_know_are_told_as_such() {
    let text =
        "time,user\n1969-12-31T23:59:59Z,a\n2024-02-29T00:00:00Z,a\n2023-02-29T00:00:00Z,a\n2112-12-31T00:00:00Z,a\n";
    let report = run(text).expect("it can be read");
    let reasons: Vec<&str> = report.broken_examples.iter().map(|broken| &*broken.reason).collect();
    assert_eq!((report.admitted, reasons.len()), (1, 3));
    assert!(
        reasons[0].contains("before 1970")
            && reasons[1].contains("cannot be read")
            && reasons[2].contains("after 2112")
    );
}

/// Lines of JSON: so many that can be decided, broken ones, and some without the key attribute.
fn mixed(good: usize, broken: usize, undecided: usize) -> String {
    "{\"time\": 1, \"user\": \"a\"}\n".repeat(good)
        + &"{\"time\": \n".repeat(broken)
        + &"{\"time\": 1, \"path\": \"/\"}\n".repeat(undecided)
}

#[test]
fn a_report_is_inconclusive_if_more_lines_are_lost_than_tolerated() {
    let by_user = "[rules.user]\nlimit = '1000/min'\nkey = ['user']\n";
    for ((good, broken, undecided), tolerate, is_answer) in [
        ((95, 5, 0), "5%", true),
        ((95, 0, 5), "5%", true),
        ((95, 2, 3), "5%", true),
        ((94, 6, 0), "5%", false),
        ((94, 0, 6), "5%", false),
        ((94, 3, 3), "5%", false),
        ((19, 1, 0), "5%", true),
        ((18, 1, 0), "5%", false),
        ((999, 1, 0), "0%", false),
        ((1, 98, 1), "99%", true),
        ((0, 99, 1), "100%", false),
        ((1, 0, 0), "0%", true),
    ] {
        let case = format!("{good} good, {broken} broken, {undecided} undecided, {tolerate}");
        let replay = Replay::new(policy(by_user)).tolerate(tolerate.parse().expect("a share"));
        let text = mixed(good, broken, undecided);
        let report = replay.run([Source::stream("log", Cursor::new(text))]).expect("it can be read");
        let counts = (report.admitted, report.broken, report.undecided);
        assert_eq!(counts, (good as u64, broken as u64, undecided as u64), "{case}");
        assert_eq!(report.inconclusive.is_none(), is_answer, "{case}: {:?}", report.inconclusive);
    }
}

#[test]
fn an_inconclusive_report_says_how_many_lines_why_and_what_to_do() {
    let by_user = "[rules.user]\nlimit = '1000/min'\nkey = ['user']\n";
    let log = || Source::stream("log", Cursor::new(mixed(90, 3, 7)));
    let report = Replay::new(policy(by_user)).run([log()]).expect("it can be read");
    let why = report.inconclusive.as_deref().expect("a tenth is lost");
    for words in [
        "10 of 100 lines could not be read or decided, more than the 5% that are tolerated",
        "3 could not be read: log:91: not a JSON object",
        "7 could not be decided: log:94: rule \"user\": key attribute \"user\" is missing",
        "--format",
        "--map",
        "--tolerate",
    ] {
        assert!(why.contains(words), "{words}: {why}");
    }
    assert!(report.to_html().contains("<h1>10 of 100 lines could not be read or decided"));
    // The other policy must be able to decide as well.
    let plain = "[rules.all]\nlimit = '1000/min'\nkey = []\n";
    let report = Replay::new(policy(plain)).against(policy(by_user)).run([log()]).expect("it can be read");
    let old = report.against.as_ref().expect("there is another policy");
    assert_eq!((report.undecided, old.undecided, old.undecided_reasons[0].lines), (0, 7, 7));
    let why = report.inconclusive.as_deref().expect("there is nothing to compare with");
    assert!(why.contains("7 could not be decided by the policy to compare with: log:94"), "{why}");
}

#[test]
fn a_log_that_breaks_off_is_read_as_far_as_it_goes() {
    let text = Written::Combined.write(&entries(&mut Random::new(2), 20_000));
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).expect("a vector takes all");
    let gzip = encoder.finish().expect("a vector takes all");
    let zstd = ruzstd::encoding::compress_to_vec(text.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest);
    for whole in [gzip, zstd] {
        let report = run(whole.clone()).expect("it can be read");
        assert_eq!((report.requests(), report.sources[0].problem.as_ref()), (20_000, None));
        let report = run(&whole[..whole.len() / 2]).expect("half of it can be read");
        assert!(report.sources[0].problem.is_some() && report.broken <= 1);
        assert!((1_000..20_000).contains(&report.requests()), "{}", report.requests());
        assert!(report.to_string().contains("could not be read to its end"));
        let why = report.inconclusive.expect("the rest is unknown");
        assert!(why.starts_with("log could not be read to its end"), "{why}");
    }
}

#[test]
fn a_short_log_that_breaks_off_is_of_the_format_that_it_began_with() {
    for written in Written::ALL {
        let text = written.write(&entries(&mut Random::new(2), 50));
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).expect("a vector takes all");
        let whole = encoder.finish().expect("a vector takes all");
        // Without the last bytes, which are those of the checksum.
        let report = run(&whole[..whole.len() - 4]).expect("nearly all of it can be read");
        assert_eq!((report.requests(), report.broken), (50, 0), "{written:?}: {report}");
        assert!(report.sources[0].problem.is_some(), "{written:?}");
    }
    let error = run(&b"\x1f\x8b\x08\x00 nothing of it"[..]).map(|report| report.sources[0].problem.is_some());
    assert!(matches!(error, Ok(true)), "{error:?}");
}

#[test]
fn a_log_without_lines_is_inconclusive_and_one_of_no_known_format_is_an_error() {
    for empty in ["", "\n\n", "\u{feff}", "time,ip\n"] {
        let report = run(empty).expect("it can be read");
        assert_eq!((report.requests(), report.broken), (0, 0));
        assert!(!report.to_string().is_empty() && report.to_html().contains("<h1>0 lines were read"));
        assert!(report.inconclusive.is_some_and(|why| why.contains("0 lines were read")));
    }
    let error = run("what\nis this").expect_err("the format is unknown");
    assert!(error.to_string().contains("--format"), "{error}");
    let replay = Replay::new(policy(POLICY)).format(Format::Json);
    let report = replay.run([Source::stream("log", &b"what\nis this"[..])]).expect("the format is given");
    assert_eq!((report.requests(), report.broken), (0, 2));
}

#[test]
fn a_field_that_a_format_does_not_have_is_told_before_anything_is_read() {
    let log = Source::stream("log", Cursor::new(Written::Combined.write(&entries(&mut Random::new(1), 5))));
    let error = Replay::new(policy(POLICY))
        .map("tenant", "org")
        .map("path", "org")
        .run([log])
        .expect_err("there is no such field");
    assert!(error.to_string().contains("remote") || error.to_string().contains("ip, user, time"), "{error}");
    let error = Replay::new(policy(POLICY)).run([Source::path("/does/not/exist")]).expect_err("there is no such file");
    assert!(matches!(error, ReplayError::Unreadable { .. }));
}

#[test]
fn text_from_a_log_is_escaped_on_the_page() {
    let evil = "<script>alert(1)</script>&\"'";
    let path = format!("/{evil}");
    let mut text = String::new();
    for _ in 0..8 {
        text += &serde_json::json!({ "time": 1_700_000_000, "user": evil, "path": path, "method": evil }).to_string();
        text.push('\n');
    }
    text += "<script>broken\n";
    text += &serde_json::json!({ "time": 1_700_000_000, "ip": evil, "path": path }).to_string();
    let rules = format!("[rules.'{evil}x']\nlimit = '1/min'\nkey = ['user', 'path']\n", evil = "<script>");
    let old = "[rules.old]\nlimit = '5/min'\nkey = ['path']\n[lists]\ndeny = [{ ip = '192.0.2.1' }]\n";
    let log = Source::stream("<script>log", Cursor::new(text));
    let replay = Replay::new(policy(&rules)).against(policy(old)).at_most("1%".parse().expect("a share"));
    let report = replay.run([log]).expect("it can be read");
    assert!(report.refused > 0 && report.broken == 1);
    let old = report.against.as_ref().expect("there is another policy");
    assert_eq!((report.undecided, old.undecided), (1, 1), "it lacks a user, and its address is none");
    let page = report.to_html();
    assert!(!page.contains("<script"), "it is escaped");
    assert!(page.contains("&lt;script&gt;alert(1)"), "it is shown");
}
