//! Writes an access log in the combined format: half an hour of an ordinary day,
//! the same lines each time.
//!
//! ```text
//! cargo run -p tidegate-replay --example generate -- 2000 > access.log
//! ```

use std::io::{self, BufWriter, Write};

use tidegate::Micros;
use tidegate_replay::Utc;
use tidegate_testkit::Random;

fn main() -> io::Result<()> {
    let lines = std::env::args().nth(1).and_then(|lines| lines.parse().ok()).unwrap_or(2_000);
    generate(lines, &mut BufWriter::new(io::stdout().lock()))
}

/// 2024-02-29T22:00:00Z
const START: u64 = 1_709_244_000;
const SECONDS: u64 = 1_800;
const PATHS: [&str; 6] = ["/", "/items", "/items/17", "/search?q=tide", "/api/items", "/static/site.css"];
const AGENTS: [&str; 3] = ["Mozilla/5.0 (X11; Linux x86_64)", "Mozilla/5.0 (iPhone)", "curl/8.5.0"];

/// Visitors at all times, a client that searches everything for a while, and a job
/// that imports orders every ten minutes.
pub(crate) fn generate(lines: u64, out: &mut dyn Write) -> io::Result<()> {
    let mut random = Random::new(2024);
    let visitors = (lines / 50).max(40);
    for number in 0..lines {
        let second = number * SECONDS / lines;
        let minute = second / 60;
        let (ip, user, request, agent) = if (12..18).contains(&minute) && random.percent(55) {
            let page = random.within(1..=999);
            ("198.51.100.23".to_owned(), "-", format!("GET /search?q=all&page={page}"), "python-requests/2.31")
        } else if minute % 10 == 7 && random.percent(80) {
            ("192.0.2.80".to_owned(), "import", "POST /api/orders".to_owned(), "import-job/1.4")
        } else {
            // Some come often, most of them now and then.
            let visitor = random.magnitude(1..=visitors);
            let ip = match visitor % 5 {
                0 => format!("2001:db8:{:x}::{:x}", visitor % 65_536, random.within(1..=9)),
                _ => format!("203.{}.{}.{}", visitor >> 16 & 255, visitor >> 8 & 255, visitor & 255),
            };
            let user = if visitor.is_multiple_of(3) { random.choose(&["alice", "bob", "carol", "dave"]) } else { "-" };
            let request = match random.percent(12) {
                true => "POST /api/orders".to_owned(),
                false => format!("GET {}", random.choose(&PATHS)),
            };
            (ip, user, request, AGENTS[(visitor % 3) as usize])
        };
        // A request is written when it ends, and dated when it began.
        let began = START + second.saturating_sub(random.magnitude(1..=4) - 1);
        let ((year, month, day), (hour, minute, second)) = {
            let at = Utc(Micros::new(began * 1_000_000));
            (at.date(), at.clock())
        };
        let month = ["Jan", "Feb", "Mar"][month as usize - 1];
        let bytes = random.within(200..=9_000);
        writeln!(
            out,
            "{ip} - {user} [{day:02}/{month}/{year}:{hour:02}:{minute:02}:{second:02} +0000] \"{request} HTTP/1.1\" 200 {bytes} \"-\" \"{agent}\""
        )?;
    }
    out.flush()
}
