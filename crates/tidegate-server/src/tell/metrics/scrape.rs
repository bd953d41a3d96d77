//! What scrapers are given: one rendering at a time, shared for a second.
//!
//! Scrapers that come together wait for the same rendering, as tasks: none of
//! them has a thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Mutex;

/// How old a rendering may be.
const MAX_AGE: Duration = Duration::from_secs(1);

/// How metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Prometheus,
    OpenMetrics,
}

/// The latest rendering in each format.
#[derive(Default)]
pub(super) struct Renderings(Arc<Mutex<[Option<Rendering>; 2]>>);

struct Rendering {
    made: Instant,
    text: Bytes,
}

impl Renderings {
    /// The text in a format: the latest if it is young enough, or that of `render`.
    pub(super) async fn text(&self, format: Format, render: impl FnOnce() -> String + Send + 'static) -> Bytes {
        let mut latest = Arc::clone(&self.0).lock_owned().await;
        match &latest[format as usize] {
            Some(known) if known.made.elapsed() < MAX_AGE => return known.text.clone(),
            Some(_) | None => {}
        }
        // The lock goes with it: a scraper that disconnects does not let another rendering begin.
        let rendered = tokio::task::spawn_blocking(move || {
            let text = Bytes::from(render());
            latest[format as usize] = Some(Rendering { made: Instant::now(), text: text.clone() });
            text
        });
        rendered.await.unwrap_or_default()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt;
    use futures_util::future::join_all;

    use super::*;

    #[tokio::test]
    async fn scrapers_that_come_together_share_a_rendering_though_some_disconnect() {
        let (renderings, at_work) = (Renderings::default(), Arc::new(AtomicUsize::new(0)));
        let scrape = |format| {
            let at_work = Arc::clone(&at_work);
            renderings.text(format, move || {
                assert_eq!(at_work.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
                std::thread::yield_now();
                at_work.fetch_sub(1, Ordering::SeqCst);
                "text".to_owned()
            })
        };
        // It has begun a rendering when it disconnects.
        drop(scrape(Format::Prometheus).now_or_never());
        let texts = join_all((0..300).map(|_| scrape(Format::Prometheus))).await;
        assert!(texts.iter().all(|text| text == "text"));
        // A rendering is shared to the byte; a machine that stalls for a second makes another.
        let mut made: Vec<*const u8> = texts.iter().map(|text| text.as_ptr()).collect();
        made.sort_unstable();
        made.dedup();
        assert!(made.len() < 30, "{} renderings", made.len());
        assert_eq!(scrape(Format::OpenMetrics).await, "text");
    }
}
