//! `cargo xtask verify attack`: all attacks, or some, and a table.

use std::process::ExitCode;

use clap::Parser;
use tidegate_chaos::attack;

/// Bounded attacks on a server of their own, with an honest client beside each.
#[derive(Debug, Parser)]
struct Options {
    /// Only attacks whose name contains this word; may be given several times
    #[arg(long, value_name = "WORD")]
    only: Vec<String>,
    /// Only those that CI runs, without judging latencies
    #[arg(long)]
    quick: bool,
    /// Says what there is, and makes nothing
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let named = |attack: &attack::Attack| {
        options.only.is_empty() || options.only.iter().any(|word| attack.name.contains(word.as_str()))
    };
    let chosen = attack::all().into_iter().filter(|attack| named(attack) && (attack.is_quick || !options.quick));
    let mut broken = 0;
    for attack in chosen {
        if options.list {
            println!("{:<22} {}", attack.name, attack.what);
            continue;
        }
        let attempt = attack::make(&attack, !options.quick);
        println!("{attempt}");
        broken += usize::from(!attempt.broken().is_empty());
    }
    if broken == 0 {
        return ExitCode::SUCCESS;
    }
    eprintln!("{broken} attacks broke a stated bound");
    ExitCode::FAILURE
}
