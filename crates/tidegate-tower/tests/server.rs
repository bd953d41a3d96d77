//! A real axum server over a socket, with real clients, on memory and on Redis.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::{get, post};
use futures_util::{StreamExt, stream};
use http::StatusCode;
use reqwest::{Client, Response};
use sfv::{ListEntry, Parser};
use tidegate::{Limit, Limiter, Policy, Rule};
use tidegate_redis::{RedisStore, Servers};
use tidegate_testkit::servers::Server;
use tidegate_tower::{ClientIp, ForwardingHeader, RateLimitLayer, by, settle, usage};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Where a server answers, until the runtime of the test ends.
struct Site {
    address: SocketAddr,
    client: Client,
}

impl Site {
    async fn of(app: Router) -> Site {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let service = app.into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async move { axum::serve(listener, service).await });
        Site { address, client: Client::builder().no_proxy().build().expect("a client") }
    }

    async fn get(&self, path: &str) -> Response {
        self.get_with(path, &[]).await
    }

    async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        let mut request = self.client.get(format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.expect("a response")
    }

    async fn statuses(&self, path: &str, requests: usize) -> Vec<u16> {
        let mut statuses = Vec::new();
        for _ in 0..requests {
            statuses.push(self.get(path).await.status().as_u16());
        }
        statuses
    }

    /// How many of so many concurrent requests are admitted.
    async fn admitted(&self, requests: usize) -> usize {
        let answers = stream::iter(0..requests).map(|_| self.get("/")).buffer_unordered(256);
        answers.filter(|response| std::future::ready(response.status() == 200)).count().await
    }
}

fn hello(limiter: Limiter) -> Router {
    Router::new().route("/", get(|| async { "hello" })).layer(RateLimitLayer::new(limiter))
}

#[tokio::test]
async fn one_line_limits_each_client_and_tells_in_structured_fields() {
    let site = Site::of(hello(Limiter::new(Policy::new().limit("api", Limit::per_hour(2))))).await;
    for (status, remaining) in [(200, 1), (200, 0), (429, 0)] {
        let response = site.get("/").await;
        assert_eq!(response.status(), status);
        let field = response.headers()["ratelimit"].to_str().expect("text");
        let list: sfv::List = Parser::new(field).parse().expect("a list");
        let ListEntry::Item(item) = &list[0] else { panic!("an inner list") };
        assert_eq!(item.bare_item.as_string().map(sfv::StringRef::as_str), Some("api"));
        let integer = |name: &str| item.params.get(name).and_then(sfv::BareItem::as_integer).map(i64::from);
        assert_eq!(integer("r"), Some(remaining));
        assert!(integer("t").is_some_and(|seconds| (1..=1_800).contains(&seconds)), "{field}");
        assert_eq!(response.headers()["ratelimit-policy"], "\"api\";q=2;w=3600");
        if status == 429 {
            let retry_after: i64 = response.headers()["retry-after"].to_str().expect("text").parse().expect("seconds");
            assert_eq!(Some(retry_after), integer("t"));
            assert_eq!(response.headers()["content-type"], "application/problem+json");
            let problem: serde_json::Value =
                serde_json::from_str(&response.text().await.expect("a body")).expect("JSON");
            assert_eq!(problem["violated-policies"], serde_json::json!(["api"]));
            assert_eq!(problem["status"], 429);
        } else {
            assert_eq!(response.text().await.expect("a body"), "hello");
        }
    }
}

#[tokio::test]
async fn a_server_without_connect_info_is_told_what_to_call() {
    let by_address = RateLimitLayer::new(Limiter::new(Limit::per_hour(1)));
    let rule = Rule::new("clients", Limit::per_hour(1)).key(["ip"]);
    let by_rule = RateLimitLayer::new(Limiter::new(rule)).key(by::everyone()).http_attributes();
    for layer in [by_address, by_rule] {
        let app = Router::new().route("/", get(|| async { "hello" })).layer(layer);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let unaware = app.clone();
        tokio::spawn(async move { axum::serve(listener, unaware).await });
        let site = Site { address, client: Client::builder().no_proxy().build().expect("a client") };
        // Before, the rule admitted one request of the whole site.
        for _ in 0..2 {
            let response = site.get("/").await;
            assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
            let problem = response.text().await.expect("a body");
            assert!(problem.contains("into_make_service_with_connect_info::<SocketAddr>()"), "{problem}");
        }
        assert_eq!(Site::of(app).await.statuses("/", 2).await, [200, 429]);
    }
}

