//! A picture of the server: everything that is worth a look, at one moment.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tidegate::store::Store;
use tidegate::{Micros, Name, Policy, Rule};
use tidegate_redis::{RedisStore, Statistics};

use crate::ask::policy::PolicyState;
use crate::ask::request_document::RequestDocument;
use crate::ask::store::{AnyStore, Health};
use crate::screen::Screen;
use crate::screen::history::Latency;
use crate::tell::crossings::Crossing;
use crate::tell::held::Held;
use crate::tell::metrics::{Reading, RuleCounts};
use crate::tell::refused::RecentRefusal;
use crate::wire::app::App;
use crate::wire::json::micros;

/// Keys in the list of those that are refused most, and reservations in the list of the oldest.
const TOP: usize = 20;

/// Everything that the dashboard shows. Times are microseconds; totals are
/// since the start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Picture {
    pub(crate) version: String,
    /// The store's time, since 1970: refusals are told in it.
    pub(crate) time_us: u64,
    pub(crate) uptime_us: u64,
    /// Whether the server is leaving.
    pub(crate) leaving: bool,
    pub(crate) connections: u64,
    /// Requests without a decision.
    pub(crate) failures: u64,
    pub(crate) store: StorePicture,
    pub(crate) policy: PolicyPicture,
    /// The rules of the policy in their order, then others that decided.
    pub(crate) rules: Vec<RulePicture>,
    pub(crate) latency: Vec<LatencyPicture>,
    pub(crate) reservations: ReservationsPicture,
    /// The thresholds that were crossed last, the latest first.
    #[serde(default)]
    pub(crate) crossings: Vec<CrossingPicture>,
    pub(crate) top_refused: Vec<TopRefused>,
    /// The latest refusal of each key, the latest first.
    pub(crate) recent_refusals: Vec<RefusalPicture>,
}

/// The store, and whether it answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct StorePicture {
    /// `memory` or `redis`.
    pub(crate) kind: String,
    pub(crate) reachable: bool,
    /// `closed` or `open`; null for a store that has none.
    pub(crate) breaker: Option<String>,
    /// Live keys, as of a few seconds ago; null if they are counted elsewhere.
    pub(crate) keys: Option<u64>,
    pub(crate) max_keys: Option<u64>,
    /// Checks that found no room for their key.
    pub(crate) overflows: u64,
    pub(crate) round_trips: u64,
    pub(crate) failures: u64,
    pub(crate) calls_skipped: u64,
    pub(crate) outages: u64,
    pub(crate) leased: u64,
    pub(crate) repeated: u64,
}

/// Which policy is in force.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PolicyPicture {
    /// The file, unless the policy is built in or was put.
    pub(crate) file: Option<String>,
    /// How many have been in force, this one included.
    pub(crate) generation: u64,
    pub(crate) since_us: u64,
    /// Why what the file says now is not in force.
    pub(crate) errors: Option<String>,
}

/// One rule, and what it decided.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RulePicture {
    pub(crate) rule: String,
    /// The limit in words; null for a rule that is not in the policy.
    pub(crate) limit: Option<String>,
    /// The attributes that make its keys; null if requests bring the key.
    pub(crate) key: Option<Vec<String>>,
    /// Whether it only watches.
    pub(crate) shadow: bool,
    /// Of its decisions in the last ten seconds.
    #[serde(default)]
    pub(crate) latency: Latency,
    #[serde(flatten)]
    pub(crate) counts: RuleCounts,
}

/// From a request to its answer, of one protocol.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LatencyPicture {
    pub(crate) protocol: String,
    pub(crate) sum_us: u64,
    /// Each counts what is above the one before.
    pub(crate) buckets: Vec<LatencyBucket>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LatencyBucket {
    /// The upper bound; null for what is above all bounds.
    pub(crate) within_us: Option<u64>,
    pub(crate) count: u64,
}

/// The reservations of this server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ReservationsPicture {
    pub(crate) open: u64,
    /// How many ended unsettled.
    pub(crate) expired: u64,
    /// Those that have been open for longest, the oldest first.
    pub(crate) oldest: Vec<HeldPicture>,
}

