//! The policy that the server goes by, and its text.

mod changes;

pub(crate) use self::changes::changes;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use tidegate::store::Store;
use tidegate::{ConfigError, Limiter, Policy};
use tidegate_config::{Format, Report};

use crate::access::audit::{PolicyChange, SERVER};
use crate::access::digest::Digest;
use crate::ask::attributes::Attribute;

/// The policy of a server that was given none.
pub(crate) const DEFAULT_POLICY: &str = include_str!("default_policy.toml");

/// Why a policy does not take the place of the one that applies.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PolicyError {
    #[error("{0}")]
    Errors(Box<Report>),
    /// Its text is good, but it cannot follow the one before.
    #[error(transparent)]
    Refused(#[from] ConfigError),
}

/// A policy as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicyText {
    /// Where it came from, unless it is built in or was put.
    pub(crate) file: Option<PathBuf>,
    pub(crate) format: Format,
    pub(crate) text: String,
}

/// What has changed as a policy took the place of another.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) texts: PolicyChange,
    /// A line for each rule that differs.
    pub(crate) rules: Vec<String>,
}

/// Versions that are kept, and bytes of all their texts.
const MAX_VERSIONS: usize = 20;
const MAX_VERSION_BYTES: usize = 4 << 20;

/// A policy that was in force, or is.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) generation: u64,
    pub(crate) since: SystemTime,
    /// The identity that put it in force.
    pub(crate) by: String,
    pub(crate) text: PolicyText,
    /// What it changed, a line for each rule.
    pub(crate) changes: Vec<String>,
}

/// The policy that applies: its text, and what has become of it.
pub(crate) struct CurrentPolicy {
    state: Mutex<PolicyState>,
    versions: Mutex<VecDeque<Version>>,
    is_built_in: AtomicBool,
    /// What it asks for of requests that proxies send.
    attributes: RwLock<Arc<[Attribute]>>,
}

/// A policy in force.
#[derive(Clone, Debug)]
pub(crate) struct PolicyState {
    pub(crate) text: PolicyText,
    /// How many have been in force, this one included.
    pub(crate) generation: u64,
    pub(crate) since: SystemTime,
    /// Why the latest that was read did not take its place.
    pub(crate) errors: Option<String>,
}

impl CurrentPolicy {
    /// Reads the policy of a file, or of the limits of limitador, or the built-in one.
    pub(crate) fn load(file: Option<&Path>, limits: Option<&Path>) -> Result<(CurrentPolicy, Policy), Report> {
        let (policy, text) = match (file, limits) {
            (None, None) => {
                let text = PolicyText { file: None, format: Format::Toml, text: DEFAULT_POLICY.into() };
                (tidegate_config::parse(DEFAULT_POLICY, Format::Toml, "built-in policy".as_ref())?, text)
            }
            (Some(path), _) => (tidegate_config::load(path)?, PolicyText::of_file(path)),
            (None, Some(path)) => (tidegate_config::limitador::load(path)?, PolicyText::of_file(path)),
        };
        let is_built_in = text.file.is_none();
        let state = PolicyState { text, generation: 1, since: SystemTime::now(), errors: None };
        let current = CurrentPolicy {
            versions: Mutex::default(),
            attributes: RwLock::new(Attribute::all_of([&policy])),
            is_built_in: AtomicBool::new(is_built_in),
            state: Mutex::new(state.clone()),
        };
        current.keep(&state, SERVER, Vec::new());
        Ok((current, policy))
    }

