//! The way between processes and servers: in order, but at its own pace, and
//! not always to the end.
//!
//! A connection is a stream of bytes, so nothing on it is reordered or sent
//! twice: what is swallowed once is followed by silence.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo, RedisResult};
use tidegate_redis::internals::Dial;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, sleep, sleep_until};

use super::connection::Connection;
use super::defect::{PlantedDefect, is_planted};
use super::fault::{Condition, Fate, Trouble};
use super::wire;
use super::world::{State, World};

/// Opens connections for one process, to the present primary.
pub(super) struct Dialer {
    pub(super) world: Arc<World>,
    pub(super) process: usize,
}

/// Bytes on their way, each way.
const IN_FLIGHT: usize = 64 * 1024;
/// Commands on their way: as many as the client sends at most.
const MAX_COMMANDS: usize = 1_024;

impl Dial for Dialer {
    fn dial(
        &self,
        settings: AsyncConnectionConfig,
    ) -> Pin<Box<dyn Future<Output = RedisResult<MultiplexedConnection>> + Send + '_>> {
        Box::pin(async {
            let stream = self.connect().await?;
            let info = RedisConnectionInfo::default();
            let (connection, driver) = MultiplexedConnection::new_with_config(&info, stream, settings).await?;
            tokio::spawn(driver);
            Ok(connection)
        })
    }
}

impl Dialer {
    async fn connect(&self) -> io::Result<DuplexStream> {
        let Dialer { world, process } = self;
        let delay = world.lock().delay(*process);
        sleep(delay).await;
        let reached = world.lock().reach(*process);
        let server = match reached {
            Reached::Server(server) => server,
            Reached::NoServer => return Err(io::ErrorKind::ConnectionRefused.into()),
            Reached::Silence => std::future::pending().await,
        };
        let (ours, theirs) = duplex(IN_FLIGHT);
        let connection = Arc::new(Connection::new(*process, server));
        world.lock().connections.push(Arc::clone(&connection));
        serve(Arc::clone(world), &connection, theirs);
        Ok(ours)
    }
}

enum Reached {
    Server(usize),
    NoServer,
    Silence,
}

impl State {
    fn troubles(&self, process: usize) -> impl Iterator<Item = Trouble> {
        let concerns = move |condition: &Condition| condition.process.is_none_or(|other| other == process);
        self.conditions.iter().map(|(_, condition)| *condition).filter(concerns).map(|condition| condition.trouble)
    }

    /// Whom a process reaches that wants to connect.
    fn reach(&mut self, process: usize) -> Reached {
        let troubles: Vec<Trouble> = self.troubles(process).collect();
        if troubles.iter().any(|trouble| matches!(trouble, Trouble::Hangs)) {
            return Reached::Silence;
        }
        // The former primary may still be taken for it.
        let former = self.primary.checked_sub(1).filter(|former| self.servers[*former].refuses.is_none());
        let server = former.filter(|_| self.random.percent(30)).unwrap_or(self.primary);
        let refused =
            self.servers[server].is_down || troubles.iter().any(|trouble| matches!(trouble, Trouble::Refuses));
        if refused { Reached::NoServer } else { Reached::Server(server) }
    }

    fn delay(&mut self, process: usize) -> Duration {
        let slowest = self.troubles(process).fold(2, |most, trouble| match trouble {
            Trouble::Slow { most_ms } => most.max(most_ms),
            Trouble::Spoils { .. } | Trouble::Refuses | Trouble::Hangs => most,
        });
        Duration::from_millis(self.random.within(1..=slowest))
    }

    fn fate(&mut self, process: usize) -> Fate {
        let troubles: Vec<Trouble> = self.troubles(process).collect();
        let spoilt = troubles.into_iter().find_map(|trouble| match trouble {
            Trouble::Spoils { fate, percent } => self.random.percent(percent).then_some(fate),
            Trouble::Slow { .. } | Trouble::Refuses | Trouble::Hangs => None,
        });
        spoilt.unwrap_or(Fate::Arrives)
    }

