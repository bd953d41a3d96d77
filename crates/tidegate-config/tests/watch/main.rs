//! Files that change while they are watched.
//!
//! What is waited for is what the watcher tells, and never a time, except for silence.

mod watched;

use std::fs;
use std::io::Write;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use tidegate::{ConfigError, Limiter, ManualClock, MemoryStore, Setting};
use tidegate_config::watch::Watch;
use tidegate_config::{Problem, load, watch, watch_envoy};
use tidegate_testkit::servers::GUARD;

use watched::{DEBOUNCE, Folder, Told, Watched, limit_of, policy};

#[test]
fn a_policy_that_cannot_be_loaded_is_not_watched() {
    let folder = Folder::new();
    let start = || watch(folder.path("policy.toml"), |_| Ok(())).start();
    assert!(matches!(start().expect_err("no file").diagnostics()[0].problem(), Problem::Unreadable { .. }));
    folder.write("policy.toml", "[rules.all]\nlimt = '1/h'\n");
    assert!(start().expect_err("an error").to_string().contains("did you mean \"limit\"?"));
    folder.write("policy.toml", &policy(1));
    let refused = || ConfigError::EmptyPolicy;
    let report = watch(folder.path("policy.toml"), move |_| Err(refused())).start().expect_err("not accepted");
    assert!(matches!(report.diagnostics()[0].problem(), Problem::Policy(ConfigError::EmptyPolicy)));
    assert_eq!(start().expect("all is well").counts().applied, 1);
}

/// All the ways in which a file can change.
fn changes(watched: &Watched, folder: &Folder) {
    folder.write("policy.toml", &policy(2));
    watched.until(2);
    folder.replace("policy.toml", &policy(3));
    watched.until(3);
    folder.replace("policy.toml", &policy(4));
    watched.until(4);
    folder.remove("policy.toml");
    let report = watched.until_refused();
    assert!(report.contains("cannot read"), "{report}");
    folder.write("policy.toml", &policy(5));
    watched.until(5);
    fs::OpenOptions::new()
        .append(true)
        .open(folder.path("policy.toml"))
        .and_then(|mut file| file.write_all(b"[rules.more]\nlimit = '1/h'\n"))
        .expect("a file can be written to");
    watched.until(1);
}

#[test]
fn a_file_is_followed_through_every_kind_of_change() {
    let folder = Folder::new();
    folder.write("policy.toml", &policy(1));
    changes(&Watched::start(folder.path("policy.toml")), &folder);
}

#[test]
fn a_file_is_followed_by_polling_too() {
    let folder = Folder::new();
    folder.write("policy.toml", &policy(1));
    let watched = Watched::start_with(folder.path("policy.toml"), |builder| builder.poll_every(DEBOUNCE));
    changes(&watched, &folder);
    assert_eq!(watched.watch.counts().unchanged, 0, "looking is not told of");
}

#[test]
fn a_name_without_a_folder_is_followed() {
    // No other test cares about the current folder.
    let folder = Folder::new();
    folder.write("policy.toml", &policy(1));
    std::env::set_current_dir(&folder.0).expect("a folder to be in");
    let watched = Watched::start("policy.toml");
    folder.replace("policy.toml", &policy(2));
    watched.until(2);
}

#[test]
fn includes_are_followed_and_so_is_their_list() {
    let folder = Folder::new();
    let include = |name: &str| format!("include = ['{name}']\n");
    folder.write("policy.toml", &include("parts/a.toml"));
    folder.write("parts/a.toml", &policy(1));
    folder.write("others/b.toml", &policy(2));
    let watched = Watched::start(folder.path("policy.toml"));
    folder.replace("parts/a.toml", &policy(3));
    watched.until(3);
    folder.replace("policy.toml", &include("others/b.toml"));
    watched.until(2);
    folder.replace("others/b.toml", &include("c.toml"));
    watched.until_refused();
    folder.write("others/c.toml", &policy(4));
    watched.until(4);
    folder.replace("policy.toml", &include("later/d.toml"));
    watched.until_refused();
    folder.write("later/d.toml", &policy(5));
    watched.until(5);
}

