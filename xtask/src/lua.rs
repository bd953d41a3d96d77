//! The scripts that run inside the servers, linted by luacheck.

use std::fs;
use std::path::Path;

use crate::built;
use crate::packages::{install, runs};
use crate::run::{Failure, Step, root, say};

const SETTINGS: &str = "crates/tidegate-redis/lua/.luacheckrc";
const PACKAGE: &str = "lua-check";

/// Lints the scripts as they are sent: the files are only parts of them.
pub(crate) fn lint() -> Result<(), Failure> {
    let folder = root().join("target/lua");
    let _ = fs::remove_dir_all(&folder);
    let examples = built::examples("tidegate-redis")?;
    let writer = examples.iter().find(|example| example.name == "scripts").ok_or("there is no example `scripts`")?;
    writer.step().argument(&folder.display().to_string()).run()?;
    let scripts = scripts(&folder)?;
    let scripts: Vec<&str> = scripts.iter().map(String::as_str).collect();
    match ensure() {
        Ok(()) => {
            Step::new("luacheck", &[&["--no-color", "--no-cache", "--config", SETTINGS], &scripts[..]].concat()).run()
        }
        Err(wanted) => parse(&scripts, &wanted),
    }
}

/// Makes sure that there is luacheck, installing it where that is possible.
fn ensure() -> Result<(), Failure> {
    if runs("luacheck", "--version") { Ok(()) } else { install(&[PACKAGE]) }
}

/// Without luacheck, a compiler at least tells whether they are Lua.
fn parse(scripts: &[&str], wanted: &str) -> Result<(), Failure> {
    let Some(compiler) = ["luac5.1", "luac"].into_iter().find(|compiler| runs(compiler, "-v")) else {
        return Err(wanted.to_owned());
    };
    say(&format!("{wanted}; until then they are only parsed"));
    Step::new(compiler, &[&["-p"], scripts].concat()).run()
}

fn scripts(folder: &Path) -> Result<Vec<String>, Failure> {
    let entries = fs::read_dir(folder).map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
    let paths = entries.filter_map(Result::ok).map(|entry| entry.path().display().to_string());
    let mut scripts: Vec<String> = paths.filter(|path| path.ends_with(".lua")).collect();
    scripts.sort();
    if scripts.is_empty() { Err(format!("no scripts in {}", folder.display())) } else { Ok(scripts) }
}
