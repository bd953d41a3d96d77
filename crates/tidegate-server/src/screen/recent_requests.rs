//! The last requests that the policy decided, whole and in order: what a trial of another policy decides again.
//!
//! Each thread that serves has a shard of its own, so recording waits for no other thread. A shard that is
//! full evicts its oldest request; what other shards have of that time is no longer told either, so that
//! what is told has no gaps. A request that is too large, or whose shard is just being read, is left out, and
//! the recording says so. Reports, refunds and resets are not recorded.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

use tidegate::kernel::Verb;
use tidegate::{Event, Micros, Observer, OwnedRequest, ReservationStep};
use tidegate_replay::Recorded;

use crate::settings::Settings;

/// Bytes of all requests that are kept.
const MAX_BYTES: usize = 16 << 20;

/// Bytes of one request; a larger one is left out.
const MAX_REQUEST_BYTES: usize = 4_096;

/// Bytes that an entry takes beside its request.
const ENTRY_BYTES: usize = size_of::<Entry>() - size_of::<OwnedRequest>() + 3 * size_of::<usize>();

/// The last requests.
pub(crate) struct RecentRequests {
    shards: Box<[Mutex<Shard>]>,
    /// Requests and bytes that each shard has room for.
    max_requests: usize,
    max_bytes: usize,
    /// When a request was left out last, in microseconds of the store; zero if never.
    left_out: AtomicU64,
}

#[derive(Default)]
struct Shard {
    entries: VecDeque<Arc<Entry>>,
    bytes: usize,
    /// The time of the latest request that was evicted.
    evicted: Option<Micros>,
}

struct Entry {
    at: Micros,
    step: Step,
    request: OwnedRequest,
}

enum Step {
    Charge,
    /// A reservation, and for how long it was made.
    Reserve(Option<Duration>),
    /// The end of a reservation, and what it has cost, if that is another cost than before.
    End(Option<u64>),
}

impl Entry {
    fn bytes(&self) -> usize {
        self.request.size() + ENTRY_BYTES
    }
}

/// Requests of a span of time.
pub(crate) struct Recording {
    entries: Vec<Arc<Entry>>,
    /// Whether these are all requests from the first to the last.
    pub(crate) complete: bool,
}

impl RecentRequests {
    /// Room for the requests of a server; none if it is to keep none, or has no API to try them by.
    pub(crate) fn new(settings: &Settings) -> Option<RecentRequests> {
        let threads = settings.threads.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
        (settings.keep_requests > 0 && !settings.no_admin).then(|| RecentRequests {
            shards: (0..threads).map(|_| Mutex::default()).collect(),
            max_requests: settings.keep_requests.div_ceil(threads),
            max_bytes: MAX_BYTES / threads,
            left_out: AtomicU64::new(0),
        })
    }

    /// The requests that are kept, in the order of their times.
    pub(crate) fn recording(&self) -> Recording {
        let (mut entries, mut evicted) = (Vec::new(), None);
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            entries.extend(shard.entries.iter().cloned());
            evicted = evicted.max(shard.evicted);
        }
        entries.retain(|entry: &Arc<Entry>| Some(entry.at) > evicted);
        entries.sort_by_key(|entry| entry.at);
        let left_out = self.left_out.load(Relaxed);
        let from = entries.first().map_or(0, |first| first.at.get());
        Recording { complete: left_out == 0 || left_out < from, entries }
    }

    fn keep(&self, entry: Entry) {
        let (at, bytes) = (entry.at, entry.bytes());
        let shard = &self.shards[NUMBER.with(|number| *number) % self.shards.len()];
        let mut shard = match shard.try_lock() {
            Ok(shard) if bytes <= MAX_REQUEST_BYTES.min(self.max_bytes) => shard,
            Err(TryLockError::Poisoned(poisoned)) if bytes <= MAX_REQUEST_BYTES => poisoned.into_inner(),
            Ok(_) | Err(_) => {
                self.left_out.fetch_max(at.get().max(1), Relaxed);
                return;
            }
        };
        shard.bytes += bytes;
        shard.entries.push_back(Arc::new(entry));
        while shard.entries.len() > self.max_requests || shard.bytes > self.max_bytes {
            let Some(oldest) = shard.entries.pop_front() else { break };
            shard.bytes -= oldest.bytes();
            shard.evicted = shard.evicted.max(Some(oldest.at));
        }
    }
}

/// Threads that have recorded.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The number of this thread among those.
    static NUMBER: usize = THREADS.fetch_add(1, Relaxed);
}

impl Observer for RecentRequests {
    fn observe(&self, event: &Event<'_>) {
        let reservation = event.reservation.map(|reservation| (reservation.step, reservation.lasts));
        let step = match (event.verb, reservation) {
            (Verb::Charge, None) => Step::Charge,
            (Verb::Charge, Some((_, lasts))) => Step::Reserve(lasts),
            (Verb::Settle(_), Some((ReservationStep::Release, _))) => Step::End(Some(0)),
            (Verb::Settle(_), Some(_)) => Step::End(Some(event.cost).filter(|cost| *cost > 0)),
            (Verb::Settle(_), None) => return,
            (Verb::Peek | Verb::Refund | Verb::Reset | Verb::Report | Verb::Renew(_), _) => return,
        };
        if !event.shadow {
            self.keep(Entry { at: event.at, step, request: OwnedRequest::new(event.request) });
        }
    }
}

