//! The script's two ends: checks as its arguments, its reply as verdicts.
//!
//! The script only decides and moves states. What a decision says about
//! itself is computed here, from the state that the script found, by the same
//! kernels that decide in memory: there is no second copy to drift.

mod beside;
mod once;
mod sent;
mod told;

use std::sync::LazyLock;

use redis::{Cmd, Script, Value};
use tidegate::kernel::{Act, Charged, Kernel, LimitKernel, Log, Style, Verb, Verdict};
use tidegate::store::{Check, Kept, Purpose, Slice};
use tidegate::{Limit, Micros};

use crate::failure::RedisFailure;
use crate::state::{Form, encoded, numbers};

pub use beside::FormerStep;
use beside::{Beside, unit_and_ceiling};

pub use once::Once;
pub(crate) use once::charges;
use sent::{Note, Sent};
pub use told::Tell;

/// The scripts, as they are sent: `short` for buckets and windows, `long` for
/// everything. Read them here, or load them into the server beforehand.
#[must_use]
pub fn scripts() -> [(&'static str, &'static str); 2] {
    [("short", SHORT.text), ("long", LONG.text)]
}

static SHORT: LazyLock<Text> = LazyLock::new(|| Text::assembled(Length::Short));
static LONG: LazyLock<Text> = LazyLock::new(|| Text::assembled(Length::Long));

/// A script and its digest.
struct Text {
    text: &'static str,
    digest: String,
}

/// Which of the two scripts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// For buckets and windows.
    Short,
    /// For everything.
    Long,
}

impl Text {
    fn assembled(length: Length) -> Text {
        let text: &'static str = assemble(length, &PARTS.map(|(_, text)| text)).leak();
        Text { text, digest: Script::new(text).get_hash().to_owned() }
    }
}

/// What the scripts are made of, by file.
pub const PARTS: [(&str, &str); 9] = [
    ("head.lua", include_str!("../lua/head.lua")),
    ("bucket.lua", include_str!("../lua/bucket.lua")),
    ("window.lua", include_str!("../lua/window.lua")),
    ("once.lua", include_str!("../lua/once.lua")),
    ("log.lua", include_str!("../lua/log.lua")),
    ("custom.lua", include_str!("../lua/custom.lua")),
    ("tell.lua", include_str!("../lua/tell.lua")),
    ("former.lua", include_str!("../lua/former.lua")),
    ("slice.lua", include_str!("../lua/slice.lua")),
];

/// Puts the parts together. A mark stands for a kernel, and others before what
/// belongs to one of the scripts only.
pub fn assemble(length: Length, parts: &[&str; PARTS.len()]) -> String {
    let [head, bucket, window, once, log, custom, tell, former, slice] = *parts;
    let (own, other, more) = match length {
        Length::Short => ("--[[short]]", "--[[long]]", &[][..]),
        Length::Long => ("--[[long]]", "--[[short]]", &[once, log, custom, tell, former][..]),
    };
    let mut text = String::new();
    let lines = [&[head], more, &[slice]].concat().into_iter().flat_map(str::lines);
    let lines = lines.flat_map(|line| match line.trim_start() {
        "--[[bucket]]" => bucket.lines(),
        "--[[window]]" => window.lines(),
        _ => line.lines(),
    });
    for line in lines {
        match line.trim_start() {
            marked if marked.starts_with(other) => {}
            marked => text.extend([marked.strip_prefix(own).unwrap_or(line), "\n"]),
        }
    }
    text
}

/// One call of the script.
#[derive(Debug, Default)]
pub struct Call<'a> {
    /// One for each check, in order.
    pub steps: Vec<Step<'a>>,
    /// The states of limits that those of the checks replaced.
    pub former: Vec<FormerStep<'a>>,
    /// The time, if it is not the server's.
    pub now: Option<Micros>,
    /// Whether that time is the server's own, of a look before.
    pub is_past: bool,
    /// What the client takes for the server's time: it chooses the periods of calendars by it.
    pub believed: Micros,
    /// How long a state is kept after it has become that of a fresh key.
    pub kept_longer_ms: u64,
    /// Where the server's history is kept, if it must be trusted to be whole.
    pub genesis: Option<Vec<u8>>,
    /// Whether nothing is to be carried out, because another call was refused.
    pub is_withheld: bool,
    /// The id of the request, if it is to be carried out once.
    pub once: Option<Once>,
    /// Whether its checks can be asked about one by one, while their slot moves.
    pub can_part: bool,
}

