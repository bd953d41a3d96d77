//! Where connections come from: TCP or a Unix socket, with TLS or without.
//!
//! [`Listener::serve_each`] is the one loop that accepts. A handshake is part
//! of its connection, so no other waits for a slow one. A connection whose
//! peer does not read is closed here, for every protocol.

use std::io;
use std::net::{self, IpAddr, SocketAddr};
use std::os::unix;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};
use tokio::time::{Sleep, sleep};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use crate::run::connection_counts::{HANDSHAKE, OpenConnection};
use crate::run::connections::{Admitted, Connections};
use crate::run::peer::{Certificate, Link, Peer};
use crate::run::protocol::Protocol;
use crate::run::shares::Share;
use crate::run::tls::Tls;
use crate::settings::address::Address;

/// How long a client may take for the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a client may read nothing while there is something to send.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Connections that may wait to be accepted, if the system grants as many:
/// clients beyond that retry after a second.
const BACKLOG: u32 = 4096;

/// After a failure to accept, such as too many open files: the next would
/// most likely fail as well.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(50);

/// A bound socket, with TLS or without.
pub struct Listener {
    socket: Socket,
    tls: Option<Tls>,
    address: Address,
}

enum Socket {
    Tcp(TcpListener),
    Unix { socket: UnixListener, _file: RemovedAtEnd },
}

/// The file of a Unix socket goes with it.
struct RemovedAtEnd(PathBuf);

impl Drop for RemovedAtEnd {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Listener {
    pub(crate) async fn bind(address: &Address, tls: Option<Tls>) -> io::Result<Listener> {
        let (socket, address) = match address {
            Address::Tcp(text) => {
                let socket = bind_tcp(text).await?;
                let address = Address::Tcp(socket.local_addr()?.to_string());
                (Socket::Tcp(socket), address)
            }
            Address::Unix(path) => {
                remove_stale(path).await?;
                let socket = UnixListener::bind(path)?;
                (Socket::Unix { socket, _file: RemovedAtEnd(path.clone()) }, address.clone())
            }
        };
        Ok(Listener { socket, tls, address })
    }

    /// Where it listens, with the port that was chosen if any would do.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Serves every connection by `serve`, within the server's bound, until
    /// the server closes; connections that have reached the socket by then are served.
    pub async fn serve_each<F, C>(self, connections: Arc<Connections>, protocol: Protocol, serve: C)
    where
        C: Fn(Stream, Admitted) -> F + Clone + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let drain = connections.drain.clone();
        let mut has_warned = false;
        loop {
            let accepted = tokio::select! {
                accepted = self.accept(&connections) => accepted,
                () = drain.closing() => break,
            };
            match accepted {
                Ok(accepted) => {
                    has_warned = false;
                    self.begin(accepted, &connections, protocol, serve.clone());
                }
                Err(error) => {
                    // Once for all of a row of failures.
                    if !std::mem::replace(&mut has_warned, true) {
                        warn!(address = %self.address, %error, "cannot accept a connection");
                    }
                    tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
                }
            }
        }
        // Connections in the socket's queue have been told nothing yet. The runtime
        // has to look at the socket for it to know of them.
        tokio::task::yield_now().await;
        while let Some(Ok(accepted)) = self.socket.accept_now().await {
            self.begin(accepted, &connections, protocol, serve.clone());
        }
    }

    async fn accept(&self, connections: &Connections) -> io::Result<Accepted> {
        if self.tls.is_some() {
            connections.handshakes.room().await;
        }
        self.socket.accept().await
    }

    fn begin<F, C>(&self, accepted: Accepted, connections: &Arc<Connections>, protocol: Protocol, serve: C)
    where
        C: Fn(Stream, Admitted) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let (address, slot) = (accepted.peer().address(), connections.slot());
        let failed = |error: io::Error| debug!(%error, "no connection with a client");
        let Some(tls) = self.tls.as_ref().map(Tls::acceptor) else {
            let Some(place) = enter(connections, protocol, address) else { return };
            connections.spawn_at(slot, async move {
                match accepted.here() {
                    Ok(stream) => serve(stream, place.admitted).await,
                    Err(error) => failed(error),
                }
                drop(place);
            });
            return;
        };
        let (handshake, of_task) = (connections.handshakes.begin(address), Arc::clone(connections));
        connections.spawn_at(slot, async move {
            let connections = of_task;
            let stream = tokio::select! {
                stream = async { shake_hands(accepted.here()?, tls).await } => stream,
                () = handshake.dropped() => return connections.counts.refused(protocol, HANDSHAKE),
            };
            drop(handshake);
            match stream {
                Ok(stream) => {
                    let Some(place) = enter(&connections, protocol, address) else { return };
                    serve(stream, place.admitted).await;
                    drop(place);
                }
                Err(error) => failed(error),
            }
        });
    }
}

