//! The table of settings in the book, as clap knows them.

use std::fs;
use std::path::Path;

use clap::{Arg, Args, Command};

use super::Settings;

/// Writes the table instead of comparing it.
const WRITE: &str = "TIDEGATE_WRITE_SETTINGS";

/// The table stands between these.
const BEGINS: &str = "<!-- the table begins -->\n";
const ENDS: &str = "<!-- the table ends -->";

fn row(setting: &Arg) -> Option<String> {
    let flag = setting.get_long()?;
    let value = setting.get_value_names().filter(|_| setting.get_action().takes_values());
    let value = value.map(|names| format!(" {}", names.join(" "))).unwrap_or_default();
    let variable = setting.get_env().map(|name| format!("`{}`", name.display())).unwrap_or_default();
    let defaults: Vec<_> = setting.get_default_values().iter().map(|value| format!("`{}`", value.display())).collect();
    let default = if setting.get_action().takes_values() { defaults.join(", ") } else { "off".into() };
    let possible: Vec<String> = setting.get_possible_values().iter().map(|it| format!("`{}`", it.get_name())).collect();
    let possible = match setting.get_action().takes_values() && !possible.is_empty() {
        true => format!(": {}", possible.join(", ")),
        false => String::new(),
    };
    let help = setting.get_help().map(ToString::to_string).unwrap_or_default().replace('|', "\\|").replace('<', "&lt;");
    Some(format!("| `--{flag}{value}` | {variable} | {default} | {help}{possible} |\n"))
}

#[test]
fn the_book_lists_every_setting_with_its_variable_and_default() {
    let command = Settings::augment_args(Command::new("serve"));
    let shown = command.get_arguments().filter(|setting| !setting.is_hide_set());
    let rows: Vec<String> = shown.filter_map(row).collect();
    let table = format!("\n| flag | variable | default | |\n|---|---|---|---|\n{}\n", rows.concat());

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/src/reference/settings.md");
    let page = fs::read_to_string(&path).expect("the page can be read");
    let (before, rest) = page.split_once(BEGINS).expect("a mark before the table");
    let (found, after) = rest.split_once(ENDS).expect("a mark after the table");
    if std::env::var_os(WRITE).is_some() {
        fs::write(&path, format!("{before}{BEGINS}{table}{ENDS}{after}")).expect("the page can be written");
    } else {
        let again = format!("{WRITE}=1 cargo test -p tidegate-server --lib settings");
        assert!(found == table, "{} should have this table, which `{again}` writes:\n{table}", path.display());
    }
}
