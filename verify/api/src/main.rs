//! Lists what a library makes public, an item a line, from the JSON that rustdoc writes: `tidegate-api FILE`.

use std::process::ExitCode;

use public_api::Builder;

/// The format of rustdoc's JSON that the pinned `public-api` reads.
const FORMAT: &str = "57";

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("tidegate-api FILE, which `cargo xtask ci --only API` has rustdoc write");
        return ExitCode::FAILURE;
    };
    match list(&path) {
        Ok(listed) => {
            print!("{listed}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn list(path: &str) -> Result<String, String> {
    let json = std::fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))?;
    let format = json.rsplit_once("\"format_version\":").map_or("", |(_, rest)| rest);
    let format = format.split(|letter: char| !letter.is_ascii_digit()).next().unwrap_or_default();
    if format != FORMAT {
        return Err(format!(
            "{path} has format {format} of rustdoc's JSON, and only {FORMAT} can be read. Use a toolchain whose rustdoc writes \
             {FORMAT} (1.95 to 1.97 do), or pin `public-api` in verify/api/Cargo.toml to a version whose `rustdoc-types` is \
             0.{format}, set FORMAT in verify/api/src/main.rs, and run `cargo xtask record api`"
        ));
    }
    let builder = Builder::from_rustdoc_json(path);
    // Not what every type has, but what was written for it.
    let builder = builder.omit_blanket_impls(true).omit_auto_trait_impls(true);
    let api = builder.build().map_err(|error| format!("cannot list {path}: {error}"))?;
    Ok(api.to_string())
}
