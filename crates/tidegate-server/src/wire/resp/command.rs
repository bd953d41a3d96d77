//! The commands, in one table: what they are called, how many arguments they
//! take, and what `COMMAND` tells of them.

use super::throttle::Dialect;
use crate::ask::call::Call;
use crate::settings::rights::Right;

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Throttle(Dialect),
    Ask(Call),
    Explain,
    Talk(Talk),
    Transaction(Step),
}

impl Kind {
    /// The right that it needs, if it is about limits.
    #[inline]
    #[must_use]
    pub fn right(self) -> Option<Right> {
        match self {
            Kind::Ask(Call::Refund | Call::Reset) | Kind::Explain => Some(Right::Manage),
            Kind::Throttle(_) | Kind::Ask(_) => Some(Right::Check),
            Kind::Talk(_) | Kind::Transaction(_) => None,
        }
    }
}

/// What is not about limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Talk {
    Ping,
    Echo,
    Hello,
    Auth,
    Client(About),
    Command(Describe),
    Info,
    Select,
    Unwatch,
    Reset,
    Quit,
}

/// What `CLIENT` is asked, by its subcommand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum About {
    Id,
    GetName,
    SetName,
    SetInfo,
    Info,
    NoEvict,
    NoTouch,
}

/// What `COMMAND` is asked, by its subcommand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Describe {
    All,
    Info,
    Docs,
    Count,
    List,
    GetKeys,
}

/// What begins, ends or guards a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Step {
    Multi,
    Exec,
    Discard,
    Watch,
}

/// One command.
#[derive(Debug)]
pub struct Command {
    /// What it does; nothing without one of its subcommands if there is none.
    pub kind: Option<Kind>,
    /// Its name, in small letters; `client|id` for a subcommand.
    pub name: &'static str,
    /// How many arguments it has, its name included; at least so many if negative.
    pub arity: i64,
    /// As Redis names them.
    pub flags: &'static [&'static str],
    /// The last of its keys, which begin at the first argument: 0 if it has none, -1
    /// if all arguments are keys.
    pub last_key: i64,
    /// What it is for.
    pub summary: &'static str,
    /// Its arguments, in order.
    pub arguments: &'static [Argument],
    /// The commands that its first argument chooses from.
    pub subcommands: &'static [Command],
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

const fn arguments(id: Argument) -> [Argument; 8] {
    [
        Argument { name: "attribute value", kind: "string", token: None, flags: &["optional", "multiple"] },
        option("KEY", "key", "string"),
        option("LIMIT", "limit", "string"),
        option("COST", "cost", "integer"),
        Argument { flags: &["optional", "multiple", "multiple_token"], ..option("AMOUNT", "unit amount", "string") },
        option("RULE", "rule", "string"),
        id,
        option("TTL", "milliseconds", "integer"),
    ]
}

const REQUEST: &[Argument] = &arguments(option("ID", "id", "string"));
const RESERVATION: &[Argument] = &arguments(Argument { flags: &[], ..option("ID", "id", "string") });

const FAST: &[&str] = &["loading", "stale", "fast"];
const SLOW: &[&str] = &["loading", "stale"];
const WRITE: &[&str] = &["write", "fast"];
const READ: &[&str] = &["readonly", "fast"];
const OPEN: &[&str] = &["loading", "stale", "fast", "no_auth"];

/// All of them, the busiest first: they are looked for in this order.
pub const COMMANDS: &[Command] = &[
    throttle(
        "cl.throttle",
        Dialect::RedisCell,
        "Charges a token bucket as redis-cell does: limited, limit, remaining, retry after, reset after",
    ),
    throttle(
        "throttle",
        Dialect::Throttlecrab,
        "Charges a token bucket as throttlecrab does: allowed, limit, remaining, reset after, retry after",
    ),
    request_command(
        "tidegate.check",
        Kind::Ask(Call::Check),
        WRITE,
        "Charges a request if all limits of the policy let it pass",
    ),
    request_command("tidegate.peek", Kind::Ask(Call::Peek), READ, "Says what a check would answer, without charging"),
    request_command("tidegate.report", Kind::Ask(Call::Report), WRITE, "Charges what is spent already, even into debt"),
    request_command("tidegate.refund", Kind::Ask(Call::Refund), WRITE, "Gives back what a request was charged"),
    request_command("tidegate.reset", Kind::Ask(Call::Reset), WRITE, "Forgets what a request's keys were charged"),
    reservation("tidegate.reserve", Call::Reserve, "Charges an estimate, to be settled by its id"),
    reservation("tidegate.settle", Call::Settle, "Corrects a reservation to what was spent, once"),
    reservation("tidegate.renew", Call::Renew, "Has a reservation and its permits last from now on"),
    reservation("tidegate.release", Call::Release, "Gives back all of a reservation"),
    request_command("tidegate.explain", Kind::Explain, READ, "Says in words what every rule makes of a request"),
    talk(Talk::Ping, "ping", -1, FAST, "Answers PONG, or with the message", &[optional("message", "string")]),
    talk(Talk::Echo, "echo", 2, FAST, "Answers with the message", &[argument("message", "string")]),
    step(Step::Multi, "multi", FAST, "Queues the commands that follow, for EXEC"),
    step(Step::Exec, "exec", SLOW, "Runs the queued commands in order and answers with all their replies"),
    step(Step::Discard, "discard", FAST, "Drops the queued commands"),
    Command {
        arity: -2,
        last_key: -1,
        arguments: &[Argument { name: "key", kind: "key", token: None, flags: &["multiple"] }],
        ..step(Step::Watch, "watch", FAST, "Is an error: EXEC does not know whether a key was changed")
    },
    talk(Talk::Unwatch, "unwatch", 1, FAST, "Answers OK: no key is ever watched", &[]),
    talk(Talk::Hello, "hello", -1, OPEN, "Agrees on a version of the protocol", &[optional("version", "integer")]),
    talk(Talk::Auth, "auth", -2, OPEN, "Says a token or the password", &[argument("password", "string")]),
    Command {
        kind: None,
        name: "client",
        arity: -2,
        flags: &[],
        last_key: 0,
        summary: "Names the connection, or tells of it",
        arguments: &[],
        subcommands: CLIENT,
    },
    Command {
        subcommands: COMMAND,
        ..talk(Talk::Command(Describe::All), "command", -1, SLOW, "Tells of the commands", &[])
    },
    talk(Talk::Info, "info", -1, SLOW, "Tells of the server", &[optional("section", "string")]),
    talk(Talk::Select, "select", 2, FAST, "Chooses the only database, 0", &[argument("index", "integer")]),
    talk(Talk::Reset, "reset", 1, OPEN, "Makes the connection as it was at first", &[]),
    talk(Talk::Quit, "quit", -1, OPEN, "Ends the connection", &[]),
];

