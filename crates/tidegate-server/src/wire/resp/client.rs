//! What clients of Redis ask before they come to the point: who they are, which
//! version they speak, what there is.

use std::fmt::Write as _;

use super::Resp;
use super::command::{About, Talk};
use super::describe::describe;
use super::frame::Arguments;
use super::reply::{Protocol, Replies};
use super::request::shown;
use super::throttle::parse_integer;
use crate::access::digest::Digest;
use crate::access::{Caller, Credential, Denied, Identity};
use crate::ask::outcome::Outcome;
use crate::run::peer::Link;
use crate::run::protocol::Protocol as Wire;
use crate::settings::rights::{Right, Rights};
use crate::wire::app::App;

/// The version of Redis whose conversation this is: some clients look before
/// they speak.
const REDIS_VERSION: &str = "7.2.0";
/// The longest name that a client can give to itself or its library.
const MAX_NAME_BYTES: usize = 256;

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the default user. \
                           Are you sure your configuration is correct?";
const HELLO_FIRST: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
                           <proto> AUTH <user> <pass> option can be used to authenticate the client and select the \
                           RESP protocol version at the same time";
const TOO_MANY_FAILURES: &str = "ERR too many wrong passwords came from this address: retry later";
const NO_AUTH: &str = "NOAUTH Authentication required.";
const NO_INTEGER: &str = "ERR value is not an integer or out of range";
const BAD_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";

/// The client of a connection.
pub(super) struct Client {
    id: u64,
    name: Vec<u8>,
    library: Vec<u8>,
    library_version: Vec<u8>,
    link: Link,
    identity: Identity,
    /// What it has proven who it is by.
    proof: Option<Digest>,
    /// Of the tokens that it was known by.
    generation: u64,
}

impl Client {
    pub(super) fn new(resp: &Resp, link: Link) -> Client {
        let (name, library, library_version) = Default::default();
        let identity = Identity::anonymous(Rights::default());
        let generation = resp.app.guards.access.generation();
        let id = resp.next_id();
        let mut client = Client { id, name, library, library_version, link, identity, proof: None, generation };
        client.know(&resp.app);
        client
    }

    /// Whether it has yet to say who it is.
    #[inline]
    pub(super) fn is_stranger(&self) -> bool {
        self.identity.is_anonymous() && self.identity.rights().is_empty()
    }

    /// Who it is, and where it comes from.
    pub(super) fn who(&self) -> (&Link, &Identity) {
        (&self.link, &self.identity)
    }

    #[inline]
    pub(super) fn may(&self, right: Right) -> bool {
        self.identity.rights().contains(right)
    }

    /// What to say where a right is missing.
    pub(super) fn missing_right(&self, command: &str) -> String {
        match self.identity.is_anonymous() {
            true => NO_AUTH.to_owned(),
            false => {
                format!("{} this user has no permissions to run the '{command}' command", Outcome::Forbidden.word())
            }
        }
    }

    /// Finds out again who it is, if there are other tokens now.
    #[inline]
    pub(super) fn know_again(&mut self, app: &App) {
        if self.generation != app.guards.access.generation() {
            self.know(app);
        }
    }

    /// By what it has proven; if that is worth nothing any more, it is anonymous.
    fn know(&mut self, app: &App) {
        self.generation = app.guards.access.generation();
        let caller = |credential| Caller { protocol: Wire::Resp, link: &self.link, credential, page: None };
        let proven = app.guards.access.identify(&caller(self.proof.as_ref().map(Credential::Proven)));
        let identity = match proven {
            Ok(identity) => identity,
            Err(_) => {
                let unproven = app.guards.access.identify(&caller(None));
                self.proof = None;
                unproven.unwrap_or_else(|_| Identity::anonymous(Rights::default()))
            }
        };
        self.identity = identity;
    }

