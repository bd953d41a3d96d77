//! What the libraries make public, compared with what is recorded in `verify/api`.

use std::fs;

use crate::run::{Failure, Step, root, say};

const LIBRARIES: [&str; 6] =
    ["tidegate", "tidegate-redis", "tidegate-config", "tidegate-tower", "tidegate-simulate", "tidegate-replay"];

/// Their features, without those that have no stability promise.
const FEATURES: &str = "tidegate/calendar,tidegate-config/envoy,tidegate-config/limitador,tidegate-config/watch,\
                        tidegate-simulate/png,tidegate-tower/tonic,tidegate-tower/usage";

/// Fails if an API is not as recorded, or records it.
pub(crate) fn compare(writes: bool) -> Result<(), Failure> {
    let target = root().join("target/api").display().to_string();
    let build = "build --quiet --locked --manifest-path verify/api/Cargo.toml";
    Step::cargo(build).with("CARGO_TARGET_DIR", &target).run()?;
    let libraries = LIBRARIES.map(|library| format!("--package {library}")).join(" ");
    Step::cargo(&format!("doc {libraries} --features {FEATURES} --lib --no-deps"))
        .with("RUSTDOC", &root().join("verify/api/rustdoc").display().to_string())
        .with("RUSTDOCFLAGS", "-Zunstable-options --output-format json")
        .run()?;
    let mut changed = Vec::new();
    for library in LIBRARIES {
        let json = root().join("target/doc").join(format!("{}.json", library.replace('-', "_")));
        let (success, listed) =
            Step::new(&format!("{target}/debug/tidegate-api"), &[&json.display().to_string()]).ask()?;
        if !success {
            return Err(listed);
        }
        let name = format!("verify/api/{library}.txt");
        let recorded = fs::read_to_string(root().join(&name)).unwrap_or_default();
        if writes {
            fs::write(root().join(&name), listed).map_err(|error| format!("cannot write {name}: {error}"))?;
        } else if listed != recorded {
            say(&format!("\n{name}\n{}", difference(&recorded, &listed)));
            changed.push(library);
        }
    }
    if changed.is_empty() {
        return Ok(());
    }
    Err(format!(
        "the public API of {} is not as recorded: if that is meant, run `cargo xtask record api`, commit verify/api, and \
         say it in CHANGELOG.md",
        changed.join(", ")
    ))
}

/// The lines that only one of two lists has.
fn difference(before: &str, after: &str) -> String {
    let only = |sign: char, one: &str, other: &str| {
        let lines = one.lines().filter(|line| !other.lines().any(|known| known == *line));
        lines.map(|line| format!("{sign} {line}\n")).collect::<String>()
    };
    only('-', before, after) + &only('+', after, before)
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn a_difference_has_what_went_and_what_came() {
        assert_eq!(difference("a\nb\n", "b\nc\n"), "- a\n+ c\n");
    }
}
