//! What a connection does with the bytes that arrive: commands in, answers out,
//! without a socket.

use std::sync::Arc;

use super::Resp;
use super::client::Client;
use super::command::{Command, Kind, Step, Talk};
use super::frame::{Arguments, Parser, ProtocolError};
use super::reply::Replies;
use super::request::{self, shown, write_decision, write_failure};
use super::throttle::{Dialect, Throttle, ThrottleError};
use super::throttles::{Taken, Throttles};
use super::transaction::Transaction;
use crate::access::audit::{Action, AuditOutcome, Entry};
use crate::ask::call::Call;
use crate::ask::inline::Inline;
use crate::ask::request::Ask;
use crate::run::admission::TURN;
use crate::run::buffered::FREE;
use crate::run::peer::Link;
use crate::settings::rights::Right;
use crate::wire::app::App;

/// Room for what arrives at a time, and for its answers: pipelines of 200
/// throttles. Pages that are never written to cost nothing.
pub(super) const ROOM: usize = 16 * 1024;
/// Answers that are held while their client is not reading. Its next commands
/// wait until these are sent.
pub const MAX_UNSENT: usize = 64 * 1024;

const NO_WATCH: &str =
    "ERR WATCH is not supported: EXEC does not know whether a key was changed; send MULTI without it";

const NO_REFUND: &str =
    "NOPERM a negative quantity gives back, and this user has no permissions for it: it needs the right manage";

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
    responder: Responder,
}

/// What answers the commands, wherever they are held.
struct Responder {
    throttles: Throttles,
    client: Client,
    replies: Replies,
    resp: Arc<Resp>,
    /// What `MULTI` has begun.
    queued: Option<Box<Transaction>>,
    /// What `EXEC` has yet to answer.
    executing: Option<Box<Transaction>>,
    /// Decisions since other connections of the thread had their turn.
    decided: usize,
}

impl Session {
    /// A connection that has just been opened.
    #[must_use]
    pub(crate) fn new(resp: Arc<Resp>, link: Link) -> Session {
        let client = Client::new(&resp, link);
        let mut parser = Parser::default();
        parser.set_stranger(client.is_stranger());
        let (throttles, replies) = (Throttles::default(), Replies::default());
        let responder = Responder { throttles, client, replies, resp, queued: None, executing: None, decided: 0 };
        Session { parser, responder }
    }

    /// Answers to be sent.
    #[must_use]
    pub fn unsent(&self) -> &[u8] {
        self.responder.replies.as_bytes()
    }

    /// The answers have been sent.
    pub fn sent(&mut self) {
        self.responder.replies.clear(ROOM);
    }

    /// Answers the commands that have arrived whole, and drops them from the
    /// buffer. What then is left is half a command, unless the answers are to
    /// be sent first.
    pub async fn answer(&mut self, buffer: &mut Vec<u8>) -> Next {
        let next = self.answer_all(buffer).await;
        self.responder.decide(buffer).await;
        buffer.drain(..self.parser.forget());
        next.unwrap_or_else(|error| {
            self.responder.replies.error(&format!("ERR Protocol error: {error}"));
            Next::Close
        })
    }

    /// Answers all but the throttles at the end, which wait to be decided.
    async fn answer_all(&mut self, buffer: &mut [u8]) -> Result<Next, ProtocolError> {
        let Session { parser, responder } = self;
        responder.client.know_again(&responder.resp.app);
        let mut next = responder.execute().await;
        while next == Next::Read && parser.advance(buffer)? {
            let arguments = parser.arguments(buffer);
            let command = admit(arguments, &responder.client);
            if let Ok(Kind::Throttle(dialect)) = command
                && responder.queued.is_none()
                && responder.takes(dialect, arguments)
            {
                continue;
            }
            responder.decide(buffer).await;
            next = match command {
                Err(Refusal::Words(words)) => responder.refuse(&words),
                Err(Refusal::Attack) => Next::Close,
                Ok(kind) if responder.is_to_queue(kind) => responder.queue(kind, arguments),
                Ok(kind) => responder.answer(kind, arguments).await,
            };
            parser.set_stranger(responder.client.is_stranger());
            if next == Next::Read {
                next = responder.execute().await;
            }
        }
        Ok(next)
    }
}

impl Responder {
    /// Takes a throttle; not if it is none, or if there is no room for it yet.
    #[inline]
    fn takes(&mut self, dialect: Dialect, arguments: Arguments<'_>) -> bool {
        matches!(self.take(dialect, arguments), Ok(Taken::Yes))
    }

    #[inline]
    fn take(&mut self, dialect: Dialect, arguments: Arguments<'_>) -> Result<Taken, ThrottleError> {
        let throttle = Throttle::parse(dialect, arguments)?;
        if throttle.is_refund() && !self.client.may(Right::Manage) {
            return Err(ThrottleError::NotPermitted(NO_REFUND));
        }
        self.throttles.take(throttle, &self.resp)
    }

