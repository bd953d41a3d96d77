//! What becomes of requests when the store is away.

use super::*;

/// A store that is always away.
struct Away(ManualClock);

#[derive(Debug)]
struct Gone;

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("gone")
    }
}
impl std::error::Error for Gone {}

impl Store for Away {
    async fn decide(&self, _: &[Check<'_>], _: &mut [Verdict]) -> Result<Micros, StoreError> {
        Err(StoreError::Failed { source: Box::new(Gone) })
    }

    fn clock(&self) -> &dyn Clock {
        &self.0
    }
}

#[tokio::test]
async fn a_failed_store_decides_by_its_failure_mode() {
    let modes = [
        (None, [503, 503, 503]),
        (Some(FailureMode::Open), [200, 200, 200]),
        (Some(FailureMode::Closed), [503, 503, 503]),
        (Some(FailureMode::local(2)), [200, 503, 503]),
    ];
    for (mode, expected) in modes {
        let builder = Limiter::builder(Limit::per_hour(2)).store(Away(ManualClock::default()));
        let limiter = match mode {
            Some(mode) => builder.on_failure(mode),
            None => builder,
        };
        let layer = RateLimitLayer::new(limiter.build().expect("a valid policy"));
        assert_eq!(statuses(&layer, [from(ALICE), from(ALICE), from(ALICE)]).await, expected, "{mode:?}");
        let refused = ask(&layer, from(ALICE), 200).await;
        // A request that would reserve is answered in the same way.
        let service = service_fn(|_: Request<String>| async { Ok::<_, Infallible>(Response::<String>::default()) });
        let reserving = layer.reserve().layer(service).oneshot(from(ALICE)).await.expect("a response");
        assert_eq!(reserving.status(), refused.status(), "{mode:?}");
        if refused.status() == StatusCode::SERVICE_UNAVAILABLE {
            assert!(refused.headers().contains_key(RETRY_AFTER), "{mode:?}");
            assert!(refused.body().contains("#temporary-reduced-capacity"), "{}", refused.body());
        }
    }
}

/// A store that is away while it is told to be.
struct Wavering {
    store: MemoryStore,
    is_away: Arc<AtomicBool>,
}

impl Store for Wavering {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        if self.is_away.load(Ordering::Relaxed) {
            return Err(StoreError::Failed { source: Box::new(Gone) });
        }
        self.store.decide_now(checks, verdicts)
    }

    fn clock(&self) -> &dyn Clock {
        self.store.clock()
    }
}

#[tokio::test]
async fn units_admitted_by_the_fallback_are_not_refunded_to_the_store() {
    for mode in [FailureMode::Open, FailureMode::local(1)] {
        let is_away = Arc::new(AtomicBool::new(false));
        let store = MemoryStore::builder().max_keys(1_000).clock(ManualClock::default()).build();
        let store = Wavering { store: store.expect("valid settings"), is_away: Arc::clone(&is_away) };
        let limiter = Limiter::builder(Limit::per_hour(5)).store(store).on_failure(mode).build();
        let limiter = limiter.expect("a valid policy");
        let layer = RateLimitLayer::new(limiter.clone()).settle(settle::only_failures());
        for _ in 0..3 {
            assert_eq!(ask(&layer, from(ALICE), 401).await.status(), 401);
        }
        is_away.store(true, Ordering::Relaxed);
        let service = service_fn(|_: Request<String>| {
            is_away.store(false, Ordering::Relaxed);
            async { Ok::<_, Infallible>(Response::<String>::default()) }
        });
        let response = layer.layer(service).oneshot(from(ALICE)).await.expect("a response");
        assert_eq!(response.status(), 200, "the fallback decides");
        let left = limiter.peek_async(ALICE).await.expect("the store is back").remaining();
        assert_eq!(left, Some(2), "three failures count on: {mode:?}");
    }
}
