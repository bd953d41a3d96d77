//! `cargo xtask verify chaos`: all faults, or some, and a report.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};
use tidegate_chaos::{
    ClientOptions, Family, Fault, HolderOptions, Report, Run, all, attempt, enter_namespace, is_own_namespace,
    run_client, run_holder,
};

/// Faults under load, each with its bound.
#[derive(Debug, Parser)]
struct Options {
    #[command(subcommand)]
    task: Option<Task>,
    /// Only faults whose name or family contains this word; may be given several times
    #[arg(long, value_name = "WORD")]
    only: Vec<String>,
    /// Only those that CI runs each time
    #[arg(long)]
    quick: bool,
    /// How often to make each, by seeds that follow on the first
    #[arg(long, value_name = "TIMES", default_value_t = 1)]
    repeat: u64,
    /// What chance follows from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Says what there is, and makes nothing
    #[arg(long)]
    list: bool,
    /// Where to write the report
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// What the report says it is about, such as a day and a commit
    #[arg(long, default_value = "")]
    about: String,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// A client of a store, which faults start for themselves
    #[command(hide = true)]
    Client(ClientOptions),
    /// A process that reserves and settles, which faults start for themselves
    #[command(hide = true)]
    Holder(HolderOptions),
}

fn main() -> ExitCode {
    let options = Options::parse();
    let outcome = match &options.task {
        Some(Task::Client(client)) => run_client(client).map(|()| ExitCode::SUCCESS),
        Some(Task::Holder(holder)) => run_holder(holder).map(|()| ExitCode::SUCCESS),
        None if options.list => {
            list(&options);
            Ok(ExitCode::SUCCESS)
        }
        None => make_all(&options),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::FAILURE
    })
}

impl Options {
    fn chosen(&self) -> impl Iterator<Item = (Family, Fault)> {
        let named = |family: &Family, fault: &Fault| {
            let is = |word: &String| fault.name.contains(word.as_str()) || family.to_string() == *word;
            self.only.is_empty() || self.only.iter().any(is)
        };
        all().into_iter().filter(move |(family, fault)| named(family, fault) && (fault.is_quick || !self.quick))
    }
}

fn list(options: &Options) {
    let chosen: Vec<(Family, Fault)> = options.chosen().collect();
    for (family, fault) in &chosen {
        println!("{family:<9} {:<28} {}\n{:39}may cost: {}", fault.name, fault.what, "", fault.costs);
    }
    println!("{} kinds", chosen.len());
}

fn make_all(options: &Options) -> io::Result<ExitCode> {
    enter_namespace();
    // A line is enough: what was thrown ends up in the report, and callers tell no more than that they fell.
    std::panic::set_hook(Box::new(|panic| eprintln!("    {panic}")));
    if !is_own_namespace() {
        println!("without namespaces of our own: some faults cannot be made");
    }
    let mut report = Report::default();
    for seed in (0..options.repeat).map(|number| options.seed + number) {
        for (family, fault) in options.chosen() {
            let began = Instant::now();
            let verdict = attempt(&fault, seed);
            let run = Run { fault, family, seed, took: began.elapsed(), verdict };
            println!("{}", run.line());
            report.add(run);
        }
    }
    println!("\n{}", report.summary());
    if let Some(path) = &options.report {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, report.markdown(&options.about))?;
        println!("{}", path.display());
    }
    Ok(if report.broken().next().is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
