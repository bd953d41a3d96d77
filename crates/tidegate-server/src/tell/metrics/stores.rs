//! What the stores know, read when a client scrapes.

use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tidegate::store::Store;
use tidegate_redis::RedisStore;

use crate::ask::inline_store::InlineStore;
use crate::ask::store::{AnyStore, KeyCount};
use crate::tell::held::Reservations;

/// What the stores know, asked for at each scrape.
pub(super) struct StoreCollector {
    pub(super) store: AnyStore,
    pub(super) keys: Arc<KeyCount>,
    pub(super) held: Arc<Reservations>,
    pub(super) inline: InlineStore,
    pub(super) inline_keys: KeyCount,
}

impl std::fmt::Debug for StoreCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StoreCollector")
    }
}

impl Collector for StoreCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let help = "Checks of inline limits that found no slot for their key";
        counter(&mut encoder, "inline_overflows", help, self.inline.overflowed())?;
        let held = self.held.seen(self.store.clock().now(), 0);
        gauge(&mut encoder, "reservations_open", "Reservations of this server that are open", held.open)?;
        let help = "Reservations of this server that ended unsettled";
        counter(&mut encoder, "reservations_expired", help, held.expired)?;
        if let AnyStore::Memory(store) = &self.store {
            let help = "Checks that found no slot for their key";
            counter(&mut encoder, "store_overflows", help, store.overflowed())?;
            gauge(&mut encoder, "store_keys", "Keys that are live", self.keys.of(|| store.count_keys()))?;
        }
        if let Some(statistics) = self.store.redis().map(RedisStore::statistics) {
            let mut counter = |name: &str, help: &str, value: u64| counter(&mut encoder, name, help, value);
            counter("store_round_trips", "Commands sent to the store", statistics.round_trips)?;
            counter("store_failures", "Calls of the store without an answer", statistics.failures)?;
            counter("store_refused", "Calls that the store refused", statistics.refused)?;
            counter(
                "store_calls_skipped",
                "Calls not sent, as the circuit breaker was open",
                statistics.calls_skipped,
            )?;
            counter("store_outages", "Outages of the store that were noticed", statistics.outages)?;
            counter("store_leased", "Decisions made from a lease", statistics.leased)?;
            counter("store_repeated", "Refusals repeated without asking the store", statistics.repeated)?;
            let help = "Units on lease, over all keys";
            gauge(&mut encoder, "store_units_on_lease", help, statistics.units_on_lease)?;
            let help = "Whether the latest answer of the store was a refusal of the command";
            gauge(&mut encoder, "store_refusing", help, statistics.refusing.into())?;
            let help = "Parts of the store whose breaker is open";
            gauge(&mut encoder, "store_breakers_open", help, statistics.away as u64)?;
        }
        gauge(
            &mut encoder,
            "inline_keys",
            "Keys of inline limits that are live",
            self.inline_keys.of(|| self.inline.count_keys()),
        )
    }
}

/// With a full stop, as the registry ends the help of all others.
fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> Result<(), std::fmt::Error> {
    let counter = ConstCounter::new(value);
    let metric = encoder.encode_descriptor(name, &format!("{help}."), None, counter.metric_type())?;
    counter.encode(metric)
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> Result<(), std::fmt::Error> {
    let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
    let metric = encoder.encode_descriptor(name, &format!("{help}."), None, gauge.metric_type())?;
    gauge.encode(metric)
}
