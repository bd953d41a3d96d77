//! The question that is asked most, in the form in which it is asked most,
//! without all that HTTP can be.
//!
//! A connection begins here. As long as everything that arrives is whole
//! questions of the form
//!
//! ```text
//! POST /v1/check HTTP/1.1
//! host: localhost
//! content-type: application/json
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
//! known here but these few. That holds for callers that are not permitted, too.

use std::future::ready;
use std::io;
use std::pin::pin;
use std::time::{Duration, SystemTime};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep_until};

use super::CHECK;
use super::ask;
use super::guard::FETCH_SITE;
use super::reply::Reply;
use crate::access::{Caller, Page, bearer};
use crate::app::App;
use crate::call::Call;
use crate::listen::Stream;
use crate::peer::Link;
use crate::protocol::Protocol;
use crate::rights::Right;

/// Room for what arrives at a time: a dozen questions sent at once.
const ROOM: usize = 4 * 1024;
/// Answers that are held while their client is not reading. Its next questions
/// wait until these are sent.
const MOST_UNSENT: usize = 64 * 1024;
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
    let (idle, peer) = (app.settings.idle(), stream.peer());
    let (mut closing, mut is_closing) = (pin!(app.drain.closing()), false);
    let mut heard = Instant::now();
    // One timer for all waits: it is moved when it rings, not with each question.
    let mut patience = pin!(sleep_until(heard + idle));
    let (mut arrived, mut answers, mut date) = (Vec::with_capacity(ROOM), Vec::new(), Date::default());
    let mut permitted = Permitted::default();
    loop {
        let read = tokio::select! {
            biased;
            read = stream.read_buf(&mut arrived) => read?,
            () = &mut closing, if !is_closing => {
                // The runtime has to look at the socket for it to know of what has arrived.
                tokio::task::yield_now().await;
                is_closing = true;
                continue;
            }
            () = ready(()), if is_closing => return Ok(Then::End),
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
        while let Some(Plain { body, length, facts }) = question(&arrived[at..], app)
            && permitted.includes(facts, app, stream.link())
        {
            let reply = ask::decide(app, peer, Call::Check, body).await.unwrap_or_else(Reply::from);
            reply.write(&date.text, &mut answers);
            at += length;
            if answers.len() >= MOST_UNSENT {
                send(stream, &mut answers, app).await?;
            }
            let answered = Instant::now();
            app.metrics.answered(Protocol::Http, answered - began);
            began = answered;
        }
        send(stream, &mut answers, app).await?;
        if at < arrived.len() {
            arrived.drain(..at);
            stream.put_back(arrived);
            return Ok(Then::Hyper);
        }
        arrived.clear();
    }
}

/// A plain question.
struct Plain<'a> {
    body: &'a [u8],
    /// Of all of it.
    length: usize,
    facts: Facts<'a>,
}

/// What a head says of who asks.
#[derive(Clone, Copy, Default)]
struct Facts<'a> {
    authorization: Option<&'a [u8]>,
    page: Page<'a>,
}

impl<'a> Facts<'a> {
    fn fields(self) -> [Option<&'a [u8]>; 5] {
        let Page { host, origin, fetch_site, content_type, .. } = self.page;
        [self.authorization, host, origin, fetch_site, content_type]
    }
}

/// The facts that were permitted last, so that the same need not be looked into with each question.
#[derive(Default)]
struct Permitted {
    last: Option<[Option<Box<[u8]>>; 5]>,
    generation: u64,
}

impl Permitted {
    fn includes(&mut self, facts: Facts<'_>, app: &App, link: &Link) -> bool {
        let generation = app.access.generation();
        let is_last = |last: &[Option<Box<[u8]>>; 5]| {
            last.iter().zip(facts.fields()).all(|(last, field)| last.as_deref() == field)
        };
        if self.generation == generation && self.last.as_ref().is_some_and(is_last) {
            return true;
        }
        let credential = facts.authorization.map(bearer);
        let caller = Caller { protocol: Protocol::Http, link, credential, page: Some(facts.page) };
        let is_permitted = app.access.decide(&caller, Right::Check).is_ok();
        self.last = is_permitted.then(|| facts.fields().map(|field| field.map(Box::from)));
        self.generation = generation;
        is_permitted
    }
}

/// The plain question that comes first, if that is what comes first.
fn question<'a>(arrived: &'a [u8], app: &App) -> Option<Plain<'a>> {
    // Its answer has to say that the connection will close.
    if app.drain.is_leaving() {
        return None;
    }
    split(arrived, app.settings.max_body)
}

