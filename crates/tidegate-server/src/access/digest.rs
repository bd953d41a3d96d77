//! SHA-256, as tokens and the audit log use it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};
use subtle::ConstantTimeEq;

const LENGTH: usize = 32;

/// The SHA-256 of some bytes, written in hexadecimal.
#[derive(Clone, Copy)]
pub(crate) struct Digest([u8; LENGTH]);

/// Why a text is no digest.
#[derive(Debug, thiserror::Error)]
#[error("a SHA-256 is 64 hexadecimal digits: `tidegate token` prints one")]
pub(crate) struct DigestError;

impl Digest {
    pub(crate) fn of(bytes: &[u8]) -> Digest {
        let mut digest = [0; LENGTH];
        digest.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref());
        Digest(digest)
    }

    /// Compares in a time that does not depend on where the two differ.
    pub(crate) fn is(&self, other: &Digest) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Digest, DigestError> {
        let mut digest = [0; LENGTH];
        if text.len() != 2 * LENGTH || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(DigestError);
        }
        for (byte, at) in digest.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| DigestError)?;
        }
        Ok(Digest(digest))
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Digest, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_read_and_printed_and_compared() {
        let text = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
        let digest: Digest = text.parse().unwrap();
        assert_eq!(digest.to_string(), text);
        assert!(digest.is(&Digest::of(b"test")) && !digest.is(&Digest::of(b"tesu")));
        for wrong in ["", "9f86", &text[1..], &text.replace('9', "g"), &"é".repeat(32)] {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
    }
}
