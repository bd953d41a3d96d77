//! `/v1/forward-auth`: what proxies are answered, beside what `/v1/check` answers.

use serde_json::{Value, json};
use tidegate::{ManualClock, Micros};
use tidegate_server::{Server, Settings};
use tidegate_testkit::servers::eventually;
use tidegate_testkit::{Action, RECORDED, Random};

use crate::server::client::{Answer, Connection, curl};
use crate::server::running::{Folder, Running};
use crate::server::same_as_library::{policy_of, settings, store};

/// A request of a proxy for a client at this address.
fn forward(connection: &mut Connection, query: &str, lines: &str) -> Answer {
    let request = format!("GET /v1/forward-auth{query} HTTP/1.1\r\nhost: localhost\r\n{lines}\r\n");
    connection.send(request.as_bytes()).unwrap();
    connection.answer().unwrap()
}

const TOLD: [&str; 3] = ["ratelimit", "ratelimit-policy", "retry-after"];

/// On two servers with one clock: every charge of every trace, by either path.
#[tokio::test(flavor = "multi_thread")]
async fn the_decision_is_that_of_a_check() {
    let folder = Folder::new();
    for recorded in RECORDED {
        let trace = recorded.trace().unwrap();
        let policy = Some(folder.write("policy.toml", &policy_of(&trace)).into());
        let clock = ManualClock::default();
        let settings = || Settings { policy: Clone::clone(&policy), ..settings() };
        let checked = Server::start(settings(), store(&clock)).await.unwrap();
        let forwarded = Server::start(settings(), store(&clock)).await.unwrap();
        let addresses = [&checked, &forwarded].map(|server| server.http_socket().unwrap().to_string());
        let compared = tokio::task::spawn_blocking(move || {
            let [mut checks, mut forwards] = addresses.each_ref().map(|address| Connection::open(address));
            for step in trace.steps() {
                clock.set(Micros::new(trace.start().get().saturating_add(step.at.get())));
                let Action::Charge(cost) = step.action else { continue };
                for _ in 0..step.times.get() {
                    // As text that a header can carry to its last blank.
                    let key = format!("<{}>", step.key.escape_debug());
                    let checked = checks.post("/v1/check", &json!({ "key": key, "cost": cost }).to_string()).unwrap();
                    let query = format!("?key=header.x-key&cost={cost}");
                    let forwarded = forward(&mut forwards, &query, &format!("x-key: {key}\r\n"));
                    let name = recorded.name;
                    match checked.status {
                        200 => assert_eq!((forwarded.status, forwarded.body.as_str()), (204, ""), "{name}: {step}"),
                        status => {
                            assert_eq!(forwarded.status, status, "{name}: {step}");
                            assert_eq!(forwarded.json(), checked.json(), "{name}: {step}");
                        }
                    }
                    for field in TOLD {
                        assert_eq!(forwarded.header(field), checked.header(field), "{name}: {step}: {field}");
                    }
                }
            }
        });
        compared.await.unwrap();
        assert!(checked.drain().await && forwarded.drain().await);
    }
}

const POLICY: &str = r#"
[rules.clients]
limit = "fixed-window 2/day"
key = ["ip"]

[rules.orders]
limit = "fixed-window 1/day"
match = { path = "/orders", method = "POST", host = "shop.example" }
key = ["header.x-user"]
missing = "skip"
"#;

const PROXY: &str = "127.0.0.1";