/// One check in a call.
#[derive(Clone, Debug)]
pub struct Step<'a> {
    /// The name of the state.
    pub key: Vec<u8>,
    /// What to do with it.
    pub task: Task<'a>,
}

/// What to do with a state.
#[derive(Clone, Debug)]
pub enum Task<'a> {
    /// To be decided by the script.
    Decide {
        /// The check.
        check: Check<'a>,
        /// The limit of its meter.
        limit: Limit,
    },
    /// Decided by the client, to be written if the state is still that one.
    Swap {
        /// How the server keeps it.
        form: Form,
        /// The state on which the client decided.
        state: Vec<u8>,
        /// Whether the client admits it.
        passes: bool,
        /// The state to write if all steps are carried out.
        after: Option<Kept>,
        /// The state to write if they are not.
        healed: Option<Kept>,
        /// What the reply says of it.
        verdict: Option<Verdict>,
    },
    /// To be told which thresholds another step crossed, and to remember that.
    Tell(Tell<'a>),
}

/// How the script is named in a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// By its digest: `EVALSHA`.
    ByDigest,
    /// By its text: `EVAL`.
    InFull,
}

impl<'a> Call<'a> {
    /// A call that is carried out as often as it is sent.
    pub fn new(steps: Vec<Step<'a>>, now: Option<Micros>, kept_longer_ms: u64, genesis: Option<Vec<u8>>) -> Call<'a> {
        Call { steps, now, believed: now.unwrap_or_default(), kept_longer_ms, genesis, ..Call::default() }
    }
}

impl Call<'_> {
    /// The command to send to a server whose time is believed to be this.
    pub fn command(&self, named: Named, believed: Micros) -> Cmd {
        let script = self.script();
        let (name, script) = match named {
            Named::ByDigest => ("EVALSHA", script.digest.as_str()),
            Named::InFull => ("EVAL", script.text),
        };
        let (keys, arguments) = (self.keys(), self.arguments(believed));
        redis::cmd(name).arg(script).arg(keys.len()).arg(keys).arg(arguments).take()
    }

    /// The short script suffices for buckets and windows.
    fn script(&self) -> &'static Text {
        let long = self.steps.iter().any(|step| match &step.task {
            Task::Decide { limit, .. } => matches!(limit.kernel(), LimitKernel::Log(_)),
            Task::Swap { .. } | Task::Tell(_) => true,
        });
        if long || self.once.is_some() || !self.former.is_empty() { &LONG } else { &SHORT }
    }

    fn keys(&self) -> Vec<&[u8]> {
        let states = self.steps.iter().map(|step| &*step.key);
        let states = states.chain(self.former.iter().map(|former| &*former.key));
        let once = self.once.iter().map(|once| &*once.key);
        states.chain(once).chain(self.genesis.as_deref()).collect()
    }

    fn arguments(&self, believed: Micros) -> Vec<Vec<u8>> {
        let mut arguments: Vec<Vec<u8>> = self.steps.iter().map(|step| step.task.packed(believed)).collect();
        for former in &self.former {
            former.mark(&mut arguments[former.of], &self.steps[former.of].task);
        }
        arguments.extend(self.former.iter().map(|former| former.packed(believed)));
        arguments.extend(self.once.iter().map(|once| once.packed(self.steps.len(), &self.former)));
        if self.genesis.is_some() {
            arguments.push(Vec::new());
        }
        let usual = self.once.is_none() && self.now.is_none() && self.genesis.is_none() && !self.is_withheld;
        if !usual || self.kept_longer_ms != USUALLY_KEPT_LONGER_MS {
            let now = self.now.map_or(-1.0, |now| double(now.get()));
            let withheld = if self.is_withheld { 1.0 } else { 0.0 };
            let strict = match (&self.genesis, self.is_past) {
                (None, _) => 0.0,
                (Some(_), false) => 1.0,
                (Some(_), true) => 2.0,
            };
            let known_for = self.once.as_ref().map_or(0.0, |once| double(once.known_for_ms));
            let purpose = match self.once.as_ref().map(|once| once.purpose) {
                None | Some(Purpose::Once) => 0.0,
                Some(Purpose::Settle) => 1.0,
                Some(Purpose::Renew) => 2.0,
            };
            let settings = [now, double(self.kept_longer_ms), strict, withheld, known_for, purpose];
            arguments.push(settings.iter().flat_map(|number| number.to_le_bytes()).collect());
        }
        arguments
    }
}

