//! The commands of the binary.

mod asked;
mod check;
mod client;
mod colour;
mod help;
mod progress;
mod replay;
mod serve;
mod simulate;
mod token;
#[cfg(feature = "top")]
mod top;

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use tidegate::Limiter;
use tidegate_config::{Format, Problem, Validation};

use crate::run::causes::in_full;
#[cfg(not(all(feature = "top", feature = "manual")))]
use crate::settings::absent::Absent;
use crate::settings::envoy_ratelimit::{self, Translated};
use crate::settings::{self, OtherService, Settings};

/// The exit status of "no": refused, not ready, invalid, too many.
const NO: u8 = 1;

/// The exit status where there is no answer: bad arguments, a file that cannot be read, no server.
const NO_ANSWER: u8 = 2;

/// A rate limiter: exact counts, five algorithms, one binary.
#[derive(Parser)]
#[command(name = "tidegate", version)]
#[command(before_help = "Examples:\n  tidegate serve --policy policy.toml\n  tidegate check user=alice\n  \
                         tidegate simulate --limit \"100/min burst 20\"")]
#[command(after_help = "Exit status of every command: 0 for success or \"yes\", 1 for \"no\" (refused, not ready, \
                        invalid, too many), 2 without an answer (bad arguments, a file that cannot be read, no server). \
                        The help of each command says what that means.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve limits until Ctrl-C or SIGTERM
    #[command(before_help = "Examples:\n  tidegate serve --policy policy.toml\n  \
                             tidegate serve --policy policy.toml --store redis://127.0.0.1")]
    #[command(after_help = "--help lists all settings.")]
    #[command(
        after_long_help = "Every setting is also a variable of the environment, and a name in the --settings file: \
                                 --max-keys is TIDEGATE_MAX_KEYS and max_keys.\n\n\
                                 Exit status: 0 after a shutdown, 1 if it cut connections or could not write the \
                                 snapshot, 2 if it could not start, 130 if a second signal ended it at once."
    )]
    Serve(Box<Settings>),
    /// Check a request at a server or a store, and charge it
    #[command(before_help = "Examples:\n  tidegate check user=alice endpoint=/orders\n  \
                             tidegate check alice --limit \"10/min\" --cost 3")]
    #[command(after_help = "Exit status: 0 admitted, 1 refused, 2 without an answer: no server or store, or an error \
                            instead of a decision.")]
    Check(check::Arguments),
    /// Show what every rule decides about a request, without a charge
    #[command(before_help = "Examples:\n  tidegate explain user=alice endpoint=/orders\n  \
                             tidegate explain user=alice --policy policy.toml")]
    #[command(after_help = "Exit status: 0 would be admitted, 1 would be refused, 2 without an answer: no server, a \
                            policy that cannot be read, or an error instead of a decision.")]
    Explain(check::ExplainArguments),
    /// Ask a server whether it should get requests
    #[command(
        after_help = "Exit status: 0 ready, 1 not ready, 2 without an answer: no server, or not a tidegate server."
    )]
    Ready {
        #[command(flatten)]
        target: client::Target,
    },
    /// Show what each algorithm would do to traffic
    #[command(before_help = simulate::EXAMPLES, after_help = simulate::WORDS)]
    Simulate(simulate::Arguments),
    /// Watch a server: rates and latency, the store, refused keys
    #[command(before_help = "Examples:\n  tidegate top\n  tidegate top --server https://limits.example:7400")]
    #[command(after_help = "Exit status: 0 when left, 2 without a server or a terminal, 128 and its number when a \
                            signal ended it.")]
    #[cfg(feature = "top")]
    Top(top::Arguments),
    /// Watch a server: not in this build
    #[cfg(not(feature = "top"))]
    Top(Ignored),
    /// Look for errors in policy files
    #[command(
        before_help = "Examples:\n  tidegate validate policy.toml\n  cat policy.yaml | tidegate validate - --format yaml"
    )]
    #[command(after_help = "Exit status: 0 all valid, 1 a file is invalid, 2 a file cannot be read.")]
    Validate {
        /// The files, TOML or YAML; - is standard input
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// The format of standard input
        #[arg(long, value_name = "FORMAT", default_value = "toml")]
        format: InputFormat,
        /// Read descriptor files of Envoy's rate limit service, all of one configuration
        #[arg(long)]
        envoy: bool,
        /// Read limits files of limitador
        #[arg(long, conflicts_with = "envoy")]
        limitador: bool,
        /// The largest count of a sliding log, as of `serve`
        #[arg(long, env = "TIDEGATE_MAX_LOG_ENTRIES", value_name = "COUNT", default_value_t = Limiter::DEFAULT_MAX_LOG_ENTRIES)]
        max_log_entries: u64,
    },
    /// Decide an access log by a policy, and report what is refused
    #[command(before_help = replay::EXAMPLES, after_help = replay::HELP)]
    Replay(replay::Arguments),
    /// Make a token, and its lines for the --tokens file
    #[command(after_help = PRINTED)]
    Token(token::Arguments),
    /// Print the JSON Schema of policy files, for editors
    #[command(after_help = PRINTED)]
    Schema,
    /// Print a script that makes a shell complete the commands
    #[command(before_help = "Examples:\n  tidegate completions bash > /etc/bash_completion.d/tidegate")]
    #[command(after_help = PRINTED)]
    #[cfg(feature = "manual")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print a script for a shell: not in this build
    #[cfg(not(feature = "manual"))]
    Completions(Ignored),
    /// Print the manual page
    #[command(after_help = PRINTED)]
    Man,
}

