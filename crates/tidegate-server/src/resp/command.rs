//! The commands, in one table: what they are called, how many arguments they
//! take, and what `COMMAND` tells of them.

use super::question::Verb;
use super::throttle::Dialect;

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Throttle(Dialect),
    Ask(Verb),
    Talk(Talk),
}

/// What is not about limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Talk {
    Ping,
    Echo,
    Hello,
    Auth,
    Client,
    Command,
    Info,
    Select,
    Reset,
    Quit,
}

/// One command.
#[derive(Debug)]
pub struct Command {
    /// What it does.
    pub kind: Kind,
    /// Its name, in small letters.
    pub name: &'static str,
    /// How many arguments it has, its name included; at least so many if negative.
    pub arity: i64,
    /// As Redis names them.
    pub flags: &'static [&'static str],
    /// Whether its first argument is a key.
    pub has_key: bool,
    /// What it is for.
    pub summary: &'static str,
    /// Its arguments, in order.
    pub arguments: &'static [Argument],
}

/// An argument, as `COMMAND DOCS` tells of it.
#[derive(Debug)]
pub struct Argument {
    /// Its name.
    pub name: &'static str,
    /// `string`, `integer`, `key`, `pure-token`.
    pub kind: &'static str,
    /// The word before it.
    pub token: Option<&'static str>,
    /// As Redis names them.
    pub flags: &'static [&'static str],
}

const fn argument(name: &'static str, kind: &'static str) -> Argument {
    Argument { name, kind, token: None, flags: &[] }
}

const fn optional(name: &'static str, kind: &'static str) -> Argument {
    Argument { name, kind, token: None, flags: &["optional"] }
}

const fn option(token: &'static str, name: &'static str, kind: &'static str) -> Argument {
    Argument { name, kind, token: Some(token), flags: &["optional"] }
}

const THROTTLE: &[Argument] = &[
    argument("key", "key"),
    argument("max_burst", "integer"),
    argument("count", "integer"),
    argument("period", "integer"),
    optional("quantity", "integer"),
];

const QUESTION: &[Argument] = &[
    Argument { name: "attribute value", kind: "string", token: None, flags: &["optional", "multiple"] },
    option("KEY", "key", "string"),
    option("LIMIT", "limit", "string"),
    option("COST", "cost", "integer"),
    option("RULE", "rule", "string"),
    option("ID", "id", "string"),
];

const FAST: &[&str] = &["fast", "loading", "stale"];
const WRITE: &[&str] = &["write", "fast"];
const READ: &[&str] = &["readonly", "fast"];
const OPEN: &[&str] = &["fast", "loading", "stale", "no_auth"];

/// All of them, the busiest first: they are looked for in this order.
pub const COMMANDS: &[Command] = &[
    Command {
        kind: Kind::Throttle(Dialect::RedisCell),
        name: "cl.throttle",
        // As a module's command, it counts its arguments itself.
        arity: -1,
        flags: WRITE,
        has_key: true,
        summary: "Charges a token bucket as redis-cell does: limited, limit, remaining, retry after, reset after",
        arguments: THROTTLE,
    },
    Command {
        kind: Kind::Throttle(Dialect::Throttlecrab),
        name: "throttle",
        arity: -1,
        flags: WRITE,
        has_key: true,
        summary: "Charges a token bucket as throttlecrab does: allowed, limit, remaining, reset after, retry after",
        arguments: THROTTLE,
    },
    question("tidegate.check", Verb::Check, WRITE, "Charges a request if all limits of the policy let it pass"),
    question("tidegate.peek", Verb::Peek, READ, "Says what a check would answer, without charging"),
    question("tidegate.refund", Verb::Refund, WRITE, "Gives back what a request was charged"),
    question("tidegate.reset", Verb::Reset, WRITE, "Forgets what a request's keys were charged"),
    question("tidegate.explain", Verb::Explain, READ, "Says in words what every rule makes of a request"),
    talk(Talk::Ping, "ping", -1, FAST, "Answers PONG, or with the message", &[optional("message", "string")]),
    talk(Talk::Echo, "echo", 2, FAST, "Answers with the message", &[argument("message", "string")]),
    talk(Talk::Hello, "hello", -1, OPEN, "Agrees on a version of the protocol", &[optional("version", "integer")]),
    talk(Talk::Auth, "auth", -2, OPEN, "Says the password", &[argument("password", "string")]),
    talk(Talk::Client, "client", -2, FAST, "Names the connection, or tells of it", &[argument("what", "string")]),
    talk(Talk::Command, "command", -1, FAST, "Tells of the commands", &[optional("what", "string")]),
    talk(Talk::Info, "info", -1, FAST, "Tells of the server", &[optional("section", "string")]),
    talk(Talk::Select, "select", 2, FAST, "Chooses the only database, 0", &[argument("index", "integer")]),
    talk(Talk::Reset, "reset", 1, OPEN, "Makes the connection as it was at first", &[]),
    talk(Talk::Quit, "quit", -1, OPEN, "Ends the connection", &[]),
];

const fn question(name: &'static str, verb: Verb, flags: &'static [&'static str], summary: &'static str) -> Command {
    Command { kind: Kind::Ask(verb), name, arity: -1, flags, has_key: false, summary, arguments: QUESTION }
}

const fn talk(
    talk: Talk,
    name: &'static str,
    arity: i64,
    flags: &'static [&'static str],
    summary: &'static str,
    arguments: &'static [Argument],
) -> Command {
    Command { kind: Kind::Talk(talk), name, arity, flags, has_key: false, summary, arguments }
}

impl Command {
    /// The command of a name, in whichever letters.
    #[inline]
    #[must_use]
    pub fn named(name: &[u8]) -> Option<&'static Command> {
        COMMANDS.iter().find(|command| command.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Whether it takes so many arguments, its name included.
    #[inline]
    #[must_use]
    pub fn takes(&self, arguments: usize) -> bool {
        let arguments = i64::try_from(arguments).unwrap_or(i64::MAX);
        if self.arity < 0 { arguments >= -self.arity } else { arguments == self.arity }
    }
}
