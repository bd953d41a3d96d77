//! Settings from a file: for each flag a name, with `_` where the flag has `-`.
//!
//! What a file says stands in for the defaults, so flags and the environment
//! come before it, and every value is read by the parser of its flag.

use std::path::Path;

use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Args, Command};
use tidegate_config::Report;
use tidegate_config::settings::{self, Setting};

use super::Settings;

/// The command `serve` with other defaults: those of a file. What was given
/// already says which of them no longer matter.
///
/// # Errors
/// A report of all that is wrong with the file.
pub(crate) fn with_defaults_of(path: &Path, serve: Command, given: &ArgMatches) -> Result<Command, Report> {
    let flags = Settings::augment_args(Command::new("settings").no_binary_name(true));
    // What says where settings come from is not one of them.
    let is_setting = |name: &&str| *name != "settings" && *name != "as";
    let names: Vec<&str> = flags.get_arguments().map(|flag| flag.get_id().as_str()).filter(is_setting).collect();
    let mut seen: Vec<String> = Vec::new();
    let settings = settings::load(path, &names, |setting| {
        if let Some(rival) = seen.iter().find(|name| exclude_each_other(&flags, name, &setting.name)) {
            return Err(format!("{rival:?} is set as well as {:?}: leave one of them out", setting.name));
        }
        seen.push(setting.name.clone());
        accept(&flags, setting)
    })?;
    Ok(settings.into_iter().fold(serve, |serve, Setting { name, values, .. }| {
        let flag = flags.get_arguments().find(|flag| flag.get_id() == name.as_str());
        let rivals = flag.map(|flag| flags.get_arg_conflicts_with(flag)).unwrap_or_default();
        match rivals.iter().any(|rival| is_given(given, rival.get_id().as_str())) {
            true => serve,
            false => serve.mut_arg(name, |flag| flag.default_values(values)),
        }
    }))
}

/// Whether a flag has its value from the command line or the environment.
pub(crate) fn is_given(given: &ArgMatches, name: &str) -> bool {
    matches!(given.value_source(name), Some(ValueSource::CommandLine | ValueSource::EnvVariable))
}

/// Whether two flags cannot be given together.
fn exclude_each_other(flags: &Command, one: &str, other: &str) -> bool {
    let excludes = |one: &str, other: &str| {
        let flag = flags.get_arguments().find(|flag| flag.get_id() == one);
        let rivals = flag.map(|flag| flags.get_arg_conflicts_with(flag)).unwrap_or_default();
        rivals.iter().any(|rival| rival.get_id() == other)
    };
    excludes(one, other) || excludes(other, one)
}

/// What the flag would say to the values.
fn accept(flags: &Command, Setting { name, values, .. }: &Setting) -> Result<(), String> {
    let flag = flags.get_arguments().find(|flag| flag.get_id() == name.as_str()).expect("names are those of flags");
    let long = flag.get_long().expect("settings are flags");
    let words: Vec<String> = match flag.get_action() {
        ArgAction::SetTrue => match values.as_slice() {
            [value] if value == "true" || value == "false" => return Ok(()),
            _ => return Err("write true or false".into()),
        },
        ArgAction::Append => values.iter().map(|value| format!("--{long}={value}")).collect(),
        _ if values.len() != 1 => return Err("one value is needed, not a list".into()),
        _ => vec![format!("--{long}={}", values[0])],
    };
    let command = flags.clone().mut_args(|flag| flag.env(None::<&'static str>));
    match command.try_get_matches_from(words) {
        Ok(_) => Ok(()),
        Err(error) => Err(reason(&error)),
    }
}

/// Why a flag takes no such value, without the words that are about flags.
fn reason(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    first.strip_prefix("error: ").unwrap_or(first).to_owned()
}
