//! `tidegate top` on a terminal of its own.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

use tidegate_testkit::servers::{GUARD, eventually};

use crate::client::post;
use crate::running::{Running, ask};

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
        let mut child = Command::new("script")
            .args(["-qec", &format!("stty cols 120 rows 30; {program} top {arguments}"), "/dev/null"])
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
        while !self.seen.contains(words) {
            let drawn = self.drawn.recv_timeout(GUARD).unwrap_or_else(|_| panic!("no {words:?} in {:?}", self.seen));
            self.seen += &String::from_utf8_lossy(&drawn);
        }
        self.seen.clear();
    }
}

#[test]
fn a_refusal_is_seen_and_its_key_reset() {
    let server = Running::start(&["--admin-token", "secret", "--anonymous", "check"]);
    let question = r#"{"key": "mallory", "limit": "1/h"}"#;
    let check = || post(&server.url("/v1/check"), question).status;
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
