//! What one client has of the limits of one bucket.

use std::sync::Arc;

use futures_util::future::{join_all, join5};
use tidegate::store::{Store, StoreError};
use tidegate::{Key, Micros};

use super::division::is_far;
use super::group::{Group, Member, Seen, Target};
use super::pool::{Grant, Pool, UNITS};
use super::{DELIVERY, Limited, Quotas, RETRY, Sharing, ledger};

/// A client that has not reported for so long is forgotten, and its units with it.
const SILENCE: Micros = Micros::new(60_000_000);

/// So is one that had no requests for so long.
const IDLE: Micros = Micros::new(600_000_000);

/// The time between two messages to a client about a bucket, at least.
const BETWEEN: Micros = Micros::new(1_000_000);

/// The shortest time that demand is told by.
const WINDOW: Micros = Micros::new(1_000_000);

/// What a client without reports is taken to want.
const FIRST: u32 = UNITS / 2;

/// A share grows by this part of what it should be, at least, so that a message is worth it.
const GROWTH: u32 = 16;

/// Permits that a share is taken in: one can be given back without the others.
const PIECES: u32 = 12;

/// What a client is to do with a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Let everything pass.
    AllowAll,
    /// Let nothing pass.
    DenyAll,
    /// Keep this.
    Assign(Grant),
    /// Forget the bucket: it is forgotten here.
    Abandon,
}

/// What one client has.
pub(crate) struct Lease<S: Store> {
    quotas: Arc<Quotas<S>>,
    limited: Limited,
    /// Its place among the clients of the same limits.
    share: Option<Share>,
    demand: Demand,
    sent: Option<Sent>,
}

/// Units of a limit, and of those that apply with it.
struct Share {
    group: Arc<Group>,
    client: u64,
    held: Vec<Permit>,
    /// No longer assigned, and free at some time.
    leaving: Vec<(Permit, Micros)>,
    /// Until when other servers know that it has less than an even part.
    waits_until: Micros,
    /// Until when they know that it has less than it wants.
    lacks_until: Micros,
    /// Whether they know of it.
    is_known: bool,
}

/// Units under one id.
struct Permit {
    id: String,
    units: u32,
}

/// The latest message.
#[derive(Clone, Copy)]
struct Sent {
    /// When the step began that made it.
    at: Micros,
    action: Action,
}

/// What a client reports.
struct Demand {
    /// The units that it needs.
    want: u32,
    requests: u64,
    denied: bool,
    since: Micros,
    /// When it reported, and when it last had requests.
    reported: Micros,
    busy: Micros,
    /// Whether there is news, which is not looked at before then.
    is_fresh: bool,
    not_before: Micros,
}

impl<S: Store> Lease<S> {
    /// A client that subscribes now.
    pub(crate) fn new(quotas: Arc<Quotas<S>>, limited: Limited) -> Lease<S> {
        let now = quotas.now();
        let (requests, denied, is_fresh, not_before) = (0, false, true, Micros::ZERO);
        let demand =
            Demand { want: FIRST, requests, denied, since: now, reported: now, busy: now, is_fresh, not_before };
        let mut lease = Lease { quotas, limited: Limited::Unlimited, share: None, demand, sent: None };
        lease.limit(limited);
        lease
    }

    /// Goes by other limits from now on.
    pub(crate) fn limit(&mut self, limited: Limited) {
        if limited == self.limited {
            return;
        }
        let keys = |limited: &Limited| match limited {
            Limited::By { parts, .. } => parts.iter().map(|(key, _)| key.clone()).collect(),
            Limited::Unlimited | Limited::Blocked => Vec::new(),
        };
        // Units of one limit are fractions, whatever its numbers are now. Of several, they depend on all.
        let (old, new) = (keys(&self.limited), keys(&limited));
        if old != new || new.len() != 1 {
            self.end_share();
            if let Limited::By { parts, .. } = &limited {
                let (group, client) = (self.quotas.group(parts), self.quotas.next_id());
                let (held, leaving, waits_until, lacks_until) = (Vec::new(), Vec::new(), Micros::ZERO, Micros::ZERO);
                self.share = Some(Share { group, client, held, leaving, waits_until, lacks_until, is_known: false });
            }
        }
        self.limited = limited;
        self.demand.is_fresh = true;
    }

