//! One connection: read what there is, answer all of it, write once.
//!
//! A buffer that grows beyond its room counts against the server's budget of bytes. While there is
//! none, nothing more is read, and the client waits.

use std::future::ready;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use super::Resp;
use super::session::{Next, ROOM, Session};
use crate::run::buffered::Held;
use crate::run::peer::Link;
use crate::run::protocol::Protocol;

/// Serves all commands of a connection.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, link: Link, resp: Arc<Resp>) {
    if let Err(error) = answer_all(&mut stream, link, resp).await {
        debug!(%error, "a connection ended badly");
        return;
    }
    let _ = stream.shutdown().await;
}

/// Until the client leaves, the server closes, or the protocol is broken.
async fn answer_all<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, link: Link, resp: Arc<Resp>) -> io::Result<()> {
    let drain = resp.app.guards.drain.clone();
    let (mut closing, mut is_closing) = (pin!(drain.closing()), false);
    let mut session = Session::new(Arc::clone(&resp), link);
    let mut buffer = Vec::with_capacity(ROOM);
    let held = resp.app.guards.buffered.hold(ROOM);
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
            () = &mut closing, if !is_closing => {
                // The runtime has to look at the socket for it to know of what has arrived.
                tokio::task::yield_now().await;
                is_closing = true;
                continue;
            }
            // All that had arrived has been answered.
            () = ready(()), if is_closing => return Ok(()),
        };
        if read == 0 {
            return Ok(());
        }
        let began = Instant::now();
        let mut answered = false;
        let next = loop {
            let origin = resp.app.records.metrics.tracer.origin(|| (Protocol::Resp, None));
            let next = origin.scope(session.answer(&mut buffer)).await;
            answered |= !session.unsent().is_empty();
            send(stream, session.unsent(), &resp).await?;
            session.sent();
            if next != Next::Answer {
                break next;
            }
        };
        resp.app.records.metrics.answered(Protocol::Resp, began.elapsed());
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
    let _held = (bytes.len() > ROOM).then(|| resp.app.guards.buffered.hold_anyway(bytes.len()));
    stream.write_all(bytes).await?;
    stream.flush().await
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tidegate::MemoryStore;

    use super::*;
    use crate::{Server, Settings};

    /// The server closes before the runtime has looked at the socket, in which the next command waits.
    #[tokio::test]
    async fn a_command_that_is_in_the_socket_when_the_server_closes_is_answered() {
        let settings = Settings { http: Vec::new(), ..Settings::default() };
        let server = Server::start(settings, MemoryStore::default()).await.unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let stream = listener.accept().await.unwrap().0;
        let serving =
            tokio::spawn(serve(stream, Link::new(crate::run::peer::Peer::Unix), Resp::new(Arc::clone(server.app()))));
        client.write_all(b"PING\r\n").await.unwrap();
        let mut said = Vec::new();
        while said != b"+PONG\r\n" {
            assert_ne!(client.read_buf(&mut said).await.unwrap(), 0);
        }
        // From here to the next await, only this task runs.
        assert_eq!(client.try_write(b"ECHO again\r\n").unwrap(), 12);
        server.app().guards.drain.close();
        client.read_to_end(&mut said).await.unwrap();
        serving.await.unwrap();
        assert_eq!(String::from_utf8(said).unwrap(), "+PONG\r\n$5\r\nagain\r\n");
    }
}
