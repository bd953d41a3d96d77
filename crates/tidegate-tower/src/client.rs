//! Layers around a client.
//!
//! [`AcquireLayer`] keeps to a limit of the client: requests wait until the
//! limiter admits them. [`HonourLayer`] keeps to what servers say: requests to
//! a server that has said when to come back wait until then.

mod acquire;
mod honour;

pub use acquire::{Acquire, AcquireLayer, Everything, KeyFor};
pub use honour::{Honour, HonourLayer, TooLong};

use std::pin::Pin;

/// An error of a client's stack, as is usual with tower.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What these layers answer with.
type BoxFuture<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;
