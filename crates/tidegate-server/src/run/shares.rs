//! Something of which there is only so much, and of which no address may have all.
//!
//! Connections, dashboard streams and the work in flight are all counted by this one
//! type: a total, and a part of it for each address. An address has an entry only
//! while it holds something, so there are never more entries than units.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A number of units, shared by all addresses.
#[derive(Debug)]
pub(crate) struct Shares {
    total: usize,
    each: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// Units that are given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    shares: Arc<Shares>,
    address: Option<IpAddr>,
    units: usize,
}

/// Why there is no share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// All units are held.
    Total,
    /// The address holds all that one address may.
    Address,
}

impl Full {
    /// The name, as in labels.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Full::Total => "full",
            Full::Address => "address",
        }
    }
}

impl Shares {
    /// So many units in all, and so many for each address.
    pub(crate) fn new(total: usize, each: usize) -> Arc<Shares> {
        Arc::new(Shares { total, each, held: Mutex::default() })
    }

    pub(crate) fn total(&self) -> usize {
        self.total
    }

    pub(crate) fn each(&self) -> usize {
        self.each
    }

    /// Units that are held now.
    pub(crate) fn held(&self) -> usize {
        self.lock().all
    }

    /// Takes units for an address; without one, as on a Unix socket, only the total binds.
    pub(crate) fn take(self: &Arc<Shares>, address: Option<IpAddr>, units: usize) -> Result<Share, Full> {
        let mut held = self.lock();
        if self.total.saturating_sub(held.all) < units {
            return Err(Full::Total);
        }
        if let Some(address) = address {
            let has = held.by_address.get(&address).copied().unwrap_or_default();
            if self.each.saturating_sub(has) < units {
                return Err(Full::Address);
            }
            held.by_address.insert(address, has + units);
        }
        held.all += units;
        Ok(Share { shares: Arc::clone(self), address, units })
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = self.shares.lock();
        held.all -= self.units;
        if let Some(address) = self.address {
            let has = held.by_address.get(&address).copied().unwrap_or_default();
            match has.saturating_sub(self.units) {
                0 => held.by_address.remove(&address),
                rest => held.by_address.insert(address, rest),
            };
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn no_address_has_more_than_its_part_and_all_have_no_more_than_there_is() {
        let [one, two, three] = ["192.0.2.1", "192.0.2.2", "2001:db8::"].map(|text| Some(text.parse().unwrap()));
        let shares = Shares::new(10, 4);
        let first = shares.take(one, 3).unwrap();
        assert_eq!(shares.take(one, 2).unwrap_err(), Full::Address);
        let more = shares.take(one, 1).unwrap();
        let second = shares.take(two, 4).unwrap();
        assert_eq!(shares.take(three, 3).unwrap_err(), Full::Total);
        let unix = shares.take(None, 2).unwrap();
        assert_eq!((shares.held(), shares.take(None, 1).unwrap_err()), (10, Full::Total));
        drop((first, unix));
        assert_eq!((shares.held(), shares.lock().by_address.len()), (5, 2));
        drop((more, second));
        assert_eq!((shares.held(), shares.lock().by_address.len()), (0, 0));
    }
}
