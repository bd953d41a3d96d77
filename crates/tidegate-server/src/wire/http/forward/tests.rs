//! From a head, its peer and the names that are asked for to attributes.

use super::head::{Head, Value};
use crate::ask::attributes::Attribute;
use crate::run::peer::Peer;
use crate::wire::http::problem::Problem;
use tidegate_tower::ClientIp;

const PROXY: &str = "10.0.0.9:4711";
const STRANGER: &str = "203.0.113.5:4711";

fn proxies() -> ClientIp {
    ClientIp::behind_any_of(["10.0.0.0/8", "fd00::/8"].map(|network| network.parse().unwrap()))
}

fn read(peer: &str, attribute: &str, fields: &[(&str, &str)]) -> Result<Option<String>, Problem> {
    let fields = fields.iter().map(|(name, value)| httparse::Header { name, value: value.as_bytes() }).collect();
    let peer = Peer::Tcp(peer.parse().unwrap());
    let head = Head {
        peer,
        is_tls: true,
        method: "GET",
        path: "/v1/forward-auth",
        query: "",
        host: Some(b"Limits.Example:7400"),
        fields,
    };
    let value = head.value(&Attribute::named(attribute).unwrap(), &proxies())?;
    Ok(value.map(|value| match value {
        Value::Address(address) => address.to_string(),
        Value::Text(text) => String::from_utf8(text.into_owned()).unwrap(),
    }))
}

/// What attributes a head has; `-` for none, `!` where its headers disagree.
fn value(peer: &str, attribute: &str, fields: &[(&str, &str)]) -> String {
    match read(peer, attribute, fields) {
        Ok(value) => value.unwrap_or_else(|| "-".into()),
        Err(Problem::Ambiguous { attribute: named }) if named == attribute => "!".into(),
        Err(other) => panic!("{other}"),
    }
}

const ALL: [(&str, &str); 6] = [
    ("X-Forwarded-For", "192.0.2.1"),
    ("X-Forwarded-Method", "POST"),
    ("X-Forwarded-Proto", "http"),
    ("X-Forwarded-Host", "Shop.Example:8443"),
    ("X-Forwarded-Uri", "/orders/7?cost=0&path=/free#x"),
    ("X-User", "alice"),
];

#[test]
fn a_trusted_proxy_says_what_its_client_asked_for_and_no_other_peer_does() {
    for (attribute, by_proxy, by_stranger) in [
        ("ip", "192.0.2.1", "203.0.113.5"),
        ("method", "POST", "GET"),
        ("scheme", "http", "https"),
        ("host", "shop.example", "limits.example"),
        ("path", "/orders/7", "/v1/forward-auth"),
        ("header.x-user", "alice", "alice"),
        ("header.X-USER", "alice", "alice"),
        ("header.x-plan", "-", "-"),
    ] {
        assert_eq!(value(PROXY, attribute, &ALL), by_proxy, "{attribute}");
        assert_eq!(value("[::ffff:10.1.2.3]:9", attribute, &ALL), by_proxy, "{attribute}");
        assert_eq!(value("[fd00::7]:9", attribute, &ALL), by_proxy, "{attribute}");
        assert_eq!(value(STRANGER, attribute, &ALL), by_stranger, "{attribute}");
    }
}

#[test]
fn what_a_trusted_proxy_does_not_say_is_missing() {
    for attribute in ["ip", "method", "scheme", "host", "path"] {
        assert_eq!(value(PROXY, attribute, &[]), "-", "{attribute}");
        let empty = ALL.map(|(name, _)| (name, ""));
        assert_eq!(value(PROXY, attribute, &empty), "-", "{attribute}");
    }
}

#[test]
fn the_headers_of_nginx_say_the_same() {
    let url = ("X-Original-URL", "https://SHOP.example:443/orders/7?x=://y");
    for (attribute, expected) in
        [("scheme", "https"), ("host", "shop.example"), ("path", "/orders/7"), ("method", "PUT")]
    {
        assert_eq!(value(PROXY, attribute, &[url, ("X-Original-Method", "PUT")]), expected);
    }
    assert_eq!(value(PROXY, "path", &[("X-Original-URI", "/a?b")]), "/a");
    for (uri, path) in [
        ("https://shop.example", "/"),
        ("https://shop.example?x", "/"),
        ("*", "*"),
        ("//evil.example/a", "//evil.example/a"),
        ("/a://b/c", "/a://b/c"),
        ("?x", "-"),
    ] {
        assert_eq!(value(PROXY, "path", &[("x-forwarded-uri", uri)]), path, "{uri}");
    }
}

#[test]
fn a_header_that_a_client_adds_under_any_name_changes_nothing_or_is_an_error() {
    for (attribute, added) in [
        ("method", ("X-Original-Method", "GET")),
        ("method", ("x-forwarded-method", "GET")),
        ("path", ("X-Original-URI", "/free")),
        ("path", ("X-Original-URL", "http://shop.example/free")),
        ("path", ("X-Forwarded-Uri", "/free")),
        ("host", ("X-Original-URL", "http://free.example/orders/7")),
        ("host", ("X-Forwarded-Host", "free.example")),
        ("scheme", ("X-Original-URL", "https://shop.example/orders/7")),
        ("scheme", ("X-Forwarded-Proto", "https")),
        ("header.x-user", ("X-User", "bob")),
    ] {
        for at in [0, ALL.len()] {
            let mut fields = ALL.to_vec();
            fields.insert(at, added);
            assert_eq!(value(PROXY, attribute, &fields), "!", "{added:?}");
        }
    }
    // The same again is no lie.
    assert_eq!(value(PROXY, "path", &[ALL[4], ALL[4], ("X-Original-URI", "/orders/7")]), "/orders/7");
    assert_eq!(value(PROXY, "host", &[("x-forwarded-host", "a.example, shop.EXAMPLE.")]), "shop.example");
}

#[test]
fn addresses_are_read_from_the_right_over_all_lines_as_by_the_layer() {
    for (lines, address) in [
        (&["6.6.6.6, 192.0.2.1"][..], "192.0.2.1"),
        (&["6.6.6.6", "192.0.2.1"], "192.0.2.1"),
        (&["6.6.6.6", "192.0.2.1, 10.0.0.7", "fd00::1"], "192.0.2.1"),
        (&["::ffff:192.0.2.1"], "192.0.2.1"),
        (&["[2001:DB8::1]:443"], "2001:db8::1"),
        (&["192.0.2.1, unknown"], "-"),
        (&["10.0.0.7"], "10.0.0.7"),
    ] {
        let fields: Vec<(&str, &str)> = lines.iter().map(|line| ("x-forwarded-for", *line)).collect();
        assert_eq!(value(PROXY, "ip", &fields), address, "{lines:?}");
        assert_eq!(value(STRANGER, "ip", &fields), "203.0.113.5", "{lines:?}");
    }
}

#[test]
fn a_value_is_as_long_as_that_of_any_attribute_may_be() {
    let long = "x".repeat(4097);
    assert!(read(PROXY, "header.x-user", &[("x-user", &long[1..])]).is_ok());
    let error = read(PROXY, "header.x-user", &[("x-user", &long)]).unwrap_err().to_string();
    assert!(error.contains("4097 bytes"), "{error}");
}
