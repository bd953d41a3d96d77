//! A server: states, a clock of its own, and moods.

use std::collections::HashSet;
use std::sync::LazyLock;

use tidegate::Micros;
use tidegate_redis::scripts;
use tokio::time::Instant;

use super::judge::Executed;
use super::mistake;
use super::wire;
use super::world::State;
use crate::embedded::host;
use crate::embedded::keyspace::Keyspace;

pub(super) struct Server {
    keyspace: Keyspace,
    /// What its replica has: at some time, all of it.
    replica: Keyspace,
    /// How far its clock is ahead, in microseconds.
    pub(super) ahead: i64,
    /// Digests of the scripts that it was sent.
    scripts: HashSet<String>,
    /// Until when it does nothing.
    pub(super) stopped_until: Option<Instant>,
    /// Whether nobody can connect to it.
    pub(super) is_down: bool,
    /// Why it carries nothing out.
    pub(super) refuses: Option<&'static str>,
}

pub(super) const READ_ONLY: &str = "READONLY You can't write against a read only replica.";

/// The scripts and what they are called by.
static DIGESTS: LazyLock<[(&str, String); 2]> =
    LazyLock::new(|| scripts().map(|(_, text)| (text, redis::Script::new(text).get_hash().to_owned())));

impl Server {
    /// A server that knows nothing; `number` tells histories apart.
    pub(super) fn new(number: u64) -> Server {
        let mut server = Server {
            keyspace: Keyspace::of_a_server(),
            replica: Keyspace::of_a_server(),
            ahead: 0,
            scripts: HashSet::new(),
            stopped_until: None,
            is_down: false,
            refuses: None,
        };
        server.begin_history(number);
        server
    }

    fn begin_history(&mut self, number: u64) {
        self.keyspace.history = format!("{number:040x}");
    }

    /// Forgets every state, and goes on with the same history.
    pub(super) fn flush(&mut self) {
        let history = std::mem::take(&mut self.keyspace.history);
        self.keyspace = Keyspace::of_a_server();
        self.keyspace.history = history;
    }

    /// Comes back from a crash without its states.
    pub(super) fn lose_everything(&mut self, number: u64) {
        self.flush();
        self.begin_history(number);
        self.scripts.clear();
    }

    pub(super) fn forget_scripts(&mut self) {
        self.scripts.clear();
    }

    /// The replica has all that this server has.
    pub(super) fn replicate(&mut self) {
        self.replica = self.keyspace.clone();
    }

    /// The replica as a server of its own, with a history of its own.
    pub(super) fn promoted(&self, number: u64, ahead: i64) -> Server {
        let mut promoted = Server { keyspace: self.replica.clone(), ahead, ..Server::new(0) };
        promoted.begin_history(number);
        promoted.replicate();
        promoted
    }
}

impl State {
    /// What a server answers to a command, in bytes.
    pub(super) fn execute(&mut self, process: usize, server: usize, words: &[Vec<u8>]) -> Vec<u8> {
        let answer = self.answer(process, server, words);
        wire::reply(&answer)
    }

    fn answer(&mut self, process: usize, server: usize, words: &[Vec<u8>]) -> Result<redis::Value, String> {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        match words.as_slice() {
            [b"CLIENT", ..] | [b"PING"] => Ok(redis::Value::Okay),
            [b"EVALSHA", digest, call @ ..] => {
                let digest = String::from_utf8_lossy(digest).into_owned();
                self.call(process, server, &digest, call)
            }
            [b"EVAL", text, call @ ..] => {
                let known = DIGESTS.iter().find(|(known, _)| known.as_bytes() == *text);
                let (_, digest) = known.expect("a script of this store");
                self.servers[server].scripts.insert(digest.clone());
                self.call(process, server, digest, call)
            }
            other => panic!("this store sends no {other:?}"),
        }
    }

    fn call(&mut self, process: usize, server: usize, digest: &str, call: &[&[u8]]) -> Result<redis::Value, String> {
        if let Some(words) = self.servers[server].refuses {
            return Err(words.into());
        }
        if !self.servers[server].scripts.contains(digest) {
            return Err("NOSCRIPT No matching script. Please use EVAL.".into());
        }
        let (instant, reading) = self.reading(server);
        let words: Vec<&[u8]> =
            [b"EVALSHA".as_slice(), digest.as_bytes()].into_iter().chain(call.iter().copied()).collect();
        let server_state = &mut self.servers[server];
        server_state.keyspace.now = Micros::new(reading);
        let answer = host::run_words(&words, &mut server_state.keyspace, mistake::in_script());
        if self.random.percent(10) {
            self.servers[server].replicate();
        }
        let executed = Executed::read(call, answer.as_ref().ok());
        self.note(format_args!("server {server} at {reading} for {process}: {executed} -> {}", Shown(&answer)));
        self.judge.executed(&executed, instant);
        answer.map_err(|error| format!("ERR {error}"))
    }

    /// An instant, and what the server's clock says then; nobody was told the
    /// same before.
    fn reading(&mut self, server: usize) -> (u64, u64) {
        loop {
            let instant = self.instant();
            let reading = instant.saturating_add_signed(self.servers[server].ahead);
            if self.judge.reads(reading, instant) {
                return (instant, reading);
            }
        }
    }
}

struct Shown<'a>(&'a Result<redis::Value, String>);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Ok(redis::Value::BulkString(bytes)) => f.write_str(&String::from_utf8_lossy(bytes)),
            Ok(other) => write!(f, "{other:?}"),
            Err(error) => f.write_str(error.lines().next().unwrap_or_default()),
        }
    }
}
