//! The binary `tidegate`: told to leave, killed, out of files, out of disk.

use std::fs;
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tidegate::Limit;
use tidegate_testkit::servers::{Directory, Load, Server, Tally, eventually};

use crate::bound::Damage;
use crate::fault::{Fault, Needs};
use crate::findings::Findings;
use crate::namespace::SmallDisk;
use crate::pressure::{judge_load, recover};
use crate::tidegate_process::{HttpCallers, Tidegate, get};
use crate::trial::Trial;

pub(super) const FAULTS: &[Fault] = &[
    Fault::new(
        "server-terminated",
        "SIGTERM under load, and a start from the snapshot",
        "nothing, and no connection is cut without a warning",
        terminated,
    )
    .needs(Needs::Tidegate),
    Fault::new("server-killed", "kill -9 under load, and a start from an older snapshot", "one burst", killed)
        .needs(Needs::Tidegate),
    Fault::new("server-paused", "SIGSTOP and SIGCONT under load", "nothing", paused).needs(Needs::Tidegate),
    Fault::new(
        "server-out-of-files",
        "more idle connections come than it may open files",
        "nothing; who is connected is served",
        out_of_files,
    )
    .needs(Needs::Tidegate),
    Fault::new(
        "server-disk-full",
        "no room for the snapshot at SIGTERM: it says so, and the old one stays whole",
        "one burst",
        disk_full,
    )
    .needs(Needs::TidegateInNamespace),
    Fault::new(
        "server-policy-broken",
        "the policy file is broken and mended and read again, many times",
        "nothing, and no error",
        policy_broken,
    )
    .needs(Needs::Tidegate),
    Fault::new(
        "server-store-killed",
        "kill -9 of the Redis behind it, which comes back empty",
        "one burst",
        store_killed,
    )
    .needs(Needs::Tidegate),
    Fault::new(
        "server-rebooted",
        "a start from the snapshot on a machine whose uptime is another",
        "nothing",
        rebooted,
    )
    .needs(Needs::TidegateInNamespace),
];

const CALLERS: usize = 6;

/// Callers over HTTP who want more than there is.
fn press(tidegate: &Tidegate, limit: Limit) -> Load {
    press_by(&Arc::new(HttpCallers::new(tidegate.address(), limit)))
}

fn press_by(callers: &Arc<HttpCallers>) -> Load {
    let callers = Arc::clone(callers);
    let load = Load::start(CALLERS, Duration::from_millis(4), move |turn| callers.ask(turn));
    load.wait_until("the limit to be used up", |tally| tally.admitted > 0 && tally.refused > 20);
    load
}

fn suffer(load: &Load) {
    let failed = |tally: &Tally| tally.asked() - tally.answered();
    let before = failed(&load.tally());
    load.wait_until("the fault to be felt", |tally| failed(tally) > before + 5);
}

/// A server that keeps its states in a file of a folder, and ends in good order once.
fn with_snapshot(folder: &Directory) -> Tidegate {
    let path = folder.path().join("states").display().to_string();
    Tidegate::start(&["--snapshot", &path, "--drain-grace-ms", "2000"])
}

fn terminated(trial: &mut Trial) -> Findings {
    let folder = Directory::create();
    let mut tidegate = with_snapshot(&folder);
    let limit = trial.limit();
    let callers = Arc::new(HttpCallers::new(tidegate.address(), limit));
    let load = press_by(&callers);
    let status = tidegate.terminate();
    // A client that reconnects may find the listener just closing.
    let cut_off = callers.cut_off();
    suffer(&load);
    tidegate.start_again();
    recover(&load);
    let mut findings = judge_load(load, &limit, Damage::NONE);
    findings.claim(cut_off == 0, || format!("{cut_off} lost their answers without a warning"));
    findings.claim(status.is_some_and(|status| status.success()), || format!("it ended as {status:?}"));
    findings
}

fn killed(trial: &mut Trial) -> Findings {
    let folder = Directory::create();
    let mut tidegate = with_snapshot(&folder);
    let limit = trial.limit();
    let load = press(&tidegate, limit);
    tidegate.terminate();
    tidegate.start_again();
    recover(&load);
    tidegate.process().kill();
    suffer(&load);
    tidegate.start_again();
    recover(&load);
    judge_load(load, &limit, Damage::losses(1))
}

fn paused(trial: &mut Trial) -> Findings {
    let mut tidegate = Tidegate::start(&[]);
    let limit = trial.limit();
    let load = press(&tidegate, limit);
    tidegate.process().pause();
    thread::sleep(trial.about(Duration::from_millis(700)));
    tidegate.process().resume();
    recover(&load);
    judge_load(load, &limit, Damage::NONE).without_errors()
}

