//! Lines of access logs.

use std::io::Cursor;
use std::sync::LazyLock;

use tidegate::Policy;
use tidegate_replay::{Format, Replay, Source};

static POLICIES: LazyLock<[Policy; 2]> = LazyLock::new(|| {
    let policy = |limit: &str| {
        let key = "key = ['ip', 'endpoint', 'user', 'query']\nmissing = 'shared'";
        let text = format!("[rules.endpoint]\nlimit = '{limit}'\n{key}\n");
        tidegate_config::parse(&text, tidegate_config::Format::Toml, "policy.toml".as_ref()).expect("a valid policy")
    };
    [policy("2/min"), policy("fixed 1/s")]
});

/// Every line of a log is decided, broken, or says nothing, in whichever format
/// it is read; what two policies decide adds up; and nothing that a log says is
/// more than text on the page.
pub fn access_log(input: &[u8]) {
    // The first byte says in which format the rest is read.
    let [format, log @ ..] = input else { return };
    let format = Format::ALL[usize::from(*format) % Format::ALL.len()];
    let [new, old] = LazyLock::force(&POLICIES).clone();
    let replay = Replay::new(new).against(old).format(format).map("id", "id").max_keys(64).held_back(2);
    let source = Source::stream("log", Cursor::new(log.to_vec()));
    let Ok(report) = replay.run([source]) else { return };
    let texts = log.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).count() as u64;
    let is_plain = report.sources[0].compression == tidegate_replay::Compression::None;
    assert!(!is_plain || report.lines <= texts, "{} of {texts} lines", report.lines);
    assert_eq!(report.lines, report.requests() + report.broken);
    let against = report.against.as_ref().expect("there are two policies");
    let (now, before) = (report.refused + against.newly_admitted.count, against.refused + against.newly_refused.count);
    assert!(report.undecided > 0 || against.undecided > 0 || now == before, "{now} and {before}");
    let in_bins: u64 = report.timeline.bins.iter().map(|bin| bin.admitted + bin.refused).sum();
    assert_eq!(in_bins, report.admitted + report.refused);
    assert!(!report.to_string().contains('\x1b'), "a log cannot speak to the terminal");
    assert!(!report.to_html().contains("<script"));
}
