//! `tidegate top`: what a server does, in a terminal.
//!
//! A thread asks the server for a picture each second; this one draws, and
//! listens to the keyboard.

mod draw;
mod feed;
#[cfg(test)]
mod tests;
mod view;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use signal_hook::consts::signal::{SIGABRT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::flag::register_usize;
use signal_hook::low_level::emulate_default_handler;

use self::feed::{Feed, Refused};
use self::view::View;
use super::client::Target;
use super::complain;
use crate::settings::Secret;

/// How long the keyboard is listened to before news are looked for.
const GLANCE: Duration = Duration::from_millis(100);

/// Signals that end or stop a process unless it handles them; SIGKILL cannot be handled.
const SIGNALS: [i32; 6] = [SIGABRT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP];

#[derive(Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("there is no terminal to draw on: ask /admin/v1/live for the same as JSON")]
    NoTerminal,
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("the terminal cannot be used")]
    Terminal(#[from] io::Error),
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    match watch(arguments) {
        Ok(End::Left) => ExitCode::SUCCESS,
        // By custom: 128 and the signal's number.
        Ok(End::Signal(signal)) => ExitCode::from(128 + signal as u8),
        Err(failure) => complain(&failure),
    }
}

/// Why the screen is given back.
enum End {
    Left,
    Signal(i32),
}

fn watch(arguments: &Arguments) -> Result<End, Failure> {
    if !io::stdout().is_terminal() {
        return Err(Failure::NoTerminal);
    }
    // The first answer comes before the screen is taken: an error stays where the command was typed.
    let mut target = arguments.target.clone();
    // As the server itself is told it.
    target.token = target.token.or_else(|| std::env::var("TIDEGATE_ADMIN_TOKEN").ok().map(Secret::from));
    let name = target.server.to_string();
    let (feed, picture) = Feed::start(target)?;
    let mut view = View::new(&name, picture);
    let signalled = Arc::new(AtomicUsize::new(0));
    for signal in SIGNALS {
        register_usize(signal, Arc::clone(&signalled), signal as usize)?;
    }
    loop {
        let mut terminal = ratatui::try_init()?;
        let watched = until_left(&mut terminal, &feed, &mut view, &signalled);
        ratatui::restore();
        match watched? {
            // Stops here, with the terminal as it was, until the shell continues it.
            End::Signal(SIGTSTP) => emulate_default_handler(SIGTSTP)?,
            end @ (End::Left | End::Signal(_)) => return Ok(end),
        }
    }
}

fn until_left(
    terminal: &mut DefaultTerminal,
    feed: &Feed,
    view: &mut View,
    signalled: &AtomicUsize,
) -> io::Result<End> {
    loop {
        terminal.draw(|frame| draw::draw(frame, view))?;
        match signalled.swap(0, Ordering::Relaxed) {
            0 => {}
            signal => return Ok(End::Signal(signal as i32)),
        }
        if event::poll(GLANCE)?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            match (key.code, key.modifiers) {
                (KeyCode::Char('c'), KeyModifiers::CONTROL) => return Ok(End::Left),
                (KeyCode::Char('z'), KeyModifiers::CONTROL) => return Ok(End::Signal(SIGTSTP)),
                (code, _) => match view.press(code) {
                    Wish::Leave => return Ok(End::Left),
                    Wish::Reset(request) => feed.reset(*request),
                    Wish::Nothing => {}
                },
            }
        }
        while let Some(news) = feed.news() {
            view.hear(news);
        }
    }
}

/// What a key is pressed for, if not only to look at something else.
#[derive(Debug)]
enum Wish {
    Leave,
    Reset(Box<crate::ask::request_document::RequestDocument>),
    Nothing,
}
