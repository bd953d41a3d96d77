//! Every promise of the design, on a real server.

use crate::support;

tidegate_testkit::conformance!(redis, support::manual_store);

#[test]
fn fixed_windows_of_one_period_count_together() {
    tidegate_testkit::conformance::fixed_windows_of_one_period_count_together(&support::manual_store);
}
