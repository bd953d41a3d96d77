//! A server of the binary by an environment, and the programs that ask it.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tidegate_testkit::servers::eventually;

/// A server, killed when dropped.
pub(crate) struct Running {
    child: Child,
    addresses: HashMap<String, String>,
    folder: tempfile::TempDir,
}

impl Running {
    /// Starts `tidegate serve` with nothing but these flags and this environment, and a folder to log in.
    pub(crate) fn start(flags: &[&str], environment: &[(&str, &str)]) -> Running {
        let folder = tempfile::tempdir().unwrap();
        let mut child = command(flags, environment)
            .stdout(Stdio::piped())
            .stderr(fs::File::create(folder.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut addresses = HashMap::new();
        while !addresses.contains_key("policy") {
            let line = lines.next().map(Result::unwrap);
            let line = line.unwrap_or_else(|| panic!("{}", fs::read_to_string(folder.path().join("log")).unwrap()));
            if let [protocol, address] = line.split_whitespace().take(2).collect::<Vec<_>>()[..] {
                addresses.insert(protocol.to_owned(), address.to_owned());
            }
        }
        std::thread::spawn(move || lines.for_each(drop));
        Running { child, addresses, folder }
    }

    /// `127.0.0.1:port` of a protocol.
    pub(crate) fn address(&self, protocol: &str) -> &str {
        self.addresses.get(protocol).unwrap_or_else(|| panic!("{protocol} is not served: {:?}", self.addresses))
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// Asks by curl: the status, and the body.
    pub(crate) fn curl(&self, protocol: &str, path: &str, arguments: &[&str]) -> (String, String) {
        let url = format!("http://{}{path}", self.address(protocol));
        let asked = Command::new("curl").args(["-s", "-w", "\n%{http_code}", &url]).args(arguments).output().unwrap();
        let said = String::from_utf8(asked.stdout).unwrap();
        let (body, status) = said.rsplit_once('\n').unwrap();
        (status.to_owned(), body.to_owned())
    }

    /// Asks by a script of these tests.
    pub(crate) fn python(&self, script: &str, arguments: &[&str]) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let python = root.join("../../target/programs/protos/bin/python");
        assert!(python.exists(), "grpcio is missing: run `cargo xtask install`");
        let mut command = Command::new(python);
        command.arg(root.join("tests/dropin").join(script)).arg(self.address("grpc")).args(arguments);
        let seen = command.output().unwrap();
        let said = [seen.stdout, seen.stderr].concat();
        assert!(seen.status.success(), "{}\n{}", String::from_utf8_lossy(&said), self.log());
    }

    /// Waits until the log says so.
    pub(crate) fn logged(&self, words: &str) {
        eventually(words, || if self.log().contains(words) { Ok(()) } else { Err(self.log()) });
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `tidegate serve`, whose store and clients may be as slow as the machine is.
pub(crate) fn command(flags: &[&str], environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("serve").args(flags).env_clear().envs(environment.iter().copied());
    command.env("TIDEGATE_STORE_DEADLINE_MS", "60000").env("TIDEGATE_BODY_SECONDS", "300");
    command
}
