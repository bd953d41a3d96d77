//! The crates as they are published: `target/package/*.crate`.
//!
//! All are packed and looked into; the library is also compiled from its
//! package. To compile the others would take minutes: they are compiled, from
//! the same files, as members of the workspace.

use std::fs;
use std::path::{Path, PathBuf};

use crate::run::{Failure, Step, root, say};
use crate::web;

/// In the order in which they can be published.
pub(crate) const PUBLISHED: [&str; 8] = [
    "tidegate",
    "tidegate-testkit",
    "tidegate-redis",
    "tidegate-config",
    "tidegate-tower",
    "tidegate-simulate",
    "tidegate-replay",
    "tidegate-server",
];

/// All members of the workspace have this version.
const VERSION: &str = env!("CARGO_PKG_VERSION");

const EXPECTED: [&str; 5] = ["Cargo.toml", "README.md", "LICENSE-MIT", "LICENSE-APACHE", "src/lib.rs"];

pub(crate) fn all() -> Result<(), Failure> {
    others_are_private()?;
    web::build_into(&root().join("crates/tidegate-server/dashboard"))?;
    let packages: Vec<String> = PUBLISHED.iter().map(|package| format!("--package {package}")).collect();
    // The page is in no commit.
    Step::cargo(&format!("package --allow-dirty --no-verify {}", packages.join(" "))).run()?;
    for package in PUBLISHED {
        has_what_it_should(package)?;
    }
    server_has_its_page()?;
    Step::cargo("package --allow-dirty --package tidegate").run()
}

/// What is not on the list says so in its manifest.
fn others_are_private() -> Result<(), Failure> {
    for folder in ["crates", "verify", "examples"] {
        let entries = fs::read_dir(root().join(folder)).map_err(|error| format!("cannot read {folder}: {error}"))?;
        for manifest in entries.filter_map(Result::ok).map(|entry| entry.path().join("Cargo.toml")) {
            let Ok(text) = fs::read_to_string(&manifest) else { continue };
            let is_published = PUBLISHED.iter().any(|package| text.contains(&format!("\nname = \"{package}\"\n")));
            if is_published == text.contains("\npublish = false") {
                let manifest = manifest.display();
                return Err(format!(
                    "{manifest}: add `publish = false`, or the crate to PUBLISHED in xtask/src/package.rs"
                ));
            }
        }
    }
    Ok(())
}

fn has_what_it_should(package: &str) -> Result<(), Failure> {
    let (_, listed) = Step::new("tar", &["-tzf", &packed(package).display().to_string()]).ask()?;
    let folder = format!("{package}-{VERSION}/");
    let files: Vec<&str> = listed.lines().filter_map(|file| file.strip_prefix(&folder)).collect();
    say(&format!("{package}: {} files", files.len()));
    if let Some(missing) = EXPECTED.iter().find(|file| !files.contains(file)) {
        return Err(format!("the package of {package} has no {missing}: see `include` in its Cargo.toml"));
    }
    match files.iter().find(|file| file.starts_with("tests/")) {
        Some(test) => Err(format!("the package of {package} has {test}: see `include` in its Cargo.toml")),
        None => Ok(()),
    }
}

/// Unpacks the server, and has its build script find the page there.
fn server_has_its_page() -> Result<(), Failure> {
    let place = root().join("target/package/unpacked");
    // What is left of the last time would hide what is missing now.
    let _ = fs::remove_dir_all(&place);
    let out = place.join("out");
    fs::create_dir_all(&out).map_err(|error| format!("cannot make {}: {error}", out.display()))?;
    let shown = |path: &Path| path.display().to_string();
    Step::new("tar", &["-xzf", &shown(&packed("tidegate-server")), "-C", &shown(&place)]).run()?;
    let folder = place.join(format!("tidegate-server-{VERSION}"));
    let (script, source) = (shown(&place.join("build-script")), shown(&folder.join("build.rs")));
    Step::new("rustc", &["--edition", "2024", "-o", &script, &source]).run()?;
    Step::new(&script, &[]).with("OUT_DIR", &shown(&out)).with("CARGO_MANIFEST_DIR", &shown(&folder)).run()?;
    let files = fs::read_to_string(out.join("dashboard.rs")).unwrap_or_default();
    let has = |path: &str| files.contains(&format!("path: \"{path}"));
    if has("/\"") && has("/assets/") {
        return Ok(());
    }
    Err("the package of tidegate-server has no dashboard: see `include` in its Cargo.toml, and its build.rs".into())
}

fn packed(package: &str) -> PathBuf {
    root().join("target/package").join(format!("{package}-{VERSION}.crate"))
}
