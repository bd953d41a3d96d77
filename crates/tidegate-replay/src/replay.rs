//! From sources to a report: lines are read, held back until they are in
//! order, and decided by the real limiter in the log's own time.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tidegate::{ConfigError, Micros, Policy};

use crate::batch::{Batch, HELD_BACK};
use crate::decider::{Decider, Recorded};
use crate::draft::Draft;
use crate::error::ReplayError;
use crate::format::Format;
use crate::input::{Input, Inputs, Progress};
use crate::mapping::{Mapping, Plan};
use crate::processor;
use crate::report::{Report, Timings, Titles};
use crate::search::SearchError;
use crate::share::Share;
use crate::source::{MAX_SOURCES, Source};
use crate::spool::Spool;

/// Keys that a policy is decided with unless told otherwise.
const MAX_KEYS: usize = 1_000_000;

/// A log, decided by a policy.
///
/// ```
/// use tidegate::{Limit, Policy, Rule};
/// use tidegate_replay::{Replay, Source};
///
/// let log = "\
/// 192.0.2.7 - - [10/Oct/2000:13:55:36 +0000] \"GET / HTTP/1.1\" 200 512
/// 192.0.2.7 - - [10/Oct/2000:13:55:36 +0000] \"GET / HTTP/1.1\" 200 512
/// 192.0.2.8 - - [10/Oct/2000:13:55:37 +0000] \"GET / HTTP/1.1\" 200 512
/// ";
/// let policy = Policy::new().rule(Rule::new("address", Limit::per_minute(1)).key(["ip"]));
/// let report = Replay::new(policy).run([Source::stream("log", log.as_bytes())])?;
/// assert_eq!((report.lines, report.admitted, report.refused), (3, 2, 1));
/// assert_eq!(report.refused_keys[0].key, "192.0.2.7");
/// # Ok::<(), tidegate_replay::ReplayError>(())
/// ```
#[must_use = "a replay does nothing until it is run"]
pub struct Replay {
    policy: Policy,
    against: Option<Policy>,
    titles: Titles,
    mapping: Mapping,
    format: Option<Format>,
    at_most: Option<Share>,
    tolerate: Share,
    held_back: usize,
    max_keys: usize,
    progress: Option<Box<dyn FnMut(Progress)>>,
}

impl Replay {
    /// What this policy would have done.
    pub fn new(policy: impl Into<Policy>) -> Replay {
        Replay {
            policy: policy.into(),
            against: None,
            titles: Titles::default(),
            mapping: Mapping::default(),
            format: None,
            at_most: None,
            tolerate: Share::TOLERATED,
            held_back: HELD_BACK,
            max_keys: MAX_KEYS,
            progress: None,
        }
    }

    /// And what it would have done otherwise than this one.
    pub fn against(mut self, policy: impl Into<Policy>) -> Replay {
        self.against = Some(policy.into());
        self
    }

    /// What the report calls the policies.
    pub fn titles(mut self, titles: Titles) -> Replay {
        self.titles = titles;
        self
    }

    /// Takes a field of the log for an attribute of the requests.
    pub fn map(mut self, attribute: impl Into<String>, field: impl Into<String>) -> Replay {
        self.mapping = self.mapping.with(attribute, field);
        self
    }

    /// What the lines look like, where the first ones do not tell.
    pub fn format(mut self, format: Format) -> Replay {
        self.format = Some(format);
        self
    }

    /// Searches, for each limit, the smallest that would refuse at most this
    /// share of what it is asked.
    pub fn at_most(mut self, share: Share) -> Replay {
        self.at_most = Some(share);
        self
    }

    /// The share of lines that need not be read and decided: if more are lost, the
    /// report is [inconclusive](Report::inconclusive). [`Share::TOLERATED`] unless
    /// set.
    pub fn tolerate(mut self, share: Share) -> Replay {
        self.tolerate = share;
        self
    }

    /// How many lines are held back so that earlier ones can still come:
    /// [`HELD_BACK`] unless set.
    pub fn held_back(mut self, lines: usize) -> Replay {
        self.held_back = lines.min(1 << 20);
        self
    }

