//! What a connection does with the bytes that arrive: commands in, answers out,
//! without a socket.

use std::sync::Arc;

use super::Resp;
use super::client::Client;
use super::command::{Command, Kind};
use super::connection::MOST_UNSENT;
use super::frame::{Arguments, Parser, ProtocolError};
use super::question::{Question, Verb, shown, write_decision, write_failure};
use super::reply::Replies;
use super::throttle::{Dialect, Throttle};
use super::throttles::{Taken, Throttles};

/// How it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Everything is answered: more is to be read.
    Read,
    /// The answers are to be sent before more is answered.
    Answer,
    /// The answers are to be sent, and then it is over.
    Close,
}

/// One connection, but for its socket.
pub struct Session {
    parser: Parser,
    throttles: Throttles,
    client: Client,
    replies: Replies,
    resp: Arc<Resp>,
}

impl Session {
    /// A connection that has just been opened.
    #[must_use]
    pub fn new(resp: Arc<Resp>) -> Session {
        let client = Client::new(&resp);
        let mut parser = Parser::default();
        parser.set_stranger(client.is_stranger());
        let (throttles, replies) = (Throttles::default(), Replies::default());
        Session { parser, throttles, client, replies, resp }
    }

    /// Answers to be sent.
    #[must_use]
    pub fn unsent(&self) -> &[u8] {
        self.replies.as_bytes()
    }

    /// The answers have been sent.
    pub fn sent(&mut self) {
        self.replies.clear(MOST_UNSENT);
    }

    /// Answers the commands that have arrived whole, and drops them from the
    /// buffer. What then is left is half a command, unless the answers are to
    /// be sent first.
    pub async fn answer(&mut self, buffer: &mut Vec<u8>) -> Next {
        let next = self.answer_all(buffer).await;
        self.throttles.decide(&self.resp, buffer, &mut self.replies).await;
        buffer.drain(..self.parser.forget());
        next.unwrap_or_else(|error| {
            self.replies.error(&format!("ERR Protocol error: {error}"));
            Next::Close
        })
    }

    /// Answers all but the throttles at the end, which wait to be decided.
    async fn answer_all(&mut self, buffer: &mut [u8]) -> Result<Next, ProtocolError> {
        let Session { parser, throttles, client, replies, resp } = self;
        while parser.advance(buffer)? {
            let arguments = parser.arguments(buffer);
            let command = admit(arguments, client);
            if let Ok(Kind::Throttle(dialect)) = command
                && take(throttles, dialect, arguments, resp)
            {
                continue;
            }
            throttles.decide(resp, buffer, replies).await;
            match command {
                Err(Refusal::Words(words)) => replies.error(&words),
                Err(Refusal::Attack) => return Ok(Next::Close),
                Ok(Kind::Throttle(dialect)) => take_or_refuse(throttles, dialect, arguments, resp, replies),
                Ok(Kind::Ask(verb)) => ask(verb, arguments, resp, replies).await,
                Ok(Kind::Talk(talk)) => {
                    if client.answer(talk, arguments, resp, replies) == Next::Close {
                        return Ok(Next::Close);
                    }
                    parser.set_stranger(client.is_stranger());
                }
            }
            if replies.as_bytes().len() >= MOST_UNSENT {
                return Ok(Next::Answer);
            }
        }
        Ok(Next::Read)
    }
}

/// Takes a throttle; not if it is none, or if there is no room for it yet.
#[inline]
fn take(throttles: &mut Throttles, dialect: Dialect, arguments: Arguments<'_>, resp: &Resp) -> bool {
    let taken = Throttle::parse(dialect, arguments).and_then(|throttle| throttles.take(throttle, resp));
    matches!(taken, Ok(Taken::Yes))
}

/// Takes a throttle, now that no other waits, or says why not.
fn take_or_refuse(
    throttles: &mut Throttles,
    dialect: Dialect,
    arguments: Arguments<'_>,
    resp: &Resp,
    replies: &mut Replies,
) {
    let taken = Throttle::parse(dialect, arguments).and_then(|throttle| throttles.take(throttle, resp));
    if let Err(error) = taken {
        replies.error(&error.to_string());
    }
}

/// Why a command is not even looked at.
enum Refusal {
    /// The client is told so.
    Words(String),
    /// It is a browser that was made to speak to us, as by a page that wants
    /// to reach the servers behind a firewall.
    Attack,
}

#[inline]
fn admit(arguments: Arguments<'_>, client: &Client) -> Result<Kind, Refusal> {
    let name = arguments.name();
    let Some(command) = Command::named(name) else {
        if name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") {
            return Err(Refusal::Attack);
        }
        return Err(Refusal::Words(unknown(arguments)));
    };
    if !command.takes(arguments.count()) {
        let words = format!("ERR wrong number of arguments for '{}' command", command.name);
        return Err(Refusal::Words(words));
    }
    if client.is_stranger() && !command.flags.contains(&"no_auth") {
        return Err(Refusal::Words("NOAUTH Authentication required.".into()));
    }
    Ok(command.kind)
}

/// In the words of Redis, with as many of the arguments.
fn unknown(arguments: Arguments<'_>) -> String {
    const LONGEST: usize = 128;
    let mut beginning = String::new();
    for argument in arguments.from(1) {
        if beginning.len() >= LONGEST {
            break;
        }
        beginning.extend(["'", &shown(argument), "' "]);
    }
    format!("ERR unknown command '{}', with args beginning with: {beginning}", shown(arguments.name()))
}

async fn ask(verb: Verb, arguments: Arguments<'_>, resp: &Resp, replies: &mut Replies) {
    let Question { request, limit } = match Question::parse(arguments) {
        Ok(question) => question,
        Err(error) => return replies.error(&error.to_string()),
    };
    let inline;
    let limiter = match limit.map(|limit| resp.app.inline(limit)) {
        None => &resp.app.limiter,
        Some(Ok(found)) => {
            inline = found;
            &inline.limiter
        }
        Some(Err(error)) => return replies.error(&format!("ERR {error}")),
    };
    let decision = match verb {
        Verb::Check => limiter.check_async(request).await,
        Verb::Peek => limiter.peek_async(request).await,
        Verb::Refund => limiter.refund_async(request).await,
        Verb::Reset => limiter.reset_async(request).await,
        Verb::Explain => {
            return match limiter.explain_async(request).await {
                Ok(explanation) => replies.verbatim(&explanation.to_string()),
                Err(error) => {
                    resp.app.metrics.failed(&error);
                    write_failure(&error, replies);
                }
            };
        }
    };
    match decision {
        Ok(decision) => write_decision(&decision, replies),
        Err(error) => {
            resp.app.metrics.failed(&error);
            write_failure(&error, replies);
        }
    }
}
