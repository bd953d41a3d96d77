//! Defects that the simulation plants in this crate, to see that it finds them.

use std::cell::Cell;

/// A defect in the leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// A lease counts what was granted twice.
    GrantsTwice,
    /// A lease that is over is given back, and still handed out.
    KeepsWhatItGaveBack,
}

thread_local! {
    static PLANTED: Cell<Option<Defect>> = const { Cell::new(None) };
}

/// Plants a defect for this thread, in place of the one before.
pub fn plant(defect: Option<Defect>) {
    PLANTED.set(defect);
}

/// Whether this thread has the defect.
pub(crate) fn is_planted(defect: Defect) -> bool {
    PLANTED.get() == Some(defect)
}