    /// Decides and answers the throttles that wait, whose keys are in the buffer.
    async fn decide(&mut self, buffer: &[u8]) {
        let (decided, refunds) = self.throttles.decide(&self.resp, buffer, &mut self.replies).await;
        refunds.into_iter().for_each(|is_done| self.audit(Call::Refund, is_done));
        self.take_turns(decided).await;
    }

    /// Lets other connections of the thread go on, once this one has had its turn.
    async fn take_turns(&mut self, decided: usize) {
        self.decided += decided;
        if self.decided >= TURN {
            self.decided = 0;
            tokio::task::yield_now().await;
        }
    }

    /// Answers a command, now that no throttle waits. A throttle is taken, and waits.
    async fn answer(&mut self, kind: Kind, arguments: Arguments<'_>) -> Next {
        // What was queued may have been admitted for another user.
        if kind.right().is_some_and(|right| !self.client.may(right)) {
            let name = shown(arguments.name()).to_lowercase();
            self.replies.error(&self.client.missing_right(&name));
            return self.next();
        }
        match kind {
            Kind::Throttle(dialect) => {
                if let Err(error) = self.take(dialect, arguments) {
                    self.replies.error(&error.to_string());
                }
            }
            Kind::Ask(call) => {
                let has_decided = self.ask(call, arguments).await;
                self.audit(call, has_decided);
                self.take_turns(1).await;
            }
            Kind::Explain => {
                self.explain(arguments).await;
                self.take_turns(1).await;
            }
            Kind::Talk(talk) => {
                if talk == Talk::Reset {
                    self.queued = None;
                }
                self.client.answer(talk, arguments, &self.resp, &mut self.replies).await;
                if talk == Talk::Quit {
                    return Next::Close;
                }
            }
            Kind::Transaction(step) => self.step(step),
        }
        self.next()
    }

    /// Says whether there was a decision.
    async fn ask(&mut self, call: Call, arguments: Arguments<'_>) -> bool {
        let replies = &mut self.replies;
        let app = &self.resp.app;
        let decided = match read(call, arguments, app) {
            Ok((ask, inline)) => app.decide(call.verb(), &ask, inline.as_deref()).await,
            Err(words) => {
                replies.error(&words);
                return false;
            }
        };
        match &decided {
            Ok(decision) => write_decision(decision, replies),
            Err(error) => write_failure(error, replies),
        }
        decided.is_ok()
    }

    async fn explain(&mut self, arguments: Arguments<'_>) {
        let replies = &mut self.replies;
        let app = &self.resp.app;
        match read(Call::Peek, arguments, app) {
            Ok((ask, inline)) => match app.explain(&ask, inline.as_deref()).await {
                Ok(explained) => replies.verbatim(&explained.to_string()),
                Err(error) => write_failure(&error, replies),
            },
            Err(words) => replies.error(&words),
        }
    }

    /// Keeps a record of what changes counts without a charge.
    fn audit(&self, call: Call, is_done: bool) {
        let action = match call {
            Call::Refund => Action::Refund,
            Call::Reset => Action::Reset,
            Call::Check | Call::Peek | Call::Report => return,
            Call::Reserve | Call::Settle | Call::Renew | Call::Release => return,
        };
        let (link, identity) = self.client.who();
        let (peer, identity, outcome) = (Some(link.peer), identity.name(), AuditOutcome::of(is_done));
        self.resp.app.guards.audit.record(Entry { peer, identity, action, outcome, policy: None, reason: None });
    }

    /// Says why a command is not admitted. `EXEC` then runs none of those before and after it.
    fn refuse(&mut self, words: &str) -> Next {
        if let Some(queued) = &mut self.queued {
            queued.abort();
        }
        self.replies.error(words);
        self.next()
    }

    fn is_to_queue(&self, kind: Kind) -> bool {
        let is_immediate = matches!(kind, Kind::Transaction(_) | Kind::Talk(Talk::Reset | Talk::Quit));
        self.queued.is_some() && !is_immediate
    }

    fn queue(&mut self, kind: Kind, arguments: Arguments<'_>) -> Next {
        match self.queued.as_mut().map_or(Ok(()), |queued| queued.push(kind, arguments)) {
            Ok(()) => self.replies.status("QUEUED"),
            Err(error) => self.replies.error(&error.to_string()),
        }
        self.next()
    }

