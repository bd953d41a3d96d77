//! What an admitted request holds until its response has ended.

use crate::tally::Spent;

/// A reservation on any store. Dropped, it gives its permits back and leaves its estimates charged.
pub(crate) trait Hold: Send + Sync {
    /// Corrects the estimates and gives the permits back; no caller waits for it.
    fn settle(self: Box<Self>, spent: Spent);

    /// Renews the reservation and its permits, if it is time; no caller waits for it.
    fn renew_if_due(&mut self);
}
