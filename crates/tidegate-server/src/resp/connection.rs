//! One connection: read what there is, answer all of it, write once.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::debug;

use super::Resp;
use super::session::{Next, Session};
use crate::metrics::Protocol;
use crate::peer::Link;

/// Room for what arrives at a time, and for its answers: pipelines of 200
/// throttles. Pages that are never written to cost nothing.
const ROOM: usize = 16 * 1024;
/// Answers that are held while their client is not reading. Its next commands
/// wait until these are sent.
pub const MOST_UNSENT: usize = 64 * 1024;
/// How long a client may leave its answers unread.
const READING_PATIENCE: Duration = Duration::from_secs(30);
/// How long a client may take to hang up as well, and what it may still say.
const LAST_PATIENCE: Duration = Duration::from_secs(1);
const MOST_IGNORED: usize = 1024 * 1024;

/// Serves all commands of a connection.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, link: Link, resp: Arc<Resp>) {
    if let Err(error) = answer_all(&mut stream, link, resp).await {
        debug!(%error, "a connection ended badly");
        return;
    }
    let _ = timeout(LAST_PATIENCE, hang_up(&mut stream)).await;
}

/// Until the client leaves, the server closes, or the protocol is broken.
async fn answer_all<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, link: Link, resp: Arc<Resp>) -> io::Result<()> {
    let drain = resp.app.drain.clone();
    let mut closing = pin!(drain.closing());
    let mut session = Session::new(Arc::clone(&resp), link);
    let mut buffer = Vec::with_capacity(ROOM);
    // When half a command has arrived, and the rest is due.
    let mut due = None;
    loop {
        let read = async {
            match due {
                Some(due) => timeout_at(due, stream.read_buf(&mut buffer)).await?,
                None => stream.read_buf(&mut buffer).await,
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
            send(stream, session.unsent()).await?;
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
            due = None;
            // A long command is no reason to keep room for another.
            buffer.shrink_to(ROOM);
        } else if answered || due.is_none() {
            due = Some(began + resp.app.settings.idle());
        }
    }
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    timeout(READING_PATIENCE, async {
        stream.write_all(bytes).await?;
        stream.flush().await
    })
    .await?
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
