//! The server from outside: its binary, spoken to by real clients, and its
//! decisions beside the library's.

mod access;
mod admin;
mod bounds;
mod client;
#[cfg(feature = "certificates")]
mod client_certificates;
mod commands;
mod dashboard;
mod deploy;
mod drain;
mod files;
mod forward;
mod grpc_bounds;
mod hall_of_bugs;
mod hostile;
mod inline;
mod limits;
mod messages;
mod openapi;
mod replay;
mod requests;
mod reservations;
mod running;
mod same_as_library;
mod scrapes;
mod simulate;
mod stores;
mod thresholds;
#[cfg(feature = "top")]
mod top;
mod transports;
mod trial;
