//! The descriptor files of Envoy's rate limit service, as they are.
//!
//! A file has a domain and a tree of descriptors. A request has a domain and
//! descriptors, each a list of keys and values. Each descriptor walks down the
//! tree, one level for each of its entries: by the key and the value if the
//! file has both, else by the first value with `*` that matches, else by the
//! key alone. The limit is that of the descriptor where it ends, if it has one;
//! limits above or below do not count.
//!
//! ```
//! use tidegate::{Limit, Setting};
//! use tidegate_config::envoy;
//!
//! let config = envoy::parse(
//!     "
//! domain: edge
//! descriptors:
//!   - key: remote_address
//!     rate_limit: { unit: second, requests_per_unit: 10 }
//!   - key: remote_address
//!     value: 50.0.0.5
//!     rate_limit: { unit: second, requests_per_unit: 0 }
//! ",
//!     "edge.yaml".as_ref(),
//! )?;
//! let setting = |address| config.limit_for("edge", &[("remote_address", address)]).map(|matched| matched.setting);
//! let second = std::time::Duration::from_secs(1);
//! assert_eq!(setting("50.0.0.1"), Some(Setting::Limit(Limit::fixed_window(10, second))));
//! assert_eq!(setting("50.0.0.5"), Some(Setting::Blocked));
//! assert!(config.limit_for("edge", &[("path", "/")]).is_none());
//! # Ok::<(), tidegate_config::Report>(())
//! ```
//!
//! Limits are fixed windows, as they are there. A month is 30 days and a year
//! 365, as they are there. What was used is counted by domain, entries and unit,
//! as it is there. Unlike there, `a_b` with `c` and `a` with `b_c` are different
//! descriptors, and numbers that begin with 0 are refused.
//!
//! An [`EnvoyConfig`] says which limits a request meets; an [`EnvoyLimiter`]
//! decides by them, on any store.

mod file;
mod limiter;
mod listed;
mod metadata;
mod plan;
mod request;
mod wildcard;

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use tidegate::store::Meter;
use tidegate::{Limit, Micros, Name, Setting};

use crate::reader::{Disk, Found, MAX_FILES, MAX_TOTAL_BYTES, Reader, read_text, text_of, unreadable};
use crate::report::{Collector, Diagnostic, Problem, Report};
use crate::source::{Place, Source, Span};
use crate::tree::{self, Node, Texts};
pub use file::Unit;
use file::{DescriptorFile, EnvoyFile, RateLimitFile};
pub use limiter::EnvoyLimiter;
pub use listed::Listed;
pub use metadata::Metadata;
pub use request::{Descriptor, EnvoyDecision, Hits, Status};

/// Which limits the files of Envoy's rate limit service set for whom.
#[derive(Clone, Debug, Default)]
pub struct EnvoyConfig {
    domains: HashMap<String, Level>,
}

/// A limit that a descriptor meets.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Matched<'c, 'r> {
    /// What applies: a fixed window, or one of its two extremes.
    pub setting: Setting,
    /// In what time; none if there is no limit.
    pub unit: Option<Unit>,
    /// Whose limit it is: the keys and values of the descriptor, where a value
    /// that shares its threshold with others is the pattern of them all.
    pub key: Vec<(&'r str, Cow<'r, str>)>,
    /// The descriptor in the file: its keys, and their values if it has them,
    /// from the top.
    pub path: &'c str,
    /// Whether it only watches.
    pub shadow: bool,
    /// Whether it refuses only together with all others of this kind.
    pub quota: bool,
    /// Its name, by which others can replace it.
    pub name: Option<&'c Arc<str>>,
    /// The names of the limits that it replaces where both match.
    pub replaces: &'c [String],
    /// Whether all values of its pattern share one limit.
    pub shares_threshold: bool,
    /// Whether its statistics are to tell values apart.
    pub detailed_metric: bool,
    /// What the file wants Envoy to be told where this one passes.
    pub metadata: Option<&'c Arc<Metadata>>,
    rule: Option<Name>,
    meter: Option<&'c Meter>,
    former: &'c [FormerLimit],
}

