//! RESP on a server that runs: what is decided, what is said, what is refused, and real clients.

mod access;
mod clients;
mod conversation;
mod decisions;
mod described;
mod harness;
mod hostile;
mod rivals;
mod transactions;
