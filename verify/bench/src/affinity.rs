//! Two threads on two cores.
//!
//! The scheduler may let both threads of a slice share a core while something
//! else has the other: then they do not meet, and contention looks free.
#![allow(unsafe_code)]

#[cfg(target_os = "linux")]
unsafe extern "C" {
    fn sched_setaffinity(thread: i32, bytes: usize, mask: *const u64) -> i32;
}

/// Keeps this thread on one core, if the operating system lets it.
pub(crate) fn stay_on(core: usize) {
    #[cfg(target_os = "linux")]
    {
        let mask = 1u64 << (core % 64);
        // SAFETY: the signature is that of the C library (0 is this thread),
        // and the mask is read for the eight bytes that it has.
        let _ = unsafe { sched_setaffinity(0, size_of::<u64>(), &raw const mask) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = core;
}
