//! When a request is charged: when it is called, and neither before nor if it is dropped.

use super::*;

#[tokio::test]
async fn being_ready_is_up_to_the_inner_service_and_charges_nothing() {
    let (limiter, _) = limiter(Limit::per_hour(2));
    let layer = RateLimitLayer::new(limiter.clone());
    let (mut service, mut handle) = mock::spawn_layer::<Request<String>, Response<String>, _>(layer);
    handle.allow(0);
    for _ in 0..100 {
        assert!(service.poll_ready().is_pending());
    }
    handle.allow(1);
    for _ in 0..100 {
        assert!(matches!(service.poll_ready(), Poll::Ready(Ok(()))));
    }
    assert_eq!(limiter.peek(ALICE).expect("an answer").remaining(), Some(2));
    let response = service.call(from(ALICE));
    let (_, send) = handle.next_request().await.expect("a request");
    send.send_response(Response::default());
    assert_eq!(response.await.expect("a response").status(), 200);
    assert_eq!(limiter.peek(ALICE).expect("an answer").remaining(), Some(1));
}

#[tokio::test]
async fn a_refused_request_never_reaches_the_inner_service() {
    let (limiter, _) = limiter(Limit::per_hour(1));
    assert!(limiter.allow(ALICE));
    let (mock, mut handle) = mock::pair::<Request<String>, Response<String>>();
    let mut service = RateLimitLayer::new(limiter).layer(mock);
    let response = service.ready().await.expect("ready").call(from(ALICE)).await.expect("a response");
    assert_eq!(response.status(), 429);
    assert!(handle.next_request().now_or_never().is_none());
}

#[tokio::test]
async fn an_abandoned_response_stays_charged_and_leaves_nothing_behind() {
    let (limiter, _) = limiter(Limit::per_hour(2));
    let (mock, mut handle) = mock::pair::<Request<String>, Response<String>>();
    let mut service = RateLimitLayer::new(limiter.clone()).settle(settle::only_failures()).layer(mock);
    let response = service.ready().await.expect("ready").call(from(ALICE));
    let (_, send) = handle.next_request().await.expect("a request");
    drop(response);
    send.send_response(Response::default());
    assert_eq!(limiter.peek(ALICE).expect("an answer").remaining(), Some(1));
    let response = service.ready().await.expect("ready").call(from(ALICE));
    handle.next_request().await.expect("a request").1.send_response(Response::default());
    assert_eq!(response.await.expect("a response").headers()["ratelimit"], "\"2/h\";r=1;t=1800", "was refunded");
}

#[tokio::test]
async fn clones_share_the_limit() {
    let (limiter, _) = limiter(Limit::per_hour(3));
    let layer = RateLimitLayer::new(limiter);
    let service = service_fn(|_: Request<String>| async { Ok::<_, Infallible>(Response::<String>::default()) });
    let first = layer.layer(service);
    let mut admitted = 0;
    for mut service in [first.clone(), first, layer.clone().layer(service), layer.layer(service)] {
        for _ in 0..2 {
            let response = service.ready().await.expect("ready").call(from(ALICE)).await.expect("a response");
            admitted += u32::from(response.status() == 200);
        }
    }
    assert_eq!(admitted, 3);
}