/// What the script does where nothing else is said: more than the clocks of
/// two servers should differ by.
pub(crate) const USUALLY_KEPT_LONGER_MS: u64 = 1_000;

/// No script counts beyond it, and no kernel.
const EXACT: u64 = 1 << 53;

/// Exact: every number of a limit is below 2^53.
fn double(number: u64) -> f64 {
    number as f64
}

/// A kind, a verb and five numbers, as the script unpacks them.
fn pack(kind: u8, verb: u8, numbers: [f64; 5]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(64);
    packed.extend([kind, verb]);
    packed.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    packed
}

impl Task<'_> {
    fn packed(&self, believed: Micros) -> Vec<u8> {
        match self {
            Task::Decide { check, limit } => pack_check(check, *limit, believed),
            Task::Tell(tell) => tell.packed(),
            Task::Swap { form, state, passes, after, healed, verdict } => {
                let forget = |kept: &Option<Kept>| kept.as_ref().map_or(-1.0, |kept| double(kept.forget_at.get()));
                let bytes = |kept: &Option<Kept>| kept.as_ref().map_or_else(Vec::new, |kept| kept.bytes.clone());
                let states = [state.clone(), bytes(after), bytes(healed)];
                let [known, next, full] = [0, 1, 2].map(|index: usize| double(states[index].len() as u64));
                let done = if *passes { b'Y' } else { b'N' };
                let kind = match form {
                    Form::Text => b'c',
                    Form::List => b'd',
                };
                let mut packed = pack(kind, done, [forget(after), forget(healed), known, next, full]);
                packed.extend(states.concat());
                if let Some(Verdict { remaining, reset_after, delay, unrecorded, ahead, .. }) = verdict {
                    let [reset_after, delay, ahead] = [reset_after, delay, ahead].map(|time| time.get());
                    packed.extend(format!("={remaining}:{reset_after}:{delay}:{unrecorded}:{ahead}").into_bytes());
                }
                packed
            }
        }
    }
}

fn pack_check(check: &Check<'_>, limit: Limit, believed: Micros) -> Vec<u8> {
    let [unit, ceiling] = unit_and_ceiling(limit);
    // More than the ceiling cannot be reported.
    let sent = Sent::new(check, ceiling.div_ceil(unit));
    let (kind, numbers) = match limit.kernel() {
        LimitKernel::Bucket(bucket) => (b'b', [bucket.full(), bucket.drain(), bucket.tick(), bucket.reach()]),
        LimitKernel::Window(window) => {
            let (period, tick) = (window.period_in_ticks(), window.tick());
            let [period, tick, style] = match window.style() {
                Style::FixedFromEpoch => [period, tick, 0],
                Style::FixedFromFirst => [period, tick, 1],
                Style::Sliding => [period, tick, 2],
                Style::Calendar(_) => {
                    let (start, end) = window.edges(believed);
                    [start.get(), end.get(), 3]
                }
            };
            (b'w', [window.capacity(), period, tick, style])
        }
        LimitKernel::Log(log) => (b'l', [log.capacity(), log.period(), ceiling, 0]),
    };
    let [a, b, c, d] = numbers.map(double);
    let mut packed = pack(kind, sent.letter, [double(sent.cost.saturating_mul(unit)), a, b, c, d]);
    // Only a bucket has its cost at hand as text.
    if kind == b'b' || !matches!(sent.text, Note::Cost) {
        packed.extend(sent.text(ceiling, unit).into_bytes());
    }
    packed
}

/// What the script says of a call.
#[derive(Debug)]
pub struct Reply {
    /// The time at which it was decided.
    pub now: Micros,
    /// What became of the call.
    pub outcome: Outcome,
    answers: Vec<StepReply>,
    /// The limits by which it was decided, if that was done before.
    repeats: Option<u64>,
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every step was.
    CarriedOut,
    /// No step was: a limit refused.
    Refused,
    /// A state that the client had decided on, or that was to be absent, was
    /// another one by now.
    Overtaken,
    /// The server's time is in another period of a calendar than the client took it to be:
    /// nothing was done.
    OtherPeriod,
}

#[derive(Debug)]
struct StepReply {
    passes: bool,
    beside: Option<Beside>,
    state: Option<Vec<u8>>,
}

