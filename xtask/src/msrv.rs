//! The oldest Rust that each published crate says it takes, against what its dependencies say.
//!
//! Cargo refuses a dependency that says it needs a later Rust than there is. So a
//! `rust-version` is only true if no dependency, as locked, states a later one. What
//! the crates themselves use of the standard library is clippy's `incompatible_msrv`;
//! of syntax, let chains are found, which took Rust 1.88.

use std::collections::HashMap;

use crate::package::PUBLISHED;
use crate::run::{Failure, Step, say};

/// By name and version, as `cargo tree` prints them: the Rust that a package says it needs.
type Needs<'m> = HashMap<(&'m str, &'m str), Rust>;

/// Major and minor version.
type Rust = (u32, u32);

pub(crate) fn check() -> Result<(), Failure> {
    // As in the edition before, which never has let chains; otherwise the library is the same in it.
    let arguments = ["--check", "--edition", "2021", "--config", "style_edition=2024", "crates/tidegate/src/lib.rs"];
    Step::new("rustfmt", &arguments).run()?;
    let metadata = Step::cargo("metadata --locked --format-version 1").read()?;
    let needs = needs(&metadata);
    let mut wrong = Vec::new();
    for package in PUBLISHED {
        let tree = "tree --locked --edges normal,build --all-features --target all --prefix none --format {p}";
        let tree = Step::cargo(&format!("{tree} --package {package}")).read()?;
        let mut packages = tree.lines().filter_map(name_and_version);
        let own = packages.next().and_then(|own| needs.get(&own)).ok_or(format!("{package} has no rust-version"))?;
        say(&format!("{package}: Rust {}.{}", own.0, own.1));
        for (name, version) in packages {
            if let Some(rust) = needs.get(&(name, version)).filter(|rust| *rust > own) {
                wrong.push(format!("{package}: {name} {version} needs {}.{}", rust.0, rust.1));
            }
        }
    }
    wrong.sort();
    wrong.dedup();
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!("{}\nTake an older version (cargo update --precise), or raise rust-version", wrong.join("\n")))
}

/// `name v1.2.3 (more)`
fn name_and_version(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split_whitespace();
    Some((words.next()?, words.next()?.strip_prefix('v')?))
}

/// Found by the names of the fields, which spares a parser of JSON: a package begins with its name and version, and
/// its dependencies and targets, which have names too, with other fields.
fn needs(metadata: &str) -> Needs<'_> {
    let mut needs = Needs::new();
    let mut package = None;
    for part in metadata.split("{\"name\":\"") {
        if let Some((name, rest)) = part.split_once("\",\"version\":\"")
            && !name.contains('"')
        {
            package = rest.split_once('"').map(|(version, _)| (name, version));
        }
        let rust = part.split_once("\"rust_version\":\"").and_then(|(_, rest)| rust(rest.split('"').next()?));
        if let (Some(package), Some(rust)) = (package, rust) {
            needs.insert(package, rust);
        }
    }
    needs
}

fn rust(version: &str) -> Option<Rust> {
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next().flatten().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::needs;

    #[test]
    fn each_package_has_its_own_rust_version() {
        let metadata = r#"{"packages":[{"name":"a","version":"1.0.0","id":"x","dependencies":[{"name":"b","source":null}],
            "targets":[{"kind":["lib"],"name":"a"}],"rust_version":"1.85"},{"name":"b","version":"2.0.0","id":"y",
            "rust_version":null},{"name":"c","version":"3.0.0","rust_version":"1.88.1"}]}"#;
        let needs = needs(metadata);
        assert_eq!(needs.len(), 2);
        assert_eq!((needs[&("a", "1.0.0")], needs[&("c", "3.0.0")]), ((1, 85), (1, 88)));
    }
}
