//! What a fault is.

use std::fmt;

use crate::findings::Findings;
use crate::trial::Trial;

/// One kind of misfortune.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// What it is called, for `--only`.
    pub name: &'static str,
    /// What happens.
    pub what: &'static str,
    /// What it may cost.
    pub costs: &'static str,
    /// What it takes.
    pub needs: Needs,
    /// Whether it is part of what CI runs.
    pub is_quick: bool,
    pub(crate) happens: fn(&mut Trial) -> Findings,
}

/// What a machine must offer for a fault to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing but the servers.
    Nothing,
    /// A network and mounts of our own, and a packet filter: Linux, root, iptables.
    Namespace,
    /// A C compiler, for the library that shifts a program's clock.
    Compiler,
    /// The binary `tidegate`, which `cargo xtask verify chaos` builds.
    Tidegate,
    /// The same, and namespaces.
    TidegateInNamespace,
    /// The same, and a C compiler.
    TidegateAndCompiler,
}

/// What faults have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Processes that end, stop and come back.
    Process,
    /// A server that answers, but not as one would wish.
    Replies,
    /// What lies between a client and its server.
    Network,
    /// Six nodes that fail over.
    Cluster,
    /// A master, two replicas, three sentinels.
    Sentinel,
    /// Time.
    Clock,
    /// The binary `tidegate`.
    Server,
    /// A store in memory.
    Memory,
}

impl Fault {
    /// One that takes a moment and needs nothing.
    pub(crate) const fn new(
        name: &'static str,
        what: &'static str,
        costs: &'static str,
        happens: fn(&mut Trial) -> Findings,
    ) -> Fault {
        Fault { name, what, costs, needs: Needs::Nothing, is_quick: false, happens }
    }

    /// One that CI runs each time.
    pub(crate) const fn quick(self) -> Fault {
        Fault { is_quick: true, ..self }
    }

    pub(crate) const fn needs(self, needs: Needs) -> Fault {
        Fault { needs, ..self }
    }
}

impl Family {
    /// All of them, in the order of reports.
    pub const ALL: [Family; 8] = [
        Family::Process,
        Family::Replies,
        Family::Network,
        Family::Cluster,
        Family::Sentinel,
        Family::Clock,
        Family::Server,
        Family::Memory,
    ];
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Family::Process => "process",
            Family::Replies => "replies",
            Family::Network => "network",
            Family::Cluster => "cluster",
            Family::Sentinel => "sentinel",
            Family::Clock => "clock",
            Family::Server => "server",
            Family::Memory => "memory",
        })
    }
}