const CLIENT: &[Command] = &[
    about(Talk::Client(About::Id), "client|id", 2, "Answers with the number of the connection", &[]),
    about(Talk::Client(About::GetName), "client|getname", 2, "Answers with the name of the connection", &[]),
    about(Talk::Client(About::SetName), "client|setname", 3, "Names the connection", &[argument("name", "string")]),
    about(
        Talk::Client(About::SetInfo),
        "client|setinfo",
        4,
        "Names the library of the client, or its version",
        &[argument("attribute", "string"), argument("value", "string")],
    ),
    about(Talk::Client(About::Info), "client|info", 2, "Tells of the connection", &[]),
    about(
        Talk::Client(About::NoEvict),
        "client|no-evict",
        3,
        "Answers OK: no client is evicted",
        &[argument("on", "string")],
    ),
    about(
        Talk::Client(About::NoTouch),
        "client|no-touch",
        3,
        "Answers OK: no key is touched",
        &[argument("on", "string")],
    ),
];

const NAMES: &[Argument] =
    &[Argument { name: "command-name", kind: "string", token: None, flags: &["optional", "multiple"] }];

const COMMAND: &[Command] = &[
    about(Talk::Command(Describe::Info), "command|info", -2, "Tells of the commands, or of some", NAMES),
    about(
        Talk::Command(Describe::Docs),
        "command|docs",
        -2,
        "Tells what commands are for, and of their arguments",
        NAMES,
    ),
    about(Talk::Command(Describe::Count), "command|count", 2, "Counts the commands", &[]),
    about(Talk::Command(Describe::List), "command|list", 2, "Lists the names of the commands", &[]),
    about(
        Talk::Command(Describe::GetKeys),
        "command|getkeys",
        -3,
        "Finds the keys in a command",
        &[
            argument("command", "string"),
            Argument { name: "arg", kind: "string", token: None, flags: &["optional", "multiple"] },
        ],
    ),
];

const fn throttle(name: &'static str, dialect: Dialect, summary: &'static str) -> Command {
    Command {
        kind: Some(Kind::Throttle(dialect)),
        name,
        // As a module's command, it counts its arguments itself.
        arity: -1,
        flags: WRITE,
        last_key: 1,
        summary,
        arguments: THROTTLE,
        subcommands: &[],
    }
}

const fn request_command(
    name: &'static str,
    kind: Kind,
    flags: &'static [&'static str],
    summary: &'static str,
) -> Command {
    let kind = Some(kind);
    Command { kind, name, arity: -1, flags, last_key: 0, summary, arguments: REQUEST, subcommands: &[] }
}

const fn reservation(name: &'static str, call: Call, summary: &'static str) -> Command {
    Command { arguments: RESERVATION, ..request_command(name, Kind::Ask(call), WRITE, summary) }
}

const fn step(step: Step, name: &'static str, flags: &'static [&'static str], summary: &'static str) -> Command {
    let kind = Some(Kind::Transaction(step));
    Command { kind, name, arity: 1, flags, last_key: 0, summary, arguments: &[], subcommands: &[] }
}

const fn talk(
    talk: Talk,
    name: &'static str,
    arity: i64,
    flags: &'static [&'static str],
    summary: &'static str,
    arguments: &'static [Argument],
) -> Command {
    Command { kind: Some(Kind::Talk(talk)), name, arity, flags, last_key: 0, summary, arguments, subcommands: &[] }
}

/// A subcommand, which takes part in nothing.
const fn about(
    subject: Talk,
    name: &'static str,
    arity: i64,
    summary: &'static str,
    arguments: &'static [Argument],
) -> Command {
    talk(subject, name, arity, SLOW, summary, arguments)
}

impl Command {
    /// The command of a name, in whichever letters.
    #[inline]
    #[must_use]
    pub fn named(name: &[u8]) -> Option<&'static Command> {
        COMMANDS.iter().find(|command| command.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// The subcommand of a word, in whichever letters.
    #[must_use]
    pub fn subcommand(&self, word: &[u8]) -> Option<&'static Command> {
        let is = |name: &str| name.split_once('|').is_some_and(|(_, own)| own.as_bytes().eq_ignore_ascii_case(word));
        self.subcommands.iter().find(|command| is(command.name))
    }

    /// Whether it takes so many arguments, its name included.
    #[inline]
    #[must_use]
    pub fn takes(&self, arguments: usize) -> bool {
        let arguments = i64::try_from(arguments).unwrap_or(i64::MAX);
        if self.arity < 0 { arguments >= -self.arity } else { arguments == self.arity }
    }
}
