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

use std::time::Duration;

use tidegate::{CheckError, ConfigError, Decision, Limit, Request};
use tidegate_config::MAX_UNIT_LENGTH;

use super::frame::Arguments;
use super::reply::Replies;
use super::throttle::parse_integer;
use crate::ask::call::{Call, MAX_AMOUNTS, MAX_TTL_MS};
use crate::ask::outcome::Outcome;
use crate::wire::json::MAX_TEXT;

/// The most attributes of one request.
pub const MAX_ATTRIBUTES: usize = 64;

/// A request, and whom to ask.
#[derive(Debug)]
pub struct ParsedRequest<'a> {
    /// What to decide on.
    pub request: Request<'a>,
    /// The limit to go by, if not by the policy.
    pub limit: Option<Limit>,
}

/// Why a command is not a valid request.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// A name or an option at the end, with nothing after it.
    #[error("ERR '{0}' is the last argument: give a value after it")]
    NoValue(String),
    /// A key, an id, a name or a value is too long.
    #[error("ERR an argument has {0} bytes: give at most {MAX_TEXT}")]
    TooLong(usize),
    /// The name of an attribute is not text.
    #[error("ERR the name of an attribute is not text: {0}")]
    NoText(String),
    /// The cost is not a number that one can pay.
    #[error("ERR a cost of '{0}' is not a whole number from 0 on")]
    NoCost(String),
    /// The amount is not a number either.
    #[error("ERR an amount of '{0}' is not a whole number from 0 on")]
    NoAmount(String),
    /// More amounts than are taken.
    #[error("ERR a request has at most {MAX_AMOUNTS} amounts")]
    TooManyAmounts,
    /// The name of a unit is too long.
    #[error("ERR the name of a unit has {0} bytes: give at most {MAX_UNIT_LENGTH}")]
    UnitTooLong(usize),
    /// The time is none that an id can be remembered for.
    #[error("ERR a TTL of '{0}' is not a whole number from 1 to {MAX_TTL_MS}, in milliseconds")]
    NoTtl(String),
    /// A time for an id that is not there.
    #[error("ERR TTL is how long the ID is remembered: give ID, or leave TTL out")]
    TtlWithoutId,
    /// A reservation without a name.
    #[error("ERR ID is missing: give the id of the reservation, a text that no other request has")]
    NoId,
    /// The words are no limit.
    #[error("ERR {0}")]
    NoLimit(ConfigError),
    /// An option or an attribute was given twice.
    #[error("ERR '{0}' is given twice")]
    Twice(String),
    /// A limit without a key.
    #[error("ERR LIMIT needs to know whose limit: give KEY, or the attribute user")]
    LimitWithoutKey,
    /// A limit of one key beside what only a policy understands.
    #[error("ERR LIMIT goes by KEY alone, and not by '{0}'")]
    LimitWithPolicy(String),
    /// Neither a key nor attributes: no rule could tell whose request it is.
    #[error("ERR the request has neither a key nor attributes: give attributes, such as user alice, or KEY alice")]
    NoKey,
    /// A key of no bytes.
    #[error("ERR KEY is empty: give the key that the request counts against, or leave it out")]
    EmptyKey,
    /// More attributes than are taken.
    #[error("ERR a request has at most {MAX_ATTRIBUTES} attributes")]
    TooManyAttributes,
}

/// What the options have said so far.
#[derive(Default)]
struct Options<'a> {
    key: Option<&'a [u8]>,
    cost: Option<u64>,
    rule: Option<&'a str>,
    id: Option<&'a str>,
    ttl: Option<Duration>,
    amounts: Vec<(&'a str, u64)>,
    limit: Option<Limit>,
    attributes: Vec<(&'a str, &'a [u8])>,
}

impl<'a> ParsedRequest<'a> {
    /// Reads the arguments of a command, whose name is the first of them.
    ///
    /// # Errors
    /// If they make no request.
    pub fn parse(call: Call, arguments: Arguments<'a>) -> Result<ParsedRequest<'a>, RequestError> {
        if let Some(long) = arguments.from(1).find(|word| word.len() > MAX_TEXT) {
            return Err(RequestError::TooLong(long.len()));
        }
        let mut options = Options::default();
        let mut words = arguments.from(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| RequestError::NoValue(shown(word)));
            let is = |option: &str| word.eq_ignore_ascii_case(option.as_bytes());
            if is("KEY") {
                set(&mut options.key, word, value()?)?;
            } else if is("COST") {
                set(&mut options.cost, word, whole(value()?, RequestError::NoCost)?)?;
            } else if is("AMOUNT") {
                let unit = value()?;
                options.add_amount(unit, value()?)?;
            } else if is("TTL") {
                set(&mut options.ttl, word, ttl(value()?)?)?;
            } else if is("RULE") {
                set(&mut options.rule, word, text(value()?)?)?;
            } else if is("ID") {
                set(&mut options.id, word, text(value()?)?)?;
            } else if is("LIMIT") {
                let limit = text(value()?)?.parse().map_err(RequestError::NoLimit)?;
                set(&mut options.limit, word, limit)?;
            } else if is("ATTRIBUTE") {
                let name = value()?;
                options.add(name, value()?)?;
            } else {
                options.add(word, value()?)?;
            }
        }
        options.into_parsed(call)
    }
}

