//! Snapshots of the memory store.
//!
//! A checksum guards them, which no chance gets past. So an input is either
//! the bytes themselves, or edits to the records of a good snapshot, after
//! which the checksum is right: damage as an attacker could have done it.

use std::sync::Arc;
use std::time::Duration;

use tidegate::{Limit, Limiter, ManualClock, MemoryStore, MemoryStoreBuilder, Micros, Policy, Request};

const KEYS: [&str; 4] = ["a", "b", "c", "d"];
/// In the good snapshot's time.
const NOW: Micros = Micros::new(1_000_000_000_000_000);

/// One limit for each way that a state is kept.
const LIMITS: [(&str, Limit); 7] = [
    ("narrow bucket", Limit::per_second(10)),
    ("wide bucket", Limit::token_bucket(100_003, Duration::from_secs(60))),
    ("leaky", Limit::leaky_bucket(5, Duration::from_secs(1))),
    ("narrow window", Limit::fixed_window(10, Duration::from_secs(60))),
    ("wide window", Limit::fixed_window(1_000_000, Duration::from_secs(60))),
    ("counter", Limit::sliding_counter(10, Duration::from_secs(60))),
    ("log", Limit::sliding_log(10, Duration::from_secs(60))),
];

/// A snapshot of [`KEYS`] under [`LIMITS`], charged three times each. A file, so
/// that an input means the same in every process.
const GOOD: &[u8] = include_bytes!("good.snapshot");

/// What is restored is decided by, written and restored again, and says the
/// same then; everything else is refused.
pub fn snapshot(input: &[u8]) {
    let Some((kind, rest)) = input.split_first() else { return };
    let bytes = match kind % 2 {
        0 => rest.to_vec(),
        _ => edited(rest),
    };
    // Time has passed, perhaps.
    let now = NOW.saturating_add(Micros::new(u64::from(kind / 2) * 500_000));
    let first = match builder(now).restore(&bytes[..]) {
        Ok(store) => limiter(Arc::new(store)),
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let again = builder(now).restore(&written(first.store())[..]).expect("what was restored can be kept");
    let again = limiter(Arc::new(again));
    for (name, _) in LIMITS {
        for key in KEYS {
            let ask = |limiter: &Limiter<Arc<MemoryStore>>| {
                let decision = limiter.check(Request::new(key).rule(name)).expect("a cost of one fits");
                format!("{decision:?}")
            };
            for _ in 0..3 {
                assert_eq!(ask(&first), ask(&again), "{name} of {key}");
            }
        }
    }
    written(first.store());
}

fn builder(now: Micros) -> MemoryStoreBuilder {
    MemoryStore::builder().max_keys(64).clock(ManualClock::at(now))
}

fn limiter(store: Arc<MemoryStore>) -> Limiter<Arc<MemoryStore>> {
    let policy = LIMITS.iter().fold(Policy::new(), |policy, (name, limit)| policy.limit(*name, *limit));
    Limiter::with_store(policy, store).expect("a valid policy")
}

fn written(store: &MemoryStore) -> Vec<u8> {
    let mut bytes = Vec::new();
    store.snapshot(&mut bytes).expect("a vector takes all bytes");
    bytes
}

/// The good snapshot with some of its words changed and a right checksum.
/// Three bytes of the input are an edit: which word, and how.
fn edited(input: &[u8]) -> Vec<u8> {
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let mut words: Vec<u64> = GOOD[..GOOD.len() - 8].chunks(8).map(word).collect();
    for edit in input.chunks_exact(3) {
        let at = usize::from(edit[0]) % words.len();
        let value = u64::from(edit[2]);
        match edit[1] {
            shift @ 0..64 => words[at] ^= 1 << shift,
            shift @ 64..128 => words[at] = value << (shift - 64),
            128..160 => words[at] = words[at].wrapping_add(value),
            160..192 => words[at] = words[at].wrapping_sub(value),
            192..208 => words[at] = words[usize::from(edit[2]) % words.len()],
            208..224 => words[at] = u64::MAX - value,
            224..240 => words.insert(at, value),
            240..=255 => drop((words.len() > 1).then(|| words.remove(at))),
        }
    }
    let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    // FNV-1a, as the format has it.
    let sum = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    bytes.extend(sum.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::{GOOD, KEYS, NOW, builder, edited, limiter, written};
    use std::sync::Arc;
    use tidegate::Request;

    /// To make it anew, after a change of the format: `TIDEGATE_UPDATE=1`.
    #[test]
    fn the_good_snapshot_is_good() {
        if std::env::var_os("TIDEGATE_UPDATE").is_some() {
            let limiter = limiter(Arc::new(builder(NOW).build().expect("valid settings")));
            for key in KEYS {
                (0..3).for_each(|_| drop(limiter.check(key)));
            }
            let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/good.snapshot");
            std::fs::write(file, written(limiter.store())).expect("a file can be written");
            return;
        }
        assert_eq!(edited(&[]), GOOD);
        let store = builder(NOW).restore(GOOD).expect("make it anew: TIDEGATE_UPDATE=1");
        let left = limiter(Arc::new(store)).peek(Request::new("a").rule("log")).expect("an answer").remaining();
        assert_eq!(left, Some(7));
    }
}
