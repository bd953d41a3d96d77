//! Attacks on the processor and on the tables: requests that cost far more than others,
//! and keys, ids and names that crowd out honest ones.

use std::fmt::Write as _;
use std::io::{BufReader, Write};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tidegate_testkit::servers::Connection;

use super::target::read_answer;
use super::wire::{self, ATTACKER};
use super::{Attack, BOUNDS, Bounds, POLICY, SERVER, Server, Target};
use crate::findings::Findings;

const LOG: &str = "[rules.everyone]\nlimit = \"1000000/s\"\n[rules.logged]\nmatch = { path = \"/logged\" }\nlimit = \"sliding-log 100000/day\"\n";

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "refused-by-a-long-log",
        what: "batches of 1,000 that a sliding log of 100,000 entries refuses",
        is_quick: true,
        server: Server { policy: LOG, ..SERVER },
        bounds: BOUNDS,
        make: refused_by_a_long_log,
    },
    Attack {
        name: "batches",
        what: "64 clients that send batches of 1,000 without end",
        is_quick: true,
        server: SERVER,
        bounds: BOUNDS,
        make: batches,
    },
    Attack {
        name: "inline-keys",
        what: "300,000 keys by limits of the attacker's own, then 300 newcomers by the policy",
        is_quick: true,
        server: Server { flags: &["--max-keys", "200000"], ..SERVER },
        bounds: BOUNDS,
        make: inline_keys,
    },
    Attack {
        name: "metrics-readers",
        what: "300 readers of /metrics at a time while the store is full",
        is_quick: true,
        server: Server { flags: &["--max-keys", "200000"], ..SERVER },
        bounds: BOUNDS,
        make: metrics_readers,
    },
    Attack {
        name: "foreign-ids",
        what: "400,000 request ids of one key, then an honest id once more",
        is_quick: false,
        server: SERVER,
        bounds: Bounds { peak: 384, ..BOUNDS },
        make: foreign_ids,
    },
    Attack {
        name: "validated-names",
        what: "policies with 100,000 rule names validated, then a rule more in the file",
        is_quick: true,
        server: SERVER,
        bounds: BOUNDS,
        make: validated_names,
    },
];

/// A batch of one request, many times.
fn batch(request: &str, times: usize) -> String {
    format!("[{}]", vec![request; times].join(","))
}