    /// What the client let pass and denied since its last report.
    pub(crate) fn report(&mut self, allowed: u64, denied: u64) {
        let now = self.quotas.now();
        let demand = &mut self.demand;
        demand.reported = now;
        demand.requests = demand.requests.saturating_add(allowed).saturating_add(denied);
        demand.denied |= denied > 0;
        if allowed.saturating_add(denied) > 0 {
            demand.busy = now;
        }
        // By this clock: Envoy tells whole seconds only, so none of a short interval.
        let elapsed = now.saturating_since(demand.since);
        if elapsed < WINDOW {
            return;
        }
        if let (Limited::By { pool, .. }, Some(share)) = (&self.limited, &self.share) {
            let (wanted, held) = (pool.units_for(demand.requests, elapsed.get()), share.units());
            // Denied at a rate that its share could bear: it comes in bursts.
            let more = if demand.denied { held + held / 4 } else { 0 };
            demand.want = wanted.max(more).min(UNITS);
        }
        (demand.requests, demand.denied, demand.since, demand.is_fresh) = (0, false, now, true);
    }

    /// What is to be said to the client now, if anything is.
    ///
    /// # Errors
    /// If the store did not answer: then nothing is said, and what was assigned runs out in time.
    pub(crate) async fn step(&mut self) -> Result<Option<Action>, StoreError> {
        let (quotas, now) = (Arc::clone(&self.quotas), self.quotas.now());
        self.release(now).await;
        let is_gone = now.saturating_since(self.demand.reported) >= SILENCE;
        if is_gone || now.saturating_since(self.demand.busy) >= IDLE {
            self.end_share();
            return Ok(Some(Action::Abandon));
        }
        let since = |sent: Sent| now.saturating_since(sent.at);
        // Early enough to be heard before it runs out, and seldom.
        let is_due = self.sent.is_none_or(|sent| since(sent) >= Micros::new(quotas.ttl.get() / 3));
        if self.sent.is_some_and(|sent| since(sent) < BETWEEN) {
            return Ok(None);
        }
        let action = match &self.limited {
            Limited::Unlimited => Action::AllowAll,
            Limited::Blocked => Action::DenyAll,
            Limited::By { pool, parts } => {
                let (pool, parts) = (pool.clone(), Arc::clone(parts));
                if now < self.demand.not_before || !is_due && !self.demand.is_fresh {
                    return Ok(None);
                }
                if self.is_waiting_for_the_last_server(&pool, now) {
                    return Ok(None);
                }
                self.demand.is_fresh = false;
                match self.adjust(&pool, &parts, now).await? {
                    Some(is_changed) if is_due || is_changed => {}
                    Some(_) | None => return Ok(None),
                }
                self.renew().await?;
                self.granted(&pool)
            }
        };
        let is_same = self.sent.is_some_and(|sent| sent.action == action);
        if quotas.is_late(now) || (is_same && !is_due) {
            return Ok(None);
        }
        self.sent = Some(Sent { at: now, action });
        Ok(Some(action))
    }

    /// Where the ledgers began empty with this server, what the one before it assigned may still be in use.
    fn is_waiting_for_the_last_server(&self, pool: &Pool, now: Micros) -> bool {
        let since = now.saturating_since(self.quotas.started);
        self.quotas.sharing == Sharing::Alone && since < lasts(self.quotas.ttl, pool)
    }

    fn granted(&self, pool: &Pool) -> Action {
        let units = self.share.as_ref().map_or(0, Share::units);
        pool.grant(units).map_or(Action::DenyAll, Action::Assign)
    }

