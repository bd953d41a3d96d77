//! One server, in a directory and on a port of its own.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use super::connection::{Connection, Reply};
use super::gate::Permit;
use super::process::{Directory, Process};
use super::program::Program;
use super::{BETWEEN_LOOKS, GUARD};

/// How many ports to try: others may take one between the look and the start.
const PORT_ATTEMPTS: usize = 20;

/// What holds for every server, unless a directive says otherwise.
const DEFAULTS: [(&str, &str); 8] = [
    ("bind", "127.0.0.1"),
    ("protected-mode", "no"),
    ("daemonize", "no"),
    ("save", ""),
    ("appendonly", "no"),
    ("appendfsync", "no"),
    // A master otherwise waits five seconds for more replicas before it feeds the first.
    ("repl-diskless-sync-delay", "0"),
    ("repl-ping-replica-period", "1"),
];

/// What a process of the program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Server,
    TlsServer,
    Sentinel,
}

/// One running server; killed when dropped.
///
/// ```no_run
/// use tidegate_testkit::servers::Server;
///
/// let server = Server::start();
/// server.command(&["SET", "tide", "high"]);
/// server.restart();
/// assert_eq!(server.command(&["EXISTS", "tide"]).integer(), 0);
/// ```
#[derive(Debug)]
pub struct Server {
    program: Program,
    role: Role,
    password: Option<String>,
    port: u16,
    directory: Directory,
    process: Mutex<Option<Process>>,
    _permit: Permit,
}

impl Server {
    /// Starts one that keeps nothing, and waits until it answers.
    ///
    /// # Panics
    ///
    /// When it does not start, with its log. So do the other ways to start one.
    pub fn start() -> Server {
        Server::start_with(&[])
    }

    /// Starts one with further directives, as in a configuration file.
    ///
    /// With `appendonly yes` it keeps its data over a [`restart`](Server::restart).
    pub fn start_with(directives: &[(&str, &str)]) -> Server {
        Server::start_on(&Program::from_environment(), directives)
    }

    /// Starts one of a given program.
    pub fn start_on(program: &Program, directives: &[(&str, &str)]) -> Server {
        Server::launch(program, Role::Server, Directory::in_memory(), directives)
    }

    pub(super) fn launch(program: &Program, role: Role, directory: Directory, directives: &[(&str, &str)]) -> Server {
        let password = directives.iter().rev().find(|(name, _)| *name == "requirepass");
        let mut server = Server {
            program: program.clone(),
            role,
            password: password.map(|(_, password)| (*password).to_owned()),
            port: 0,
            directory,
            process: Mutex::new(None),
            _permit: Permit::wait(1),
        };
        for _ in 0..PORT_ATTEMPTS {
            server.port = unused_port();
            server.directory.write("server.conf", &server.configuration(directives));
            match server.run() {
                Ok(()) => return server,
                Err(log) if log.contains("already in use") => {
                    let _ = fs::remove_file(server.log_path());
                }
                Err(log) => panic!("{} did not start:\n{log}", program.version()),
            }
        }
        panic!("{} found no free port in {PORT_ATTEMPTS} attempts", program.version());
    }

    /// What it was started of.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The port it listens on, the same over restarts.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Where it listens, as clients are told: `redis://127.0.0.1:PORT`, or
    /// `rediss://` for one that speaks TLS.
    pub fn url(&self) -> String {
        let scheme = match self.role {
            Role::Server | Role::Sentinel => "redis",
            Role::TlsServer => "rediss",
        };
        let password = self.password.as_ref().map(|password| format!(":{password}@")).unwrap_or_default();
        format!("{scheme}://{password}{}", self.address())
    }

    /// The Unix socket that it listens on as well.
    pub fn unix_socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// The id of its process.
    ///
    /// # Panics
    ///
    /// When it was killed.
    pub fn process_id(&self) -> u32 {
        self.with_process(|process| process.id())
    }

