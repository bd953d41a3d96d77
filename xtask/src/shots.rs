//! Pictures of the dashboard, of a replay's report and of a simulation, to look at: `target/shots`.
//!
//! With `--docs`, those that the documents show are taken from them.

use std::fs;

use crate::programs;
use crate::run::{Failure, Step, root};

/// The pictures of the documents, by the view that they show.
const DOCUMENTS: [&str; 4] = ["overview", "policy", "instances", "playground"];

/// Their width and colours.
const DOCUMENT_SUFFIX: &str = "1440-light";

pub(crate) fn take(options: &[String]) -> Result<(), Failure> {
    let docs = match options {
        [] => false,
        [one] if one == "--docs" => true,
        _ => return Err("shots takes no option but --docs".into()),
    };
    programs::ensure_browser()?;
    Step::cargo("build --package tidegate-server --features full").run()?;
    let folder = root().join("target/shots");
    let io = |error: std::io::Error| format!("cannot write {}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(io)?;
    let at = |path: &str| root().join(path).display().to_string();
    let (binary, shots) = (at("target/debug/tidegate"), folder.display().to_string());
    let (report, picture) = (format!("{shots}/replay.html"), format!("{shots}/simulate.svg"));
    let samples = |name: &str| at(&format!("crates/tidegate-replay/samples/{name}"));
    let (log, new, old) = (samples("access.log"), samples("new.toml"), samples("old.toml"));
    Step::new(&binary, &["replay", &log, "--policy", &new, "--against", &old, "--html", &report]).run()?;
    Step::new(&binary, &["simulate", "--svg", &picture]).run()?;
    let script = at("crates/tidegate-server/tests/server/dashboard/shots.mjs");
    let policy = at("crates/tidegate-config/examples/policy.toml");
    let chromium = std::env::var("CHROMIUM").unwrap_or_else(|_| "/usr/bin/chromium".into());
    Step::new("node", &[&script, "", "", "", &binary, &shots, &policy, &report, &picture])
        .with("PLAYWRIGHT", &at("target/programs/playwright"))
        .with("CHROMIUM", &chromium)
        .run()?;
    for name in DOCUMENTS.iter().filter(|_| docs) {
        let taken = folder.join(format!("{name}-{DOCUMENT_SUFFIX}.png"));
        fs::copy(taken, root().join(format!("docs/book/src/operate/dashboard/{name}.png"))).map_err(io)?;
    }
    Ok(())
}
