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
use std::time::Duration;

use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use self::feed::{Feed, Refused};
use self::view::View;
use super::complain;
use crate::address::Address;

/// How long the keyboard is listened to before news are looked for.
const GLANCE: Duration = Duration::from_millis(100);

#[derive(Args)]
pub(super) struct Arguments {
    /// The server to watch: host:port or unix:/path, without TLS
    #[arg(long, env = "TIDEGATE_SERVER", value_name = "ADDRESS", default_value = "127.0.0.1:7400")]
    server: Address,
    /// The token of the server's admin API, if it has one
    #[arg(long, env = "TIDEGATE_ADMIN_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    admin_token: Option<String>,
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
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => complain(&failure),
    }
}

fn watch(arguments: &Arguments) -> Result<(), Failure> {
    if !io::stdout().is_terminal() {
        return Err(Failure::NoTerminal);
    }
    // The first answer comes before the screen is taken: whoever has no server
    // should read that where they typed.
    let (feed, picture) = Feed::start(&arguments.server, arguments.admin_token.as_deref())?;
    let mut view = View::new(&arguments.server.to_string(), picture);
    let mut terminal = ratatui::try_init()?;
    let watched = until_left(&mut terminal, &feed, &mut view);
    ratatui::restore();
    Ok(watched?)
}

fn until_left(terminal: &mut DefaultTerminal, feed: &Feed, view: &mut View) -> io::Result<()> {
    loop {
        terminal.draw(|frame| draw::draw(frame, view))?;
        if event::poll(GLANCE)?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            match (key.code, key.modifiers) {
                (KeyCode::Char('c'), KeyModifiers::CONTROL) => return Ok(()),
                (code, _) => match view.press(code) {
                    Wish::Leave => return Ok(()),
                    Wish::Reset(question) => feed.reset(*question),
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
    Reset(Box<crate::refused::AskAgain>),
    Nothing,
}
