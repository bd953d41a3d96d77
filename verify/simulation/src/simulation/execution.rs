//! What a server does with a command, and what the judge is told of it.

use std::sync::LazyLock;

use tidegate::Micros;
use tidegate_redis::scripts;

use super::defect;
use super::judge::Executed;
use super::wire;
use super::world::State;
use crate::embedded::host;

/// The scripts and what they are called by.
static DIGESTS: LazyLock<[(&str, String); 2]> =
    LazyLock::new(|| scripts().map(|(_, text)| (text, redis::Script::new(text).get_hash().to_owned())));

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
        let answer = host::run_words(&words, &mut server_state.keyspace, defect::in_script());
        if self.random.percent(10) {
            self.servers[server].replicate();
        }
        let executed = Executed::read(call, answer.as_ref().ok());
        self.note(format_args!("server {server} at {reading} for {process}: {executed} -> {}", Shown(&answer)));
        self.judge.executed(&executed, instant);
        answer.map_err(|error| format!("ERR {error}"))
    }

    /// An instant, and what the server's clock says then: a reading that no
    /// call has had before.
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
