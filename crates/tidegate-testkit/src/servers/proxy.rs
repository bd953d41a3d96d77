//! A connection that goes wrong when told to.
//!
//! The proxy stands between a client and a server and forwards bytes, chunk
//! by chunk, one thread for each direction of each connection. The [`Fault`]
//! is looked at when a chunk has arrived, and again whenever it changes, so a
//! switch affects connections that are open, and chunks that are held.
//!
//! It knows nothing of the protocol: a chunk is whatever arrives at once, and
//! a request is the next chunk from a client.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::SockRef;

/// What is wrong with the connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Every chunk arrives so much later, in both directions.
    Delay(Duration),
    /// Connections are made and stay open, and nothing arrives. What is held
    /// goes on its way when the fault is over.
    Stall,
    /// Requests reach the server, and replies vanish. Never over for a
    /// connection that lost one: no stream has a hole, and a later reply would
    /// be taken for the lost one.
    SwallowReplies,
    /// Connections are reset, those that are open and those that are made.
    Reset,
    /// Clients are told that the server will send no more (they read an end),
    /// and what they send still reaches it. Never over for a connection.
    HalfClose,
    /// Bytes arrive one by one, with a pause after each, in both directions.
    Drip(Duration),
}

/// A proxy in front of a server, on a port of its own; its connections are
/// reset when it is dropped.
///
/// ```no_run
/// use tidegate_testkit::servers::{ChaosProxy, Fault, Server};
///
/// let server = Server::start();
/// let proxy = ChaosProxy::start(server.address());
/// println!("connect to {}", proxy.url());
/// proxy.set(Fault::Stall);
/// ```
#[derive(Debug)]
pub struct ChaosProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl ChaosProxy {
    /// Starts one in front of an address; nothing is wrong yet.
    ///
    /// # Panics
    ///
    /// When there is no port to listen on.
    pub fn start(server: SocketAddr) -> ChaosProxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port on loopback");
        let address = listener.local_addr().expect("a listener has an address");
        let shared = Arc::new(Shared::new(server));
        let acceptor = thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&shared, &listener)
        });
        ChaosProxy { address, shared, acceptor: Some(acceptor) }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it listens, as clients are told: `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Switches to a fault, for open connections and new ones.
    pub fn set(&self, fault: Fault) {
        let mut state = self.shared.lock();
        state.fault = fault;
        match fault {
            Fault::Reset => state.reset_all(),
            Fault::HalfClose => state.links().for_each(|link| link.half_close()),
            Fault::None | Fault::Delay(_) | Fault::Stall | Fault::SwallowReplies | Fault::Drip(_) => {}
        }
        self.shared.changed.notify_all();
    }

    /// Leads to another server from now on: connections that are open are reset.
    pub fn redirect(&self, server: SocketAddr) {
        self.shared.lock().server = server;
        self.reset_connections();
    }

    /// Lets the next request through, and resets its connection in place of
    /// the reply: the server has done what the client never hears of.
    ///
    /// It happens once, to whichever client sends next; other connections are
    /// unharmed.
    pub fn reset_after_next_request(&self) {
        self.shared.lock().resets_next = true;
    }

    /// Whether [`reset_after_next_request`](ChaosProxy::reset_after_next_request)
    /// still waits for a request.
    pub fn awaits_request(&self) -> bool {
        self.shared.lock().resets_next
    }

    /// Resets the connections that are open; new ones are as the fault says.
    pub fn reset_connections(&self) {
        self.shared.lock().reset_all();
        self.shared.changed.notify_all();
    }

    /// Connections that clients have made so far, those reset at once included.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Connections that are open now.
    pub fn open_connections(&self) -> usize {
        self.shared.lock().links().count()
    }

    /// Bytes that have reached the server so far.
    pub fn bytes_to_server(&self) -> u64 {
        self.shared.bytes_to_server.load(Ordering::Relaxed)
    }

    /// Bytes that have reached clients so far.
    pub fn bytes_to_clients(&self) -> u64 {
        self.shared.bytes_to_clients.load(Ordering::Relaxed)
    }

    /// Bytes of replies that have vanished so far.
    pub fn bytes_swallowed(&self) -> u64 {
        self.shared.bytes_swallowed.load(Ordering::Relaxed)
    }
}

impl Drop for ChaosProxy {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.reset_connections();
        // Wakes the acceptor, which then sees that it is over.
        let woken = TcpStream::connect(self.address).is_ok();
        if let Some(acceptor) = self.acceptor.take().filter(|_| woken) {
            let _ = acceptor.join();
        }
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    connections: AtomicU64,
    bytes_to_server: AtomicU64,
    bytes_to_clients: AtomicU64,
    bytes_swallowed: AtomicU64,
}

#[derive(Debug)]
struct State {
    server: SocketAddr,
    fault: Fault,
    resets_next: bool,
    is_closed: bool,
    links: Vec<Weak<Link>>,
}

impl State {
    fn links(&self) -> impl Iterator<Item = Arc<Link>> + '_ {
        self.links.iter().filter_map(Weak::upgrade).filter(|link| !link.is_cut())
    }

    fn reset_all(&self) {
        self.links().for_each(|link| link.cut());
    }
}

/// One connection of a client, and the one to the server that is made for it.
#[derive(Debug)]
struct Link {
    client: TcpStream,
    server: TcpStream,
    is_cut: AtomicBool,
    is_cut_at_reply: AtomicBool,
    /// Nothing more reaches the client.
    is_mute: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToServer,
    ToClient,
}

/// What to do with a chunk at the moment.
enum Fate {
    Forward,
    Drip(Duration),
    Vanish,
    Cut,
}

impl Link {
    fn new(client: TcpStream, server: TcpStream) -> Link {
        for stream in [&client, &server] {
            let _ = stream.set_nodelay(true);
            let _ = stream.set_write_timeout(Some(Duration::from_millis(200)));
        }
        let [is_cut, is_cut_at_reply, is_mute] = [const { AtomicBool::new(false) }; 3];
        Link { client, server, is_cut, is_cut_at_reply, is_mute }
    }

    fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Acquire)
    }

    /// Resets both connections, as soon as the threads that serve them let go.
    fn cut(&self) {
        self.is_cut.store(true, Ordering::Release);
        // Wakes the threads without sending anything; the reset is sent when the sockets are closed.
        for stream in [&self.client, &self.server] {
            reset_on_close(stream);
            let _ = stream.shutdown(Shutdown::Read);
        }
    }

    fn half_close(&self) {
        self.is_mute.store(true, Ordering::Release);
        // Fails for a client that has gone, which is as good.
        let _ = self.client.shutdown(Shutdown::Write);
    }

    fn ends(&self, direction: Direction) -> (&TcpStream, &TcpStream) {
        match direction {
            Direction::ToServer => (&self.client, &self.server),
            Direction::ToClient => (&self.server, &self.client),
        }
    }

    /// Writes everything, unless the link is cut meanwhile.
    fn write(&self, mut to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match to.write(bytes) {
                _ if self.is_cut() => return Err(ErrorKind::ConnectionReset.into()),
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(length) => bytes = &bytes[length..],
                // The timeout is there only to look whether the link was cut.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Shared {
    fn new(server: SocketAddr) -> Shared {
        let state = State { server, fault: Fault::None, resets_next: false, is_closed: false, links: Vec::new() };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let [connections, bytes_to_server, bytes_to_clients, bytes_swallowed] = [const { AtomicU64::new(0) }; 4];
        Shared { state, changed, connections, bytes_to_server, bytes_to_clients, bytes_swallowed }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forwards what comes from one end until it ends.
    fn pump(&self, link: &Link, direction: Direction) {
        let (mut from, to) = link.ends(direction);
        let mut chunk = [0; 16 * 1_024];
        loop {
            match from.read(&mut chunk) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => break,
                Ok(length) => {
                    if self.deliver(link, direction, &chunk[..length]).is_err() {
                        break;
                    }
                }
            }
        }
        if !link.is_cut() {
            // Neither end can go on without the other.
            let _ = from.shutdown(Shutdown::Read);
            let _ = to.shutdown(Shutdown::Write);
        }
    }

    fn deliver(&self, link: &Link, direction: Direction, mut chunk: &[u8]) -> io::Result<()> {
        let (_, to) = link.ends(direction);
        let counter = match direction {
            Direction::ToServer => &self.bytes_to_server,
            Direction::ToClient => &self.bytes_to_clients,
        };
        while !chunk.is_empty() {
            let (length, pause) = match self.fate(link, direction) {
                Fate::Forward => (chunk.len(), Duration::ZERO),
                Fate::Drip(pause) => (1, pause),
                Fate::Vanish => {
                    self.bytes_swallowed.fetch_add(chunk.len() as u64, Ordering::Relaxed);
                    return Ok(());
                }
                Fate::Cut => {
                    link.cut();
                    return Err(ErrorKind::ConnectionReset.into());
                }
            };
            // Counted first: who has received something finds it counted.
            counter.fetch_add(length as u64, Ordering::Relaxed);
            link.write(to, &chunk[..length])?;
            chunk = &chunk[length..];
            thread::sleep(pause);
        }
        Ok(())
    }

    /// What becomes of a chunk, once there is a fault that does not hold it.
    fn fate(&self, link: &Link, direction: Direction) -> Fate {
        let is_reply = direction == Direction::ToClient;
        let mut state = self.lock();
        let mut has_waited = false;
        loop {
            if state.is_closed || link.is_cut() {
                return Fate::Cut;
            }
            match state.fault {
                Fault::Stall => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Fault::Delay(delay) if !has_waited => {
                    let unchanged = |state: &mut State| !link.is_cut() && state.fault == Fault::Delay(delay);
                    let waited = self.changed.wait_timeout_while(state, delay, unchanged);
                    let (after, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                    state = after;
                    has_waited = timeout.timed_out();
                }
                Fault::Reset => return Fate::Cut,
                Fault::SwallowReplies if is_reply => {
                    link.is_mute.store(true, Ordering::Release);
                    return Fate::Vanish;
                }
                Fault::None | Fault::Delay(_) | Fault::SwallowReplies | Fault::HalfClose | Fault::Drip(_) => break,
            }
        }
        if !is_reply && state.resets_next {
            state.resets_next = false;
            link.is_cut_at_reply.store(true, Ordering::Release);
        }
        match state.fault {
            _ if is_reply && link.is_cut_at_reply.load(Ordering::Acquire) => Fate::Cut,
            _ if is_reply && link.is_mute.load(Ordering::Acquire) => Fate::Vanish,
            Fault::Drip(pause) => Fate::Drip(pause),
            Fault::None | Fault::Delay(_) | Fault::Stall | Fault::SwallowReplies | Fault::Reset | Fault::HalfClose => {
                Fate::Forward
            }
        }
    }
}

fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    for client in listener.incoming() {
        if shared.lock().is_closed {
            return;
        }
        let Ok(client) = client else { continue };
        shared.connections.fetch_add(1, Ordering::Relaxed);
        let (server, is_reset) = {
            let state = shared.lock();
            (state.server, state.fault == Fault::Reset)
        };
        match if is_reset { Err(ErrorKind::ConnectionReset.into()) } else { connect(server) } {
            Ok(server) => serve(shared, client, server),
            Err(_) => reset_on_close(&client),
        }
    }
}

fn connect(server: SocketAddr) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&server, Duration::from_secs(5))
}

fn serve(shared: &Arc<Shared>, client: TcpStream, server: TcpStream) {
    let link = Arc::new(Link::new(client, server));
    let mut state = shared.lock();
    // The fault may have changed while the server was connected to.
    match state.fault {
        Fault::Reset => link.cut(),
        Fault::HalfClose => link.half_close(),
        Fault::None | Fault::Delay(_) | Fault::Stall | Fault::SwallowReplies | Fault::Drip(_) => {}
    }
    state.links.retain(|link| link.strong_count() > 0);
    state.links.push(Arc::downgrade(&link));
    drop(state);
    for direction in [Direction::ToServer, Direction::ToClient] {
        let (shared, link) = (Arc::clone(shared), Arc::clone(&link));
        thread::spawn(move || shared.pump(&link, direction));
    }
}

/// Makes the end of a connection a reset: without it, the other side could
/// not tell it from a server that has said all it had to say.
fn reset_on_close(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
