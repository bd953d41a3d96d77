//! The request that is asked most, in the form in which it is asked most,
//! without all that HTTP can be.
//!
//! A connection begins here. As long as everything that arrives is whole
//! requests of the form
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
//! or of the form `GET /v1/forward-auth?rule=orders HTTP/1.1`, with fields and without a body, as proxies ask,
//! they are read, decided and answered together, which costs half of what hyper
//! takes for it. Whatever is not exactly that (half a request, another path or
//! version, chunks, `Expect`, `Upgrade`, lines without CR, no `Host` or two, a wish to
//! close, a server that is leaving) goes to hyper with all that has not been answered, and so does the
//! rest of the connection: nothing is refused here, and no rule of HTTP is
//! known here but these few. That holds for callers that are not permitted, too.

mod date;
mod head;
mod permitted;

use std::future::ready;
use std::io;
use std::pin::pin;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep_until};

use self::date::Date;
use self::head::{Asks, Plain, first};
use self::permitted::{Permitted, includes_proxy};
use super::ask;
use super::forward;
use super::reply::Reply;
use super::terms::Terms;
use crate::ask::call::Call;
use crate::run::listen::Stream;
use crate::run::protocol::Protocol;
use crate::wire::app::App;

/// Room for what arrives at a time: a dozen requests sent at once.
const ROOM: usize = 4 * 1024;
/// Answers that are held while their client is not reading. Its next requests
/// wait until these are sent.
const MAX_UNSENT: usize = 64 * 1024;

/// What becomes of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Hyper goes on with it, from the first byte that was not answered.
    Hyper,
    /// It has ended.
    End,
}

/// Answers plain requests as long as there is nothing else.
pub(super) async fn answer_all(stream: &mut Stream, app: &App) -> io::Result<Then> {
    let (idle, peer) = (app.settings.idle(), stream.peer());
    let (mut closing, mut is_closing) = (pin!(app.guards.drain.closing()), false);
    let mut heard = Instant::now();
    // One timer for all waits: it is moved when it rings, not with each request.
    let mut timeout = pin!(sleep_until(heard + idle));
    let (mut arrived, mut answers, mut date) = (Vec::with_capacity(ROOM), Vec::new(), Date::default());
    // The query of a proxy is the same with each request.
    let (mut permitted, mut terms) = (Permitted::default(), None);
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
            () = &mut timeout => {
                if heard.elapsed() >= idle {
                    return Ok(Then::End);
                }
                timeout.as_mut().reset(heard + idle);
                continue;
            }
        };
        if read == 0 {
            return Ok(Then::End);
        }
        heard = Instant::now();
        date.set(heard);
        let (mut at, mut began) = (0, heard);
        while let Some(Plain { asks, length, facts }) = first(&arrived[at..], peer, app) {
            let reply = match asks {
                Asks::Check(body) if permitted.includes(facts, app, stream.link()) => {
                    ask::decide(app, peer, Call::Check, body).await.unwrap_or_else(Reply::from)
                }
                Asks::Forward(head) if includes_proxy(facts, app, stream.link()) => {
                    if terms.as_ref().is_some_and(|(known, _)| known != head.query) {
                        terms = None;
                    }
                    let (_, terms) = terms.get_or_insert_with(|| (head.query.to_owned(), Terms::parse(head.query)));
                    forward::answer(app, &head, terms.as_ref()).await
                }
                Asks::Check(_) | Asks::Forward(_) => break,
            };
            reply.write(&date.text, &mut answers);
            at += length;
            if answers.len() >= MAX_UNSENT {
                send(stream, &mut answers, app).await?;
            }
            let answered = Instant::now();
            app.records.metrics.answered(Protocol::Http, answered - began);
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

async fn send(stream: &mut Stream, answers: &mut Vec<u8>, app: &App) -> io::Result<()> {
    if answers.is_empty() {
        return Ok(());
    }
    let _held = (answers.len() > ROOM).then(|| app.guards.buffered.hold_anyway(answers.len()));
    stream.write_all(answers).await?;
    stream.flush().await?;
    answers.clear();
    answers.shrink_to(ROOM);
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
