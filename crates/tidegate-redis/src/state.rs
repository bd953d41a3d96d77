//! A state as the server has it, and as the library's kernels encode it.
//!
//! The scripts keep states in forms of their own, which they can move by one
//! command. Where the client decides in their place, it reads those forms and
//! writes them as the scripts would have, with the same expiry.

use tidegate::Micros;
use tidegate::kernel::{Bucket, BucketState, Kernel, LimitKernel, Window, WindowState};
use tidegate::store::{Kept, Meter};

/// What a state is kept in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A string.
    Text,
    /// A list of numbers.
    List,
}

impl Form {
    pub(crate) fn of(meter: &Meter) -> Form {
        match meter.limit().map(|limit| limit.kernel()) {
            Some(LimitKernel::Log(_)) => Form::List,
            Some(LimitKernel::Bucket(_) | LimitKernel::Window(_)) | None => Form::Text,
        }
    }
}

/// The kernel's encoding of what the server has; `None` if it is no such state.
pub(crate) fn encoded(meter: &Meter, stored: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let Some(limit) = meter.limit().filter(|_| !stored.is_empty()) else { return Some(stored.to_vec()) };
    match limit.kernel() {
        LimitKernel::Bucket(bucket) => bucket.encode(&read_bucket(&bucket, Some(stored))?, &mut bytes),
        LimitKernel::Window(window) => window.encode(&read_window(&window, Some(stored))?, &mut bytes),
        LimitKernel::Log(_) => {
            let all: Vec<u64> =
                stored.split(|byte| *byte == b':').map(|word| Some(numbers::<1>(word)?[0])).collect::<Option<_>>()?;
            let (mut sum, entries) = all.split_first()?;
            for entry in entries.chunks(2) {
                let [at, after] = entry else { return None };
                if *at > Micros::LATEST.get() || *after >= SUMS || *sum >= SUMS {
                    return None;
                }
                let cost = (after + SUMS - sum) % SUMS;
                bytes.extend(at.to_le_bytes());
                bytes.extend(cost.to_le_bytes());
                sum = after;
            }
        }
    }
    Some(bytes)
}

/// What the server is to have, and until when: the script moves a state without setting its expiry again, by up to a
/// horizon, and then it matters for as long.
pub(crate) fn stored(meter: &Meter, kept: Kept) -> Kept {
    let Some(limit) = meter.limit().filter(|_| !kept.bytes.is_empty()) else { return kept };
    let words = kept.bytes.chunks_exact(8).filter_map(|word| Some(u64::from_le_bytes(word.try_into().ok()?)));
    let words: Vec<u64> = words.collect();
    let text = match (limit.kernel(), words.as_slice()) {
        (LimitKernel::Bucket(_), [at, 0]) => at.to_string(),
        (LimitKernel::Bucket(_) | LimitKernel::Window(_), words) => joined(words),
        (LimitKernel::Log(_), entries) => {
            let mut sum = 0;
            let entries = entries.chunks_exact(2).flat_map(|entry| {
                sum = (sum + entry[1]) % SUMS;
                [entry[0], sum]
            });
            joined(&[0].into_iter().chain(entries).collect::<Vec<u64>>())
        }
    };
    let horizon = meter.horizon();
    Kept { bytes: text.into_bytes(), forget_at: kept.forget_at.saturating_add(horizon).saturating_add(horizon) }
}

fn joined(numbers: &[u64]) -> String {
    numbers.iter().map(u64::to_string).collect::<Vec<String>>().join(":")
}

/// The state of a bucket; `None` if this is none.
pub fn read_bucket(bucket: &Bucket, state: Option<&[u8]>) -> Option<BucketState> {
    let Some(text) = state else { return bucket.state(0, 0) };
    match numbers(text) {
        Some([at, fraction]) => bucket.state(at, fraction),
        None => numbers(text).and_then(|[at]| bucket.state(at, 0)),
    }
}

/// The state of a window; `None` if this is none.
pub fn read_window(window: &Window, state: Option<&[u8]>) -> Option<WindowState> {
    let [start, current, previous] = state.map_or(Some([0; 3]), numbers)?;
    window.state(start, current, previous)
}

/// Exactly `N` numbers with colons between them.
pub fn numbers<const N: usize>(text: &[u8]) -> Option<[u64; N]> {
    let mut words = std::str::from_utf8(text).ok()?.split(':');
    let mut numbers = [0; N];
    for number in &mut numbers {
        *number = words.next()?.parse().ok()?;
    }
    words.next().is_none().then_some(numbers)
}

/// The running totals of a log are kept modulo this.
const SUMS: u64 = 1 << 52;

#[cfg(test)]
mod tests {
    use redis::Value;
    use tidegate::{Limit, Name};

    use super::*;
    use crate::script::Reply;

    #[test]
    fn invalid_numbers_are_refused() {
        let log = Meter::new(Name::literal("rule"), "sliding-log 5/s".parse::<Limit>().expect("a limit"));
        assert!(encoded(&log, b"0:1:2").is_some());
        for foreign in ["0:1:18446744073709551615", "18446744073709551615:1:2", "0:18446744073709551615:2", "0:1"] {
            assert!(encoded(&log, foreign.as_bytes()).is_none(), "{foreign}");
        }
        for reply in [
            "18446744073709551615 0 1",
            "18446744073709 18446744073709551615 1",
            "0 18446744073709551615 1 1 -",
            "9007199254 740992 1 1 -",
        ] {
            assert!(Reply::read(&Value::BulkString(reply.into())).is_err(), "{reply}");
        }
    }
}
