//! Where connections come from: TCP or a Unix socket, with TLS or without.
//!
//! [`Listener::serve_each`] is the one loop that accepts. A handshake is part
//! of its connection, so nobody waits for a slow one.

use std::fmt;
use std::io;
use std::net::{self, IpAddr, SocketAddr};
use std::os::unix;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use crate::app::App;
use crate::metrics::Protocol;
use crate::tls::Tls;

/// How long a client may take for the TLS handshake.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);

/// Connections that may wait to be accepted, if the system grants as many:
/// whoever comes beyond tries again after a second.
const BACKLOG: u32 = 4096;

/// After a failure to accept, such as too many open files: the next would
/// most likely fail as well.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(50);

/// Where to listen: `host:port` or `unix:/path`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A host, by name or address, and a port; port 0 is one that is free.
    Tcp(String),
    /// The path of a socket.
    Unix(PathBuf),
}

impl Address {
    /// Whether only this machine can connect.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Address::Unix(_) => true,
            Address::Tcp(text) => {
                let host = text.rsplit_once(':').map_or(text.as_str(), |(host, _)| host);
                let host = host.trim_matches(['[', ']']);
                host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
            }
        }
    }
}

/// Why a text is no address.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{text:?} is no address: write host:port, such as 127.0.0.1:7400, or unix:/path")]
pub struct AddressError {
    text: String,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let wrong = || AddressError { text: text.into() };
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(wrong()) } else { Ok(Address::Unix(path.into())) };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        if host.is_empty() || port.parse::<u16>().is_err() {
            return Err(wrong());
        }
        Ok(Address::Tcp(text.into()))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(text) => f.pad(text),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

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

    /// Whether clients must speak TLS.
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Serves every connection by `serve`, within the server's bound, until
    /// the server closes; whoever has reached the socket by then is let in.
    pub async fn serve_each<F, C>(self, app: Arc<App>, protocol: Protocol, serve: C)
    where
        C: Fn(Stream, Arc<App>) -> F + Clone + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let drain = app.drain.clone();
        let mut has_warned = false;
        loop {
            let accepted = tokio::select! {
                accepted = self.socket.accept() => accepted,
                () = drain.closing() => break,
            };
            match accepted {
                Ok(accepted) => {
                    has_warned = false;
                    self.begin(accepted, &app, protocol, serve.clone());
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
        // Those who are in the socket's queue have been told nothing yet.
        while let Some(Ok(accepted)) = self.socket.accept_now().await {
            self.begin(accepted, &app, protocol, serve.clone());
        }
    }

    fn begin<F, C>(&self, accepted: Accepted, app: &Arc<App>, protocol: Protocol, serve: C)
    where
        C: Fn(Stream, Arc<App>) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let Some(place) = app.connections.enter() else {
            app.metrics.turned_away(protocol);
            return;
        };
        app.metrics.connected(protocol);
        let (tls, app_of_task) = (self.tls.as_ref().map(Tls::acceptor), Arc::clone(app));
        app.connections.spawn_at(place, async move {
            let stream = async { handshake(accepted.here()?, tls).await };
            match stream.await {
                Ok(stream) => serve(stream, app_of_task).await,
                Err(error) => debug!(%error, "no connection with a client"),
            }
        });
    }
}

async fn handshake(plain: Stream, tls: Option<TlsAcceptor>) -> io::Result<Stream> {
    let Some(tls) = tls else { return Ok(plain) };
    let peer = plain.peer;
    let stream = tokio::time::timeout(HANDSHAKE_PATIENCE, tls.accept(plain)).await??;
    Ok(Stream::new(stream, peer))
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
    /// Makes it the connection of this thread.
    fn here(self) -> io::Result<Stream> {
        Ok(match self {
            Accepted::Tcp(stream, peer) => Stream::new(TcpStream::from_std(stream)?, Peer::Tcp(peer)),
            Accepted::Unix(stream) => Stream::new(UnixStream::from_std(stream)?, Peer::Unix),
        })
    }
}

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Someone at this address.
    Tcp(SocketAddr),
    /// A process of this machine.
    Unix,
}

/// A connection, whatever it runs over.
pub struct Stream {
    io: Box<dyn Io>,
    peer: Peer,
    /// What was read and is to be read again, before anything else.
    put_back: Vec<u8>,
}

/// What all kinds of connections can do.
trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

impl Stream {
    pub(crate) fn new(io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, peer: Peer) -> Stream {
        Stream { io: Box::new(io), peer, put_back: Vec::new() }
    }

    /// Who is at the other end.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Lets the next reader begin with these bytes.
    pub(crate) fn put_back(&mut self, bytes: Vec<u8>) {
        self.put_back.splice(..0, bytes);
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
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_printed() {
        for text in ["127.0.0.1:7400", "[::1]:0", "localhost:80", "unix:/run/tidegate.sock"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in ["", "7400", ":7400", "localhost:http", "unix:", "a:70000"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn only_this_machine_reaches_loopback_and_unix_sockets() {
        let local = |text: &str| text.parse::<Address>().unwrap().is_local();
        assert!(local("127.0.0.1:1") && local("127.9.9.9:1") && local("[::1]:1") && local("localhost:1"));
        assert!(local("unix:/tmp/x"));
        assert!(!local("0.0.0.0:1") && !local("[::]:1") && !local("192.0.2.1:1") && !local("example.com:1"));
    }
}
