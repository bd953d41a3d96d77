//! `TIDEGATE.CHECK` and its kin: a request to the policy, or to a limit of its own.
//!
//! ```text
//! TIDEGATE.CHECK user alice endpoint "POST /orders" COST 3
//! TIDEGATE.CHECK KEY alice LIMIT "sliding 100/min"
//! TIDEGATE.RESERVE user alice ID call-7 AMOUNT tokens 400 TTL 60000
//! TIDEGATE.PEEK | REPORT | REFUND | RESET | SETTLE | RENEW | RELEASE | EXPLAIN, likewise
//! ```
//!
//! Arguments are attributes, a name and a value each, and options, in any order and
//! in whichever letters. An attribute that is called like an option is given with
//! `ATTRIBUTE` before it. Nothing is ever taken for something else in silence:
//! that would be another count.

use std::borrow::Cow;

use tidegate::{CheckError, Decision};

use super::frame::Arguments;
use super::reply::Replies;
use super::throttle::parse_integer;
use crate::ask::call::Call;
use crate::ask::outcome::Outcome;
use crate::ask::request::{Ask, AskError, Parts};

/// Why a command is not a valid request.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// A name or an option at the end, with nothing after it.
    #[error("ERR '{0}' is the last argument: give a value after it")]
    NoValue(String),
    /// A name, an id or a limit is not text.
    #[error("ERR the name of an attribute is not text: {0}")]
    NoText(String),
    /// The cost is not a number that one can pay.
    #[error("ERR a cost of '{0}' is not a whole number from 0 on")]
    NoCost(String),
    /// The amount is not a number either.
    #[error("ERR an amount of '{0}' is not a whole number from 0 on")]
    NoAmount(String),
    /// The time is no number.
    #[error("ERR a TTL of '{0}' is not a whole number of milliseconds")]
    NoTtl(String),
    /// An option was given twice.
    #[error("ERR '{0}' is given twice")]
    Twice(String),
    /// What it asks is not valid, on any wire.
    #[error("ERR {0}")]
    Ask(#[from] AskError),
}

/// Reads the arguments of a command, whose name is the first of them.
///
/// # Errors
/// If they make no request.
pub fn parse<'a>(call: Call, arguments: Arguments<'a>) -> Result<Ask<'a>, RequestError> {
    let (mut parts, mut words) = (Parts::default(), arguments.from(1));
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| RequestError::NoValue(shown(word)));
        let is = |option: &str| word.eq_ignore_ascii_case(option.as_bytes());
        if is("KEY") {
            set(&mut parts.key, word, Cow::Borrowed(value()?))?;
        } else if is("COST") {
            set(&mut parts.cost, word, whole(value()?, RequestError::NoCost)?)?;
        } else if is("AMOUNT") {
            let unit = text(value()?)?;
            parts.amounts.push((unit, whole(value()?, RequestError::NoAmount)?));
        } else if is("TTL") {
            set(&mut parts.ttl_ms, word, whole(value()?, RequestError::NoTtl)?)?;
        } else if is("RULE") {
            set(&mut parts.rule, word, text(value()?)?)?;
        } else if is("ID") {
            set(&mut parts.id, word, text(value()?)?)?;
        } else if is("LIMIT") {
            set(&mut parts.limit, word, text(value()?)?)?;
        } else if is("ATTRIBUTE") {
            let name = text(value()?)?;
            parts.attributes.push((name, Cow::Borrowed(value()?)));
        } else {
            parts.attributes.push((text(word)?, Cow::Borrowed(value()?)));
        }
    }
    Ok(Ask::new(call, parts)?)
}

fn set<T>(option: &mut Option<T>, word: &[u8], value: T) -> Result<(), RequestError> {
    match option.replace(value) {
        None => Ok(()),
        Some(_) => Err(RequestError::Twice(shown(word))),
    }
}

fn text(bytes: &[u8]) -> Result<Cow<'_, str>, RequestError> {
    std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|_| RequestError::NoText(shown(bytes)))
}

fn whole(bytes: &[u8], wrong: fn(String) -> RequestError) -> Result<u64, RequestError> {
    let number = parse_integer(bytes).and_then(|number| u64::try_from(number).ok());
    number.ok_or_else(|| wrong(shown(bytes)))
}

/// Whatever a client sent, as text of a bounded length.
pub(super) fn shown(bytes: &[u8]) -> String {
    const MAX_SHOWN: usize = 128;
    String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_SHOWN)]).into_owned()
}

/// Writes a decision: a map, or in RESP2 an array of names and values.
pub fn write_decision(decision: &Decision, replies: &mut Replies) {
    let micros = |time: std::time::Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    replies.map(if decision.unrecorded() > 0 { 9 } else { 8 });
    replies.bulk(b"allowed");
    replies.boolean(decision.is_allowed());
    replies.bulk(b"rule");
    replies.bulk(decision.rule().as_str().as_bytes());
    let mut integer = |name: &str, number: Option<i64>| {
        replies.bulk(name.as_bytes());
        match number {
            Some(number) => replies.integer(number),
            None => replies.null(),
        }
    };
    // What no rule limits has no limit, and who is blocked has no time to wait for.
    integer("limit", decision.capacity().map(signed));
    integer("remaining", decision.remaining().map(signed));
    integer("retry_after_us", decision.retry_after().map(micros));
    integer("reset_after_us", decision.reset_after().map(micros));
    integer("delay_us", Some(micros(decision.delay())));
    replies.bulk(b"degraded");
    replies.boolean(decision.is_degraded());
    if decision.unrecorded() > 0 {
        replies.bulk(b"unrecorded");
        replies.integer(signed(decision.unrecorded()));
    }
}

/// Writes why there is no decision. The first word tells a client what to do:
/// nothing else will help, or try again.
pub fn write_failure(error: &CheckError, replies: &mut Replies) {
    let outcome = Outcome::from(error);
    replies.error(&format!("{} {}", outcome.word(), outcome.words(error)));
}