/// A connection's place; it is free again when this is dropped.
struct Place {
    admitted: Admitted,
    _share: Share,
    _open: OpenConnection,
}

/// A place in the pool of the protocol; if there is none, for HTTP one in the reserve.
fn enter(connections: &Connections, protocol: Protocol, address: Option<IpAddr>) -> Option<Place> {
    let (admitted, share) = match connections.enter(protocol, address) {
        Ok(share) => (Admitted::Pool, share),
        Err(full) => {
            connections.counts.refused(protocol, full.as_str());
            if protocol != Protocol::Http {
                return None;
            }
            (Admitted::Reserve, connections.enter_reserve(address).ok()?)
        }
    };
    Some(Place { admitted, _share: share, _open: connections.counts.connected(protocol) })
}

async fn shake_hands(plain: Stream, tls: TlsAcceptor) -> io::Result<Stream> {
    let peer = plain.peer();
    let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(plain)).await??;
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let certificate = certificate.map(|certificate| Arc::new(Certificate::read(certificate)));
    // The stream below it waits for the other side.
    let mut stream = Stream { ignores: 0, ..Stream::new(stream, peer) };
    stream.link.certificate = certificate;
    Ok(stream)
}

/// Listens on the first address of a name that can be had.
async fn bind_tcp(text: &str) -> io::Result<TcpListener> {
    let mut failure = io::Error::new(io::ErrorKind::AddrNotAvailable, "the name has no address");
    for address in tokio::net::lookup_host(text).await? {
        let bound = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }.and_then(|socket| {
            // A server that starts again need not wait for the connections of the last one.
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            socket.listen(BACKLOG)
        });
        match bound {
            Ok(socket) => return Ok(socket),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Makes way for a socket where a server that has died left one; a live
/// server's is left alone.
async fn remove_stale(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    match tokio::fs::symlink_metadata(path).await {
        Ok(found) if found.file_type().is_socket() => {
            if UnixStream::connect(path).await.is_ok() {
                return Err(io::Error::new(io::ErrorKind::AddrInUse, "another server listens there"));
            }
            tokio::fs::remove_file(path).await
        }
        Ok(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is no socket")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

impl Socket {
    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Socket::Tcp(socket) => {
                let (stream, peer) = socket.accept().await?;
                // Answers are small and each is waited for.
                stream.set_nodelay(true)?;
                Ok(Accepted::Tcp(stream.into_std()?, peer))
            }
            Socket::Unix { socket, .. } => Ok(Accepted::Unix(socket.accept().await?.0.into_std()?)),
        }
    }

    /// A connection, if one is there already.
    async fn accept_now(&self) -> Option<io::Result<Accepted>> {
        tokio::select! {
            biased;
            accepted = self.accept() => Some(accepted),
            () = std::future::ready(()) => None,
        }
    }
}

/// A connection that is not any thread's yet.
enum Accepted {
    Tcp(net::TcpStream, SocketAddr),
    Unix(unix::net::UnixStream),
}

impl Accepted {
    fn peer(&self) -> Peer {
        match self {
            Accepted::Tcp(_, peer) => Peer::Tcp(*peer),
            Accepted::Unix(_) => Peer::Unix,
        }
    }

    /// Makes it the connection of this thread.
    fn here(self) -> io::Result<Stream> {
        let peer = self.peer();
        Ok(match self {
            Accepted::Tcp(stream, _) => Stream::new(TcpStream::from_std(stream)?, peer),
            Accepted::Unix(stream) => Stream::new(UnixStream::from_std(stream)?, peer),
        })
    }
}

/// A connection, whatever it runs over.
pub struct Stream {
    io: Box<dyn Io>,
    link: Link,
    pub(crate) write_timeout: Duration,
    /// Runs while the peer does not read what is sent.
    stalled: Option<Pin<Box<Sleep>>>,
    /// What was read and is to be read again, before anything else.
    put_back: Vec<u8>,
    /// How many bytes are read and dropped while it is shut down.
    ignores: usize,
    /// When shutting down ends at the latest, once it has begun.
    ends: Option<Pin<Box<Sleep>>>,
}

/// How long the other side may take to close as well, and what it may still send.
const MAX_FAREWELL: Duration = Duration::from_secs(1);
const MAX_IGNORED: usize = 1024 * 1024;

/// What all kinds of connections can do.
trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

impl Stream {
    pub(crate) fn new(io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, peer: Peer) -> Stream {
        let (link, put_back, ignores) = (Link::new(peer), Vec::new(), MAX_IGNORED);
        Stream { io: Box::new(io), link, write_timeout: WRITE_TIMEOUT, stalled: None, put_back, ignores, ends: None }
    }

    /// Who is at the other end.
    pub fn peer(&self) -> Peer {
        self.link.peer
    }

    /// The same, with the certificate.
    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// Sends the end of the stream, then waits for that of the other side: a socket that
    /// is closed with something unread in it resets the connection, and the other side may
    /// lose what it was sent before.
    fn poll_farewell(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.io).poll_shutdown(cx))?;
        let mut ignored = [0; 1024];
        while self.ignores > 0 {
            let mut buffer = ReadBuf::new(&mut ignored);
            match ready!(Pin::new(&mut self.io).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {
                    self.ignores = self.ignores.saturating_sub(buffer.filled().len());
                }
                Ok(()) | Err(_) => break,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Lets the next reader begin with these bytes.
    pub(crate) fn put_back(&mut self, bytes: Vec<u8>) {
        self.put_back.splice(..0, bytes);
    }

    /// What came of sending, unless the peer has read nothing for too long.
    fn within_timeout<T>(&mut self, cx: &mut Context<'_>, sent: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if sent.is_ready() {
            self.stalled = None;
            return sent;
        }
        let timeout = self.write_timeout;
        ready!(self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout))).as_mut().poll(cx));
        let words = format!("the client read nothing for {timeout:?}");
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, words)))
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.put_back.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, buf);
        }
        let length = self.put_back.len().min(buf.remaining());
        buf.put_slice(&self.put_back[..length]);
        self.put_back.drain(..length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.io).poll_write(cx, buf);
        self.within_timeout(cx, sent)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.within_timeout(cx, sent)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sent = Pin::new(&mut self.io).poll_flush(cx);
        self.within_timeout(cx, sent)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = self.poll_farewell(cx);
        let ends = self.ends.get_or_insert_with(|| Box::pin(sleep(MAX_FAREWELL)));
        match ended {
            Poll::Ready(ended) => Poll::Ready(ended),
            Poll::Pending => ends.as_mut().poll(cx).map(Ok),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::run::connections::Bounds;
    use crate::run::workers::Workers;

    /// The server closes before the runtime has looked at the socket, in whose queue a connection waits.
    #[tokio::test]
    async fn a_connection_in_the_queue_is_served_when_the_server_closes() {
        use tokio::io::AsyncWriteExt;
        let bounds = Bounds { connections: 1, per_address: 1, handshakes: 1 };
        let connections = Arc::new(Connections::new(bounds, Workers::start(None).unwrap()));
        let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap(), None).await.unwrap();
        let mut client = net::TcpStream::connect(listener.address().to_string()).unwrap();
        connections.drain.close();
        let serve = |mut stream: Stream, _| async move {
            let _ = stream.write_all(b"served").await;
            let _ = stream.shutdown().await;
        };
        listener.serve_each(Arc::clone(&connections), Protocol::Http, serve).await;
        let mut said = String::new();
        std::io::Read::read_to_string(&mut client, &mut said).unwrap();
        assert_eq!(said, "served");
    }

    /// What the other side sends after the end is read and dropped, so that it is not reset.
    #[tokio::test]
    async fn a_stream_that_is_shut_down_does_not_reset_the_other_side() {
        use tokio::io::AsyncWriteExt;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut stream = Stream::new(listener.accept().await.unwrap().0, Peer::Unix);
        let mut sending = client.try_clone().unwrap();
        std::io::Write::write_all(&mut sending, b"too late").unwrap();
        let sending = std::thread::spawn(move || {
            let mut said = String::new();
            let read = std::io::Read::read_to_string(&mut client, &mut said);
            (read.map(|_| said), std::io::Write::write_all(&mut sending, b"later"))
        });
        stream.write_all(b"answer").await.unwrap();
        stream.shutdown().await.unwrap();
        drop(stream);
        let (said, sent) = sending.join().unwrap();
        assert_eq!(said.unwrap(), "answer");
        sent.unwrap();
    }

    #[tokio::test]
    async fn a_peer_that_does_not_read_is_given_up() {
        let (mut client, server) = tokio::io::duplex(4);
        let mut stream = Stream::new(server, Peer::Unix);
        stream.write_timeout = Duration::from_millis(20);
        stream.write_all(b"1234").await.unwrap();
        let stalled = tokio::join!(stream.write_all(b"5"), async {
            let mut read = [0];
            client.read_exact(&mut read).await.unwrap();
        });
        stalled.0.unwrap();
        let error = stream.write_all(b"6").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    }
}
