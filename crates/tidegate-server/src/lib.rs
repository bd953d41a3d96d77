//! One binary that serves limits.
//!
//! Every protocol is a way from wire to [`tidegate::Request`] and back; what
//! they have in common is the [`App`]. A protocol is one function that serves
//! one connection; [`Listener`] brings it connections over TCP, TLS or a Unix
//! socket, within a bound, and lets it finish when the server drains.
//!
//! [`Server::start`] runs all of it in this process, on any store and clock:
//! that is how the tests compare what the wire says with what the library says.
//!
//! ```
//! use tidegate::{ManualClock, MemoryStore};
//! use tidegate_server::{Server, Settings};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::builder().clock(ManualClock::default()).build()?;
//! let settings = Settings { http: vec!["127.0.0.1:0".parse()?], ..Settings::default() };
//! let server = Server::start(settings, store).await?;
//! println!("ask at {}", server.http()[0]);
//! assert!(server.drain().await);
//! # Ok(())
//! # }
//! ```

// In the order of their dependencies: a room uses only rooms above it.
mod quota;
mod settings;

mod run;

mod access;

mod ask;

mod tell;

mod wire;

mod screen;

mod serve;

mod cli;

pub use access::audit::AuditError;
pub use access::guards::Guards;
pub use ask::call::Call;
pub use ask::engine::Engine;
pub use ask::inline::{INLINE_RULE, Inline, InlineError};
pub use ask::opening::OpenError;
pub use ask::request::{Ask, AskError};
pub use ask::snapshot::StatesError;
pub use ask::store::{AnyStore, Health};
pub use cli::run;
pub use run::connections::{Admitted, Connections, Drain};
pub use run::files::TooFewFiles;
pub use run::listen::{Listener, Stream};
pub use run::peer::Peer;
pub use run::protocol::Protocol;
pub use run::tls::TlsError;
pub use serve::{Server, StartError};
pub use settings::absent::Absent;
pub use settings::address::{Address, AddressError};
pub use settings::rights::Right;
pub use settings::{
    HeaderNames, HeaderNamesError, HeaderStyle, LogFormat, OnFailure, Origin, OriginError, OtherService, Secret,
    Settings, StoreChoice,
};
pub use tell::metrics::{Metrics, RuleCounters};
#[cfg(feature = "otlp")]
pub use tell::otlp::OtlpError;
pub use tell::records::Records;
pub use tell::refused::{Refusal, Refused};
pub use tell::webhook::{SecretError, TargetError, WebhookError};
pub use wire::app::App;
#[doc(hidden)]
pub use wire::grpc::bare as envoy_message;
#[doc(hidden)]
pub use wire::http::bare as http_question;
pub use wire::resp;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// The rooms from the ground up: each uses only itself and those before it.
    const ROOMS: [&str; 10] = ["quota", "settings", "run", "access", "ask", "tell", "wire", "screen", "serve", "cli"];

    /// Uses nothing of the server: it could be a crate of its own.
    const ALONE: &str = "quota";

    const MAX_ENTRIES: usize = 20;

    #[test]
    fn rooms_use_only_rooms_below_them() {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        assert!(src.read_dir().unwrap().count() <= MAX_ENTRIES, "a module belongs into one of the rooms");
        let mut wrong = Vec::new();
        for (height, room) in ROOMS.iter().enumerate() {
            let below = if *room == ALONE { &[ALONE] } else { &ROOMS[..=height] };
            let mut look = |file: &Path| {
                let text = fs::read_to_string(file).unwrap();
                for used in rooms_in(&text).filter(|used| !below.contains(used)) {
                    wrong.push(format!("{} uses {used}", file.strip_prefix(&src).unwrap().display()));
                }
            };
            look(&src.join(format!("{room}.rs")));
            each_file(&src.join(room), &mut look);
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    fn each_file(folder: &Path, look: &mut impl FnMut(&Path)) {
        for entry in folder.read_dir().into_iter().flatten() {
            let path = entry.unwrap().path();
            let is_test = path.file_stem().is_some_and(|stem| stem == "tests");
            match path.extension() {
                _ if is_test => {}
                None => each_file(&path, look),
                Some(end) if end == "rs" => look(&path),
                Some(_) => {}
            }
        }
    }

    /// The first name of every path from the root of the crate, tests and comments aside.
    fn rooms_in(text: &str) -> impl Iterator<Item = &str> {
        let code = text.split("\nmod tests {").next().unwrap_or_default();
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let paths = lines.flat_map(|line| line.split("crate::").skip(1));
        paths.map(|path| path.split(|end: char| !end.is_alphanumeric() && end != '_').next().unwrap_or_default())
    }
}
