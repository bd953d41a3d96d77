//! What several modules need to speak Envoy's protocols.

pub(crate) mod client;
pub(crate) mod faulty;
#[allow(dead_code, unreachable_pub, unused_imports)]
#[path = "../../src/wire/grpc/messages.rs"]
pub(crate) mod messages;
