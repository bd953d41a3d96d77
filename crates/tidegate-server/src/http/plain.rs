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
//! version, chunks, `Expect`, `Upgrade`, a wish to close, a server that is
//! leaving) goes to hyper with all that has not been answered, and so does the
//! rest of the connection: nothing is refused here, and no rule of HTTP is
//! known here but these few.

use std::future::ready;
use std::io;
use std::pin::pin;
use std::time::{Duration, SystemTime};

use tidegate::kernel::Verb;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep_until};

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
        while let Some((body, length)) = question(&arrived[at..], app) {
            let reply = Reply::of(ask::decide(app, peer, Verb::Charge, body).await);
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
    let mut body_length = None;
    for field in fields {
        match meaning(field.name) {
            Meaning::Length if body_length.is_none() => body_length = Some(whole_number(field.value)?),
            Meaning::Connection if field.value.eq_ignore_ascii_case(b"keep-alive") => {}
            Meaning::None => {}
            Meaning::Length | Meaning::Connection | Meaning::Other => return None,
        }
    }
    let body_length = body_length.filter(|length| *length <= longest_body)?;
    let body = head.get(head_length..head_length + body_length)?;
    Some((body, arrived.len() - head.len() + head_length + body_length))
}

/// What a field means for how a question is read.
enum Meaning {
    Length,
    Connection,
    /// Something that only hyper knows.
    Other,
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
            let (drain, router) = (app.drain.clone(), router(Arc::clone(&app)));
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
            assert_eq!(plain, said(&[asked.as_bytes()], First::Hyper).await, "{asked}");
        }
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
