//! Lines that wait to be decided, side by side in one piece of memory, until
//! no earlier one can still come.
//!
//! Logs are written when requests end, so their lines are not quite in order.
//! A line is held back until [`HELD_BACK`] more have been read; the earliest are
//! decided first. One that comes later than that is *late*: it is decided at
//! the time that has been reached by then.

use tidegate::Micros;

use crate::mapping::Plan;

/// Lines that are held back, so that earlier ones can still be read.
pub const HELD_BACK: usize = 16_384;

/// Bytes of lines that wait: beyond, fewer lines are held back.
const MAX_BYTES: usize = 1 << 25;

/// The values of a line: where they are in the batch's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) length: u32,
}

impl Span {
    pub(crate) const ABSENT: Span = Span { start: 0, length: u32::MAX };

    pub(crate) fn is_absent(self) -> bool {
        self == Span::ABSENT
    }

    pub(crate) fn of(self, bytes: &[u8]) -> Option<&[u8]> {
        if self.is_absent() {
            return None;
        }
        bytes.get(self.start as usize..)?.get(..self.length as usize)
    }
}

/// A line that was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) at: Micros,
    pub(crate) cost: u64,
    /// How long the request lasted, if that is known.
    pub(crate) lasts: Option<Micros>,
    /// What it has cost in the end.
    pub(crate) actual: Option<u64>,
    /// The number of its source, and its own in there.
    pub(crate) source: u32,
    pub(crate) line: u64,
    /// Where its values are, once it is in a batch.
    pub(crate) first: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) bytes: Vec<u8>,
    spans: Vec<Span>,
    heads: Vec<Head>,
    width: usize,
    held_back: usize,
}

/// A line with its values.
#[derive(Clone, Copy)]
pub(crate) struct Record<'b> {
    pub(crate) head: Head,
    bytes: &'b [u8],
    spans: &'b [Span],
}

impl Batch {
    pub(crate) fn new(plan: &Plan, held_back: usize) -> Batch {
        Batch { width: plan.width(), held_back, ..Batch::default() }
    }

    /// Adds a line whose values are in the bytes already.
    pub(crate) fn push(&mut self, head: Head, spans: impl Iterator<Item = Span>) {
        let first = self.spans.len() as u32;
        self.spans.extend(spans);
        self.heads.push(Head { first, ..head });
    }

    /// Whether it is time to decide some.
    pub(crate) fn is_full(&self) -> bool {
        // Four times as many, so that each is moved a third of a time.
        self.heads.len() >= 4 * self.held_back.max(1_024) || self.bytes.len() >= MAX_BYTES
    }

    /// Gives away all but those that are to be held back, the earliest first.
    /// Those move to `later`, which takes this batch's place.
    pub(crate) fn decide(&mut self, later: &mut Batch, mut decide: impl FnMut(Record<'_>)) {
        self.heads.sort_by_key(|head| head.at);
        let held_back = self.held_back.min(self.heads.len() / 2);
        let now = self.heads.len() - held_back;
        self.heads[..now].iter().for_each(|head| decide(self.record(*head)));
        later.clear();
        for head in &self.heads[now..] {
            let first = later.spans.len() as u32;
            for span in self.record(*head).spans {
                let kept = span.of(&self.bytes).map_or(Span::ABSENT, |value| later.value(value));
                later.spans.push(kept);
            }
            later.heads.push(Head { first, ..*head });
        }
        std::mem::swap(self, later);
    }

    /// Gives away all, the earliest first.
    pub(crate) fn decide_all(&mut self, decide: impl FnMut(Record<'_>)) {
        self.heads.sort_by_key(|head| head.at);
        self.heads.iter().map(|head| self.record(*head)).for_each(decide);
        self.clear();
    }

    /// Copies a value into the bytes.
    pub(crate) fn value(&mut self, value: &[u8]) -> Span {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(value);
        Span { start, length: value.len() as u32 }
    }

    fn record(&self, head: Head) -> Record<'_> {
        let first = head.first as usize;
        Record { head, bytes: &self.bytes, spans: &self.spans[first..first + self.width] }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
        self.heads.clear();
    }
}

impl<'b> Record<'b> {
    /// The value of an attribute, by its number in the plan.
    pub(crate) fn value(&self, number: usize) -> Option<&'b [u8]> {
        self.spans[number].of(self.bytes)
    }

    pub(crate) fn key(&self) -> Option<&'b [u8]> {
        self.value(self.spans.len() - 2)
    }

    pub(crate) fn id(&self) -> Option<&'b [u8]> {
        self.value(self.spans.len() - 1)
    }
}
