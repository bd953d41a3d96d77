//! Six nodes, three of them masters: failovers of every sort, slots that move,
//! links that are cut.

use std::time::Duration;

use tidegate_testkit::servers::{Cluster, Server, eventually, slot_of};

use crate::bound::Damage;
use crate::fault::{Fault, Needs};
use crate::findings::Findings;
use crate::namespace::Cut;
use crate::pressure::{Pressure, measure};
use crate::trial::{KEY, Trial};

pub(super) const FAULTS: &[Fault] = &[
    Fault::new("cluster-failover", "CLUSTER FAILOVER: the master hands over", "nothing", failover),
    Fault::new("cluster-failover-force", "CLUSTER FAILOVER FORCE: by votes, without the master", "one burst", force),
    Fault::new("cluster-takeover", "CLUSTER FAILOVER TAKEOVER: without asking anyone", "one burst", takeover),
    Fault::new("cluster-master-killed", "kill -9 of the master", "one burst", master_killed),
    Fault::new("cluster-master-killed-strict", "the same, in strict mode", "nothing", master_killed_strict),
    Fault::new(
        "cluster-master-paused",
        "SIGSTOP of the master until it is replaced, then SIGCONT",
        "one burst, and both for a moment",
        master_paused,
    ),
    Fault::new(
        "cluster-replica-killed",
        "kill -9 of the master's replica, which comes back",
        "nothing, and no error",
        replica_killed,
    ),
    Fault::new(
        "cluster-replica-paused",
        "SIGSTOP and SIGCONT of the master's replica",
        "nothing, and no error",
        replica_paused,
    ),
    Fault::new("cluster-all-killed", "kill -9 of all six nodes, which come back empty", "one burst", all_killed),
    Fault::new("cluster-no-majority", "SIGSTOP of the two other masters: CLUSTERDOWN", "nothing", no_majority),
    Fault::new("cluster-slot-moves", "the slot moves to another master, key by key", "nothing", slot_moves),
    Fault::new("cluster-script-flush", "SCRIPT FLUSH on every node", "nothing, and no error", script_flush),
    Fault::new(
        "cluster-lagged-replica",
        "the replica hears nothing for a while, then kill -9 of the master",
        "one burst",
        lagged_replica,
    )
    .needs(Needs::Namespace),
    Fault::new(
        "cluster-partition",
        "the master is cut from all nodes, and not from its clients",
        "one burst, and both for as long as it lasts",
        partition,
    )
    .needs(Needs::Namespace),
    Fault::new(
        "cluster-partition-one-way",
        "the master hears all nodes, and none hears it",
        "one burst, and both for as long as it lasts",
        partition_one_way,
    )
    .needs(Needs::Namespace),
];

/// After so long the others notice that a node is away: half as long again as the timeout of a node.
const NOTICED: Duration = Duration::from_millis(4_500);

fn url(cluster: &Cluster) -> String {
    let hosts: Vec<String> = cluster.addresses().iter().map(ToString::to_string).collect();
    format!("redis+cluster://{}", hosts.join(","))
}

/// Something befalls the master of the key, given by its number; what it costs.
fn befalls(
    trial: &mut Trial,
    cluster: &Cluster,
    harm: impl FnOnce(&mut Trial, usize, &Pressure) -> Damage,
) -> Findings {
    let pressure = Pressure::start(trial, &trial.store(&url(cluster)));
    pressure.settle();
    let damage = harm(trial, cluster.master_of(slot_of(KEY.as_bytes())), &pressure);
    pressure.recover();
    pressure.judge(damage)
}

fn failover(trial: &mut Trial) -> Findings {
    let cluster = Cluster::start();
    befalls(trial, &cluster, |_, master, _| {
        cluster.failover(master);
        Damage::NONE
    })
}

fn force(trial: &mut Trial) -> Findings {
    let cluster = Cluster::start();
    befalls(trial, &cluster, |_, master, _| {
        // The old master answers until it has heard of the new one.
        let (_, beside) = measure(|| cluster.force_failover(master));
        Damage { beside, ..Damage::losses(1) }
    })
}

fn takeover(trial: &mut Trial) -> Findings {
    let cluster = Cluster::start();
    befalls(trial, &cluster, |_, master, _| {
        let (_, beside) = measure(|| cluster.takeover(master));
        Damage { beside, ..Damage::losses(1) }
    })
}

fn master_killed(trial: &mut Trial) -> Findings {
    let cluster = Cluster::start();
    befalls(trial, &cluster, |_, master, _| {
        cluster.node(master).kill();
        cluster.wait_until_healthy();
        Damage::losses(1)
    })
}

fn master_killed_strict(trial: &mut Trial) -> Findings {
    let cluster = Cluster::start();
    let pressure = Pressure::strict(trial, &url(&cluster));
    pressure.settle();
    cluster.node(cluster.master_of(slot_of(KEY.as_bytes()))).kill();
    cluster.wait_until_healthy();
    pressure.recover();
    pressure.judge(Damage::NONE)
}

fn master_paused(trial: &mut Trial) -> Findings {
    let cluster = Cluster::start();
    befalls(trial, &cluster, |trial, master, pressure| {
        cluster.node(master).pause();
        cluster.wait_until_healthy();
        pressure.recover();
        // What it was asked before it was paused is answered now, by a master of the past.
        let (_, beside) = measure(|| {
            cluster.node(master).resume();
            pressure.endure(trial.about(Duration::from_millis(500)));
        });
        Damage { beside, ..Damage::losses(1) }
    })
}

