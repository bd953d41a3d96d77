//! For the simulation in `verify/simulation`; no stability promise.

pub use crate::key::{genesis_key, id_key, state_key};
pub use crate::planted::{Defect, plant};
pub use crate::script::{Call, FormerStep, Length, Named, Once, Outcome, PARTS, Reply, Step, Task, Tell, assemble};
pub use crate::servers::Dial;
pub use crate::state::{Form, numbers, read_bucket, read_window};

use crate::failure::{RedisFailure, Remedy};

/// The failure with which an error of the server ends a call.
///
/// # Errors
/// What the store does about the error, if the call does not end with it.
pub fn failure(error: &redis::RedisError) -> Result<RedisFailure, String> {
    match Remedy::of(error) {
        Remedy::GiveUp(failure) => Ok(failure),
        remedy => Err(format!("{remedy:?}")),
    }
}