fn out_of_files(trial: &mut Trial) -> Findings {
    const FILES: usize = 48;
    let limit = trial.limit();
    let few = format!("--nofile={FILES}:{FILES}");
    let tidegate = Tidegate::start_by(&["prlimit", &few], &["--idle-seconds", "600"]);
    let load = press(&tidegate, limit);
    let before = load.tally();
    let idle: Vec<TcpStream> = (0..2 * FILES).filter_map(|_| TcpStream::connect(tidegate.address()).ok()).collect();
    thread::sleep(trial.about(Duration::from_millis(500)));
    recover(&load);
    let during = load.tally();
    drop(idle);
    let after = eventually("room for one more", || get(tidegate.address(), "/healthz"));
    let mut findings = judge_load(load, &limit, Damage::NONE);
    findings.claim(during.in_doubt == before.in_doubt, || format!("who was connected was not served: {during}"));
    findings.claim(after.status == 200, || format!("{after:?}"));
    findings
}

fn disk_full(trial: &mut Trial) -> Findings {
    let disk = SmallDisk::of(1 << 20);
    let states = disk.path().join("states");
    let mut tidegate = Tidegate::start(&["--snapshot", &states.display().to_string(), "--drain-grace-ms", "100"]);
    let limit = trial.limit();
    let load = press(&tidegate, limit);
    let first = tidegate.terminate();
    let whole = fs::read(&states);
    tidegate.start_again();
    recover(&load);
    disk.fill().expect("a disk that can be filled");
    let second = tidegate.terminate();
    let said = tidegate.log();
    let kept = fs::read(&states);
    fs::remove_file(disk.path().join("filler")).expect("the filler");
    tidegate.start_again();
    recover(&load);
    let third = tidegate.terminate();
    let mut findings = judge_load(load, &limit, Damage::losses(1));
    findings.claim(first.is_some_and(|status| status.success()), || format!("with room it ended as {first:?}"));
    findings.claim(second.is_some_and(|status| !status.success()), || format!("without room it ended as {second:?}"));
    findings.claim(said.contains("the states are lost"), || format!("it did not say that states are lost: {said}"));
    findings.claim(matches!((&whole, &kept), (Ok(whole), Ok(kept)) if whole == kept), || {
        "the old snapshot is not what it was".into()
    });
    findings.claim(third.is_some_and(|status| status.success()), || format!("with room again it ended as {third:?}"));
    findings
}

fn policy_broken(trial: &mut Trial) -> Findings {
    const POLICY: &str = "[rules.all]\nkey = [\"user\"]\nlimit = \"1000/s\"\n";
    let folder = Directory::create();
    let path = folder.write("policy.toml", POLICY);
    let mut tidegate = Tidegate::start(&["--policy", &path.display().to_string()]);
    let limit = trial.limit();
    let load = press(&tidegate, limit);
    for round in 0..20 {
        folder.write("policy.toml", if round % 2 == 0 { "[rules.all\nkey = " } else { POLICY });
        tidegate.process().signal("HUP");
        eventually("a word of the broken policy", || match tidegate.log() {
            log if log.contains("the policy: refused") => Ok(()),
            log => Err(log),
        });
        thread::sleep(trial.about(Duration::from_millis(40)));
    }
    recover(&load);
    judge_load(load, &limit, Damage::NONE).without_errors()
}

fn store_killed(trial: &mut Trial) -> Findings {
    let redis = Server::start();
    let mode = trial.random.choose(&["error", "closed"]);
    let tidegate = Tidegate::start(&["--store", &redis.url(), "--store-deadline-ms", "2000", "--on-failure", mode]);
    let limit = trial.limit();
    let load = press(&tidegate, limit);
    redis.kill();
    suffer(&load);
    thread::sleep(trial.about(Duration::from_millis(300)));
    redis.restart();
    recover(&load);
    let tally = load.tally();
    let mut findings = judge_load(load, &limit, Damage::losses(1));
    findings.notes.push(format!("on failure: {mode}"));
    findings.claim(tally.degraded_admitted == 0, || format!("a request passed while the store was down: {tally}"));
    findings
}

fn rebooted(trial: &mut Trial) -> Findings {
    let folder = Directory::create();
    let mut tidegate = with_snapshot(&folder);
    let limit = trial.limit();
    let load = press(&tidegate, limit);
    tidegate.terminate();
    let seconds = trial.random.within(1_000..=1_000_000).to_string();
    tidegate.start_again_by(&[
        "unshare",
        "--time",
        "--monotonic",
        &seconds,
        "--boottime",
        &seconds,
        "--fork",
        "--kill-child",
    ]);
    recover(&load);
    let mut findings = judge_load(load, &limit, Damage::NONE);
    findings.notes.push(format!("the monotonic clock began {seconds} s later"));
    findings
}
