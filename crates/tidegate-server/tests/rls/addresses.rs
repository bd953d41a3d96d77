//! One address is one key, whichever way a request comes in: the library, HTTP,
//! RESP, Envoy, the tower layer and a replayed log decide alike.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use axum::body::Body;
use axum::routing::get;
use tidegate::{Limiter, ManualClock, MemoryStore, Policy, Request};
use tidegate_config::Format;
use tidegate_replay::{Replay, Source};
use tidegate_testkit::Random;
use tidegate_testkit::servers::{Connection, Reply};
use tidegate_tower::{RateLimitLayer, by};
use tower::ServiceExt;

use crate::rls::{Limit, Running, start};
use crate::support::client::{http, request};

const POLICY: &str = "[rules.clients]\nlimit = '2/h'\nkey = ['ip']\n";
const ASKED: usize = 10_000;
/// Requests of one batch over HTTP.
const BATCH: usize = 100;

fn policy() -> Policy {
    tidegate_config::parse(POLICY, Format::Toml, "policy.toml".as_ref()).unwrap()
}

fn library() -> Limiter {
    let store = MemoryStore::builder().clock(ManualClock::default()).build().unwrap();
    Limiter::with_store(policy(), store).unwrap()
}

async fn server() -> Running {
    start(|settings| {
        std::fs::write(settings.policy.as_ref().unwrap(), POLICY).unwrap();
        settings.envoy_config.clear();
        settings.resp = vec!["127.0.0.1:0".parse().unwrap()];
    })
    .await
}

/// Addresses of a few thousand clients, each written in one of its spellings.
fn addresses() -> Vec<String> {
    let mut random = Random::new(64);
    let join = |segments: [u16; 8], width: usize| segments.map(|part| format!("{part:0width$x}")).join(":");
    let mut addresses = Vec::with_capacity(ASKED);
    for _ in 0..ASKED {
        let client = random.within(0..=1_999) as u32;
        addresses.push(if random.percent(50) {
            let address = Ipv4Addr::from(0x0a00_0000 + client);
            match random.within(0..=3) {
                0 | 1 => address.to_string(),
                2 => format!("::ffff:{address}"),
                _ => join(address.to_ipv6_mapped().segments(), 4).to_uppercase(),
            }
        } else {
            // Any address of the client's /64.
            let [high, low] = [(client >> 16) as u16, client as u16];
            let host = random.number().to_be_bytes();
            let host: [u16; 4] = std::array::from_fn(|at| u16::from_be_bytes([host[2 * at], host[2 * at + 1]]));
            let address = Ipv6Addr::from([0x2001, 0xdb8, high, low, host[0], host[1], host[2], host[3]]);
            match random.within(0..=3) {
                0 => address.to_string(),
                1 => address.to_string().to_uppercase(),
                2 => join(address.segments(), 1),
                _ => join(address.segments(), 4),
            }
        });
    }
    addresses
}

fn by_library(addresses: &[String]) -> Vec<bool> {
    let limiter = library();
    addresses.iter().map(|ip| limiter.check(Request::without_key().with("ip", &**ip)).unwrap().is_allowed()).collect()
}

async fn by_http(addresses: &[String]) -> Vec<bool> {
    let running = server().await;
    let socket = running.server.http_socket().unwrap();
    let mut allowed = Vec::new();
    for batch in addresses.chunks(BATCH) {
        let requests: Vec<_> = batch.iter().map(|ip| serde_json::json!({ "attributes": { "ip": ip } })).collect();
        let (status, body) = http(socket, "POST", "/v1/check", &serde_json::to_string(&requests).unwrap()).await;
        assert_eq!(status, 200, "{body}");
        let answers: Vec<serde_json::Value> = serde_json::from_str(&body).unwrap();
        allowed.extend(answers.iter().map(|answer| answer["allowed"].as_bool().unwrap()));
    }
    assert!(running.server.drain().await);
    allowed
}

