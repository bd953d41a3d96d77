//! A tidegate that is killed and comes back: what `docs/book/src/operate/proxies.md` says of each proxy.

use tidegate_testkit::servers::{Permit, eventually};

use crate::proxies::client::Client;
use crate::proxies::proxy::{Fail, Kind};
use crate::proxies::running::{Tidegate, Upstream};

/// Nothing comes back within a test.
const POLICY: &str = "
[rules.clients]
limit = \"2/day\"
key = [\"ip\"]
";

fn outage(kind: Kind, fail: Fail, status_without: u16) {
    let _permit = Permit::wait(2);
    let (mut tidegate, upstream) = (Tidegate::start(POLICY), Upstream::start());
    let proxy = kind.start(&tidegate, &upstream, fail);
    let ask = |address: &str| Client::open(proxy.port, address).get("/", "").status;
    assert_eq!([ask("127.0.9.1"), ask("127.0.9.1"), ask("127.0.9.1")], [200, 200, 429]);
    assert_eq!(ask("127.0.9.2"), 200, "another client has a limit of its own");
    tidegate.kill();
    for _ in 0..3 {
        assert_eq!(ask("127.0.9.1"), status_without, "{kind:?} {fail:?}");
    }
    tidegate.restart();
    // The proxy may find out late, and pass requests until then.
    eventually("the limit to apply again", || match ask("127.0.9.1") {
        429 => Ok(()),
        status => Err(status),
    });
    assert_eq!(ask("127.0.9.3"), 200);
}

#[test]
fn nginx_answers_500_without_tidegate() {
    outage(Kind::Nginx, Fail::Closed, 500);
}

#[test]
fn nginx_passes_requests_without_tidegate_if_it_is_told_so() {
    outage(Kind::Nginx, Fail::Open, 200);
}

#[test]
fn haproxy_answers_503_without_tidegate() {
    outage(Kind::HaProxy, Fail::Closed, 503);
}

#[test]
fn haproxy_passes_requests_without_tidegate_if_it_is_told_so() {
    outage(Kind::HaProxy, Fail::Open, 200);
}

#[test]
fn traefik_answers_500_without_tidegate() {
    outage(Kind::Traefik, Fail::Closed, 500);
}

#[test]
fn caddy_answers_502_without_tidegate() {
    outage(Kind::Caddy, Fail::Closed, 502);
}
