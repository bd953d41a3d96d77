//! A partition key that tells nothing of the key: a keyed hash.
//!
//! SipHash-2-4, as its authors wrote it down: without the secret, the
//! key of a hash cannot be found by trying.

use tidegate::Key;

/// What keys are hashed with.
pub(crate) type Secret = [u8; 16];

/// The hash of a key.
pub(crate) fn hash_of(secret: &Secret, key: &Key<'_>) -> [u8; 8] {
    let mut bytes = vec![u8::from(key.is_composite())];
    bytes.extend_from_slice(key.as_bytes());
    siphash(secret, &bytes).to_le_bytes()
}

fn siphash(secret: &Secret, message: &[u8]) -> u64 {
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
    let (k0, k1) = (word(&secret[..8]), word(&secret[8..]));
    let mut v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let mut absorb = |word: u64| {
        v[3] ^= word;
        round(&mut v);
        round(&mut v);
        v[0] ^= word;
    };
    let words = message.chunks_exact(8);
    let rest = words.remainder();
    words.for_each(|bytes| absorb(word(bytes)));
    absorb(word(rest) | (message.len() as u64) << 56);
    v[2] ^= 0xff;
    for _ in 0..4 {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_its_authors() {
        let secret: Secret = std::array::from_fn(|place| place as u8);
        let message: Vec<u8> = (0..15).collect();
        assert_eq!(siphash(&secret, &message), 0xa129_ca61_49be_45e5);
        assert_eq!(siphash(&secret, &[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(siphash(&secret, &message[..8]), 0x93f5_f579_9a93_2462);
    }

    #[test]
    fn another_secret_or_key_is_another_partition() {
        let hash = |secret: u8, key: Key<'_>| hash_of(&[secret; 16], &key);
        assert_eq!(hash(1, "alice".into()), hash(1, "alice".into()));
        assert_ne!(hash(1, "alice".into()), hash(2, "alice".into()));
        assert_ne!(hash(1, "alice".into()), hash(1, "bob".into()));
        let composite = Key::from(("alice",));
        let alike = Key::from(composite.as_bytes());
        assert_ne!(hash(1, alike), hash(1, composite.clone()));
    }
}