/// Mounts a policy as Kubernetes mounts a ConfigMap.
#[cfg(unix)]
fn mount(folder: &Folder, version: u64, file: &str, text: &str) {
    let directory = format!("..2026_{version}");
    folder.write(&format!("{directory}/{file}"), text);
    std::os::unix::fs::symlink(&directory, folder.path("..data_tmp")).expect("a link can be made");
    folder.rename("..data_tmp", "..data");
    drop(std::os::unix::fs::symlink(format!("..data/{file}"), folder.path(file)));
    drop(fs::remove_dir_all(folder.path(&format!("..2026_{}", version - 1))));
}

#[test]
#[cfg(unix)]
fn a_config_map_is_followed() {
    let folder = Folder::new();
    mount(&folder, 1, "policy.toml", &policy(1));
    let watched = Watched::start(folder.path("policy.toml"));
    for version in 2..=5 {
        mount(&folder, version, "policy.toml", &policy(version));
        let told = watched.until(version);
        assert!(!told.iter().any(|told| matches!(told, Told::Refused(_))), "{told:?}");
    }
}

#[test]
#[cfg(unix)]
fn links_are_followed_wherever_they_stand() {
    let folder = Folder::new();
    folder.write("releases/1/conf/policy.toml", &policy(1));
    folder.write("releases/2/conf/policy.toml", &policy(2));
    std::os::unix::fs::symlink("releases/1", folder.path("current")).expect("a link can be made");
    std::os::unix::fs::symlink("../current/conf", folder.path("releases/conf")).expect("a link can be made");
    let watched = Watched::start(folder.path("releases/../releases/conf/policy.toml"));
    std::os::unix::fs::symlink(folder.path("releases/2"), folder.path("next")).expect("a link can be made");
    folder.rename("next", "current");
    watched.until(2);
    folder.write("releases/2/conf/policy.toml", &policy(3));
    watched.until(3);
}

#[test]
#[cfg(target_os = "linux")]
fn a_folder_can_be_exchanged_for_another() {
    let folder = Folder::new();
    folder.write("app/conf/policy.toml", &policy(1));
    let watched = Watched::start(folder.path("app/conf/policy.toml"));
    for (limit, exchanged) in [(2, "app/conf"), (3, "app"), (4, "app/conf"), (5, "app")] {
        let file = format!("new{}/policy.toml", "app/conf".strip_prefix(exchanged).expect("a part of it"));
        folder.write(&file, &policy(limit));
        folder.rename(exchanged, &format!("old{limit}"));
        folder.rename("new", exchanged);
        watched.until(limit);
    }
    fs::remove_dir_all(folder.path("app")).expect("a folder can be removed");
    watched.until_refused();
    folder.write("app/conf/policy.toml", &policy(6));
    watched.until(6);
}

#[test]
fn an_error_changes_nothing_and_is_told_and_counted() {
    let folder = Folder::new();
    folder.write("policy.toml", &policy(7));
    let watched = Watched::start(folder.path("policy.toml"));
    assert_eq!(watched.watch.last_refusal(), None);
    let before = SystemTime::now();
    folder.replace("policy.toml", "[rules.all]\nlimt = '8/h'\n");
    let report = watched.until_refused();
    assert!(report.contains("did you mean \"limit\"?") && report.contains("policy.toml:2:1"), "{report}");
    let refusal = watched.watch.last_refusal().expect("it is remembered");
    assert!(refusal.report == report && refusal.at >= before);
    // What was in force all the time is nothing new.
    folder.replace("policy.toml", &policy(7));
    while watched.next() != Told::Unchanged {}
    assert_eq!(*watched.applied.lock().expect("no panic"), [7]);
    let counts = watched.watch.counts();
    assert!((counts.applied, counts.refused >= 1, counts.unchanged >= 1) == (1, true, true), "{counts:?}");
    folder.replace("policy.toml", &policy(9));
    watched.until(9);
    assert_eq!(watched.watch.counts().applied, 2);
}

#[test]
fn warnings_are_told_after_what_they_are_about_is_applied() {
    let folder = Folder::new();
    let doubtful = |limit| format!("{}key = []\n", policy(limit));
    folder.write("policy.toml", &doubtful(7));
    let watched = Watched::start(folder.path("policy.toml"));
    let is_warning =
        |told| matches!(told, Told::Warning(text) if text.starts_with("warning: ") && text.contains(":3:7"));
    assert!(is_warning(watched.next()));
    watched.watch.reload();
    assert_eq!(watched.next(), Told::Unchanged, "and no warning again");
    folder.replace("policy.toml", &doubtful(8));
    assert_eq!(watched.until(8), [Told::Applied]);
    assert!(is_warning(watched.next()));
    folder.replace("policy.toml", &policy(9));
    watched.until(9);
    assert_eq!(watched.watch.counts().applied, 3);
}

