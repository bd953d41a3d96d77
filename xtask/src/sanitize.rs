//! The library's tests under LLVM's sanitizers, on the nightly toolchain.
//!
//! Miri sees more, and is part of ci; here the same code runs at full speed,
//! with threads that really race.

use crate::run::{Failure, Step, root};

/// The standard library is built anew for them, so they need to know for what.
const TARGET: &str = "x86_64-unknown-linux-gnu";

const TESTS: [&str; 2] = [
    "--lib --test concurrency --test hall_of_bugs",
    "--test all -- change:: conformance:: ids:: memory_store:: waiting::",
];

/// Decisions of each differential test: sanitized code is ten times slower.
const DECISIONS: &str = "200000";

/// `[thread|address]`: one of them, or both.
pub(crate) fn all(options: &[String]) -> Result<(), Failure> {
    let known = ["thread", "address"];
    if let Some(unknown) = options.iter().find(|option| !known.contains(&option.as_str())) {
        return Err(format!("there is no sanitizer {unknown:?}, but: {}", known.join(", ")));
    }
    for sanitizer in known.into_iter().filter(|name| options.is_empty() || options.iter().any(|option| option == name))
    {
        let target = root().join("target/sanitize").join(sanitizer);
        for tests in TESTS {
            Step::cargo(&format!("+nightly test --package tidegate -Zbuild-std --target {TARGET} {tests}"))
                .with("RUSTFLAGS", &format!("-Zsanitizer={sanitizer}"))
                .with("CARGO_TARGET_DIR", &target.display().to_string())
                .with("TIDEGATE_DECISIONS", DECISIONS)
                .run()?;
        }
    }
    Ok(())
}
