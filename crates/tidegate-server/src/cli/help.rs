//! The help of the commands: examples first, 80 columns, and for `serve` a short and a long one.
//!
//! The settings of `serve` are grouped by the order of their fields. `-h` shows the ones that most servers set, on one
//! screen; `--help` shows all, below headings.

use clap::{Arg, Command};

/// The widest line of a help text.
const WIDTH: usize = 80;

/// Examples come before the usage line: clap puts them before the name otherwise.
const TEMPLATE: &str = "{about-with-newline}\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}";

/// Each heading of `serve --help`, with the first setting below it.
const HEADINGS: [(&str, &str); 8] = [
    ("http", "Listen"),
    ("store", "Store"),
    ("policy", "Policy"),
    ("max_connections", "Limits"),
    ("tls_certificate", "TLS"),
    ("tokens", "Admin"),
    ("envoy_config", "Envoy"),
    ("log", "Logging"),
];

/// The settings that `serve -h` shows.
const COMMON: [&str; 10] =
    ["http", "grpc", "resp", "store", "on_failure", "max_keys", "policy", "tls_certificate", "tls_key", "tokens"];

/// Examples and width, for a command without subcommands.
pub(super) fn shaped(command: Command) -> Command {
    // The rule for variables of the environment is said once.
    command.help_template(TEMPLATE).max_term_width(WIDTH).mut_args(|argument| argument.hide_env(true))
}

/// The same for `serve`, which has many flags.
pub(super) fn shaped_serve(command: Command, is_short: bool) -> Command {
    let mut heading = None;
    shaped(command).mut_args(|argument: Arg| {
        let id = argument.get_id().as_str();
        let is_common = COMMON.contains(&id);
        heading = HEADINGS.iter().find(|(first, _)| *first == id).map(|(_, name)| *name).or(heading);
        let argument = argument.hide_short_help(!is_common);
        if is_short { argument } else { argument.help_heading(heading) }
    })
}

/// Whether the arguments ask for the short help.
pub(super) fn is_short(mut arguments: impl Iterator<Item = std::ffi::OsString>) -> bool {
    arguments.any(|argument| argument == "-h")
}
