//! Clusters whose nodes are not voted out because a machine is busy.

use tidegate_testkit::servers::Cluster;

/// As long as a node may be silent before the others take it for dead: longer
/// than any machine keeps it waiting.
pub(crate) const UNHURRIED: &str = "60000";

/// Three masters, for tests in which none of them fails.
pub(crate) fn masters() -> Cluster {
    let cluster = Cluster::start_masters();
    set_node_timeout(&cluster, UNHURRIED);
    println!("running on three nodes of {}", cluster.node(0).program().version());
    cluster
}

/// How many milliseconds a node may be silent before the others take it for dead.
pub(crate) fn set_node_timeout(cluster: &Cluster, milliseconds: &str) {
    for node in 0..cluster.size() {
        cluster.node(node).command(&["CONFIG", "SET", "cluster-node-timeout", milliseconds]);
    }
}

/// As clients are told.
pub(crate) fn url_of(cluster: &Cluster) -> String {
    let hosts: Vec<String> = cluster.addresses().iter().map(ToString::to_string).collect();
    format!("redis+cluster://{}", hosts.join(","))
}