impl Reply {
    /// Reads the value that the script returned.
    ///
    /// # Errors
    /// [`RedisFailure::Garbled`] if it is none of its replies.
    pub fn read(value: &Value) -> Result<Reply, RedisFailure> {
        let words = match value {
            Value::BulkString(words) => words.split(|byte| *byte == b' '),
            _ => return Err(RedisFailure::Garbled { what: "the script's reply" }),
        };
        Reply::parse(words).ok_or(RedisFailure::Garbled { what: "the script's reply" })
    }

    fn parse<'w>(words: impl Iterator<Item = &'w [u8]>) -> Option<Reply> {
        let mut words = words.peekable();
        let mut repeats = None;
        if let Some(limits) = words.peek()?.strip_prefix(b"=") {
            repeats = Some(u64::from_str_radix(std::str::from_utf8(limits).ok()?, 16).ok()?);
            words.next();
        }
        let [seconds] = numbers(words.next()?)?;
        let [microseconds] = numbers(words.next()?)?;
        let now = Micros::new(seconds.checked_mul(1_000_000)?.checked_add(microseconds).filter(|now| *now < EXACT)?);
        let outcome = match words.next()? {
            b"1" => Outcome::CarriedOut,
            b"0" => Outcome::Refused,
            b"2" => Outcome::Overtaken,
            b"3" => Outcome::OtherPeriod,
            _ => return None,
        };
        let mut answers = Vec::new();
        while let Some(passes) = words.next() {
            let (state, beside) = Beside::split(words.next()?)?;
            let state = (state != b"-").then(|| unescape(state));
            answers.push(StepReply { passes: passes == b"1", beside, state });
        }
        Some(Reply { now, outcome, answers, repeats })
    }

    /// What the state of a step was, or nothing.
    pub fn state(&self, step: usize) -> &[u8] {
        self.answers.get(step).and_then(|answer| answer.state.as_deref()).unwrap_or_default()
    }

    /// Whether it was given before, to a request of the same id.
    pub fn is_repeated(&self) -> bool {
        self.repeats.is_some()
    }

    /// Whether it was given before, by limits that have been changed since:
    /// only that the request passed is known then.
    pub fn is_of_other_limits(&self, once: Option<&Once>) -> bool {
        self.repeats.is_some_and(|limits| once.is_some_and(|once| once.limits != limits))
    }

    /// The verdict on a step that was carried out.
    ///
    /// # Errors
    /// If the reply has no state of the limit, or the kernel decides otherwise than the script.
    pub fn verdict(&self, step: usize, task: &Task<'_>) -> Result<Verdict, RedisFailure> {
        let verdict = self.first_verdict(step, task)?;
        let crossed = if self.is_repeated() { 0 } else { verdict.crossed };
        Ok(Verdict { repeated: self.is_repeated(), crossed, ..verdict })
    }

    fn first_verdict(&self, step: usize, task: &Task<'_>) -> Result<Verdict, RedisFailure> {
        let answer = self.answers.get(step).ok_or(RedisFailure::Garbled { what: "the script's reply" })?;
        let foreign = RedisFailure::Garbled { what: "a state" };
        let said = answer.state.as_deref().and_then(|state| state.strip_prefix(b"="));
        let read = match (said, task) {
            // The verdict that the client stored when it decided.
            (Some(said), _) => numbers(said).map(|[remaining, reset_after, delay, unrecorded, ahead]| {
                let [reset_after, delay, ahead] = [reset_after, delay, ahead].map(Micros::new);
                let allowed = answer.passes;
                Verdict { allowed, remaining, reset_after, delay, unrecorded, ahead, ..Verdict::default() }
            }),
            (None, Task::Decide { check, limit }) if check.is_correction() => self.corrected(answer, check, *limit),
            (None, Task::Decide { check, limit }) => self.decided(answer.state.as_deref(), answer, check, *limit),
            (None, Task::Swap { .. } | Task::Tell(_)) => None,
        };
        let verdict = read.ok_or(foreign)?;
        match answer.beside {
            None if verdict.allowed == answer.passes => Ok(verdict),
            // What was charged to a limit that is forgotten cannot be renewed.
            None if !answer.passes
                && matches!(task, Task::Decide { check, .. } if matches!(check.verb(), Verb::Renew(_))) =>
            {
                Ok(Verdict { allowed: false, ..verdict })
            }
            // What former limits count can refuse what the limit alone admits.
            Some(beside) if verdict.allowed || !answer.passes => {
                Ok(beside.counted(verdict, answer.passes, task, self.now))
            }
            None | Some(_) => Err(RedisFailure::Disagreement),
        }
    }

    /// A check that corrects what the script found under the id: after a slash it says what
    /// that was, or there was nothing to correct.
    fn corrected(&self, answer: &StepReply, check: &Check<'_>, limit: Limit) -> Option<Verdict> {
        let state = answer.state.as_deref().unwrap_or_default();
        let (state, charged) = match state.iter().rposition(|byte| *byte == b'/') {
            None => (state, None),
            Some(slash) => (&state[..slash], Some(numbers(&state[slash + 1..])?)),
        };
        let charged = charged.map(|[at, cost, actual]| (Charged { at: Micros::new(at), cost }, actual));
        let state = Some(state).filter(|state| !state.is_empty() && *state != b"-");
        let check = match (check.verb(), charged) {
            // What is repeated was settled.
            (Verb::Renew(_), Some((charged, _))) if self.repeats.is_none() => check.with_verb(Verb::Renew(charged)),
            (_, Some((charged, actual))) => check.with_verb(Verb::Settle(charged)).with_cost(actual),
            (_, None) => check.with_verb(Verb::SETTLE).with_cost(0),
        };
        self.decided(state, answer, &check, limit)
    }

    fn decided(&self, state: Option<&[u8]>, answer: &StepReply, check: &Check<'_>, limit: Limit) -> Option<Verdict> {
        let (verdict, used) = match limit.kernel() {
            LimitKernel::Log(log) => self.read_log(&log, state?, answer.passes, check)?,
            LimitKernel::Bucket(_) | LimitKernel::Window(_) => self.replay(state.unwrap_or_default(), check)?,
        };
        let beside = answer.beside.map_or([0; 2], |beside| beside.used);
        let crossed = check.meter().crossed(used[0] + beside[0], used[1] + beside[1]);
        Some(Verdict { crossed, ..verdict })
    }

    /// What the library decides on the state that the script found, and what is used before and after it.
    fn replay(&self, state: &[u8], check: &Check<'_>) -> Option<(Verdict, [u64; 2])> {
        let checks = [check.without_id().with_former(&[])];
        let mut slice = Slice::new(&checks, self.now).ok()?;
        for part in slice.parts_mut() {
            part.load(&encoded(part.meter(), state)?)?;
        }
        match self.outcome {
            Outcome::CarriedOut => _ = slice.decide(self.now),
            Outcome::Refused | Outcome::Overtaken | Outcome::OtherPeriod => slice.withhold(self.now),
        }
        Some((slice.verdicts()[0], slice.used(0)))
    }

    /// A log is too long to be sent: the script says when its newest entry was, what is used, and
    /// when enough of it will have expired, or what of a report it did not record.
    fn read_log(&self, log: &Log, state: &[u8], passes: bool, check: &Check<'_>) -> Option<(Verdict, [u64; 2])> {
        let [newest, used, rest] = numbers(state)?;
        let act = if self.outcome == Outcome::CarriedOut { check.act() } else { Act::Nothing };
        let reset_at = if newest == 0 && used == 0 { 0 } else { newest.checked_add(log.period())? };
        let until = |instant: u64| Micros::new(instant).saturating_since(self.now);
        let unrecorded = rest.saturating_add(Sent::unsent(check, log.ceiling()));
        let charged = if let Act::Take { cost } = act { cost } else { 0 };
        let verdict = Verdict {
            allowed: passes,
            remaining: log.capacity().saturating_sub(used).saturating_sub(check.meter().floor()),
            retry_after: if passes { Micros::ZERO } else { until(rest) },
            reset_after: until(reset_at),
            unrecorded: if matches!(act, Act::Force { .. }) { unrecorded } else { 0 },
            ahead: if act.charges() { until(newest) } else { Micros::ZERO },
            ..Verdict::default()
        };
        Some((verdict, [used.saturating_sub(charged), used]))
    }
}

/// Undoes what the script does to bytes that look like spaces.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut parts = word.split(|byte| *byte == b'%');
    let mut bytes = parts.next().unwrap_or_default().to_vec();
    for part in parts {
        let digits = part.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(escaped) => bytes.extend([&[escaped], &part[2..]].concat()),
            None => bytes.extend([b"%", part].concat()),
        }
    }
    bytes
}
