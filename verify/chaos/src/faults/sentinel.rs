//! A master, two replicas and three sentinels that watch over them.

use std::time::Duration;

use tidegate_testkit::servers::SentinelSet;

use crate::bound::Damage;
use crate::fault::{Fault, Needs};
use crate::findings::Findings;
use crate::namespace::Cut;
use crate::pressure::{Pressure, measure};
use crate::trial::Trial;

pub(super) const FAULTS: &[Fault] = &[
    Fault::new("sentinel-failover", "SENTINEL FAILOVER", "one burst, and both for a moment", failover),
    Fault::new("sentinel-master-killed", "kill -9 of the master", "one burst", master_killed),
    Fault::new("sentinel-master-killed-strict", "the same, in strict mode", "nothing", master_killed_strict),
    Fault::new("sentinel-master-paused", "SIGSTOP of the master until it is replaced", "one burst", master_paused),
    Fault::new(
        "sentinel-replica-killed",
        "kill -9 of a replica, which comes back",
        "nothing, and no error",
        replica_killed,
    ),
    Fault::new("sentinel-killed", "kill -9 of a sentinel, and then of the master", "one burst", sentinel_killed),
    Fault::new(
        "sentinel-paused",
        "SIGSTOP of a sentinel, and then kill -9 of the master",
        "one burst",
        sentinel_paused,
    ),
    Fault::new(
        "sentinel-all-killed",
        "kill -9 of all sentinels, which come back: the master goes on",
        "nothing, and no error",
        all_killed,
    ),
    Fault::new(
        "sentinel-lagged-replicas",
        "the replicas hear nothing for a while, then kill -9 of the master",
        "one burst",
        lagged,
    )
    .needs(Needs::Namespace),
];

fn url(set: &SentinelSet) -> String {
    let hosts: Vec<String> = set.sentinel_addresses().iter().map(ToString::to_string).collect();
    format!("redis+sentinel://{}/{}", hosts.join(","), set.master_name())
}

/// Something befalls the set or its master, given by its number; what it costs.
fn befalls(
    trial: &mut Trial,
    set: &SentinelSet,
    harm: impl FnOnce(&mut Trial, usize, &Pressure) -> Damage,
) -> Findings {
    let pressure = Pressure::start(trial, &trial.store(&url(set)));
    pressure.settle();
    let damage = harm(trial, set.current_master(), &pressure);
    pressure.recover();
    pressure.judge(damage)
}

fn failover(trial: &mut Trial) -> Findings {
    let set = SentinelSet::start();
    befalls(trial, &set, |trial, _, pressure| {
        let (_, beside) = measure(|| {
            set.failover();
            // The old master answers until sentinels have told it.
            pressure.endure(trial.about(Duration::from_millis(1_000)));
        });
        Damage { beside, ..Damage::losses(1) }
    })
}

fn master_killed(trial: &mut Trial) -> Findings {
    let set = SentinelSet::start();
    befalls(trial, &set, |_, master, _| {
        set.server(master).kill();
        set.wait_for_another_master(master);
        Damage::losses(1)
    })
}

fn master_killed_strict(trial: &mut Trial) -> Findings {
    let set = SentinelSet::start();
    let pressure = Pressure::strict(trial, &url(&set));
    pressure.settle();
    let master = set.current_master();
    set.server(master).kill();
    set.wait_for_another_master(master);
    pressure.recover();
    pressure.judge(Damage::NONE)
}

fn master_paused(trial: &mut Trial) -> Findings {
    let set = SentinelSet::start();
    befalls(trial, &set, |_, master, _| {
        set.server(master).pause();
        set.wait_for_another_master(master);
        Damage::losses(1)
    })
}

fn replica_killed(trial: &mut Trial) -> Findings {
    trial.be_patient();
    let set = SentinelSet::start();
    befalls(trial, &set, |trial, master, pressure| {
        let replica = set.server((master + 1) % 3);
        replica.kill();
        // Half as long again as sentinels take to notice.
        pressure.endure(trial.about(Duration::from_millis(4_500)));
        replica.restart();
        pressure.endure(trial.about(Duration::from_millis(500)));
        Damage::NONE
    })
    .without_errors()
}

fn sentinel_killed(trial: &mut Trial) -> Findings {
    let set = SentinelSet::start();
    befalls(trial, &set, |trial, master, _| {
        set.sentinel(trial.random.within(0..=2) as usize).kill();
        set.server(master).kill();
        set.wait_for_another_master(master);
        Damage::losses(1)
    })
}

fn sentinel_paused(trial: &mut Trial) -> Findings {
    let set = SentinelSet::start();
    befalls(trial, &set, |trial, master, _| {
        set.sentinel(trial.random.within(0..=2) as usize).pause();
        set.server(master).kill();
        set.wait_for_another_master(master);
        Damage::losses(1)
    })
}

fn all_killed(trial: &mut Trial) -> Findings {
    trial.be_patient();
    let set = SentinelSet::start();
    befalls(trial, &set, |trial, _, pressure| {
        (0..3).for_each(|sentinel| set.sentinel(sentinel).kill());
        pressure.endure(trial.about(Duration::from_millis(1_000)));
        (0..3).for_each(|sentinel| set.sentinel(sentinel).restart());
        pressure.endure(trial.about(Duration::from_millis(500)));
        Damage::NONE
    })
    .without_errors()
}

fn lagged(trial: &mut Trial) -> Findings {
    /// Where servers call each other from: sentinels and clients do not.
    const SOURCE: &str = "127.0.1.1";
    let set = SentinelSet::start_with(&[("bind-source-addr", SOURCE), ("replica-announce-ip", "127.0.0.1")]);
    befalls(trial, &set, |trial, master, pressure| {
        let cut = Cut::none();
        cut.between(SOURCE, set.server(master).port());
        pressure.endure(trial.about(Duration::from_millis(800)));
        pressure.go_on();
        set.server(master).kill();
        set.wait_for_another_master(master);
        drop(cut);
        Damage::losses(1)
    })
    .with_losses()
}