#[test]
fn the_same_again_applies_nothing() {
    let folder = Folder::new();
    folder.write("policy.toml", &policy(7));
    let watched = Watched::start(folder.path("policy.toml"));
    folder.replace("policy.toml", &policy(7));
    assert_eq!(watched.next(), Told::Unchanged);
    watched.watch.reload();
    assert_eq!(watched.next(), Told::Unchanged);
    assert_eq!(*watched.applied.lock().expect("no panic"), [7]);
}

#[test]
fn reading_and_neighbours_are_no_change() {
    let folder = Folder::new();
    folder.write("policy.toml", &policy(1));
    // A new watch each time: on a busy machine, word of one change may come in two pieces.
    for limit in 2..=6 {
        let watched = Watched::start(folder.path("policy.toml"));
        for number in 0..100 {
            folder.write("neighbour.toml", &number.to_string());
            fs::read(folder.path("policy.toml")).expect("it can be read");
        }
        thread::sleep(5 * DEBOUNCE);
        assert_eq!(watched.told(), []);
        folder.replace("policy.toml", &policy(limit));
        assert_eq!(watched.next(), Told::Applied);
        assert_eq!(watched.last(), limit);
    }
}

#[test]
fn after_a_storm_the_last_content_is_in_force() {
    let folder = Folder::new();
    folder.write("policy.toml", &policy(1));
    let debounce = Duration::from_millis(5);
    let watched = Watched::start_with(folder.path("policy.toml"), |builder| builder.debounce(debounce));
    let began = Instant::now();
    for limit in 2..=1_001 {
        folder.replace("policy.toml", &policy(limit));
    }
    watched.until(1_001);
    // In place, with another length each time.
    for limit in (2..=1_002).rev() {
        folder.write("policy.toml", &policy(limit * limit));
    }
    watched.until(4);
    // Each only after the debounce, so not each of them unless the storm was slow.
    let changes = watched.applied.lock().expect("no panic").len() - 1;
    let most = began.elapsed().as_micros() / debounce.as_micros();
    assert!(changes as u128 <= most, "{changes} where there was time for {most}");
}

#[test]
fn a_file_is_not_read_before_it_is_written_to_its_end() {
    let folder = Folder::new();
    let debounce = Duration::from_secs(1);
    // A file that takes longer to write than the debounce may be read before. Then, another one.
    loop {
        folder.write("policy.toml", &policy(1));
        let watched = Watched::start_with(folder.path("policy.toml"), |builder| builder.debounce(debounce));
        let began = Instant::now();
        let mut file = fs::File::create(folder.path("policy.toml")).expect("a file");
        // Every beginning that ends with a line is a policy, too, and of another limit.
        for limit in (2..=200).rev() {
            write!(file, "[rules.r{limit}]\nlimit = '{limit}/h'\n").expect("a file can be written to");
        }
        drop(file);
        let took = began.elapsed();
        watched.until(2);
        if took < debounce {
            assert_eq!(*watched.applied.lock().expect("no panic"), [1, 2]);
            return;
        }
    }
}

#[test]
fn nothing_is_left_of_it_once_it_is_dropped() {
    let folder = Folder::new();
    folder.write("policy.toml", &policy(1));
    // Not one of these times will come.
    let never = Duration::from_secs(1 << 30);
    let waiting = Watched::start(folder.path("policy.toml"));
    let debouncing = Watched::start_with(folder.path("policy.toml"), |builder| builder.debounce(never));
    let polling = Watched::start_with(folder.path("policy.toml"), |builder| builder.poll_every(never));
    debouncing.watch.reload();
    for Watched { watch, applied, .. } in [waiting, debouncing, polling] {
        let counter = Arc::downgrade(&applied);
        drop((watch, applied));
        assert!(counter.upgrade().is_none(), "the thread has ended, and its callbacks with it");
    }
}