    /// Whether a user's secret is right. A wrong one takes long, beyond the budget of its address.
    async fn prove(&self, user: &[u8], secret: &[u8], app: &App) -> Result<Option<Digest>, &'static str> {
        if !app.guards.access.takes_tokens(Wire::Resp) {
            // Redis lets the default user in with any password if it has none.
            return if user == b"default" { Ok(None) } else { Err(WRONG_PASSWORD) };
        }
        let credential = Some(Credential::Secret { user: Some(user), secret });
        match app.identify(&Caller { protocol: Wire::Resp, link: &self.link, credential, page: None }) {
            Ok(_) => Ok(Some(Digest::of(secret))),
            Err(denied) => {
                if let Some(delay) = denied.delay() {
                    tokio::time::sleep(delay).await;
                }
                Err(if matches!(denied, Denied::TooManyFailures { .. }) { TOO_MANY_FAILURES } else { WRONG_PASSWORD })
            }
        }
    }

    /// Answers everything that is not about limits.
    pub(super) async fn answer(&mut self, talk: Talk, arguments: Arguments<'_>, resp: &Resp, replies: &mut Replies) {
        match talk {
            Talk::Ping => ping(arguments, replies),
            Talk::Echo => replies.bulk(arguments.get(1).unwrap_or_default()),
            Talk::Hello => self.hello(arguments, resp, replies).await,
            Talk::Auth => self.auth(arguments, resp, replies).await,
            Talk::Client(about) => self.about(about, arguments, replies),
            Talk::Command(what) => describe(what, arguments, replies),
            Talk::Info => replies.verbatim(&info(arguments, resp)),
            Talk::Select => select(arguments, replies),
            Talk::Unwatch | Talk::Quit => replies.status("OK"),
            Talk::Reset => {
                self.name.clear();
                self.proof = None;
                self.know(&resp.app);
                replies.set_protocol(Protocol::Resp2);
                replies.status("RESET");
            }
        }
    }

    async fn hello(&mut self, arguments: Arguments<'_>, resp: &Resp, replies: &mut Replies) {
        let mut words = arguments.from(1);
        let protocol = match words.next().map(parse_integer) {
            None => replies.protocol(),
            Some(Some(2)) => Protocol::Resp2,
            Some(Some(3)) => Protocol::Resp3,
            Some(Some(_)) => return replies.error("NOPROTO unsupported protocol version"),
            Some(None) => return replies.error("ERR Protocol version is not an integer or out of range"),
        };
        let (mut name, mut proof) = (None, None);
        while let Some(option) = words.next() {
            if option.eq_ignore_ascii_case(b"AUTH") {
                let (Some(user), Some(given)) = (words.next(), words.next()) else {
                    return syntax_error(option, replies);
                };
                proof = match self.prove(user, given, &resp.app).await {
                    Ok(proven) => Some(proven),
                    Err(words) => return replies.error(words),
                };
            } else if option.eq_ignore_ascii_case(b"SETNAME") {
                match words.next() {
                    Some(given) if is_name(given) => name = Some(given),
                    Some(_) => return replies.error(BAD_NAME),
                    None => return syntax_error(option, replies),
                }
            } else {
                return syntax_error(option, replies);
            }
        }
        if let Some(proven) = proof {
            self.proof = proven;
            self.know(&resp.app);
        }
        if self.is_stranger() {
            return replies.error(HELLO_FIRST);
        }
        if let Some(name) = name {
            self.name = name.to_vec();
        }
        replies.set_protocol(protocol);
        replies.map(7);
        for (field, value) in [("server", "tidegate"), ("version", env!("CARGO_PKG_VERSION"))] {
            replies.bulk(field.as_bytes());
            replies.bulk(value.as_bytes());
        }
        replies.bulk(b"proto");
        replies.integer(protocol.number());
        replies.bulk(b"id");
        replies.integer(self.number());
        for (field, value) in [("mode", "standalone"), ("role", "master")] {
            replies.bulk(field.as_bytes());
            replies.bulk(value.as_bytes());
        }
        replies.bulk(b"modules");
        replies.array(0);
    }

    async fn auth(&mut self, arguments: Arguments<'_>, resp: &Resp, replies: &mut Replies) {
        let (user, given) = match (arguments.get(1), arguments.get(2), arguments.count()) {
            (Some(given), None, 2) => (&b"default"[..], given),
            (Some(user), Some(given), 3) => (user, given),
            _ => return replies.error("ERR syntax error"),
        };
        if !resp.app.guards.access.takes_tokens(Wire::Resp) && arguments.count() == 2 {
            return replies.error(NO_PASSWORD);
        }
        match self.prove(user, given, &resp.app).await {
            Ok(proven) => {
                self.proof = proven;
                self.know(&resp.app);
                replies.status("OK");
            }
            Err(words) => replies.error(words),
        }
    }

    /// `CLIENT`.
    fn about(&mut self, about: About, arguments: Arguments<'_>, replies: &mut Replies) {
        match about {
            About::Id => replies.integer(self.number()),
            About::GetName if self.name.is_empty() => replies.null(),
            About::GetName => replies.bulk(&self.name),
            About::SetName => match arguments.get(2) {
                Some(name) if is_name(name) => {
                    self.name = name.to_vec();
                    replies.status("OK");
                }
                _ => replies.error(BAD_NAME),
            },
            About::SetInfo => self.set_info(arguments, replies),
            About::Info => replies.verbatim(&self.line(replies.protocol())),
            // There is nothing to evict or to touch.
            About::NoEvict | About::NoTouch => replies.status("OK"),
        }
    }

    fn set_info(&mut self, arguments: Arguments<'_>, replies: &mut Replies) {
        let (option, value) = (arguments.get(2).unwrap_or_default(), arguments.get(3).unwrap_or_default());
        let field = match &*option.to_ascii_lowercase() {
            b"lib-name" => &mut self.library,
            b"lib-ver" => &mut self.library_version,
            _ => return replies.error(&format!("ERR Unrecognized option '{}'", shown(option))),
        };
        if !is_name(value) {
            let words = "ERR lib-name and lib-ver cannot contain spaces, newlines or special characters.";
            return replies.error(words);
        }
        *field = value.to_vec();
        replies.status("OK");
    }

    /// The connection in one line, as `CLIENT INFO` has it.
    fn line(&self, protocol: Protocol) -> String {
        let Client { id, name, library, library_version, .. } = self;
        let [name, library, version] = [name, library, library_version].map(|text| String::from_utf8_lossy(text));
        let resp = protocol.number();
        format!("id={id} name={name} db=0 resp={resp} lib-name={library} lib-ver={version}\n")
    }

    fn number(&self) -> i64 {
        i64::try_from(self.id).unwrap_or(i64::MAX)
    }
}

