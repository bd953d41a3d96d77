//! Wrong credentials, limited by tidegate itself: so many from an address, then
//! answers are slow. A right credential is never held up.

use std::net::IpAddr;

use tidegate::store::Meter;
use tidegate::{Limit, Limiter, MemoryStore, Name, Request};

use super::Denied;
use crate::run::peer::Peer;

/// Wrong credentials that an address may give at once, and per minute.
const BUDGET: u64 = 10;
/// Addresses that are remembered; further ones share.
const MAX_ADDRESSES: usize = 10_000;

pub(super) struct Failures(Limiter<MemoryStore>);

impl Default for Failures {
    fn default() -> Failures {
        let store = MemoryStore::builder().max_keys(MAX_ADDRESSES).build().expect("the bound is valid");
        let meter = Meter::new(Name::literal("authentication"), Limit::per_minute(BUDGET));
        Failures(Limiter::with_store(meter, store).expect("the limit is valid"))
    }
}

impl Failures {
    /// What becomes of a wrong credential.
    pub(super) fn hold_against(&self, peer: Peer) -> Denied {
        match self.0.check(Request::new(key(peer).as_slice())) {
            Ok(decision) if !decision.is_allowed() => {
                Denied::TooManyFailures { retry_after: decision.retry_after().unwrap_or_default() }
            }
            Ok(_) | Err(_) => Denied::WrongCredential,
        }
    }
}

/// The address, of IPv6 the network that one customer has.
fn key(peer: Peer) -> Vec<u8> {
    match peer.address() {
        None => Vec::from(*b"unix"),
        Some(IpAddr::V4(address)) => address.octets().to_vec(),
        Some(IpAddr::V6(address)) => address.octets()[..8].to_vec(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_held_to_its_budget_and_an_ipv6_network_is_one() {
        let failures = Failures::default();
        let from = |address: &str| failures.hold_against(Peer::Tcp(address.parse().unwrap()));
        for _ in 0..BUDGET {
            assert!(matches!(from("[2001:db8::1]:1"), Denied::WrongCredential));
        }
        let beyond = from("[2001:db8::2:3:4:5]:2");
        assert!(beyond.delay().is_some(), "{beyond}");
        assert!(matches!(from("[2001:db8:0:1::1]:1"), Denied::WrongCredential));
        assert!(matches!(from("192.0.2.1:1"), Denied::WrongCredential));
        assert_eq!(key(Peer::Tcp("[::ffff:192.0.2.1]:1".parse().unwrap())), [192, 0, 2, 1]);
    }
}
