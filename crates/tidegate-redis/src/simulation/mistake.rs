//! Mistakes to plant, to see that they are found.

use std::cell::Cell;

use crate::embedded::host::Planted;

/// What limiters have got wrong, or this one might.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// In the scripts.
    Script(Planted),
    /// A lease counts what was granted twice.
    GrantsTwice,
    /// A lease that is over is given back, and still handed out.
    KeepsWhatItGaveBack,
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
    static PLANTED: Cell<Option<Mistake>> = const { Cell::new(None) };
}

/// Whether this mistake is planted, in the story that this thread tells.
pub(crate) fn is_planted(mistake: Mistake) -> bool {
    PLANTED.get() == Some(mistake)
}

/// The mistake in the scripts, if there is one.
pub(super) fn in_script() -> Option<Planted> {
    if let Some(Mistake::Script(planted)) = PLANTED.get() { Some(planted) } else { None }
}

/// Plants a mistake until the end of what is returned.
pub(super) fn plant(mistake: Option<Mistake>) -> impl Drop {
    struct Pulled;
    impl Drop for Pulled {
        fn drop(&mut self) {
            PLANTED.set(None);
        }
    }
    PLANTED.set(mistake);
    Pulled
}
