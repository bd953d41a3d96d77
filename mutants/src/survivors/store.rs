//! Those of the store.

use super::Survivor;

pub const SURVIVORS: &[Survivor] = &[];
