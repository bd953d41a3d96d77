//! The question that is asked most, in the form in which it is asked most,
//! without all that HTTP can be.
//!
//! A connection begins here. As long as everything that arrives is whole
//! questions of the form
//!
//! ```text
//! POST /v1/check HTTP/1.1
//! content-length: 15
//!
//! {"key":"alice"}
//! ```
//!
//! they are read, decided and answered together, which costs half of what hyper
//! takes for it. Whatever is not exactly that (half a question, another path or
//! version, chunks, `Expect`, `Upgrade`, lines without CR, no `Host` or two, a wish to
//! close, a server that is leaving) goes to hyper with all that has not been answered, and so does the
//! rest of the connection: nothing is refused here, and no rule of HTTP is
//! known here but these few.

use std::io;
use std::pin::pin;
use std::time::{Duration, SystemTime};

use tidegate::kernel::Verb;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep_until, timeout};

use super::CHECK;
use super::ask;
use super::reply::Reply;
use crate::app::App;
use crate::listen::Stream;
use crate::metrics::Protocol;

/// Room for what arrives at a time: a dozen questions sent at once.
const ROOM: usize = 4 * 1024;
/// Answers that are held while their client is not reading. Its next questions
/// wait until these are sent.
const MOST_UNSENT: usize = 64 * 1024;
/// How long a client may leave its answers unread.
const READING_PATIENCE: Duration = Duration::from_secs(30);
/// Fields of a head; whoever sends more is hyper's.
const MOST_FIELDS: usize = 32;

/// What becomes of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Hyper goes on with it, from the first byte that was not answered.
    Hyper,
    /// It has ended.
    End,
}

/// Answers plain questions as long as there is nothing else.
pub(super) async fn answer_all(stream: &mut Stream, app: &App) -> io::Result<Then> {
    let idle = app.settings.idle();
    let mut closing = pin!(app.drain.closing());
    let mut heard = Instant::now();
    // One timer for all waits: it is moved when it rings, not with each question.
    let mut patience = pin!(sleep_until(heard + idle));
    let (mut arrived, mut answers, mut date) = (Vec::with_capacity(ROOM), Vec::new(), Date::default());
    loop {
        let read = tokio::select! {
            biased;
            read = stream.read_buf(&mut arrived) => read?,
            () = &mut closing => return Ok(Then::Hyper),
            () = &mut patience => {
                if heard.elapsed() >= idle {
                    return Ok(Then::End);
                }
                patience.as_mut().reset(heard + idle);
                continue;
            }
        };
        if read == 0 {
            return Ok(Then::End);
        }
        heard = Instant::now();
        date.set(heard);
        let (mut at, mut began) = (0, heard);
        while let Some((body, length)) = question(&arrived[at..], app) {
            let reply = Reply::of(ask::decide(app, Verb::Charge, body).await);
            reply.write(&date.text, &mut answers);
            at += length;
            if answers.len() >= MOST_UNSENT {
                send(stream, &mut answers).await?;
            }
            let answered = Instant::now();
            app.metrics.answered(Protocol::Http, answered - began);
            began = answered;
        }
        send(stream, &mut answers).await?;
        if at < arrived.len() {
            arrived.drain(..at);
            stream.put_back(arrived);
            return Ok(Then::Hyper);
        }
        arrived.clear();
    }
}

/// The body of the plain question that comes first, if that is what comes
/// first, and how long the question is.
fn question<'a>(arrived: &'a [u8], app: &App) -> Option<(&'a [u8], usize)> {
    // Its answer has to say that the connection will close.
    if app.drain.is_leaving() {
        return None;
    }
    split(arrived, app.settings.max_body)
}

