//! Instructions of the paths that a service takes, counted by callgrind and compared with
//! what is recorded: the cost of a check that a busy machine does not disturb.

use std::fs;

use crate::packages;
use crate::run::{Failure, Step, root, say};

/// What is recorded: the name of a path and its instructions, one a line.
const RECORDED: &str = "verify/paths/instructions.txt";

/// What two builds of one source may differ by: seeds of hashes, and the C library's
/// copying on another processor.
const TOLERANCE: f64 = 0.03;

/// Counts each recorded path, and fails if one takes more instructions than that. With
/// `--write`, records what was counted; with names, counts these.
pub(crate) fn instructions(options: &[String]) -> Result<(), Failure> {
    if Step::new("valgrind", &["--version"]).ask().is_err() {
        packages::install(&["valgrind"])?;
    }
    Step::cargo("build --profile dist --package tidegate-paths").run()?;
    let file = root().join(RECORDED);
    let text = fs::read_to_string(&file).map_err(|error| format!("cannot read {RECORDED}: {error}"))?;
    let recorded: Vec<(&str, f64)> = text.lines().filter_map(read).collect();
    let writes = options.iter().any(|option| option == "--write");
    let wanted: Vec<&String> = options.iter().filter(|option| !option.starts_with("--")).collect();
    let (mut lines, mut grown) = (String::new(), Vec::new());
    for (name, before) in recorded.iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|one| one == name))
    {
        let now = count(name)?;
        say(&format!("{name:<24}{now:>10.0} instructions, recorded {before:.0}"));
        lines += &format!("{name} {now:.0}\n");
        if now > before * (1.0 + TOLERANCE) {
            grown.push(format!("{name} takes {now:.0} instructions, and {before:.0} are recorded"));
        }
    }
    if writes {
        return fs::write(&file, lines).map_err(|error| format!("cannot write {RECORDED}: {error}"));
    }
    if grown.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{}: make it cheaper, or record it with `cargo xtask record instructions` and say why",
        grown.join("; ")
    ))
}

fn read(line: &str) -> Option<(&str, f64)> {
    let (name, count) = line.split_once(' ')?;
    Some((name, count.parse().ok()?))
}

/// The instructions of one check on a path.
fn count(name: &str) -> Result<f64, Failure> {
    let program = root().join("target/dist/tidegate-paths");
    let program = program.to_str().ok_or("the path of the workspace is not text")?;
    let options =
        ["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no", "--toggle-collect=*counted*"];
    let (_, said) = Step::new("valgrind", &[&options[..], &[program, name]].concat()).ask()?;
    let after =
        |mark: &str| said.split_once(mark).and_then(|(_, rest)| rest.split_whitespace().next()?.parse::<f64>().ok());
    let counted = || Some(after("Collected : ")? / after("turns: ")?);
    counted().ok_or_else(|| format!("callgrind did not count {name}:\n{said}"))
}