/// The configuration of files, each with a domain of its own. Of a folder,
/// these are its `.yaml` and `.yml` files, without those that are hidden and
/// without those of folders in it.
///
/// # Errors
/// A report of all that is wrong.
pub fn load<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<EnvoyConfig, Report> {
    load_by(&mut Disk, paths)
}

/// The configuration of files that `reader` reads.
pub(crate) fn load_by<P: AsRef<Path>>(
    reader: &mut dyn Reader,
    paths: impl IntoIterator<Item = P>,
) -> Result<EnvoyConfig, Report> {
    let mut maker = Maker::default();
    for path in paths {
        let path = path.as_ref();
        match reader.read(path) {
            Ok(Found::File(bytes)) => maker.text(path, text_of(bytes, path)),
            Ok(Found::Folder(files)) => {
                for file in files {
                    if maker.diagnostics.is_full() {
                        break;
                    }
                    maker.text(&file, read_text(reader, &file, None));
                }
            }
            Err(source) => maker.diagnostics.add(|| Diagnostic::somewhere(unreadable(path, source))),
        }
    }
    maker.diagnostics.finish(Some(maker.config))
}

/// The configuration of a text; errors are told under the name.
///
/// # Errors
/// A report of all that is wrong.
pub fn parse(text: &str, name: &Path) -> Result<EnvoyConfig, Report> {
    let mut maker = Maker::default();
    maker.file(&Source::new(name, text.to_owned()));
    maker.diagnostics.finish(Some(maker.config))
}

impl EnvoyConfig {
    /// The limit that a descriptor meets, if it meets one.
    #[must_use]
    pub fn limit_for<'r>(&self, domain: &str, descriptor: &[(&'r str, &'r str)]) -> Option<Matched<'_, 'r>> {
        let mut level = self.domains.get(domain)?;
        let mut key = Vec::with_capacity(descriptor.len());
        let mut found = None;
        for (name, value) in descriptor {
            let next = level.find(name, value)?;
            key.push((
                *name,
                match &next.shared {
                    Some(pattern) => Cow::Owned(pattern.clone()),
                    None => Cow::Borrowed(*value),
                },
            ));
            level = &next.below;
            found = Some(next);
        }
        let descriptor = found?;
        let limit = descriptor.limit.as_ref()?;
        Some(Matched {
            setting: limit.setting,
            unit: limit.unit,
            key,
            path: &descriptor.path,
            shadow: descriptor.shadow,
            quota: descriptor.quota,
            name: limit.name.as_ref(),
            replaces: &limit.replaces,
            shares_threshold: descriptor.shared.is_some(),
            detailed_metric: descriptor.detailed_metric,
            metadata: descriptor.metadata.as_ref(),
            rule: limit.rule.clone(),
            meter: limit.meter.as_ref(),
            former: &limit.former,
        })
    }

    /// The limits that the descriptors of a request meet, in their order,
    /// without those that another of them replaces.
    #[must_use]
    pub fn limits_for<'r>(&self, domain: &str, descriptors: &[&[(&'r str, &'r str)]]) -> Vec<Matched<'_, 'r>> {
        self.limits_by_descriptor(domain, descriptors.iter().copied()).into_iter().flatten().collect()
    }

    /// The limit of each descriptor, if it has one that no other replaces.
    fn limits_by_descriptor<'d, 'r: 'd>(
        &self,
        domain: &str,
        descriptors: impl Iterator<Item = &'d [(&'r str, &'r str)]>,
    ) -> Vec<Option<Matched<'_, 'r>>> {
        let mut limits: Vec<_> = descriptors.map(|descriptor| self.limit_for(domain, descriptor)).collect();
        let replaced: Vec<&str> =
            limits.iter().flatten().flat_map(|limit| limit.replaces).map(String::as_str).collect();
        if !replaced.is_empty() {
            for limit in &mut limits {
                limit.take_if(|limit| limit.name.is_some_and(|name| replaced.contains(&&**name)));
            }
        }
        limits
    }

    /// Whether a file is about the domain.
    #[must_use]
    pub fn has_domain(&self, domain: &str) -> bool {
        self.domains.contains_key(domain)
    }

    /// Makes the meters, whose names are kept for the life of the process.
    /// They take the place of the former ones of the same descriptors.
    /// Makes it ready to decide, with the former limits of its descriptors.
    fn make_meters(&mut self, history: &History) {
        self.domains.values_mut().for_each(|level| level.make_meters(history));
    }

    /// What would be the history of another configuration from `now` on.
    fn add_to(&self, history: &mut History, now: Micros) {
        self.domains.values().for_each(|level| level.add_to(history, now));
    }

    /// The domains, in no order.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        self.domains.keys().map(String::as_str)
    }
}

