//! The limits files of limitador, as policies.
//!
//! A file is a list of limits, each of a namespace: so many in so many seconds, under conditions, counted apart for
//! each value of its variables. A limit becomes a rule: a fixed window for requests whose `domain` is the namespace.
//! What limitador's expressions call `descriptors[0]['user']` is the attribute `descriptors[0].user` of the request.
//!
//! ```
//! use tidegate::{Limiter, Request};
//! use tidegate_config::limitador;
//!
//! let policy = limitador::parse(
//!     "
//! - namespace: shop
//!   max_value: 1
//!   seconds: 86400
//!   conditions: [\"descriptors[0]['method'] == 'POST'\"]
//!   variables: [\"descriptors[0]['user']\"]
//! ",
//!     "limits.yaml".as_ref(),
//! )?;
//! let limiter = Limiter::new(policy);
//! let post = |user| {
//!     let request = Request::without_key().with("domain", "shop").with("descriptors[0].method", "POST");
//!     limiter.allow(request.with("descriptors[0].user", user))
//! };
//! assert!(post("alice") && !post("alice") && post("bob"));
//! # Ok::<(), tidegate_config::Report>(())
//! ```
//!
//! Unlike there, windows begin with the unit of time, not with the first request. A limit whose variable the request
//! lacks does not apply, as there. A condition that no rule can ask is an error at its place.

mod condition;

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use tidegate::{Condition, Limit, Missing, Policy, Rule, Setting};

use crate::load::{Format, tree_of};
use crate::reader::{Disk, Reader, read_text};
use crate::report::{Collector, Diagnostic, Problem, Report};
use crate::source::{Source, Span};
use crate::tree::{self, Node, Texts};
use condition::{Asks, HELP, NotUnderstood, Test};

/// The attribute that is the namespace of a limit.
pub const NAMESPACE: &str = "domain";

/// The attribute that an entry of a descriptor is.
#[must_use]
pub fn attribute(descriptor: u32, key: &str) -> String {
    condition::attribute(descriptor, key)
}

/// The policy of a limits file.
///
/// # Errors
/// A report of all that is wrong.
pub fn load(path: impl AsRef<Path>) -> Result<Policy, Report> {
    load_by(&mut Disk, path.as_ref())
}

pub(crate) fn load_by(reader: &mut dyn Reader, path: &Path) -> Result<Policy, Report> {
    let text = read_text(reader, path, None).map_err(|diagnostic| *diagnostic)?;
    of_text(text, path)
}

/// The policy of a text; errors are told under the name.
///
/// # Errors
/// A report of all that is wrong.
pub fn parse(text: &str, name: &Path) -> Result<Policy, Report> {
    of_text(text.to_owned(), name)
}

fn of_text(text: String, name: &Path) -> Result<Policy, Report> {
    let mut diagnostics = Collector::default();
    let policy = tree_of(name, text, Format::Yaml, &mut diagnostics).and_then(|(source, mut tree)| {
        let limits: Vec<LimitFile> = tree::read(&mut tree, Texts::AsWritten, &source, &mut diagnostics)?;
        let mut maker =
            Maker { source: &source, diagnostics: &mut diagnostics, seen: HashMap::new(), names: HashMap::new() };
        let rules: Vec<Rule> =
            limits.iter().zip(tree.items()).filter_map(|(limit, node)| maker.limit(limit, node)).collect();
        // A policy has a rule at least.
        let policy = match rules.is_empty() {
            true => Policy::new().otherwise(Rule::with_setting("no limits", Setting::Unlimited)),
            false => rules.into_iter().fold(Policy::new(), Policy::rule),
        };
        Some(policy)
    });
    diagnostics.finish(policy)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitFile {
    /// Names the limit in limitador's own API.
    #[serde(default, rename = "id")]
    _id: Option<String>,
    namespace: String,
    #[serde(default)]
    max_value: u64,
    seconds: u64,
    name: Option<String>,
    #[serde(default)]
    conditions: Vec<String>,
    #[serde(default)]
    variables: Vec<String>,
}

impl LimitFile {
    /// What tells it from others: a limit with another number is the same limit.
    fn identity(&self) -> String {
        let sorted = |texts: &[String]| {
            let mut texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            texts.sort_unstable();
            texts.dedup();
            texts.join(", ")
        };
        let mut identity = format!("{}/{}s", self.namespace, self.seconds);
        for (word, texts) in [(" if ", &self.conditions), (" by ", &self.variables)] {
            if !texts.is_empty() {
                identity += &format!("{word}{}", sorted(texts));
            }
        }
        identity
    }
}

/// Makes rules of the limits of a file.
struct Maker<'s> {
    source: &'s Source,
    diagnostics: &'s mut Collector,
    /// Where each limit stands.
    seen: HashMap<String, Span>,
    /// How many rules have a name.
    names: HashMap<String, usize>,
}

