//! `tidegate serve`: from the settings to the last answer.

use std::io;
use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};
use tracing::level_filters::LevelFilter;
use tracing::{info, warn};
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::{NO, NO_ANSWER, colour, complain, say, warn as tell};
use crate::run::systemd;
use crate::serve::{Server, StartError};
use crate::settings::address::Address;
use crate::settings::{LogFormat, Settings};
use crate::wire::http::example;

/// When a process must end at once, by custom: 128 and the signal's number.
const INTERRUPTED: u8 = 130;

pub(super) fn run(settings: Settings) -> ExitCode {
    if let Err(error) = log(&settings) {
        return complain(&error);
    }
    settings.notices.iter().for_each(|notice| warn!("{notice}"));
    raise_file_limit();
    // Connections have threads of their own: this one accepts them, and looks after the rest.
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(serve(settings)),
        Err(error) => complain(&error),
    }
}

async fn serve(settings: Settings) -> ExitCode {
    let log_format = settings.log_format;
    let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
    let [Ok(mut terminate), Ok(mut interrupt), Ok(mut hangup)] = kinds else {
        return complain(&io::Error::other("cannot listen for signals"));
    };
    let server = match Server::open(settings).await {
        Ok(server) => server,
        // Errors in a file are shown as `tidegate validate` shows them.
        Err(StartError::Policy(report)) => {
            tell(&report);
            return ExitCode::from(NO_ANSWER);
        }
        Err(error) => return complain(&error),
    };
    match log_format {
        LogFormat::Text => say(&banner(&server).await),
        LogFormat::Json => {
            for (protocol, address) in server.addresses() {
                info!(protocol, %address, "listening");
            }
        }
    }
    systemd::notify("READY=1");
    let watchdog = tokio::spawn(systemd::feed_watchdog());
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            // By custom, to read the settings again; here, the files.
            _ = hangup.recv() => server.reload(),
        }
    }
    systemd::notify("STOPPING=1");
    let drained = tokio::select! {
        drained = server.drain() => drained,
        _ = terminate.recv() => return ExitCode::from(INTERRUPTED),
        _ = interrupt.recv() => return ExitCode::from(INTERRUPTED),
    };
    watchdog.abort();
    if drained { ExitCode::SUCCESS } else { ExitCode::from(NO) }
}

/// Where the server listens, and what to try.
async fn banner(server: &Server) -> String {
    let app = server.app();
    let mut text = format!("tidegate {}", env!("CARGO_PKG_VERSION"));
    for (protocol, address) in server.addresses() {
        text += &format!("\n  {protocol:<7} {address}");
    }
    let policy = app
        .engine
        .policy
        .text()
        .file
        .map_or_else(|| "built in: --policy FILE for yours".into(), |path| path.display().to_string());
    text += &format!("\n  store   {}\n  policy  {policy}", app.engine.store().name());
    let scheme = if app.settings.tls_certificate.is_some() { "https" } else { "http" };
    let place = match server.http().first() {
        Some(Address::Tcp(address)) => {
            if !app.settings.no_admin {
                text += &format!("\n  look    {scheme}://{address}/");
            }
            format!("{scheme}://{address}/v1/check")
        }
        Some(Address::Unix(path)) => format!("--unix-socket {} {scheme}://localhost/v1/check", path.display()),
        None => return text,
    };
    // As a word of the shell: a quote ends it, stands by itself, and begins the next.
    let body = example(app).await.replace('\'', r"'\''");
    let token = if app.guards.access.is_open() { "" } else { "-H 'authorization: Bearer TOKEN' " };
    text += &format!("\n\nTry: curl -i {token}--json '{body}' {place}");
    text
}

#[derive(Debug, thiserror::Error)]
#[error("--log is {filter:?}: write a level such as info, or targets such as tidegate_server=debug,warn")]
struct NoFilter {
    filter: String,
    source: Option<ParseError>,
}

fn log(settings: &Settings) -> Result<(), NoFilter> {
    let filter = filter(&settings.log).map_err(|source| NoFilter { filter: settings.log.clone(), source })?;
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    // It would complain on the very stream that cannot be written to, and panic.
    let lines = lines.with_ansi(colour::is_wanted(&io::stderr())).log_internal_errors(false);
    let logs = tracing_subscriber::registry().with(filter);
    match settings.log_format {
        LogFormat::Text => logs.with(lines).init(),
        LogFormat::Json => logs.with(lines.json()).init(),
    }
    Ok(())
}

/// A word that is no level would be taken for a target of which there is
/// nothing to log.
fn filter(words: &str) -> Result<Targets, Option<ParseError>> {
    let words: Vec<&str> = words.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    let is_level = |word: &str| word.parse::<LevelFilter>().is_ok();
    let is_understood = |word: &&str| match word.split_once('=') {
        Some((target, level)) => !target.is_empty() && is_level(level),
        None => is_level(word),
    };
    if !words.iter().all(is_understood) {
        return Err(None);
    }
    words.join(",").parse().map_err(Some)
}

/// Each connection is a file, and the usual limit is 1024: takes what the
/// system grants.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_err() {
        warn!(?current, "cannot raise the limit on open files");
    }
}
