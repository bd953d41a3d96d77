//! What the command line asks for.

use std::path::PathBuf;

use crate::callgrind::Workload;
use crate::measure::Pace;
use crate::memory;

/// One run of this program.
pub(crate) enum Task {
    /// Measure and print.
    Measure(Options),
    /// Say how much memory one contestant takes.
    MemoryChild(String),
    /// Run checks for an instruction counter.
    Callgrind(Workload, String),
}

/// How to measure.
pub(crate) struct Options {
    pub(crate) pace: Pace,
    /// Part of the names of the workloads to run.
    pub(crate) only: Option<String>,
    /// Where to write the report, besides printing it.
    pub(crate) markdown: Option<PathBuf>,
}

/// What is printed when the command line cannot be understood.
pub(crate) const USAGE: &str = "\
usage: tidegate-bench [--quick] [--only PART_OF_NAME] [--markdown FILE]
       tidegate-bench --callgrind uniform|hot|refused|new|no-keys|layer CONTESTANT";

/// Reads the command line; `None` if it makes no sense.
pub(crate) fn read(arguments: impl IntoIterator<Item = String>) -> Option<Task> {
    let mut arguments = arguments.into_iter();
    let mut options = Options { pace: Pace::FULL, only: None, markdown: None };
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => options.pace = Pace::QUICK,
            "--only" => options.only = Some(arguments.next()?),
            "--markdown" => options.markdown = Some(arguments.next()?.into()),
            memory::CHILD => return Some(Task::MemoryChild(arguments.next()?)),
            "--callgrind" => {
                let name = arguments.next()?;
                let (_, workload) = Workload::NAMES.into_iter().find(|(known, _)| *known == name)?;
                return Some(Task::Callgrind(workload, arguments.next()?));
            }
            _ => return None,
        }
    }
    Some(Task::Measure(options))
}
