//! A cluster of three masters, and a replica of each where a test needs them.
//!
//! It is built by the commands that `redis-cli --cluster create` would send.
//! Who is master of what is never remembered here but asked of the nodes that
//! run, each about itself, since a failover changes it.

mod migration;
mod view;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use self::view::{Member, View};
use super::eventually;
use super::gate::Permit;
use super::process::Directory;
use super::program::Program;
use super::server::{Role, Server};
use super::slots::SLOTS;

pub use self::migration::Migration;

const MASTERS: usize = 3;

/// A manual failover is given up by the nodes themselves after five seconds.
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(6);

/// As the directive below says.
const NODE_TIMEOUT: Duration = Duration::from_secs(3);

const DIRECTIVES: [(&str, &str); 5] = [
    ("cluster-enabled", "yes"),
    ("cluster-config-file", "nodes.conf"),
    // Less is also what a busy machine takes to answer: nodes that are well would be voted out.
    ("cluster-node-timeout", "3000"),
    // A replica may take over whatever it has missed: tests cut links on purpose.
    ("cluster-replica-validity-factor", "0"),
    // Replicas stay with their masters.
    ("cluster-migration-barrier", "9"),
];

/// Three masters, most often with a replica each, on loopback; killed when dropped.
///
/// At first the nodes 0, 1 and 2 are the masters of a third of the slots
/// each, and 3, 4 and 5 their replicas in the same order.
///
/// ```no_run
/// use tidegate_testkit::servers::{Cluster, slot_of};
///
/// let cluster = Cluster::start();
/// let master = cluster.master_of(slot_of(b"alice"));
/// cluster.node(master).kill();
/// cluster.wait_until_healthy();
/// assert_ne!(cluster.master_of(slot_of(b"alice")), master);
/// ```
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Server>,
    ids: Vec<String>,
    elections: Mutex<Elections>,
    _permit: Permit,
}

impl Cluster {
    /// Starts one, and waits until it is healthy: about three seconds.
    ///
    /// # Panics
    ///
    /// When it does not get healthy. So do the other ways to start one.
    pub fn start() -> Cluster {
        Cluster::start_with(&[])
    }

    /// Starts one with further directives for every node.
    pub fn start_with(directives: &[(&str, &str)]) -> Cluster {
        Cluster::start_on(&Program::from_environment(), directives)
    }

    /// Starts one of a given program.
    pub fn start_on(program: &Program, directives: &[(&str, &str)]) -> Cluster {
        Cluster::launch(program, 2 * MASTERS, |_| directives.to_vec())
    }

    /// Starts three masters alone, for tests in which none of them fails.
    pub fn start_masters() -> Cluster {
        Cluster::launch(&Program::from_environment(), MASTERS, |_| Vec::new())
    }

    /// Starts one whose nodes call each other from an address of their own each,
    /// [`Cluster::source`], so that a packet filter can tell a node from others and
    /// from clients.
    pub fn start_with_sources() -> Cluster {
        let sources: Vec<String> = (0..2 * MASTERS).map(|node| Cluster::source(node).to_string()).collect();
        let program = Program::from_environment();
        // Who calls from an address is otherwise taken to listen there.
        Cluster::launch(&program, 2 * MASTERS, |node| {
            vec![("bind-source-addr", sources[node].as_str()), ("cluster-announce-ip", "127.0.0.1")]
        })
    }

    /// Where a node calls others from, if it was started
    /// [with sources](Cluster::start_with_sources).
    pub fn source(node: usize) -> Ipv4Addr {
        Ipv4Addr::new(127, 0, 1, u8::try_from(node + 1).expect("fewer nodes than addresses"))
    }

