//! What the server counts: by rule and outcome, never by key.
//!
//! Handles are found once: a decision costs a look into a map of rules and an
//! atomic addition. What the store knows is read when someone scrapes.

mod histogram;
mod latencies;
mod quotas;
mod scrape;
mod stores;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};
use serde::{Deserialize, Serialize};
use tidegate::kernel::Verb;
use tidegate::{CheckError, Event, Name, Observer, ReservationStep, ThresholdEvent};
use tracing::warn;

use self::histogram::Histogram;
pub(crate) use self::histogram::Reading;
use self::latencies::Latencies;
pub(crate) use self::latencies::LatencyReading;
pub(crate) use self::quotas::QuotaMetrics;
pub(crate) use self::scrape::Format;
use self::scrape::Renderings;
use self::stores::StoreCollector;
use crate::ask::inline_store::InlineStore;
use crate::ask::outcome::Outcome;
use crate::ask::store::{AnyStore, KeyCount};
use crate::run::connection_counts::ConnectionCounts;
use crate::run::protocol::Protocol;
use crate::tell::crossings::Crossings;
use crate::tell::held::Reservations;
use crate::tell::trace::Tracer;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByProtocol {
    protocol: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByRule {
    rule: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOutcome {
    rule: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByThreshold {
    rule: String,
    threshold: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByStep {
    step: &'static str,
}

const ALLOWED: &str = "allowed";
const REFUSED: &str = "refused";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    reason: &'static str,
}

/// Every number that `/metrics` shows.
pub struct Metrics {
    registry: Registry,
    renderings: Renderings,
    /// How many keys the memory store has.
    pub(crate) keys: Arc<KeyCount>,
    /// The reservations that are open.
    pub(crate) held: Arc<Reservations>,
    /// What is counted of quotas.
    pub(crate) quotas: QuotaMetrics,
    /// The thresholds that were crossed.
    pub(crate) crossings: Crossings,
    /// Makes spans of decisions.
    pub(crate) tracer: Tracer,
    thresholds: Family<ByThreshold, Counter>,
    webhook: Family<ByReason, Counter>,
    decisions: Family<ByOutcome, Counter>,
    shadow_decisions: Family<ByOutcome, Counter>,
    degraded: Family<ByRule, Counter>,
    repeated: Family<ByRule, Counter>,
    reported: Family<ByRule, Counter>,
    unrecorded: Family<ByRule, Counter>,
    steps: Family<ByStep, Counter>,
    rules: RwLock<HashMap<Name, Arc<RuleCounters>>>,
    missing: Family<ByRule, Counter>,
    errors: Family<ByReason, Counter>,
    failures: AtomicU64,
    shed: Family<ByReason, Counter>,
    buffered: Gauge,
    protocols: [ProtocolMetrics; Protocol::ALL.len()],
    /// How long requests took, of all protocols.
    latencies: Latencies,
    reloads: Counter,
    failed_reloads: Counter,
}

/// What is counted of one rule.
pub struct RuleCounters {
    allowed: Counter,
    refused: Counter,
    degraded: Counter,
    repeated: Counter,
    reported: Counter,
    unrecorded: Counter,
    shadow_allowed: Counter,
    shadow_refused: Counter,
    missing: Counter,
    latencies: Latencies,
}

/// What the counters of one rule say.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RuleCounts {
    pub(crate) allowed: u64,
    pub(crate) refused: u64,
    pub(crate) degraded: u64,
    pub(crate) shadow_allowed: u64,
    pub(crate) shadow_refused: u64,
    /// Requests that lacked a key attribute of the rule.
    pub(crate) missing: u64,
    /// Units that were reported after they were spent, and those beyond the bound of debt.
    pub(crate) reported: u64,
    pub(crate) unrecorded: u64,
}

impl RuleCounters {
    /// How long decisions took.
    pub(crate) fn latencies(&self) -> LatencyReading {
        self.latencies.read()
    }

    /// So many decisions took so long.
    pub(crate) fn took(&self, took: Duration, decisions: u32) {
        self.latencies.observe(took, decisions);
    }

    pub(crate) fn read(&self) -> RuleCounts {
        RuleCounts {
            allowed: self.allowed.get(),
            refused: self.refused.get(),
            degraded: self.degraded.get(),
            shadow_allowed: self.shadow_allowed.get(),
            shadow_refused: self.shadow_refused.get(),
            missing: self.missing.get(),
            reported: self.reported.get(),
            unrecorded: self.unrecorded.get(),
        }
    }

    /// Charges that were decided past the limiter, such as a batch.
    pub fn decided(&self, allowed: u64, refused: u64) {
        self.allowed.inc_by(allowed);
        self.refused.inc_by(refused);
    }

    /// Units that were spent already, and what of them is not recorded.
    pub fn reported(&self, units: u64, unrecorded: u64) {
        self.reported.inc_by(units);
        self.unrecorded.inc_by(unrecorded);
    }

    /// What a rule that only watches would have said.
    pub fn shadowed(&self, refused: bool) {
        if refused { &self.shadow_refused } else { &self.shadow_allowed }.inc();
    }

    /// Decisions that a fallback made.
    pub fn degraded(&self, decisions: u64) {
        self.degraded.inc_by(decisions);
    }
}

struct ProtocolMetrics {
    latency: Histogram,
    failed_authentications: Counter,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::beside(&ConnectionCounts::default())
    }
}

impl Metrics {
    /// Shows what is counted of connections as well.
    fn beside(connections: &ConnectionCounts) -> Metrics {
        let mut registry = Registry::with_prefix("tidegate");
        let version = Family::<Vec<(&str, &str)>, Gauge>::default();
        version.get_or_create(&vec![("version", env!("CARGO_PKG_VERSION"))]).set(1);
        registry.register("build", "The version of the server", version);
        let to = &mut registry;
        let decisions = register(to, "decisions", "Charges by the rule that bound and the outcome");
        let shadow_decisions = register(to, "shadow_decisions", "Decisions of shadow rules and candidates");
        let degraded =
            register(to, "degraded_decisions", "Decisions of a failure mode or the overflow policy, not of the limit");
        let repeated = register(to, "repeated_decisions", "Requests that were answered before, by their ids");
        let reported = register(to, "reported_units", "Units that were reported after they were spent");
        let unrecorded = register(to, "unrecorded_units", "Reported units beyond the bound of debt, not recorded");
        let steps = register(to, "reservations", "Reservations that were made, renewed, settled and released");
        let missing = register(to, "missing_attributes", "Requests that lacked a key attribute of the rule");
        let thresholds = register(to, "thresholds", "Thresholds that charges crossed");
        let webhook = register(to, "webhook_attempts", "Attempts to deliver an event, by what came of it");
        let tracer = Tracer::new(to);
        let crossings = Crossings::default();
        let help = "Events that were not delivered: the queue was full, or the webhook no longer wants events";
        to.register("webhook_dropped", help, crossings.dropped.clone());
        let quotas = QuotaMetrics::new(to);
        let errors = register(to, "errors", "Requests without a decision, by reason");
        let latency: Family<ByProtocol, Histogram> =
            register(to, "request_duration_seconds", "From a request to its answer");
        let ConnectionCounts { accepted, open, refused } = connections.clone();
        to.register("connections", "Connections that were accepted", accepted);
        to.register("connections_open", "Connections that are open", open);
        to.register("connections_refused", "Connections that were refused or dropped at a bound", refused);
        let shed = register(to, "requests_shed", "Requests that were refused at a bound of the server, by reason");
        let help = "Bytes of unfinished requests and unsent answers that count against the budget";
        let buffered = register(to, "buffered_bytes", help);
        let failed_authentications: Family<ByProtocol, Counter> =
            register(to, "authentication_failures", "Requests with a wrong token or password");
        let reloads = register(to, "policy_changes", "Policies that came into force");
        let failed_reloads = register(to, "policy_errors", "Policies that were refused for their errors");
        let protocols = Protocol::ALL.map(|protocol| {
            let protocol = protocol.as_str();
            let labels = ByProtocol { protocol };
            ProtocolMetrics {
                latency: latency.get_or_create_owned(&labels),
                failed_authentications: failed_authentications.get_or_create_owned(&labels),
            }
        });
        Metrics {
            registry,
            renderings: Renderings::default(),
            keys: Arc::default(),
            held: Arc::default(),
            quotas,
            crossings,
            tracer,
            thresholds,
            webhook,
            decisions,
            shadow_decisions,
            degraded,
            repeated,
            reported,
            unrecorded,
            steps,
            rules: RwLock::default(),
            missing,
            errors,
            failures: AtomicU64::default(),
            shed,
            buffered,
            protocols,
            latencies: Latencies::default(),
            reloads,
            failed_reloads,
        }
    }
}

/// Rules that are counted by name; what others decide, after many changes of the
/// policy, is counted together.
const MAX_RULES: usize = 100_000;
pub(crate) const OTHER_RULES: Name = Name::literal("(other rules)");

/// A metric that is shown from now on.
fn register<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

impl Metrics {
    pub(crate) fn new(
        store: AnyStore,
        inline: InlineStore,
        audit_lost: Counter,
        connections: &ConnectionCounts,
    ) -> Metrics {
        let mut metrics = Metrics::beside(connections);
        metrics.registry.register("audit_lines_lost", "Lines that are not in the audit file", audit_lost);
        let (keys, held) = (Arc::clone(&metrics.keys), Arc::clone(&metrics.held));
        let collector = StoreCollector { store, keys, held, inline, inline_keys: KeyCount::default() };
        metrics.registry.register_collector(Box::new(collector));
        metrics
    }

    /// The counters of a rule, for callers that decide many checks at a time.
    pub fn rule(&self, rule: &Name) -> Arc<RuleCounters> {
        let count = {
            let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = rules.get(rule) {
                return Arc::clone(known);
            }
            rules.len()
        };
        if count >= MAX_RULES && *rule != OTHER_RULES {
            return self.rule(&OTHER_RULES);
        }
        let by_rule = || ByRule { rule: rule.to_string() };
        let by = |outcome| ByOutcome { rule: rule.to_string(), outcome };
        let counters = Arc::new(RuleCounters {
            allowed: self.decisions.get_or_create_owned(&by(ALLOWED)),
            refused: self.decisions.get_or_create_owned(&by(REFUSED)),
            degraded: self.degraded.get_or_create_owned(&by_rule()),
            repeated: self.repeated.get_or_create_owned(&by_rule()),
            reported: self.reported.get_or_create_owned(&by_rule()),
            unrecorded: self.unrecorded.get_or_create_owned(&by_rule()),
            shadow_allowed: self.shadow_decisions.get_or_create_owned(&by(ALLOWED)),
            shadow_refused: self.shadow_decisions.get_or_create_owned(&by(REFUSED)),
            missing: self.missing.get_or_create_owned(&by_rule()),
            latencies: Latencies::default(),
        });
        let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(rules.entry(rule.clone()).or_insert(counters))
    }

    /// A request without a decision.
    pub fn failed(&self, error: &CheckError) {
        self.failures.fetch_add(1, Relaxed);
        let reason = Outcome::from(error).name();
        self.errors.get_or_create(&ByReason { reason }).inc();
        self.tracer.failed(reason);
    }

    /// How long a request took to be answered.
    pub fn answered(&self, protocol: Protocol, took: Duration) {
        self.of(protocol).latency.observe(took);
        self.latencies.observe(took, 1);
    }

    /// How long it took to decide a request, by the rule that bound.
    pub(crate) fn decided(&self, rule: &Name, took: Duration) {
        self.rule(rule).took(took, 1);
    }

    /// How long requests took, of all protocols.
    pub(crate) fn latencies(&self) -> LatencyReading {
        self.latencies.read()
    }

    /// Counts requests that are shed for a reason.
    pub(crate) fn shed(&self, reason: &'static str) -> Counter {
        self.shed.get_or_create_owned(&ByReason { reason })
    }

    /// An attempt to deliver an event.
    pub(crate) fn webhook(&self, reason: &'static str) {
        self.webhook.get_or_create(&ByReason { reason }).inc();
    }

    /// Shows how many bytes are buffered.
    pub(crate) fn buffered(&self) -> Gauge {
        self.buffered.clone()
    }

    pub(crate) fn authentication_failed(&self, protocol: Protocol) {
        self.of(protocol).failed_authentications.inc();
    }

    /// A policy took the place of another, or was refused.
    pub fn policy_given(&self, taken: bool) {
        if taken { &self.reloads } else { &self.failed_reloads }.inc();
    }

    /// The counters of each rule, in any order.
    pub(crate) fn each_rule(&self, mut see: impl FnMut(&Name, &RuleCounters)) {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        rules.iter().for_each(|(rule, counters)| see(rule, counters));
    }

    /// What was counted of each rule, by name.
    pub(crate) fn rules(&self) -> Vec<(Name, RuleCounts)> {
        let mut counts = Vec::new();
        self.each_rule(|rule, counters| counts.push((rule.clone(), counters.read())));
        counts.sort_unstable_by(|(rule, _), (other, _)| rule.cmp(other));
        counts
    }

    /// How long requests took, of each protocol.
    pub(crate) fn latency(&self) -> impl Iterator<Item = (Protocol, Reading)> {
        Protocol::ALL.into_iter().map(|protocol| (protocol, self.of(protocol).latency.read()))
    }

    /// Requests without a decision.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    fn of(&self, protocol: Protocol) -> &ProtocolMetrics {
        &self.protocols[protocol as usize]
    }

    /// Everything for a scraper, as of the last second.
    pub(crate) async fn scrape(self: &Arc<Metrics>, format: Format) -> Bytes {
        let metrics = Arc::clone(self);
        let render = move || match format {
            Format::Prometheus => metrics.prometheus_text(),
            Format::OpenMetrics => metrics.text(),
        };
        self.renderings.text(format, render).await
    }

    /// Everything, in the text format of OpenMetrics 1.0.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Only a writer fails, and a String takes everything.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }

    /// Everything, in the text format of Prometheus, version 0.0.4. There, a
    /// counter's help and type go by the name of its samples, and there is no
    /// mark at the end.
    pub fn prometheus_text(&self) -> String {
        let open_metrics = self.text();
        let (mut text, mut help) = (String::with_capacity(open_metrics.len()), "");
        for line in open_metrics.lines() {
            let mut words = line.splitn(4, ' ');
            match (words.next(), words.next(), words.next(), words.next()) {
                (Some("#"), Some("HELP"), Some(_), words) => help = words.unwrap_or_default(),
                (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                    let total = if kind == "counter" { "_total" } else { "" };
                    text += &format!("# HELP {name}{total} {help}\n# TYPE {name}{total} {kind}\n");
                }
                (Some("#"), ..) => {}
                _ => text.extend([line, "\n"]),
            }
        }
        text
    }
}

