//! A cluster: a link to each node, and which node has which slot.
//!
//! A node that is down blocks no calls to the others, so nothing here waits for
//! all of them. The map of the slots is asked of all nodes at once, and is
//! settled when more than half have answered. It may be old by the time it is
//! used; the nodes themselves say so, and where to go instead.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, Shared};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use redis::{Client, ConnectionAddr, ConnectionInfo, Value};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::failure::RedisFailure;
use crate::key::SLOTS;
use crate::link::{Link, out_of_time};
use crate::servers::Origin;

/// Between two background refreshes of the map.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

pub(crate) struct Cluster {
    /// How to reach any node: as the first one that was named.
    pattern: ConnectionInfo,
    named: Vec<Address>,
    connect_timeout: Duration,
    runtime: Handle,
    map: Mutex<Map>,
}

/// Where a node listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

#[derive(Default)]
struct Map {
    nodes: HashMap<Address, Arc<Link>>,
    /// By slot; empty until the first answer.
    masters: Vec<Option<Arc<Link>>>,
    look: Option<Look>,
    looked: Option<Instant>,
}

type Look = Shared<BoxFuture<'static, Result<(), RedisFailure>>>;

/// What a node says of the cluster.
struct View {
    /// First and last slot of each range, and its master.
    masters: Vec<(u16, u16, Address)>,
    nodes: Vec<Address>,
}

impl Cluster {
    /// The cluster of these nodes, of which not all need to be named.
    pub(crate) fn new(named: &[Client], connect_timeout: Duration, runtime: Handle) -> Arc<Cluster> {
        let infos = named.iter().map(Client::get_connection_info);
        let pattern = infos.clone().next().expect("a cluster is of at least one node").clone();
        let named: Vec<Address> = infos.filter_map(|info| address_of(info.addr())).collect();
        let cluster = Cluster { pattern, named, connect_timeout, runtime, map: Mutex::default() };
        for address in &cluster.named {
            cluster.link_in(&mut cluster.map(), address);
        }
        Arc::new(cluster)
    }

    fn map(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The link to a node.
    pub(crate) fn node(&self, address: &Address) -> Arc<Link> {
        self.link_in(&mut self.map(), address)
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

    /// Notes what a node said, until the whole map is seen again.
    pub(crate) fn moved(self: &Arc<Self>, slot: u16, master: &Arc<Link>) {
        if let Some(known) = self.map().masters.get_mut(usize::from(slot)) {
            *known = Some(Arc::clone(master));
        }
        self.doubt();
    }

    /// Has the map looked at again, unless that was done a moment ago.
    pub(crate) fn doubt(self: &Arc<Self>) {
        let mut map = self.map();
        if map.looked.is_none_or(|looked| looked.elapsed() >= BETWEEN_LOOKS) {
            drop(self.look_in(&mut map));
        }
    }

    /// Looks at the map again.
    pub(crate) async fn look(self: &Arc<Self>) -> Result<(), RedisFailure> {
        let look = self.look_in(&mut self.map());
        look.await
    }

    fn link_in(&self, map: &mut Map, address: &Address) -> Arc<Link> {
        let link = || {
            let info = self.pattern.clone().set_addr(at(self.pattern.addr(), address));
            Link::new(Origin::Server(Box::new(info)), self.connect_timeout, self.runtime.clone())
        };
        Arc::clone(map.nodes.entry(address.clone()).or_insert_with(link))
    }

    /// The look that is under way, or a new one.
    fn look_in(self: &Arc<Self>, map: &mut Map) -> Look {
        if let Some(look) = &map.look {
            return look.clone();
        }
        let cluster = Arc::clone(self);
        let look = self.runtime.spawn(async move {
            let seen = cluster.ask_nodes().await;
            let mut map = cluster.map();
            map.look = None;
            map.looked = Some(Instant::now());
            cluster.settle(&mut map, &seen?);
            Ok(())
        });
        let look = look.map(|joined| joined.unwrap_or(Err(RedisFailure::Garbled { what: "the map of a cluster" })));
        let look = look.boxed().shared();
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
                range.fill(Some(master));
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
        let mut view = View { masters: Vec::new(), nodes: Vec::new() };
        for range in items(value)? {
            let [first, last, nodes @ ..] = items(range)? else { return None };
            let nodes: Vec<Address> = nodes.iter().filter_map(|node| node_address(node, replied)).collect();
            let master = nodes.first()?.clone();
            view.masters.push((number(first)?, number(last)?, master));
            for node in nodes {
                if !view.nodes.contains(&node) {
                    view.nodes.push(node);
                }
            }
        }
        view.masters.sort_unstable_by_key(|(first, ..)| *first);
        (!view.masters.is_empty()).then_some(view)
    }
}

fn items(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(items) => Some(items),
        _ => None,
    }
}

fn number(value: &Value) -> Option<u16> {
    match value {
        Value::Int(number) => u16::try_from(*number).ok(),
        _ => None,
    }
}

fn node_address(node: &Value, replied: &Address) -> Option<Address> {
    let [host, port, ..] = items(node)? else { return None };
    let host = match host {
        Value::BulkString(host) => std::str::from_utf8(host).ok()?,
        _ => "",
    };
    let host = if host.is_empty() || host == "?" { &replied.host } else { host };
    Some(Address { host: host.to_owned(), port: number(port)? })
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
        assert_eq!(view.nodes, [master, Address { host: "b".into(), port: 7_001 }]);
    }

    #[test]
    fn a_reply_without_a_slot_is_none() {
        let replied = Address { host: "a".into(), port: 7_000 };
        assert!(View::read(&Value::Array(Vec::new()), &replied).is_none());
        assert!(View::read(&Value::Nil, &replied).is_none());
    }
}
