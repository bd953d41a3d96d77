//! One connection: read what there is, answer all of it, write once.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tracing::debug;

use super::Resp;
use super::session::{Next, Session};
use crate::metrics::Protocol;

/// Room for what arrives at a time, and for its answers: pipelines of 200
/// throttles. Pages that are never written to cost nothing.
const ROOM: usize = 16 * 1024;
/// Answers that are held while their client is not reading. Its next commands
/// wait until these are sent.
pub const MOST_UNSENT: usize = 64 * 1024;
/// How long a client may leave its answers unread.
const READING_PATIENCE: Duration = Duration::from_secs(30);

/// Serves all commands of a connection.
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, resp: Arc<Resp>) {
    let drain = resp.app.drain.clone();
    let mut closing = pin!(drain.closing());
    let mut session = Session::new(Arc::clone(&resp));
    let mut buffer = Vec::with_capacity(ROOM);
    loop {
        let idle = resp.app.settings.idle();
        let mut read = async || {
            // Who has sent half a command must send the rest; others may be silent.
            match session.awaits_more() {
                true => tokio::time::timeout(idle, stream.read_buf(&mut buffer)).await?,
                false => stream.read_buf(&mut buffer).await,
            }
        };
        let read = tokio::select! {
            biased;
            read = read() => read,
            // Whatever has been sent by now has been answered.
            () = &mut closing => break,
        };
        match read {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => {
                debug!(%error, "a connection ended badly");
                break;
            }
        }
        let began = Instant::now();
        let next = loop {
            let next = session.answer(&mut buffer).await;
            if let Err(error) = send(&mut stream, session.unsent()).await {
                debug!(%error, "a client does not take its answers");
                return;
            }
            session.sent();
            if next != Next::Answer {
                break next;
            }
        };
        resp.app.metrics.answered(Protocol::Resp, began.elapsed());
        if next == Next::Close {
            break;
        }
        if buffer.is_empty() {
            // A long command is no reason to keep room for another.
            buffer.shrink_to(ROOM);
        }
    }
    let _ = tokio::time::timeout(READING_PATIENCE, stream.shutdown()).await;
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> std::io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    tokio::time::timeout(READING_PATIENCE, async {
        stream.write_all(bytes).await?;
        stream.flush().await
    })
    .await?
}