    fn step(&mut self, step: Step) {
        let replies = &mut self.replies;
        match (step, self.queued.take()) {
            (Step::Multi, None) => {
                self.queued = Some(Box::new(Transaction::new(self.resp.app.guards.buffered.hold(FREE))));
                replies.status("OK");
            }
            (Step::Exec, Some(queued)) if queued.is_aborted() => {
                replies.error("EXECABORT Transaction discarded because of previous errors.");
            }
            (Step::Exec, Some(queued)) => {
                replies.array(queued.len());
                self.executing = Some(queued);
            }
            (Step::Discard, Some(_)) => replies.status("OK"),
            (Step::Exec, None) => replies.error("ERR EXEC without MULTI"),
            (Step::Discard, None) => replies.error("ERR DISCARD without MULTI"),
            (Step::Watch, None) => replies.error(NO_WATCH),
            (Step::Multi, queued) => {
                self.queued = queued;
                replies.error("ERR MULTI calls can not be nested");
            }
            (Step::Watch, queued) => {
                self.queued = queued;
                replies.error("ERR WATCH inside MULTI is not allowed");
            }
        }
    }

    /// Answers what `EXEC` has yet to answer, until the answers are to be sent.
    async fn execute(&mut self) -> Next {
        let Some(mut transaction) = self.executing.take() else { return Next::Read };
        let (mut next, mut answered) = (Next::Read, transaction.answered);
        while next == Next::Read
            && let Some((kind, arguments)) = transaction.get(answered)
        {
            answered += 1;
            if let Kind::Throttle(dialect) = kind
                && self.client.may(Right::Check)
                && self.takes(dialect, arguments)
            {
                continue;
            }
            self.decide(transaction.bytes()).await;
            next = self.answer(kind, arguments).await;
        }
        self.decide(transaction.bytes()).await;
        if next == Next::Answer {
            transaction.answered = answered;
            self.executing = Some(transaction);
        }
        next
    }

    fn next(&self) -> Next {
        if self.replies.as_bytes().len() >= MAX_UNSENT { Next::Answer } else { Next::Read }
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
    let Some(mut command) = Command::named(name) else {
        if name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") {
            return Err(Refusal::Attack);
        }
        return Err(Refusal::Words(unknown(arguments)));
    };
    if !command.subcommands.is_empty()
        && let Some(word) = arguments.get(1)
    {
        command = command.subcommand(word).ok_or_else(|| {
            let container = command.name.to_uppercase();
            Refusal::Words(format!("ERR unknown subcommand '{}'. Try {container} HELP.", shown(word)))
        })?;
    }
    let Some(kind) = command.kind.filter(|_| command.takes(arguments.count())) else {
        let words = format!("ERR wrong number of arguments for '{}' command", command.name);
        return Err(Refusal::Words(words));
    };
    let is_permitted = match kind.right() {
        Some(right) => client.may(right),
        None => !client.is_stranger() || command.flags.contains(&"no_auth") || kind == Kind::Talk(Talk::Ping),
    };
    if is_permitted { Ok(kind) } else { Err(Refusal::Words(client.missing_right(command.name))) }
}

/// In the words of Redis, with as many of the arguments.
fn unknown(arguments: Arguments<'_>) -> String {
    const MAX_SHOWN: usize = 128;
    let mut beginning = String::new();
    for argument in arguments.from(1) {
        if beginning.len() >= MAX_SHOWN {
            break;
        }
        beginning.extend(["'", &shown(argument), "' "]);
    }
    format!("ERR unknown command '{}', with args beginning with: {beginning}", shown(arguments.name()))
}

/// The request of a command, and the limit that it brings.
fn read<'a>(call: Call, arguments: Arguments<'a>, app: &App) -> Result<(Ask<'a>, Option<Arc<Inline>>), String> {
    let ask = request::parse(call, arguments).map_err(|error| error.to_string())?;
    let inline = ask.inline(&app.engine).map_err(|error| format!("ERR {error}"))?;
    Ok((ask, inline))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::cell::RefCell;

    use tidegate::MemoryStore;

    use super::*;
    use crate::{Server, Settings};

    /// On one thread, by the order of the answers.
    #[tokio::test]
    async fn a_command_is_answered_before_a_long_pipeline_or_transaction_that_was_begun_before_it() {
        let settings = Settings { http: Vec::new(), ..Settings::default() };
        let server = Server::start(settings, MemoryStore::default()).await.unwrap();
        let resp = Resp::new(Arc::clone(server.app()));
        let throttles = "CL.THROTTLE a 15 1 1\r\n".repeat(400);
        let checks = "TIDEGATE.PEEK KEY a LIMIT 1/s\r\n".repeat(400);
        for long in [throttles.clone(), checks, format!("MULTI\r\n{throttles}EXEC\r\n")] {
            let order = RefCell::new(Vec::new());
            let answer = async |name, commands: &str| {
                let (mut session, mut buffer) = (
                    Session::new(Arc::clone(&resp), Link::new(crate::run::peer::Peer::Unix)),
                    commands.as_bytes().to_vec(),
                );
                while session.answer(&mut buffer).await == Next::Answer {
                    session.sent();
                }
                order.borrow_mut().push(name);
            };
            tokio::join!(answer("long", &long), answer("short", "CL.THROTTLE b 15 1 1\r\n"));
            assert_eq!(*order.borrow(), ["short", "long"], "{}", &long[..20]);
        }
    }
}
