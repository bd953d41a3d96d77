//! How long a thread has run: of a busy machine's time, only its own share.

use std::time::Duration;

/// Time that this thread had a processor.
#[cfg(target_os = "linux")]
pub(crate) fn time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Where the system is not asked, time is time.
#[cfg(not(target_os = "linux"))]
pub(crate) fn time() -> Duration {
    static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    START.elapsed()
}
