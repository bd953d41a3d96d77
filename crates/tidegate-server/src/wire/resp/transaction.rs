//! The commands between `MULTI` and `EXEC`.
//!
//! Each is copied out of the reader's buffer, together with what it does, which was
//! found when it was queued. `EXEC` answers them as if they had just arrived.

use super::command::Kind;
use super::frame::{Arguments, Span};
use crate::run::buffered::{Held, OverBudget};

/// The most commands of a transaction.
pub const MAX_QUEUED_COMMANDS: usize = 8192;
/// The most bytes of a transaction: of its arguments, and of where each of them is.
pub const MAX_QUEUED_BYTES: usize = 1024 * 1024;

/// Commands that wait for `EXEC`, or that it is answering.
pub(super) struct Transaction {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    /// What each command does, and where its spans end.
    commands: Vec<(Kind, usize)>,
    is_aborted: bool,
    /// How many of them `EXEC` has answered.
    pub(super) answered: usize,
    /// Its bytes, as they count against the server's budget.
    held: Held,
}

/// A command for which there is no room.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoRoom {
    #[error(
        "ERR a transaction has at most {MAX_QUEUED_COMMANDS} commands and {MAX_QUEUED_BYTES} bytes, and this one has been \
         discarded: send fewer commands between MULTI and EXEC, or a pipeline without them"
    )]
    TooLong,
    #[error("ERR {0}; the transaction has been discarded")]
    OverBudget(OverBudget),
}

impl Transaction {
    /// One without commands.
    pub(super) fn new(held: Held) -> Transaction {
        let (bytes, spans, commands) = Default::default();
        Transaction { bytes, spans, commands, is_aborted: false, answered: 0, held }
    }

    /// Queues a command. A transaction that is aborted drops it.
    pub(super) fn push(&mut self, kind: Kind, arguments: Arguments<'_>) -> Result<(), NoRoom> {
        if self.is_aborted {
            return Ok(());
        }
        let length: usize = arguments.from(0).map(<[u8]>::len).sum();
        let spans = self.spans.len() + arguments.count();
        let bytes = self.bytes.len() + length + spans * size_of::<Span>();
        if self.commands.len() >= MAX_QUEUED_COMMANDS || bytes > MAX_QUEUED_BYTES {
            self.abort();
            return Err(NoRoom::TooLong);
        }
        if let Err(over) = self.held.add(length + arguments.count() * size_of::<Span>()) {
            self.abort();
            return Err(NoRoom::OverBudget(over));
        }
        arguments.copy_to(&mut self.bytes, &mut self.spans);
        self.commands.push((kind, self.spans.len()));
        Ok(())
    }

    /// Drops all commands: `EXEC` will run none.
    pub(super) fn abort(&mut self) {
        (self.bytes, self.spans, self.commands) = Default::default();
        self.is_aborted = true;
        self.held.shrink_to(0);
    }

    pub(super) fn is_aborted(&self) -> bool {
        self.is_aborted
    }

    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }

    /// The command of a number.
    pub(super) fn get(&self, number: usize) -> Option<(Kind, Arguments<'_>)> {
        let (kind, end) = *self.commands.get(number)?;
        let start = number.checked_sub(1).map_or(0, |before| self.commands[before].1);
        Some((kind, Arguments::new(&self.bytes, &self.spans[start..end])))
    }

    /// What the spans of its commands are in.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
