//! News of a server, from a thread of its own.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::Value;
use tokio::runtime::{self, Runtime};

use super::super::client::{NoAnswer, Target};
use crate::ask::request_document::RequestDocument;
use crate::screen::live::Picture;

/// The time from one picture to the next.
const BETWEEN_PICTURES: Duration = Duration::from_secs(1);

/// News that wait to be looked at; then the server is not asked for more.
const MAX_NEWS: usize = 4;

/// Wishes that wait to be carried out; further ones are dropped.
const MAX_WISHES: usize = 4;

/// What there is to hear.
#[derive(Debug)]
pub(super) enum News {
    Picture(Box<Picture>),
    /// A key was reset, or why not.
    Reset(Result<(), Refused>),
    /// There was no picture.
    Silence(Refused),
}

/// Why the server does not do as asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error("cannot start")]
    Runtime(#[source] std::io::Error),
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
    #[error("the server wants its admin token: give it by --token or TIDEGATE_TOKEN")]
    Unauthorized,
    #[error("the server does not know this token")]
    UnknownToken,
    #[error("the server has no admin API, or is of another version")]
    NoSuchThing,
    #[error("{detail}")]
    Problem { detail: String },
}

/// A server that is asked again and again.
pub(super) struct Feed {
    news: Receiver<News>,
    wishes: SyncSender<RequestDocument>,
}

impl Feed {
    /// Begins to ask, and gives the first picture.
    pub(super) fn start(target: Target) -> Result<(Feed, Picture), Refused> {
        let server = Server {
            target,
            runtime: runtime::Builder::new_current_thread().enable_all().build().map_err(Refused::Runtime)?,
        };
        let picture = server.picture()?;
        let ((sender, news), (wishes, wanted)) = (sync_channel(MAX_NEWS), sync_channel(MAX_WISHES));
        thread::spawn(move || server.tell(&sender, &wanted));
        Ok((Feed { news, wishes }, picture))
    }

    /// What has come, if there is anything.
    pub(super) fn news(&self) -> Option<News> {
        self.news.try_recv().ok()
    }

    /// Has a key reset; the news will tell.
    pub(super) fn reset(&self, request: RequestDocument) {
        // A key that is held down sends more resets than are needed: further ones are dropped.
        drop(self.wishes.try_send(request));
    }
}

struct Server {
    target: Target,
    runtime: Runtime,
}

impl Server {
    /// Runs until the receiver is dropped.
    fn tell(&self, news: &SyncSender<News>, wishes: &Receiver<RequestDocument>) {
        loop {
            let told = match wishes.recv_timeout(BETWEEN_PICTURES) {
                Ok(request) => News::Reset(self.reset(&request)),
                Err(RecvTimeoutError::Timeout) => match self.picture() {
                    Ok(picture) => News::Picture(Box::new(picture)),
                    Err(refused) => News::Silence(refused),
                },
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if news.send(told).is_err() {
                return;
            }
        }
    }

    fn picture(&self) -> Result<Picture, Refused> {
        let body = self.ask(Method::GET, "/admin/v1/live", String::new())?;
        serde_json::from_slice(&body).map_err(|error| NoAnswer::Unreadable(error.into()).into())
    }

    fn reset(&self, request: &RequestDocument) -> Result<(), Refused> {
        let request = serde_json::to_string(request).map_err(|error| NoAnswer::Unreadable(error.into()))?;
        self.ask(Method::POST, "/admin/v1/keys/reset", request).map(drop)
    }

    fn ask(&self, method: Method, path: &'static str, body: String) -> Result<bytes::Bytes, Refused> {
        let (status, body) = self.runtime.block_on(self.target.ask(method, path, body))?;
        match status {
            StatusCode::UNAUTHORIZED if self.target.token.is_some() => Err(Refused::UnknownToken),
            StatusCode::UNAUTHORIZED => Err(Refused::Unauthorized),
            StatusCode::NOT_FOUND => Err(Refused::NoSuchThing),
            status if status.is_success() => Ok(body),
            status => {
                let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
                let detail = problem["detail"].as_str().map_or_else(|| status.to_string(), str::to_owned);
                Err(Refused::Problem { detail })
            }
        }
    }
}
