//! Defects to plant, to see that they are found.

use std::cell::Cell;

use tidegate_redis::internals::{self, Defect};

use crate::embedded::host::Planted;

/// What limiters have got wrong, or this one might.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlantedDefect {
    /// In the scripts.
    Script(Planted),
    /// In the store's leases.
    Leases(Defect),
    /// A charge that was not answered is refunded.
    RefundsUponFailure,
    /// What was on its way when a connection was lost is sent again.
    SendsAgain,
    /// Calls have no deadline to speak of.
    HasNoDeadline,
    /// After a failure, the servers are never asked again.
    NeverLooksAgain,
    /// Something that no seed knows of has a say.
    ReadsTheRealClock,
}

thread_local! {
    static PLANTED: Cell<Option<PlantedDefect>> = const { Cell::new(None) };
}

/// Whether this defect is planted, in the story that this thread tells.
pub(super) fn is_planted(defect: PlantedDefect) -> bool {
    PLANTED.get() == Some(defect)
}

/// The defect in the scripts, if there is one.
pub(super) fn in_script() -> Option<Planted> {
    if let Some(PlantedDefect::Script(planted)) = PLANTED.get() { Some(planted) } else { None }
}

/// Plants a defect until the end of what is returned.
pub(super) fn plant(defect: Option<PlantedDefect>) -> impl Drop {
    struct Pulled;
    impl Drop for Pulled {
        fn drop(&mut self) {
            PLANTED.set(None);
            internals::plant(None);
        }
    }
    PLANTED.set(defect);
    if let Some(PlantedDefect::Leases(defect)) = defect {
        internals::plant(Some(defect));
    }
    Pulled
}