/// A reservation that is open.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HeldPicture {
    pub(crate) id: String,
    /// The rule that had least left for it, and the key that it counts by.
    pub(crate) rule: String,
    pub(crate) key: String,
    pub(crate) cost: u64,
    pub(crate) since_us: u64,
    pub(crate) expires_us: u64,
}

/// A threshold that a charge crossed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CrossingPicture {
    pub(crate) at_us: u64,
    pub(crate) rule: String,
    pub(crate) key: String,
    /// In percent of the limit.
    pub(crate) threshold: u8,
    pub(crate) used: u64,
    /// The most that can pass at once.
    pub(crate) limit: u64,
    /// When the key is as if never used, unless it is charged again.
    pub(crate) resets_at_us: u64,
    /// Whether the rule only watches.
    pub(crate) shadow: bool,
}

/// A key that is refused often.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TopRefused {
    pub(crate) rule: String,
    pub(crate) key: String,
    /// At most this often; at least `error` less.
    pub(crate) refused: u64,
    pub(crate) error: u64,
}

/// The latest refusal of a key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RefusalPicture {
    pub(crate) at_us: u64,
    pub(crate) rule: String,
    pub(crate) key: String,
    /// How often the key was refused since it is in the list.
    pub(crate) times: u64,
    pub(crate) cost: u64,
    /// The most that can pass at once.
    pub(crate) limit: u64,
    /// Null if no waiting helps.
    pub(crate) retry_after_us: Option<u64>,
    /// The request, to have it explained or its keys reset; null if it has no words in JSON, or
    /// came as an Envoy descriptor.
    pub(crate) request: Option<RequestDocument>,
}

impl Picture {
    /// The server as it is now.
    pub(crate) fn of(Screen { app, shown }: &Screen) -> Picture {
        let policy = app.engine.limiter.policy();
        // Counting keys takes a while: the time and the totals are read after it, and together.
        let store = store(app);
        let now = app.engine.store().clock().now();
        Picture {
            version: env!("CARGO_PKG_VERSION").into(),
            time_us: now.get(),
            uptime_us: micros(app.started.elapsed()),
            leaving: app.guards.drain.is_leaving(),
            connections: app.guards.connections.open() as u64,
            failures: app.records.metrics.failures(),
            store,
            policy: of_policy(app.engine.policy.state()),
            rules: rules(&policy, app.records.metrics.rules(), &shown.history.latencies()),
            latency: app
                .records
                .metrics
                .latency()
                .map(|(protocol, reading)| latency(protocol.as_str(), reading))
                .collect(),
            reservations: reservations(app, now),
            crossings: app.records.metrics.crossings.recent().iter().map(of_crossing).collect(),
            top_refused: top_refused(app, TOP),
            recent_refusals: app.records.refused.recent().iter().map(of_refusal).collect(),
        }
    }
}

fn store(app: &App) -> StorePicture {
    let store = app.engine.store();
    let (kind, reachable) = (store.name().into(), store.health() == Health::Good);
    match store {
        AnyStore::Memory(memory) => StorePicture {
            kind,
            reachable,
            keys: Some(app.records.metrics.keys.of(|| memory.count_keys())),
            max_keys: Some(app.settings.max_keys as u64),
            overflows: memory.overflowed(),
            ..StorePicture::default()
        },
        AnyStore::Redis(_) | AnyStore::Bounded(_) => {
            let Statistics { away, round_trips, failures, calls_skipped, outages, leased, repeated, .. } =
                store.redis().map(RedisStore::statistics).unwrap_or_default();
            let breaker = Some(if away > 0 { "open" } else { "closed" }.into());
            let unknown = StorePicture::default();
            StorePicture {
                kind,
                reachable,
                breaker,
                round_trips,
                failures,
                calls_skipped,
                outages,
                leased,
                repeated,
                ..unknown
            }
        }
    }
}

fn of_policy(state: PolicyState) -> PolicyPicture {
    let since = state.since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    PolicyPicture {
        file: state.text.file.map(|path| path.display().to_string()),
        generation: state.generation,
        since_us: micros(since),
        errors: state.errors,
    }
}

