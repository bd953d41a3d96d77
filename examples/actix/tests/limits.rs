//! A real server of actix-web with the middleware, asked over sockets.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use actix_web::middleware::from_fn;
use actix_web::web::{Data, get};
use actix_web::{App, HttpServer, rt};
use tidegate::{Condition, Limit, Limiter, ManualClock, MemoryStore, Policy, Rule, Setting};
use tidegate_example_actix::{RateLimit, rate_limit};
use tidegate_tower::ClientIp;

/// Serves `/`, behind one proxy, while `ask` asks.
fn serving(policy: impl Into<Policy>, ask: impl FnOnce(SocketAddr) + Send + 'static) {
    let store = MemoryStore::builder().max_keys(100).clock(ManualClock::default()).build().unwrap();
    let limiter = Limiter::with_store(policy, store).unwrap();
    let limits = Data::new(RateLimit::new(limiter).client_ip(ClientIp::behind(1)));
    rt::System::new().block_on(async {
        let app = move || {
            App::new().app_data(limits.clone()).wrap(from_fn(rate_limit)).route("/", get().to(async || "hello"))
        };
        let server = HttpServer::new(app).workers(1).disable_signals().bind("127.0.0.1:0").unwrap();
        let address = server.addrs()[0];
        let server = server.run();
        let handle = server.handle();
        let serving = rt::spawn(server);
        // Not on the thread that the server needs.
        let asked = rt::task::spawn_blocking(move || ask(address)).await;
        handle.stop(false).await;
        serving.await.unwrap().unwrap();
        asked.unwrap();
    });
}

/// Asks as a client behind the proxy: the head of the answer, in lower case, and the body.
fn ask(address: SocketAddr, client: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-forwarded-for: {client}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), body.to_owned())
}

fn has(head: &str, lines: &[&str]) -> bool {
    lines.iter().all(|line| head.lines().any(|found| found == *line))
}

#[test]
fn a_client_over_its_limit_gets_429_with_retry_after_and_the_fields() {
    let rule = Rule::new("clients", Limit::per_hour(2)).key(["ip"]);
    serving(rule, |address| {
        let policy = "ratelimit-policy: \"clients\";q=2;w=3600";
        for left in ["ratelimit: \"clients\";r=1;t=1800", "ratelimit: \"clients\";r=0;t=1800"] {
            let (head, body) = ask(address, "192.0.2.1", "/");
            assert!(has(&head, &["http/1.1 200 ok", policy, left]) && !head.contains("retry-after"), "{head}");
            assert_eq!(body, "hello");
        }
        let (head, body) = ask(address, "192.0.2.1", "/");
        let refused =
            ["http/1.1 429 too many requests", policy, "ratelimit: \"clients\";r=0;t=1800", "retry-after: 1800"];
        assert!(has(&head, &refused) && has(&head, &["content-type: application/problem+json"]), "{head}");
        assert!(body.contains("quota-exceeded") && !body.contains("hello"), "{body}");
        // IPv6 by its network, and each client by itself.
        for (client, status) in
            [("2001:db8::1", "200"), ("2001:db8::2", "200"), ("2001:db8::3", "429"), ("192.0.2.2", "200")]
        {
            assert_eq!(ask(address, client, "/").0.split(' ').nth(1), Some(status), "{client}");
        }
    });
}

#[test]
fn a_blocked_request_gets_403_and_one_that_cannot_be_decided_422() {
    let at = |path: &str| Condition::Equals(path.into());
    let policy = Policy::new()
        .rule(Rule::with_setting("admin", Setting::Blocked).when("path", at("/admin")))
        .rule(Rule::new("users", Limit::per_hour(2)).key(["user"]).when("path", at("/user")));
    serving(policy, |address| {
        for (path, status) in [("/", "200"), ("/admin", "403"), ("/user", "422")] {
            let (head, _) = ask(address, "192.0.2.1", path);
            assert_eq!(head.split(' ').nth(1), Some(status), "{path}: {head}");
            assert!(!head.contains("retry-after"), "{head}");
        }
    });
}
