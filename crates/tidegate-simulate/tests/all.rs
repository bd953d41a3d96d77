//! What a simulation counts, draws and says.

#![allow(clippy::unwrap_used)]

mod classes;
mod documents;
mod golden;
mod palette;
mod properties;
mod reservations;
