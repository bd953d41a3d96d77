//! A keyspace as a server has it: strings and lists, and when each is gone.
//!
//! The commands are those that the script uses, with their errors; what they
//! do not promise is not here.

use std::collections::{HashMap, VecDeque};

use tidegate::Micros;
use tidegate_redis::internals::numbers;

#[derive(Clone)]
pub(crate) struct Keyspace {
    entries: HashMap<Vec<u8>, Entry>,
    /// The server's time.
    pub(crate) now: Micros,
    /// The history that the server says it goes on with.
    pub(crate) history: String,
    /// Whether a key is gone when its time is over. By a clock that leaps
    /// ahead and comes back, it would be gone too early.
    pub(crate) expires: bool,
    /// How often a number was only moved, and how often an expiry was only set.
    pub(super) increments: u64,
    pub(super) expiries: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    value: Value,
    /// In milliseconds.
    expires_at: Option<u64>,
    /// The same in microseconds from when it was set, which a server forgets.
    kept_until: Option<Micros>,
    is_written: bool,
}

#[derive(Clone, Debug)]
enum Value {
    String(Vec<u8>),
    List(VecDeque<Vec<u8>>),
}

/// What a command answers.
#[derive(Debug)]
pub(crate) enum Output<'k> {
    Nothing,
    Done,
    Number(f64),
    Bytes(&'k [u8]),
    Text(String),
    Several(Vec<Vec<u8>>),
}

/// In the server's words.
pub(crate) type Refusal = &'static str;

const WRONG_TYPE: Refusal = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NO_INTEGER: Refusal = "ERR value is not an integer or out of range";
const NO_KEY: Refusal = "ERR no such key";
const NO_INDEX: Refusal = "ERR index out of range";
const NO_LIFETIME: Refusal = "ERR invalid expire time in 'set' command";
const NO_COMMAND: Refusal = "ERR unknown command, or arguments that it does not take";

impl Default for Keyspace {
    fn default() -> Keyspace {
        Keyspace {
            entries: HashMap::new(),
            now: Micros::ZERO,
            history: "a1b2c3".into(),
            expires: false,
            increments: 0,
            expiries: 0,
        }
    }
}

impl Keyspace {
    /// An empty one, in which keys expire.
    pub(crate) fn of_a_server() -> Keyspace {
        Keyspace { expires: true, ..Keyspace::default() }
    }