#[test]
fn attributes_are_those_that_the_policy_names_even_after_it_changed() {
    let folder = Folder::new();
    let policy = folder.write("policy.toml", POLICY);
    let server = Running::start(&["--policy", &policy, "--trusted-proxy", PROXY]);
    let mut connection = Connection::open(server.address());
    let order = "x-forwarded-method: POST\r\nx-forwarded-uri: /orders?a\r\nx-forwarded-host: Shop.Example:443\r\n";
    let mut ask = |address: &str, user: &str| {
        let lines = format!("{order}x-forwarded-for: {address}\r\nx-user: {user}\r\nx-plan: pro\r\n");
        let answer = forward(&mut connection, "", &lines);
        (answer.status, if answer.status == 429 { answer.json()["rule"].clone() } else { Value::Null })
    };
    assert_eq!(ask("192.0.2.1", "alice"), (204, Value::Null));
    assert_eq!(ask("192.0.2.2", "alice"), (429, "orders".into()), "whatever her address is");
    assert_eq!(ask("192.0.2.1", "bob"), (204, Value::Null));
    assert_eq!(ask("192.0.2.1", "carol"), (429, "clients".into()), "whatever the user is");
    assert_eq!(ask("::ffff:192.0.2.1", "carol"), (429, "clients".into()));
    assert_eq!([ask("2001:db8::1", "d").0, ask("2001:db8::2", "e").0, ask("2001:db8::3", "f").0], [204, 204, 429]);
    folder.write("policy.toml", "[rules.plans]\nlimit = \"fixed-window 1/day\"\nkey = [\"header.x-plan\"]\n");
    server.hang_up();
    eventually("the plan to be limited", || match ask("192.0.2.9", "g") {
        (429, rule) if rule == "plans" => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

#[test]
fn what_a_proxy_asks_for_wrongly_is_a_problem_in_the_form_that_is_accepted() {
    let folder = Folder::new();
    let server = Running::start(&["--policy", &folder.write("policy.toml", POLICY), "--trusted-proxy", PROXY]);
    let mut connection = Connection::open(server.address());
    let client = "x-forwarded-for: 192.0.2.1\r\n";
    for (query, lines, status, named) in [
        ("?rule=orderz", client, 422, "orderz"),
        ("?rule=clients&cost=3", client, 422, "cost of 3"),
        ("?cost=1&cost=1", client, 400, "cost more than once"),
        ("?keys=ip", client, 400, "\"keys\""),
        ("?deny-status=204", client, 400, "deny-status"),
        ("?key=header.x-user", client, 422, "header.x-user"),
        ("", "", 422, "\"ip\""),
        ("?deny-status=403&rule=orderz", client, 422, "orderz"),
    ] {
        let json = forward(&mut connection, query, lines);
        assert_eq!(json.status, status, "{query}: {json:?}");
        assert!(json.json()["detail"].as_str().unwrap().contains(named), "{json:?}");
        let page = forward(&mut connection, query, &format!("{lines}accept: text/html\r\n"));
        assert_eq!((page.status, page.header("content-type")), (status, Some("text/html; charset=utf-8")));
        assert!(page.body.starts_with("<!doctype html>") && !page.body.contains("\"orderz\""), "{page:?}");
    }
    let [first, second, third] = [(); 3].map(|()| forward(&mut connection, "?deny-status=418", client));
    assert_eq!([first.status, second.status, third.status], [204, 204, 418]);
    assert_eq!(third.header("x-tidegate-status"), Some("429"));
    assert!(third.header("retry-after").is_some() && third.json()["status"] == 429, "{third:?}");
    let plain = forward(&mut connection, "", &format!("{client}accept: text/plain\r\n"));
    assert!(plain.body.starts_with("429 Too Many Requests\nRetry after "), "{plain:?}");
}

#[test]
fn without_an_answer_of_the_store_it_is_503() {
    let server = Running::start(&["--store", "redis://127.0.0.1:1", "--store-deadline-ms", "200"]);
    let answer = curl(&[&server.url("/v1/forward-auth")]);
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
}

#[test]
fn requests_with_bytes_changed_at_random_are_answered_one_way_or_the_other() {
    const REQUESTS: [&str; 3] = [
        "GET /v1/forward-auth?rule=clients&cost=1&key=ip,header.x-user&deny-status=403 HTTP/1.1\r\nhost: localhost\r\n\
         x-forwarded-for: 192.0.2.1, [2001:db8::1]:7\r\nx-user: alice\r\naccept: text/html;q=0.5, */*\r\n\r\n",
        "POST /v1/forward-auth HTTP/1.1\r\nhost: localhost\r\nx-original-url: https://shop.example:443/a?b#c\r\n\
         x-original-method: POST\r\ncontent-length: 4\r\n\r\nbody",
        "DELETE /v1/forward-auth? HTTP/1.1\r\nhost: localhost\r\nx-forwarded-uri: ://?\r\nx-forwarded-host: ,:.\r\n\
         transfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
    ];
    let folder = Folder::new();
    let server = Running::start(&["--policy", &folder.write("policy.toml", POLICY), "--trusted-proxy", PROXY]);
    let mut random = Random::new(7);
    for _ in 0..600 {
        let mut bytes = random.choose(&REQUESTS).as_bytes().to_vec();
        for _ in 0..random.within(1..=4) {
            let place = random.within(0..=bytes.len() as u64 - 1) as usize;
            match random.within(0..=2) {
                0 => bytes[place] = random.number() as u8,
                1 => bytes.insert(place, random.choose(b"?&=%,.:;/[]\r\n\"")),
                _ => drop(bytes.remove(place)),
            }
        }
        // What is left of a body or a head must not be waited for.
        bytes.extend_from_slice(b"\r\n\r\n");
        let mut connection = Connection::open(server.address());
        connection.send(&bytes).unwrap();
        connection.finish();
        let shown = bytes.escape_ascii();
        match connection.answer() {
            Ok(answer) => assert!((200..500).contains(&answer.status), "{shown}: {answer:?}"),
            Err(error) => assert!(error.kind() != std::io::ErrorKind::WouldBlock, "{shown}: {error}"),
        }
    }
    assert_eq!(curl(&[&server.url("/healthz")]).status, 200);
}
