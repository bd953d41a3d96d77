//! Periods of calendars, by the library, by Python's time zones and by PostgreSQL's: `verify/calendar`.

use std::fs;
use std::path::Path;

use crate::packages::{install, runs};
use crate::programs;
use crate::run::{Failure, Step, root};

/// The time zone database of the version that jiff carries, and the arithmetic of months.
const PYTHON: [&str; 2] = ["tzdata==2026.5", "python-dateutil==2.9.0.post0"];

const CASES: &str = "target/calendar/cases.txt";
const RECORDED: &str = "crates/tidegate/tests/data/calendar-edges.txt";

/// `[COUNT] [--write]`, or `clocks`
pub(crate) fn compare(options: &[String]) -> Result<(), Failure> {
    if let [only] = options
        && only == "clocks"
    {
        return clocks();
    }
    let (mut count, mut recorded) = ("1000000", None);
    for option in options {
        match option.as_str() {
            "--write" => recorded = Some(RECORDED),
            number if number.parse::<u64>().is_ok() => count = number,
            other => {
                return Err(format!(
                    "{other} is not understood: cargo xtask verify calendar [COUNT] [--write], or clocks"
                ));
            }
        }
    }
    let python = |place: &Path| programs::program(place, "python").display().to_string();
    programs::environment("calendar", &PYTHON, |place| {
        let wanted = "import dateutil, tzdata; assert tzdata.__version__ == '2026.5'";
        Step::new(&python(place), &["-c", wanted]).ask().is_ok_and(|(success, _)| success)
    })?;
    if !Path::new("/usr/lib/postgresql").exists() && Step::new("initdb", &["--version"]).ask().is_err() {
        install(&["postgresql"])?;
    }
    let cases = root().join(CASES);
    cases.parent().map_or(Ok(()), fs::create_dir_all).map_err(|error| format!("cannot make target: {error}"))?;
    let python = python(&programs::place("calendar"));
    let step = Step::new(&python, &["-u", "verify/calendar/compare.py", count, CASES]);
    recorded.into_iter().fold(step, Step::argument).with("PYTHONDONTWRITEBYTECODE", "1").run()?;
    let test = Step::cargo("test --package tidegate --test all -- --nocapture calendar_edges::");
    test.with("TIDEGATE_CALENDAR", &cases.display().to_string()).run()
}

/// The server across edges, under clocks of its own.
fn clocks() -> Result<(), Failure> {
    if !runs("redis-server", "--version") {
        install(&["redis-server"])?;
    }
    Step::cargo("build --release --package tidegate-server --bin tidegate").run()?;
    let step = Step::new("python3", &["-u", "verify/calendar/clocks.py", "target/release/tidegate", "redis-server"]);
    step.with("PYTHONDONTWRITEBYTECODE", "1").run()
}