/// A limit that a descriptor had, and until when what was used of it matters.
type FormerLimit = (Meter, Micros);

/// The former limits of descriptors, by their [ids](Configured::id).
type History = HashMap<String, Vec<FormerLimit>>;

/// Descriptors beside each other.
#[derive(Clone, Debug, Default)]
struct Level {
    by_key: HashMap<String, Siblings>,
}

/// Descriptors with the same key.
#[derive(Clone, Debug, Default)]
struct Siblings {
    exact: HashMap<String, Configured>,
    /// In the order of the file.
    patterns: Vec<(String, Configured)>,
    any: Option<Box<Configured>>,
}

/// A descriptor of a file.
#[derive(Clone, Debug)]
struct Configured {
    path: String,
    /// As the path, and no other descriptor's.
    id: String,
    limit: Option<RateLimit>,
    below: Level,
    /// The pattern whose values have one limit together.
    shared: Option<String>,
    shadow: bool,
    quota: bool,
    detailed_metric: bool,
    metadata: Option<Arc<Metadata>>,
}

#[derive(Clone, Debug)]
struct RateLimit {
    setting: Setting,
    unit: Option<Unit>,
    /// Both are there once the configuration is made ready, the meter if the
    /// setting is a limit.
    rule: Option<Name>,
    meter: Option<Meter>,
    former: Vec<FormerLimit>,
    name: Option<Arc<str>>,
    replaces: Vec<String>,
}

impl Level {
    fn find(&self, key: &str, value: &str) -> Option<&Configured> {
        let siblings = self.by_key.get(key)?;
        let by_pattern = || siblings.patterns.iter().find(|(pattern, _)| wildcard::matches(pattern, value));
        siblings.exact.get(value).or_else(|| by_pattern().map(|(_, descriptor)| descriptor)).or(siblings.any.as_deref())
    }

    fn make_meters(&mut self, history: &History) {
        for siblings in self.by_key.values_mut() {
            let Siblings { exact, patterns, any } = siblings;
            let patterns = patterns.iter_mut().map(|(_, configured)| configured);
            for configured in exact.values_mut().chain(patterns).chain(any.as_deref_mut()) {
                if let Some(limit) = &mut configured.limit {
                    limit.rule = Some(Name::from(&configured.path));
                    if let Setting::Limit(configured) = limit.setting {
                        limit.meter = Some(meter_of(configured));
                    }
                    limit.former = history.get(&configured.id).cloned().unwrap_or_default();
                }
                configured.below.make_meters(history);
            }
        }
    }

    fn add_to(&self, history: &mut History, now: Micros) {
        for Siblings { exact, patterns, any } in self.by_key.values() {
            let patterns = patterns.iter().map(|(_, configured)| configured);
            for configured in exact.values().chain(patterns).chain(any.as_deref()) {
                if let Some(meter) = configured.limit.as_ref().and_then(|limit| limit.meter.as_ref()) {
                    let former = history.entry(configured.id.clone()).or_default();
                    former.retain(|(former, _)| former.identity() != meter.identity());
                    former.push((meter.clone(), now.saturating_add(meter.horizon())));
                }
                configured.below.add_to(history, now);
            }
        }
    }
}