#[tokio::test]
async fn routes_have_policies_of_their_own_and_unknown_paths_none() {
    let limited = |count| RateLimitLayer::new(Limiter::new(Limit::per_hour(count)));
    let by_route = RateLimitLayer::new(Limiter::new(Limit::per_hour(3))).key(by::both(by::client_ip(), by::route()));
    let users = Router::new().route("/users/{id}", get(|| async {})).route("/teams/{id}", get(|| async {}));
    let app = Router::new()
        .route("/one", get(|| async {}).layer(limited(1)))
        .route("/two", get(|| async {}).route_layer(limited(2)))
        .merge(users.route_layer(by_route));
    let site = Site::of(app).await;
    assert_eq!(site.statuses("/one", 2).await, [200, 429]);
    assert_eq!(site.statuses("/two", 3).await, [200, 200, 429]);
    assert_eq!(site.statuses("/users/1", 2).await, [200, 200]);
    assert_eq!(site.statuses("/users/2", 2).await, [200, 429], "one route, one limit");
    assert_eq!(site.statuses("/teams/2", 1).await, [200]);
    assert_eq!(site.statuses("/nowhere", 9).await, [404; 9], "a route layer has nothing to do with them");
}

#[tokio::test]
async fn forged_headers_of_every_shape_gain_nothing() {
    let forged = [
        "1.1.1.1",
        "1.1.1.1:80",
        "::1",
        "[::1]:80",
        "\"1.1.1.1\"",
        "unknown",
        "_hidden",
        "",
        ",,,",
        "a,b,c",
        "\"",
        "for=\"",
        "127.0.0.1",
        "10.0.0.1, 127.0.0.1",
        "for=1.1.1.1;for=2.2.2.2",
        "for=\"[::1]:_x\", for=\"",
        "%31.1.1.1",
        "1.1.1.1\t",
    ];
    let headers = [
        (ForwardingHeader::XForwardedFor, "x-forwarded-for", "203.0.113.7"),
        (ForwardingHeader::Forwarded, "forwarded", "for=203.0.113.7;proto=https"),
    ];
    let loopback = || ClientIp::behind_any_of(["127.0.0.0/8".parse().expect("a network")]);
    for (header, name, added) in headers {
        for client_ip in [ClientIp::peer(), ClientIp::behind(1).header(header), loopback().header(header)] {
            let limiter = Limiter::new(Limit::per_hour(1));
            let layer = RateLimitLayer::new(limiter.clone()).client_ip(client_ip.clone());
            let site = Site::of(Router::new().route("/", get(|| async {})).layer(layer)).await;
            let mut statuses = Vec::new();
            for forged in forged {
                // What a proxy passes on: added to the line, or as a line of its own.
                let line = format!("{forged}, {added}");
                statuses.push(site.get_with("/", &[(name, &line)]).await.status().as_u16());
                statuses.push(site.get_with("/", &[(name, forged), (name, added)]).await.status().as_u16());
            }
            let admitted = statuses.iter().filter(|status| **status == 200).count();
            assert_eq!(admitted, 1, "{name} by {client_ip:?}: {statuses:?}");
            assert_eq!(limiter.store().count_keys(), 1, "{name} by {client_ip:?}");
        }
    }
    for (header, name) in
        [(ForwardingHeader::XRealIp, "x-real-ip"), (ForwardingHeader::CfConnectingIp, "cf-connecting-ip")]
    {
        let limiter = Limiter::new(Limit::per_hour(1));
        let layer = RateLimitLayer::new(limiter.clone()).client_ip(loopback().header(header));
        let site = Site::of(Router::new().route("/", get(|| async {})).layer(layer)).await;
        for forged in forged {
            let others = [("x-forwarded-for", forged), ("forwarded", forged), (name, forged), (name, "203.0.113.7")];
            site.get_with("/", &others).await;
        }
        assert_eq!(limiter.store().count_keys(), 1, "{name}");
    }
}