fn replica_killed(trial: &mut Trial) -> Findings {
    trial.be_patient();
    let cluster = Cluster::start();
    befalls(trial, &cluster, |trial, master, pressure| {
        let replica = cluster.replica_of(master);
        cluster.node(replica).kill();
        pressure.endure(trial.about(NOTICED));
        cluster.node(replica).restart();
        cluster.wait_until_healthy();
        Damage::NONE
    })
    .without_errors()
}

fn replica_paused(trial: &mut Trial) -> Findings {
    trial.be_patient();
    let cluster = Cluster::start();
    befalls(trial, &cluster, |trial, master, pressure| {
        let replica = cluster.replica_of(master);
        cluster.node(replica).pause();
        pressure.endure(trial.about(NOTICED));
        cluster.node(replica).resume();
        Damage::NONE
    })
    .without_errors()
}

fn all_killed(trial: &mut Trial) -> Findings {
    let cluster = Cluster::start();
    befalls(trial, &cluster, |_, _, pressure| {
        let nodes = || (0..cluster.size()).map(|node| cluster.node(node));
        nodes().for_each(Server::kill);
        pressure.suffer();
        nodes().for_each(Server::restart);
        cluster.wait_until_healthy();
        Damage::losses(1)
    })
}

fn no_majority(trial: &mut Trial) -> Findings {
    let cluster = Cluster::start();
    befalls(trial, &cluster, |_, master, pressure| {
        let others: Vec<usize> = cluster.masters().into_iter().filter(|other| *other != master).collect();
        others.iter().for_each(|other| cluster.node(*other).pause());
        pressure.suffer();
        others.iter().for_each(|other| cluster.node(*other).resume());
        cluster.wait_until_healthy();
        Damage::NONE
    })
}

fn slot_moves(trial: &mut Trial) -> Findings {
    let cluster = Cluster::start();
    befalls(trial, &cluster, |trial, master, pressure| {
        let to = cluster.masters().into_iter().find(|other| *other != master).expect("three masters");
        let migration = cluster.begin_migration(slot_of(KEY.as_bytes()), to);
        pressure.endure(trial.about(Duration::from_millis(200)));
        migration.move_some(1);
        pressure.endure(trial.about(Duration::from_millis(200)));
        migration.move_keys();
        pressure.endure(trial.about(Duration::from_millis(200)));
        // Some may have been made at the old master meanwhile.
        migration.move_keys();
        migration.finish();
        Damage::NONE
    })
}

fn script_flush(trial: &mut Trial) -> Findings {
    trial.be_patient();
    let cluster = Cluster::start();
    befalls(trial, &cluster, |_, _, pressure| {
        for _ in 0..5 {
            (0..cluster.size()).for_each(|node| _ = cluster.node(node).command(&["SCRIPT", "FLUSH"]));
            pressure.go_on();
        }
        Damage::NONE
    })
    .without_errors()
}

fn lagged_replica(trial: &mut Trial) -> Findings {
    let cluster = Cluster::start_with_sources();
    befalls(trial, &cluster, |trial, master, pressure| {
        let replica = cluster.replica_of(master);
        let cut = Cut::none();
        cut.between(&Cluster::source(replica).to_string(), cluster.node(master).port());
        pressure.endure(trial.about(Duration::from_millis(800)));
        pressure.go_on();
        cluster.node(master).kill();
        // Not before: what the dead one had sent would still arrive.
        wait_for_master(&cluster, replica);
        drop(cut);
        cluster.wait_until_healthy();
        Damage::losses(1)
    })
    .with_losses()
}

fn wait_for_master(cluster: &Cluster, replica: usize) {
    eventually("the replica to be master", || match cluster.masters() {
        masters if masters.contains(&replica) => Ok(()),
        masters => Err(format!("{masters:?} are")),
    });
}

/// All nodes call others from addresses like these.
const SOURCES: &str = "127.0.1.0/24";

/// Where nodes talk to each other, beside the port for clients.
fn bus(port: u16) -> u16 {
    port + 10_000
}

/// The master is cut off, another one takes its place, and the cut heals.
fn parted(trial: &mut Trial, cut: impl FnOnce(&Cut, usize, u16)) -> Findings {
    let cluster = Cluster::start_with_sources();
    befalls(trial, &cluster, |_, master, _| {
        let replica = cluster.replica_of(master);
        let packets = Cut::none();
        let (_, beside) = measure(|| {
            cut(&packets, master, cluster.node(master).port());
            wait_for_master(&cluster, replica);
            drop(packets);
            cluster.wait_until_healthy();
        });
        Damage { beside, ..Damage::losses(1) }
    })
}

fn partition(trial: &mut Trial) -> Findings {
    parted(trial, |cut, master, port| {
        cut.from(Cluster::source(master));
        cut.to(Cluster::source(master));
        cut.requests(bus(port));
        cut.replies(bus(port));
        cut.between(SOURCES, port);
    })
}

fn partition_one_way(trial: &mut Trial) -> Findings {
    parted(trial, |cut, master, port| {
        cut.from(Cluster::source(master));
        cut.replies(bus(port));
        cut.port_to(port, SOURCES);
    })
}
