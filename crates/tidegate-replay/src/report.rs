//! What a replay found: plain data, for people and for machines.

mod chart;
mod gate;
mod html;
mod text;
mod words;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::format::Format;
use crate::search::Smallest;
use crate::share::Share;
use crate::source::Compression;
use crate::when::Utc;

pub(crate) use words::{in_words, short};

/// Broken lines, refusals and changes that are shown, of each kind.
pub const MAX_EXAMPLES: usize = 5;

/// What a policy would have done.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// What the policies are called, and in which rules they differ.
    pub titles: Titles,
    /// Lines that were read, the broken ones included.
    pub lines: u64,
    /// Lines that could not be understood, and were left out.
    pub broken: u64,
    /// The first of those.
    pub broken_examples: Vec<Broken>,
    /// Lines that came after later ones by more than are held back: they were
    /// decided at the time that was reached by then.
    pub late: u64,
    /// By how much the latest of them was late.
    pub late_by_us: u64,
    /// When the log begins and ends.
    pub span: Option<Span>,
    /// What was read.
    pub sources: Vec<SourceReport>,
    /// Attributes that a policy asks for or a field was named for, and no line has.
    pub missing: Vec<String>,
    /// Attributes that fields were named for, and no policy asks for.
    pub unused: Vec<String>,

    /// Requests that pass.
    pub admitted: u64,
    /// Requests that do not.
    pub refused: u64,
    /// Those of them whose cost can never pass.
    pub impossible: u64,
    /// Requests whose id was seen before: they pass, and are charged once.
    pub repeated: u64,
    /// Requests that the policy could not decide, such as those that lack an
    /// attribute of a rule's key: neither admitted nor refused.
    pub undecided: u64,
    /// Why, the most frequent reason first.
    pub undecided_reasons: Vec<UndecidedReport>,
    /// Refused, by the rule that bound.
    pub rules: Vec<RuleReport>,
    /// Who is refused most.
    pub refused_keys: Vec<KeyReport>,
    /// The first that are refused, where there is no other policy.
    pub refused_examples: Vec<Example>,
    /// Each limit by itself: how near keys come to it.
    pub limits: Vec<LimitReport>,
    /// The most requests that were in flight at once, of all keys; zero without durations.
    pub most_in_flight: u64,
    /// Requests that could not be settled when they ended, as more were in flight than are
    /// remembered: they stay charged as estimated, and their permits expire.
    pub unsettled: u64,
    /// Requests that shared a state for want of room: above zero, more are
    /// refused than need be, and there should be room for more keys.
    pub overflowed: u64,

    /// What differs from the other policy, if there is one.
    pub against: Option<Against>,
    /// When it happened.
    pub timeline: Timeline,
    /// The share that the smallest limits were searched for.
    pub at_most: Option<Share>,
    /// The share of lines that need not be read and decided.
    pub tolerate: Share,
    /// Why the report is no answer, if too much of the log could not be read or
    /// decided: what happened, examples, and what to do, on several lines.
    pub inconclusive: Option<String>,
    /// Whether the search had only the first part of the log to go by.
    pub search_is_partial: bool,
    /// How long it took.
    pub timings: Timings,
}

/// What policies are called, for the report.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Titles {
    /// The policy that decides; empty without a name.
    pub policy: String,
    /// The policy that it is compared with; empty without one.
    pub against: String,
    /// What differs, a line for each rule.
    pub changes: Vec<String>,
}

/// When a log begins and ends.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Span {
    /// The first instant.
    pub from: Utc,
    /// The last.
    pub to: Utc,
}

/// Requests that a policy could not decide, for one reason.
#[derive(Clone, Debug, Serialize)]
pub struct UndecidedReport {
    /// The reason, as the server has it in metrics and problem documents:
    /// `missing-attribute`.
    pub reason: &'static str,
    /// The rule, if it is one rule's.
    pub rule: Option<String>,
    /// The attribute, if it is about one.
    pub attribute: Option<String>,
    /// How many.
    pub lines: u64,
    /// The first of them.
    pub example: Broken,
}

/// A line that was left out.
#[derive(Clone, Debug, Serialize)]
pub struct Broken {
    /// Where it is.
    pub source: String,
    /// The number of the line.
    pub line: u64,
    /// What is wrong.
    pub reason: String,
    /// How it begins.
    pub text: String,
}

/// A log that was read.
#[derive(Clone, Debug, Serialize)]
pub struct SourceReport {
    /// Its name.
    pub name: String,
    /// What its lines look like.
    pub format: Format,
    /// How it is compressed.
    pub compression: Compression,
    /// Its lines.
    pub lines: u64,
    /// Those that could not be understood.
    pub broken: u64,
    /// Why it could not be read to its end.
    pub problem: Option<String>,
}

/// What a rule refused.
#[derive(Clone, Debug, Serialize)]
pub struct RuleReport {
    /// Its name.
    pub rule: String,
    /// Requests that it refused, when it was the one that bound.
    pub refused: u64,
}

/// Whom a rule refused, and how often.
#[derive(Clone, Debug, Serialize)]
pub struct KeyReport {
    /// The rule.
    pub rule: String,
    /// The key.
    pub key: String,
    /// How often, at most.
    pub count: u64,
    /// By how much that may be too high: zero unless very many are refused.
    pub error: u64,
    /// The attributes of the first such request, where two policies differ.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
}

