//! A master with two replicas, and three sentinels that watch over them.

use std::net::SocketAddr;

use super::connection::Reply;
use super::eventually;
use super::gate::Permit;
use super::process::Directory;
use super::program::Program;
use super::server::{Role, Server, field_of};

const NAME: &str = "tidegate";
const SERVERS: usize = 3;
const SENTINELS: usize = 3;

/// A master, two replicas and three sentinels on loopback; killed when dropped.
///
/// At first server 0 is the master. Two sentinels must agree, after three seconds
/// of silence, that it is down: less is also what a busy machine takes to answer.
///
/// ```no_run
/// use tidegate_testkit::servers::SentinelSet;
///
/// let set = SentinelSet::start();
/// let before = set.current_master();
/// set.server(before).kill();
/// assert_ne!(set.wait_for_another_master(before), before);
/// ```
#[derive(Debug)]
pub struct SentinelSet {
    servers: Vec<Server>,
    sentinels: Vec<Server>,
    _permit: Permit,
}

impl SentinelSet {
    /// Starts one, and waits until the sentinels know each other and the
    /// replicas: about three seconds.
    ///
    /// # Panics
    ///
    /// When that does not come about. So do the other ways to start one.
    pub fn start() -> SentinelSet {
        SentinelSet::start_with(&[])
    }

    /// Starts one with further directives for the three servers.
    pub fn start_with(directives: &[(&str, &str)]) -> SentinelSet {
        SentinelSet::start_on(&Program::from_environment(), directives)
    }

    /// Starts one of a given program.
    pub fn start_on(program: &Program, directives: &[(&str, &str)]) -> SentinelSet {
        let permit = Permit::wait(SERVERS + SENTINELS);
        let master = Server::start_on(program, directives);
        let address = format!("127.0.0.1 {}", master.port());
        let mut servers = vec![master];
        let directives = [&[("replicaof", address.as_str())], directives].concat();
        servers.extend((1..SERVERS).map(|_| Server::start_on(program, &directives)));
        // Sentinels look for replicas when they start, and then only every ten seconds.
        eventually("replicas to follow", || followers(&servers, 0));
        let watch = [
            format!("monitor {NAME} {address} 2"),
            format!("down-after-milliseconds {NAME} 3000"),
            format!("failover-timeout {NAME} 9000"),
            format!("parallel-syncs {NAME} 2"),
        ];
        let watch: Vec<(&str, &str)> = watch.iter().map(|line| ("sentinel", line.as_str())).collect();
        let start = |_| Server::launch(program, Role::Sentinel, Directory::in_memory(), &watch);
        let set = SentinelSet { servers, sentinels: (0..SENTINELS).map(start).collect(), _permit: permit };
        set.wait_until_healthy();
        set
    }

