//! Many at once: together they get what one would.

use tidegate::ManualClock;
use tidegate::store::Store;

use super::{Bench, limits};

/// Threads that ask about one key at one instant are admitted as often as the
/// limit allows one of them, and no less.
pub fn threads_together_get_what_one_would<S: Store>(make: &impl Fn() -> (S, ManualClock)) {
    for limit in limits() {
        let bench = Bench::new(make);
        let account = bench.account(limit, "alice");
        let admitted: u64 = std::thread::scope(|scope| {
            let ask = || (0..limit.capacity()).filter(|_| account.charge(1).allowed).count() as u64;
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().expect("the store does not panic")).sum()
        });
        assert_eq!(admitted, limit.capacity(), "{limit}: four threads");
        assert_eq!(account.peek(1).remaining, 0, "{limit}");
    }
}
