//! Every row is a test, here or in another crate, or has a reason not to be.

use std::collections::BTreeMap;
use std::path::Path;

/// Where the tests are.
const HALLS: [&str; 4] = [
    "crates/tidegate/tests/hall_of_bugs",
    "crates/tidegate-redis/tests/hall_of_bugs",
    "crates/tidegate-tower/tests/hall_of_bugs",
    "crates/tidegate-server/tests/server/hall_of_bugs",
];

/// Rows that are no test, and why.
const NOT_OURS: [(usize, &str); 1] = [(
    5,
    "a monotonic clock that stops while the machine sleeps (systemd/systemd#42919, rust-lang/rust#87906): ours may as well, \
     which makes a limit last longer and never lets more pass; the page of SystemClock says so, and a test would have to put \
     the machine to sleep. On Redis time is the server's, which goes on.",
)];

const ROWS: usize = 82;

/// The numbers of the tests in a hall.
fn rows_in(hall: &Path) -> Vec<(usize, String)> {
    let mut rows = Vec::new();
    for entry in std::fs::read_dir(hall).unwrap_or_else(|error| panic!("{}: {error}", hall.display())) {
        let path = entry.expect("an entry").path();
        let source = std::fs::read_to_string(&path).expect("a source file");
        let lines: Vec<&str> = source.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let name = line.trim_start().trim_start_matches("async ").strip_prefix("fn row_");
            let Some(number) = name.and_then(|name| name.split('_').next()?.parse().ok()) else { continue };
            assert!(lines[index - 1].trim_start().starts_with("#["), "{}: row {number} is no test", path.display());
            // Attributes stand between the comment and the function.
            let comment = lines[..index].iter().rev().find(|line| !line.trim_start().starts_with("#["));
            let comment = comment.is_some_and(|line| line.trim_start().starts_with("///"));
            assert!(comment, "{}: row {number} does not say what happened", path.display());
            rows.push((number, path.display().to_string()));
        }
    }
    rows
}

#[test]
fn every_row_is_a_test_or_has_a_reason() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = BTreeMap::new();
    for hall in HALLS {
        for (row, file) in rows_in(&root.join(hall)) {
            found.entry(row).or_insert(file);
        }
    }
    let excused = |row: &usize| NOT_OURS.iter().any(|(number, reason)| number == row && reason.len() > 40);
    let missing: Vec<usize> = (1..=ROWS).filter(|row| !found.contains_key(row) && !excused(row)).collect();
    assert!(missing.is_empty(), "rows without a test and without a reason: {missing:?}");
    let twice: Vec<usize> = found.keys().copied().filter(|row| excused(row) || *row > ROWS).collect();
    assert!(twice.is_empty(), "rows that have a test and a reason, or do not exist: {twice:?}");
}
