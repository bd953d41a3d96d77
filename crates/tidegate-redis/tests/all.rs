//! The tests of the store on real servers, one module for each file.
//!
//! They are one program, since each program compiles the store and links once
//! more: `cargo test -p tidegate-redis --test all leases::` runs those of one file. `cluster`
//! and `hall_of_bugs` have a cluster that lasts as long as their programs: here it
//! would take the slots of all others. `layers` needs no server.

mod change;
mod conformance;
mod custom;
mod failure;
mod floors;
mod leases;
mod migration;
mod policy;
mod refusals;
mod sentinel;
mod servers;
mod strict;
mod support;
mod thresholds;
mod twin;
