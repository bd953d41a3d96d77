//! The store that asks the servers: checks become calls of the script, one
//! for each slot.
//!
//! The states are named once for a slice, and so are those of former limits.

mod slots;
mod swap;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tidegate::kernel::Verdict;
use tidegate::store::{Check, Store, StoreError};
use tidegate::{Clock, Micros, SystemClock};

use crate::client::Client;
use crate::failure::RedisFailure;
use crate::given_back::GivenBack;
use crate::key::{genesis_key, key_of, state_key};
use crate::runtime::{Runtime, run};
use crate::script::{Call, Step, USUALLY_KEPT_LONGER_MS};
use swap::{Former, Member};

/// Decides by asking the servers, every time.
pub(crate) struct Remote {
    client: Client,
    runtime: Runtime,
    settings: Settings,
    /// What callers wait by, when the servers' own clock decides.
    waiting: SystemClock,
    /// Where strict mode keeps the history of a slot, by slot: found by trying.
    genesis: Box<[OnceLock<Vec<u8>>]>,
    /// Told of charges that are undone, if refusals are remembered.
    given_back: Option<Arc<GivenBack>>,
}

/// What a state is called, and when it is decided.
pub(crate) struct Settings {
    pub(crate) prefix: String,
    /// The time of this process, if it is not the system's.
    pub(crate) clock: Option<Arc<dyn Clock>>,
    /// Whether that time also decides, in place of the servers' own.
    pub(crate) clock_decides: bool,
    pub(crate) strict: bool,
    /// For how long the ids of requests are remembered.
    pub(crate) ids_for: Duration,
}

/// How long a state is kept after it has become that of a fresh key where the
/// time is not the server's, and may stand still.
const KEPT_LONGER_BY_FOREIGN_CLOCK_MS: u64 = 86_400_000;

impl Remote {
    pub(crate) fn new(client: Client, runtime: Runtime, settings: Settings) -> Remote {
        let slots = if settings.strict { client.slots() } else { 0 };
        let genesis = (0..slots).map(|_| OnceLock::new()).collect();
        Remote { client, runtime, settings, waiting: SystemClock::new(), genesis, given_back: None }
    }

    /// Has charges that are undone counted there.
    pub(crate) fn telling(mut self, given_back: Option<Arc<GivenBack>>) -> Remote {
        self.given_back = given_back;
        self
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.settings.prefix
    }

    /// The checks with the names of their states.
    fn members<'a>(&self, checks: &[Check<'a>]) -> Result<Vec<Member<'a>>, StoreError> {
        let mut members: Vec<Member<'a>> = Vec::with_capacity(checks.len());
        for (place, check) in checks.iter().enumerate() {
            let key = state_key(&self.settings.prefix, check);
            if members.iter().any(|member| member.key == key) {
                return Err(StoreError::SameStateTwice { rule: check.meter().name().clone() });
            }
            members.push(Member { place, check: *check, key, former: Vec::new(), gone: Vec::new() });
        }
        let now = self.clock().now();
        let own: Vec<Vec<u8>> = members.iter().map(|member| member.key.clone()).collect();
        let mut known: Vec<Vec<u8>> = own;
        for member in &mut members {
            let gone = member.check.former().iter().filter(|former| former.until <= now);
            member.gone = gone.map(|former| member.check.of_former(former).subject()).collect();
            for former in member.check.former_at(now) {
                let key = key_of(&self.settings.prefix, former.meter, member.check.key());
                // What another check changes is only counted here.
                let is_changed = !known.contains(&key);
                known.push(key.clone());
                member.former.push(Former { limit: *former, key, is_changed });
            }
        }
        Ok(members)
    }

    fn call<'a>(&self, steps: Vec<Step<'a>>) -> Call<'a> {
        let now = self.settings.clock_decides.then(|| self.clock().now().min(Micros::LATEST));
        let kept_longer_ms = if now.is_some() { KEPT_LONGER_BY_FOREIGN_CLOCK_MS } else { USUALLY_KEPT_LONGER_MS };
        let genesis = steps.first().filter(|_| self.settings.strict).map(|step| {
            let slot = self.client.slot(&step.key);
            self.genesis[usize::from(slot)].get_or_init(|| genesis_key(&self.settings.prefix, slot)).clone()
        });
        let believed = now.unwrap_or_else(|| self.clock().now().min(Micros::LATEST));
        Call { believed, ..Call::new(steps, now, kept_longer_ms, genesis) }
    }
}

impl Store for Remote {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        let members = self.members(checks)?;
        let decided = run(self.runtime.handle(), self.decide_by_slot(members, verdicts)).await;
        match (decided, checks.iter().find_map(Check::id)) {
            (Err(RedisFailure::NotReserved), Some(id)) => Err(StoreError::NotReserved { id: id.text.to_owned() }),
            (Err(RedisFailure::IdReused), Some(id)) => Err(StoreError::IdReused { id: id.text.to_owned() }),
            (decided, _) => Ok(decided?),
        }
    }

    fn in_background(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.runtime.handle().spawn(task);
    }

    fn clock(&self) -> &dyn Clock {
        match &self.settings.clock {
            Some(clock) => &**clock,
            None => &self.waiting,
        }
    }
}