    fn launch<'d>(program: &Program, size: usize, directives: impl Fn(usize) -> Vec<(&'d str, &'d str)>) -> Cluster {
        let permit = Permit::wait(size);
        let start = |node| {
            let directives = [&DIRECTIVES[..], &directives(node)].concat();
            Server::launch(program, Role::Server, Directory::in_memory(), &directives)
        };
        let nodes: Vec<Server> = (0..size).map(start).collect();
        let ids = nodes.iter().map(|node| node.command(&["CLUSTER", "MYID"]).text()).collect();
        let cluster = Cluster { nodes, ids, elections: Mutex::default(), _permit: permit };
        cluster.join();
        cluster.wait_until_healthy();
        cluster
    }

    /// Where the nodes listen.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(Server::address).collect()
    }

    /// Where the nodes listen, as clients are told.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }

    /// How many nodes there are, those that do not run included.
    pub fn size(&self) -> usize {
        self.nodes.len()
    }

    /// A node, to command, pause, kill or restart.
    ///
    /// # Panics
    ///
    /// When there are not so many.
    pub fn node(&self, index: usize) -> &Server {
        &self.nodes[index]
    }

    /// The nodes that run and are masters with slots.
    pub fn masters(&self) -> Vec<usize> {
        let is_master = |member: &Member| !member.slots.is_empty();
        self.selves().iter().filter(|(_, member)| is_master(member)).map(|(index, _)| *index).collect()
    }

    /// The node that is master of a slot; of two that think so, the one elected later.
    ///
    /// # Panics
    ///
    /// When no node that runs is.
    pub fn master_of(&self, slot: u16) -> usize {
        let selves = self.selves();
        let owners = selves.iter().filter(|(_, member)| member.owns(slot));
        let latest = owners.max_by_key(|(_, member)| member.epoch);
        latest.unwrap_or_else(|| panic!("no node is master of the slot {slot}: wait until the cluster is healthy")).0
    }

    /// The node that is a replica of a master, which may itself be dead.
    ///
    /// # Panics
    ///
    /// When no node that runs is.
    pub fn replica_of(&self, master: usize) -> usize {
        let selves = self.selves();
        let replica = selves.iter().find(|(_, member)| member.master.as_ref() == Some(&self.ids[master]));
        replica.unwrap_or_else(|| panic!("no node is a replica of the node {master}")).0
    }

    /// Makes the replica of a master the master, in agreement: no write is
    /// lost. Returns the new master when the cluster is healthy again: four
    /// timeouts of a node after the election of the old one, if it had just been elected.
    ///
    /// # Panics
    ///
    /// When it has no replica, or the failover does not come about.
    pub fn failover(&self, master: usize) -> usize {
        self.replace(master, &["CLUSTER", "FAILOVER"])
    }

    /// Makes the replica of a master the master without asking anyone: what it
    /// has not yet been told of is lost. Returns the new master when the
    /// cluster is healthy again.
    ///
    /// # Panics
    ///
    /// When it has no replica, or the takeover does not come about.
    pub fn takeover(&self, master: usize) -> usize {
        self.replace(master, &["CLUSTER", "FAILOVER", "TAKEOVER"])
    }

    /// Makes the replica of a master the master by the votes of the others, without
    /// waiting for the old one: what it has not yet been told of is lost. Returns the
    /// new master when the cluster is healthy again.
    ///
    /// # Panics
    ///
    /// When it has no replica, or the failover does not come about.
    pub fn force_failover(&self, master: usize) -> usize {
        self.replace(master, &["CLUSTER", "FAILOVER", "FORCE"])
    }

    /// Waits until the nodes that run agree that every slot has a master among
    /// them, and their replicas follow.
    ///
    /// # Panics
    ///
    /// When it takes too long, with what is wrong.
    pub fn wait_until_healthy(&self) {
        eventually("a healthy cluster", || self.health());
    }

    fn replace(&self, master: usize, command: &[&str]) -> usize {
        let replica = self.replica_of(master);
        let mut asked: Option<Instant> = None;
        eventually("a replica to become master", || {
            if self.masters().contains(&replica) {
                return Ok(());
            }
            // Refused while the replica has lost its master, and given up in silence: both pass.
            if asked.is_none_or(|asked| asked.elapsed() > FAILOVER_TIMEOUT) {
                self.node(replica).ask(command)?;
                asked = Some(Instant::now());
            }
            Err(format!("the node {replica} is still a replica"))
        });
        self.wait_until_healthy();
        replica
    }

    /// Makes a cluster of nodes that have not met.
    fn join(&self) {
        for (index, node) in self.nodes.iter().enumerate() {
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
        }
        for (index, master) in self.nodes[..MASTERS].iter().enumerate() {
            let bound = |third: usize| usize::from(SLOTS) * third / MASTERS;
            let slots = (bound(index)..bound(index + 1)).map(|slot| slot.to_string());
            let command: Vec<String> = ["CLUSTER", "ADDSLOTS"].map(str::to_owned).into_iter().chain(slots).collect();
            master.command(&command);
        }
        let mut asked: Option<Instant> = None;
        eventually("the nodes of a cluster to meet", || {
            let views: Vec<Result<View, String>> = self.nodes.iter().map(View::of).collect();
            if views.iter().all(|view| view.as_ref().is_ok_and(|view| view.knows(self.size()))) {
                return Ok(());
            }
            // A handshake that is not over within the timeout of a node is forgotten without a word.
            if asked.is_none_or(|asked| asked.elapsed() > NODE_TIMEOUT) {
                for other in &self.nodes[1..] {
                    self.nodes[0].ask(&["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string()])?;
                }
                asked = Some(Instant::now());
            }
            Err(format!("the nodes know {views:?}"))
        });
        for (replica, id) in self.nodes[MASTERS..].iter().zip(&self.ids) {
            replica.command(&["CLUSTER", "REPLICATE", id]);
        }
    }

    /// What each node that runs says about itself.
    fn selves(&self) -> Vec<(usize, Member)> {
        let selves = self.running().filter_map(|index| Some((index, View::of(&self.nodes[index]).ok()?.myself())));
        selves.collect()
    }

    fn running(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.nodes.len()).filter(|index| self.nodes[*index].is_running())
    }

    fn health(&self) -> Result<(), String> {
        let running: Vec<usize> = self.running().collect();
        let ids: Vec<&str> = running.iter().map(|index| self.ids[*index].as_str()).collect();
        let mut agreed = None;
        for index in running.iter().copied() {
            let node = &self.nodes[index];
            let view = View::of(node).map_err(|error| format!("node {index}: {error}"))?;
            view.check(&ids).map_err(|wrong| format!("node {index}: {wrong}"))?;
            let owners = view.owners();
            let known = agreed.get_or_insert_with(|| owners.clone());
            if *known != owners {
                return Err(format!("node {index} says {owners:?}, others {known:?}"));
            }
            if node.ask(&["INFO", "replication"])?.text().contains("master_link_status:down") {
                return Err(format!("node {index} does not follow its master"));
            }
        }
        let mut elections = self.elections.lock().unwrap_or_else(PoisonError::into_inner);
        elections.note(&self.masters());
        match running.iter().find(|index| elections.are_remembered_by(**index)) {
            Some(index) => Err(format!("node {index} remembers the votes of its last election")),
            None => Ok(()),
        }
    }
}

/// Who was elected when.
///
/// A node that loses its place soon after its election counts the old votes
/// again when its new master dies: it takes itself for elected, in an epoch
/// that the others do not accept, and the cluster stays down (seen with Redis
/// 7.0). A cluster is healthy only when no replica is in that state.
#[derive(Debug, Default)]
struct Elections {
    masters: Vec<usize>,
    won: BTreeMap<usize, Instant>,
}

impl Elections {
    /// So long an election may take.
    const REMEMBERED: Duration = NODE_TIMEOUT.saturating_mul(4);

    fn note(&mut self, masters: &[usize]) {
        // The first masters were not elected.
        if !self.masters.is_empty() {
            let elected = masters.iter().filter(|index| !self.masters.contains(index));
            self.won.extend(elected.map(|index| (*index, Instant::now())));
        }
        self.masters = masters.to_vec();
    }

    fn are_remembered_by(&self, index: usize) -> bool {
        let won = self.won.get(&index).filter(|_| !self.masters.contains(&index));
        won.is_some_and(|won| won.elapsed() < Elections::REMEMBERED)
    }
}
