//! Thresholds are told once among all processes that share a server.

use crate::support;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::{Event, Limit, Limiter, Observer, Policy, Rule, ThresholdEvent};
use tidegate_redis::Servers;
use tidegate_testkit::block_on;

/// What a process is told, when it is one of many: a URL, a prefix, the capacity, and how
/// often it charges.
const TASK: &str = "TIDEGATE_THRESHOLDS_TASK";

/// Requests of one process at a time.
const AT_A_TIME: usize = 20;

#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl Observer for Told {
    fn observe(&self, _: &Event<'_>) {}

    fn crossed(&self, event: &ThresholdEvent<'_>) {
        self.0.lock().expect("no panic").push(format!("{} {}%", event.rule, event.percent));
    }
}

/// Long enough that no window ends, and no bucket drains a hundredth while processes run.
const PERIOD: Duration = Duration::from_secs(1_000 * 3_600);

fn policy(capacity: u64) -> Policy {
    let limits = [
        ("window", Limit::fixed_window(capacity, PERIOD).from_first_request()),
        ("bucket", Limit::token_bucket(capacity, PERIOD)),
        ("counter", Limit::sliding_counter(capacity, PERIOD)),
    ];
    let rules = limits.map(|(name, limit)| Rule::new(name, limit).notify([50, 80, 99]).expect("thresholds"));
    rules.into_iter().fold(Policy::new(), Policy::rule)
}

/// One of the processes: charges, and prints what its observer was told.
#[test]
#[ignore = "a process that the other tests start"]
fn one_process() {
    let task = std::env::var(TASK).expect("a task");
    let [url, prefix, capacity, charges] = task.split(' ').collect::<Vec<_>>()[..] else { panic!("{task}") };
    let charges: usize = charges.parse().expect("a number");
    let store = support::build(support::patient(Servers::parse(url).expect("a URL")).prefix(prefix));
    let told = Arc::<Told>::default();
    let builder = Limiter::builder(policy(capacity.parse().expect("a number"))).store(store);
    let limiter = builder.observer(Arc::clone(&told)).build().expect("a policy");
    for _ in 0..charges / AT_A_TIME {
        let each = (0..AT_A_TIME).map(|_| limiter.check_async("alice"));
        for decision in support::RUNTIME.block_on(futures_util::future::join_all(each)) {
            assert!(!decision.expect("an answer").is_degraded());
        }
    }
    for line in told.0.lock().expect("no panic").iter() {
        println!("told {line}");
    }
}

fn run(processes: usize, charges: usize) {
    let (url, prefix) = (support::SERVER.url(), support::new_prefix());
    // All charges together are a quarter more than pass.
    let capacity = processes * charges * 4 / 5;
    let start = |_| {
        let mut process = Command::new(std::env::current_exe().expect("this program"));
        let process = process.args(["--ignored", "--exact", "thresholds::one_process", "--nocapture"]);
        let process = process.env(TASK, format!("{url} {prefix} {capacity} {charges}")).stdout(Stdio::piped());
        process.spawn().expect("a process")
    };
    let processes: Vec<_> = (0..processes).map(start).collect();
    let mut told: BTreeMap<String, u32> = BTreeMap::new();
    for process in processes {
        let output = process.wait_with_output().expect("its output");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            if let Some((_, what)) = line.split_once("told ") {
                *told.entry(what.to_owned()).or_default() += 1;
            }
        }
    }
    let once = ["bucket", "counter", "window"]
        .into_iter()
        .flat_map(|rule| ["50%", "80%", "99%"].map(|percent| (format!("{rule} {percent}"), 1)));
    assert_eq!(told, once.collect());
}

#[test]
fn a_few_processes_tell_each_threshold_once() {
    run(4, 200);
}

#[test]
#[ignore = "a million charges take minutes"]
fn a_hundred_processes_tell_each_threshold_once() {
    run(100, 10_000);
}

#[test]
fn threshold_marks_are_stored_beside_the_state() {
    let server = tidegate_testkit::servers::Server::start();
    let told = Arc::<Told>::default();
    let store = support::build(support::builder(&server.url()));
    let rule = Rule::new("api", Limit::per_hour(10)).notify([50, 100]).expect("thresholds");
    let limiter = Limiter::builder(rule).store(store).observer(Arc::clone(&told)).build().expect("a policy");
    let take = || std::mem::take(&mut *told.0.lock().expect("no panic"));
    let marks = || server.command(&["KEYS", "*told*"]).items().len();
    let ask = |cost| block_on(limiter.check_async(tidegate::Request::new("alice").cost(cost))).expect("an answer");
    assert!(ask(4).is_allowed());
    assert_eq!((take().len(), marks()), (0, 0), "nothing is crossed, and nothing remembered");
    assert!(ask(1).is_allowed());
    assert_eq!((take(), marks()), (vec!["api 50%".to_owned()], 1));
    let name = server.command(&["KEYS", "*told*"]).items()[0].text();
    let left = server.command(&["PTTL", &name]).integer();
    assert!(left > 0 && left <= 3_601_000, "for a period: {left}");
    let _ = block_on(limiter.refund_async(tidegate::Request::new("alice").cost(1))).expect("an answer");
    assert_eq!(marks(), 0, "it can be told again");
    assert!(ask(1).is_allowed());
    assert_eq!((take(), marks()), (vec!["api 50%".to_owned()], 1));
    let _ = block_on(limiter.reset_async("alice")).expect("an answer");
    assert_eq!(marks(), 0);
}
