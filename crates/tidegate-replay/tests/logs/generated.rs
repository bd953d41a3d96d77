//! Logs by chance: requests, and how each format writes them.

use std::fmt::Write;

use tidegate_replay::Utc;
use tidegate_testkit::Random;

use tidegate::Micros;

/// A request, as a log tells of it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) at: u64,
    pub(crate) ip: String,
    pub(crate) user: Option<String>,
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) query: Option<String>,
    pub(crate) cost: u64,
}

impl Entry {
    /// What a policy knows of it.
    pub(crate) fn attributes(&self) -> Vec<(&'static str, String)> {
        let mut attributes = vec![
            ("ip", self.ip.clone()),
            ("method", self.method.to_owned()),
            ("path", self.path.clone()),
            ("endpoint", format!("{} {}", self.method, self.path)),
        ];
        attributes.extend(self.user.clone().map(|user| ("user", user)));
        attributes.extend(self.query.clone().map(|query| ("query", query)));
        attributes
    }

    fn target(&self) -> String {
        self.query.as_ref().map_or_else(|| self.path.clone(), |query| format!("{}?{query}", self.path))
    }
}

/// How a log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Combined,
    Common,
    Envoy,
    Istio,
    Json,
    EnvoyJson,
    Csv,
}

impl Written {
    pub(crate) const ALL: [Written; 7] = [
        Written::Combined,
        Written::Common,
        Written::Envoy,
        Written::Istio,
        Written::Json,
        Written::EnvoyJson,
        Written::Csv,
    ];

    /// What of a request such a log can tell.
    pub(crate) fn told(self, entry: &Entry) -> Entry {
        let mut entry = entry.clone();
        match self {
            Written::Combined | Written::Common => {
                (entry.at, entry.cost) = (entry.at / 1_000_000 * 1_000_000, 1);
            }
            Written::Envoy | Written::Istio | Written::EnvoyJson => {
                (entry.at, entry.cost, entry.user) = (entry.at / 1_000 * 1_000, 1, None);
            }
            Written::Json | Written::Csv => {}
        }
        entry
    }

    pub(crate) fn write(self, entries: &[Entry]) -> String {
        let mut text = String::new();
        if self == Written::Csv {
            text.push_str("request_id;timestamp;client_ip;\"remote_user\";verb;uri;cost\r\n");
        }
        for (number, entry) in entries.iter().enumerate() {
            let (at, request) = (Utc(Micros::new(entry.at)), format!("{} {} HTTP/1.1", entry.method, entry.target()));
            let user = entry.user.as_deref().unwrap_or("-");
            let ip = &entry.ip;
            let _ = match self {
                Written::Combined => writeln!(
                    text,
                    r#"{ip} - {user} [{}] "{request}" 200 {number} "http://x/?y=[1]" "curl \"8\"""#,
                    common(entry.at, number)
                ),
                Written::Common => {
                    writeln!(text, r#"{ip} ident {user} [{}] "{request}" 200 -"#, common(entry.at, number))
                }
                Written::Envoy => writeln!(
                    text,
                    r#"[{at}] "{request}" 200 - 0 12 3 - "6.6.6.6, {ip}" "agent x" "id-{number}" "host" "10.0.0.1:80""#
                ),
                Written::Istio => writeln!(
                    text,
                    r#"[{at}] "{request}" 200 - via_upstream - "-" 0 12 3 1 "{ip}" "agent x" "id-{number}" "host" "10.0.0.1:80" inbound"#
                ),
                Written::Json => {
                    let user = entry.user.as_ref().map_or("null".into(), |user| format!("{user:?}"));
                    let seconds = format!("{}.{:06}", entry.at / 1_000_000, entry.at % 1_000_000);
                    writeln!(
                        text,
                        r#"{{"nested":{{"time":[1,{{}}]}},"msec":{seconds},"remote_addr":"{ip}","user":{user},"request":"{request}","cost":{}}}"#,
                        entry.cost
                    )
                }
                Written::EnvoyJson => writeln!(
                    text,
                    r#"{{"authority":"h","start_time":"{at}","method":"{}","path":"{}","response_code":200,"downstream_remote_address":"{}"}}"#,
                    entry.method,
                    entry.target().replace('/', "\\/"),
                    if ip.contains(':') { format!("[{ip}]:4711") } else { format!("{ip}:4711") }
                ),
                Written::Csv => write!(
                    text,
                    "{number};{at};{ip};\"{user}\";{};\"{}\";{}\r\n",
                    entry.method,
                    entry.target(),
                    entry.cost
                ),
            };
        }
        text
    }
}

/// A time as the common format has it, in a zone of chance.
fn common(at: u64, number: usize) -> String {
    let (sign, hours, minutes) = [("+", 0, 0), ("-", 7, 0), ("+", 5, 30)][number % 3];
    let east = (hours * 60 + minutes) * 60_000_000;
    let local = Utc(Micros::new(if sign == "+" { at + east } else { at - east }));
    let ((year, month, day), (hour, minute, second)) = (local.date(), local.clock());
    let month =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"][month as usize - 1];
    format!("{day:02}/{month}/{year}:{hour:02}:{minute:02}:{second:02} {sign}{hours:02}{minutes:02}")
}

/// Requests of a few callers, in bursts, across a leap day.
pub(crate) fn entries(random: &mut Random, count: usize) -> Vec<Entry> {
    let mut at = 1_709_251_190_000_000; // 2024-02-29T23:59:50Z
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        if random.percent(60) {
            at += random.magnitude(1..=3_000_000);
        }
        let ip = match random.within(0..=5) {
            number @ 0..=3 => format!("192.0.2.{number}"),
            number => format!("2001:db8:0:{number}::{:x}", random.within(1..=3)),
        };
        entries.push(Entry {
            at,
            ip,
            user: random.percent(70).then(|| random.choose(&["alice", "bob", "carol", "d e"]).to_owned()),
            method: random.choose(&["GET", "POST"]),
            path: random.choose(&["/", "/api/orders", "/api/items", "/static/a.css"]).to_owned(),
            query: random.percent(30).then(|| random.choose(&["q=1", "a=b&c=d"]).to_owned()),
            cost: if random.percent(20) { random.within(0..=4) } else { 1 },
        });
    }
    entries
}

/// The same requests, none of them further from its place than `far`.
pub(crate) fn disordered(entries: &[Entry], far: usize, random: &mut Random) -> Vec<Entry> {
    let mut order: Vec<(usize, usize)> =
        (0..entries.len()).map(|place| (place + random.within(0..=far as u64) as usize, place)).collect();
    order.sort();
    order.into_iter().map(|(_, place)| entries[place].clone()).collect()
}
