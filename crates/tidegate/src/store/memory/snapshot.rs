//! A store's states as bytes, to be kept over a restart.
//!
//! Little-endian words: a head (magic, version, the two seeds of the
//! fingerprints, the fingerprint of nothing to recognise the hash by), then a tagged record for every live key, an end
//! mark with the number of records, and a checksum over everything before.
//! Fingerprints mean something only under their seeds, so a snapshot is
//! restored by building a store from it, not into one.

use std::io::{self, Read, Write};

use super::overflow::Full;
use super::table::{FRACTION_BITS, Table};
use super::{MemoryStore, MemoryStoreBuilder, Seeds};
use crate::error::ConfigError;
use crate::fnv::Fnv;
use crate::kernel::EXACT;
use crate::time::Micros;

/// Why a snapshot could not be written or restored.
///
/// ```
/// use tidegate::MemoryStore;
/// use tidegate::store::memory::SnapshotError;
///
/// let restored = MemoryStore::builder().restore(&b"something else"[..]);
/// assert!(matches!(restored.map(drop), Err(SnapshotError::Foreign | SnapshotError::Damaged | SnapshotError::Io(_))));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Reading or writing failed.
    #[error("the snapshot could not be read or written")]
    Io(#[from] io::Error),
    /// The bytes are not a snapshot, or not one of this version.
    #[error("not a snapshot, or written by an incompatible version: start without it")]
    Foreign,
    /// The bytes were a snapshot once.
    #[error("the snapshot is damaged or cut short: start without it")]
    Damaged,
    /// There are more keys in it than the store has room for.
    #[error("the snapshot holds more keys than fit: raise max_keys above {max_keys}")]
    NoRoom {
        /// What the store was to be built for.
        max_keys: usize,
    },
    /// The store itself could not be built.
    #[error("the store could not be built")]
    Config(#[from] ConfigError),
}

const MAGIC: u64 = u64::from_le_bytes(*b"tidegate");
const VERSION: u64 = 1;
const NARROW: u64 = 1;
const WIDE: u64 = 2;
const HEAP: u64 = 3;
const END: u64 = 4;

/// No state is longer: a log of [`Limit::MAX_COUNT`](crate::Limit::MAX_COUNT)
/// instants would be, but no machine has that much memory.
const MAX_STATE_BYTES: u64 = 1 << 32;

impl MemoryStore {
    /// Writes every live state. Checks go on meanwhile; each key is written
    /// as it was at some moment in between.
    ///
    /// The bytes contain no key, but the seeds that a key's fingerprint could
    /// be recognised with: keep them like the rest of the server's data.
    /// States that keys share for lack of room are not written, nor are the
    /// texts of [listed](MemoryStoreBuilder::list_keys) keys and the
    /// [ids](crate::Request::id) of requests.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, MemoryStore};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(10));
    /// assert!(limiter.allow("alice"));
    /// let mut bytes = Vec::new();
    /// limiter.store().snapshot(&mut bytes)?;
    /// assert!(!bytes.is_empty());
    /// # let _ = MemoryStore::default();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If `out` fails.
    pub fn snapshot(&self, out: impl Write) -> Result<(), SnapshotError> {
        let now = self.clock.now();
        let mut out = Checked::new(out);
        let head = [MAGIC, VERSION, self.seeds.hasher, self.seeds.shared_seed, self.seeds.fingerprint(0, &[])];
        head.into_iter().for_each(|word| out.write_word(word));
        let mut keys = 0_u64;
        self.narrow.for_each(now, |fingerprint, [state], _| {
            keys += 1;
            [NARROW, fingerprint, state].into_iter().for_each(|word| out.write_word(word));
        });
        if let Some(wide) = self.wide.get() {
            wide.for_each(now, |fingerprint, [until, first, second], _| {
                keys += 1;
                [WIDE, fingerprint, until, first, second].into_iter().for_each(|word| out.write_word(word));
            });
        }
        if let Some(heap) = self.heap.get() {
            let mut bytes = Vec::new();
            heap.for_each(now, |entry| {
                keys += 1;
                bytes.clear();
                entry.encode(&mut bytes);
                let head = [HEAP, entry.fingerprint(), entry.until().get(), bytes.len() as u64];
                head.into_iter().for_each(|word| out.write_word(word));
                out.write_bytes(&bytes);
            });
        }
        [END, keys].into_iter().for_each(|word| out.write_word(word));
        out.finish()
    }
}

impl MemoryStoreBuilder {
    /// Builds a store with the states of a [snapshot](MemoryStore::snapshot).
    ///
    /// What has become forgettable since is left out. A store of as many
    /// [`max_keys`](MemoryStoreBuilder::max_keys) as the former has room for all of the
    /// rest. A snapshot that is cut short or altered anywhere is refused whole.
    ///
    /// ```
    /// use tidegate::{Limit, Limiter, MemoryStore};
    ///
    /// let limiter = Limiter::new(Limit::per_hour(10));
    /// assert!(limiter.allow("alice"));
    /// let mut bytes = Vec::new();
    /// limiter.store().snapshot(&mut bytes)?;
    ///
    /// let restored = Limiter::with_store(Limit::per_hour(10), MemoryStore::builder().restore(&bytes[..])?)?;
    /// assert_eq!(restored.peek("alice")?.remaining(), Some(9));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If `snapshot` is none, is damaged, or holds more keys than fit.
    pub fn restore(self, snapshot: impl Read) -> Result<MemoryStore, SnapshotError> {
        let mut input = Checked::new(snapshot);
        let head = [input.read_word()?, input.read_word()?];
        if head != [MAGIC, VERSION] {
            return Err(SnapshotError::Foreign);
        }
        let seeds = Seeds::new(input.read_word()?, input.read_word()?);
        if input.read_word()? != seeds.fingerprint(0, &[]) {
            return Err(SnapshotError::Foreign);
        }
        let store = self.build_with(seeds)?;
        let full = |_: Full| SnapshotError::NoRoom { max_keys: store.max_keys };
        let now = store.clock.now();
        let mut keys = 0_u64;
        loop {
            match input.read_word()? {
                NARROW => {
                    let (fingerprint, state) = (input.read_word()?, input.read_word()?);
                    put_back(&store.narrow, fingerprint, [state], now).map_err(full)?;
                }
                WIDE => {
                    let fingerprint = input.read_word()?;
                    let state = [input.read_word()?, input.read_word()?, input.read_word()?];
                    if state[1].max(state[2]) >= EXACT {
                        return Err(SnapshotError::Damaged);
                    }
                    put_back(store.wide(), fingerprint, state, now).map_err(full)?;
                }
                HEAP => {
                    let (fingerprint, until) = (input.read_word()?, Micros::new(input.read_word()?));
                    let length = input.read_word()?;
                    let bytes = input.read_bytes(length)?;
                    if until > now {
                        store.heap().restore(fingerprint, until, &bytes).map_err(full)?;
                    }
                }
                END => break,
                _ => return Err(SnapshotError::Damaged),
            }
            keys += 1;
        }
        if input.read_word()? != keys {
            return Err(SnapshotError::Damaged);
        }
        input.verify()?;
        Ok(store)
    }
}

fn put_back<const STATE: usize>(
    table: &Table<STATE>,
    fingerprint: u64,
    state: [u64; STATE],
    now: Micros,
) -> Result<(), Full> {
    if state[0] <= now.get() << FRACTION_BITS {
        return Ok(());
    }
    table.make_way(fingerprint);
    table.enter(table.home(fingerprint), now, None, state)
}

/// Words and bytes, with a running checksum. It guards against accidents, not
/// against someone who means to forge a snapshot.
struct Checked<T> {
    inner: T,
    sum: Fnv,
    /// The first error of a writer; what comes after it is dropped.
    failed: Option<io::Error>,
}

impl<T> Checked<T> {
    fn new(inner: T) -> Checked<T> {
        Checked { inner, sum: Fnv::default(), failed: None }
    }
}

impl<W: Write> Checked<W> {
    fn write_word(&mut self, word: u64) {
        self.write_bytes(&word.to_le_bytes());
    }

    fn write_bytes(&mut self, bytes: &[u8]) {
        self.sum.write(bytes);
        if self.failed.is_none() {
            self.failed = self.inner.write_all(bytes).err();
        }
    }

    fn finish(mut self) -> Result<(), SnapshotError> {
        let sum = self.sum.finish();
        self.write_word(sum);
        if let Some(error) = self.failed {
            return Err(error.into());
        }
        Ok(self.inner.flush()?)
    }
}

impl<R: Read> Checked<R> {
    fn read_word(&mut self) -> Result<u64, SnapshotError> {
        let mut bytes = [0; 8];
        self.inner.read_exact(&mut bytes).map_err(cut_short)?;
        self.sum.write(&bytes);
        Ok(u64::from_le_bytes(bytes))
    }

    fn read_bytes(&mut self, length: u64) -> Result<Vec<u8>, SnapshotError> {
        if length > MAX_STATE_BYTES {
            return Err(SnapshotError::Damaged);
        }
        let mut bytes = Vec::new();
        // By way of `take`, a false length costs no more memory than there is input.
        self.inner.by_ref().take(length).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != length {
            return Err(SnapshotError::Damaged);
        }
        self.sum.write(&bytes);
        Ok(bytes)
    }

    fn verify(mut self) -> Result<(), SnapshotError> {
        let sum = self.sum.finish();
        if self.read_word()? == sum { Ok(()) } else { Err(SnapshotError::Damaged) }
    }
}

fn cut_short(error: io::Error) -> SnapshotError {
    if error.kind() == io::ErrorKind::UnexpectedEof { SnapshotError::Damaged } else { error.into() }
}

// Miri knows nothing of the processor's counter.
#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use crate::time::ManualClock;

    const NOW: u64 = 50;

    fn head() -> [u64; 5] {
        [MAGIC, VERSION, 1, 2, Seeds::new(1, 2).fingerprint(0, &[])]
    }

    /// A snapshot of these words, with the checksum that they have.
    fn snapshot(words: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut out = Checked::new(&mut bytes);
        words.iter().for_each(|word| out.write_word(*word));
        out.finish().expect("memory can be written");
        bytes
    }

    fn restore(snapshot: impl Read) -> Result<MemoryStore, SnapshotError> {
        let clock = ManualClock::at(Micros::new(NOW));
        MemoryStore::builder().max_keys(1).clock(clock).restore(snapshot)
    }

    /// How many keys a snapshot of these records gives back.
    fn restored(records: &[Vec<u64>]) -> Result<usize, SnapshotError> {
        let end = [END, records.len() as u64];
        restore(&snapshot(&[&head(), &records.concat()[..], &end].concat())[..]).map(|store| store.count_keys())
    }

    /// A key of a table of four lines.
    fn key(line: u64, number: u64) -> u64 {
        line << 62 | number << 2 | 1
    }

    fn narrow(fingerprint: u64, until: u64) -> Vec<u64> {
        vec![NARROW, fingerprint, until << FRACTION_BITS]
    }

    fn wide(fingerprint: u64, until: u64) -> Vec<u64> {
        vec![WIDE, fingerprint, until << FRACTION_BITS, until, 0]
    }

    fn heap(fingerprint: u64, until: u64) -> Vec<u64> {
        vec![HEAP, fingerprint, until, 8, 0]
    }

    #[test]
    fn expired_states_take_no_slot() {
        type Record = fn(u64, u64) -> Vec<u64>;
        for (record, room) in [(narrow as Record, 16), (wide as Record, 8), (heap as Record, 20)] {
            let alive = (0..room).map(|number| record(key(number % 4, number), NOW + 1));
            let mut records: Vec<Vec<u64>> = alive.collect();
            assert!(restored(&records).is_ok_and(|keys| keys == room as usize));
            records.push(record(key(0, 99), NOW));
            assert!(restored(&records).is_ok_and(|keys| keys == room as usize), "{room}");
            records.push(record(key(0, 98), NOW + 1));
            assert!(matches!(restored(&records), Err(SnapshotError::NoRoom { max_keys: 1 })), "{room}");
        }
    }

    #[test]
    fn counts_and_times_that_no_kernel_has_are_damage() {
        for word in [3, 4] {
            let with = |value| {
                let mut record = wide(1, 100);
                record[word] = value;
                restored(&[record])
            };
            assert!(with(EXACT - 1).is_ok());
            assert!(matches!(with(EXACT), Err(SnapshotError::Damaged)));
        }
    }

    #[test]
    fn the_number_of_records_has_to_be_right_and_their_kinds_known() {
        let all = |words: &[u64]| restore(&snapshot(&[&head(), words].concat())[..]).map(|store| store.count_keys());
        let record = [NARROW, 1, 100 << FRACTION_BITS];
        assert!(all(&[&record[..], &[END, 1]].concat()).is_ok_and(|keys| keys == 1));
        assert!(all(&[END, 0]).is_ok_and(|keys| keys == 0));
        for words in [[&record[..], &[END, 0]].concat(), [&record[..], &[END, 2]].concat(), vec![END, 1], vec![5, 0]] {
            assert!(matches!(all(&words), Err(SnapshotError::Damaged)), "{words:?}");
        }
    }

    #[test]
    fn another_version_or_another_hash_is_foreign() {
        for word in 0..5 {
            let mut foreign = head();
            foreign[word] ^= 1 << 40;
            let snapshot = snapshot(&[&foreign[..], &[END, 0]].concat());
            assert!(matches!(restore(&snapshot[..]), Err(SnapshotError::Foreign)), "word {word}");
        }
    }

    #[test]
    fn a_length_that_no_state_has_is_not_believed() {
        let records = |length| [&head()[..], &[HEAP, 1, 100, length]].concat();
        let bytes = |length| records(length).iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let endless = bytes(MAX_STATE_BYTES + 1);
        assert!(matches!(restore((&endless[..]).chain(io::repeat(0))), Err(SnapshotError::Damaged)));
        assert!(matches!(restore(&bytes(MAX_STATE_BYTES)[..]), Err(SnapshotError::Damaged)), "there is no such state");
    }

    /// Fails once so many bytes have gone through.
    struct Failing {
        left: usize,
        failures: usize,
    }

    impl Failing {
        fn pass(&mut self, bytes: usize) -> io::Result<usize> {
            if bytes > self.left {
                self.failures += 1;
                return Err(io::Error::other("the disk is gone"));
            }
            self.left -= bytes;
            Ok(bytes)
        }
    }

    impl Write for Failing {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.pass(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            self.pass(1).map(|_| ())
        }
    }

    impl Read for Failing {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            let word = MAGIC.to_le_bytes();
            bytes.copy_from_slice(&word[..bytes.len()]);
            self.pass(bytes.len())
        }
    }

    #[test]
    fn a_failed_writer_is_reported_and_not_used_again() {
        let store = MemoryStore::builder().max_keys(1).build().expect("valid settings");
        // The head, the end and the checksum are eight words; then it is flushed.
        for left in [0, 8, 40, 63, 64] {
            let mut out = Failing { left, failures: 0 };
            assert!(matches!(store.snapshot(&mut out), Err(SnapshotError::Io(_))), "after {left} bytes");
            assert_eq!(out.failures, 1);
        }
        assert!(store.snapshot(&mut Failing { left: 65, failures: 0 }).is_ok());
    }

    #[test]
    fn a_reader_that_fails_is_no_damage() {
        assert!(matches!(restore(Failing { left: 8, failures: 0 }), Err(SnapshotError::Io(_))));
        assert!(matches!(restore(&MAGIC.to_le_bytes()[..]), Err(SnapshotError::Damaged)), "cut short");
    }
}