/// The arguments of a command that is not in this build.
#[cfg(not(all(feature = "top", feature = "manual")))]
#[derive(Args)]
struct Ignored {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    _arguments: Vec<String>,
}

/// The format of a policy without a file name.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum InputFormat {
    Toml,
    Yaml,
}

const PRINTED: &str = "Exit status: 0 printed, 2 if it cannot be written.";

/// Runs the command of the process's arguments.
pub fn run() -> ExitCode {
    let Cli { command } = match parse() {
        Ok(cli) => cli,
        Err(report) => {
            warn(&*report);
            return ExitCode::from(NO_ANSWER);
        }
    };
    match command {
        Command::Serve(settings) => serve::run(*settings),
        Command::Check(arguments) => check::run(&arguments),
        Command::Explain(arguments) => check::explain(&arguments),
        Command::Ready { target } => check::ready(&target),
        Command::Simulate(arguments) => simulate::run(&arguments),
        #[cfg(feature = "top")]
        Command::Top(arguments) => top::run(&arguments),
        #[cfg(not(feature = "top"))]
        Command::Top(Ignored { .. }) => complain(&Absent::new("tidegate top", "top")),
        Command::Validate { files, envoy: true, .. } => validate_envoy(&files),
        Command::Validate { files, limitador: true, .. } => validate_limitador(&files),
        Command::Validate { files, format, max_log_entries, .. } => validate(&files, format, max_log_entries),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Token(arguments) => token::run(&arguments),
        Command::Schema => print(|out| out.write_all(tidegate_config::schema().as_bytes())),
        #[cfg(feature = "manual")]
        Command::Completions { shell } => print(|out| {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "tidegate", &mut script);
            out.write_all(&script)
        }),
        #[cfg(feature = "manual")]
        Command::Man => print(manual),
        #[cfg(not(feature = "manual"))]
        Command::Completions(Ignored { .. }) => complain(&Absent::new("tidegate completions", "manual")),
        #[cfg(not(feature = "manual"))]
        Command::Man => complain(&Absent::new("tidegate man", "manual")),
    }
}

/// The process's arguments, before those of the settings file that they name, and of the service whose place is taken.
fn parse() -> Result<Cli, Box<dyn std::fmt::Display>> {
    let mut matches = commands().get_matches();
    let mut notices = Vec::new();
    if let Some(("serve", given)) = matches.subcommand() {
        let plain = || without_empty_variables(Settings::augment_args(clap::Command::new("serve")));
        let with_file = |serve| match given.get_one::<PathBuf>("settings") {
            Some(path) => settings::file::with_defaults_of(path, serve, given).map_err(boxed),
            None => Ok(serve),
        };
        let mut serve = plain();
        if let Some(OtherService::EnvoyRatelimit) = given.get_one("as") {
            let of_file = with_file(plain())?;
            let is_given = |name: &str| settings::file::is_given(given, name) || has_other_default(&of_file, name);
            let Translated { settings, notices: told, refused } =
                envoy_ratelimit::translate(|name| std::env::var(name).ok(), is_given);
            if !refused.is_empty() {
                return Err(boxed(format!(
                    "tidegate: cannot take the place of envoyproxy/ratelimit:\n  {}",
                    refused.join("\n  ")
                )));
            }
            serve = settings
                .into_iter()
                .fold(serve, |serve, (name, values)| serve.mut_arg(name, |flag| flag.default_values(values)));
            notices = told;
        }
        let serve = with_file(serve)?;
        matches = commands().mut_subcommand("serve", |_| serve).get_matches();
    }
    let mut cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if let Command::Serve(settings) = &mut cli.command {
        settings.notices = notices;
    }
    Ok(cli)
}

fn boxed(error: impl std::fmt::Display + 'static) -> Box<dyn std::fmt::Display> {
    Box::new(error)
}

/// Whether a settings file has given a flag another default.
fn has_other_default(serve: &clap::Command, name: &str) -> bool {
    let default_of = |command: &clap::Command| {
        let flag = command.get_arguments().find(|flag| flag.get_id() == name);
        flag.map(|flag| flag.get_default_values().to_vec())
    };
    default_of(serve) != default_of(&Settings::augment_args(clap::Command::new("serve")))
}

/// The commands, with their help and by the environment that there is.
fn commands() -> clap::Command {
    help::shaped(Cli::command()).mut_subcommands(|command| match command.get_name() {
        "serve" => shaped_serve(command),
        _ => help::shaped(without_empty_variables(command)),
    })
}

