//! The date of an answer.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// The time as HTTP writes it, written anew when the second has changed.
#[derive(Default)]
pub(super) struct Date {
    pub(super) text: String,
    until: Option<Instant>,
}

impl Date {
    pub(super) fn set(&mut self, now: Instant) {
        if self.until.is_none_or(|until| now >= until) {
            let time = SystemTime::now();
            let past = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            self.text = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + past);
            self.until = Some(now + Duration::from_secs(1) - Duration::from_nanos(past.subsec_nanos().into()));
        }
    }
}