    pub(crate) fn state(&self) -> PolicyState {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the policy asks for of requests that proxies send.
    pub(crate) fn attributes(&self) -> Arc<[Attribute]> {
        Arc::clone(&self.attributes.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn set_attributes<'p>(&self, policies: impl IntoIterator<Item = &'p Policy>) {
        *self.attributes.write().unwrap_or_else(PoisonError::into_inner) = Attribute::all_of(policies);
    }

    /// Whether no other has been given so far.
    pub(crate) fn is_built_in(&self) -> bool {
        self.is_built_in.load(Ordering::Relaxed)
    }

    pub(crate) fn text(&self) -> PolicyText {
        self.state().text
    }

    /// Puts a policy in force and its text in the place of the other, and says what has changed if anything has.
    /// One at a time: of two at once, the one that is shown is the one that applies.
    pub(crate) fn replace(
        &self,
        limiter: &Limiter<impl Store>,
        policy: Policy,
        text: PolicyText,
        by: &str,
    ) -> Result<Option<Change>, ConfigError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // What a file includes is no part of its text; and the first reading
        // finds what the server has started with.
        let former = limiter.policy();
        let is_another = text != state.text || policy != former;
        let rules = if is_another { changes(&former, &policy) } else { Vec::new() };
        // Requests bring what either asks for, until it is certain which applies.
        self.set_attributes([&former, &policy]);
        let applied = limiter.set_policy(policy);
        self.set_attributes([&limiter.policy()]);
        applied?;
        self.is_built_in.store(false, Ordering::Relaxed);
        if !is_another {
            return Ok(None);
        }
        let [before, after] = [&state.text, &text].map(|text| Digest::of(text.text.as_bytes()));
        let generation = state.generation + 1;
        *state = PolicyState { text, generation, since: SystemTime::now(), errors: None };
        self.keep(&state, by, rules.clone());
        Ok(Some(Change { texts: PolicyChange { before, after }, rules }))
    }

    fn keep(&self, state: &PolicyState, by: &str, changes: Vec<String>) {
        let PolicyState { text, generation, since, .. } = state.clone();
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        versions.push_front(Version { generation, since, by: by.to_owned(), text, changes });
        // The one in force is kept however long it is.
        let mut bytes = 0;
        let mut is_kept = |version: &Version| {
            bytes += version.text.text.len();
            bytes <= MAX_VERSION_BYTES
        };
        let kept = versions.iter().skip(1).take(MAX_VERSIONS - 1).take_while(|version| is_kept(version)).count();
        versions.truncate(1 + kept);
    }

    /// The last policies, the one in force first.
    pub(crate) fn versions(&self) -> Vec<Version> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// The file was read again: it says what it said, or something that cannot be.
    pub(crate) fn set_errors(&self, errors: Option<String>) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).errors = errors;
    }
}

impl PolicyText {
    /// The text of a file that has just been read by others: only to be shown.
    pub(crate) fn of_file(path: &Path) -> PolicyText {
        let bytes = tidegate_config::read_file(path).unwrap_or_default();
        let text = String::from_utf8(bytes).unwrap_or_default();
        PolicyText { file: Some(path.into()), format: Format::of(path).unwrap_or(Format::Toml), text }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    const THREADS: usize = 8;

    #[test]
    fn of_several_policies_at_once_the_one_that_is_shown_applies() {
        let (current, policy) = CurrentPolicy::load(None, None).unwrap();
        assert!(current.is_built_in());
        let (limiter, start) = (Limiter::new(policy), Barrier::new(THREADS));
        let read = |text: &str| tidegate_config::parse(text, Format::Toml, "policy".as_ref()).unwrap();
        let put = &|words: &str| {
            let text = format!("[rules.everyone]\nlimit = \"{words}\"\nkey = [\"user\"]\n");
            let policy = read(&text);
            start.wait();
            current.replace(&limiter, policy, PolicyText { file: None, format: Format::Toml, text }, "a test").unwrap();
        };
        for round in 0..200 {
            thread::scope(|scope| {
                (0..THREADS).for_each(|thread| drop(scope.spawn(move || put(&format!("{}/s", thread + 1)))));
            });
            assert_eq!(read(&current.text().text), limiter.policy(), "in round {round}");
        }
        assert!(!current.is_built_in());
    }
}