fn refused_by_a_long_log(target: &mut Target, claims: &mut Findings) {
    let ask = |cost: u64| format!(r#"{{"key":"long","attributes":{{"path":"/logged"}},"cost":{cost}}}"#);
    // One entry for each instant: a thousand requests at a time.
    for _ in 0..99 {
        let answer = target.post("/v1/check", &batch(&ask(1), 1_000));
        claims.claim(answer.as_ref().is_ok_and(|answer| answer.status == 200), || format!("filling: {answer:?}"));
    }
    for _ in 0..50 {
        let answer = target.send(ATTACKER, &wire::post("/v1/check", "", &batch(&ask(99_999), 1_000)));
        claims.claim(answer.as_ref().is_ok_and(|answer| answer.status == 200), || format!("refused: {answer:?}"));
    }
}

fn batches(target: &mut Target, claims: &mut Findings) {
    let (address, stop) = (target.http(), AtomicBool::new(false));
    let request = wire::post("/v1/check", "", &batch(r#"{"key":"batched"}"#, 1_000));
    let answered: u64 = thread::scope(|scope| {
        let clients: Vec<_> = (0..64)
            .map(|_| {
                scope.spawn(|| {
                    let Ok(stream) = wire::connect(ATTACKER, address) else { return 0 };
                    let (mut stream, mut answered) = (BufReader::new(stream), 0);
                    while !stop.load(Ordering::Relaxed) && stream.get_mut().write_all(request.as_bytes()).is_ok() {
                        match read_answer(&mut stream) {
                            Ok(answer) => answered += u64::from(answer.status == 200),
                            Err(_) => break,
                        }
                    }
                    answered
                })
            })
            .collect();
        thread::sleep(Duration::from_secs(10));
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().unwrap_or(0)).sum()
    });
    claims.claim(answered > 0, || "no batch was answered".into());
}

fn inline_keys(target: &mut Target, claims: &mut Findings) {
    const AT_A_TIME: usize = 1_000;
    let mut attacker = Connection::open(target.resp()).expect("RESP is served");
    for start in (0..300_000).step_by(AT_A_TIME) {
        let mut bytes = String::new();
        for key in start..start + AT_A_TIME {
            let key = format!("p{key}");
            let _ = write!(
                bytes,
                "*5\r\n$11\r\nCL.THROTTLE\r\n${}\r\n{key}\r\n$1\r\n0\r\n$1\r\n1\r\n$5\r\n86400\r\n",
                key.len()
            );
        }
        attacker.send_bytes(bytes.as_bytes()).expect("the attacker is connected");
        (0..AT_A_TIME).for_each(|_| drop(attacker.receive()));
    }
    let refused = (0..300).filter(|number| {
        let answer = target.post("/v1/check", &format!(r#"{{"key":"newcomer-{number}"}}"#));
        !answer.is_ok_and(|answer| answer.status == 200)
    });
    let refused = refused.count();
    claims.claim(refused == 0, || format!("{refused} of 300 newcomers were refused their first request"));
    let year = attacker.command(&["CL.THROTTLE", "year", "0", "1", "31536000"]);
    claims.claim(year.as_ref().is_ok_and(tidegate_testkit::servers::Reply::is_error), || {
        format!("a limit of a year: {year:?}")
    });
}

fn metrics_readers(target: &mut Target, claims: &mut Findings) {
    for start in (0..200).map(|number| number * 1_000) {
        let keys = (start..start + 1_000).map(|key| format!(r#"{{"key":"full-{key}"}}"#));
        let answer = target.post("/v1/check", &format!("[{}]", keys.collect::<Vec<_>>().join(",")));
        claims.claim(answer.as_ref().is_ok_and(|answer| answer.status == 200), || format!("filling: {answer:?}"));
    }
    let before = target.threads();
    let address = target.http();
    let read = || -> std::io::Result<u16> {
        let mut stream = BufReader::new(wire::connect(ATTACKER, address)?);
        for _ in 0..10 {
            stream.get_mut().write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")?;
            read_answer(&mut stream)?;
        }
        Ok(200)
    };
    let failed = thread::scope(|scope| {
        let readers: Vec<_> = (0..300).map(|_| scope.spawn(read)).collect();
        readers.into_iter().filter_map(|reader| reader.join().ok()?.err()).count()
    });
    claims.claim(failed == 0, || format!("{failed} readers failed"));
    let after = target.threads();
    claims.claim(after <= before + 8, || format!("{before} threads became {after}"));
}

fn foreign_ids(target: &mut Target, claims: &mut Findings) {
    let honest = r#"{"key":"honest-id","limit":"5/day","id":"order-1"}"#;
    let first = target.post("/v1/check", honest).map(|answer| answer.body);
    for start in (0..400).map(|number| number * 1_000) {
        let ids = (start..start + 1_000).map(|id| format!(r#"{{"key":"flood","id":"{id}"}}"#));
        let body = format!("[{}]", ids.collect::<Vec<_>>().join(","));
        let answer = target.send(ATTACKER, &wire::post("/v1/check", "", &body));
        claims.claim(answer.as_ref().is_ok_and(|answer| answer.status == 200), || format!("flood: {answer:?}"));
    }
    let again = target.post("/v1/check", honest).map(|answer| answer.body);
    let remaining = |body: &std::io::Result<String>| {
        let text = body.as_deref().unwrap_or_default();
        text.split("\"remaining\":").nth(1).and_then(|rest| rest.split(',').next()).map(str::to_owned)
    };
    claims.claim(remaining(&first).is_some() && remaining(&first) == remaining(&again), || {
        format!("an id was charged twice: {first:?}, then {again:?}")
    });
}

fn validated_names(target: &mut Target, claims: &mut Findings) {
    for start in (0..100_000).step_by(1_000) {
        let mut policy = String::new();
        for rule in start..start + 1_000 {
            let _ = write!(policy, "[rules.name-{rule}]\nlimit = \"1/s\"\n");
        }
        let request =
            wire::post("/admin/v1/policy/validate", "", &policy).replace("application/json", "application/toml");
        let answer = target.send(Ipv4Addr::LOCALHOST, &request);
        claims.claim(answer.is_ok(), || format!("validate: {answer:?}"));
    }
    let more = format!("{POLICY}[rules.one-more]\nlimit = \"1000000/s\"\nmatch = {{ path = \"/more\" }}\n");
    std::fs::write(target.policy(), more).expect("the policy file");
    target.signal("HUP");
    let seen = (0..300).any(|_| {
        thread::sleep(Duration::from_millis(100));
        target.get("/admin/v1/policy").is_ok_and(|answer| answer.body.contains("one-more"))
            && target
                .post("/v1/explain", r#"{"key":"a","attributes":{"path":"/more"}}"#)
                .is_ok_and(|answer| answer.body.contains("one-more"))
    });
    claims.claim(seen, || "the file could not gain a rule".into());
}
