//! Which fields of a log become which attributes of a request.
//!
//! A policy asks for attributes by name. Each is looked for under its own
//! name and under the names that logs give it; [`Mapping`] names another
//! field. A few attributes follow from others: `method`, `path`, `query` and
//! `endpoint` from the line of the request, `key` from the address.
//!
//! How long a request lasted is taken only from a field that is named, as no value tells its unit.

use std::collections::BTreeSet;

/// Fields that are to be taken for attributes other than those of their names.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Mapping {
    fields: Vec<(String, String)>,
    /// Nanoseconds that one of a duration is.
    duration: f64,
    time_is_start: bool,
}

/// Names of a duration, and the nanoseconds that one of it is.
const DURATIONS: [(&str, f64); 4] =
    [("duration", 1e9), ("duration_ms", 1e6), ("duration_us", 1e3), ("duration_ns", 1.0)];

/// Fields that are known to have the time at which a request came, not that of its end.
const STARTS: [&str; 2] = ["start_time", "StartUTC"];

impl Mapping {
    /// Takes a field for an attribute; in JSON, `user.name` is `name` in `user`.
    #[must_use]
    pub(crate) fn with(mut self, attribute: impl Into<String>, field: impl Into<String>) -> Mapping {
        let mut attribute = attribute.into();
        if let Some((_, unit)) = DURATIONS.iter().find(|(name, _)| *name == attribute) {
            (self.duration, attribute) = (*unit, "duration".to_owned());
        } else if attribute == "start" || attribute == "time" {
            (self.time_is_start, attribute) = (attribute == "start", "time".to_owned());
        }
        self.fields.retain(|(known, _)| *known != attribute);
        self.fields.push((attribute, field.into()));
        self
    }

    /// The attributes that no rule needs.
    pub(crate) fn unused(&self, attributes: &BTreeSet<String>) -> Vec<String> {
        let is_used = |name: &str| attributes.contains(name) || FIXED.contains(&name);
        self.fields.iter().map(|(attribute, _)| attribute.clone()).filter(|name| !is_used(name)).collect()
    }

    fn get(&self, attribute: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == attribute).map(|(_, field)| field.as_str())
    }
}

/// Where a value of a line goes.
pub(crate) type Slot = usize;

/// What every line is looked at for, and what follows from it.
pub(crate) mod slot {
    use super::Slot;

    pub(crate) const TIME: Slot = 0;
    pub(crate) const COST: Slot = 1;
    pub(crate) const ID: Slot = 2;
    pub(crate) const KEY: Slot = 3;
    pub(crate) const IP: Slot = 4;
    pub(crate) const USER: Slot = 5;
    pub(crate) const REQUEST: Slot = 6;
    pub(crate) const METHOD: Slot = 7;
    pub(crate) const PATH: Slot = 8;
    pub(crate) const QUERY: Slot = 9;
    pub(crate) const ENDPOINT: Slot = 10;
    pub(crate) const DURATION: Slot = 11;
    pub(crate) const ACTUAL: Slot = 12;
}

const FIXED: [&str; 13] =
    ["time", "cost", "id", "key", "ip", "user", "request", "method", "path", "query", "endpoint", "duration", "actual"];

/// What logs call an attribute, besides its own name.
fn synonyms(attribute: &str) -> &'static [&'static str] {
    match attribute {
        "time" => &[
            "timestamp",
            "@timestamp",
            "ts",
            "start_time",
            "time_iso8601",
            "time_local",
            "StartUTC",
            "datetime",
            "date",
            "msec",
            "eventTime",
        ],
        "ip" => &[
            "remote_addr",
            "client_ip",
            "clientip",
            "remote_ip",
            "ClientHost",
            "ClientIP",
            "client",
            "x_forwarded_for",
            "downstream_remote_address",
            "downstream_direct_remote_address",
        ],
        "user" => &["remote_user", "user_id", "username", "ClientUsername"],
        "method" => &["request_method", "http_method", "verb", "RequestMethod", ":method"],
        "path" => &["x_envoy_original_path", "request_uri", "uri", "url", "RequestPath", "request_path", ":path"],
        "query" => &["query_string", "args"],
        "status" => &["response_code", "status_code", "DownstreamStatus", "code"],
        "agent" => &["user_agent", "http_user_agent", "User-Agent", "request_User-Agent"],
        "host" => &["authority", "http_host", "RequestHost", "server_name", ":authority"],
        "referer" => &["http_referer", "referrer"],
        "bytes" => &["bytes_sent", "body_bytes_sent", "size", "DownstreamContentSize"],
        "tenant" => &["tenant_id", "org", "organization", "account"],
        _ => &[],
    }
}

