//! The fields by which HTTP speaks of limits: `RateLimit-Policy` and
//! `RateLimit` of draft-ietf-httpapi-ratelimit-headers-10, and `Retry-After`.
//!
//! What remains is rounded down and times are rounded up, against the caller,
//! so that whoever goes by them is not refused.

use std::fmt::Write;
use std::time::Duration;

use tidegate::{Decision, Limit, Name};

/// The largest integer of a structured field: fifteen digits.
pub(crate) const LARGEST: u64 = 999_999_999_999_999;

/// All that a decision adds.
const MOST_FIELDS: usize = 3;
/// Two quotes and two numbers with their names.
const ROOM: usize = 2 + 2 * (3 + 15);

/// What a caller is told of the limits that a question has met.
#[derive(Debug, Default)]
pub(super) struct Met {
    /// `RateLimit-Policy`: all of them.
    policies: String,
    /// The one that binds, unless its kernel is the user's own.
    binding: Option<Limit>,
}

impl Met {
    /// Adds a limit, whoever binds.
    pub(super) fn add(&mut self, name: Name, capacity: u64, limit: Option<Limit>, decision: &Decision) {
        let policies = &mut self.policies;
        if policies.is_empty() {
            policies.reserve_exact(name.as_str().len() + ROOM);
        } else {
            policies.push_str(", ");
        }
        add_quoted(policies, name.as_str());
        add_number(policies, ";q=", capacity.min(LARGEST));
        if let Some(limit) = limit {
            add_number(policies, ";w=", whole_seconds(limit.refill_time()).max(1));
        }
        if name == decision.rule() && capacity == decision.limit() {
            self.binding = limit;
        }
    }
}

/// Adds the fields of a decision.
pub(super) fn add_to(fields: &mut Vec<(&'static str, String)>, decision: &Decision, met: Met) {
    if decision.is_unlimited() || decision.is_blocked() {
        return;
    }
    fields.reserve_exact(MOST_FIELDS);
    if !decision.is_allowed() {
        fields.push(("retry-after", retry_after_seconds(decision).to_string()));
    }
    let name = decision.rule().as_str();
    let mut standing = String::with_capacity(name.len() + ROOM);
    add_quoted(&mut standing, name);
    add_number(&mut standing, ";r=", decision.remaining().min(LARGEST));
    if let Some(more) = more_after(decision, met.binding) {
        add_number(&mut standing, ";t=", whole_seconds(more).max(1));
    }
    if !met.policies.is_empty() {
        fields.push(("ratelimit-policy", met.policies));
    }
    fields.push(("ratelimit", standing));
}

/// How long until there is more; nothing if nothing is used.
fn more_after(decision: &Decision, limit: Option<Limit>) -> Option<Duration> {
    if !decision.is_allowed() {
        return Some(decision.retry_after());
    }
    let whole = Some(decision.reset_after()).filter(|whole| !whole.is_zero())?;
    Some(limit.map_or(whole, |limit| limit.more_after(decision)))
}

fn add_number(text: &mut String, name: &str, number: u64) {
    text.push_str(name);
    text.push_str(itoa::Buffer::new().format(number));
}

/// At least one: a caller that was refused is never told to come at once.
fn retry_after_seconds(decision: &Decision) -> u64 {
    whole_seconds(decision.retry_after()).max(1)
}

/// Rounded up, so that whoever waits them has waited long enough.
pub(crate) fn whole_seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0)).min(LARGEST)
}

/// A name as a string of a structured field, which is plain ASCII: anything
/// else is written as in a URL.
pub(crate) fn quoted(name: &str) -> String {
    let mut text = String::with_capacity(name.len() + 2);
    add_quoted(&mut text, name);
    text
}

fn add_quoted(text: &mut String, name: &str) {
    text.push('"');
    if name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b' ' | b'/')) {
        // As almost all are.
        text.push_str(name);
        text.push('"');
        return;
    }
    for byte in name.bytes() {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(byte)]),
            b' '..=b'~' => text.push(char::from(byte)),
            other => {
                let _ = write!(text, "%{other:02X}");
            }
        }
    }
    text.push('"');
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use sfv::{BareItem, ListEntry, Parser};
    use tidegate::{Limiter, Policy};

    use super::*;

    /// The fields after so many checks of one key, as a parser of structured
    /// fields reads them: policy (name, q, w), limit (r, t), and Retry-After.
    fn fields(limit: Limit, checks: usize) -> (String, i64, i64, i64, i64, Option<String>) {
        let limiter = Limiter::new(Policy::new().limit("per \"user\" é", limit));
        let decision = *limiter.check_many(vec!["alice"; checks]).unwrap().last().unwrap();
        let mut fields = Vec::new();
        let mut met = Met::default();
        met.add(decision.rule(), limit.capacity(), Some(limit), &decision);
        add_to(&mut fields, &decision, met);
        let value = |name| fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value.clone());
        let item = |name| {
            let list: sfv::List = Parser::new(&value(name).unwrap()).parse().unwrap();
            let [ListEntry::Item(item)] = &list[..] else { panic!("one member") };
            item.clone()
        };
        let number = |item: &sfv::Item, name: &str| {
            let key = sfv::KeyRef::from_str(name).unwrap();
            let BareItem::Integer(number) = item.params[key] else { panic!("an integer") };
            i64::from(number)
        };
        let (policy, service) = (item("ratelimit-policy"), item("ratelimit"));
        assert_eq!(policy.bare_item, service.bare_item);
        let BareItem::String(name) = &policy.bare_item else { panic!("a string") };
        let (q, w) = (number(&policy, "q"), number(&policy, "w"));
        (name.as_str().to_owned(), q, w, number(&service, "r"), number(&service, "t"), value("retry-after"))
    }

    #[test]
    fn fields_are_structured_and_rounded_against_the_caller() {
        let name = "per \"user\" %C3%A9".to_owned();
        // Twenty come back in 12 s; one in 0.6 s.
        let limit = Limit::per_minute(100).burst(20);
        assert_eq!(fields(limit, 1), (name.clone(), 20, 12, 19, 1, None));
        assert_eq!(fields(limit, 20), (name.clone(), 20, 12, 0, 1, None));
        // One in six seconds.
        let limit = Limit::per_minute(10);
        assert_eq!(fields(limit, 4), (name.clone(), 10, 60, 6, 6, None));
        let limit = Limit::per_minute(100).burst(20);
        assert_eq!(fields(limit, 21), (name.clone(), 20, 12, 0, 1, Some("1".into())));
        let limit = Limit::sliding_log(2, Duration::from_millis(90_500));
        let (.., w, _, t, retry_after) = fields(limit, 3);
        assert_eq!((w, t, retry_after), (91, 91, Some("91".into())));
    }

    #[test]
    fn numbers_are_within_what_structured_fields_hold() {
        assert_eq!(whole_seconds(Duration::MAX), LARGEST);
        assert_eq!(whole_seconds(Duration::from_nanos(1)), 1);
        assert_eq!(whole_seconds(Duration::ZERO), 0);
    }

    #[test]
    fn whoever_is_blocked_or_unlimited_is_told_of_no_quota() {
        let policy = Policy::new()
            .limit("all", Limit::per_second(1))
            .deny("user", tidegate::Condition::Equals("mallory".into()))
            .allow("user", tidegate::Condition::Equals("root".into()));
        let limiter = Limiter::new(policy);
        for user in ["mallory", "root"] {
            let mut fields = Vec::new();
            add_to(&mut fields, &limiter.check(tidegate::Request::user(user)).unwrap(), Met::default());
            assert!(fields.is_empty(), "{user}: {fields:?}");
        }
    }
}