async fn by_resp(addresses: &[String]) -> Vec<bool> {
    let running = server().await;
    let socket = running.server.resp_socket().unwrap();
    let addresses = addresses.to_vec();
    let asked = tokio::task::spawn_blocking(move || {
        let mut connection = Connection::open(socket).unwrap();
        let ask = |ip: &String| connection.command(&["TIDEGATE.CHECK", "ip", ip]).unwrap().items()[1].integer() == 1;
        addresses.iter().map(ask).collect()
    });
    let allowed = asked.await.unwrap();
    assert!(running.server.drain().await);
    allowed
}

async fn by_envoy(addresses: &[String]) -> Vec<bool> {
    let mut running = server().await;
    let mut allowed = Vec::new();
    for ip in addresses {
        let response = running.client.ask(request("edge", &[&format!("ip={ip}")])).await.unwrap();
        allowed.push(response.overall_code() == Limit::Ok);
    }
    assert!(running.server.drain().await);
    allowed
}

async fn by_tower(addresses: &[String]) -> Vec<bool> {
    let layer = RateLimitLayer::new(library()).key(by::everyone()).attribute("ip", by::header("x-client"));
    let service = axum::Router::new().route("/", get(|| async { "" })).layer(layer);
    let mut allowed = Vec::new();
    for ip in addresses {
        let request = ::http::Request::get("/").header("x-client", ip).body(Body::empty()).unwrap();
        let status = service.clone().oneshot(request).await.unwrap().status().as_u16();
        assert!([200, 429].contains(&status), "{ip}: {status}");
        allowed.push(status == 200);
    }
    allowed
}

#[tokio::test]
async fn six_ways_in_decide_alike_for_ten_thousand_addresses_in_any_spelling() {
    let addresses = addresses();
    let expected = by_library(&addresses);
    // What an address means, by the standard library alone.
    let mut seen = std::collections::HashMap::new();
    for (ip, allowed) in addresses.iter().zip(&expected) {
        let client = match ip.parse::<IpAddr>().unwrap().to_canonical() {
            IpAddr::V4(address) => u128::from(u32::from(address)),
            IpAddr::V6(address) => u128::from(address) >> 64 << 64,
        };
        let times = seen.entry(client).or_insert(0);
        *times += 1;
        assert_eq!(*allowed, *times <= 2, "{ip}");
    }
    let differing = |other: &[bool]| -> Vec<&String> {
        assert_eq!(other.len(), ASKED);
        addresses
            .iter()
            .zip(expected.iter().zip(other))
            .filter(|(_, (one, other))| one != other)
            .map(|(ip, _)| ip)
            .collect()
    };
    let none: [&String; 0] = [];
    assert_eq!(differing(&by_http(&addresses).await), none, "over HTTP");
    assert_eq!(differing(&by_resp(&addresses).await), none, "over RESP");
    assert_eq!(differing(&by_envoy(&addresses).await), none, "by Envoy");
    assert_eq!(differing(&by_tower(&addresses).await), none, "by the layer");
    let mut log = String::new();
    for ip in &addresses {
        writeln!(log, "{{\"time\": \"2024-02-29T12:00:00Z\", \"ip\": \"{ip}\"}}").unwrap();
    }
    let report = Replay::new(policy()).run([Source::stream("log", std::io::Cursor::new(log))]).unwrap();
    let admitted = expected.iter().filter(|allowed| **allowed).count() as u64;
    assert_eq!((report.admitted, report.refused), (admitted, ASKED as u64 - admitted), "by a replayed log");
}

#[tokio::test]
async fn text_that_is_no_address_is_an_error_on_every_wire() {
    let mut running = server().await;
    let (status, body) =
        http(running.server.http_socket().unwrap(), "POST", "/v1/check", r#"{"attributes":{"ip":"300.1.1.1"}}"#).await;
    assert!(status == 422 && body.contains("300.1.1.1"), "{status} {body}");
    let error = running.client.ask(request("edge", &["ip=300.1.1.1"])).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::InvalidArgument, "{error}");
    let socket = running.server.resp_socket().unwrap();
    let asked = tokio::task::spawn_blocking(move || {
        Connection::open(socket).unwrap().command(&["TIDEGATE.CHECK", "ip", "300.1.1.1"]).unwrap()
    });
    let reply = asked.await.unwrap();
    assert!(matches!(&reply, Reply::Error(text) if text.starts_with("NOTANADDRESS")), "{reply:?}");
    assert!(running.server.drain().await);
}