fn split(arrived: &[u8], longest_body: usize) -> Option<(&[u8], usize)> {
    let head = arrived.strip_prefix(b"POST ")?.strip_prefix(CHECK.as_bytes())?.strip_prefix(b" HTTP/1.1\r\n")?;
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let Ok(httparse::Status::Complete((head_length, fields))) = httparse::parse_headers(head, &mut fields) else {
        return None;
    };
    // A carriage return stands only at the end of a line: one for each field, and one for the end.
    let lines = head[..head_length].iter().filter(|byte| **byte == b'\r').count();
    if lines != fields.len() + 1 {
        return None;
    }
    let (mut body_length, mut hosts) = (None, 0);
    for field in fields {
        match meaning(field.name) {
            Meaning::Host => hosts += 1,
            Meaning::Length if body_length.is_none() => body_length = Some(whole_number(field.value)?),
            Meaning::Connection if field.value.eq_ignore_ascii_case(b"keep-alive") => {}
            Meaning::None => {}
            Meaning::Length | Meaning::Connection | Meaning::Other => return None,
        }
    }
    let body_length = body_length.filter(|length| *length <= longest_body && hosts == 1)?;
    let body = head.get(head_length..head_length + body_length)?;
    Some((body, arrived.len() - head.len() + head_length + body_length))
}

/// What a field means for how a question is read.
enum Meaning {
    Host,
    Length,
    Connection,
    /// Something that only hyper knows.
    Other,
    None,
}

fn meaning(name: &str) -> Meaning {
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    match name.len() {
        4 if is("host") => Meaning::Host,
        14 if is("content-length") => Meaning::Length,
        10 if is("connection") => Meaning::Connection,
        17 if is("transfer-encoding") => Meaning::Other,
        6 if is("expect") => Meaning::Other,
        7 if is("upgrade") => Meaning::Other,
        _ => Meaning::None,
    }
}

/// A number in digits only, and few enough of them.
fn whole_number(digits: &[u8]) -> Option<usize> {
    let is_number = (1..=9).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| digits.iter().fold(0, |number, digit| number * 10 + usize::from(digit - b'0')))
}

async fn send(stream: &mut Stream, answers: &mut Vec<u8>) -> io::Result<()> {
    if answers.is_empty() {
        return Ok(());
    }
    timeout(READING_PATIENCE, async {
        stream.write_all(answers).await?;
        stream.flush().await
    })
    .await??;
    answers.clear();
    answers.shrink_to(ROOM);
    Ok(())
}

/// The time as HTTP writes it, written anew when the second has changed.
#[derive(Default)]
struct Date {
    text: String,
    until: Option<Instant>,
}

