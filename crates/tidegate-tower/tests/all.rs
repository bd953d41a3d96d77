//! The layer before real services, and the clients that ask them.
//!
//! One program, since each one links hyper, tonic and reqwest once more: `cargo test -p tidegate-tower --test all grpc::`
//! runs the tests of one file.

mod clients;
mod grpc;
mod hall_of_bugs;
mod server;
mod services;