/// Whether this is text that fits into a line of `CLIENT INFO`.
fn is_name(name: &[u8]) -> bool {
    name.len() <= MAX_NAME_BYTES && name.iter().all(|byte| matches!(byte, b'!'..=b'~'))
}

fn ping(arguments: Arguments<'_>, replies: &mut Replies) {
    match (arguments.get(1), arguments.count()) {
        (None, _) => replies.status("PONG"),
        (Some(message), 2) => replies.bulk(message),
        (Some(_), _) => replies.error("ERR wrong number of arguments for 'ping' command"),
    }
}

fn select(arguments: Arguments<'_>, replies: &mut Replies) {
    match arguments.get(1).and_then(parse_integer) {
        Some(0) => replies.status("OK"),
        Some(_) => replies.error("ERR DB index is out of range"),
        None => replies.error(NO_INTEGER),
    }
}

fn syntax_error(option: &[u8], replies: &mut Replies) {
    replies.error(&format!("ERR Syntax error in HELLO option '{}'", shown(option)));
}

/// A field of `INFO`, and what it says.
type Line<'a> = (&'a str, &'a dyn std::fmt::Display);

/// The sections that were asked for, or all.
fn info(arguments: Arguments<'_>, resp: &Resp) -> String {
    let all = ["default", "all", "everything"];
    let wanted = |section: &str| {
        let names = |wanted: &[u8]| {
            let is = |name: &str| wanted.eq_ignore_ascii_case(name.as_bytes());
            is(section) || all.into_iter().any(is)
        };
        arguments.count() == 1 || arguments.from(1).any(names)
    };
    let app = &resp.app;
    let sections: [(&str, &[Line<'_>]); 3] = [
        (
            "Server",
            &[
                ("redis_version", &REDIS_VERSION),
                ("redis_mode", &"standalone"),
                ("tidegate_version", &env!("CARGO_PKG_VERSION")),
                ("process_id", &std::process::id()),
                ("uptime_in_seconds", &app.started.elapsed().as_secs()),
            ],
        ),
        (
            "Clients",
            &[("connected_clients", &app.guards.connections.open()), ("maxclients", &app.guards.connections.max())],
        ),
        ("Tidegate", &[("tidegate_store", &app.engine.store().name()), ("tidegate_max_keys", &app.settings.max_keys)]),
    ];
    let mut text = String::new();
    for (section, lines) in sections {
        if !wanted(section) {
            continue;
        }
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let _ = write!(text, "# {section}\r\n");
        for (field, value) in lines {
            let _ = write!(text, "{field}:{value}\r\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_redis_begin_with_those_of_the_outcomes() {
        for (words, outcome) in [
            (NO_AUTH, Outcome::Unauthenticated),
            (HELLO_FIRST, Outcome::Unauthenticated),
            (WRONG_PASSWORD, Outcome::WrongCredential),
            (TOO_MANY_FAILURES, Outcome::TooManyFailures),
        ] {
            assert_eq!(words.split(' ').next(), Some(outcome.word()));
        }
    }
}
