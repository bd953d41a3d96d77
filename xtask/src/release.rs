//! `cargo xtask release`: what a release consists of, in `target/release-artifacts`.

use std::fs;

use crate::run::{Failure, Step, root};
use crate::{programs, sbom};

/// What the binary prints of itself: the arguments, and the file.
const PRINTED: [(&[&str], &str); 4] = [
    (&["completions", "bash"], "tidegate.bash"),
    (&["completions", "zsh"], "_tidegate"),
    (&["completions", "fish"], "tidegate.fish"),
    (&["man"], "tidegate.1"),
];

/// The stripped binary, completions, the manual, the SBOM, the licences and the sums of all.
pub(crate) fn write() -> Result<(), Failure> {
    // Without npm the binary would have no dashboard.
    programs::npm()?;
    Step::cargo("build --profile dist --locked --package tidegate-server --features full").run()?;
    let folder = root().join("target/release-artifacts");
    let failed = |error: std::io::Error| format!("cannot write {}: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(failed)?;
    }
    fs::create_dir_all(&folder).map_err(failed)?;
    let binary = folder.join("tidegate").display().to_string();
    Step::new("strip", &["-o", &binary, "target/dist/tidegate"]).run()?;
    for (arguments, file) in PRINTED {
        let printed = Step::new(&binary, arguments).read()?;
        fs::write(folder.join(file), printed).map_err(failed)?;
    }
    sbom::write()?;
    for file in ["target/sbom.json", "LICENSE-MIT", "LICENSE-APACHE"] {
        let name = file.rsplit('/').next().unwrap_or(file);
        fs::copy(root().join(file), folder.join(name)).map_err(failed)?;
    }
    let entries = fs::read_dir(&folder).map_err(failed)?.filter_map(Result::ok);
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let sums = Step::new("sha256sum", &names).within(&folder).read()?;
    fs::write(folder.join("SHA256SUMS"), &sums).map_err(failed)?;
    println!("{sums}in {}", folder.display());
    Ok(())
}
