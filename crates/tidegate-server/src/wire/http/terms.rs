//! What the operator of a proxy asks for, in the query of the URL that the proxy calls.

use http::StatusCode;

use crate::ask::attributes::Attribute;
use crate::ask::request::MAX_COST;

/// The most attributes of a key.
const MAX_KEY_ATTRIBUTES: usize = 8;

/// The parameters of `/v1/forward-auth`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// The one rule to ask.
    pub(super) rule: Option<String>,
    pub(super) cost: u64,
    /// The attributes that the key of the request is made of; without any, its address.
    pub(super) key: Vec<Attribute>,
    /// The status of a refusal, for proxies that do not pass on any other.
    pub(super) deny_status: Option<StatusCode>,
}

/// What is wrong with a parameter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TermsError {
    #[error("the query has an unknown parameter {name:?}: write rule, cost, key or deny-status")]
    Unknown { name: String },
    #[error("the query has {name} more than once: write it once")]
    Repeated { name: &'static str },
    #[error("cost is {found:?}: write a whole number up to {MAX_COST}")]
    Cost { found: String },
    #[error("key has {found:?}: write ip, method, scheme, host, path or header.NAME, with commas between several")]
    Key { found: String },
    #[error("key has {found} attributes: write at most {MAX_KEY_ATTRIBUTES}")]
    KeyTooLong { found: usize },
    #[error("deny-status is {found:?}: write a status from 400 to 499")]
    DenyStatus { found: String },
}

impl Terms {
    /// Reads a query, without its question mark.
    pub(super) fn parse(query: &str) -> Result<Terms, TermsError> {
        let (mut rule, mut cost, mut key, mut deny_status) = (None, None, None, None);
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "rule" => once(&mut rule, "rule", value.into_owned())?,
                "cost" => once(&mut cost, "cost", read_cost(&value)?)?,
                "key" => once(&mut key, "key", read_key(&value)?)?,
                "deny-status" => once(&mut deny_status, "deny-status", read_status(&value)?)?,
                _ => return Err(TermsError::Unknown { name: name.into_owned() }),
            }
        }
        Ok(Terms { rule, cost: cost.unwrap_or(1), key: key.unwrap_or_default(), deny_status })
    }
}

fn once<T>(parameter: &mut Option<T>, name: &'static str, value: T) -> Result<(), TermsError> {
    match parameter.replace(value) {
        None => Ok(()),
        Some(_) => Err(TermsError::Repeated { name }),
    }
}

fn read_cost(text: &str) -> Result<u64, TermsError> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let cost = text.parse().ok().filter(|cost| is_plain && *cost <= MAX_COST);
    cost.ok_or_else(|| TermsError::Cost { found: text.into() })
}

fn read_key(text: &str) -> Result<Vec<Attribute>, TermsError> {
    let found = text.split(',').count();
    if found > MAX_KEY_ATTRIBUTES {
        return Err(TermsError::KeyTooLong { found });
    }
    let read = |name| Attribute::named(name).ok_or_else(|| TermsError::Key { found: name.into() });
    text.split(',').map(read).collect()
}

fn read_status(text: &str) -> Result<StatusCode, TermsError> {
    let status = StatusCode::from_bytes(text.as_bytes()).ok();
    status.filter(StatusCode::is_client_error).ok_or_else(|| TermsError::DenyStatus { found: text.into() })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_is_read_and_all_are_optional() {
        let none = Terms { rule: None, cost: 1, key: Vec::new(), deny_status: None };
        assert_eq!(Terms::parse("").unwrap(), none);
        let all = Terms::parse("rule=a%20b+c&cost=3&key=ip,header.X-User&deny-status=403").unwrap();
        assert_eq!((all.rule.as_deref(), all.cost), (Some("a b c"), 3));
        assert_eq!(all.key, ["ip", "header.X-User"].map(|name| Attribute::named(name).unwrap()));
        assert_eq!(all.deny_status, Some(StatusCode::FORBIDDEN));
        assert_eq!(Terms::parse("cost=0").unwrap().cost, 0);
    }

    #[test]
    fn whatever_else_it_says_is_an_error_that_names_it() {
        for (query, named) in [
            ("rules=a", "unknown parameter \"rules\""),
            ("x", "unknown parameter \"x\""),
            ("Rule=a", "unknown parameter \"Rule\""),
            ("rule=a&rule=a", "rule more than once"),
            ("cost=1&rule=a&cost=1", "cost more than once"),
            ("cost=", "cost is \"\""),
            ("cost=-1", "cost is \"-1\""),
            ("cost=%2B1", "cost is \"+1\""),
            ("cost=9007199254740992", "cost is \"9007199254740992\""),
            ("key=", "key has \"\""),
            ("key=user", "key has \"user\""),
            ("key=ip,,path", "key has \"\""),
            ("key=header.", "key has \"header.\""),
            ("key=ip,ip,ip,ip,ip,ip,ip,ip,ip", "key has 9 attributes"),
            ("deny-status=200", "deny-status is \"200\""),
            ("deny-status=500", "deny-status is \"500\""),
            ("deny-status=forbidden", "deny-status is \"forbidden\""),
        ] {
            let error = Terms::parse(query).unwrap_err().to_string();
            assert!(error.contains(named), "{query}: {error}");
        }
    }
}