#[test]
fn an_event_handler_may_drop_the_watcher() {
    let folder = Folder::new();
    folder.write("policy.toml", &policy(1));
    let (teller, told) = channel();
    let slot: Arc<Mutex<Option<Watch>>> = Arc::default();
    let held = Arc::clone(&slot);
    let watch = watch(folder.path("policy.toml"), |_| Ok(()))
        .debounce(DEBOUNCE)
        .report_to(move |outcome| {
            drop(held.lock().expect("no panic").take());
            drop(teller.send(outcome.to_string()));
        })
        .start()
        .unwrap_or_else(|report| panic!("{report}"));
    *slot.lock().expect("no panic") = Some(watch);
    folder.replace("policy.toml", &policy(2));
    assert_eq!(told.recv_timeout(GUARD).as_deref(), Ok("applied"), "at the start");
    assert_eq!(told.recv_timeout(GUARD).as_deref(), Ok("applied"));
    assert!(told.recv_timeout(GUARD).is_err_and(|error| error == std::sync::mpsc::RecvTimeoutError::Disconnected));
}

#[test]
fn callbacks_that_panic_or_refuse_do_not_end_it() {
    let folder = Folder::new();
    folder.write("policy.toml", &policy(1));
    let (teller, told) = channel();
    let apply = |policy| match limit_of(policy)? {
        2 => panic!("planned"),
        3 => Err(ConfigError::EmptyPolicy),
        _ => Ok(()),
    };
    let watch = watch(folder.path("policy.toml"), apply)
        .debounce(DEBOUNCE)
        .report_to(move |outcome| {
            drop(teller.send(outcome.to_string()));
            panic!("planned");
        })
        .start()
        .unwrap_or_else(|report| panic!("{report}"));
    let until = |part: &str| while !told.recv_timeout(GUARD).expect("to be told").contains(part) {};
    for (limit, part) in [(2, "panicked"), (3, "at least one"), (4, "applied")] {
        folder.replace("policy.toml", &policy(limit));
        until(part);
    }
    assert_eq!(watch.counts().applied, 2);
}

#[test]
fn a_rejected_policy_is_offered_again() {
    // However rarely the files are read.
    for poll in [None, Some(Duration::from_secs(3_600))] {
        let folder = Folder::new();
        folder.write("policy.toml", &policy(1));
        let (limits, offered) = channel();
        let mut refusals = 1;
        let watch = watch(folder.path("policy.toml"), move |policy| {
            let limit = limit_of(policy)?;
            limits.send(limit).ok();
            match limit {
                2 if refusals > 0 => {
                    refusals -= 1;
                    Err(ConfigError::TooManyChanges { rule: "all".into(), bound: 1 })
                }
                _ => Ok(()),
            }
        })
        .debounce(DEBOUNCE);
        let watch = match poll {
            Some(interval) => watch.poll_every(interval),
            None => watch,
        };
        let watch = watch.start().unwrap_or_else(|report| panic!("{report}"));
        folder.replace("policy.toml", &policy(2));
        watch.reload();
        for limit in [1, 2, 2] {
            assert_eq!(offered.recv_timeout(GUARD), Ok(limit), "reading every {poll:?}");
        }
        drop(watch);
    }
}

#[test]
fn a_limiter_follows_its_file_and_keeps_what_was_used() {
    let folder = Folder::new();
    folder.write("policy.toml", &policy(10));
    let store = MemoryStore::builder().clock(ManualClock::default()).build().expect("valid settings");
    let limiter = Limiter::with_store(load(folder.path("policy.toml")).expect("a policy"), store).expect("a policy");
    let (teller, told) = channel();
    let changed = limiter.clone();
    let watch = watch(folder.path("policy.toml"), move |policy| changed.set_policy(policy))
        .debounce(DEBOUNCE)
        .report_to(move |outcome| drop(teller.send(Told::from(outcome))))
        .start()
        .unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(told.recv(), Ok(Told::Applied));
    assert!((0..6).all(|_| limiter.allow("alice")));
    let until = |wanted: fn(&Told) -> bool| while !wanted(&told.recv_timeout(GUARD).expect("to be told")) {};
    folder.replace("policy.toml", "[rules.all]\nlimit = 'many'\n");
    until(|told| matches!(told, Told::Refused(_)));
    assert_eq!(limiter.peek("alice").expect("an answer").remaining(), Some(4), "nothing has changed");
    folder.replace("policy.toml", &policy(7));
    until(|told| *told == Told::Applied);
    assert_eq!(limiter.peek("alice").expect("an answer").remaining(), Some(1), "what was used is kept");
    assert!(limiter.allow("alice") && !limiter.allow("alice"));
    drop(watch);
}