impl Maker<'_> {
    fn limit(&mut self, file: &LimitFile, node: &Node) -> Option<Rule> {
        let identity = file.identity();
        if let Some(first) = self.seen.insert(identity.clone(), node.span.clone()) {
            let problem = Problem::Twice { what: "the limit", name: identity };
            self.diagnostics.add(|| {
                let diagnostic = Diagnostic::at(self.source, &field(node, "namespace"), problem);
                diagnostic.see(self.source.place(&first), "first here")
            });
            return None;
        }
        let tests = self.all(&file.conditions, node.at(&["conditions"]), condition::parse);
        let key =
            self.all(&file.variables, node.at(&["variables"]), |text| condition::variable(text).map(|name| vec![name]));
        let setting = match file.max_value {
            0 => Some(Setting::Blocked),
            count => match Limit::try_fixed_window(count, Duration::from_secs(file.seconds)) {
                Ok(limit) => Some(Setting::Limit(limit)),
                Err(error) => {
                    let wrong = if file.seconds == 0 { "seconds" } else { "max_value" };
                    self.diagnostics.add(|| Diagnostic::at(self.source, &field(node, wrong), Problem::Policy(error)));
                    None
                }
            },
        };
        let (tests, key, setting) = (tests?, key?, setting?);
        // Limits may share a name there, and a rule has its own.
        let name = match &file.name {
            Some(name) => format!("{}/{name}", file.namespace),
            None => identity.clone(),
        };
        let count = self.names.entry(name.clone()).or_default();
        *count += 1;
        let name = if *count > 1 { format!("{name} ({identity})") } else { name };
        let rule = Rules { name, setting }
            .of(tests.iter().map(|(test, _)| test))
            .map_err(|(place, message)| self.refuse(&tests[place].1, message))
            .ok()?;
        let rule = rule.when(NAMESPACE, Condition::Equals(file.namespace.clone()));
        Some(rule.key(key.into_iter().map(|(name, _)| name)).missing(Missing::Skip))
    }

    /// What texts of a list come to, each with its place; nothing if one is not understood.
    fn all<T>(
        &mut self,
        texts: &[String],
        list: Option<&Node>,
        parse: impl Fn(&str) -> Result<Vec<T>, NotUnderstood>,
    ) -> Option<Vec<(T, Span)>>
    where
        T: Spanned,
    {
        let mut all = Some(Vec::new());
        for (text, node) in texts.iter().zip(list.map(Node::items).unwrap_or_default()) {
            match parse(text) {
                Ok(parts) => {
                    let parts = parts.into_iter().map(|part| {
                        let span = self.within(&node.span, text, part.span());
                        (part, span)
                    });
                    let parts: Vec<_> = parts.collect();
                    if let Some(all) = &mut all {
                        all.extend(parts);
                    }
                }
                Err(NotUnderstood { span, message }) => {
                    let span = self.within(&node.span, text, Some(span));
                    self.refuse(&span, message);
                    all = None;
                }
            }
        }
        all
    }

    fn refuse(&mut self, span: &Span, message: String) {
        let problem = Problem::Invalid { message };
        self.diagnostics.add(|| Diagnostic::at(self.source, span, problem).help_with(HELP));
    }

    /// The place of a part of a text: that of the whole, if the text is not written as it reads.
    fn within(&self, whole: &Span, text: &str, part: Option<Range<usize>>) -> Span {
        match (self.source.written(whole).find(text), part) {
            (Some(start), Some(part)) => whole.start + start + part.start..whole.start + start + part.end,
            _ => whole.clone(),
        }
    }
}

/// What knows its place in its text.
trait Spanned {
    fn span(&self) -> Option<Range<usize>>;
}

impl Spanned for Test {
    fn span(&self) -> Option<Range<usize>> {
        Some(self.span.clone())
    }
}

impl Spanned for String {
    fn span(&self) -> Option<Range<usize>> {
        None
    }
}

fn field(node: &Node, name: &str) -> Span {
    node.at(&[name]).unwrap_or(node).span.clone()
}

/// Makes a rule of tests. A rule asks what an attribute is, never what it is not: where it is one of the values that it
/// must not be, an override lifts the limit. One of several values is the other way round.
struct Rules {
    name: String,
    setting: Setting,
}

impl Rules {
    /// # Errors
    /// The test that no rule can ask beside the others, and why.
    fn of<'t>(self, tests: impl Iterator<Item = &'t Test> + Clone) -> Result<Rule, (usize, String)> {
        let several = |test: &&Test| matches!(&test.asks, Asks::In(values) if values.len() != 1);
        let mut lists = tests.clone().enumerate().filter(|(_, test)| several(test));
        let list = lists.next();
        if let Some((place, _)) = lists.next() {
            return Err((place, "a limit can have one list of values".into()));
        }
        let standard = if list.is_some() { Setting::Unlimited } else { self.setting };
        let mut rule = Rule::with_setting(self.name, standard);
        for (place, Test { attribute, asks, .. }) in tests.enumerate() {
            rule = match asks {
                Asks::In(values) => match values.as_slice() {
                    [value] => rule.when(attribute, Condition::Equals(value.clone())),
                    _ => continue,
                },
                Asks::NotIn(_) | Asks::NotMatches(_) if list.is_some_and(|(_, list)| list.attribute == *attribute) => {
                    return Err((place, "a key that has a list of values cannot have a negation beside it".into()));
                }
                Asks::NotIn(values) => {
                    let rule = rule.when(attribute, Condition::Present);
                    values.iter().fold(rule, |rule, value| rule.override_exactly(attribute, value, Setting::Unlimited))
                }
                Asks::NotMatches(_) if list.is_some() => {
                    return Err((place, "a pattern cannot be negated beside a list of values".into()));
                }
                Asks::NotMatches(pattern) => {
                    let rule = rule.when(attribute, Condition::Present);
                    rule.override_matching(attribute, pattern, Setting::Unlimited)
                }
                Asks::StartsWith(text) => rule.when(attribute, Condition::StartsWith(text.clone())),
                Asks::Matches(pattern) => rule.when(attribute, Condition::Matches(pattern.clone())),
                Asks::Present => rule.when(attribute, Condition::Present),
                Asks::Absent => rule.when(attribute, Condition::Absent),
            };
        }
        if let Some((_, Test { attribute, asks: Asks::In(values), .. })) = list {
            // After those that lift it: of exact values of several attributes, the first counts.
            rule = values.iter().fold(rule, |rule, value| rule.override_exactly(attribute, value, self.setting));
        }
        Ok(rule)
    }
}