/// The name of all states: what is counted belongs to the domain, the entries and
/// the unit, as it does there, whichever limit of whichever number counts it.
const STATES: Name = Name::literal("envoy");

fn meter_of(limit: Limit) -> Meter {
    Meter::new(STATES, limit).by_period()
}

/// What descriptors are below: a domain, or another descriptor.
#[derive(Clone, Copy)]
struct Above<'a> {
    path: &'a str,
    id: &'a str,
}

/// A text and one more, such that no other two come to the same.
fn told_apart(before: &str, more: &str) -> String {
    format!("{before}{}:{more}", more.len())
}

/// The most bytes of the paths of all descriptors. Each has its domain and all
/// keys above it: many below a long one come to far more than their files.
const MAX_PATH_BYTES: usize = MAX_TOTAL_BYTES;

/// Makes a configuration of files.
#[derive(Default)]
struct Maker {
    diagnostics: Collector,
    config: EnvoyConfig,
    /// Where each domain is set.
    places: HashMap<String, Place>,
    /// Whether no part of any file was left out for its errors.
    all_read: bool,
    files: usize,
    bytes: usize,
    path_bytes: usize,
}

impl Maker {
    /// A file, if it could be read and is not too much.
    fn text(&mut self, path: &Path, text: Result<String, Box<Diagnostic>>) {
        let text = match text {
            Ok(text) => text,
            Err(diagnostic) => return self.diagnostics.add(|| *diagnostic),
        };
        self.files += 1;
        self.bytes += text.len();
        let (what, bound) = match () {
            () if self.files > MAX_FILES => ("there are too many files", MAX_FILES),
            () if self.bytes > MAX_TOTAL_BYTES => ("the files have too many bytes in all", MAX_TOTAL_BYTES),
            () => return self.file(&Source::new(path, text)),
        };
        self.diagnostics.add(|| Diagnostic::somewhere(Problem::TooMuch { what, bound }));
    }

    fn file(&mut self, source: &Source) {
        let Some(mut tree) = tree::parse_yaml(source, &mut self.diagnostics) else { return };
        let file: Option<EnvoyFile> = tree::read(&mut tree, Texts::AsWritten, source, &mut self.diagnostics);
        let Some(file) = file else { return };
        self.all_read = self.diagnostics.is_empty();
        let place = tree.at(&["domain"]).map_or(0..0, |node| node.span.clone());
        if file.domain.is_empty() {
            self.invalid(source, &tree, "domain", "the domain is empty: give the file one".into());
            return;
        }
        let problem = Problem::Twice { what: "the domain", name: file.domain.clone() };
        if let Some(first) = self.places.insert(file.domain.clone(), source.place(&place)) {
            self.diagnostics.add(|| Diagnostic::at(source, &place, problem).see(first, "first here"));
        }
        let above = Above { path: &file.domain, id: &told_apart("", &file.domain) };
        let level = self.level(source, above, &file.descriptors, tree.at(&["descriptors"]));
        self.config.domains.insert(file.domain, level);
    }