#[test]
fn descriptor_files_and_folders_of_them_are_followed() {
    let folder = Folder::new();
    let text = |domain: &str, count: u64| {
        format!(
            "domain: {domain}\ndescriptors: [{{ key: k, rate_limit: {{ unit: hour, requests_per_unit: {count} }} }}]"
        )
    };
    folder.write("more.yaml", &text("more", 1));
    folder.write("all/.hidden.yaml", "nonsense");
    folder.write("all/readme.txt", "nonsense");
    let applied = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&applied);
    let builder = watch_envoy([folder.path("more.yaml"), folder.path("all")], move |config| {
        let limit = |domain| match config.limit_for(domain, &[("k", "v")]).map(|matched| matched.setting) {
            Some(Setting::Limit(limit)) => limit.capacity(),
            _ => 0,
        };
        seen.lock().expect("no panic").push(limit("more") * 100 + limit("a") * 10 + limit("b"));
        Ok(())
    });
    let watched = Watched::start_watch(builder.debounce(DEBOUNCE), applied);
    assert_eq!(watched.last(), 100);
    folder.write("all/a.yaml", &text("a", 2));
    watched.until(120);
    folder.replace("all/b.yml", &text("b", 3));
    watched.until(123);
    folder.replace("more.yaml", &text("more", 4));
    watched.until(423);
    folder.remove("all/a.yaml");
    watched.until(403);
    folder.replace("all/a.yaml", &text("b", 5));
    assert!(watched.until_refused().contains("\"b\" is there twice"));
    folder.replace("all/a.yaml", &text("a", 5));
    watched.until(453);
}

#[test]
#[cfg(unix)]
fn a_config_map_of_descriptor_files_is_followed() {
    let folder = Folder::new();
    let applied = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&applied);
    let builder = watch_envoy([&folder.0], move |config| {
        seen.lock().expect("no panic").push(config.domains().filter_map(|domain| domain.parse::<u64>().ok()).sum());
        Ok(())
    });
    let watched = Watched::start_watch(builder.debounce(DEBOUNCE), applied);
    for version in 1..=3 {
        mount(&folder, version, "edge.yaml", &format!("domain: '{version}'"));
        watched.until(version);
    }
    mount(&folder, 4, "more.yaml", "domain: '40'");
    watched.until_refused();
    folder.remove("edge.yaml");
    watched.until(40);
}

/// Where the system has no watch to give; see `without_watches_the_files_are_read_now_and_then`.
#[test]
#[ignore = "needs a process of its own, with few open files"]
fn poor_process() {
    let folder = Folder::new();
    folder.write("policy.toml", &policy(1));
    let mut files: Vec<fs::File> = std::iter::from_fn(|| fs::File::open("/dev/null").ok()).take(100_000).collect();
    // As many as reading a file takes, and fewer than watching it would.
    files.pop();
    let (teller, told) = channel();
    let (limits, applied) = channel();
    let watch = watch(folder.path("policy.toml"), move |policy| {
        limits.send(limit_of(policy)?).ok();
        Ok(())
    })
    .debounce(DEBOUNCE)
    .report_to(move |outcome| drop(teller.send(outcome.to_string())))
    .start()
    .unwrap_or_else(|report| panic!("{report}"));
    assert!(told.recv_timeout(GUARD).expect("a word").starts_with("the system will not tell of changes"));
    folder.write("policy.toml", &policy(2));
    assert_eq!([applied.recv_timeout(GUARD), applied.recv_timeout(GUARD)], [Ok(1), Ok(2)]);
    drop(files);
    drop(watch);
}

#[test]
#[cfg(target_os = "linux")]
fn without_watches_the_files_are_read_now_and_then() {
    let this = std::env::current_exe().expect("a test has a program");
    let command = format!("ulimit -n 64; exec {:?} --exact poor_process --ignored", this.display().to_string());
    let output = std::process::Command::new("sh").args(["-c", &command]).output().expect("a shell");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
}
