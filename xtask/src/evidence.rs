//! `cargo xtask evidence`: the results of long campaigns, and the page of the book that shows them.
//!
//! `cargo xtask evidence NAME [OPTIONS]` runs a campaign and appends what it counted to
//! `verify/evidence/TASK.toml`. The page is written from these files and from nothing else.

use std::fmt::Write;
use std::fs;

use crate::run::{Failure, Step, root};

const PAGE: &str = "docs/book/src/appendix/evidence.md";
const RECORDS: &str = "verify/evidence";

/// A campaign: its task, what it shows, and the words by which its result is found in what it prints.
struct Campaign {
    task: &'static str,
    title: &'static str,
    result: &'static str,
}

const fn campaign(task: &'static str, title: &'static str, result: &'static str) -> Campaign {
    Campaign { task, title, result }
}

/// The one campaign that is a test and not a task.
const MODELS: &str = "models";

const CAMPAIGNS: [Campaign; 10] = [
    campaign("proof", "The arithmetic, over all integers, by Z3", "lemmas proved"),
    campaign("soak", "Every decision beside the oracle", "decisions"),
    campaign(MODELS, "Leases, failover and ids: every interleaving of a model", "states"),
    campaign("histories", "Threads at once, and waiters poll by poll", "stor"),
    campaign("simulation", "Processes, leases and servers with faults in virtual time", "virtual hours"),
    campaign("chaos", "Faults under load, on real servers", "claims"),
    campaign("calendar", "Calendar periods beside Python and PostgreSQL", "cases"),
    campaign("mutants", "Every small change of the code that decides is noticed", " mutants: "),
    campaign("sanitize", "The library's tests under the sanitizers", "test result: ok"),
    campaign("fuzz", "Parsers of what clients send, by libFuzzer", "Done "),
];

/// One run of a campaign.
#[derive(Debug, Default, PartialEq, Eq)]
struct Run {
    day: String,
    commit: String,
    command: String,
    result: String,
}

/// Writes the page; with a task, runs it first and records its result.
pub(crate) fn write(arguments: &[String]) -> Result<(), Failure> {
    if let [task, options @ ..] = arguments {
        let campaign = CAMPAIGNS.iter().find(|campaign| campaign.task == task);
        record(campaign.ok_or(format!("{task} is not a campaign: see {PAGE}"))?, options)?;
    }
    fs::write(root().join(PAGE), page()?).map_err(|error| format!("cannot write {PAGE}: {error}"))
}

fn record(campaign: &Campaign, options: &[String]) -> Result<(), Failure> {
    let task = match campaign.task {
        MODELS => "test --profile checked --package tidegate-proof --test models -- --nocapture".to_owned(),
        task => format!("xtask verify {task}"),
    };
    let command = [&[task], options].concat().join(" ");
    let (success, printed) = Step::cargo(&command).ask()?;
    println!("{printed}");
    if !success {
        return Err(format!("failed, and not recorded: cargo {command}"));
    }
    let found: Vec<&str> = printed.lines().filter(|line| line.contains(campaign.result)).map(str::trim).collect();
    if found.is_empty() {
        return Err(format!("cargo {command} printed no line with {:?}", campaign.result));
    }
    let ask = |program: &str, arguments: &[&str]| Step::new(program, arguments).ask().map(|(_, said)| said);
    let run = Run {
        day: ask("date", &["-u", "+%Y-%m-%d"])?.trim().into(),
        commit: ask("git", &["rev-parse", "--short", "HEAD"])?.trim().into(),
        command: format!("cargo {command}"),
        result: found.join("; "),
    };
    let mut runs = read(campaign)?;
    runs.push(run);
    let path = root().join(RECORDS).join(format!("{}.toml", campaign.task));
    let text: Vec<String> = runs.iter().map(Run::to_toml).collect();
    fs::write(&path, text.join("\n")).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// The page, as the records have it: of each campaign the newest run first.
fn page() -> Result<String, Failure> {
    let mut page = String::from(
        "# Evidence\n\nResults of long campaigns, newest first. CI runs a shorter form of each. `cargo xtask evidence` writes this page from \
         `verify/evidence`;\n`cargo xtask evidence NAME` runs a campaign and records its result. A commit is the one that was tested. \
         Entries before 131d4bb were written by hand from what the runs printed.\n",
    );
    for campaign in &CAMPAIGNS {
        let runs = read(campaign)?;
        if runs.is_empty() {
            continue;
        }
        let head = "| day | commit | command | result |\n|---|---|---|---|";
        write!(page, "\n## {}\n\n{head}\n", campaign.title).map_err(|error| error.to_string())?;
        for Run { day, commit, command, result } in runs.iter().rev() {
            let result = result.replace('|', "\\|");
            writeln!(page, "| {day} | {commit} | `{command}` | {result} |").map_err(|error| error.to_string())?;
        }
    }
    Ok(page)
}

/// The runs of a campaign, oldest first; none if it has no file.
fn read(campaign: &Campaign) -> Result<Vec<Run>, Failure> {
    let path = root().join(RECORDS).join(format!("{}.toml", campaign.task));
    let text = if path.exists() { fs::read_to_string(&path) } else { Ok(String::new()) };
    let text = text.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    parse(&text).map_err(|line| format!("{}: cannot read {line:?}", path.display()))
}

/// Reads what [`Run::to_toml`] writes: tables of one-line strings. The error is the line that is something else.
fn parse(text: &str) -> Result<Vec<Run>, String> {
    let mut runs: Vec<Run> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line == "[[run]]" {
            runs.push(Run::default());
            continue;
        }
        let pair = line.split_once(" = \"").and_then(|(name, value)| Some((name, value.strip_suffix('"')?)));
        let ((name, value), run) = pair.zip(runs.last_mut()).ok_or(line)?;
        let value = value.replace("\\\"", "\"").replace("\\\\", "\\");
        match name {
            "day" => run.day = value,
            "commit" => run.commit = value,
            "command" => run.command = value,
            "result" => run.result = value,
            _ => return Err(line.into()),
        }
    }
    Ok(runs)
}

impl Run {
    fn to_toml(&self) -> String {
        let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
        let Run { day, commit, command, result } = self;
        let (command, result) = (quoted(command), quoted(result));
        format!("[[run]]\nday = \"{day}\"\ncommit = \"{commit}\"\ncommand = \"{command}\"\nresult = \"{result}\"\n")
    }
}

#[cfg(test)]
mod tests {
    use super::{PAGE, Run, page, parse};
    use crate::run::root;

    #[test]
    fn the_page_is_what_the_records_say() {
        let written = std::fs::read_to_string(root().join(PAGE)).unwrap_or_default();
        assert!(page().as_ref() == Ok(&written), "write {PAGE} again: cargo xtask evidence");
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let run = |result: &str| Run { day: "2026-11-15".into(), result: result.into(), ..Run::default() };
        let runs = [run("90 of 90"), run("\"quoted\" \\ and = more")];
        assert_eq!(parse(&runs.each_ref().map(Run::to_toml).join("\n")).as_deref(), Ok(&runs[..]));
        assert!(parse("[[run]]\nday = 7\n").is_err());
    }
}