impl<'a> Options<'a> {
    fn add(&mut self, name: &'a [u8], value: &'a [u8]) -> Result<(), RequestError> {
        let name = text(name)?;
        if self.attributes.iter().any(|(known, _)| *known == name) {
            return Err(RequestError::Twice(name.into()));
        }
        if self.attributes.len() == MAX_ATTRIBUTES {
            return Err(RequestError::TooManyAttributes);
        }
        self.attributes.push((name, value));
        Ok(())
    }

    fn add_amount(&mut self, unit: &'a [u8], amount: &'a [u8]) -> Result<(), RequestError> {
        if unit.len() > MAX_UNIT_LENGTH {
            return Err(RequestError::UnitTooLong(unit.len()));
        }
        let (unit, amount) = (text(unit)?, whole(amount, RequestError::NoAmount)?);
        if self.amounts.iter().any(|(known, _)| *known == unit) {
            return Err(RequestError::Twice(unit.into()));
        }
        if self.amounts.len() == MAX_AMOUNTS {
            return Err(RequestError::TooManyAmounts);
        }
        self.amounts.push((unit, amount));
        Ok(())
    }

    fn into_parsed(self, call: Call) -> Result<ParsedRequest<'a>, RequestError> {
        let Options { key, cost, rule, id, ttl, amounts, limit, attributes } = self;
        match id {
            None if call.needs_id() => return Err(RequestError::NoId),
            None if ttl.is_some() => return Err(RequestError::TtlWithoutId),
            _ => {}
        }
        let user = attributes.iter().find(|(name, _)| *name == "user").map(|(_, value)| *value);
        if key.is_some_and(<[u8]>::is_empty) {
            return Err(RequestError::EmptyKey);
        }
        let key = key.or(user);
        if key.is_none() && attributes.is_empty() && rule.is_none() && limit.is_none() {
            return Err(RequestError::NoKey);
        }
        if limit.is_some() {
            let policy_only = attributes.iter().map(|(name, _)| *name).find(|name| *name != "user");
            if let Some(name) = policy_only.or(rule.map(|_| "RULE")) {
                return Err(RequestError::LimitWithPolicy(name.into()));
            }
            if key.is_none() {
                return Err(RequestError::LimitWithoutKey);
            }
        }
        let mut request = match key {
            Some(key) => Request::new(key),
            None => Request::without_key(),
        };
        for (name, value) in attributes {
            request = request.with(name, value);
        }
        if let Some(rule) = rule {
            request = request.rule(rule);
        }
        if let Some(id) = id {
            request = request.id(id);
        }
        if let Some(ttl) = ttl {
            request = request.lasts(ttl);
        }
        Ok(ParsedRequest { request: call.of(request, cost, amounts.into_iter()), limit })
    }
}

fn set<T>(option: &mut Option<T>, word: &[u8], value: T) -> Result<(), RequestError> {
    match option.replace(value) {
        None => Ok(()),
        Some(_) => Err(RequestError::Twice(shown(word))),
    }
}

fn text(bytes: &[u8]) -> Result<&str, RequestError> {
    std::str::from_utf8(bytes).map_err(|_| RequestError::NoText(shown(bytes)))
}

fn whole(bytes: &[u8], wrong: fn(String) -> RequestError) -> Result<u64, RequestError> {
    let number = parse_integer(bytes).and_then(|number| u64::try_from(number).ok());
    number.ok_or_else(|| wrong(shown(bytes)))
}

fn ttl(bytes: &[u8]) -> Result<Duration, RequestError> {
    match whole(bytes, RequestError::NoTtl)? {
        millis @ 1..=MAX_TTL_MS => Ok(Duration::from_millis(millis)),
        _ => Err(RequestError::NoTtl(shown(bytes))),
    }
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
