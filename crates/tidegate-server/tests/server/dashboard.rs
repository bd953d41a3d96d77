//! The dashboard: its files, what it is fed with, and a browser that uses it.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tidegate_testkit::servers::{Permit, eventually};

use crate::server::client::{Answer, curl, post};
use crate::server::running::{Folder, Running, ask, workspace};

fn post_json(server: &Running, path: &str, body: &Value) -> Answer {
    curl(&["-H", "content-type: application/json", "-d", &body.to_string(), &server.url(path)])
}

fn check(server: &Running, request: &Value) -> u16 {
    post(&server.url("/v1/check"), &request.to_string()).status
}

#[test]
fn a_browser_finds_what_it_needs_and_asks_no_other_server() {
    let playwright = workspace().join("target/programs/playwright");
    let playwright = std::env::var_os("TIDEGATE_PLAYWRIGHT").map_or(playwright, Into::into);
    assert!(playwright.exists(), "playwright-core is missing: run `cargo xtask install`");
    let chromium = std::env::var_os("CHROMIUM").unwrap_or_else(|| "/usr/bin/chromium".into());
    assert!(Path::new(&chromium).exists(), "chromium is missing: run `cargo xtask install`");
    let _permit = Permit::wait(2);
    let (guarded, open) =
        (Running::start(&["--admin-token", "s3cret-token", "--anonymous", "check"]), Running::start(&[]));
    let folder = Folder::new();
    let script = workspace().join("crates/tidegate-server/tests/server/dashboard.mjs");
    // The build of the page has installed it, with what the page itself needs.
    let axe = Path::new(env!("OUT_DIR")).join("web/node_modules/axe-core/axe.min.js");
    let output = Command::new("node")
        .arg(script)
        .args([&guarded.url("/"), "s3cret-token", &open.url("/"), env!("CARGO_BIN_EXE_tidegate"), &folder.path("")])
        .env("PLAYWRIGHT", playwright)
        .env("CHROMIUM", chromium)
        .env("AXE", axe)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn files_are_sent_once_and_small() {
    let server = Running::start(&[]);
    let page = curl(&[&server.url("/")]);
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert_eq!(page.header("cache-control"), Some("no-cache"));
    assert!(page.header("content-security-policy").unwrap().starts_with("default-src 'none'; "));
    let etag = page.header("etag").unwrap();
    let known = curl(&["-H", &format!("if-none-match: \"other\", {etag}"), &server.url("/")]);
    assert_eq!((known.status, known.body.as_str()), (304, ""));
    let head = curl(&["-I", &server.url("/")]);
    assert_eq!(head.header("content-length"), Some(page.body.len().to_string().as_str()));
    let (_, script) = page.body.split_once("src=\"/assets/").expect("the page has a script: is npm there?");
    let script = server.url(&format!("/assets/{}", script.split_once('"').unwrap().0));
    let whole = curl(&[&script]);
    assert_eq!(whole.header("cache-control"), Some("public, max-age=31536000, immutable"));
    assert_eq!(
        (whole.header("content-type"), whole.header("content-encoding")),
        (Some("text/javascript; charset=utf-8"), None)
    );
    let small = curl(&["-H", "accept-encoding: br, gzip;q=0.5", "--compressed", &script]);
    assert_eq!((small.header("content-encoding"), &small.body), (Some("gzip"), &whole.body));
    assert_eq!(curl(&["-H", "accept-encoding: gzip;q=0", &script]).header("content-encoding"), None);
    assert_eq!(curl(&["-X", "POST", &server.url("/")]).status, 405);
    assert_eq!(curl(&[&server.url("/assets/none.js")]).status, 404);
    let closed = Running::start(&["--no-admin"]);
    assert_eq!((curl(&[&closed.url("/")]).status, curl(&[&closed.url("/admin/v1/live")]).status), (200, 404));
}

/// The editor of policies completes from it.
#[test]
fn the_schema_of_policies_is_what_the_command_prints() {
    let server = Running::start(&[]);
    let schema = curl(&[&server.url("/admin/v1/policy/schema")]);
    assert_eq!((schema.status, schema.header("content-type")), (200, Some("application/json")));
    let printed = Command::new(env!("CARGO_BIN_EXE_tidegate")).arg("schema").output().unwrap();
    assert_eq!(schema.body.trim(), String::from_utf8_lossy(&printed.stdout).trim());
}

#[test]
fn the_limits_of_a_rule_are_told_with_its_overrides_and_tiers() {
    let folder = Folder::new();
    let many: String = (0..120).map(|number| format!("u{number} = \"9/h\"\n")).collect();
    let policy = "[rules.orders]\nlimit = \"1/h\"\nkey = [\"user\"]\ntiers.plan.pro = \"unlimited\"\n\
                  overrides.user = { \"acme-*\" = \"5/h\" }\n[rules.many]\nlimit = \"blocked\"\nkey = [\"user\"]\n\
                  [rules.many.overrides.user]\n";
    let server = Running::start(&["--policy", &folder.write("policy.toml", &format!("{policy}{many}"))]);
    let limits = curl(&[&server.url("/admin/v1/policy/limits")]).json();
    let exception =
        |attribute: &str, value: &str, limit: &str| json!({"attribute": attribute, "value": value, "limit": limit});
    let exceptions = [exception("user", "acme-*", "5/h"), exception("plan", "pro", "unlimited")];
    let orders = json!({"rule": "orders", "limit": "1/h", "exceptions_in_all": 2, "exceptions": exceptions});
    assert_eq!(limits[0], orders);
    assert_eq!((&limits[1]["limit"], &limits[1]["exceptions_in_all"]), (&"blocked".into(), &120.into()));
    assert_eq!(limits[1]["exceptions"].as_array().unwrap().len(), 100);
}

/// Whatever a key is made of, a refusal brings the request that comes to the
/// same state again.
#[test]
fn a_refusal_is_seen_at_once_and_can_be_explained_and_reset() {
    let folder = Folder::new();
    let policy = "
        [rules.pairs]\nlimit = \"1/h\"\nmatch = { kind = \"pair\" }\nkey = [\"user\", \"ip\"]\nmissing = \"shared\"
        [rules.networks]\nlimit = \"1/h\"\nmatch = { kind = \"network\" }\nkey = [{ attribute = \"ip\", ipv6 = 64 }]
        [rules.all]\nlimit = \"1/h\"\nmatch = { kind = \"all\" }\nkey = []
        [rules.plain]\nlimit = \"1/h\"\nmatch = { kind = \"plain\" }
    ";
    let server = Running::start(&["--policy", &folder.write("policy.toml", policy)]);
    let requests = [
        json!({"attributes": {"kind": "pair", "user": "a:b", "ip": "192.0.2.1"}}),
        json!({"attributes": {"kind": "pair", "user": "alone"}}),
        json!({"attributes": {"kind": "network", "ip": "2001:db8::17"}}),
        json!({"attributes": {"kind": "all"}}),
        json!({"key": "plain \u{2603}", "attributes": {"kind": "plain"}}),
        json!({"key": "brought", "limit": "leaky 1/h"}),
    ];
    for request in &requests {
        assert_eq!((check(&server, request), check(&server, request)), (200, 429), "{request}");
        let picture = curl(&[&server.url("/admin/v1/live")]).json();
        let refusal = &picture["recent_refusals"][0];
        assert_eq!((&refusal["times"], &refusal["cost"], &refusal["limit"]), (&1.into(), &1.into(), &1.into()));
        assert!(refusal["retry_after_us"].as_u64().unwrap() > 3_500_000_000, "{refusal}");
        let again = &refusal["request"];
        let explained = post(&server.url("/v1/explain"), &again.to_string()).json();
        assert_eq!(explained["decision"]["allowed"], false, "{request}: {explained}");
        assert_eq!(explained["decision"]["rule"], refusal["rule"]);
        assert_eq!(post_json(&server, "/admin/v1/keys/reset", again).json()["remaining"], 1);
        assert_eq!(check(&server, request), 200, "{request}");
    }
    let picture = curl(&[&server.url("/admin/v1/live")]).json();
    assert_eq!(picture["recent_refusals"].as_array().unwrap().len(), requests.len());
    assert_eq!((&picture["rules"][0]["rule"], &picture["rules"][0]["limit"]), (&"pairs".into(), &"1/h".into()));
    assert_eq!((&picture["rules"][0]["allowed"], &picture["rules"][0]["refused"]), (&4.into(), &2.into()));
    assert_eq!((&picture["store"]["kind"], &picture["policy"]["generation"]), (&"memory".into(), &1.into()));
    let counted: u64 =
        picture["latency"][0]["buckets"].as_array().unwrap().iter().map(|it| it["count"].as_u64().unwrap()).sum();
    assert!(counted >= 18, "{picture}");
}

/// A tier or a deny list goes by attributes that are not in the key.
#[test]
fn a_refusal_by_a_tier_an_override_or_a_deny_list_can_be_explained_and_reset() {
    let folder = Folder::new();
    let policy = "[rules.plans]\nlimit = \"2/h\"\nkey = [\"user\"]\ntiers.plan.pro = \"2/day\"\n\
                  overrides.user = { alice = \"leaky 2/h\" }\n[lists]\ndeny = [{ user = \"mallory\" }]\n";
    let server = Running::start(&["--policy", &folder.write("policy.toml", policy)]);
    for (user, plan, admitted) in [("alice", "free", true), ("bob", "pro", true), ("mallory", "pro", false)] {
        let attributes = json!({"user": user, "plan": plan});
        let request = json!({"attributes": attributes, "cost": 2});
        if admitted {
            assert_eq!(check(&server, &request), 200, "{user}");
        }
        assert_eq!(check(&server, &request), if admitted { 429 } else { 403 }, "{user}");
        let again = curl(&[&server.url("/admin/v1/live")]).json()["recent_refusals"][0]["request"].clone();
        assert_eq!((&again["attributes"], &again["cost"]), (&attributes, &2.into()), "{user}");
        assert_eq!(again["rule"], if admitted { "plans".into() } else { Value::Null }, "{user}");
        let explained = post_json(&server, "/admin/v1/keys/inspect", &again).json();
        assert_eq!(explained["decision"]["allowed"], false, "{user}: {explained}");
        assert_eq!(post_json(&server, "/admin/v1/keys/reset", &again).status, 200, "{user}");
        if admitted {
            assert_eq!(check(&server, &request), 200, "{user}");
        }
    }
}

#[test]
fn the_history_is_there_as_json_and_csv() {
    let folder = Folder::new();
    let policy = "[rules.orders]\nlimit = \"2/h\"\nkey = [\"user\"]\n";
    let server = Running::start(&["--policy", &folder.write("policy.toml", policy)]);
    let request = json!({"attributes": {"user": "alice"}});
    for expected in [200, 200, 429] {
        assert_eq!(check(&server, &request), expected);
    }
    let sum = |counts: &Value| counts.as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum::<u64>();
    eventually("the history to have what was decided", || {
        let history = curl(&[&server.url("/admin/v1/history?range=5m&rule=orders")]).json();
        let orders = &history["rules"][0];
        let seen = orders.is_object().then(|| (sum(&orders["allowed"]), sum(&orders["refused"])));
        if seen == Some((2, 1)) { Ok(()) } else { Err(history) }
    });
    let history = curl(&[&server.url("/admin/v1/history")]).json();
    for latency in [&history["latency"], &history["rules"][0]["latency"]] {
        let steps = ["p50_us", "p99_us"].map(|name| latency[name].as_array().unwrap());
        let told = steps.map(|steps| steps.iter().filter_map(Value::as_u64).max());
        assert!(told[0] > Some(0) && told[0] <= told[1], "{latency}");
        assert_eq!(steps.map(Vec::len), [900, 900]);
    }
    assert_eq!(
        (&history["step_us"], history["rules"][0]["allowed"].as_array().unwrap().len()),
        (&1_000_000.into(), 900)
    );
    let csv = curl(&[&server.url("/admin/v1/history?range=15m&format=csv")]);
    assert!(csv.body.starts_with("time,rule,allowed,refused,shadow_allowed,shadow_refused,p50_us,p99_us\r\n"));
    assert_eq!(csv.body.lines().count(), 901);
    for query in ["range=2m", "range=5m&range=5m", "rules=orders", "format=xml"] {
        let refused = curl(&[&server.url(&format!("/admin/v1/history?{query}"))]);
        assert_eq!(refused.status, 400, "{query}");
        assert!(refused.json()["detail"].as_str().unwrap().contains("range=5m, 15m, 1h or 24h"), "{query}");
    }
}

#[test]
fn the_latency_of_a_rule_is_that_of_its_latest_decisions() {
    let folder = Folder::new();
    let policy = "[rules.orders]\nlimit = \"2/h\"\nkey = [\"user\"]\n\
                  [rules.idle]\nlimit = \"2/h\"\nmatch = { user = \"bob\" }\n";
    let server = Running::start(&["--policy", &folder.write("policy.toml", policy)]);
    eventually("the latency of the rule", || {
        check(&server, &json!({"attributes": {"user": "alice"}}));
        let rules = curl(&[&server.url("/admin/v1/live")]).json()["rules"].clone();
        assert_eq!(rules[1]["latency"], json!({"p50_us": null, "p99_us": null}));
        if rules[0]["latency"]["p99_us"].as_u64() > Some(0) { Ok(()) } else { Err(rules) }
    });
}

/// If each had pictures of its own, no two streams would have the same.
#[test]
fn a_hundred_open_pages_of_one_address_share_their_pictures() {
    const PAGES: usize = 100;
    const LINES: usize = 3;
    let server = Running::start(&[]);
    let open = || {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(b"GET /admin/v1/live/stream HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        BufReader::new(stream)
    };
    let pages: Vec<BufReader<TcpStream>> = (0..PAGES).map(|_| open()).collect();
    let pictures = pages.into_iter().flat_map(|page| {
        let lines = page.lines().map(Result::unwrap).inspect(|line| assert!(!line.contains(" 503 "), "{line}"));
        lines.filter(|line| line.starts_with('{')).take(LINES).collect::<Vec<String>>()
    });
    let pictures: Vec<String> = pictures.collect();
    assert_eq!(pictures.len(), PAGES * LINES);
    let taken: HashSet<&String> = pictures.iter().collect();
    assert!(taken.len() < PAGES, "{} pictures were taken for {PAGES} pages", taken.len());
}

/// What it would have done is what a candidate is there for.
#[test]
fn a_candidate_is_seen_beside_its_rule() {
    let folder = Folder::new();
    let policy = "[rules.orders]\nlimit = \"5/h\"\nkey = [\"user\"]\ncandidate = \"sliding-log 1/h\"\n\
                  [rules.rest]\nlimit = \"9/s\"\n";
    let path = folder.write("policy.toml", policy);
    let server = Running::start(&["--policy", &path]);
    let rules = || curl(&[&server.url("/admin/v1/live")]).json()["rules"].clone();
    let names: Vec<Value> = rules().as_array().unwrap().iter().map(|rule| rule["rule"].clone()).collect();
    assert_eq!(names, ["orders", "orders (candidate)", "rest"]);
    for _ in 0..2 {
        assert_eq!(check(&server, &json!({"attributes": {"user": "alice"}})), 200);
    }
    let candidate = &rules()[1];
    assert_eq!((&candidate["limit"], &candidate["key"]), (&"sliding-log 1/h".into(), &json!(["user"])));
    assert_eq!((&candidate["shadow"], &candidate["shadow_refused"]), (&true.into(), &1.into()), "{candidate}");
    // One that is gone still counts for what it was.
    folder.write("policy.toml", "[rules.rest]\nlimit = \"1/s\"\n");
    server.hang_up();
    eventually("the policy to be read again", || {
        let rules = rules();
        if rules[0]["rule"] == "rest" { Ok(()) } else { Err(rules) }
    });
    let gone = rules().as_array().unwrap().iter().find(|rule| rule["rule"] == "orders (candidate)").cloned().unwrap();
    assert_eq!((&gone["limit"], &gone["shadow"]), (&Value::Null, &true.into()), "{gone}");
}

/// As people write them, and no longer than they read.
#[test]
fn keys_are_shown_in_words() {
    let folder = Folder::new();
    let policy = "[rules.pairs]\nlimit = \"1/h\"\nmatch = { kind = \"pair\" }\nkey = [\"user\", \"ip\"]\nmissing = \"shared\"\n\
                  [rules.all]\nlimit = \"1/h\"\nmatch = { kind = \"all\" }\nkey = []\n[rules.rest]\nlimit = \"1/h\"\n\
                  missing = \"skip\"\n";
    let server = Running::start(&["--policy", &folder.write("policy.toml", policy)]);
    let long = "\"".repeat(4_000);
    for (request, shown) in [
        (json!({"attributes": {"kind": "pair", "user": "alone"}}), "(no ip) / alone".to_owned()),
        (json!({"attributes": {"kind": "all"}}), "(no key)".to_owned()),
        (json!({"key": "m\u{fc}ller \u{2603} \u{202e}\u{1b}"}), "m\u{fc}ller \u{2603} \\u{202e}\\u{1b}".to_owned()),
        (json!({"key": long}), "\u{2026}".to_owned()),
    ] {
        assert_eq!((check(&server, &request), check(&server, &request)), (200, 429), "{request}");
        let picture = curl(&[&server.url("/admin/v1/live")]).json();
        let seen = picture["recent_refusals"][0]["key"].as_str().unwrap().to_owned();
        assert!(seen == shown || (shown.ends_with('\u{2026}') && seen.chars().count() == 200), "{seen}");
        assert!(picture["top_refused"].as_array().unwrap().iter().any(|top| top["key"] == *seen), "{seen}");
    }
    // One that is longer than a request may be cannot be asked about.
    let text = "x".repeat(4_096);
    let policy = folder.write("one.toml", "[rules.one]\nlimit = \"1/h\"\n");
    let resp =
        Running::with(|command| command.args(["--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--policy", &policy]));
    let (_, port) = resp.address_of("resp").rsplit_once(':').unwrap();
    for _ in 0..2 {
        let arguments = ["-p", port, "TIDEGATE.CHECK", "KEY", &text, "path", "/orders"];
        let output = Command::new("redis-cli").args(arguments).output();
        assert!(output.expect("redis-cli is missing: run `cargo xtask install`").status.success());
    }
    let picture = curl(&[&resp.url("/admin/v1/live")]).json();
    assert_eq!(picture["recent_refusals"][0]["times"], 1, "{picture}");
    assert_eq!(picture["recent_refusals"][0]["request"], Value::Null);
}

#[test]
fn a_policy_whose_included_file_changed_is_another_one() {
    let folder = Folder::new();
    let write = |limit: &str| folder.write("part.toml", &format!("[rules.all]\nlimit = \"{limit}\"\n"));
    write("1/h");
    let server = Running::start(&["--policy", &folder.write("policy.toml", "include = [\"part.toml\"]\n")]);
    let live = || curl(&[&server.url("/admin/v1/live")]).json();
    assert_eq!(live()["policy"]["generation"], 1);
    write("2/h");
    server.hang_up();
    eventually("the policy to be read again", || {
        let rules = live()["rules"].clone();
        if rules[0]["limit"] == "2/h" { Ok(()) } else { Err(rules) }
    });
    assert_eq!(live()["policy"]["generation"], 2);
}

#[test]
fn pictures_follow_each_other_until_the_server_leaves() {
    let mut server = Running::start(&[]);
    let uptime = |picture: &Value| picture["uptime_us"].as_u64().unwrap();
    let before = uptime(&curl(&[&server.url("/admin/v1/live")]).json());
    let url = server.url("/admin/v1/live/stream");
    let mut watcher = Command::new("curl").args(["-sSN", &url]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next()?.unwrap()).ok();
    let (first, second) = (next().unwrap(), next().unwrap());
    // The first may be late, and then the second is sooner after it.
    assert!(uptime(&second) - before >= 1_000_000, "{second}");
    assert!(uptime(&second) - uptime(&first) < 30_000_000, "{first}{second}");
    server.terminate();
    while next().is_some() {}
    assert!(watcher.wait().unwrap().success(), "the stream ends as it should");
    assert!(server.wait().success(), "open dashboards do not delay the shutdown");
}

#[test]
fn the_playground_decides_by_the_real_kernels_and_has_bounds() {
    let server = Running::start(&[]);
    let play = |request: &Value| post_json(&server, "/admin/v1/playground", request);
    let traffic = "bursts 20 every 3s within 400ms from 800ms";
    let answer = play(&json!({"limit": "10/s", "traffic": traffic, "duration": "3s"}));
    let lines: Vec<Value> = answer.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["begin"]["algorithms"][2], json!({"name": "fixed window", "limit": "fixed 10/s"}));
    let outcomes = lines.last().unwrap()["end"]["outcomes"].as_array().unwrap();
    let worst: Vec<u64> = outcomes.iter().map(|outcome| outcome["worst_window"].as_u64().unwrap()).collect();
    // As the library of the simulation has it; the fixed window lets twice its limit pass.
    assert_eq!(worst, [13, 13, 20, 10, 12]);
    for (number, outcome) in outcomes.iter().enumerate() {
        let admitted: u64 = lines.iter().filter_map(|line| line["slice"]["admitted"][number].as_u64()).sum();
        assert_eq!(outcome["admitted"], admitted);
    }
    assert_eq!((&lines[0]["begin"]["floors"], lines[1]["slice"].get("classes")), (&json!(["0"]), None));
    let endless = play(&json!({"limit": "10/s", "traffic": "1000000/s", "duration": "7d"}));
    let end: Value = serde_json::from_str(endless.body.lines().last().unwrap()).unwrap();
    assert_eq!((&end["end"]["requests"], &end["end"]["cut_short"]), (&1_000_000.into(), &true.into()));
    let floors: Vec<String> = (1..=9).map(|floor| format!("1/s floor {floor}%")).collect();
    for (wrong, words) in [
        (json!({"limit": "10/fortnight", "traffic": "1/s", "duration": "1s"}), "fortnight"),
        (json!({"limit": "10/s", "traffic": "a lot", "duration": "1s"}), "a lot"),
        (json!({"limit": "10/s", "traffic": "1/s", "duration": "8d"}), "7d"),
        (json!({"limit": "10/s", "traffic": "1/s cost 11", "duration": "1s"}), "11"),
        (json!({"limit": "10/s", "traffic": "x".repeat(2_000), "duration": "1s"}), "1000"),
        (json!({"limit": "100/s", "traffic": floors.join(" + "), "duration": "1s"}), "at most 8 different floors"),
    ] {
        let answer = play(&wrong);
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(answer.json()["detail"].as_str().unwrap().contains(words), "{answer:?}");
    }
    assert_eq!(curl(&["-d", "{}", &server.url("/admin/v1/playground")]).status, 415);
}

/// The same as the command prints it.
#[test]
fn the_playground_takes_all_traffic_that_simulate_takes() {
    let server = Running::start(&[]);
    for (limit, traffic, algorithms, classes) in [
        ("10/s burst 20", "poisson 12/s floor 50% + poisson 12/s; bob: 3/s floor 20%", 5, 3),
        ("100/s burst 900", "poisson 5/s cost 40 actual 10..90 lasting 1s..5s", 5, 1),
        ("in-flight 3 for 60s", "poisson 5/s lasting 1s..5s; 5 clients: 1/s lasting 9s", 1, 1),
    ] {
        let played = json!({"limit": limit, "traffic": traffic, "duration": "20s", "seed": 7});
        let answer = post_json(&server, "/admin/v1/playground", &played);
        assert_eq!(answer.status, 200, "{answer:?}");
        let lines: Vec<Value> = answer.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let (begin, end) = (&lines[0]["begin"], &lines.last().unwrap()["end"]);
        let length = |list: &Value| list.as_array().unwrap().len();
        assert_eq!((length(&begin["algorithms"]), length(&begin["floors"])), (algorithms, classes), "{begin}");
        let words = ["simulate", "--json", "--seed", "7", "--for", "20s", "--limit", limit, "--traffic", traffic];
        let simulated: Value = serde_json::from_slice(&ask(&words).stdout).unwrap();
        let expected = simulated["limits"].as_array().unwrap();
        assert_eq!(length(&end["outcomes"]), expected.len());
        for (number, (outcome, expected)) in end["outcomes"].as_array().unwrap().iter().zip(expected).enumerate() {
            for (name, same) in [
                ("floor", &expected["floor"]),
                ("admitted", &expected["passed"]["units"]),
                ("refused", &expected["refused"]["units"]),
                ("most_in_flight", &expected["most_in_flight"]),
                ("longest_debt_us", &expected["longest_debt_us"]),
            ] {
                assert_eq!(outcome.get(name).unwrap_or(&Value::Null), same, "{limit}, {traffic}: {name} of {number}");
            }
            let (algorithm, class) = (number / classes, number % classes);
            let slices = lines.iter().map(|line| &line["slice"]);
            let admitted = slices.filter_map(|slice| match slice.get("classes") {
                Some(by_class) => by_class[class]["admitted"][algorithm].as_u64(),
                None => slice["admitted"][algorithm].as_u64(),
            });
            assert_eq!(outcome["admitted"].as_u64(), Some(admitted.sum()), "{limit}, {traffic}: slices of {number}");
        }
    }
}