    /// How many live keys each policy has room for: 1,000,000 unless set.
    pub fn max_keys(mut self, keys: usize) -> Replay {
        self.max_keys = keys;
        self
    }

    /// Tells how far it has come, a few thousand lines at a time.
    pub fn progress(mut self, tell: impl FnMut(Progress) + 'static) -> Replay {
        self.progress = Some(Box::new(tell));
        self
    }

    /// Decides requests that were recorded, in the order in which they are given: there is no log, and
    /// each has all that it had.
    ///
    /// # Errors
    /// If there is no policy to decide by.
    pub fn run_recorded<'a>(self, requests: impl IntoIterator<Item = Recorded<'a>>) -> Result<Report, ConfigError> {
        let (began, ran) = (Instant::now(), processor::time());
        let plan = Plan::new(&self.mapping, &BTreeSet::new());
        let mut decider = Decider::new((self.policy, self.against), &plan, Vec::new(), (self.max_keys, None))?;
        decider.timed(|decider| {
            requests.into_iter().for_each(|request| decider.decide_recorded(request));
            decider.settle_until(Micros::MAX);
        });
        let ran = processor::time().saturating_sub(ran);
        let timings = Timings::new((decider.took, ran), Duration::ZERO, began.elapsed());
        let mut report = Report::new(&decider, (Vec::new(), false), (None, self.tolerate), timings);
        (report.titles, report.lines) = (self.titles, decider.decided);
        Ok(report)
    }

    /// Reads the sources, side by side in the order of their times, and
    /// decides every line.
    ///
    /// # Errors
    /// If there is nothing to read, or no policy to decide by; never because of
    /// what a line says.
    pub fn run(self, sources: impl IntoIterator<Item = Source>) -> Result<Report, ReplayError> {
        let (began, ran) = (Instant::now(), processor::time());
        let Replay { policy, against, titles, mapping, format, at_most, tolerate, held_back, max_keys, mut progress } =
            self;
        let attributes: BTreeSet<String> = [Some(&policy), against.as_ref()]
            .into_iter()
            .flatten()
            .flat_map(Policy::attributes)
            .map(str::to_owned)
            .collect();
        let plan = Plan::new(&mapping, &attributes);
        let sources: Vec<Source> = sources.into_iter().collect();
        if sources.len() > MAX_SOURCES {
            return Err(ReplayError::TooManySources { count: sources.len() });
        }
        let inputs = sources.into_iter().map(|source| Input::open(source, format, &plan));
        let mut inputs = Inputs::new(inputs.collect::<Result<_, _>>()?);
        let spool = at_most.map(|_| Spool::new()).transpose().map_err(SearchError::Spool)?;
        let mut decider = Decider::new((policy, against), &plan, inputs.names(), (max_keys, spool))?;
        let (mut batch, mut later) = (Batch::new(&plan, held_back), Batch::new(&plan, held_back));
        let mut draft = Draft::new(&plan);
        while inputs.read(&plan, &mut draft, &mut batch) {
            decider.timed(|decider| batch.decide(&mut later, |record| decider.decide(record)));
            if let Some(tell) = &mut progress {
                tell(inputs.progress(false));
            }
        }
        decider.timed(|decider| {
            batch.decide_all(|record| decider.decide(record));
            decider.settle_until(Micros::MAX);
        });
        if let Some(tell) = &mut progress {
            tell(inputs.progress(at_most.is_some()));
        }
        let (searches, ran) = (Instant::now(), processor::time().saturating_sub(ran));
        let smallest = decider.search(at_most, max_keys)?;
        let timings = Timings::new((decider.took, ran), searches.elapsed(), began.elapsed());
        let mut report = Report::new(&decider, smallest, (at_most, tolerate), timings);
        (report.titles, report.unused) = (titles, mapping.unused(&attributes));
        inputs.tell(&mut report);
        report.inconclusive = report.shortfall();
        Ok(report)
    }
}
