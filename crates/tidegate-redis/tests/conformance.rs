//! Every promise of the design, on a real server.

mod support;

tidegate_testkit::conformance!(redis, support::manual_store);
