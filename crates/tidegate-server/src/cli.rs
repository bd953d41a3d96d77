//! The commands of the binary.

mod check;
mod client;
mod replay;
mod serve;
mod simulate;
mod top;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;

use crate::causes::in_full;
use crate::listen::Address;
use crate::settings::{self, Settings};

/// A rate limiter: exact counts, five algorithms, one binary.
#[derive(Parser)]
#[command(name = "tidegate", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve limits until Ctrl-C or SIGTERM
    #[command(after_help = "Every setting is also a variable of the environment, and a name in the --settings file: \
                            --max-keys is TIDEGATE_MAX_KEYS and max_keys.")]
    Serve(Box<Settings>),
    /// Ask a server, or a store, whether a key may pass: exit status 0 if so, 1 if not, 2 without an answer
    Check(check::Arguments),
    /// Ask a server whether it should get requests: exit status 0 if so
    Ready {
        /// The server to ask: host:port or unix:/path, without TLS
        #[arg(long, env = "TIDEGATE_SERVER", value_name = "ADDRESS", default_value = "127.0.0.1:7400")]
        server: Address,
    },
    /// Show what limits would do to traffic, each algorithm beside the others
    #[command(after_help = simulate::WORDS)]
    Simulate(simulate::Arguments),
    /// Watch a server: rates and latency, the store, who is refused
    Top(top::Arguments),
    /// Look for mistakes in policy files: exit status 1 if there are any
    Validate {
        /// The files, TOML or YAML
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// They are descriptor files of Envoy's rate limit service, all of one configuration
        #[arg(long)]
        envoy: bool,
    },
    /// Decide an access log by a policy: who would be refused, when, and by which rule
    #[command(after_help = replay::HELP)]
    Replay(replay::Arguments),
    /// Print the JSON Schema of policy files, for editors
    Schema,
    /// Print what makes a shell complete the commands
    Completions {
        /// For which
        shell: Shell,
    },
    /// Print the manual page
    Man,
}

/// Runs the command of the process's arguments.
pub fn run() -> ExitCode {
    let Cli { command } = match parse() {
        Ok(cli) => cli,
        Err(report) => {
            warn(&report);
            return ExitCode::from(2);
        }
    };
    match command {
        Command::Serve(settings) => serve::run(*settings),
        Command::Check(arguments) => check::run(&arguments),
        Command::Ready { server } => check::ready(&server),
        Command::Simulate(arguments) => simulate::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Validate { files, envoy } => validate(&files, envoy),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Schema => print(|out| writeln!(out, "{}", tidegate_config::schema())),
        Command::Completions { shell } => print(|out| {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "tidegate", &mut script);
            out.write_all(&script)
        }),
        Command::Man => print(manual),
    }
}

/// The process's arguments, after those of the settings file that they name.
fn parse() -> Result<Cli, tidegate_config::Report> {
    let mut matches = commands().get_matches();
    if let Some(("serve", given)) = matches.subcommand()
        && let Some(path) = given.get_one::<PathBuf>("settings")
    {
        let serve = without_empty_variables(Settings::augment_args(clap::Command::new("serve")));
        let serve = settings::file::with_defaults_of(path, serve, given)?;
        matches = commands().mut_subcommand("serve", |_| serve).get_matches();
    }
    Ok(Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()))
}

/// The commands, by the environment that there is.
fn commands() -> clap::Command {
    let command = Cli::command();
    let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, without_empty_variables))
}

/// A variable that is empty is none: that is how a template leaves it out.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    command.mut_args(|argument| {
        let is_empty = |name: &std::ffi::OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
        if argument.get_env().is_some_and(is_empty) { argument.env(None::<&'static str>) } else { argument }
    })
}

/// One page: the commands, and all settings of `serve`.
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

fn validate(files: &[PathBuf], envoy: bool) -> ExitCode {
    let mut valid = true;
    let mut say = |names: String, loaded: Result<(), tidegate_config::Report>| match loaded {
        Ok(()) => say(&format!("{names}: valid")),
        Err(report) => {
            warn(&report);
            valid = false;
        }
    };
    if envoy {
        let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
        say(names.join(", "), tidegate_config::envoy::load(files).map(drop));
    } else {
        for path in files {
            let loaded = tidegate_config::load_with_warnings(path);
            let loaded = loaded.map(|loaded| loaded.warnings.iter().for_each(|warning| warn(warning)));
            say(path.display().to_string(), loaded);
        }
    }
    if valid { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints to standard output; a reader that has gone is no mistake.
fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> ExitCode {
    match write(&mut io::stdout().lock()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => complain(&error),
        Ok(()) | Err(_) => ExitCode::SUCCESS,
    }
}

/// A line on standard output, for whoever reads it.
fn say(line: &str) {
    drop(writeln!(io::stdout(), "{line}"));
}

/// Lines on standard error, for whoever reads them.
fn warn(lines: &dyn std::fmt::Display) {
    drop(writeln!(io::stderr(), "{lines}"));
}

/// An error and what caused it, on one line.
fn complain(error: &dyn std::error::Error) -> ExitCode {
    warn(&format_args!("tidegate: {}", in_full(error)));
    ExitCode::from(2)
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
