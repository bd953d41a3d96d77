//! What every limit was asked, on disk: small records, read again for each
//! round of the search.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};

use tidegate::{Limit, Micros};

/// Checks that are kept: 2.4 GB of them. The search goes by those.
pub const MAX_SPOOLED: u64 = 100_000_000;

const CHUNK: usize = 1 << 18;
const RECORD: usize = 24;
/// A cost above what any limit can have is all the same.
const COST_BITS: u32 = 48;
const MAX_COST: u64 = (1 << COST_BITS) - 1;
const _: () = assert!(Limit::MAX_COUNT < MAX_COST);

/// One limit, asked about one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) at: Micros,
    pub(crate) key: u64,
    pub(crate) cost: u64,
    /// The number of the limit.
    pub(crate) limit: u16,
}

pub(crate) struct Spool {
    writer: BufWriter<File>,
    count: u64,
    most: u64,
    is_full: bool,
    /// What went wrong with the disk: told when it is read.
    failure: Option<io::Error>,
}

impl Spool {
    /// A file without a name, gone with the process.
    pub(crate) fn new() -> io::Result<Spool> {
        Spool::with_room(MAX_SPOOLED)
    }

    /// The same, for so many checks.
    pub(crate) fn with_room(most: u64) -> io::Result<Spool> {
        let writer = BufWriter::with_capacity(CHUNK, tempfile::tempfile()?);
        Ok(Spool { writer, count: 0, most, is_full: false, failure: None })
    }

    #[inline]
    pub(crate) fn push(&mut self, asked: Asked) {
        if self.count >= self.most || self.failure.is_some() {
            self.is_full = true;
            return;
        }
        let Asked { at, key, cost, limit } = asked;
        let last = cost.min(MAX_COST) | u64::from(limit) << COST_BITS;
        let mut record = [0; RECORD];
        for (bytes, number) in record.chunks_exact_mut(8).zip([at.get(), key, last]) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        self.failure = self.writer.write_all(&record).err();
        self.count += 1;
    }

    /// Whether some did not fit.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Shows all, in order.
    pub(crate) fn for_each(&mut self, mut show: impl FnMut(Asked)) -> io::Result<()> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        self.writer.flush()?;
        let file = self.writer.get_mut();
        file.seek(SeekFrom::Start(0))?;
        let mut reader = BufReader::with_capacity(CHUNK, file);
        let mut record = [0; RECORD];
        for _ in 0..self.count {
            reader.read_exact(&mut record)?;
            let mut numbers = [0; 3];
            for (number, bytes) in numbers.iter_mut().zip(record.as_chunks::<8>().0) {
                *number = u64::from_le_bytes(*bytes);
            }
            let [at, key, last] = numbers;
            let (cost, limit) = (last & MAX_COST, (last >> COST_BITS) as u16);
            show(Asked { at: Micros::new(at), key, cost, limit });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spool_can_be_replayed_any_number_of_times() {
        let all: Vec<Asked> = (0..30_000_u64)
            .map(|number| Asked {
                at: Micros::new(number),
                key: !number,
                cost: number * 7,
                limit: (number % 65_536) as u16,
            })
            .collect();
        let mut spool = Spool::new().expect("a file");
        all.iter().for_each(|asked| spool.push(*asked));
        for _ in 0..3 {
            let mut shown = Vec::new();
            spool.for_each(|asked| shown.push(asked)).expect("it can be read");
            assert!(shown == all);
        }
        assert!(!spool.is_full());
    }
}