    /// Takes units or lets go of some, as demand has it; says whether it did, or nothing before the limit is divided
    /// by this demand.
    async fn adjust(
        &mut self,
        pool: &Pool,
        parts: &[(Key<'static>, Pool)],
        now: Micros,
    ) -> Result<Option<bool>, StoreError> {
        let Some(share) = &mut self.share else { return Ok(Some(false)) };
        let free_at =
            |sent: Option<Sent>| sent.map_or(now, |sent| sent.at.saturating_add(lasts(self.quotas.ttl, pool)));
        // A bucket that ran out at the client would start anew, and full.
        let runs_out = |sent: &Sent| now.saturating_add(DELIVERY) > sent.at.saturating_add(self.quotas.ttl);
        if self.sent.as_ref().is_some_and(runs_out) {
            share.let_go(0, free_at(self.sent));
        }
        let Some(least) = pool.min_units() else {
            share.let_go(0, free_at(self.sent));
            return Ok(Some(true));
        };
        let want = self.demand.want;
        let seen = share.look(&self.quotas, least, want, now).await?;
        let (held, target) = (share.units(), share.group.target(share.client, seen, now));
        if target.is_none_or(|target| target.waits) {
            (self.demand.is_fresh, self.demand.not_before) = (true, now.saturating_add(RETRY));
        }
        let Some(Target { units: target, others_lack, waits, lacks }) = target else { return Ok(None) };
        if self.quotas.sharing == Sharing::WithOthers {
            let (ledgers, share) = (&self.quotas.ledgers, &mut *share);
            for (says, meter, until) in
                [(waits, &ledgers.waiting, &mut share.waits_until), (lacks, &ledgers.wanting, &mut share.lacks_until)]
            {
                if says && *until <= now && self.quotas.call(meter, &share.group.keys[0]).await? {
                    // For longer here than in the store, so that it is not taken for a client of another server.
                    *until = now.saturating_add(self.quotas.ttl).saturating_add(DELIVERY);
                }
            }
        }
        let is_changed = if target > held && (held == 0 || target - held > target / GROWTH) {
            share.take(&self.quotas, pool, parts, (target - held).min(seen.free)).await
        } else if target < held && (is_far(held, target) || others_lack) {
            share.let_go(target, free_at(self.sent));
            share.units() != held
        } else {
            false
        };
        share.tell(least, want, now);
        Ok(Some(is_changed))
    }

    /// Has all permits last from now on; those that have expired are no longer held.
    async fn renew(&mut self) -> Result<(), StoreError> {
        let Some(share) = &mut self.share else { return Ok(()) };
        let (store, meter, keys) = (&self.quotas.store, &self.quotas.ledgers.held, &share.group.keys);
        let renewals = share.held.iter().map(|permit| async move {
            let each = keys.iter().map(|key| ledger::renew(store, (meter, key), &permit.id));
            join_all(each).await.into_iter().try_fold(true, |all, one| Ok::<bool, StoreError>(all && one?))
        });
        let renewed = join_all(renewals).await.into_iter().collect::<Result<Vec<bool>, StoreError>>()?;
        let mut renewed = renewed.into_iter();
        share.held.retain(|_| renewed.next().unwrap_or(false));
        Ok(())
    }

    /// Gives back what has run out at the client.
    async fn release(&mut self, now: Micros) {
        let Some(share) = &mut self.share else { return };
        let (store, meter, keys) = (&self.quotas.store, &self.quotas.ledgers.held, &share.group.keys);
        let is_free = |leaving: &(Permit, Micros)| leaving.1 <= now;
        let free: Vec<(Permit, Micros)> = share.leaving.extract_if(.., |leaving| is_free(leaving)).collect();
        let releases = free
            .iter()
            .flat_map(|(permit, _)| keys.iter().map(move |key| ledger::release(store, (meter, key), &permit.id)));
        // What the store does not hear of expires.
        let _ = join_all(releases).await;
    }

    /// Its units expire in time; those of a client that is gone may still be in use.
    fn end_share(&mut self) {
        if let Some(share) = self.share.take() {
            share.group.leave(share.client);
            self.quotas.forget(share.group);
        }
    }
}

impl<S: Store> Drop for Lease<S> {
    fn drop(&mut self) {
        self.end_share();
    }
}

/// How long units are out of reach after a step has assigned them.
fn lasts(ttl: Micros, pool: &Pool) -> Micros {
    ttl.saturating_add(DELIVERY).saturating_add(pool.fallow)
}

impl Share {
    fn units(&self) -> u32 {
        self.held.iter().map(|permit| permit.units).sum()
    }

    /// Has the other clients of this server know what this one has and wants.
    fn tell(&self, least: u32, want: u32, now: Micros) {
        let leaving = self.leaving.iter().map(|(permit, _)| permit.units).sum();
        let (waits, lacks) = (self.waits_until > now, self.lacks_until > now);
        let member = Member { want, held: self.units(), leaving, least, waits, lacks };
        self.group.set(self.client, member);
    }

    /// What the store says of the slowest of the limits.
    async fn look<S: Store>(
        &mut self,
        quotas: &Quotas<S>,
        least: u32,
        want: u32,
        now: Micros,
    ) -> Result<Seen, StoreError> {
        self.tell(least, want, now);
        let (store, ledgers, key) = (&quotas.store, &quotas.ledgers, &self.group.keys[0]);
        let units = |free: u64| u32::try_from(free).unwrap_or(UNITS);
        if quotas.sharing == Sharing::Alone {
            let (free, _) = ledger::read(store, (&ledgers.held, key)).await?;
            return Ok(Seen { free: units(free), clients: 0, waiting: 0, wanting: 0 });
        }
        let id = format!("{}-{}", quotas.name, self.client);
        let is_known = async {
            let is_known = self.is_known && ledger::renew(store, (&ledgers.clients, key), &id).await?;
            Ok::<bool, StoreError>(is_known || ledger::take(store, (&ledgers.clients, key), &id, 1).await?)
        };
        let read = |meter| ledger::read(store, (meter, key));
        let (waiting, wanting) = (read(&ledgers.waiting), read(&ledgers.wanting));
        let asked = join5(read(&ledgers.held), read(&ledgers.clients), waiting, wanting, is_known);
        let (held, clients, waiting, wanting, is_known) = asked.await;
        self.is_known = is_known?;
        Ok(Seen { free: units(held?.0), clients: clients?.1, waiting: waiting?.1, wanting: wanting?.1 })
    }

    /// Takes so many units more, or as many as are free of all limits; says whether it has any more.
    async fn take<S: Store>(
        &mut self,
        quotas: &Quotas<S>,
        pool: &Pool,
        parts: &[(Key<'static>, Pool)],
        units: u32,
    ) -> bool {
        let (store, meter, before) = (&quotas.store, &quotas.ledgers.held, self.held.len());
        let piece = (self.units() + units).div_ceil(PIECES).max(1);
        let pieces = (0..units.div_ceil(piece)).map(|place| piece.min(units - place * piece));
        let permits = pieces.map(|units| Permit { id: format!("{}-{}", quotas.name, quotas.next_id()), units });
        let taken = join_all(permits.map(async |permit| {
            for (place, (key, part)) in parts.iter().enumerate() {
                if ledger::take(store, (meter, key), &permit.id, pool.units_of(part, permit.units)).await? {
                    continue;
                }
                // Never assigned: free at once.
                let taken = parts[..place].iter().map(|(key, _)| ledger::release(store, (meter, key), &permit.id));
                let _ = join_all(taken).await;
                return Ok(None);
            }
            Ok::<Option<Permit>, StoreError>(Some(permit))
        }));
        // Of those that the store did not answer for, some may be held until they expire.
        self.held.extend(taken.await.into_iter().filter_map(|taken| taken.ok().flatten()));
        self.held.len() > before
    }

    /// Keeps as many units as make no more than this, and lets go of the others, which are free later.
    fn let_go(&mut self, target: u32, free_at: Micros) {
        let mut kept = 0;
        self.held.sort_by_key(|permit| std::cmp::Reverse(permit.units));
        let leaving = self.held.extract_if(.., |permit| {
            let stays = kept + permit.units <= target;
            kept += if stays { permit.units } else { 0 };
            !stays
        });
        self.leaving.extend(leaving.map(|permit| (permit, free_at)));
    }
}
