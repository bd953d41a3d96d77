//! Networks: addresses that begin alike.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::error::ConfigError;

/// All addresses that begin as this one does: `10.0.0.0/8`, `2001:db8::/32`.
///
/// An IPv4-mapped IPv6 address (`::ffff:10.0.0.1`) is an IPv4 address.
///
/// ```
/// use tidegate::Network;
///
/// let network: Network = "10.0.0.0/8".parse()?;
/// assert!(network.contains("10.1.2.3".parse()?));
/// assert!(network.contains("::ffff:10.1.2.3".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    address: IpAddr,
    length: u8,
}

/// The bits of an IPv6 address before those of the IPv4 address in it.
const MAPPED_BITS: u8 = 96;

impl Network {
    /// The network of `address` by its first `length` bits.
    ///
    /// ```
    /// use tidegate::Network;
    ///
    /// assert_eq!(Network::new("192.0.2.77".parse()?, 24).to_string(), "192.0.2.0/24");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn new(address: IpAddr, length: u8) -> Network {
        let length = length.min(width(address));
        let (address, length) = match (address.to_canonical(), length.checked_sub(MAPPED_BITS)) {
            (canonical, Some(length)) if canonical != address => (canonical, length),
            // Fewer bits than say that it is one of IPv4: a network of IPv6.
            _ => (address, length),
        };
        Network { address: first_bits(address, length), length }
    }

    /// Whether `address` is in it.
    ///
    /// ```
    /// use tidegate::Network;
    ///
    /// let network: Network = "2001:db8::/32".parse()?;
    /// assert!(network.contains("2001:db8::1".parse()?) && !network.contains("192.0.2.1".parse()?));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4() && first_bits(address, self.length) == self.address
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl FromStr for Network {
    type Err = ConfigError;

    /// An address and a length, or an address alone.
    fn from_str(text: &str) -> Result<Network, ConfigError> {
        let unreadable = || ConfigError::UnreadableNetwork { text: text.into() };
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| unreadable())?;
        let length = match length {
            Some(length) => length.parse().ok().filter(|length| *length <= width(address)).ok_or_else(unreadable)?,
            None => width(address),
        };
        Ok(Network::new(address, length))
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The address with all but its first bits zero.
pub(crate) fn first_bits(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length.min(32))).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length.min(128))).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(network: &str, address: &str) -> bool {
        let network: Network = network.parse().expect(network);
        network.contains(address.parse().expect(address))
    }

    #[test]
    fn a_network_is_what_begins_alike() {
        assert!(contains("10.0.0.0/8", "10.255.1.2") && !contains("10.0.0.0/8", "11.0.0.0"));
        assert!(contains("10.1.2.3", "10.1.2.3") && !contains("10.1.2.3", "10.1.2.4"));
        assert!(contains("0.0.0.0/0", "255.255.255.255") && !contains("0.0.0.0/0", "::1"));
        assert!(contains("2001:db8::/32", "2001:db8:1::1") && !contains("2001:db8::/32", "2001:db9::1"));
        assert!(contains("::/0", "ffff::1") && contains("10.0.0.0/8", "::ffff:10.1.1.1"));
        assert!(contains("2001:db8::2", "2001:db8::2") && !contains("2001:db8::2", "2001:db8::3"));
        assert!(contains("2001:db8::2/127", "2001:db8::3") && !contains("2001:db8::2/127", "2001:db8::4"));
        assert_eq!("10.1.2.3/8".parse::<Network>().expect("a network").to_string(), "10.0.0.0/8");
    }

    #[test]
    fn an_ipv4_mapped_network_is_the_ipv4_network() {
        assert!(contains("::ffff:10.0.0.0/104", "10.255.1.2") && !contains("::ffff:10.0.0.0/104", "11.0.0.0"));
        assert!(contains("::ffff:0:0/96", "192.0.2.1") && contains("::ffff:10.1.2.3", "10.1.2.3"));
        assert_eq!("::ffff:10.1.2.3/104".parse::<Network>().expect("a network").to_string(), "10.0.0.0/8");
        // One of IPv6 that goes beyond has no addresses of IPv4, like any other.
        assert!(contains("::ffff:10.0.0.0/64", "::1") && !contains("::ffff:10.0.0.0/64", "10.0.0.0"));
    }

    #[test]
    fn others_are_refused() {
        for text in ["", "10.0.0/8", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/-1", "example.org"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }
}
