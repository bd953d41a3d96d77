//! Stores that answer later.

use super::*;

#[tokio::test]
async fn a_store_that_waits_decides_before_the_inner_service_is_called() {
    let slow = Slow::new();
    let limiter = Limiter::with_store(Limit::per_hour(1), slow.clone()).expect("a valid policy");
    let (mock, mut handle) = mock::pair::<Request<String>, Response<String>>();
    let mut service = RateLimitLayer::new(limiter).layer(mock);
    let mut response = service.ready().await.expect("ready").call(from(ALICE));
    assert!((&mut response).now_or_never().is_none());
    assert!(handle.next_request().now_or_never().is_none(), "not before it is decided");
    slow.answers.add_permits(1);
    assert!((&mut response).now_or_never().is_none());
    handle.next_request().await.expect("a request").1.send_response(Response::default());
    let response = response.await.expect("a response");
    assert_eq!(response.headers()["ratelimit-policy"], "\"1/h\";q=1;w=3600");
    slow.answers.add_permits(1);
    let refused = service.ready().await.expect("ready").call(from(ALICE)).await.expect("a response");
    assert_eq!(refused.status(), 429);
}

#[tokio::test]
async fn a_request_dropped_before_it_is_decided_charges_nothing() {
    let slow = Slow::new();
    let limiter = Limiter::with_store(Limit::per_hour(1), slow.clone()).expect("a valid policy");
    let (mock, mut handle) = mock::pair::<Request<String>, Response<String>>();
    let mut service = RateLimitLayer::new(limiter).layer(mock);
    for _ in 0..10 {
        let mut response = service.ready().await.expect("ready").call(from(ALICE));
        assert!((&mut response).now_or_never().is_none());
        drop(response);
    }
    assert!(handle.next_request().now_or_never().is_none());
    assert_eq!(slow.store.count_keys(), 0);
}

#[tokio::test]
async fn a_leaky_bucket_holds_requests_back_by_its_own_clock() {
    let (limiter, clock) = limiter(Limit::leaky_bucket(1, Duration::from_secs(1)).queue(3));
    let (mock, mut handle) = mock::pair::<Request<String>, Response<String>>();
    let mut service = RateLimitLayer::new(limiter).layer(mock);
    let mut calls = Vec::new();
    for _ in 0..4 {
        calls.push(tokio::spawn(service.ready().await.expect("ready").call(from(ALICE))));
    }
    for leaving in 0..3 {
        tokio::task::yield_now().await;
        handle.next_request().await.expect("one at a time").1.send_response(Response::default());
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(handle.next_request().now_or_never().is_none(), "{leaving} have left, and time stands still");
        clock.advance(Duration::from_secs(1));
    }
    let mut statuses = Vec::new();
    for call in calls {
        statuses.push(call.await.expect("the call ends").expect("a response").status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 200, 429]);
}

#[tokio::test]
async fn a_request_dropped_while_it_is_held_back_is_not_served() {
    let (limiter, clock) = limiter(Limit::leaky_bucket(1, Duration::from_secs(1)).queue(3));
    let (mock, mut handle) = mock::pair::<Request<String>, Response<String>>();
    let mut service = RateLimitLayer::new(limiter.clone()).layer(mock);
    assert!(limiter.allow(ALICE));
    let mut held = service.ready().await.expect("ready").call(from(ALICE));
    assert!((&mut held).now_or_never().is_none());
    drop(held);
    clock.advance(Duration::from_secs(5));
    assert!(handle.next_request().now_or_never().is_none());
}