    /// The name by which the sentinels know the master.
    pub fn master_name(&self) -> &'static str {
        NAME
    }

    /// Where the sentinels listen.
    pub fn sentinel_addresses(&self) -> Vec<SocketAddr> {
        self.sentinels.iter().map(Server::address).collect()
    }

    /// Where the sentinels listen, as clients are told.
    pub fn sentinel_urls(&self) -> Vec<String> {
        self.sentinels.iter().map(Server::url).collect()
    }

    /// One of the three servers, to command, pause, kill or restart.
    ///
    /// # Panics
    ///
    /// When there are not so many.
    pub fn server(&self, index: usize) -> &Server {
        &self.servers[index]
    }

    /// One of the three sentinels.
    ///
    /// # Panics
    ///
    /// When there are not so many.
    pub fn sentinel(&self, index: usize) -> &Server {
        &self.sentinels[index]
    }

    /// The server that every sentinel that runs takes for the master; waits
    /// until they agree.
    ///
    /// # Panics
    ///
    /// When they do not.
    pub fn current_master(&self) -> usize {
        eventually("sentinels to agree on a master", || self.agreed_master())
    }

    /// Makes another server the master (`SENTINEL FAILOVER`), and returns it.
    ///
    /// # Panics
    ///
    /// When it does not come about.
    pub fn failover(&self) -> usize {
        let before = self.current_master();
        let sentinel = self.sentinels.iter().find(|sentinel| sentinel.is_running()).expect("a sentinel that runs");
        // Refused while no replica is fit, or a failover is under way, which passes.
        eventually("a failover to begin", || sentinel.ask(&["SENTINEL", "FAILOVER", NAME]));
        self.wait_for_another_master(before)
    }

    /// Waits until the sentinels that run agree on another master than the one
    /// `before`, and returns it.
    ///
    /// # Panics
    ///
    /// When it takes too long.
    pub fn wait_for_another_master(&self, before: usize) -> usize {
        eventually("another master", || match self.agreed_master()? {
            master if master == before => Err(format!("it is still server {master}")),
            master => Ok(master),
        })
    }

    /// Waits until the sentinels that run agree on a master, every server that
    /// runs follows it, and another failover could begin.
    ///
    /// After a failover this takes about ten seconds: so long the sentinels
    /// wait before they turn the old master into a replica.
    ///
    /// # Panics
    ///
    /// When it takes too long.
    pub fn wait_until_healthy(&self) {
        eventually("a healthy set", || {
            followers(&self.servers, self.agreed_master()?)?;
            let count = |servers: &[Server]| servers.iter().filter(|server| server.is_running()).count();
            let (others, replicas) = (count(&self.sentinels) - 1, count(&self.servers) - 1);
            for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.is_running()) {
                let fit = |what: &str| {
                    let all = sentinel.command(&["SENTINEL", what, NAME]);
                    all.items().iter().filter(|entry| is_up(&entry_of(entry, "flags"))).count()
                };
                let (others_fit, replicas_fit) = (fit("SENTINELS"), fit("REPLICAS"));
                if others_fit < others || replicas_fit < replicas {
                    return Err(format!("a sentinel sees {others_fit} sentinels and {replicas_fit} replicas"));
                }
            }
            Ok(())
        });
    }

    fn agreed_master(&self) -> Result<usize, String> {
        let mut ports = Vec::new();
        for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.is_running()) {
            let address = sentinel.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME])?;
            ports.push(address.items().get(1).map(Reply::integer));
        }
        ports.dedup();
        let [Some(port)] = ports.as_slice() else { return Err(format!("the sentinels name the ports {ports:?}")) };
        let named = self.servers.iter().position(|server| i64::from(server.port()) == *port);
        let index = named.ok_or_else(|| format!("no server has the port {port}"))?;
        let server = &self.servers[index];
        if !server.is_running() {
            return Err(format!("server {index} does not run"));
        }
        let role = server.ask(&["INFO", "replication"])?.text();
        if field_of(&role, "role").as_deref() == Some("master") { Ok(index) } else { Err(role) }
    }
}

/// Whether every other server that runs follows the master.
fn followers(servers: &[Server], master: usize) -> Result<(), String> {
    let port = servers[master].port().to_string();
    for (index, server) in servers.iter().enumerate().filter(|(index, server)| *index != master && server.is_running())
    {
        let info = server.ask(&["INFO", "replication"])?.text();
        let is = |field, value: &str| field_of(&info, field).as_deref() == Some(value);
        if !(is("master_port", &port) && is("master_link_status", "up")) {
            return Err(format!("server {index} does not follow the port {port}:\n{info}"));
        }
    }
    Ok(())
}

fn is_up(flags: &str) -> bool {
    !flags.split(',').any(|flag| ["s_down", "o_down", "disconnected"].contains(&flag))
}

/// A field of a reply that lists names and values in turn.
fn entry_of(entry: &Reply, name: &str) -> String {
    let pairs: Vec<String> = entry.items().iter().map(Reply::text).collect();
    pairs.chunks_exact(2).find(|pair| pair[0] == name).map(|pair| pair[1].clone()).unwrap_or_default()
}
