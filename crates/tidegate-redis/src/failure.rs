//! What can go wrong between a store and its servers.

use std::sync::Arc;
use std::time::Duration;

/// Why Redis gave no answer: the source of a
/// [`StoreError::Failed`](tidegate::store::StoreError::Failed).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedisFailure {
    /// The servers failed a moment ago: the [breaker](crate::BreakerSettings)
    /// is open, and the call was not made.
    #[error("the servers are away: the next attempt is in {next_attempt:?}")]
    Away {
        /// When the next request will be tried.
        next_attempt: Duration,
    },
    /// There was no answer in time. Whether anything was charged is not
    /// known; it is not tried again.
    #[error("no answer within {deadline:?}; the last word was: {last_word}")]
    Deadline {
        /// The time that was allowed.
        deadline: Duration,
        /// What the server said last, if it said anything.
        last_word: String,
    },
    /// There is no connection, or it was lost.
    #[error("no connection to the servers: check that one runs where the URL says ({source})")]
    Connection {
        /// The client's own error.
        source: Arc<redis::RedisError>,
    },
    /// The server refused the script.
    #[error("the server refused: {source}")]
    Refused {
        /// The server's own words.
        source: Arc<redis::RedisError>,
    },
    /// A key of ours holds something that was not written by a limit.
    #[error("a key holds what no limit wrote: delete it, or choose another prefix ({source})")]
    ForeignKey {
        /// The server's own words.
        source: Arc<redis::RedisError>,
    },
    /// The state of a custom kernel changed at every try to write it.
    #[error("the state was overtaken {tries} times: too many write this key at once")]
    Contended {
        /// How often it was tried.
        tries: u32,
    },
    /// A reply or a state that cannot be read.
    #[error("cannot read {what}: is another version of tidegate using this prefix?")]
    Garbled {
        /// What it was.
        what: &'static str,
    },
    /// The keys of a call are in two places, because their slot is being moved.
    #[error("the keys are on their way to another node: try again in a moment")]
    OnTheWay,
    /// The id of the request was seen before, with another one.
    #[error("the request id stands for another request: give each request an id of its own")]
    IdReused,
    /// There is no reservation of the id that could be corrected.
    #[error("there is no reservation of this id, or its time is over")]
    NotReserved,
    /// A request with an id meets limits in several slots of a cluster.
    #[error(
        "a request with an id has limits in several slots: let the keys of its rules begin with the same attribute"
    )]
    IdSpansSlots,
    /// The script and the kernel came to different results.
    #[error("the script and the kernel disagree: this is a bug in tidegate, please report it")]
    Disagreement,
}

impl RedisFailure {
    /// The failure that a store's error is about, if it is one.
    pub(crate) fn of(error: &tidegate::store::StoreError) -> Option<&RedisFailure> {
        std::error::Error::source(error)?.downcast_ref()
    }

    /// What happened, without the server's own words: for callers who are not to
    /// read what operators do.
    #[must_use]
    pub fn in_general(&self) -> String {
        match self {
            RedisFailure::Deadline { deadline, .. } => format!("no answer within {deadline:?}"),
            RedisFailure::Connection { .. } => "no connection to the store".into(),
            RedisFailure::Refused { .. } => "the store refused the command".into(),
            RedisFailure::ForeignKey { .. } => "the store holds something else under the key".into(),
            RedisFailure::Away { .. }
            | RedisFailure::Contended { .. }
            | RedisFailure::Garbled { .. }
            | RedisFailure::OnTheWay
            | RedisFailure::IdReused
            | RedisFailure::NotReserved
            | RedisFailure::IdSpansSlots
            | RedisFailure::Disagreement => self.to_string(),
        }
    }

    /// Whether the operator is told of it now and then: not of what one request is wrong about, or a slot on its way.
    pub(crate) fn is_told(&self) -> bool {
        !matches!(self, RedisFailure::OnTheWay | RedisFailure::IdReused | RedisFailure::NotReserved)
    }

    /// Whether it says something about the health of the servers.
    pub(crate) fn is_outage(&self) -> bool {
        matches!(self, RedisFailure::Deadline { .. } | RedisFailure::Connection { .. })
    }
}

