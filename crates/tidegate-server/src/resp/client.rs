//! What clients of Redis ask before they come to the point: who they are, which
//! version they speak, what there is.

use std::fmt::Write as _;

use super::Resp;
use super::command::{About, Talk};
use super::describe::describe;
use super::frame::Arguments;
use super::question::shown;
use super::reply::{Protocol, Replies};
use super::session::Next;
use super::throttle::parse_integer;

/// The version of Redis whose conversation this is: some clients look before
/// they speak.
const REDIS_VERSION: &str = "7.2.0";
/// The longest name that a client can give to itself or its library.
const LONGEST_NAME: usize = 256;

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the default user. \
                           Are you sure your configuration is correct?";
const HELLO_FIRST: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
                           <proto> AUTH <user> <pass> option can be used to authenticate the client and select the \
                           RESP protocol version at the same time";
const NO_INTEGER: &str = "ERR value is not an integer or out of range";
const BAD_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";

/// Whoever is at the other end of a connection.
pub(super) struct Client {
    id: u64,
    name: Vec<u8>,
    library: Vec<u8>,
    library_version: Vec<u8>,
    is_stranger: bool,
}

impl Client {
    pub(super) fn new(resp: &Resp) -> Client {
        let is_stranger = password(resp).is_some();
        Client { id: resp.next_id(), name: Vec::new(), library: Vec::new(), library_version: Vec::new(), is_stranger }
    }

    /// Whether it has yet to say the password.
    #[inline]
    pub(super) fn is_stranger(&self) -> bool {
        self.is_stranger
    }

    /// Answers everything that is not about limits.
    pub(super) fn answer(&mut self, talk: Talk, arguments: Arguments<'_>, resp: &Resp, replies: &mut Replies) -> Next {
        match talk {
            Talk::Ping => ping(arguments, replies),
            Talk::Echo => replies.bulk(arguments.get(1).unwrap_or_default()),
            Talk::Hello => self.hello(arguments, resp, replies),
            Talk::Auth => self.auth(arguments, resp, replies),
            Talk::Client(about) => self.about(about, arguments, replies),
            Talk::Command(what) => describe(what, arguments, replies),
            Talk::Info => replies.verbatim(&info(arguments, resp)),
            Talk::Select => select(arguments, replies),
            Talk::Unwatch => replies.status("OK"),
            Talk::Reset => {
                self.name.clear();
                self.is_stranger = password(resp).is_some();
                replies.set_protocol(Protocol::Resp2);
                replies.status("RESET");
            }
            Talk::Quit => {
                replies.status("OK");
                return Next::Close;
            }
        }
        Next::Read
    }

    fn hello(&mut self, arguments: Arguments<'_>, resp: &Resp, replies: &mut Replies) {
        let mut words = arguments.from(1);
        let protocol = match words.next().map(parse_integer) {
            None => replies.protocol(),
            Some(Some(2)) => Protocol::Resp2,
            Some(Some(3)) => Protocol::Resp3,
            Some(Some(_)) => return replies.error("NOPROTO unsupported protocol version"),
            Some(None) => return replies.error("ERR Protocol version is not an integer or out of range"),
        };
        let (mut name, mut is_stranger) = (None, self.is_stranger);
        while let Some(option) = words.next() {
            if option.eq_ignore_ascii_case(b"AUTH") {
                let (Some(user), Some(given)) = (words.next(), words.next()) else {
                    return syntax_error(option, replies);
                };
                if let Err(words) = check_password(user, given, resp) {
                    return replies.error(words);
                }
                is_stranger = false;
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
        if is_stranger {
            return replies.error(HELLO_FIRST);
        }
        self.is_stranger = false;
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

    fn auth(&mut self, arguments: Arguments<'_>, resp: &Resp, replies: &mut Replies) {
        let (user, given) = match (arguments.get(1), arguments.get(2), arguments.count()) {
            (Some(given), None, 2) => (&b"default"[..], given),
            (Some(user), Some(given), 3) => (user, given),
            _ => return replies.error("ERR syntax error"),
        };
        if password(resp).is_none() && arguments.count() == 2 {
            return replies.error(NO_PASSWORD);
        }
        match check_password(user, given, resp) {
            Ok(()) => {
                self.is_stranger = false;
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

/// An empty one is none, as in Redis.
fn password(resp: &Resp) -> Option<&str> {
    resp.app.settings.resp_password.as_deref().filter(|password| !password.is_empty())
}

/// Takes as long for a password that is nearly right.
fn check_password(user: &[u8], given: &[u8], resp: &Resp) -> Result<(), &'static str> {
    let Some(password) = password(resp) else {
        // Redis lets the default user in with any password if it has none.
        return if user == b"default" { Ok(()) } else { Err(WRONG_PASSWORD) };
    };
    let password = password.as_bytes();
    let differences = given.iter().zip(password).fold(0, |found, (a, b)| found | (a ^ b));
    let right = differences == 0 && given.len() == password.len() && user == b"default";
    if right { Ok(()) } else { Err(WRONG_PASSWORD) }
}

/// Whether this is text that fits into a line of `CLIENT INFO`.
fn is_name(name: &[u8]) -> bool {
    name.len() <= LONGEST_NAME && name.iter().all(|byte| matches!(byte, b'!'..=b'~'))
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
                ("uptime_in_seconds", &resp.started.elapsed().as_secs()),
            ],
        ),
        ("Clients", &[("connected_clients", &app.connections.open()), ("maxclients", &app.connections.max())]),
        ("Tidegate", &[("tidegate_store", &app.store().name()), ("tidegate_max_keys", &app.settings.max_keys)]),
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