    /// Ends every connection to a server.
    pub(super) fn cut_all(&mut self, server: usize) {
        self.connections.retain(|connection| {
            if connection.server == server {
                connection.cut();
            }
            connection.server != server
        });
    }
}

fn serve(world: Arc<World>, connection: &Arc<Connection>, stream: DuplexStream) {
    let (from_client, to_client) = split(stream);
    let (arrivals, arriving) = channel(MAX_COMMANDS);
    let (replies, replying) = channel(MAX_COMMANDS);
    let tasks = [
        tokio::spawn(receive(Arc::clone(&world), connection.process, from_client, arrivals)),
        tokio::spawn(carry_out(Arc::clone(&world), Arc::clone(connection), arriving, replies)),
        tokio::spawn(answer(world, to_client, replying)),
    ];
    connection.serve_by(&tasks);
}

/// Something, and when it is there.
type Travelling<T> = (Instant, T);

/// Reads commands, and has each arrive after a while.
async fn receive(
    world: Arc<World>,
    process: usize,
    mut from_client: ReadHalf<DuplexStream>,
    arrivals: Sender<Travelling<Vec<Vec<u8>>>>,
) {
    let (mut arrived, mut latest) = (Vec::new(), Instant::now());
    while from_client.read_buf(&mut arrived).await.is_ok_and(|bytes| bytes > 0) {
        while let Some(command) = wire::take_command(&mut arrived) {
            latest = latest.max(Instant::now() + world.lock().delay(process));
            if arrivals.send((latest, command)).await.is_err() {
                return;
            }
        }
    }
}

/// Has the server carry out what has arrived.
async fn carry_out(
    world: Arc<World>,
    connection: Arc<Connection>,
    mut arriving: Receiver<Travelling<Vec<Vec<u8>>>>,
    replies: Sender<Travelling<Vec<u8>>>,
) {
    let Connection { process, server, .. } = *connection;
    let (mut latest, mut is_silent) = (Instant::now(), false);
    while let Some((due, command)) = arriving.recv().await {
        sleep_until(due).await;
        loop {
            let stopped_until = world.lock().servers[server].stopped_until.filter(|until| *until > Instant::now());
            let Some(until) = stopped_until else { break };
            sleep_until(until).await;
        }
        let (fate, delay) = {
            let mut state = world.lock();
            let (fate, delay) = (state.fate(process), state.delay(process));
            if fate != Fate::Arrives {
                state.note(format_args!("network of {process}: {fate:?}"));
            }
            (fate, delay)
        };
        match fate {
            Fate::Arrives => {}
            Fate::Swallowed => is_silent = true,
            Fate::Lost => std::future::pending().await,
            Fate::CutBefore | Fate::CutAfter => {
                if fate == Fate::CutAfter {
                    world.lock().execute(process, server, &command);
                    if is_planted(PlantedDefect::SendsAgain) {
                        world.lock().execute(process, server, &command);
                    }
                }
                connection.cut();
                std::future::pending::<()>().await;
            }
        }
        let reply = world.lock().execute(process, server, &command);
        latest = latest.max(Instant::now() + delay);
        if !is_silent && replies.send((latest, reply)).await.is_err() {
            // The client has gone, but what was sent is carried out.
            is_silent = true;
        }
    }
}

/// Sends replies, some of them in two pieces.
async fn answer(
    world: Arc<World>,
    mut to_client: WriteHalf<DuplexStream>,
    mut replying: Receiver<Travelling<Vec<u8>>>,
) {
    while let Some((due, reply)) = replying.recv().await {
        sleep_until(due).await;
        let cut = if world.lock().random.percent(10) { reply.len() / 2 } else { reply.len() };
        for piece in [&reply[..cut], &reply[cut..]].into_iter().filter(|piece| !piece.is_empty()) {
            if to_client.write_all(piece).await.is_err() {
                return;
            }
            if cut < reply.len() {
                sleep(Duration::from_millis(1)).await;
            }
        }
    }
}