impl From<RedisFailure> for tidegate::store::StoreError {
    fn from(failure: RedisFailure) -> Self {
        tidegate::store::StoreError::Failed { source: Box::new(failure) }
    }
}

/// What to do about an error of the client.
#[derive(Debug)]
pub(crate) enum Remedy {
    /// Send the whole script: the server does not know it.
    SendScript,
    /// Nothing was carried out: try again after a moment.
    TryAgain,
    /// Nothing was carried out: some of the keys are at another node already.
    Part,
    /// Nothing was carried out: another node has the slot.
    Follow(Redirect),
    /// Nothing was carried out: this is no longer the master.
    FindMaster,
    /// Give up. What was sent may have been carried out.
    GiveUp(RedisFailure),
}

/// Where a slot is.
#[derive(Clone, Debug)]
pub(crate) struct Redirect {
    /// Empty for the host that sent the redirect.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// For this one request only: the slot is on its way there.
    pub(crate) asking: bool,
}

impl Remedy {
    pub(crate) fn of(error: &redis::RedisError) -> Remedy {
        use redis::{ErrorKind, ServerErrorKind};
        let code = error.code().unwrap_or_default().to_owned();
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::NoScript) => return Remedy::SendScript,
            ErrorKind::Server(
                ServerErrorKind::BusyLoading | ServerErrorKind::ClusterDown | ServerErrorKind::MasterDown,
            ) => return Remedy::TryAgain,
            ErrorKind::Server(ServerErrorKind::TryAgain) => return Remedy::Part,
            ErrorKind::Server(ServerErrorKind::ReadOnly) => return Remedy::FindMaster,
            ErrorKind::Server(kind @ (ServerErrorKind::Moved | ServerErrorKind::Ask)) => {
                let asking = kind == ServerErrorKind::Ask;
                return match error.redirect_node().and_then(|(address, _)| redirect(address, asking)) {
                    Some(redirect) => Remedy::Follow(redirect),
                    None => Remedy::TryAgain,
                };
            }
            _ => {}
        }
        let source = Arc::new(error.clone());
        if code == "BUSY" {
            return Remedy::TryAgain;
        }
        let words = source.to_string();
        // Redis 6.2 repeats what a command in the script was told.
        if words.contains("-READONLY ") {
            return Remedy::FindMaster;
        }
        if words.contains("TGREUSED") {
            return Remedy::GiveUp(RedisFailure::IdReused);
        }
        if words.contains("TGOVER") {
            return Remedy::GiveUp(RedisFailure::NotReserved);
        }
        if code == "WRONGTYPE" || words.contains("WRONGTYPE") || words.contains("TGFOREIGN") {
            return Remedy::GiveUp(RedisFailure::ForeignKey { source });
        }
        Remedy::GiveUp(match source.kind() {
            ErrorKind::Server(_) | ErrorKind::Extension => RedisFailure::Refused { source },
            _ => RedisFailure::Connection { source },
        })
    }
}

fn redirect(address: &str, asking: bool) -> Option<Redirect> {
    let (host, port) = address.rsplit_once(':')?;
    Some(Redirect { host: host.to_owned(), port: port.parse().ok()?, asking })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remedy(reply: &str) -> Remedy {
        let value = redis::parse_redis_value(reply.as_bytes()).expect("a reply");
        Remedy::of(&value.extract_error().expect_err("an error"))
    }

    /// Redis 6.2 says what a command in a script replied, and no code of its own.
    #[test]
    fn a_replica_is_known_by_what_any_version_says() {
        for reply in [
            "-READONLY You can't write against a read only replica.\r\n",
            "-READONLY You can't write against a read only replica. script: 1a2b, on @user_script:42.\r\n",
            "-ERR Error running script (call to f_1a2b): @user_script:42: @user_script: 42: \
             -READONLY You can't write against a read only replica. \r\n",
        ] {
            assert!(matches!(remedy(reply), Remedy::FindMaster), "{reply}");
        }
        assert!(matches!(remedy("-ERR unknown command\r\n"), Remedy::GiveUp(RedisFailure::Refused { .. })));
    }
}
