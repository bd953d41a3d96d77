//! One connection: read what there is, answer all of it, write once.
//!
//! A buffer that grows beyond its room counts against the server's budget of bytes. While there is
//! none, nothing more is read, and the client waits.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::debug;

use super::Resp;
use super::session::{Next, Session};
use crate::buffered::Held;
use crate::metrics::Protocol;

/// Room for what arrives at a time, and for its answers: pipelines of 200
/// throttles. Pages that are never written to cost nothing.
pub(super) const ROOM: usize = 16 * 1024;
/// Answers that are held while their client is not reading. Its next commands
/// wait until these are sent.
pub const MOST_UNSENT: usize = 64 * 1024;
/// How long a client may take to hang up as well, and what it may still say.
const LAST_PATIENCE: Duration = Duration::from_secs(1);
const MOST_IGNORED: usize = 1024 * 1024;

/// Serves all commands of a connection.
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, resp: Arc<Resp>) {
    if let Err(error) = answer_all(&mut stream, resp).await {
        debug!(%error, "a connection ended badly");
        return;
    }
    let _ = timeout(LAST_PATIENCE, hang_up(&mut stream)).await;
}

/// Until the client leaves, the server closes, or the protocol is broken.
async fn answer_all<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, resp: Arc<Resp>) -> io::Result<()> {
    let drain = resp.app.drain.clone();
    let mut closing = pin!(drain.closing());
    let mut session = Session::new(Arc::clone(&resp));
    let mut buffer = Vec::with_capacity(ROOM);
    let held = resp.app.buffered.hold(ROOM);
    // When the next command is due, or the rest of one.
    let mut due = due_from(Instant::now(), resp.app.settings.resp_idle());
    let mut is_half = false;
    loop {
        let read = async {
            match due {
                Some(due) => timeout_at(due, read_more(stream, &mut buffer, &held)).await?,
                None => read_more(stream, &mut buffer, &held).await,
            }
        };
        let read = tokio::select! {
            biased;
            read = read => read?,
            // All that had been sent has been answered.
            () = &mut closing => return Ok(()),
        };
        if read == 0 {
            return Ok(());
        }
        let began = Instant::now();
        let mut answered = false;
        let next = loop {
            let next = session.answer(&mut buffer).await;
            answered |= !session.unsent().is_empty();
            send(stream, session.unsent(), &resp).await?;
            session.sent();
            if next != Next::Answer {
                break next;
            }
        };
        resp.app.metrics.answered(Protocol::Resp, began.elapsed());
        if next == Next::Close {
            return Ok(());
        }
        if buffer.is_empty() {
            (due, is_half) = (due_from(began, resp.app.settings.resp_idle()), false);
            // A long command is no reason to keep room for another.
            buffer.shrink_to(ROOM);
            held.shrink_to(buffer.capacity());
        } else if answered || !is_half {
            (due, is_half) = (due_from(began, Some(resp.app.settings.idle())), true);
        }
    }
}

fn due_from(now: Instant, timeout: Option<Duration>) -> Option<Instant> {
    timeout.map(|timeout| now + timeout)
}

/// Reads what there is; more than the buffer has room for only once the server has room for it.
async fn read_more(stream: &mut (impl AsyncRead + Unpin), buffer: &mut Vec<u8>, held: &Held) -> io::Result<usize> {
    if buffer.len() == buffer.capacity() {
        let capacity = 2 * buffer.capacity().max(ROOM);
        held.grow_in_time(capacity).await;
        buffer.reserve_exact(capacity - buffer.len());
    }
    stream.read_buf(buffer).await
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8], resp: &Resp) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let _held = (bytes.len() > ROOM).then(|| resp.app.buffered.hold_anyway(bytes.len()));
    stream.write_all(bytes).await?;
    stream.flush().await
}

/// Hangs up and waits for the other side: a socket that is closed with
/// something unread in it may take back what it has sent.
async fn hang_up(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<()> {
    stream.shutdown().await?;
    let mut ignored = [0; 1024];
    let mut most = MOST_IGNORED;
    while most > 0 {
        match stream.read(&mut ignored).await? {
            0 => break,
            length => most = most.saturating_sub(length),
        }
    }
    Ok(())
}
