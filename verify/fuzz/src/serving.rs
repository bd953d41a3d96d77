//! A server in this process that listens nowhere, for targets that ask one.

use std::sync::LazyLock;

use tidegate::MemoryStore;
use tidegate_server::{Server, Settings};
use tokio::runtime::Runtime;

/// Fuzzers make more keys than are worth keeping.
const MAX_KEYS: usize = 10_000;

pub(crate) static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime"));

pub(crate) fn start(settings: Settings) -> Server {
    let store = MemoryStore::builder().max_keys(MAX_KEYS).build().expect("valid settings");
    RUNTIME.block_on(Server::start(Settings { http: Vec::new(), ..settings }, store)).expect("a server")
}
