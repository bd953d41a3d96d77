//! Builds the dashboard (`web/`) and makes it part of the binary.
//!
//! It is built in the folder that Cargo gives, from a copy of its sources, so
//! that builds side by side do not disturb each other. A package has no `web/`
//! beside it, but the built page in `dashboard/`. Where there is neither, or no
//! npm, or npm fails, a plain page that says so takes its place: the server is
//! whole without it.

use std::collections::hash_map::DefaultHasher;
use std::fmt::Write as _;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the dashboard is made of, below `web/`.
const SOURCES: [&str; 7] =
    ["index.html", "package.json", "package-lock.json", "tsconfig.json", "vite.config.ts", "public", "src"];

/// `skip` builds the server without its dashboard, sooner.
const SWITCH: &str = "TIDEGATE_WEB";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed={SWITCH}");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("Cargo sets it"));
    // Asked for when it runs: two checkouts may share what was compiled.
    let crate_folder = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("Cargo sets it"));
    let (web, packaged) = (crate_folder.join("../../web"), crate_folder.join("dashboard"));
    let dist = if std::env::var(SWITCH).is_ok_and(|value| value == "skip") {
        Err(format!("it was left out by {SWITCH}=skip"))
    } else if !web.join("package.json").exists() {
        let is_there = packaged.join("index.html").exists();
        is_there.then_some(packaged).ok_or("its sources (web/) are not there: build from the repository".into())
    } else {
        for source in SOURCES {
            println!("cargo:rerun-if-changed={}", web.join(source).display());
        }
        build(&web, &out.join("web")).inspect_err(|why| {
            for line in format!("the server is built without its dashboard: {why}").lines() {
                println!("cargo:warning={line}");
            }
        })
    };
    let dist = dist.unwrap_or_else(|why| plain_page(&out, &why).expect("the build's own folder can be written"));
    let list = list(&dist).expect("what was built can be read");
    fs::write(out.join("dashboard.rs"), list).expect("the build's own folder can be written");
}

/// Builds in `place`; says where the files are, or what to do so that they will be.
fn build(web: &Path, place: &Path) -> Result<PathBuf, String> {
    let failed = |error: io::Error| format!("{}: {error}", place.display());
    fs::create_dir_all(place).map_err(failed)?;
    for source in SOURCES {
        let (from, to) = (web.join(source), place.join(source));
        if to.is_dir() {
            fs::remove_dir_all(&to).map_err(failed)?;
        }
        copy(&from, &to).map_err(failed)?;
    }
    let lock = fs::read(place.join("package-lock.json")).map_err(failed)?;
    let stamp = place.join("installed");
    if fs::read(&stamp).ok().as_ref() != Some(&lock) {
        // Without a network this is to end soon, not after minutes of trying.
        npm(place, &["ci", "--no-audit", "--no-fund", "--prefer-offline", "--fetch-retries=1"])?;
        fs::write(&stamp, &lock).map_err(failed)?;
    }
    npm(place, &["run", "build"])?;
    Ok(place.join("dist"))
}

fn npm(place: &Path, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("npm").args(arguments).current_dir(place).output();
    let output =
        output.map_err(|error| format!("npm cannot be run ({error}): install Node.js 20.19 or later with npm"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let last: Vec<&str> = said.lines().rev().take(8).collect();
    let last: Vec<&str> = last.into_iter().rev().collect();
    Err(format!(
        "npm {} failed (it takes Node.js 20.19 or later, and a network):\n{}",
        arguments.join(" "),
        last.join("\n")
    ))
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if !from.is_dir() {
        return fs::copy(from, to).map(drop);
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        copy(&from.join(&name), &to.join(&name))?;
    }
    Ok(())
}

/// A page that says what is missing.
fn plain_page(out: &Path, why: &str) -> io::Result<PathBuf> {
    let folder = out.join("plain");
    fs::create_dir_all(&folder)?;
    let why = why.replace('&', "&amp;").replace('<', "&lt;");
    let page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>tidegate</title>\n\
         <h1>tidegate</h1>\n<p>The server runs. It was built without its dashboard:</p>\n<pre>{why}</pre>\n\
         <p>Install Node.js 20.19 or later with npm, and build the server again. Until then:\n\
         <a href=\"/metrics\">metrics</a>, <a href=\"/openapi.json\">the API</a>, or <code>tidegate top</code>\n\
         in a terminal.</p>\n"
    );
    fs::write(folder.join("index.html"), page)?;
    Ok(folder)
}

/// The files as Rust, with all that a browser is told of them.
fn list(dist: &Path) -> io::Result<String> {
    let mut files = Vec::new();
    find(dist, &mut files)?;
    files.sort();
    let mut list = String::from("static FILES: &[File] = &[\n");
    for file in files.iter().filter(|file| file.extension().is_none_or(|end| end != "gz")) {
        let name = file.strip_prefix(dist).unwrap_or(file).to_string_lossy().replace('\\', "/");
        let path = if name == "index.html" { "/".to_owned() } else { format!("/{name}") };
        let gzip = file.with_file_name(format!("{}.gz", file.file_name().unwrap_or_default().to_string_lossy()));
        let gzip = if gzip.exists() { format!("Some(include_bytes!({gzip:?}))") } else { "None".to_owned() };
        let mut hasher = DefaultHasher::new();
        fs::read(file)?.hash(&mut hasher);
        // Weak, as it is the same for the compressed copy.
        let etag = format!("W/\"{:016x}\"", hasher.finish());
        let (kind, hashed) = (kind(file), name.starts_with("assets/"));
        let _ = writeln!(
            list,
            "    File {{ path: {path:?}, kind: {kind:?}, etag: {etag:?}, hashed: {hashed}, \
             bytes: include_bytes!({file:?}), gzip: {gzip} }},"
        );
    }
    list.push_str("];\n");
    Ok(list)
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { find(&path, files)? } else { files.push(path) }
    }
    Ok(())
}

fn kind(file: &Path) -> &'static str {
    match file.extension().and_then(|end| end.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        _ => "application/octet-stream",
    }
}
