//! How long 10,000 rules take to load, in both formats.

use std::error::Error;
use std::fmt::Write;
use std::path::Path;
use std::time::Instant;

use tidegate::{Limiter, MemoryStore};
use tidegate_config::{Format, parse};

const RULES: usize = 10_000;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut toml, mut yaml) = (String::new(), String::from("rules:\n"));
    for number in 0..RULES {
        writeln!(toml, "[rules.rule-{number}]\nlimit = \"{}/min\"\nkey = [\"user\"]", number + 1)?;
        writeln!(toml, "match = {{ path = {{ prefix = \"/api/{number}/\" }}, method = \"POST\" }}")?;
        writeln!(toml, "tiers.plan = {{ pro = \"5000/min\", free = \"5/min\" }}\n")?;
        writeln!(yaml, "  rule-{number}:\n    limit: {}/min\n    key: [user]", number + 1)?;
        writeln!(yaml, "    match: {{ path: {{ prefix: /api/{number}/ }}, method: POST }}")?;
        writeln!(yaml, "    tiers: {{ plan: {{ pro: 5000/min, free: 5/min }} }}")?;
    }
    for (format, text) in [(Format::Toml, toml), (Format::Yaml, yaml)] {
        let start = Instant::now();
        let policy = parse(&text, format, Path::new("many"))?;
        let loaded = start.elapsed();
        Limiter::with_store(policy, MemoryStore::default())?;
        let ready = start.elapsed();
        println!("{RULES} rules, {} bytes of {format:?}: loaded in {loaded:.0?}, ready in {ready:.0?}", text.len());
    }
    Ok(())
}
