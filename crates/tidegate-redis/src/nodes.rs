//! The servers: one that has all states in a single slot, or a cluster with a link to each node,
//! and which node has which slot.
//!
//! A node that is down blocks no calls to the others, so nothing here waits for
//! all of them. The map of the slots is asked of all nodes at once, and is
//! settled when more than half have answered. It may be old by the time it is
//! used; the nodes themselves say so, and where to go instead.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{Client, ConnectionAddr, ConnectionInfo, Value, from_redis_value_ref};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::failure::{Redirect, RedisFailure};
use crate::key::{SLOTS, slot};
use crate::link::{Link, out_of_time};
use crate::runtime::{Attempt, attempt};
use crate::servers::{Origin, Topology};

/// Between two background refreshes of the map.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

pub(crate) struct Nodes {
    /// How to reach any node of a cluster: as the first one that was named.
    pattern: Option<ConnectionInfo>,
    named: Vec<Address>,
    connect_timeout: Duration,
    runtime: Handle,
    map: Mutex<Map>,
}

/// Where a node listens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Address {
    host: String,
    port: u16,
}

#[derive(Default)]
struct Map {
    nodes: HashMap<Address, Arc<Link>>,
    /// By slot; empty until the first answer.
    masters: Vec<Option<Arc<Link>>>,
    look: Option<Attempt>,
    looked: Option<Instant>,
}

/// What a node says of the cluster.
struct View {
    /// First and last slot of each range, and its master.
    masters: Vec<(u16, u16, Address)>,
    nodes: HashSet<Address>,
}

impl Nodes {
    /// One server, or the cluster of some nodes, of which not all need to be named.
    pub(crate) fn new(topology: Topology, connect_timeout: Duration, runtime: Handle) -> Arc<Nodes> {
        let (named, map) = (Vec::new(), Mutex::default());
        let mut nodes = Nodes { pattern: None, named, connect_timeout, runtime, map };
        match topology {
            Topology::One(origin) => {
                let link = Link::new(origin, connect_timeout, nodes.runtime.clone());
                let mut map = nodes.map();
                map.masters.push(Some(Arc::clone(&link)));
                map.nodes.insert(Address::default(), link);
            }
            Topology::Cluster(clients) => {
                let infos = clients.iter().map(Client::get_connection_info);
                nodes.pattern = infos.clone().next().cloned();
                nodes.named = infos.filter_map(|info| address_of(info.addr())).collect();
                for address in &nodes.named {
                    nodes.link_in(&mut nodes.map(), address);
                }
            }
        }
        Arc::new(nodes)
    }

    /// How many slots there are.
    pub(crate) fn slots(&self) -> u16 {
        if self.pattern.is_some() { SLOTS } else { 1 }
    }

    /// The slot of a state.
    pub(crate) fn slot(&self, key: &[u8]) -> u16 {
        slot(key) % self.slots()
    }