    fn level(&mut self, source: &Source, above: Above<'_>, files: &[DescriptorFile], list: Option<&Node>) -> Level {
        let mut level = Level::default();
        let mut places: HashMap<(&str, &str), &Span> = HashMap::new();
        for (file, node) in files.iter().zip(list.map(Node::items).unwrap_or_default()) {
            if file.key.is_empty() {
                self.invalid(source, node, "key", "the key of a descriptor is empty".into());
                continue;
            }
            let named_by = node.at(&["value"]).or(node.at(&["key"])).unwrap_or(node);
            self.path_bytes += above.path.len() + file.key.len() + file.value.len();
            if self.path_bytes > MAX_PATH_BYTES {
                let what = "descriptors, each with its domain and the keys above it, have too many bytes in all";
                let problem = Problem::TooMuch { what, bound: MAX_PATH_BYTES };
                self.diagnostics.add(|| Diagnostic::at(source, &named_by.span, problem));
                break;
            }
            let path = match file.value.as_str() {
                "" => format!("{}.{}", above.path, file.key),
                value => format!("{}.{}_{value}", above.path, file.key),
            };
            let id = told_apart(&told_apart(above.id, &file.key), &file.value);
            if let Some(first) = places.insert((&file.key, &file.value), &named_by.span) {
                let problem = Problem::Twice { what: "the descriptor", name: path };
                self.diagnostics
                    .add(|| Diagnostic::at(source, &named_by.span, problem).see(source.place(first), "first here"));
                continue;
            }
            let descriptor = self.descriptor(source, (path, id), file, node);
            let siblings = level.by_key.entry(file.key.clone()).or_default();
            if file.value.is_empty() {
                siblings.any = Some(Box::new(descriptor));
            } else if file.value.contains('*') {
                siblings.patterns.push((file.value.clone(), descriptor));
            } else {
                siblings.exact.insert(file.value.clone(), descriptor);
            }
        }
        level
    }

    fn descriptor(
        &mut self,
        source: &Source,
        (path, id): (String, String),
        file: &DescriptorFile,
        node: &Node,
    ) -> Configured {
        if file.share_threshold && !file.value.contains('*') {
            let message = "share_threshold is for values with *: there is none to share with".to_owned();
            self.invalid(source, node, "share_threshold", message);
        }
        let limit = match (&file.rate_limit, node.at(&["rate_limit"])) {
            (Some(limit), Some(node)) => self.rate_limit(source, limit, node),
            _ => None,
        };
        let above = Above { path: &path, id: &id };
        Configured {
            limit,
            below: self.level(source, above, &file.descriptors, node.at(&["descriptors"])),
            path,
            id,
            shared: file.share_threshold.then(|| file.value.clone()),
            shadow: file.shadow_mode,
            quota: file.quota_mode,
            detailed_metric: file.detailed_metric,
            metadata: node.at(&["metadata"]).map(|node| Arc::new(Metadata::of(node))),
        }
    }

    fn rate_limit(&mut self, source: &Source, file: &RateLimitFile, node: &Node) -> Option<RateLimit> {
        let replaced = node.at(&["replaces"]).map(Node::items).unwrap_or_default();
        for (replaces, node) in file.replaces.iter().zip(replaced) {
            if replaces.name.is_empty() {
                self.invalid(source, node, "name", "the name of the limit to replace is empty".into());
            } else if file.name.as_ref() == Some(&replaces.name) {
                self.invalid(source, node, "name", "a limit cannot replace itself".into());
            }
        }
        let setting = match (file.unlimited, file.unit, file.requests_per_unit) {
            (true, Some(_), _) => {
                self.invalid(source, node, "unit", "without a limit there is no unit: leave one of them out".into());
                return None;
            }
            (true, None, _) => Setting::Unlimited,
            (false, None, _) => {
                // After an error, the unit may be missing only because it was not read.
                if self.all_read {
                    self.diagnostics.add(|| Diagnostic::at(source, &node.span, Problem::Missing { field: "unit" }));
                }
                return None;
            }
            (false, Some(unit), count) => unit.setting(count),
        };
        let replaces = file.replaces.iter().map(|replaces| replaces.name.clone()).collect();
        let (unit, name) = (file.unit, file.name.as_deref().map(Arc::from));
        Some(RateLimit { setting, unit, rule: None, meter: None, former: Vec::new(), name, replaces })
    }

    /// Something is wrong with a field of a node.
    fn invalid(&mut self, source: &Source, node: &Node, field: &str, message: String) {
        let span = &node.at(&[field]).unwrap_or(node).span;
        self.diagnostics.add(|| Diagnostic::at(source, span, Problem::Invalid { message }));
    }
}