/// What is looked for in a line, and what of it a request has.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The names of each slot's field, the best first; none if no rule needs it.
    pub(crate) names: Vec<Vec<String>>,
    /// Whether the user chose the field of a slot.
    pub(crate) chosen: Vec<bool>,
    /// The attributes of a request, and their slots.
    pub(crate) attributes: Vec<(String, Slot)>,
    /// Nanoseconds that one of a duration is, if durations are wanted.
    pub(crate) duration: Option<f64>,
    /// Whether the field of the time was chosen for that of the start.
    time_is_start: bool,
}

impl Plan {
    /// What is needed for policies that ask for these attributes.
    pub(crate) fn new(mapping: &Mapping, attributes: &BTreeSet<String>) -> Plan {
        let mut all: Vec<&str> = FIXED.to_vec();
        all.extend(attributes.iter().map(String::as_str).filter(|name| !FIXED.contains(name)));
        let wants = |names: &[&str]| names.iter().any(|name| attributes.contains(*name));
        let of_request = wants(&["method", "path", "query", "endpoint"]);
        let is_needed = |name: &str| match name {
            "time" | "cost" | "key" | "ip" | "user" => true,
            // A retry often has the id of what it repeats, and a proxy's ids
            // are not those that callers send: only on request.
            "id" => mapping.get("id").is_some() || wants(&["id"]),
            "request" => of_request || wants(&["request"]),
            "method" | "path" | "query" => wants(&[name]) || wants(&["endpoint"]) || of_request,
            _ => attributes.contains(name),
        };
        let names = |name: &&str| match mapping.get(name) {
            Some(field) => vec![field.to_owned()],
            None if !is_needed(name) => Vec::new(),
            None => std::iter::once(*name).chain(synonyms(name).iter().copied()).map(str::to_owned).collect(),
        };
        let slots =
            attributes.iter().filter_map(|name| Some((name.clone(), all.iter().position(|known| known == name)?)));
        Plan {
            names: all.iter().map(names).collect(),
            chosen: all.iter().map(|name| mapping.get(name).is_some()).collect(),
            attributes: slots.collect(),
            duration: mapping.get("duration").map(|_| mapping.duration),
            time_is_start: mapping.time_is_start,
        }
    }

    /// Whether the name of this rank, of those of the time, is that of the start.
    pub(crate) fn is_start(&self, rank: u8) -> bool {
        let name = self.names[slot::TIME].get(usize::from(rank));
        self.time_is_start || name.is_some_and(|name| STARTS.contains(&name.as_str()))
    }

    pub(crate) fn slots(&self) -> usize {
        self.names.len()
    }

    /// What is kept of each line: the attributes, the key, and the id.
    pub(crate) fn width(&self) -> usize {
        self.attributes.len() + 2
    }

    pub(crate) fn kept(&self) -> impl Iterator<Item = Slot> {
        self.attributes.iter().map(|(_, slot)| *slot).chain([slot::KEY, slot::ID])
    }

    /// Every name of a field, with the slot that wants it and how much it does:
    /// zero is best.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, Slot, u8)> {
        let names = self.names.iter().enumerate();
        names.flat_map(|(slot, names)| names.iter().zip(0..).map(move |(name, rank)| (name.as_str(), slot, rank)))
    }
}
