//! What the client of a proxy is told.

use tidegate_testkit::servers::Permit;

use crate::proxies::client::{Client, Response};
use crate::proxies::proxy::{Fail, Kind};
use crate::proxies::running::{Tidegate, Upstream};

const POLICY: &str = "
[rules.clients]
limit = \"fixed-window 1/day\"
key = [\"ip\"]

[lists]
deny = [{ ip = \"127.0.9.66\" }]
";

const PAGE: &str = "accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n";

/// The answers to an admitted request, to one that is refused, the same from a browser, and one that is denied.
fn answers(kind: Kind) -> [Response; 4] {
    let _permit = Permit::wait(2);
    let (tidegate, upstream) = (Tidegate::start(POLICY), Upstream::start());
    let proxy = kind.start(&tidegate, &upstream, Fail::Closed);
    let ask = |address: &str, lines: &str| Client::open(proxy.port, address).get("/", lines);
    [ask("127.0.9.1", ""), ask("127.0.9.1", ""), ask("127.0.9.1", PAGE), ask("127.0.9.66", "")]
}

fn is_told(answer: &Response, remaining: u64) {
    assert_eq!(answer.headers["ratelimit-policy"], "\"clients\";q=1;w=86400", "{answer:?}");
    assert!(answer.headers["ratelimit"].starts_with(&format!("\"clients\";r={remaining};t=")), "{answer:?}");
}

fn is_refused(answer: &Response, content_type: &str) {
    assert_eq!((answer.status, answer.headers["content-type"].as_str()), (429, content_type), "{answer:?}");
    assert!((1..=86_400).contains(&answer.headers["retry-after"].parse::<u32>().unwrap()), "{answer:?}");
    is_told(answer, 0);
}

const JSON: &str = "application/problem+json";
const HTML: &str = "text/html; charset=utf-8";

#[test]
fn nginx_tells_admitted_and_refused_clients_of_their_limit() {
    let [admitted, refused, page, denied] = answers(Kind::Nginx);
    assert_eq!(admitted.status, 200);
    is_told(&admitted, 0);
    // nginx throws the body of the answer away, and its own takes the place.
    is_refused(&refused, JSON);
    is_refused(&page, JSON);
    assert_eq!(denied.status, 403);
    assert!(!denied.headers.contains_key("retry-after"), "{denied:?}");
}

#[test]
fn haproxy_tells_admitted_and_refused_clients_of_their_limit() {
    let [admitted, refused, page, denied] = answers(Kind::HaProxy);
    assert_eq!(admitted.status, 200);
    is_told(&admitted, 0);
    is_refused(&refused, JSON);
    assert!(refused.body.contains("\"violated-policies\":[\"clients\"]"), "{refused:?}");
    is_refused(&page, HTML);
    assert_eq!(denied.status, 403);
}

#[test]
fn traefik_and_caddy_tell_refused_clients_of_their_limit() {
    for kind in [Kind::Traefik, Kind::Caddy] {
        let [admitted, refused, page, denied] = answers(kind);
        assert_eq!(admitted.status, 200);
        assert!(!admitted.headers.contains_key("ratelimit"), "the guide says that it is not told: {admitted:?}");
        is_refused(&refused, JSON);
        assert!(refused.body.contains("\"violated-policies\":[\"clients\"]"), "{refused:?}");
        is_refused(&page, HTML);
        assert!(page.body.contains("<h1>429 Too Many Requests</h1>"), "{page:?}");
        assert_eq!(denied.status, 403);
    }
}