fn split(arrived: &[u8], longest_body: usize) -> Option<Plain<'_>> {
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
    let (mut body_length, mut facts) = (None, Facts::default());
    let page = &mut facts.page;
    page.writes = true;
    for field in fields {
        let fact = match meaning(field.name) {
            Meaning::Length if body_length.is_none() => {
                body_length = Some(whole_number(field.value)?);
                continue;
            }
            Meaning::Connection if field.value.eq_ignore_ascii_case(b"keep-alive") => continue,
            Meaning::None => continue,
            Meaning::Length | Meaning::Connection | Meaning::Other => return None,
            Meaning::Authorization => &mut facts.authorization,
            Meaning::Host => &mut page.host,
            Meaning::Origin => &mut page.origin,
            Meaning::FetchSite => &mut page.fetch_site,
            Meaning::ContentType => &mut page.content_type,
        };
        // What is said twice is for hyper.
        if fact.replace(field.value).is_some() {
            return None;
        }
    }
    let body_length = body_length.filter(|length| *length <= longest_body && facts.page.host.is_some())?;
    let body = head.get(head_length..head_length + body_length)?;
    Some(Plain { body, length: arrived.len() - head.len() + head_length + body_length, facts })
}

/// What a field means for how a question is read.
enum Meaning {
    Length,
    Connection,
    /// Something that only hyper knows.
    Other,
    Authorization,
    Host,
    Origin,
    FetchSite,
    ContentType,
    None,
}

fn meaning(name: &str) -> Meaning {
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    match name.len() {
        14 if is("content-length") => Meaning::Length,
        10 if is("connection") => Meaning::Connection,
        17 if is("transfer-encoding") => Meaning::Other,
        6 if is("expect") => Meaning::Other,
        7 if is("upgrade") => Meaning::Other,
        4 if is("host") => Meaning::Host,
        12 if is("content-type") => Meaning::ContentType,
        13 if is("authorization") => Meaning::Authorization,
        6 if is("origin") => Meaning::Origin,
        14 if is(FETCH_SITE) => Meaning::FetchSite,
        _ => Meaning::None,
    }
}

/// A number in digits only, and few enough of them.
fn whole_number(digits: &[u8]) -> Option<usize> {
    let is_number = (1..=9).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| digits.iter().fold(0, |number, digit| number * 10 + usize::from(digit - b'0')))
}

