//! The shop by its own policy file, without sockets and by a clock that only the tests move.

#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Request;
use http_body_util::BodyExt;
use tidegate::{Limiter, ManualClock, MemoryStore};
use tidegate_example_shop::shop;
use tower::ServiceExt;

struct Test {
    shop: Router,
    clock: ManualClock,
}

impl Test {
    fn new() -> Test {
        let clock = ManualClock::default();
        let store = MemoryStore::builder().max_keys(1_000).clock(clock.clone()).build().unwrap();
        let policy = tidegate_config::load(concat!(env!("CARGO_MANIFEST_DIR"), "/policy.toml")).unwrap();
        Test { shop: shop(Limiter::with_store(policy, store).unwrap()), clock }
    }

    /// The status, the field `Retry-After`, and the body.
    async fn send(&self, request: &str, session: &str, from: &str, body: &str) -> (u16, Option<String>, String) {
        let (method, path) = request.split_once(' ').unwrap();
        let peer: SocketAddr = format!("{from}:1234").parse().unwrap();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {session}"))
            .header("content-type", "application/x-www-form-urlencoded")
            .extension(ConnectInfo(peer))
            .body(Body::from(body.to_owned()));
        let response = self.shop.clone().oneshot(request.unwrap()).await.unwrap();
        let retry_after = response.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, retry_after, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn admitted(&self, request: &str, session: &str, tries: usize) -> usize {
        let mut admitted = 0;
        for _ in 0..tries {
            let (status, ..) = self.send(request, session, "192.0.2.1", "").await;
            admitted += usize::from(status == 200);
        }
        admitted
    }

    async fn login(&self, user: &str, password: &str, from: &str) -> (u16, Option<String>) {
        let body = format!("user={user}&password={password}");
        let (status, retry_after, _) = self.send("POST /login", "none", from, &body).await;
        (status, retry_after)
    }
}

#[tokio::test]
async fn each_plan_has_its_limit_and_visitors_count_by_address() {
    let test = Test::new();
    assert_eq!(test.admitted("GET /products", "session-of-alice", 700).await, 60);
    assert_eq!(test.admitted("GET /products", "session-of-bob", 700).await, 600);
    assert_eq!(test.admitted("GET /products", "forged", 700).await, 30);
}

#[tokio::test]
async fn a_user_orders_five_times_in_any_minute() {
    let test = Test::new();
    assert_eq!(test.admitted("POST /orders", "session-of-bob", 7).await, 5);
    let (status, retry_after, body) = test.send("POST /orders", "session-of-bob", "192.0.2.1", "").await;
    assert_eq!((status, retry_after.as_deref()), (429, Some("60")), "{body}");
    test.clock.advance(Duration::from_secs(60));
    assert_eq!(test.admitted("POST /orders", "session-of-bob", 7).await, 5);
    assert_eq!(test.send("POST /orders", "forged", "192.0.2.1", "").await.0, 401);
}

#[tokio::test]
async fn five_wrong_passwords_lock_an_account_until_retry_after() {
    let test = Test::new();
    for attempt in 0..5 {
        let from = format!("198.51.100.{attempt}");
        assert_eq!(test.login("alice", "guess", &from).await, (401, None));
    }
    let locked = test.login("ALICE", "correct+horse", "198.51.100.9").await;
    assert_eq!(locked, (429, Some("180".into())), "another spelling and address is the same account");
    assert_eq!(test.login("bob", "correct+horse", "198.51.100.9").await, (200, None));

    test.clock.advance(Duration::from_micros(179_999_999));
    assert_eq!(test.login("alice", "correct+horse", "198.51.100.9").await.0, 429);
    test.clock.advance(Duration::from_micros(1));
    assert_eq!(test.login("alice", "correct+horse", "198.51.100.9").await.0, 200);
}

#[tokio::test]
async fn right_passwords_are_not_counted_for_the_account() {
    let test = Test::new();
    for attempt in 0..15 {
        let from = format!("198.51.100.{attempt}");
        assert_eq!(test.login("alice", "correct+horse", &from).await.0, 200);
    }
}

#[tokio::test]
async fn one_address_tries_twenty_accounts_an_hour() {
    let test = Test::new();
    let mut answered = 0;
    for user in 0..25 {
        answered += usize::from(test.login(&format!("user-{user}"), "guess", "192.0.2.1").await.0 == 401);
    }
    assert_eq!(answered, 20);
}