#[tokio::test]
async fn requests_of_grpc_get_a_status_on_the_same_server() {
    let site = Site::of(hello(Limiter::new(Limit::per_hour(1)))).await;
    let grpc = [("content-type", "application/grpc")];
    assert_eq!(site.get_with("/", &grpc).await.status(), 200);
    let response = site.get_with("/", &grpc).await;
    assert_eq!((response.status().as_u16(), response.headers()["grpc-status"].to_str().ok()), (200, Some("8")));
    assert_eq!(response.headers()["content-type"], "application/grpc");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_concurrent_requests_admit_exactly_the_limit() {
    let site = Site::of(hello(Limiter::new(thousand()))).await;
    assert_eq!(site.admitted(10_000).await, 1_000);
}

/// A thousand in as many days: not one more while a test lasts.
fn thousand() -> Limit {
    Limit::token_bucket(1_000, Duration::from_secs(1_000 * 86_400))
}

mod redis {
    use super::*;

    static SERVER: LazyLock<Server> = LazyLock::new(Server::start);

    fn app(name: &'static str, limit: Limit) -> Router {
        let builder =
            RedisStore::builder(Servers::parse(&SERVER.url()).expect("an address")).deadline(Duration::from_secs(20));
        let store = builder.build().expect("a valid address");
        let limiter = Limiter::with_store(Policy::new().limit(name, limit), store).expect("a valid policy");
        let layer = RateLimitLayer::new(limiter);
        let login = post(|status: String| async move {
            StatusCode::from_bytes(status.as_bytes()).unwrap_or(StatusCode::BAD_REQUEST)
        });
        Router::new()
            .route("/", get(|| async { "hello" }))
            .route_layer(layer.clone())
            .route("/login", login.route_layer(layer.settle(settle::only_failures())))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn ten_thousand_concurrent_requests_on_two_servers_admit_exactly_the_limit() {
        let (one, other) = (Site::of(app("shared", thousand())).await, Site::of(app("shared", thousand())).await);
        let (first, second) = tokio::join!(one.admitted(5_000), other.admitted(5_000));
        assert_eq!(first + second, 1_000);
        let refused = one.get("/").await;
        assert_eq!(refused.status(), 429);
        assert_eq!(refused.headers()["ratelimit-policy"], "\"shared\";q=1000;w=86400000");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_reservation_is_held_and_settled_there_as_well() {
        let tokens = Rule::new("tokens", Limit::sliding_log(1_000, Duration::from_secs(3_600)));
        let policy = Policy::new()
            .rule(tokens.unit("tokens").default_amount(100))
            .limit("at once", Limit::in_flight(1, Duration::from_secs(3_600)));
        let servers = Servers::parse(&SERVER.url()).expect("an address");
        let store = RedisStore::builder(servers).deadline(Duration::from_secs(20)).build().expect("a valid address");
        let limiter = Limiter::with_store(policy, store).expect("a valid policy");
        let may_end = Arc::new(Semaphore::new(0));
        let ends = Arc::clone(&may_end);
        let stream = move || async move {
            let end = async move {
                ends.acquire().await.expect("open").forget();
                Ok::<_, Infallible>(r#"{"usage":{"input_tokens":30,"output_tokens":12}}"#)
            };
            ([("content-type", "application/json")], Body::from_stream(stream::once(end)))
        };
        let layer = RateLimitLayer::new(limiter.clone()).key(by::everyone()).reserve().tally(usage::tokens());
        let site = Site::of(Router::new().route("/", get(stream)).layer(layer)).await;
        let left = async |rule| {
            let peek = limiter.peek_async(tidegate::Request::new("").rule(rule).cost(0));
            peek.await.expect("an answer").remaining()
        };
        let response = site.get("/").await;
        assert_eq!((left("at once").await, left("tokens").await), (Some(0), Some(900)));
        assert_eq!(site.get("/").await.status(), 429);
        may_end.add_permits(1);
        assert!(response.text().await.expect("a body").contains("usage"));
        // It is settled in the background.
        while left("at once").await != Some(1) {
            tokio::task::yield_now().await;
        }
        assert_eq!(left("tokens").await, Some(958));
        let left_early = site.get("/").await;
        assert_eq!(left("at once").await, Some(0));
        drop(left_early);
        while left("at once").await != Some(1) {
            tokio::task::yield_now().await;
        }
        assert_eq!(left("tokens").await, Some(858));
    }

    #[tokio::test]
    async fn only_failures_count_there_as_well() {
        let site = Site::of(app("login", Limit::per_day(2))).await;
        let mut statuses = Vec::new();
        for outcome in ["200", "401", "200", "200", "401", "200"] {
            let login = site.client.post(format!("http://{}/login", site.address)).body(outcome);
            statuses.push(login.send().await.expect("a response").status().as_u16());
        }
        assert_eq!(statuses, [200, 401, 200, 200, 401, 429]);
    }
}
