//! The Redis store without servers.
//!
//! `embedded` runs the scripts in Lua beside the oracle, and with every small
//! defect there is. `simulation` runs whole deployments with faults in virtual
//! time, from a seed.

#[cfg(test)]
mod embedded;
#[cfg(test)]
mod simulation;
