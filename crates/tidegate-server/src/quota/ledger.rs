//! Which units of a limit are held, in the store that has the limit's states.
//!
//! A ledger is a limit of requests in flight whose permits are units: the store promises that never
//! more are held than there are, and that a permit which is not renewed expires. The ledger knows
//! fractions only, so a change of the limit's numbers leaves it as it is.

use tidegate::kernel::{Verb, Verdict};
use tidegate::store::{Check, Meter, Purpose, RequestId, Store, StoreError};
use tidegate::{Key, KeyPart, Limit, LimitOf, Micros, Name};

use super::pool::UNITS;

const HELD: Name = Name::literal("rlqs");
const CLIENTS: Name = Name::literal("rlqs-clients");
const WAITING: Name = Name::literal("rlqs-waiting");
const WANTING: Name = Name::literal("rlqs-wanting");

/// Clients of one limit that servers tell each other of.
const MAX_CLIENTS: u64 = 10_000;

/// What is counted of a limit: one ledger of each for all keys.
#[derive(Debug)]
pub(super) struct Ledgers {
    /// Units that are held.
    pub(super) held: Meter,
    /// Clients that there are, on all servers.
    pub(super) clients: Meter,
    /// Clients that have less than an even part, and than they want, on all servers.
    pub(super) waiting: Meter,
    /// Clients that have less than they want, on all servers.
    pub(super) wanting: Meter,
}

impl Ledgers {
    /// Permits that expire after so long, and clients that are known to wait for as long as an assignment lives.
    pub(super) fn new(expiry: Micros, ttl: Micros) -> Ledgers {
        let of = |name, count, expiry: Micros| Meter::new(name, Limit::in_flight(count, expiry.to_duration()));
        let (held, clients) = (of(HELD, UNITS.into(), expiry), of(CLIENTS, MAX_CLIENTS, expiry));
        let (waiting, wanting) = (of(WAITING, MAX_CLIENTS, ttl), of(WANTING, MAX_CLIENTS, ttl));
        Ledgers { held, clients, waiting, wanting }
    }
}

/// Where the units of a limit are counted: by its key, and by its rule.
pub(super) fn key_of(applied: &LimitOf) -> Key<'static> {
    let rule = applied.meter.name().as_str().as_bytes();
    Key::of(applied.key.parts().chain([rule]).map(KeyPart::from))
}

/// Takes a permit of so many units, if they are free.
pub(super) async fn take<S: Store>(
    store: &S,
    (meter, key): (&Meter, &Key<'_>),
    id: &str,
    units: u32,
) -> Result<bool, StoreError> {
    let id = RequestId::once(id, u64::from(units));
    let Ok(check) = Check::new(meter, key, Verb::Charge, units.into()) else { return Ok(false) };
    Ok(decide(store, check.with_id(&id)).await?.allowed)
}

/// Has a permit last from now on; false if it has expired.
pub(super) async fn renew<S: Store>(store: &S, at: (&Meter, &Key<'_>), id: &str) -> Result<bool, StoreError> {
    correct(store, at, id, (Verb::RENEW, Purpose::Renew)).await
}

/// Gives a permit back.
pub(super) async fn release<S: Store>(store: &S, at: (&Meter, &Key<'_>), id: &str) -> Result<bool, StoreError> {
    correct(store, at, id, (Verb::SETTLE, Purpose::Settle)).await
}

async fn correct<S: Store>(
    store: &S,
    (meter, key): (&Meter, &Key<'_>),
    id: &str,
    (verb, purpose): (Verb, Purpose),
) -> Result<bool, StoreError> {
    let id = RequestId { purpose, ..RequestId::once(id, 0) };
    let Ok(check) = Check::new(meter, key, verb, 0) else { return Ok(false) };
    match decide(store, check.with_id(&id)).await {
        Ok(verdict) => Ok(verdict.allowed),
        Err(StoreError::NotReserved { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// How much is free, and how much is held.
pub(super) async fn read<S: Store>(store: &S, (meter, key): (&Meter, &Key<'_>)) -> Result<(u64, u64), StoreError> {
    // One that costs nothing is never refused, so no refusal is remembered.
    let Ok(check) = Check::new(meter, key, Verb::Peek, 0) else { return Ok((0, 0)) };
    let free = decide(store, check).await?.remaining;
    Ok((free, meter.capacity().saturating_sub(free)))
}

async fn decide<S: Store>(store: &S, check: Check<'_>) -> Result<Verdict, StoreError> {
    let mut verdicts = [Verdict::default()];
    store.decide(&[check], &mut verdicts).await?;
    let [verdict] = verdicts;
    Ok(verdict)
}
