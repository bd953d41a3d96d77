//! No input makes the reader panic: random bytes, and good files spoilt.
//!
//! `TIDEGATE_CASES` sets how many; 100,000 unless set.

use std::path::Path;

use tidegate_config::{Format, envoy, parse};
use tidegate_testkit::Random;

const FILES: [&str; 8] = [
    include_str!("../examples/policy.toml"),
    include_str!("../examples/policy.yaml"),
    include_str!("errors/unknown-words.toml"),
    include_str!("errors/kinds.yaml"),
    include_str!("errors/addresses.toml"),
    include_str!("errors/bare-settings.yaml"),
    include_str!("errors/alias-of-itself.yaml"),
    include_str!("errors/envoy-limits.yaml"),
];

/// What files are made of, and what has broken readers before.
const PIECES: [&str; 32] = [
    "[",
    "]",
    "{",
    "}",
    "\"",
    "'",
    "\n",
    "\r",
    "\t",
    " ",
    ":",
    "=",
    ",",
    "- ",
    "#",
    "&a ",
    "*a",
    "<<: ",
    "---\n",
    "? ",
    "| \n",
    "!!x ",
    "\u{feff}",
    "\u{0}",
    "ö",
    "日",
    "\u{2028}",
    "limit",
    "rules",
    "99999999999999999999",
    "*",
    "%",
];

fn cases() -> u64 {
    std::env::var("TIDEGATE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(100_000)
}

/// A way to read a text; whatever is wrong with it can be shown.
fn try_one(way: u64, text: &str) {
    let name = Path::new("file");
    let report = match way {
        0 => parse(text, Format::Toml, name).err(),
        1 => parse(text, Format::Yaml, name).err(),
        _ => envoy::parse(text, name).err(),
    };
    if let Some(report) = report {
        assert!(!report.diagnostics().is_empty() && !report.to_string().is_empty());
    }
}

/// A few lines of a file, changed in a few places.
fn spoilt(random: &mut Random) -> String {
    let lines: Vec<&str> = random.choose(&FILES).split_inclusive('\n').collect();
    let start = random.within(0..=lines.len() as u64 - 1) as usize;
    let length = random.within(1..=15) as usize;
    let mut text: String = lines[start..].iter().take(length).copied().collect();
    for _ in 0..random.within(1..=4) {
        let mut at = random.within(0..=text.len() as u64) as usize;
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        match (random.within(0..=2), text[at..].chars().next()) {
            (0, Some(_)) => drop(text.remove(at)),
            (1, Some(_)) => text.truncate(at),
            _ => text.insert_str(at, random.choose(&PIECES)),
        }
    }
    text
}

#[test]
fn spoilt_files_are_read_or_refused() {
    let mut random = Random::new(1);
    for _ in 0..cases() / 2 {
        try_one(random.within(0..=2), &spoilt(&mut random));
    }
}

#[test]
fn random_text_is_read_or_refused() {
    let mut random = Random::new(2);
    for _ in 0..cases() / 4 {
        let pieces = random.within(1..=20);
        let text: String = (0..pieces).map(|_| random.choose(&PIECES)).collect();
        try_one(random.within(0..=2), &text);
    }
}

#[test]
fn random_bytes_are_read_or_refused() {
    let mut random = Random::new(3);
    for _ in 0..cases() / 4 {
        let bytes: Vec<u8> = (0..random.within(0..=40)).map(|_| random.within(0..=255) as u8).collect();
        try_one(random.within(0..=2), &String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn large_and_deep_texts_are_refused_in_time() {
    for text in [
        "[".repeat(100_000),
        "{a: ".repeat(100_000),
        "a.".repeat(100_000) + "a = 1",
        "- ".repeat(100_000),
        "a = ".to_owned() + &"{a=".repeat(100_000),
        format!("a = \"{}\"", "x".repeat(1_000_000)),
        "=\n".repeat(1 << 20),
        "[a]\n".repeat(1 << 16),
        "a: [\n".repeat(1 << 16),
        (0..30_000).map(|number| format!("k{number}: 1\n")).collect(),
        (0..30_000).map(|number| format!("k{number} = 1\n")).collect(),
        (0..30_000).map(|number| format!("[overrides.a.b]\n{number} = '1/s'\n")).collect(),
        format!("rules: {{ a: {{ limit: 1/s }} }}\noverrides:\n  a:\n    t:\n{}", {
            (0..30_000).map(|number| format!("      v{number}: 2/s\n")).collect::<String>()
        }),
        format!("domain: d\ndescriptors:\n{}", "- { key: a }\n".repeat(30_000)),
        "x".repeat((16 << 20) + 1),
    ] {
        (0..=2).for_each(|way| try_one(way, &text));
    }
}
