//! The shell blocks of a chapter, run in its own folder against its own servers.
//!
//! | block | |
//! |---|---|
//! | any language and `file=NAME` | is written to that file |
//! | `sh` | is run, and must succeed; `sh norun` is only shown |
//! | `sh` that begins with `tidegate serve`, `redis-server` or `node` | is a server: it runs until the chapter ends |
//! | `text output` | is what the block before it prints; `…` stands for anything within a line |
//!
//! Ports that chapters name are free ones when they run, so that chapters disturb neither each other nor the machine.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::read;
use crate::programs;
use crate::run::{Failure, root, say};

/// The ports that chapters name: HTTP and RESP of a server, a second server, Redis.
const PORTS: [&str; 4] = ["7400", "7401", "7500", "6379"];

/// How long a server may take until it answers, on a machine that is busy.
const START: Duration = Duration::from_secs(60);

/// What servers of chapters begin with.
const SERVERS: [&str; 3] = ["tidegate serve", "redis-server", "node "];

/// The seconds that a block may take, on a machine that is busy.
const GUARD: &str = "300";

/// Stands for anything within a line.
const ANYTHING: char = '…';

struct Block<'t> {
    marks: Vec<&'t str>,
    text: String,
    line: usize,
}

/// The folder, the ports and the servers of a chapter.
struct Chapter {
    folder: PathBuf,
    ports: [String; PORTS.len()],
    path: String,
    servers: Vec<Child>,
}

pub(super) fn run(origin: &Path, server: &Path) -> Result<(), Failure> {
    let text = read(origin)?;
    let blocks = blocks(&text);
    let runs = |block: &Block| block.marks[0] == "sh" && !block.marks.contains(&"norun");
    if !blocks.iter().any(runs) {
        return Ok(());
    }
    if blocks.iter().any(|block| runs(block) && block.text.starts_with("npm "))
        && let Err(why) = programs::npm()
    {
        say(&format!("\nskips the shell blocks of {}: {why}", origin.display()));
        return Ok(());
    }
    say(&format!("\nruns the shell blocks of {}", origin.display()));
    let mut chapter = Chapter::new(origin, server)?;
    let mut printed = None;
    for block in &blocks {
        let at = |why: String| format!("{}:{}: {why}", origin.display(), block.line);
        let file = block.marks.iter().find_map(|mark| mark.strip_prefix("file="));
        if let Some(name) = file {
            let text = chapter.with_ports(&block.text);
            fs::write(chapter.folder.join(name), text).map_err(|error| at(format!("cannot write {name}: {error}")))?;
        } else if runs(block) {
            printed = chapter.run(block).map_err(at)?;
        } else if block.marks == ["text", "output"] {
            let printed = printed.take().ok_or_else(|| at("no block before it prints anything".into()))?;
            if !matches(&block.text, &printed) {
                return Err(at(format!("shown:\n{}\nprinted:\n{printed}", block.text)));
            }
        }
    }
    Ok(())
}

/// The blocks of a page, with the words after the fence.
fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut found: Vec<Block> = Vec::new();
    let mut is_open = false;
    for (index, line) in text.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), is_open) {
            (Some(_), true) => is_open = false,
            (Some(info), false) => {
                let marks: Vec<&str> = info.split([' ', ',']).collect();
                found.push(Block { marks, text: String::new(), line: index + 1 });
                is_open = true;
            }
            (None, true) => {
                if let Some(block) = found.last_mut() {
                    block.text += line;
                    block.text.push('\n');
                }
            }
            (None, false) => {}
        }
    }
    found
}