#[cfg(feature = "otlp")]
impl Metrics {
    /// Everything, as messages.
    pub(crate) fn families(
        &self,
    ) -> Vec<prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::MetricFamily> {
        // Only a writer fails, and a list takes everything.
        prometheus_client::encoding::prometheus_protobuf::encode(&self.registry).unwrap_or_default()
    }
}

impl Observer for Metrics {
    fn observe(&self, event: &Event<'_>) {
        self.tracer.observe(event);
        if let Some(reservation) = event.reservation
            && event.decision.is_allowed()
            && !event.decision.is_repeated()
        {
            self.held.observe(event);
            self.steps.get_or_create(&ByStep { step: step(reservation.step) }).inc();
        }
        if !matches!(event.verb, Verb::Charge | Verb::Report | Verb::Settle(_)) {
            return;
        }
        let counters = self.rule(event.decision.rule());
        if event.decision.is_repeated() {
            counters.repeated.inc();
            return;
        }
        if event.verb == Verb::Report {
            if !event.shadow {
                counters.reported(event.cost, event.decision.unrecorded());
            }
            return;
        }
        if let Verb::Settle(_) = event.verb {
            counters.reported(0, event.decision.unrecorded());
            return;
        }
        match (event.shadow, event.decision.is_allowed()) {
            (false, true) => counters.allowed.inc(),
            (false, false) => counters.refused.inc(),
            (true, true) => counters.shadow_allowed.inc(),
            (true, false) => counters.shadow_refused.inc(),
        };
        if event.decision.is_degraded() {
            counters.degraded.inc();
        }
    }

    fn missing(&self, rule: &Name, attribute: &str) {
        // Once for each rule: the counter has the rest.
        if self.rule(rule).missing.inc() == 0 {
            warn!(%rule, attribute, "a request lacks a key attribute of the rule; further ones are only counted");
        }
    }

    fn crossed(&self, event: &ThresholdEvent<'_>) {
        let known = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        let has_room = known.len() < MAX_RULES || known.contains_key(event.rule);
        drop(known);
        let rule = if has_room { event.rule.to_string() } else { OTHER_RULES.to_string() };
        self.thresholds.get_or_create(&ByThreshold { rule, threshold: format!("{}%", event.percent) }).inc();
        self.crossings.add(event);
    }
}

fn step(step: ReservationStep) -> &'static str {
    match step {
        ReservationStep::Reserve => "reserved",
        ReservationStep::Renew => "renewed",
        ReservationStep::Settle => "settled",
        ReservationStep::Release => "released",
        // The library may learn more of them.
        _ => "other",
    }
}
