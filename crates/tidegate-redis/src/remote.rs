//! The store that asks the servers: checks become calls of the script, one
//! for each slot.

mod slots;
mod swap;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tidegate::kernel::Verdict;
use tidegate::store::{Check, Store, StoreError};
use tidegate::{Clock, Micros};

use crate::client::Client;
use crate::failure::RedisFailure;
use crate::given_back::GivenBack;
use crate::key::genesis_key;
use crate::runtime::{Runtime, run};
use crate::script::{Call, Step, USUALLY_KEPT_LONGER_MS};
use swap::Member;

/// Decides by asking the servers, every time.
pub(crate) struct Remote {
    client: Client,
    runtime: Runtime,
    settings: Settings,
    /// Where strict mode keeps the history of a slot, by slot: found by trying.
    genesis: Box<[OnceLock<Vec<u8>>]>,
}

/// What a state is called, and when it is decided.
pub(crate) struct Settings {
    pub(crate) prefix: String,
    /// The time of this process, by which callers wait.
    pub(crate) clock: Arc<dyn Clock>,
    /// Whether that time also decides, in place of the servers' own.
    pub(crate) clock_decides: bool,
    pub(crate) strict: bool,
    /// For how long the ids of requests are remembered.
    pub(crate) ids_for: Duration,
    /// Told of charges that are undone, if refusals are remembered.
    pub(crate) given_back: Option<Arc<GivenBack>>,
}

/// How long a state is kept after it has become that of a fresh key where the
/// time is not the server's, and may stand still.
const KEPT_LONGER_BY_FOREIGN_CLOCK_MS: u64 = 86_400_000;

impl Remote {
    pub(crate) fn new(client: Client, runtime: Runtime, settings: Settings) -> Remote {
        let slots = if settings.strict { client.nodes().slots() } else { 0 };
        let genesis = (0..slots).map(|_| OnceLock::new()).collect();
        Remote { client, runtime, settings, genesis }
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

    /// In strict mode: where the history of the server is kept that has a state.
    fn genesis(&self, key: &[u8]) -> Option<Vec<u8>> {
        let slot = self.client.nodes().slot(key);
        let known = self.genesis.get(usize::from(slot))?;
        Some(known.get_or_init(|| genesis_key(&self.settings.prefix, slot)).clone())
    }

    fn call<'a>(&self, steps: Vec<Step<'a>>) -> Call<'a> {
        let now = self.settings.clock_decides.then(|| self.clock().now().min(Micros::LATEST));
        let kept_longer_ms = if now.is_some() { KEPT_LONGER_BY_FOREIGN_CLOCK_MS } else { USUALLY_KEPT_LONGER_MS };
        let genesis = steps.first().and_then(|step| self.genesis(&step.key));
        let believed = now.unwrap_or_else(|| self.clock().now().min(Micros::LATEST));
        Call { believed, ..Call::new(steps, now, kept_longer_ms, genesis) }
    }
}

impl Store for Remote {
    async fn decide(&self, checks: &[Check<'_>], verdicts: &mut [Verdict]) -> Result<Micros, StoreError> {
        let members = Member::all(checks, &self.settings.prefix, self.clock().now())?;
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
        &*self.settings.clock
    }
}
