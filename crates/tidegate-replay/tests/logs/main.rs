//! Generated logs, in every format, beside a reference that reads all, sorts
//! all, and asks the oracle one request at a time.

mod broken;
mod decisions;
mod generated;
mod lasting;
mod reference;
mod sample;
mod smallest;
