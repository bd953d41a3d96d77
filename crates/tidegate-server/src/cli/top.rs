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
use super::client::Target;
use super::complain;
use crate::settings::Secret;

/// How long the keyboard is listened to before news are looked for.
const GLANCE: Duration = Duration::from_millis(100);

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
    let mut target = arguments.target.clone();
    // As the server itself is told it.
    target.token = target.token.or_else(|| std::env::var("TIDEGATE_ADMIN_TOKEN").ok().map(Secret::from));
    let name = target.server.to_string();
    let (feed, picture) = Feed::start(target)?;
    let mut view = View::new(&name, picture);
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