    fn map(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All nodes that are known.
    pub(crate) fn links(&self) -> Vec<Arc<Link>> {
        self.map().nodes.values().cloned().collect()
    }

    /// The master of a slot, if the cluster knows one.
    pub(crate) async fn master(self: &Arc<Self>, slot: u16) -> Result<Option<Arc<Link>>, RedisFailure> {
        let look = {
            let mut map = self.map();
            if let Some(master) = map.masters.get(usize::from(slot)) {
                return Ok(master.clone());
            }
            self.look_in(&mut map)
        };
        look.await?;
        Ok(self.map().masters.get(usize::from(slot)).cloned().flatten())
    }

    /// The node of a cluster that has the slot, by the word of another; noted until the whole map is seen again.
    pub(crate) fn follow(self: &Arc<Self>, slot: u16, said_by: &Arc<Link>, redirect: &Redirect) -> Option<Arc<Link>> {
        let mut map = self.map();
        let host = match redirect.host.is_empty() {
            true => map.nodes.iter().find(|(_, link)| Arc::ptr_eq(link, said_by))?.0.host.clone(),
            false => redirect.host.clone(),
        };
        let node = self.link_in(&mut map, &Address { host, port: redirect.port })?;
        if let Some(master) = map.masters.get_mut(usize::from(slot)).filter(|_| !redirect.asking) {
            *master = Some(Arc::clone(&node));
        }
        drop(map);
        if !redirect.asking {
            self.doubt();
        }
        Some(node)
    }

    /// Whether the slot is elsewhere, by the map as it is now.
    pub(crate) async fn has_moved(self: &Arc<Self>, slot: u16, from: &Arc<Link>) -> bool {
        let looked = self.look().await.is_ok();
        looked && self.master(slot).await.is_ok_and(|master| master.is_some_and(|master| !Arc::ptr_eq(&master, from)))
    }

    /// Has the map looked at again, unless that was done a moment ago.
    pub(crate) fn doubt(self: &Arc<Self>) {
        let mut map = self.map();
        if self.pattern.is_some() && map.looked.is_none_or(|looked| looked.elapsed() >= BETWEEN_LOOKS) {
            drop(self.look_in(&mut map));
        }
    }

    /// Looks at the map again; that of one server is always the same.
    pub(crate) async fn look(self: &Arc<Self>) -> Result<(), RedisFailure> {
        if self.pattern.is_none() {
            return Ok(());
        }
        let look = self.look_in(&mut self.map());
        look.await
    }

    /// The link to a node of a cluster.
    fn link_in(&self, map: &mut Map, address: &Address) -> Option<Arc<Link>> {
        let pattern = self.pattern.as_ref()?;
        let link = || {
            let info = pattern.clone().set_addr(at(pattern.addr(), address));
            Link::new(Origin::Server(Box::new(info)), self.connect_timeout, self.runtime.clone())
        };
        Some(Arc::clone(map.nodes.entry(address.clone()).or_insert_with(link)))
    }

    /// The look that is under way, or a new one.
    fn look_in(self: &Arc<Self>, map: &mut Map) -> Attempt {
        if let Some(look) = &map.look {
            return look.clone();
        }
        let nodes = Arc::clone(self);
        let look = attempt(&self.runtime, "the map of a cluster", async move {
            let seen = nodes.ask_nodes().await;
            let mut map = nodes.map();
            map.look = None;
            map.looked = Some(Instant::now());
            nodes.settle(&mut map, &seen?);
            Ok(())
        });
        map.look = Some(look.clone());
        look
    }

    /// What the nodes say, as soon as more than half have said it.
    async fn ask_nodes(&self) -> Result<Vec<View>, RedisFailure> {
        let nodes = self.map().nodes.clone();
        let enough = nodes.len() / 2 + 1;
        let mut asked: FuturesUnordered<_> =
            nodes.into_iter().map(|(address, link)| ask_node(address, link, self.connect_timeout)).collect();
        let mut views = Vec::new();
        let mut failure = RedisFailure::Garbled { what: "the map of a cluster" };
        while let Some(answer) = asked.next().await {
            match answer {
                Ok(view) => views.push(view),
                Err(error) => failure = error,
            }
            if views.len() == enough {
                break;
            }
        }
        if views.is_empty() { Err(failure) } else { Ok(views) }
    }

    /// Takes over what most nodes say.
    fn settle(&self, map: &mut Map, views: &[View]) {
        let alike = |view: &View| views.iter().filter(|other| other.masters == view.masters).count();
        let Some(best) = views.iter().max_by_key(|view| alike(view)) else { return };
        map.nodes.retain(|address, _| best.nodes.contains(address) || self.named.contains(address));
        for address in &best.nodes {
            self.link_in(map, address);
        }
        map.masters = vec![None; usize::from(SLOTS)];
        for (first, last, master) in &best.masters {
            let master = self.link_in(map, master);
            if let Some(range) = map.masters.get_mut(usize::from(*first)..=usize::from(*last)) {
                range.fill(master);
            }
        }
    }
}

async fn ask_node(address: Address, link: Arc<Link>, connect_timeout: Duration) -> Result<View, RedisFailure> {
    let (mut connection, generation) = link.connection().await?;
    let command = redis::cmd("CLUSTER").arg("SLOTS").take();
    let failed = |error| RedisFailure::Connection { source: Arc::new(error) };
    match timeout(connect_timeout, command.query_async(&mut connection)).await {
        Ok(Ok(value)) => View::read(&value, &address).ok_or(RedisFailure::Garbled { what: "the map of a cluster" }),
        Ok(Err(error)) => {
            if error.is_io_error() {
                link.lost(generation);
            }
            Err(failed(error))
        }
        Err(_) => {
            link.suspect(generation);
            Err(failed(out_of_time()))
        }
    }
}

impl View {
    /// From the reply to `CLUSTER SLOTS`; a node without a name is the one that replied.
    fn read(value: &Value, replied: &Address) -> Option<View> {
        let mut view = View { masters: Vec::new(), nodes: HashSet::new() };
        for range in value.as_sequence()? {
            let [first, last, nodes @ ..] = range.as_sequence()? else { return None };
            let nodes: Vec<Address> = nodes.iter().filter_map(|node| node_address(node, replied)).collect();
            let master = nodes.first()?.clone();
            view.masters.push((from_redis_value_ref(first).ok()?, from_redis_value_ref(last).ok()?, master));
            view.nodes.extend(nodes);
        }
        view.masters.sort_unstable_by_key(|(first, ..)| *first);
        (!view.masters.is_empty()).then_some(view)
    }
}

fn node_address(node: &Value, replied: &Address) -> Option<Address> {
    let [host, port, ..] = node.as_sequence()? else { return None };
    let host: Option<String> = from_redis_value_ref(host).ok()?;
    let host = host.filter(|host| !host.is_empty() && host != "?").unwrap_or_else(|| replied.host.clone());
    Some(Address { host, port: from_redis_value_ref(port).ok()? })
}

fn address_of(addr: &ConnectionAddr) -> Option<Address> {
    match addr {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Some(Address { host: host.clone(), port: *port })
        }
        _ => None,
    }
}

/// The address as the pattern has it, with or without TLS.
fn at(pattern: &ConnectionAddr, address: &Address) -> ConnectionAddr {
    let Address { host, port } = address.clone();
    match pattern {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host, port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn node(host: Value, port: i64) -> Value {
        Value::Array(vec![host, Value::Int(port), text("id"), Value::Array(Vec::new())])
    }

    #[test]
    fn a_node_without_a_name_is_the_one_that_replied() {
        let range = Value::Array(vec![Value::Int(0), Value::Int(9), node(Value::Nil, 7_000), node(text("b"), 7_001)]);
        let replied = Address { host: "a".into(), port: 7_001 };
        let view = View::read(&Value::Array(vec![range]), &replied).expect("a reply of one range");
        let master = Address { host: "a".into(), port: 7_000 };
        assert_eq!(view.masters, [(0, 9, master.clone())]);
        assert_eq!(view.nodes, HashSet::from([master, Address { host: "b".into(), port: 7_001 }]));
    }

    #[test]
    fn a_reply_without_a_slot_is_none() {
        let replied = Address { host: "a".into(), port: 7_000 };
        assert!(View::read(&Value::Array(Vec::new()), &replied).is_none());
        assert!(View::read(&Value::Nil, &replied).is_none());
    }
}
