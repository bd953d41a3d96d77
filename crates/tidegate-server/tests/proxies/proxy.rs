//! The four proxies, started with the files that are shipped. Only addresses are put in their place, and timeouts that no
//! machine under load exceeds.

use std::fs;
use std::path::{Path, PathBuf};

use tidegate_testkit::servers::{Directory, GUARD, Process, eventually};

use crate::proxies::client::Client;
use crate::proxies::running::{Tidegate, Upstream, unused_port, wait_for};

/// A client that no test is about.
const ANYONE: &str = "127.0.9.99";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Nginx,
    HaProxy,
    Traefik,
    Caddy,
}

/// What becomes of requests while tidegate is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fail {
    /// As the files are shipped.
    Closed,
    /// With the lines that the guide says.
    Open,
}

/// A running proxy; killed when dropped.
pub(crate) struct Proxy {
    _process: Process,
    _directory: Directory,
    pub(crate) port: u16,
}

impl Kind {
    pub(crate) fn start(self, tidegate: &Tidegate, upstream: &Upstream, fail: Fail) -> Proxy {
        let (directory, port) = (Directory::create(), unused_port());
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(self.folder());
        for file in fs::read_dir(shipped).unwrap().map(Result::unwrap) {
            let text = fs::read_to_string(file.path()).unwrap();
            let text = text
                .replace(":8000", &format!(":{port}"))
                .replace("127.0.0.1:7400", &format!("127.0.0.1:{}", tidegate.port))
                .replace("127.0.0.1:8080", &format!("127.0.0.1:{}", upstream.port))
                .replace("abns@tidegate", &format!("abns@tidegate-{port}"))
                .replace(" 1s", &format!(" {}s", GUARD.as_secs()));
            let text = match fail {
                Fail::Closed => text,
                Fail::Open => text.replace("#OPEN ", "").replace("str(closed)", "str(open)"),
            };
            directory.write(file.file_name().to_str().unwrap(), &text);
        }
        let (program, arguments) = self.command();
        let (place, log) = (directory.path().to_str().unwrap(), directory.path().join("log"));
        // It finds its files in its folder, and leaves others nowhere else.
        let script = "cd \"$0\" && HOME=$0 && export HOME && exec \"$@\"";
        let words = [&["-c", script, place, program.to_str().unwrap()], arguments].concat();
        let words: Vec<String> = words.iter().map(|word| word.replace("FOLDER", place)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut process = Process::start(Path::new("sh"), &words, &directory, &log);
        wait_for(port, &mut process, &log);
        // Traefik listens before it has read all of its files.
        eventually("the proxy to know its application", || match Client::open(port, ANYONE).get("/", "").status {
            404 => Err(fs::read_to_string(&log).unwrap()),
            _ => Ok(()),
        });
        upstream.forget();
        Proxy { _process: process, _directory: directory, port }
    }

    fn folder(self) -> &'static str {
        match self {
            Kind::Nginx => "nginx",
            Kind::HaProxy => "haproxy",
            Kind::Traefik => "traefik",
            Kind::Caddy => "caddy",
        }
    }

    fn command(self) -> (PathBuf, &'static [&'static str]) {
        let system = |name: &str| Path::new("/usr/sbin").join(name);
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/programs/proxies/bin");
        let (path, arguments): (PathBuf, &[&str]) = match self {
            // One process, so that nothing is left of it when it is killed.
            Kind::Nginx => {
                (system("nginx"), &["-p", "FOLDER", "-c", "nginx.conf", "-g", "daemon off; master_process off;"])
            }
            Kind::HaProxy => (system("haproxy"), &["-db", "-f", "haproxy.cfg"]),
            Kind::Traefik => (programs.join("traefik"), &["--configFile=traefik.yaml"]),
            Kind::Caddy => (programs.join("caddy"), &["run", "--config", "Caddyfile"]),
        };
        assert!(path.exists(), "{} is missing: run `cargo xtask install`", self.folder());
        (path, arguments)
    }
}