fn shaped_serve(command: clap::Command) -> clap::Command {
    help::shaped_serve(without_empty_variables(command), help::is_short(std::env::args_os()))
}

/// A variable that is empty is none: that is how a template leaves it out.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    command.mut_args(|argument| {
        let is_empty = |name: &std::ffi::OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
        if argument.get_env().is_some_and(is_empty) { argument.env(None::<&'static str>) } else { argument }
    })
}

/// One page: the commands, and all settings of `serve`.
#[cfg(feature = "manual")]
fn manual(out: &mut dyn Write) -> io::Result<()> {
    let mut command = Cli::command();
    command.build();
    clap_mangen::Man::new(command.clone()).render(out)?;
    if let Some(serve) = command.find_subcommand("serve") {
        let serve = clap_mangen::Man::new(serve.clone());
        serve.render_options_section(out)?;
        serve.render_extra_section(out)?;
    }
    Ok(())
}

fn validate(files: &[PathBuf], format: InputFormat, max_log_entries: u64) -> ExitCode {
    let validation = Validation::new().max_log_entries(max_log_entries);
    let statuses = files.iter().map(|path| {
        let is_input = path.as_os_str() == "-";
        let warnings = match is_input {
            false => validation.file(path),
            true => match read_input() {
                Ok(text) => validation.text(&text, format.into(), "standard input".as_ref()),
                Err(error) => {
                    warn(&format_args!("tidegate: cannot read a policy from standard input: {error}"));
                    return NO_ANSWER;
                }
            },
        };
        let valid = warnings.map(|warnings| warnings.iter().for_each(|warning| warn(warning)));
        let name = if is_input { "standard input".to_owned() } else { path.display().to_string() };
        tell_validity(&name, valid)
    });
    ExitCode::from(statuses.max().unwrap_or_default())
}

/// A policy from standard input; one byte more than a file may have is an error of its own.
fn read_input() -> io::Result<String> {
    let mut text = String::new();
    io::stdin().lock().take(tidegate_config::MAX_FILE as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

impl From<InputFormat> for Format {
    fn from(format: InputFormat) -> Format {
        match format {
            InputFormat::Toml => Format::Toml,
            InputFormat::Yaml => Format::Yaml,
        }
    }
}

fn validate_envoy(files: &[PathBuf]) -> ExitCode {
    let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    ExitCode::from(tell_validity(&names.join(", "), tidegate_config::envoy::load(files).map(drop)))
}

fn validate_limitador(files: &[PathBuf]) -> ExitCode {
    let valid = |path: &PathBuf| tidegate_config::limitador::load(path).map(drop);
    let statuses = files.iter().map(|path| tell_validity(&path.display().to_string(), valid(path)));
    ExitCode::from(statuses.max().unwrap_or_default())
}

/// Says whether files are valid, and the status of that.
fn tell_validity(names: &str, loaded: Result<(), tidegate_config::Report>) -> u8 {
    match loaded {
        Ok(()) => {
            say(&format!("{names}: valid"));
            0
        }
        Err(report) => {
            warn(&report);
            if is_unread(&report) { NO_ANSWER } else { NO }
        }
    }
}

/// Whether a file of the command line was not read. One that a policy includes is an error of the policy.
fn is_unread(report: &tidegate_config::Report) -> bool {
    report.diagnostics().iter().any(|diagnostic| {
        let is_unread = matches!(diagnostic.problem(), Problem::Unreadable { .. } | Problem::UnknownFormat { .. });
        is_unread && diagnostic.place().is_none()
    })
}

/// Prints to standard output; a reader that has gone is no error.
fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> ExitCode {
    match write(&mut io::stdout().lock()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => complain(&error),
        Ok(()) | Err(_) => ExitCode::SUCCESS,
    }
}

/// Prints text for people to standard output, with colours where it is a terminal.
fn print_text(text: &str) -> ExitCode {
    print(|out| out.write_all(colour::tinted(text, &io::stdout()).as_bytes()))
}

/// Writes a line to standard output. A reader that has gone is no error.
fn say(line: &str) {
    drop(writeln!(io::stdout(), "{}", colour::tinted(line, &io::stdout())));
}

/// Writes lines to standard error. A reader that has gone is no error.
fn warn(lines: &dyn std::fmt::Display) {
    drop(writeln!(io::stderr(), "{}", colour::tinted(&lines.to_string(), &io::stderr())));
}

/// An error and what caused it, on one line.
fn complain(error: &dyn std::error::Error) -> ExitCode {
    warn(&format_args!("tidegate: {}", in_full(error)));
    ExitCode::from(NO_ANSWER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_setting_has_its_variable() {
        let command = Cli::command();
        let serve = command.find_subcommand("serve").expect("there is such a command");
        // Hidden ones have the variables of the service whose place is taken.
        for argument in serve.get_arguments().filter(|argument| !argument.is_hide_set()) {
            let flag = argument.get_long().expect("settings are flags");
            let variable = format!("TIDEGATE_{}", flag.replace('-', "_").to_uppercase());
            assert_eq!(argument.get_env().and_then(|name| name.to_str()), Some(&*variable));
        }
    }
}