/// A request, and the rule that refuses it.
#[derive(Clone, Debug, Serialize)]
pub struct Example {
    /// When it was decided.
    pub at: Utc,
    /// Where it is.
    pub source: String,
    /// The number of its line.
    pub line: u64,
    /// The rule.
    pub rule: String,
    /// Whose limit it was.
    pub key: String,
    /// What the policies know of it.
    pub attributes: BTreeMap<String, String>,
}

/// One limit: what it was asked, and how near keys came to it.
#[derive(Clone, Debug, Serialize)]
pub struct LimitReport {
    /// Its rule.
    pub rule: String,
    /// In words.
    pub limit: String,
    /// Whether it only watches.
    pub shadow: bool,
    /// Requests that it applied to.
    pub asked: u64,
    /// Those that it refused, also if other rules did.
    pub refused: u64,
    /// The most permits that a key held at once, of a limit on requests in flight.
    pub most_in_flight: Option<u64>,
    /// The longest debt: how long a key had to wait for another unit when a request had ended
    /// that cost more than its estimate, in microseconds.
    pub longest_debt_us: u64,
    /// How many keys it had.
    pub keys: u64,
    /// Whether that, and the shares of keys, are exact: they are for fewer than 2,048
    /// keys, and estimated from as many beyond.
    pub is_exact: bool,
    /// What the median key used of the limit at its peak, in thousandths; 1001
    /// is a key that was refused.
    pub peak_median: u16,
    /// The same for one key in ten.
    pub peak_p90: u16,
    /// The same for one key in a hundred.
    pub peak_p99: u16,
    /// The same for the busiest.
    pub peak_most: u16,
    /// Thousandths of the keys, by the tenth of the limit that they used at
    /// their peak; the last are the refused ones.
    pub peaks: [u16; 11],
    /// Who came nearest.
    pub nearest: Vec<NearReport>,
    /// The smallest limit that would refuse few enough, if one was searched for.
    pub smallest: Option<Smallest>,
}

impl LimitReport {
    /// What requests that last did to it, in words.
    fn lasting(&self) -> Vec<String> {
        let permits = self.most_in_flight.map(|most| format!("{} in flight for one key, at most", words::count(most)));
        let debt = (self.longest_debt_us > 0).then(|| {
            let wait = words::duration(Duration::from_micros(self.longest_debt_us));
            format!("a key in debt waits up to {wait} for the next unit")
        });
        permits.into_iter().chain(debt).collect()
    }
}

/// A key, and how near it came to its limit.
#[derive(Clone, Debug, Serialize)]
pub struct NearReport {
    /// The key.
    pub key: String,
    /// What it used at its peak, in thousandths; 1001 if it was refused.
    pub peak: u16,
}

/// What differs from another policy.
#[derive(Clone, Debug, Serialize)]
pub struct Against {
    /// What the other lets pass.
    pub admitted: u64,
    /// What it does not.
    pub refused: u64,
    /// What it could not decide.
    pub undecided: u64,
    /// Why, the most frequent reason first.
    pub undecided_reasons: Vec<UndecidedReport>,
    /// Refused, by the rule that bound.
    pub rules: Vec<RuleReport>,
    /// Requests that used to pass, and would not.
    pub newly_refused: Change,
    /// Requests that used to be refused, and would pass.
    pub newly_admitted: Change,
}

/// Requests that are decided differently.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    /// How many.
    pub count: u64,
    /// By the rule that refuses or refused them.
    pub rules: Vec<RuleReport>,
    /// Whom it concerns most.
    pub keys: Vec<KeyReport>,
    /// The first of them.
    pub examples: Vec<Example>,
}

/// What happened when, in bins of equal width.
#[derive(Clone, Debug, Serialize)]
pub struct Timeline {
    /// The width of each.
    pub width_us: u64,
    /// The rules of `by_rule`, in order.
    pub rules: Vec<String>,
    /// The bins, without a gap.
    pub bins: Vec<BinReport>,
}

/// One bin.
#[derive(Clone, Debug, Serialize)]
pub struct BinReport {
    /// When it begins.
    pub at: Utc,
    /// Requests that pass.
    pub admitted: u64,
    /// Requests that do not.
    pub refused: u64,
    /// Those that used to pass.
    pub newly_refused: u64,
    /// Those that pass and used not to.
    pub newly_admitted: u64,
    /// Refused by each rule.
    pub by_rule: Vec<u64>,
}

/// How long it took.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Timings {
    /// The decisions, and counting them: processor time, where the system tells it.
    pub decided_us: u64,
    /// The same and reading the log.
    pub processor_us: u64,
    /// The search for the smallest limits.
    pub searched_us: u64,
    /// All of it, on the clock on the wall.
    pub whole_us: u64,
}

impl Report {
    /// Requests that were read, the undecided ones included.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.admitted + self.refused + self.undecided
    }

    /// Whether more of what was decided is refused than the share that was asked
    /// for. Says nothing if the report is [inconclusive](Report::inconclusive).
    #[must_use]
    pub fn refuses_too_many(&self) -> bool {
        self.at_most.is_some_and(|share| self.refused > share.of(self.admitted + self.refused))
    }

    /// The report as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data has no keys that are not text")
    }

    /// The report as one page of HTML, with everything in it.
    #[must_use]
    pub fn to_html(&self) -> String {
        html::page(self)
    }
}