    pub(crate) fn call(&mut self, command: &[u8], arguments: &[&[u8]]) -> Result<Output<'_>, Refusal> {
        if let [key, ..] = arguments {
            self.forget(key);
        }
        match (command, arguments) {
            (b"TIME", []) => {
                let (seconds, rest) = (self.now.get() / 1_000_000, self.now.get() % 1_000_000);
                Ok(Output::Several(vec![seconds.to_string().into(), rest.to_string().into()]))
            }
            (b"INFO", [b"replication"]) => Ok(Output::Text(format!(
                "# Replication\r\nrole:master\r\nmaster_replid:{}\r\nmaster_replid2:0000\r\n",
                self.history
            ))),
            (b"GET", [key]) => match self.entries.get(*key) {
                None => Ok(Output::Nothing),
                Some(Entry { value: Value::String(bytes), .. }) => Ok(Output::Bytes(bytes)),
                Some(Entry { value: Value::List(_), .. }) => Err(WRONG_TYPE),
            },
            (b"SET", [key, value]) => Ok(self.set(key, value, None)),
            (b"SET", [key, value, b"PX", lifetime]) => match integer(lifetime)? {
                lifetime @ 1.. => Ok(self.set(key, value, Some(lifetime as u64))),
                _ => Err(NO_LIFETIME),
            },
            (b"SET", [key, value, b"KEEPTTL"]) => {
                let lasts = self.entries.get(*key).map(|entry| (entry.expires_at, entry.kept_until));
                self.put(key, Value::String(value.to_vec()), None);
                if let (Some(entry), Some(lasts)) = (self.entries.get_mut(*key), lasts) {
                    (entry.expires_at, entry.kept_until) = lasts;
                }
                Ok(Output::Done)
            }
            (b"INCRBY", [key, increment]) => self.increase(key, integer(increment)?),
            (b"EXISTS", [key]) => Ok(Output::Number(f64::from(self.holds(key)))),
            (b"DEL", [key]) => Ok(Output::Number(f64::from(self.entries.remove(*key).is_some()))),
            (b"PEXPIRE", [key, lifetime]) => self.expire(key, integer(lifetime)?),
            (b"LLEN", [key]) => Ok(Output::Number(self.list(key)?.map_or(0, |list| list.len()) as f64)),
            (b"LINDEX", [key, index]) => {
                let Some(list) = self.list(key)? else { return Ok(Output::Nothing) };
                let index = place(integer(index)?, list.len());
                Ok(index.and_then(|index| list.get(index)).map_or(Output::Nothing, |bytes| Output::Bytes(bytes)))
            }
            (b"LRANGE", [key, first, last]) => {
                let Some(list) = self.list(key)? else { return Ok(Output::Several(Vec::new())) };
                let range = stretch(integer(first)?, integer(last)?, list.len());
                Ok(Output::Several(list.range(range).cloned().collect()))
            }
            (b"LTRIM", [key, first, last]) => self.trim(key, integer(first)?, integer(last)?),
            (b"LSET", [key, index, value]) => {
                let list = self.list(key)?.ok_or(NO_KEY)?;
                let place = place(integer(index)?, list.len()).and_then(|index| list.get_mut(index)).ok_or(NO_INDEX)?;
                *place = value.to_vec();
                Ok(Output::Done)
            }
            (b"RPUSH" | b"LPUSH", [key, values @ ..]) if !values.is_empty() => {
                if self.list(key)?.is_none() {
                    self.put(key, Value::List(VecDeque::new()), None);
                }
                let list = self.list(key)?.ok_or(NO_KEY)?;
                let values = values.iter().map(|value| value.to_vec());
                match command {
                    b"LPUSH" => values.for_each(|value| list.push_front(value)),
                    _ => list.extend(values),
                }
                Ok(Output::Number(list.len() as f64))
            }
            _ => Err(NO_COMMAND),
        }
    }

    /// The bytes of a string.
    pub(crate) fn string(&self, key: &[u8]) -> Option<&[u8]> {
        match &self.entries.get(key)?.value {
            Value::String(bytes) => Some(bytes),
            Value::List(_) => None,
        }
    }

    /// The time of the newest entry of a log.
    pub(crate) fn newest(&self, key: &[u8]) -> Option<u64> {
        match &self.entries.get(key)?.value {
            Value::String(_) => None,
            Value::List(list) => numbers(list.get(list.len().checked_sub(2)?)?).map(|[at]| at),
        }
    }

    /// Whether a key was written since this was last asked.
    pub(crate) fn was_written(&mut self, key: &[u8]) -> bool {
        self.entries.get_mut(key).is_some_and(|entry| std::mem::take(&mut entry.is_written))
    }

    /// Until when a key is kept, if not for ever.
    pub(crate) fn kept_until(&self, key: &[u8]) -> Option<Micros> {
        self.entries.get(key)?.kept_until
    }

    pub(crate) fn holds(&self, key: &[u8]) -> bool {
        self.entries.contains_key(key)
    }

    fn set(&mut self, key: &[u8], value: &[u8], lifetime: Option<u64>) -> Output<'static> {
        self.put(key, Value::String(value.to_vec()), lifetime);
        Output::Done
    }

    fn put(&mut self, key: &[u8], value: Value, lifetime: Option<u64>) {
        let mut entry = Entry { value, expires_at: None, kept_until: None, is_written: true };
        if let Some(lifetime) = lifetime {
            entry.keep(self.now, lifetime);
        }
        match self.entries.get_mut(key) {
            Some(known) => *known = entry,
            None => drop(self.entries.insert(key.to_vec(), entry)),
        }
    }

    fn increase(&mut self, key: &[u8], increment: i64) -> Result<Output<'_>, Refusal> {
        let number = match self.entries.get_mut(key) {
            None => {
                self.put(key, Value::String(increment.to_string().into()), None);
                increment
            }
            Some(Entry { value: Value::List(_), .. }) => return Err(WRONG_TYPE),
            Some(Entry { value: Value::String(bytes), is_written, .. }) => {
                let number = integer(bytes)?.checked_add(increment).ok_or(NO_INTEGER)?;
                self.increments += 1;
                (*bytes, *is_written) = (number.to_string().into(), true);
                number
            }
        };
        Ok(Output::Number(number as f64))
    }

    fn expire(&mut self, key: &[u8], lifetime: i64) -> Result<Output<'_>, Refusal> {
        let Some(entry) = self.entries.get_mut(key) else { return Ok(Output::Number(0.0)) };
        self.expiries += 1;
        match lifetime {
            1.. => entry.keep(self.now, lifetime as u64),
            _ => drop(self.entries.remove(key)),
        }
        Ok(Output::Number(1.0))
    }

    fn trim(&mut self, key: &[u8], first: i64, last: i64) -> Result<Output<'_>, Refusal> {
        let Some(list) = self.list(key)? else { return Ok(Output::Done) };
        let range = stretch(first, last, list.len());
        list.truncate(range.end);
        list.drain(..range.start.min(list.len()));
        // A server keeps no empty lists.
        if list.is_empty() {
            self.entries.remove(key);
        }
        Ok(Output::Done)
    }

    /// The list of a key, if there is one. Who asks for a list may change it,
    /// and looking at what was not changed does no harm.
    fn list(&mut self, key: &[u8]) -> Result<Option<&mut VecDeque<Vec<u8>>>, Refusal> {
        match self.entries.get_mut(key) {
            None => Ok(None),
            Some(Entry { value: Value::String(_), .. }) => Err(WRONG_TYPE),
            Some(Entry { value: Value::List(list), is_written, .. }) => {
                *is_written = true;
                Ok(Some(list))
            }
        }
    }

    /// Drops a key whose time is over: after its millisecond, not in it.
    fn forget(&mut self, key: &[u8]) {
        if self.expires {
            let now = self.now.get() / 1_000;
            if self.entries.get(key).and_then(|entry| entry.expires_at).is_some_and(|at| now > at) {
                self.entries.remove(key);
            }
        }
    }
}

impl Entry {
    fn keep(&mut self, now: Micros, lifetime: u64) {
        self.expires_at = Some(now.get() / 1_000 + lifetime);
        self.kept_until = Some(Micros::new(now.get() + lifetime * 1_000));
        self.is_written = true;
    }
}

fn integer(bytes: &[u8]) -> Result<i64, Refusal> {
    std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).ok_or(NO_INTEGER)
}

/// Where an index points to, if that is not before the first.
fn place(index: i64, length: usize) -> Option<usize> {
    usize::try_from(if index < 0 { index + length as i64 } else { index }).ok()
}

fn stretch(first: i64, last: i64, length: usize) -> std::ops::Range<usize> {
    let first = place(first, length).unwrap_or(0).min(length);
    let end = place(last, length).map_or(0, |last| (last + 1).min(length));
    first..end.max(first)
}
