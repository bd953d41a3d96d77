//! Events that wait: in a line for each key, of which only the first is tried.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use tokio::time::Instant;

use super::message::Message;

#[derive(Default)]
pub(super) struct Queue {
    /// Those that wait for an earlier one of their key, which is ready, pauses or is tried.
    lines: HashMap<u64, VecDeque<Message>>,
    ready: VecDeque<Message>,
    pausing: HashMap<u64, Message>,
    /// When each pause ends, by the number of its event.
    pauses: BinaryHeap<Reverse<(Instant, u64)>>,
    next: u64,
    waiting: usize,
}

impl Queue {
    pub(super) fn add(&mut self, message: Message) {
        match self.lines.get_mut(&message.line) {
            Some(line) => {
                line.push_back(message);
                self.waiting += 1;
            }
            None => {
                self.lines.insert(message.line, VecDeque::new());
                self.ready.push_back(message);
            }
        }
    }

    /// The next to be tried.
    pub(super) fn take(&mut self) -> Option<Message> {
        self.ready.pop_front()
    }

    /// One that was taken needs no more attempts: the next of its key is ready.
    pub(super) fn done(&mut self, message: &Message) {
        match self.lines.get_mut(&message.line).and_then(VecDeque::pop_front) {
            Some(next) => {
                self.waiting -= 1;
                self.ready.push_back(next);
            }
            None => drop(self.lines.remove(&message.line)),
        }
    }

    /// One that was taken is to be tried again.
    pub(super) fn retry(&mut self, message: Message, at: Instant) {
        self.next += 1;
        self.pauses.push(Reverse((at, self.next)));
        self.pausing.insert(self.next, message);
    }

    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.pauses.peek().map(|Reverse((at, _))| *at)
    }

    /// Ends the pauses that are over.
    pub(super) fn wake(&mut self, now: Instant) {
        while let Some(Reverse((_, number))) = self.pauses.peek().filter(|Reverse((at, _))| *at <= now) {
            self.ready.extend(self.pausing.remove(number));
            self.pauses.pop();
        }
    }

    /// Forgets all, and says how many there were.
    pub(super) fn clear(&mut self) -> usize {
        let count = self.len();
        *self = Queue::default();
        count
    }

    pub(super) fn len(&self) -> usize {
        self.ready.len() + self.pausing.len() + self.waiting
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