impl Recording {
    /// How many requests there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The first and the last instant.
    pub(crate) fn span(&self) -> Option<(Micros, Micros)> {
        Some((self.entries.first()?.at, self.entries.last()?.at))
    }

    /// The requests, each with the end of its reservation.
    pub(crate) fn requests(&self) -> Vec<Recorded<'_>> {
        let Some((_, now)) = self.span() else { return Vec::new() };
        let mut ends: HashMap<&str, (Micros, Option<u64>)> = HashMap::new();
        let mut requests = Vec::with_capacity(self.entries.len());
        // From the last to the first: the end of a reservation comes before its beginning.
        for Entry { at, step, request } in self.entries.iter().rev().map(|entry| &**entry) {
            let (at, id) = (*at, request.id().unwrap_or_default());
            let (lasted, actual) = match step {
                Step::End(actual) => {
                    ends.insert(id, (at, *actual));
                    continue;
                }
                Step::Charge => (None, None),
                Step::Reserve(lasts) => match ends.remove(id) {
                    Some((end, actual)) => (Some(end.saturating_since(at).to_duration()), actual),
                    None => (Some(lasts.unwrap_or(now.saturating_since(at).to_duration())), None),
                },
            };
            requests.push(Recorded { at, request, lasted, actual });
        }
        requests.reverse();
        requests
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tidegate::{Limit, Limiter, ManualClock, MemoryStore, Request};

    use super::*;

    fn kept(keep_requests: usize, threads: usize) -> (Arc<RecentRequests>, Limiter<MemoryStore>, ManualClock) {
        let settings = Settings { keep_requests, threads: NonZeroUsize::new(threads), ..Settings::default() };
        let recent = Arc::new(RecentRequests::new(&settings).unwrap());
        let clock = ManualClock::default();
        let store = MemoryStore::builder().max_keys(100).clock(clock.clone()).build().unwrap();
        let limiter = Limiter::builder(Limit::per_day(3)).store(store).observer(Arc::clone(&recent)).build().unwrap();
        (recent, limiter, clock)
    }

    #[test]
    fn the_last_requests_are_kept_in_order_refused_or_not() {
        let (recent, limiter, clock) = kept(5, 1);
        for second in 1..=8_u64 {
            clock.set(Micros::new(second * 1_000_000));
            limiter.allow(second % 2);
        }
        let recording = recent.recording();
        let times: Vec<u64> = recording.requests().iter().map(|it| it.at.get() / 1_000_000).collect();
        assert_eq!(times, [4, 5, 6, 7, 8]);
        assert_eq!(recording.span(), Some((Micros::new(4_000_000), Micros::new(8_000_000))));
        assert!(recording.complete);
        assert!(RecentRequests::new(&Settings { keep_requests: 0, ..Settings::default() }).is_none());
    }

    #[test]
    fn what_one_thread_has_evicted_is_told_of_no_other_thread() {
        let (recent, limiter, clock) = kept(8, 2);
        let ask = |second: u64| {
            clock.set(Micros::new(second * 1_000_000));
            limiter.allow(second);
        };
        ask(1);
        // Threads that begin one after another have different shards.
        thread::scope(|scope| scope.spawn(|| (2..=7).for_each(ask)).join().unwrap());
        ask(8);
        let shards = recent.shards.iter().filter(|shard| !shard.lock().unwrap().entries.is_empty()).count();
        let recording = recent.recording();
        let times: Vec<u64> = recording.requests().iter().map(|it| it.at.get() / 1_000_000).collect();
        let expected: &[u64] = if shards == 2 { &[4, 5, 6, 7, 8] } else { &[5, 6, 7, 8] };
        assert_eq!(times, expected);
        assert!(recording.complete);
    }

    #[test]
    fn bytes_are_bounded_and_a_large_request_is_left_out_and_told() {
        let (recent, limiter, clock) = kept(1_000_000, 1);
        let ask = |second: u64, length: usize| {
            clock.set(Micros::new(second));
            limiter.allow("x".repeat(length).as_str());
        };
        (1..10_000).for_each(|second| ask(second, 3_000));
        let bytes = recent.shards[0].lock().unwrap().bytes;
        assert!(bytes <= MAX_BYTES && bytes > MAX_BYTES - MAX_REQUEST_BYTES, "{bytes}");
        assert!(recent.recording().complete);
        ask(10_000, MAX_REQUEST_BYTES);
        assert!(!recent.recording().complete);
        // The span no longer has it.
        (10_001..20_000).for_each(|second| ask(second, 3_000));
        assert!(recent.recording().complete);
    }

    #[test]
    fn a_reservation_has_the_end_that_it_had() {
        let (recent, limiter, clock) = kept(10, 1);
        let request = |id| Request::new("alice").id(id).lasts(Duration::from_secs(60));
        let reserve = |id| limiter.reserve(request(id)).unwrap().made().unwrap();
        clock.set(Micros::new(1_000_000));
        let (first, second) = (reserve("one"), reserve("two"));
        clock.set(Micros::new(3_000_000));
        let _ = first.settle(2).unwrap();
        let recording = recent.recording();
        let told: Vec<_> = recording.requests().iter().map(|it| (it.lasted.unwrap().as_secs(), it.actual)).collect();
        assert_eq!(told, [(2, Some(2)), (60, None)]);
        second.leave_open();
    }
}