impl Date {
    fn set(&mut self, now: Instant) {
        if self.until.is_none_or(|until| now >= until) {
            let time = SystemTime::now();
            let past = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            self.text = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + past);
            self.until = Some(now + Duration::from_secs(1) - Duration::from_nanos(past.subsec_nanos().into()));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use tidegate::{ManualClock, MemoryStore};
    use tidegate_testkit::Random;
    use tokio::io::{AsyncReadExt, duplex};

    use super::*;
    use crate::http::{router, serve_all, serve_connection};
    use crate::listen::Peer;
    use crate::{Server, Settings};

    const BODY: &str = r#"{"key":"alice","limit":"5/min"}"#;

    fn post(fields: &str, body: &str) -> String {
        format!("POST /v1/check HTTP/1.1\r\nhost: x\r\n{fields}content-length: {}\r\n\r\n{body}", body.len())
    }

    fn plain_body(arrived: &str) -> Option<&str> {
        let (body, length) = split(arrived.as_bytes(), 100)?;
        assert!(arrived.as_bytes()[..length].ends_with(body));
        Some(std::str::from_utf8(body).unwrap())
    }

    #[test]
    fn a_plain_question_is_known_and_nothing_else_is_taken_for_one() {
        assert_eq!(plain_body(&post("", BODY)), Some(BODY));
        assert_eq!(plain_body(&post("Connection: Keep-Alive\r\nx: y\r\n", "{}")), Some("{}"));
        assert_eq!(plain_body(&(post("", "{}") + "GET /")), Some("{}"), "what follows is the next one's");
        for other in [
            post("transfer-encoding: chunked\r\n", "{}"),
            post("expect: 100-continue\r\n", "{}"),
            post("upgrade: h2c\r\n", "{}"),
            post("connection: close\r\n", "{}"),
            post("content-length: 2\r\n", "{}"),
            post("content-length : 2\r\n", "{}"),
            post(" folded: x\r\n", "{}"),
            post("host: y\r\n", "{}"),
            post("x: y\n", "{}"),
            post("", "{}").replace("host: x\r\n", ""),
            post("", "{}").replace("2\r\n\r\n", "2\r\n\n"),
            post("", "{}").replace("HTTP/1.1", "HTTP/1.0"),
            post("", "{}").replace("/v1/check", "/v1/check?"),
            post("", "{}").replace("length: 2", "length: +2"),
            post("", "{}").replace("length: 2", "length: 2, 2"),
            post("", "{}").replace("length: 2", "length:"),
            post("", "{}").replace("content-length: 2\r\n", ""),
            post("", &"x".repeat(101)),
            post(&"x: y\r\n".repeat(MOST_FIELDS), "{}"),
        ] {
            assert_eq!(plain_body(&other), None, "{other}");
        }
        let whole = post("", BODY);
        for length in 0..whole.len() {
            assert_eq!(plain_body(&whole[..length]), None, "half a question");
        }
    }

    /// Who reads first.
    #[derive(Clone, Copy)]
    enum First {
        Plain,
        Hyper,
    }

    /// All that a new server says to what arrives in these pieces, but the date.
    async fn said(pieces: &[&[u8]], first: First) -> String {
        let store = MemoryStore::builder().max_keys(100).clock(ManualClock::default()).build().unwrap();
        let settings = Settings { http: Vec::new(), threads: std::num::NonZeroUsize::new(1), ..Settings::default() };
        let server = Server::start(settings, store).await.unwrap();
        let app = Arc::clone(server.app());
        let (mut client, server_side) = duplex(1 << 20);
        let stream = Stream::new(server_side, Peer::Unix);
        let router = router(Arc::clone(&app));
        let serving = tokio::spawn(async move {
            match first {
                First::Plain => serve_all(stream, app, router).await,
                First::Hyper => serve_connection(stream, app, router).await,
            }
        });
        for piece in pieces {
            // Whoever is disconnected early may not get to say it all.
            let _ = client.write_all(piece).await;
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
        }
        let _ = client.shutdown().await;
        let mut said = Vec::new();
        let _ = client.read_to_end(&mut said).await;
        serving.await.unwrap();
        let said = String::from_utf8_lossy(&said);
        said.split("\r\n").filter(|line| !line.starts_with("date: ")).collect::<Vec<_>>().join("\r\n")
    }

    #[tokio::test]
    async fn plain_questions_are_answered_to_the_letter_as_by_hyper() {
        let asked = [
            post("", BODY).repeat(7),
            post("", "{}") + &post("", "[]") + &post("", "[{},{}]"),
            post("", r#"{"cost":9,"key":"alice","limit":"5/min"}"#),
            post("", "nonsense") + &post("", BODY),
            post("", r#"{"rule":"unheard of"}"#),
            post("", BODY) + "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n" + &post("", BODY),
            post("", BODY) + &post("connection: close\r\n", BODY) + &post("", BODY),
            post("", BODY) + "rubbish",
        ];
        for asked in asked {
            let plain = said(&[asked.as_bytes()], First::Plain).await;
            assert!(plain.starts_with("HTTP/1.1 "), "{plain}");
            assert!(plain.contains("\r\nx-content-type-options: nosniff\r\n"), "{plain}");
            assert_eq!(plain, said(&[asked.as_bytes()], First::Hyper).await, "{asked}");
        }
    }

    #[tokio::test]
    async fn heads_that_proxies_may_read_otherwise_are_refused_on_either_path() {
        let get = |fields: &str| format!("GET /healthz HTTP/1.1\r\n{fields}\r\n");
        let chunks = "transfer-encoding: chunked\r\n\r\n2\r\n\n\n\r\n0\r\nx: y\r\n\r\n";
        let chunked = format!("POST /v1/check HTTP/1.1\r\nhost: x\r\n{chunks}");
        for irregular in [
            post("host: y\r\n", BODY),
            post("x: y\n", BODY),
            post("", BODY).replace("host: x\r\n", ""),
            post("", BODY).replace("\r\n\r\n", "\r\n\n"),
            post("", BODY).replace("\r\n", "\n"),
            "\n".to_owned() + &post("", BODY),
            get(""),
            get("host: x\r\nhost: x\r\n"),
            get("host: x\n"),
        ] {
            // First, after an answer by the fast path, and after bodies that hyper reads, with lines of their own.
            for before in ["", &post("", BODY), &post("expect: x\r\n", "\n\n"), &chunked] {
                let asked = format!("{before}{irregular}{}", post("", BODY));
                let plain = said(&[asked.as_bytes()], First::Plain).await;
                assert_eq!(plain, said(&[asked.as_bytes()], First::Hyper).await, "{asked}");
                let answers: Vec<&str> = plain.split("HTTP/1.1 ").skip(1).collect();
                assert_eq!(answers.len(), 1 + usize::from(!before.is_empty()), "{asked}{plain}");
                let last = answers.last().unwrap();
                assert!(last.starts_with("400 ") && last.contains("connection: close"), "{asked}{plain}");
            }
        }
        // HTTP/1.0 knows no Host.
        let old = said(&[b"GET /healthz HTTP/1.0\r\n\r\n"], First::Plain).await;
        assert!(old.starts_with("HTTP/1.0 200"), "{old}");
    }

    #[tokio::test]
    async fn whatever_arrives_in_whatever_pieces_is_answered_as_by_hyper() {
        let seed = std::env::var("TIDEGATE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
        let mut random = Random::new(seed);
        for round in 0..400 {
            let asked = odd_questions(&mut random.fork());
            let cut = random.within(0..=asked.len() as u64) as usize;
            let (first, second) = asked.split_at(cut);
            let pieces = if random.percent(50) { vec![&asked[..]] } else { vec![first, second] };
            let (plain, hyper) = (said(&pieces, First::Plain).await, said(&pieces, First::Hyper).await);
            assert_eq!(plain, hyper, "seed {seed}, round {round}: {}", String::from_utf8_lossy(&asked));
        }
    }

    /// A few questions, most of them with something wrong.
    fn odd_questions(random: &mut Random) -> Vec<u8> {
        let fields = [
            "",
            "connection: keep-alive\r\n",
            "Connection: close\r\n",
            "transfer-encoding: chunked\r\n",
            "Content-Length: 2\r\n",
            "content-length: 0\r\n",
            "expect: 100-continue\r\n",
            "x: \t y \r\n",
            "x: y\n",
            "host: y\r\n",
            "x\r\n",
            ": y\r\n",
        ];
        let bodies = ["{}", BODY, "", "2\r\n{}\r\n0\r\n\r\n", "[{},{}]", "{\"key\":7}"];
        let mut asked = Vec::new();
        for _ in 0..random.within(1..=3) {
            let mut question = post(random.choose(&fields), random.choose(&bodies)).into_bytes();
            if random.percent(40) {
                let at = random.within(0..=question.len() as u64 - 1) as usize;
                match random.within(0..=2) {
                    0 => question[at] = random.choose(b"\r\n :09azAZ{}\"\x00\x80/"),
                    1 => question.insert(at, random.choose(b"\r\n :09azAZ{}\"\x00\x80/")),
                    _ => drop(question.remove(at)),
                }
            }
            asked.append(&mut question);
        }
        asked
    }
}
