//! Which server the tests run on.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The variable that names another server than the `redis-server` on the path.
const VARIABLE: &str = "TIDEGATE_REDIS_SERVER";

/// A server program, of which servers are started.
///
/// The same program is a server, a node of a cluster, or a sentinel.
#[derive(Debug, Clone)]
pub struct Program {
    path: PathBuf,
    version: String,
}

impl Program {
    /// The one that `TIDEGATE_REDIS_SERVER` names, or `redis-server` on the path.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn from_environment() -> Program {
        Program::at(env::var_os(VARIABLE).unwrap_or_else(|| "redis-server".into()))
    }

    /// The one at a path.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn at(path: impl Into<PathBuf>) -> Program {
        let path = path.into();
        let missing = |why: &str| -> ! {
            panic!("no server at `{}` ({why}): run `cargo xtask install`, or set {VARIABLE}", path.display())
        };
        let printed = match Command::new(&path).arg("--version").output() {
            Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
            Err(error) => missing(&error.to_string()),
        };
        match version_of(&printed) {
            Some(version) => Program { path, version },
            None => missing(&format!("`--version` prints {printed:?}")),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it is, for example `redis 7.0.15` or `valkey 9.1.2`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Whether it was built with TLS.
    pub fn speaks_tls(&self) -> bool {
        // It gives up for want of a certificate, if it knows that it needs one.
        let output = Command::new(&self.path).args(["--port", "0", "--tls-port", "1"]).output();
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("No tls-cert-file"))
    }
}

/// From a line like `Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0`.
fn version_of(printed: &str) -> Option<String> {
    let mut words = printed.split_whitespace();
    let name = words.next()?.to_lowercase();
    let number = words.find_map(|word| word.strip_prefix("v="))?;
    Some(format!("{name} {number}"))
}

#[cfg(test)]
mod tests {
    use super::version_of;

    #[test]
    fn a_version_is_a_name_and_a_number() {
        let redis = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=e08dbad3e06f3fb";
        assert_eq!(version_of(redis).as_deref(), Some("redis 7.0.15"));
        assert_eq!(version_of("Valkey server v=9.1.2 sha=0:0\n").as_deref(), Some("valkey 9.1.2"));
        assert_eq!(version_of("bash: version 5\n"), None);
    }
}
