//! The same requests, valid and not, by HTTP and by RESP: the outcome is the same.

use std::sync::Arc;

use http::StatusCode;
use tidegate::{ManualClock, MemoryStore};

use super::app::App;
use super::http::bare;
use super::resp::frame::Parser;
use super::resp::request;
use crate::ask::call::Call;
use crate::ask::outcome::Outcome;
use crate::{Server, Settings};

const REQUESTS: u64 = 5_000;

const CALLS: [Call; 9] = [
    Call::Check,
    Call::Peek,
    Call::Report,
    Call::Refund,
    Call::Reset,
    Call::Reserve,
    Call::Settle,
    Call::Renew,
    Call::Release,
];

/// Steele and Vigna's SplitMix64.
struct Random(u64);

impl Random {
    fn one_of<'o, T>(&mut self, options: &'o [T]) -> &'o T {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        &options[(mixed ^ (mixed >> 31)) as usize % options.len()]
    }

    /// One of the usual options, but now and then one of the others.
    fn mostly<'o, T>(&mut self, usual: &'o [T], unusual: &'o [T]) -> &'o T {
        let is_usual = *self.one_of(&[true, true, true, true, true, true, true, false]);
        self.one_of(if is_usual { usual } else { unusual })
    }
}

/// A request as both wires have it.
#[derive(Default)]
struct Written {
    json: Vec<String>,
    command: Vec<String>,
}

impl Written {
    fn random(random: &mut Random) -> Written {
        let (long, mut written) =
            ("l".repeat(4_097), Written { command: vec!["command".into()], ..Written::default() });
        let long = Some(long.as_str());
        for (field, option, usual, unusual) in [
            ("key", "KEY", &[None, None, Some("alice")][..], &[Some(""), long][..]),
            ("limit", "LIMIT", &[None], &[Some("10/min"), Some("often"), Some("9000000/s")]),
            ("rule", "RULE", &[None], &[Some("everyone"), Some("none")]),
            ("id", "ID", &[None, Some("x"), Some("y")], &[long]),
        ] {
            if let Some(value) = *random.mostly(usual, unusual) {
                written.json.push(format!("{field:?}: {value:?}"));
                written.command.extend([option.to_owned(), value.to_owned()]);
            }
        }
        const EDGES: [u64; 4] = [0, (1 << 53) - 1, 1 << 53, i64::MAX as u64];
        for (field, option, usual, unusual) in [
            ("cost", "COST", &[None, Some(1), Some(2), Some(15)][..], &EDGES.map(Some)[..]),
            ("ttl_ms", "TTL", &[None], &[Some(0), Some(1), Some(86_400_000), Some(86_400_001)]),
        ] {
            if let Some(value) = *random.mostly(usual, unusual) {
                written.json.push(format!("{field:?}: {value}"));
                written.command.extend([option.to_owned(), value.to_string()]);
            }
        }
        let count = *random.mostly(&[0, 1, 1, 2], &[3, 64, 65]);
        written.members("attributes", "ATTRIBUTE", random, count, &|random, place| {
            let name = *random.mostly(&[["user", "path", "tier"][place % 3]], &["user"]);
            let name = if place < 3 { name.to_owned() } else { format!("a{place}") };
            (name, (*random.one_of(&["alice", "bob"])).to_owned(), true)
        });
        let count = *random.mostly(&[0, 0, 1], &[2, 16, 17]);
        written.members("amounts", "AMOUNT", random, count, &|random, place| {
            let name = *random.mostly(&[["tokens", "bytes"][place % 2]], &["tokens"]);
            let name = if place < 2 { name.to_owned() } else { format!("u{place}") };
            (name, random.mostly(&[1, 2], &EDGES).to_string(), false)
        });
        written
    }

    /// Members that have names.
    fn members(
        &mut self,
        field: &str,
        option: &str,
        random: &mut Random,
        count: usize,
        member: &dyn Fn(&mut Random, usize) -> (String, String, bool),
    ) {
        let mut members = Vec::new();
        for place in 0..count {
            let (name, value, is_text) = member(random, place);
            members.push(if is_text { format!("{name:?}: {value:?}") } else { format!("{name:?}: {value}") });
            self.command.extend([option.to_owned(), name, value]);
        }
        if count > 0 {
            self.json.push(format!("{field:?}: {{{}}}", members.join(", ")));
        }
    }
}

async fn by_resp(app: &App, call: Call, command: &[String]) -> StatusCode {
    let mut bytes = format!("*{}\r\n", command.len());
    command.iter().for_each(|word| bytes += &format!("${}\r\n{word}\r\n", word.len()));
    let (mut parser, mut buffer) = (Parser::default(), bytes.into_bytes());
    assert_eq!(parser.advance(&mut buffer), Ok(true));
    let Ok(ask) = request::parse(call, parser.arguments(&buffer)) else { return Outcome::Invalid.status() };
    let Ok(inline) = ask.inline(&app.engine) else { return Outcome::Invalid.status() };
    let outcome = match app.decide(call.verb(), &ask, inline.as_deref()).await {
        Err(error) => Outcome::from(&error),
        Ok(decision) if decision.is_allowed() || !call.verb().can_refuse() => Outcome::Admitted,
        Ok(decision) if decision.is_blocked() => Outcome::Blocked,
        Ok(_) if call == Call::Renew => Outcome::Expired,
        Ok(_) => Outcome::Refused,
    };
    outcome.status()
}

#[tokio::test]
async fn every_request_has_the_same_outcome_by_http_and_by_resp() {
    let mut servers = Vec::new();
    for _ in 0..2 {
        let store = MemoryStore::builder().clock(ManualClock::default()).build().expect("a store");
        let settings = Settings { http: Vec::new(), ..Settings::default() };
        servers.push(Server::start(settings, store).await.expect("a server"));
    }
    let [http, resp]: [Arc<App>; 2] = [Arc::clone(servers[0].app()), Arc::clone(servers[1].app())];
    let (mut random, mut seen) = (Random(1), std::collections::BTreeMap::<u16, u64>::new());
    for _ in 0..REQUESTS {
        let (call, written) = (*random.one_of(&CALLS), Written::random(&mut random));
        let body = format!("{{{}}}", written.json.join(", "));
        let (status, answer) = bare::answer(&http, call, body.as_bytes()).await;
        let told = by_resp(&resp, call, &written.command).await.as_u16();
        assert_eq!(status, told, "{call:?} {body}: {}", String::from_utf8_lossy(&answer));
        *seen.entry(status).or_default() += 1;
    }
    // Not only those that are not valid.
    for status in [200, 400, 404, 422, 429] {
        assert!(seen.contains_key(&status), "{seen:?}");
    }
}
