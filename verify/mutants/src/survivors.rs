//! The defects that no test can notice, because they are none.

mod kernels;
mod limiter;
mod policy;
mod store;

/// Defects of one place, and why the library does the same with any of them.
/// Not where it stands, which changes.
pub struct Survivor {
    pub file: &'static str,
    pub function: &'static str,
    pub from: &'static str,
    pub to: &'static [&'static str],
    pub why: &'static str,
}

/// All of them.
pub fn survivors() -> impl Iterator<Item = &'static Survivor> {
    [kernels::SURVIVORS, store::SURVIVORS, policy::SURVIVORS, limiter::SURVIVORS].into_iter().flatten()
}
