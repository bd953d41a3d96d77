//! `COMMAND`: what commands there are, in the form of Redis 7.

use super::command::{Argument, COMMANDS, Command, Describe, Kind, Talk};
use super::frame::Arguments;
use super::reply::Replies;

/// Answers `COMMAND` and its subcommands.
pub(super) fn describe(what: Describe, arguments: Arguments<'_>, replies: &mut Replies) {
    let mut named = arguments.from(2).map(named);
    match what {
        Describe::Info if arguments.count() > 2 => {
            replies.array(arguments.count() - 2);
            for command in named {
                match command {
                    Some(command) => entry(command, replies),
                    None => replies.null(),
                }
            }
        }
        Describe::All | Describe::Info => {
            replies.array(COMMANDS.len());
            COMMANDS.iter().for_each(|command| entry(command, replies));
        }
        Describe::Docs if arguments.count() > 2 => documents(&named.flatten().collect::<Vec<_>>(), replies),
        Describe::Docs => documents(&COMMANDS.iter().collect::<Vec<_>>(), replies),
        Describe::Count => replies.integer(i64::try_from(COMMANDS.len()).unwrap_or(i64::MAX)),
        Describe::List => {
            replies.array(COMMANDS.len());
            COMMANDS.iter().for_each(|command| text(command.name, replies));
        }
        Describe::GetKeys => match named.next().flatten() {
            None => replies.error("ERR Invalid command specified"),
            Some(command) => keys(command, arguments, replies),
        },
    }
}

/// The command of a name such as `client` or `client|id`.
fn named(name: &[u8]) -> Option<&'static Command> {
    let mut words = name.splitn(2, |byte| *byte == b'|');
    let command = Command::named(words.next()?)?;
    words.next().map_or(Some(command), |word| command.subcommand(word))
}

fn keys(command: &Command, arguments: Arguments<'_>, replies: &mut Replies) {
    let most = usize::try_from(command.last_key).unwrap_or(usize::MAX);
    let keys: Vec<&[u8]> = arguments.from(3).take(most).collect();
    if keys.is_empty() {
        return replies.error("ERR The command has no key arguments");
    }
    replies.array(keys.len());
    keys.iter().for_each(|key| replies.bulk(key));
}

/// One command: name, arity, flags, first key, last key, step, ACL categories, tips, key
/// specifications, subcommands.
fn entry(command: &Command, replies: &mut Replies) {
    let has_keys = command.last_key != 0;
    replies.array(10);
    text(command.name, replies);
    replies.integer(command.arity);
    words(command.flags, replies);
    for position in [i64::from(has_keys), command.last_key, i64::from(has_keys)] {
        replies.integer(position);
    }
    words(&categories(command), replies);
    let tips = 0;
    replies.set(tips);
    replies.set(usize::from(has_keys));
    if has_keys {
        key_specification(command, replies);
    }
    replies.set(command.subcommands.len());
    command.subcommands.iter().for_each(|command| entry(command, replies));
}

fn categories(command: &Command) -> Vec<&'static str> {
    let has = |flag: &'static str| command.flags.contains(&flag);
    let of_keys = [("readonly", "@read"), ("write", "@write")].into_iter().find(|(flag, _)| has(flag));
    let of_group = match group(command) {
        "connection" => Some("@connection"),
        "transactions" => Some("@transaction"),
        _ => None,
    };
    let pace = if has("fast") { "@fast" } else { "@slow" };
    of_keys.map(|(_, category)| category).into_iter().chain([pace]).chain(of_group).collect()
}

fn key_specification(command: &Command, replies: &mut Replies) {
    replies.map(3);
    text("flags", replies);
    let flags: &[&str] = if command.flags.contains(&"write") { &["RW", "access", "update"] } else { &["RO"] };
    words(flags, replies);
    text("begin_search", replies);
    replies.map(2);
    fields(&[("type", "index")], replies);
    text("spec", replies);
    replies.map(1);
    text("index", replies);
    replies.integer(1);
    text("find_keys", replies);
    replies.map(2);
    fields(&[("type", "range")], replies);
    text("spec", replies);
    replies.map(3);
    // Counted from the first key, unless from the end.
    let last = if command.last_key > 0 { command.last_key - 1 } else { command.last_key };
    for (field, number) in [("lastkey", last), ("keystep", 1), ("limit", 0)] {
        text(field, replies);
        replies.integer(number);
    }
}

fn group(command: &Command) -> &'static str {
    match command.kind {
        Some(Kind::Throttle(_) | Kind::Ask(_) | Kind::Explain) => "module",
        Some(Kind::Talk(Talk::Info)) => "server",
        Some(Kind::Transaction(_) | Kind::Talk(Talk::Unwatch)) => "transactions",
        Some(Kind::Talk(_)) | None => "connection",
    }
}

fn documents(commands: &[&Command], replies: &mut Replies) {
    replies.map(commands.len());
    for command in commands {
        let Command { name, summary, arguments, subcommands, .. } = command;
        text(name, replies);
        replies.map(3 + usize::from(!arguments.is_empty()) + usize::from(!subcommands.is_empty()));
        fields(&[("summary", *summary), ("since", env!("CARGO_PKG_VERSION")), ("group", group(command))], replies);
        if !arguments.is_empty() {
            text("arguments", replies);
            replies.array(arguments.len());
            arguments.iter().for_each(|argument| document(argument, replies));
        }
        if !subcommands.is_empty() {
            text("subcommands", replies);
            documents(&subcommands.iter().collect::<Vec<_>>(), replies);
        }
    }
}

fn document(argument: &Argument, replies: &mut Replies) {
    let Argument { name, kind, token, flags } = argument;
    let is_key = *kind == "key";
    replies.map(2 + usize::from(token.is_some()) + usize::from(!flags.is_empty()) + usize::from(is_key));
    fields(&[("name", *name), ("type", *kind)], replies);
    if is_key {
        text("key_spec_index", replies);
        replies.integer(0);
    }
    if let Some(token) = token {
        fields(&[("token", *token)], replies);
    }
    if !flags.is_empty() {
        text("flags", replies);
        words(flags, replies);
    }
}

fn fields(fields: &[(&str, &str)], replies: &mut Replies) {
    for (name, value) in fields {
        text(name, replies);
        text(value, replies);
    }
}

fn words(words: &[&'static str], replies: &mut Replies) {
    replies.set(words.len());
    words.iter().for_each(|word| replies.status(word));
}

fn text(text: &str, replies: &mut Replies) {
    replies.bulk(text.as_bytes());
}
