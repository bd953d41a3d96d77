//! Events sent to a URL, signed as [Standard Webhooks](https://www.standardwebhooks.com) says.
//!
//! An event is delivered at least once, and the events of one key in their order: one that
//! fails is tried again, with longer and longer pauses, and holds back those of the same key
//! and no others. Everything is bounded: events that wait, attempts at a time, the attempts of
//! one event. What finds no room or no receiver is counted and logged. No decision waits for
//! any of it.

mod message;
mod queue;
mod target;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use self::message::{Message, Signer};
use self::queue::Queue;
use self::target::{Attempt, Target};
use crate::settings::Settings;
use crate::tell::crossings::HandedOver;
use crate::tell::metrics::Metrics;

pub use self::message::SecretError;
pub use self::target::TargetError;

/// Events on their way from decisions to the queue.
const MAX_HANDED_OVER: usize = 1_024;

/// Events that wait to be delivered; those beyond are dropped.
const MAX_QUEUED: usize = 10_000;

/// Deliveries that are attempted at a time.
const MAX_AT_A_TIME: usize = 16;

/// How often an event is tried. With the pauses below, that is for about an hour.
const MAX_ATTEMPTS: u32 = 20;

/// For how long a shutdown waits for deliveries, at most.
const FINISH: Duration = Duration::from_secs(5);

/// The pauses between attempts.
#[derive(Clone, Copy, Debug)]
struct Pauses {
    first: Duration,
    longest: Duration,
}

const PAUSES: Pauses = Pauses { first: Duration::from_millis(500), longest: Duration::from_secs(300) };

impl Pauses {
    /// Twice as long after each attempt, less up to half of it by chance, so that receivers are
    /// not asked by all at once.
    fn after(self, attempts: u32) -> Duration {
        let doubled = self.first.saturating_mul(1 << attempts.saturating_sub(1).min(20)).min(self.longest);
        let mut byte = [0];
        // Without random numbers there is no jitter.
        let _ = SystemRandom::new().fill(&mut byte);
        doubled - doubled / 2 * u32::from(byte[0]) / 256
    }
}

/// Why a webhook cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebhookError {
    /// The URL.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The secret.
    #[error(transparent)]
    Secret(#[from] SecretError),
}

/// Delivers events until it is told to finish.
pub(crate) struct Webhook {
    finish: CancellationToken,
    task: JoinHandle<usize>,
}

impl Webhook {
    /// Begins, if the settings name a URL.
    pub(crate) async fn start(settings: &Settings, metrics: &Arc<Metrics>) -> Result<Option<Webhook>, WebhookError> {
        let Some(url) = &settings.webhook else { return Ok(None) };
        let signer = Signer::new(settings.webhook_secret.as_ref().map(crate::settings::Secret::expose))?;
        let target = Target::open(url, settings.webhook_allow_private).await?;
        Ok(Some(Webhook::run(target, signer, PAUSES, metrics)))
    }

    fn run(target: Target, signer: Signer, pauses: Pauses, metrics: &Arc<Metrics>) -> Webhook {
        let (sender, receiver) = mpsc::channel(MAX_HANDED_OVER);
        metrics.crossings.send_to(sender);
        let finish = CancellationToken::new();
        let deliveries = Deliveries {
            to: Arc::new((target, signer)),
            metrics: Arc::clone(metrics),
            pauses,
            hasher: RandomState::new(),
            queue: Queue::default(),
            attempts: JoinSet::new(),
            is_gone: false,
        };
        let task = tokio::spawn(deliveries.run(receiver, finish.clone()));
        Webhook { finish, task }
    }

    /// Delivers what can be delivered in a moment, and ends.
    pub(crate) async fn finish(self) {
        self.finish.cancel();
        match self.task.await {
            Ok(0) => {}
            Ok(undelivered) => warn!(undelivered, "events were not delivered to the webhook"),
            Err(_) => error!("the webhook has failed: events were not delivered"),
        }
    }
}

struct Deliveries {
    to: Arc<(Target, Signer)>,
    metrics: Arc<Metrics>,
    pauses: Pauses,
    hasher: RandomState,
    queue: Queue,
    attempts: JoinSet<(Message, Attempt)>,
    /// The receiver said that it wants no more.
    is_gone: bool,
}

impl Deliveries {
    /// Delivers until the end, and says how many events are left.
    async fn run(mut self, mut events: mpsc::Receiver<HandedOver>, finish: CancellationToken) -> usize {
        let mut end: Option<Instant> = None;
        loop {
            while self.attempts.len() < MAX_AT_A_TIME
                && let Some(message) = self.queue.take()
            {
                let to = Arc::clone(&self.to);
                self.attempts.spawn(async move {
                    let attempt = to.0.send(to.1.request(&message)).await;
                    (message, attempt)
                });
            }
            let is_idle = self.queue.is_empty() && self.attempts.is_empty();
            if end.is_some_and(|end| is_idle && events.is_empty() || end <= Instant::now()) {
                return self.queue.len() + self.attempts.len() + events.len();
            }
            let next = self.queue.next_retry();
            let wakes_at = [next, end].into_iter().flatten().min();
            tokio::select! {
                Some(event) = events.recv() => self.add(event),
                Some(Ok((message, attempt))) = self.attempts.join_next(), if !self.attempts.is_empty() => {
                    self.conclude(message, attempt);
                }
                () = sleep_until(wakes_at.unwrap_or_else(Instant::now)), if wakes_at.is_some() => {
                    self.queue.wake(Instant::now());
                }
                () = finish.cancelled(), if end.is_none() => end = Some(Instant::now() + FINISH),
            }
        }
    }

    fn add(&mut self, (crossing, held): HandedOver) {
        if self.is_gone || self.queue.len() + self.attempts.len() >= MAX_QUEUED {
            self.metrics.crossings.dropped.inc();
            return;
        }
        let message = Message::new(&crossing, self.hasher.hash_one(&crossing.key), held);
        // From now on there is its body in the place of the key; what has no room for it counts as dropped.
        message.held.shrink_to(0);
        if message.held.add(message.body.len()).is_ok() {
            self.queue.add(message);
        }
    }

    fn conclude(&mut self, mut message: Message, attempt: Attempt) {
        message.attempts += 1;
        match attempt {
            Attempt::Delivered => {
                self.metrics.webhook("delivered");
                self.queue.done(&message);
            }
            Attempt::Gone => {
                error!("the webhook answers 410 Gone: no more events are sent to it");
                self.is_gone = true;
                let dropped = 1 + self.queue.clear();
                self.metrics.crossings.dropped.inc_by(dropped as u64);
            }
            Attempt::Failed { reason } if message.attempts < MAX_ATTEMPTS && !self.is_gone => {
                if message.attempts == 1 {
                    info!(id = %message.id, reason, "an event was not delivered; it is tried again");
                }
                self.metrics.webhook("retried");
                let at = Instant::now() + self.pauses.after(message.attempts);
                self.queue.retry(message, at);
            }
            Attempt::Failed { reason } => {
                warn!(id = %message.id, reason, attempts = message.attempts, "an event is given up");
                self.metrics.webhook("failed");
                self.queue.done(&message);
            }
        }
    }
}

#[cfg(test)]
mod tests;