async fn send(stream: &mut Stream, answers: &mut Vec<u8>, app: &App) -> io::Result<()> {
    if answers.is_empty() {
        return Ok(());
    }
    let _held = (answers.len() > ROOM).then(|| app.buffered.hold_anyway(answers.len()));
    stream.write_all(answers).await?;
    stream.flush().await?;
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

    use axum::Router;
    use tidegate::{ManualClock, MemoryStore};
    use tidegate_testkit::Random;
    use tokio::io::{AsyncReadExt, duplex};

    use super::*;
    use crate::http::{router, serve_all, serve_connection};
    use crate::peer::Peer;
    use crate::{Server, Settings};

    const BODY: &str = r#"{"key":"alice","limit":"5/min"}"#;

    fn post(fields: &str, body: &str) -> String {
        let length = body.len();
        let fields = format!("host: localhost\r\ncontent-type: application/json\r\n{fields}");
        format!("POST /v1/check HTTP/1.1\r\n{fields}content-length: {length}\r\n\r\n{body}")
    }

    fn plain_body(arrived: &str) -> Option<&str> {
        let Plain { body, length, .. } = split(arrived.as_bytes(), 100)?;
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
            post("", "{}").replace("host: localhost\r\n", ""),
            post("", "{}").replace("2\r\n\r\n", "2\r\n\n"),
            post("", "{}").replace("HTTP/1.1", "HTTP/1.0"),
            post("", "{}").replace("/v1/check", "/v1/check?"),
            post("", "{}").replace("length: 2", "length: +2"),
            post("", "{}").replace("length: 2", "length: 2, 2"),
            post("", "{}").replace("length: 2", "length:"),
            post("", "{}").replace("content-length: 2\r\n", ""),
            post("Host: localhost\r\n", "{}"),
            post("authorization: a\r\nauthorization: a\r\n", "{}"),
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
        said_with(Settings::default(), pieces, first).await
    }

    async fn said_with(settings: Settings, pieces: &[&[u8]], first: First) -> String {
        let store = MemoryStore::builder().max_keys(100).clock(ManualClock::default()).build().unwrap();
        let settings = Settings { http: Vec::new(), threads: std::num::NonZeroUsize::new(1), ..settings };
        let server = Server::start(settings, store).await.unwrap();
        let app = Arc::clone(server.app());
        let (mut client, server_side) = duplex(1 << 20);
        let stream = Stream::new(server_side, Peer::Unix);
        let router = router(Arc::clone(&app), Router::new());
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

    /// The server closes before the runtime has looked at the socket, in which the next request waits.
    #[tokio::test]
    async fn a_request_that_is_in_the_socket_when_the_server_closes_is_answered() {
        for (first, path) in [(First::Plain, "/v1/check"), (First::Hyper, "/v1/check"), (First::Plain, "/v1/peek")] {
            let settings = Settings { http: Vec::new(), ..Settings::default() };
            let server = Server::start(settings, MemoryStore::default()).await.unwrap();
            let app = Arc::clone(server.app());
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut client = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let stream = Stream::new(listener.accept().await.unwrap().0, Peer::Unix);
            let (drain, router) = (app.drain.clone(), router(Arc::clone(&app), Router::new()));
            let serving = tokio::spawn(async move {
                match first {
                    First::Plain => serve_all(stream, app, router).await,
                    First::Hyper => serve_connection(stream, app, router).await,
                }
            });
            let request = post("", BODY).replace("/v1/check", path);
            client.write_all(request.as_bytes()).await.unwrap();
            let mut said = Vec::new();
            while !said.ends_with(b"}") {
                assert_ne!(client.read_buf(&mut said).await.unwrap(), 0);
            }
            // From here to the next await, only this task runs.
            assert_eq!(client.try_write(request.as_bytes()).unwrap(), request.len());
            drain.close();
            client.read_to_end(&mut said).await.unwrap();
            drop(client);
            serving.await.unwrap();
            let said = String::from_utf8(said).unwrap();
            assert_eq!(said.matches("HTTP/1.1 200 OK\r\n").count(), 2, "{said}");
            assert_eq!(said.matches("connection: close\r\n").count(), 1, "{said}");
        }
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
    async fn callers_that_are_not_permitted_are_refused_as_by_hyper() {
        let open = Settings::default();
        let closed = Settings { admin_token: Some("s3cret".into()), ..Settings::default() };
        let some = Settings { anonymous: vec![Right::Check], ..closed.clone() };
        let with = |from: &str, to: &str| post("", BODY).replace(from, to);
        let bearer = |token: &str| post(&format!("authorization: Bearer {token}\r\n"), BODY);
        let basic = post("authorization: Basic s3cret\r\n", BODY);
        for (settings, asked, status) in [
            (&open, post("", BODY), 200),
            (&open, with("localhost", "LocalHost.:7400"), 200),
            (&open, with("localhost", "127.9.9.9:7400"), 200),
            (&open, with("localhost", "[::1]:7400"), 200),
            (&open, with("localhost", "evil.example:7400"), 421),
            (&open, with("localhost", "192.0.2.1"), 421),
            (&open, with("localhost", "localhost.evil.example"), 421),
            (&open, with("localhost", ""), 421),
            (&open, with("host: localhost\r\n", ""), 400),
            (&open, post("host: localhost\r\n", BODY), 400),
            (&open, post("sec-fetch-site: cross-site\r\n", BODY), 403),
            (&open, post("sec-fetch-site: same-site\r\n", BODY), 403),
            (&open, post("sec-fetch-site: same-origin\r\nsec-fetch-site: same-origin\r\n", BODY), 403),
            (&open, post("sec-fetch-site: same-origin\r\norigin: http://localhost\r\n", BODY), 200),
            (&open, post("origin: http://localhost:1\r\n", BODY), 403),
            (&open, post("origin: http://evil.example\r\n", BODY), 403),
            (&open, post("origin: null\r\n", BODY), 403),
            (&open, with("application/json", "Application/JSON; charset=utf-8"), 200),
            (&open, with("application/json", "text/plain"), 415),
            (&open, with("application/json", "application/jsonp"), 415),
            (&open, with("content-type: application/json\r\n", ""), 415),
            (&open, bearer("ignored"), 200),
            (&closed, post("", BODY), 401),
            (&closed, bearer("s3cret"), 200),
            (&closed, bearer("s3cret").replace("localhost", "evil.example"), 200),
            (&closed, bearer("s3cret").replace("application/json", "text/plain"), 200),
            (&closed, bearer("s3cret") + &bearer("s3cret"), 200),
            (&closed, bearer("s3cret") + &bearer("s3creT"), 200),
            (&closed, bearer("s3creT"), 401),
            (&closed, bearer("s3cret").replace("content-type", "authorization: Bearer s3cret\r\ncontent-type"), 401),
            (&closed, basic.clone(), 401),
            (&some, post("", BODY), 200),
            (&some, with("localhost", "evil.example"), 421),
            (&some, basic, 401),
        ] {
            let plain = said_with(settings.clone(), &[asked.as_bytes()], First::Plain).await;
            assert!(plain.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {asked}\n{plain}");
            assert_eq!(plain, said_with(settings.clone(), &[asked.as_bytes()], First::Hyper).await, "{asked}");
        }
    }

    #[tokio::test]
    async fn heads_that_proxies_may_read_otherwise_are_refused_on_either_path() {
        let get = |fields: &str| format!("GET /healthz HTTP/1.1\r\n{fields}\r\n");
        let chunks = "transfer-encoding: chunked\r\n\r\n2\r\n\n\n\r\n0\r\nx: y\r\n\r\n";
        let chunked =
            format!("POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{chunks}");
        for irregular in [
            post("host: y\r\n", BODY),
            post("x: y\n", BODY),
            post("", BODY).replace("host: localhost\r\n", ""),
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
            "host: example.com\r\n",
            "origin: http://localhost\r\n",
            "origin: null\r\n",
            "sec-fetch-site: cross-site\r\n",
            "content-type: text/plain\r\n",
            "authorization: Bearer x\r\n",
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