/// Those of the policy in its order, then the others that have decided.
fn rules(policy: &Policy, counts: Vec<(Name, RuleCounts)>, latencies: &HashMap<Name, Latency>) -> Vec<RulePicture> {
    let mut counts: BTreeMap<Name, RuleCounts> = counts.into_iter().collect();
    let mut of_policy = Vec::new();
    for rule in policy.rules() {
        let name = rule.name().as_str();
        of_policy.push(rule_picture(name, Some(rule), counts.remove(name).unwrap_or_default()));
        if let Some(limit) = rule.candidate_limit() {
            let name = format!("{name} (candidate)");
            let candidate = rule_picture(&name, Some(rule), counts.remove(&*name).unwrap_or_default());
            of_policy.push(RulePicture { limit: Some(limit.to_string()), shadow: true, ..candidate });
        }
    }
    // Protocols ask for their counters before they decide anything.
    let decided =
        |counts: &RuleCounts| counts.allowed + counts.refused + counts.shadow_allowed + counts.shadow_refused > 0;
    let others = counts.into_iter().filter(|(_, counts)| decided(counts));
    let others = others.map(|(rule, counts)| rule_picture(rule.as_str(), None, counts));
    let mut rules: Vec<RulePicture> = of_policy.into_iter().chain(others).collect();
    for rule in &mut rules {
        rule.latency = latencies.get(&*rule.rule).copied().unwrap_or_default();
    }
    rules
}

fn rule_picture(name: &str, rule: Option<&Rule>, counts: RuleCounts) -> RulePicture {
    let key = rule.and_then(Rule::key_attributes);
    // Of a rule that is not in the policy, what it did says what it was.
    let watched = counts.allowed + counts.refused == 0 && counts.shadow_allowed + counts.shadow_refused > 0;
    RulePicture {
        rule: name.to_owned(),
        limit: rule.map(Rule::in_words),
        key: key.map(|names| names.iter().map(|attribute| attribute.names().join(" or ")).collect()),
        shadow: rule.map_or(watched, Rule::is_shadow),
        latency: Latency::default(),
        counts,
    }
}

fn latency(protocol: &str, reading: Reading) -> LatencyPicture {
    let bucket = |(within, count): (Option<Duration>, u64)| LatencyBucket { within_us: within.map(micros), count };
    LatencyPicture {
        protocol: protocol.into(),
        sum_us: micros(reading.sum),
        buckets: reading.buckets.into_iter().map(bucket).collect(),
    }
}

fn reservations(app: &App, now: Micros) -> ReservationsPicture {
    let held = |held: &Held| HeldPicture {
        id: held.id.clone(),
        rule: held.rule.as_str().into(),
        key: held.key.clone(),
        cost: held.cost,
        since_us: held.since.get(),
        expires_us: held.expires.get(),
    };
    let seen = app.records.metrics.held.seen(now, TOP);
    ReservationsPicture { open: seen.open, expired: seen.expired, oldest: seen.oldest.iter().map(held).collect() }
}

fn of_crossing(crossing: &Crossing) -> CrossingPicture {
    CrossingPicture {
        at_us: crossing.at.get(),
        rule: crossing.rule.as_str().into(),
        key: crossing.key.clone(),
        threshold: crossing.percent,
        used: crossing.used,
        limit: crossing.capacity,
        resets_at_us: crossing.resets_at.get(),
        shadow: crossing.shadow,
    }
}

/// The keys that are refused most.
pub(crate) fn top_refused(app: &App, most: usize) -> Vec<TopRefused> {
    let of = |(rule, key, refused, error): (Name, String, u64, u64)| TopRefused {
        rule: rule.as_str().into(),
        key,
        refused,
        error,
    };
    app.records.refused.top(most).into_iter().map(of).collect()
}

fn of_refusal(refusal: &RecentRefusal) -> RefusalPicture {
    RefusalPicture {
        at_us: refusal.at.get(),
        rule: refusal.rule.as_str().into(),
        key: refusal.key.clone(),
        times: refusal.times,
        cost: refusal.cost,
        limit: refusal.capacity,
        retry_after_us: refusal.retry_after.map(Micros::get),
        request: refusal.again.clone(),
    }
}