    /// What it has written to its log so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.log_path()).unwrap_or_default()).into_owned()
    }

    /// Runs a command, on a connection of its own.
    ///
    /// # Panics
    ///
    /// When there is no reply, or it is an error.
    pub fn command<A: AsRef<[u8]>>(&self, words: &[A]) -> Reply {
        let shown = || words.iter().map(|word| String::from_utf8_lossy(word.as_ref())).collect::<Vec<_>>().join(" ");
        match self.try_command(words) {
            Ok(Reply::Error(error)) => panic!("`{}` on port {}: {error}", shown(), self.port),
            Ok(reply) => reply,
            Err(error) => panic!("no reply to `{}` on port {}: {error}", shown(), self.port),
        }
    }

    /// Runs a command that may fail; a [`Reply::Error`] is a reply.
    ///
    /// # Errors
    ///
    /// When there is no reply: it was killed, or is paused.
    pub fn try_command<A: AsRef<[u8]>>(&self, words: &[A]) -> io::Result<Reply> {
        // The Unix socket answers whether or not the port speaks TLS, and is never another server's.
        let mut connection = Connection::open_unix(&self.unix_socket())?;
        if let Some(password) = &self.password {
            connection.command(&["AUTH", password])?;
        }
        connection.command(words)
    }

    /// A field of what `INFO` tells in a section, for example
    /// `info("memory", "used_memory")`.
    ///
    /// # Panics
    ///
    /// When there is no such field.
    pub fn info(&self, section: &str, field: &str) -> String {
        let info = self.command(&["INFO", section]).text();
        field_of(&info, field).unwrap_or_else(|| panic!("no {field} in the section {section}:\n{info}"))
    }

    /// Whether it runs: neither ended nor paused.
    pub fn is_running(&self) -> bool {
        self.lock().as_mut().is_some_and(|process| !process.has_ended() && !process.is_paused())
    }

    /// Kills it at once (SIGKILL); clients see their connections end.
    pub fn kill(&self) {
        self.with_process(Process::kill);
    }

    /// Lets it end in good order (SIGTERM), and waits until it has.
    pub fn terminate(&self) {
        self.with_process(Process::terminate);
    }

    /// Pauses it (SIGSTOP): connections stay open, and nothing is answered.
    pub fn pause(&self) {
        self.with_process(Process::pause);
    }

    /// Lets it go on after a [`pause`](Server::pause).
    pub fn resume(&self) {
        self.with_process(Process::resume);
    }

    /// Starts it again on the same port, killing it first if it still runs.
    ///
    /// Its data are lost unless it was told to keep them.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub fn restart(&self) {
        if let Some(process) = self.lock().take() {
            process.make_way();
        }
        self.run().unwrap_or_else(|log| panic!("the server did not start again:\n{log}"));
    }

    /// Runs a command; what went wrong if there is no reply, or it is an error.
    pub(super) fn ask(&self, words: &[&str]) -> Result<Reply, String> {
        match self.try_command(words) {
            Ok(Reply::Error(error)) => Err(error),
            Ok(reply) => Ok(reply),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Starts the process and waits until it answers; the log if it does not.
    fn run(&self) -> Result<(), String> {
        let configuration = self.directory.path().join("server.conf").display().to_string();
        let arguments: &[&str] = match self.role {
            Role::Server | Role::TlsServer => &[&configuration],
            Role::Sentinel => &[&configuration, "--sentinel"],
        };
        let mut process = Process::start(self.program.path(), arguments, &self.directory, &self.log_path());
        let began = Instant::now();
        while self.try_command(&["PING"]).map_or(true, |reply| reply != Reply::Status("PONG".to_owned())) {
            if process.has_ended() || began.elapsed() > GUARD {
                process.make_way();
                return Err(self.log());
            }
            thread::sleep(BETWEEN_LOOKS);
        }
        *self.lock() = Some(process);
        Ok(())
    }

    fn configuration(&self, directives: &[(&str, &str)]) -> String {
        let port = self.port.to_string();
        // A program built without TLS does not know `tls-port`, so only its servers are told.
        let ports: &[(&str, &str)] = match self.role {
            Role::Server | Role::Sentinel => &[("port", &port)],
            Role::TlsServer => &[("port", "0"), ("tls-port", &port)],
        };
        let directory = self.directory.path().display().to_string();
        let socket = self.unix_socket().display().to_string();
        let own = [("dir", directory.as_str()), ("unixsocket", socket.as_str())];
        let all = ports.iter().chain(&own).chain(&DEFAULTS).chain(directives);
        all.map(|(name, value)| format!("{name} {}\n", if value.is_empty() { "\"\"" } else { value })).collect()
    }

    fn log_path(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    fn lock(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_process<T>(&self, act: impl FnOnce(&mut Process) -> T) -> T {
        act(self.lock().as_mut().expect("a server that was started has a process"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // In this order: the directory goes after the process that writes to it, and before the guard looks.
        if let Some(process) = self.lock().as_mut() {
            process.kill();
        }
        self.directory.remove();
    }
}

/// The value of a field in a text of lines `field:value`.
pub(super) fn field_of(text: &str, field: &str) -> Option<String> {
    text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':').map(|value| value.trim().to_owned()))
}

/// A port that no process listens on, with the one ten thousand above, where the
/// nodes of a cluster talk to each other.
///
/// Both lie below the ports that systems give to connections, so that no
/// connection gets the port of a server between its end and its restart.
fn unused_port() -> u16 {
    const FIRST: u16 = 12_000;
    const COUNT: u16 = 10_000;
    // Processes of tests that run side by side begin far from each other.
    static NEXT: LazyLock<AtomicU32> = LazyLock::new(|| AtomicU32::new(process::id().wrapping_mul(2_654_435_769) >> 8));
    let is_free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let ports = (0..COUNT).map(|_| {
        let offset = NEXT.fetch_add(1, Ordering::Relaxed) % u32::from(COUNT);
        FIRST + u16::try_from(offset).expect("below the count")
    });
    ports.into_iter().find(|port| is_free(*port) && is_free(port + COUNT)).expect("a free port among ten thousand")
}

#[cfg(test)]
mod tests {
    use super::field_of;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let info = "# Memory\r\nused_memory_human:1M\r\nused_memory:1048576\r\n";
        assert_eq!(field_of(info, "used_memory").as_deref(), Some("1048576"));
        assert_eq!(field_of(info, "memory"), None);
    }
}
