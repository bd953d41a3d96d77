//! What requests and responses cost.

use super::*;

#[tokio::test]
async fn the_request_says_what_it_costs() {
    let (limiter, _) = limiter(Limit::per_hour(10));
    let layer = RateLimitLayer::new(limiter)
        .cost(|request| request.header("x-cost").and_then(|cost| cost.parse().ok()).unwrap_or(1));
    let costs = ["4", "x", "7", "5"].map(|cost| with_header("x-cost", cost));
    assert_eq!(statuses(&layer, costs).await, [200, 200, 429, 200]);
    let impossible = ask(&layer, with_header("x-cost", "11"), 200).await;
    assert_eq!(impossible.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert!(!impossible.headers().contains_key(RETRY_AFTER), "no waiting helps");
}

#[tokio::test]
async fn the_request_says_how_much_it_takes_of_a_unit() {
    let rule = Rule::new("uploads", Limit::per_hour(10)).unit("bytes").default_amount(2);
    let (limiter, _) = limiter(Policy::new().rule(rule));
    let layer = RateLimitLayer::new(limiter).amount("bytes", |request| request.content_length());
    let lengths = ["5", "x", "4", "3"].map(|length| with_header("content-length", length));
    assert_eq!(statuses(&layer, lengths).await, [200, 200, 429, 200]);
}

#[tokio::test]
async fn the_response_settles_what_was_charged() {
    let (limiter, _) = limiter(Limit::per_hour(10));
    let layer = || RateLimitLayer::new(limiter.clone());
    let remaining = |response: &Response<String>| {
        let field = response.headers()["ratelimit"].to_str().expect("text").to_owned();
        field.split(";r=").nth(1).and_then(|rest| rest.split(';').next()?.parse::<u64>().ok()).expect("a number")
    };
    let failures = layer().settle(settle::only_failures());
    for (status, left) in [(200, 10), (302, 10), (404, 9), (500, 8), (204, 8)] {
        assert_eq!(remaining(&ask(&failures, from(ALICE), status).await), left, "{status}");
    }
    let successes = layer().settle(settle::only_successes());
    for (status, left) in [(404, 8), (204, 7), (500, 7)] {
        assert_eq!(remaining(&ask(&successes, from(ALICE), status).await), left, "{status}");
    }
    // The body has 100 bytes: four units in all.
    let by_size = layer().settle(settle::by_size(30));
    assert_eq!(remaining(&ask(&by_size, from(ALICE), 200).await), 3);
    assert_eq!(remaining(&ask(&by_size, from(ALICE), 200).await), 0, "as far as there is any");
    assert_eq!(ask(&by_size, from(ALICE), 200).await.status(), 429);
}

#[tokio::test]
async fn charges_for_a_response_are_not_counted_as_requests() {
    let counts = Arc::new(CountingObserver::default());
    let limiter = Limiter::builder(Limit::per_hour(6)).observer(counts.clone()).build().expect("a valid policy");
    let layer = RateLimitLayer::new(limiter).settle(settle::by_size(30));
    assert_eq!(statuses(&layer, [from(ALICE), from(ALICE), from(ALICE)]).await, [200, 200, 429]);
    assert_eq!((counts.allowed(), counts.refused()), (2, 1));
}

#[tokio::test]
async fn a_request_that_is_sent_again_is_charged_and_settled_once() {
    for asynchronous in [false, true] {
        let slow = Slow { store: Arc::default(), answers: Arc::new(Semaphore::new(100)) };
        let layer = match asynchronous {
            false => RateLimitLayer::new(limiter(Limit::per_hour(10)).0),
            true => RateLimitLayer::new(Limiter::with_store(Limit::per_hour(10), slow).expect("a valid policy")),
        };
        let layer = layer.id(by::header("idempotency-key")).settle(settle::only_successes());
        let named = |name: &str| with_header("idempotency-key", name);
        let left = |response: &Response<String>| response.headers()["ratelimit"].to_str().expect("text").to_owned();
        assert!(left(&ask(&layer, named("a"), 200).await).contains(";r=9"));
        assert!(left(&ask(&layer, named("a"), 200).await).contains(";r=9"), "sent again");
        assert!(left(&ask(&layer, named("b"), 200).await).contains(";r=8"));
        assert!(left(&ask(&layer, named("b"), 500).await).contains(";r=8"), "nothing to give back a second time");
        assert!(left(&ask(&layer, from(ALICE), 200).await).contains(";r=7"), "without a name");
        assert!(left(&ask(&layer, from(ALICE), 200).await).contains(";r=6"));
        let layer = layer.cost(|_| 2);
        let reused = ask(&layer, named("a"), 200).await;
        assert_eq!(reused.status(), StatusCode::UNPROCESSABLE_ENTITY);
        assert!(reused.body().contains("urn:problem-type:tidegate:id-reused"), "{}", reused.body());
        assert!(!reused.headers().contains_key(RETRY_AFTER), "no waiting helps");
    }
}

#[tokio::test]
async fn a_stream_has_the_size_that_its_header_tells() {
    use axum::body::Body;
    use futures_util::stream;
    for (length, left) in [(Some(100), 6), (None, 9)] {
        let service = service_fn(|_: Request<String>| async {
            let body = Body::from_stream(stream::iter([Ok::<_, Infallible>("x".repeat(100))]));
            let response = Response::builder();
            let response = length.into_iter().fold(response, |told, length| told.header("content-length", length));
            response.body(body)
        });
        let (limiter, _) = limiter(Limit::per_hour(10));
        let layer = RateLimitLayer::new(limiter.clone()).settle(settle::by_size(30));
        assert_eq!(layer.layer(service).oneshot(from(ALICE)).await.expect("a response").status(), 200);
        assert_eq!(limiter.peek(ALICE).expect("an answer").remaining(), Some(left), "{length:?}");
    }
}

#[tokio::test]
async fn a_call_of_grpc_has_failed_if_its_own_status_says_so() {
    for (status, failures, successes) in [("0", 10, 9), ("16", 9, 10), ("8", 9, 10)] {
        for (layer, left) in [
            (RateLimitLayer::new(limiter(Limit::per_hour(10)).0).settle(settle::only_failures()), failures),
            (RateLimitLayer::new(limiter(Limit::per_hour(10)).0).settle(settle::only_successes()), successes),
        ] {
            let service = service_fn(|_: Request<String>| async {
                Response::builder().header("grpc-status", status).body(String::new())
            });
            let response = layer.grpc().layer(service).oneshot(from(ALICE)).await.expect("a response");
            let field = response.headers()["ratelimit"].to_str().expect("text");
            assert!(field.contains(&format!(";r={left}")), "{status}: {field}");
        }
    }
}

#[tokio::test]
async fn a_rule_that_always_costs_the_same_is_charged_once() {
    let (limiter, _) = limiter(
        Policy::new()
            .rule(Rule::new("requests", Limit::per_hour(10)).fixed_cost(2))
            .rule(Rule::new("units", Limit::per_hour(1_000))),
    );
    // The body has 100 bytes: four units in all.
    let layer = RateLimitLayer::new(limiter.clone()).settle(settle::by_size(30));
    let response = ask(&layer, from(ALICE), 200).await;
    let left = |rule| limiter.peek(tidegate::Request::new(ALICE).rule(rule)).expect("an answer").remaining();
    assert_eq!((left("requests"), left("units")), (Some(8), Some(996)));
    assert_eq!(response.headers()["ratelimit"], "\"requests\";r=8;t=360", "of all limits the tightest");
}

#[tokio::test]
async fn a_multiplied_cost_is_charged_as_far_as_units_remain() {
    let (limiter, _) = limiter(Policy::new().rule(Rule::new("dear", Limit::per_hour(1_000)).cost_multiplier(10)));
    let layer = RateLimitLayer::new(limiter.clone()).settle(|_| settle::Settlement::Charge(999));
    for (address, used) in [(ALICE, 0), (BOB, 51), ("192.0.2.3", 98), ("192.0.2.4", 99)] {
        assert!(limiter.allow(tidegate::Request::new(address).cost(used)));
        assert_eq!(ask(&layer, from(address), 200).await.status(), 200);
        assert_eq!(limiter.peek(address).expect("an answer").remaining(), Some(0), "{used} were used before");
    }
}

#[tokio::test]
async fn a_response_that_took_the_rest_tells_when_the_next_unit_comes() {
    let (limiter, _) = limiter(Limit::per_minute(10));
    let layer = RateLimitLayer::new(limiter.clone()).settle(settle::by_size(10));
    for used in [9, 0] {
        assert!(limiter.reset(ALICE).is_ok());
        assert!(limiter.allow(tidegate::Request::new(ALICE).cost(used)));
        let response = ask(&layer, from(ALICE), 200).await;
        assert_eq!(response.headers()["ratelimit"], "\"10/min\";r=0;t=6", "{used} were used before");
    }
}

#[tokio::test]
async fn a_service_that_fails_without_a_response_is_no_success() {
    let (limiter, _) = limiter(Limit::per_hour(10));
    let broken = || service_fn(|_: Request<String>| async { Err::<Response<String>, _>("broken") });
    for (layer, left) in [
        (RateLimitLayer::new(limiter.clone()).settle(settle::only_successes()), 10),
        (RateLimitLayer::new(limiter.clone()).settle(settle::only_failures()), 9),
    ] {
        assert!(layer.layer(broken()).oneshot(from(ALICE)).await.is_err());
        assert_eq!(limiter.peek(ALICE).expect("an answer").remaining(), Some(left));
    }
}
