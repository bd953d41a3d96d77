//! `tidegate top` on a terminal of its own.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

use tidegate_testkit::servers::{GUARD, eventually};

use crate::server::client::post;
use crate::server::running::{Running, ask};

/// A terminal by `script`, which every Debian has: what is typed goes in, what
/// is drawn comes out.
struct Screen {
    child: std::process::Child,
    drawn: mpsc::Receiver<Vec<u8>>,
    seen: String,
}

impl Screen {
    fn of(arguments: &str) -> Screen {
        let program = env!("CARGO_BIN_EXE_tidegate");
        Screen::running(&format!("{program} top {arguments}"))
    }

    /// A command of the shell on the terminal.
    fn running(command: &str) -> Screen {
        let mut child = Command::new("script")
            .args(["-qec", &format!("stty cols 120 rows 30; {command}"), "/dev/null"])
            .env("TERM", "xterm-256color")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = child.stdout.take().unwrap();
        let (sender, drawn) = mpsc::channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut buffer) {
                if sender.send(buffer[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Screen { child, drawn, seen: String::new() }
    }

    fn press(&mut self, keys: &str) {
        self.child.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until these words are drawn. Words, as blanks are not drawn again.
    fn wait_for(&mut self, words: &str) {
        self.after(words, |rest| Some(rest.len()));
    }

    /// Waits for these words, and until the text after them has an end; that text.
    fn after(&mut self, words: &str, end: fn(&str) -> Option<usize>) -> String {
        loop {
            let found = self.seen.split_once(words).and_then(|(_, rest)| Some(rest[..end(rest)?].to_owned()));
            if let Some(found) = found {
                self.seen.clear();
                return found;
            }
            let drawn = self.drawn.recv_timeout(GUARD).unwrap_or_else(|_| panic!("no {words:?} in {:?}", self.seen));
            self.seen += &String::from_utf8_lossy(&drawn);
        }
    }
}

#[test]
fn a_refusal_is_seen_and_its_key_reset() {
    let server = Running::start(&["--admin-token", "secret", "--anonymous", "check"]);
    let request = r#"{"key": "mallory", "limit": "1/h"}"#;
    let check = || post(&server.url("/v1/check"), request).status;
    assert_eq!([check(), check()], [200, 429]);
    let mut screen = Screen::of(&format!("--server {} --admin-token secret", server.address()));
    screen.wait_for("mallory");
    screen.press("\x1b[B");
    screen.press("r");
    screen.wait_for("mallory");
    screen.press("y");
    // Only changed cells are drawn, so what is drawn of the answer may be in pieces; but it has its effect.
    eventually("the key to be reset", || if check() == 200 { Ok(()) } else { Err("it is refused") });
    screen.press("q");
    assert!(screen.child.wait().unwrap().success());
}

#[test]
fn without_a_terminal_a_server_or_the_token_it_says_so() {
    let nowhere = ask(&["top"]);
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(String::from_utf8(nowhere.stderr).unwrap().contains("/admin/v1/live"));
    let server = Running::start(&["--admin-token", "secret"]);
    let mut screen = Screen::of(&format!("--server {}", server.address()));
    screen.wait_for("TIDEGATE_TOKEN");
    assert_eq!(screen.child.wait().unwrap().code(), Some(2));
    let mut screen = Screen::of(&format!("--server {} --admin-token wrong", server.address()));
    screen.wait_for("does not know this token");
    assert_eq!(screen.child.wait().unwrap().code(), Some(2));
    let mut screen = Screen::of("--server 127.0.0.1:1");
    screen.wait_for("start one by `tidegate serve`");
    assert_eq!(screen.child.wait().unwrap().code(), Some(2));
}

/// Whether the terminal of a process is in the usual mode: lines, not single keys.
fn has_lines(pid: &str) -> bool {
    let stty = Command::new("stty").args(["-F", &format!("/proc/{pid}/fd/0"), "-a"]).output().unwrap();
    let modes = String::from_utf8(stty.stdout).unwrap();
    assert!(modes.contains("icanon"), "{modes}");
    modes.split_whitespace().any(|mode| mode == "icanon")
}

fn send(signal: &str, pid: &str) {
    assert!(Command::new("kill").args([&format!("-{signal}"), pid]).status().unwrap().success());
}

#[test]
fn the_terminal_is_restored_on_every_signal() {
    let server = Running::start(&[]);
    let program = env!("CARGO_BIN_EXE_tidegate");
    let screen = || {
        // The shell stays, to say in which mode the terminal is afterwards.
        let top = format!("{program} top --server {}", server.address());
        let mut screen = Screen::running(&format!(
            "sh -c 'echo \"pid $$ \"; exec {top}'; status=$?; stty -a | grep -qw -- -icanon || echo restored $status end"
        ));
        let pid = screen.after("pid ", |rest| rest.find(' '));
        eventually("the screen to be taken", || if has_lines(&pid) { Err("it is not") } else { Ok(()) });
        (screen, pid)
    };
    for (signal, status) in [("HUP", 129), ("INT", 130), ("QUIT", 131), ("ABRT", 134), ("TERM", 143)] {
        let (mut screen, pid) = screen();
        send(signal, &pid);
        let told = screen.after("restored ", |rest| rest.find(" end"));
        assert_eq!(told, status.to_string(), "{signal}");
        screen.child.wait().unwrap();
    }
    let (mut screen, pid) = screen();
    send("TSTP", &pid);
    eventually("the terminal to be restored", || if has_lines(&pid) { Ok(()) } else { Err("it is not") });
    send("CONT", &pid);
    eventually("the screen to be taken again", || if has_lines(&pid) { Err("it is not") } else { Ok(()) });
    screen.press("q");
    let told = screen.after("restored ", |rest| rest.find(" end"));
    assert_eq!(told, "0");
    screen.child.wait().unwrap();
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let program = env!("CARGO_BIN_EXE_tidegate");
    let validate = format!("echo '[rules.a]' > $f; echo 'limit = \"1/s\"' >> $f; {program} validate $f");
    let in_terminal = |before: &str, after: &str| {
        let command = format!("f=$(mktemp --suffix .toml); {before} {validate} {after}; rm $f; echo end of it");
        Screen::running(&command).after("toml", |rest| rest.find("end of it"))
    };
    assert_eq!(in_terminal("", ""), ": \u{1b}[32mvalid\u{1b}[0m\r\n");
    assert_eq!(in_terminal("export NO_COLOR=1;", ""), ": valid\r\n");
    assert_eq!(in_terminal("export TERM=dumb;", ""), ": valid\r\n");
    assert_eq!(in_terminal("", "| cat"), ": valid\r\n");
}
