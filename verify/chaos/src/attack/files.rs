//! Attacks by files: what stands where the policy file was.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::{Attack, BOUNDS, POLICY, SERVER, Target};
use crate::findings::Findings;

pub(super) const ATTACKS: &[Attack] = &[Attack {
    name: "fifo-as-policy",
    what: "the policy file becomes a FIFO, a signal to read it again, then a file once more",
    is_quick: true,
    server: SERVER,
    bounds: BOUNDS,
    make: fifo,
}];

fn fifo(target: &mut Target, claims: &mut Findings) {
    let path = target.policy();
    fs::remove_file(&path).expect("the policy file");
    let made = Command::new("mkfifo").arg(&path).status();
    claims.claim(made.is_ok_and(|status| status.success()), || "cannot make a FIFO".into());
    target.signal("HUP");
    thread::sleep(Duration::from_secs(1));
    fs::remove_file(&path).expect("the FIFO");
    fs::write(&path, format!("{POLICY}# read again\n")).expect("the policy file");
    target.signal("HUP");
    let is_read = (0..300).any(|_| {
        thread::sleep(Duration::from_millis(100));
        target.get("/admin/v1/policy").is_ok_and(|answer| answer.body.contains("read again"))
    });
    claims.claim(is_read, || "the policy is not read again".into());
}