impl Chapter {
    fn new(origin: &Path, server: &Path) -> Result<Chapter, Failure> {
        let name = origin.with_extension("").display().to_string().replace('/', "-");
        let folder = root().join("target/docs").join(name);
        let cannot = |error| format!("cannot make {}: {error}", folder.display());
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(cannot)?;
        }
        fs::create_dir_all(&folder).map_err(cannot)?;
        // Held together until all are chosen, so that they differ.
        let listeners: Vec<TcpListener> = PORTS.iter().flat_map(|_| TcpListener::bind("127.0.0.1:0")).collect();
        let free: Vec<u16> = listeners.iter().flat_map(TcpListener::local_addr).map(|at| at.port()).collect();
        let ports = free.try_into().map(|free: [u16; PORTS.len()]| free.map(|port| port.to_string()));
        let ports = ports.map_err(|_| "there are no free ports".to_owned())?;
        let programs = server.parent().unwrap_or(Path::new(".")).display().to_string();
        let path = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
        Ok(Chapter { folder, ports, path, servers: Vec::new() })
    }

    fn with_ports(&self, text: &str) -> String {
        PORTS.iter().zip(&self.ports).fold(text.to_owned(), |text, (named, port)| text.replace(named, port))
    }

    /// Runs a block; what it printed, unless it is a server.
    fn run(&mut self, block: &Block) -> Result<Option<String>, Failure> {
        // What a reader of the README types in the checkout.
        let script = self.with_ports(&block.text).replace("cargo run --release -- ", "tidegate ");
        let mut shell = Command::new("bash");
        shell.current_dir(&self.folder).env("PATH", &self.path).stdin(Stdio::null());
        let [http, ..] = &self.ports;
        shell.env("TIDEGATE_HTTP", format!("127.0.0.1:{http}")).env("TIDEGATE_SERVER", format!("127.0.0.1:{http}"));
        if SERVERS.iter().any(|server| script.starts_with(server)) {
            return self.start(shell, &script).map(|()| None);
        }
        let guarded = format!("exec 2>&1\n{script}");
        let output = shell.args(["-c", "exec timeout \"$0\" bash -e -o pipefail -c \"$1\"", GUARD, &guarded]).output();
        let output = output.map_err(|error| format!("cannot start bash: {error}"))?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let printed = PORTS.iter().zip(&self.ports).fold(printed, |text, (named, port)| text.replace(port, named));
        if !output.status.success() {
            return Err(format!("ended with {}:\n{script}\n{printed}", output.status));
        }
        Ok(Some(printed))
    }

    /// Starts a server and waits until it answers.
    fn start(&mut self, mut shell: Command, script: &str) -> Result<(), Failure> {
        let log = self.folder.join(format!("server-{}.log", self.servers.len()));
        let file = File::create(&log).map_err(|error| format!("cannot write {}: {error}", log.display()))?;
        let errors = file.try_clone().map_err(|error| format!("cannot write {}: {error}", log.display()))?;
        // So that it is the server that is ended, and not the shell before it.
        let started = shell.args(["-c", &format!("exec {script}")]).stdout(file).stderr(errors).spawn();
        let mut server = started.map_err(|error| format!("cannot start `{script}`: {error}"))?;
        let named = |port: &&String| script.contains(port.as_str());
        let port: u16 = self.ports.iter().find(named).unwrap_or(&self.ports[0]).parse().unwrap_or_default();
        let began = Instant::now();
        loop {
            let has_ended = server.try_wait().map_err(|error| format!("cannot wait for `{script}`: {error}"))?;
            if has_ended.is_some() || began.elapsed() > START {
                let said = fs::read_to_string(&log).unwrap_or_default();
                self.servers.push(server);
                return Err(format!("`{}` does not answer:\n{said}", script.trim()));
            }
            if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                self.servers.push(server);
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Chapter {
    fn drop(&mut self) {
        for server in &mut self.servers {
            // One that has ended needs no end.
            _ = server.kill();
            _ = server.wait();
        }
    }
}

/// Whether what is shown is what was printed, line by line; blanks at the end of lines do not count.
fn matches(shown: &str, printed: &str) -> bool {
    let lines = |text: &str| text.trim_end().lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
    let (shown, printed) = (lines(shown), lines(printed));
    shown.len() == printed.len() && shown.iter().zip(&printed).all(|(shown, printed)| line_matches(shown, printed))
}

fn line_matches(shown: &str, printed: &str) -> bool {
    let mut parts = shown.split(ANYTHING);
    let Some(mut rest) = parts.next().and_then(|first| printed.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(place) = rest.find(part) else { return false };
        rest = &rest[place + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::{blocks, matches};

    #[test]
    fn blocks_have_the_words_after_their_fences() {
        let page = "a\n```sh norun\nx\ny\n```\nb\n```text output\nz\n```\n";
        let found: Vec<(String, String)> = blocks(page).iter().map(|b| (b.marks.join("+"), b.text.clone())).collect();
        assert_eq!(found, [("sh+norun".into(), "x\ny\n".into()), ("text+output".into(), "z\n".into())]);
    }

    #[test]
    fn an_ellipsis_stands_for_anything_within_a_line() {
        assert!(matches("a … b\nc\n", "a 17 b\nc  \n"));
        assert!(matches("…", "anything"));
        assert!(!matches("a … b", "a 17 c"));
        assert!(!matches("a", "a\nb"));
        assert!(!matches("ab…b", "ab"));
    }
}
