//! A server that answers, but not as one would wish: full, busy, locked, wiped.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_testkit::servers::{Connection, Reply, Server, eventually};

use super::befalls_server;
use crate::bound::Damage;
use crate::fault::Fault;
use crate::findings::Findings;
use crate::pressure::{Pressure, state_of};
use crate::trial::Trial;

pub(super) const FAULTS: &[Fault] = &[
    Fault::new("script-flush", "SCRIPT FLUSH, again and again", "nothing, and no error", script_flush).quick(),
    Fault::new("flushall", "FLUSHALL", "one burst", flushall).quick(),
    Fault::new("flushall-strict", "FLUSHALL, in strict mode", "nothing", flushall_strict).quick(),
    Fault::new("full-noeviction", "OOM: no memory left, and nothing may be evicted", "nothing", full).quick(),
    Fault::new(
        "evicting-lru",
        "too little memory, and keys are evicted (allkeys-lru)",
        "a burst for each eviction",
        evicting,
    ),
    Fault::new(
        "wrong-type",
        "another client puts a hash where a state was",
        "one burst, once it is deleted",
        wrong_type,
    )
    .quick(),
    Fault::new(
        "garbage-value",
        "another client puts other text where a state was",
        "one burst, once it is deleted",
        garbage_value,
    )
    .quick(),
    Fault::new(
        "readonly",
        "READONLY: the server is made a replica of an empty one, then promoted",
        "one burst",
        readonly,
    )
    .quick(),
    Fault::new("loading", "LOADING: the server reads its data for some seconds", "nothing", loading).quick(),
    Fault::new("busy", "BUSY: another client's script does not end", "nothing", busy).quick(),
    Fault::new("asleep", "the server does nothing for a while (DEBUG SLEEP)", "nothing", asleep).quick(),
    Fault::new("misconf", "MISCONF: it cannot save, and refuses to write", "nothing", misconf).quick(),
    Fault::new("noreplicas", "NOREPLICAS: too few replicas to write", "nothing", noreplicas).quick(),
    Fault::new("noauth", "NOAUTH: a password is set, and clients do not know it", "nothing", noauth).quick(),
    Fault::new("acl-withdrawn", "NOPERM: the right to run scripts is taken away", "nothing", acl_withdrawn).quick(),
    Fault::new("client-kill", "CLIENT KILL of all connections, again and again", "nothing", client_kill).quick(),
    Fault::new("client-pause", "CLIENT PAUSE: no client is served for a while", "nothing", client_pause).quick(),
    Fault::new(
        "maxclients",
        "clients are thrown out, and others take all connections that there may be",
        "nothing",
        maxclients,
    )
    .quick(),
];

fn script_flush(trial: &mut Trial) -> Findings {
    trial.be_patient();
    befalls_server(trial, &[], Damage::NONE, |_, server, pressure| {
        for _ in 0..10 {
            server.command(&["SCRIPT", "FLUSH"]);
            pressure.go_on();
        }
    })
    .without_errors()
}

fn flushall(trial: &mut Trial) -> Findings {
    befalls_server(trial, &[], Damage::losses(1), |_, server, _| _ = server.command(&["FLUSHALL"]))
}

fn flushall_strict(trial: &mut Trial) -> Findings {
    let server = Server::start();
    let pressure = Pressure::strict(trial, &server.url());
    pressure.settle();
    server.command(&["FLUSHALL"]);
    pressure.recover();
    pressure.judge(Damage::NONE)
}

fn full(trial: &mut Trial) -> Findings {
    befalls_server(trial, &[], Damage::NONE, |trial, server, pressure| {
        server.command(&["CONFIG", "SET", "maxmemory", "1"]);
        pressure.suffer();
        pressure.endure(trial.about(Duration::from_millis(300)));
        server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    })
}

fn evicting(trial: &mut Trial) -> Findings {
    const EVICTED: &str = "__keyevent@0__:evicted";
    const OVER: &str = "over";
    let server = Server::start_with(&[("maxmemory-policy", "allkeys-lru"), ("notify-keyspace-events", "Ee")]);
    let pressure = Pressure::greedy(trial, &trial.store(&server.url()));
    pressure.settle();
    let mut listener = Connection::open(server.address()).expect("a connection");
    listener.command(&["SUBSCRIBE", EVICTED]).expect("a reply");
    listener.command(&["SUBSCRIBE", OVER]).expect("a reply");
    let used: u64 = server.info("memory", "used_memory").parse().expect("a number");
    server.command(&["CONFIG", "SET", "maxmemory", &(used + 100_000).to_string()]);
    let filler = "x".repeat(10_000);
    for number in 0..300 {
        // Refused where nothing is left to evict.
        let _ = server.try_command(&["SET", &format!("filler{number}"), &filler]);
    }
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    server.command(&["PUBLISH", OVER, ""]);
    let events = std::iter::repeat_with(|| listener.receive().expect("an event"));
    let evicted: Vec<Reply> = events.take_while(|event| event.items()[1].text() != OVER).collect();
    let ours = evicted.iter().filter(|event| event.items()[2].text().contains("greedy")).count() as u64;
    pressure.recover();
    let mut findings = pressure.judge(Damage::losses(ours));
    findings.claim(!evicted.is_empty(), || "nothing was evicted".into());
    findings.notes.push(format!("{} evictions, {ours} of them of the state", evicted.len()));
    findings
}

/// Puts something else where the state is, and deletes it after a while.
fn replaced(trial: &mut Trial, foreign: &[&str]) -> Findings {
    befalls_server(trial, &[], Damage::losses(1), |trial, server, pressure| {
        server.command(foreign);
        let name = state_of(server, "chaos:*greedy*");
        server.command(&["RENAME", "foreign", &name]);
        pressure.suffer();
        pressure.endure(trial.about(Duration::from_millis(200)));
        server.command(&["DEL", &name]);
    })
}

fn wrong_type(trial: &mut Trial) -> Findings {
    replaced(trial, &["HSET", "foreign", "field", "value"])
}

fn garbage_value(trial: &mut Trial) -> Findings {
    replaced(trial, &["SET", "foreign", "this is no state"])
}

fn readonly(trial: &mut Trial) -> Findings {
    let master = Server::start();
    befalls_server(trial, &[], Damage::losses(1), |trial, server, pressure| {
        server.command(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
        pressure.suffer();
        pressure.endure(trial.about(Duration::from_millis(300)));
        server.command(&["REPLICAOF", "NO", "ONE"]);
    })
}

fn loading(trial: &mut Trial) -> Findings {
    let directives = [("enable-debug-command", "yes"), ("loading-process-events-interval-bytes", "1024")];
    befalls_server(trial, &directives, Damage::NONE, |_, server, pressure| {
        server.command(&["DEBUG", "POPULATE", "4000"]);
        // Microseconds a key: twice the deadline, and longer where sleeps are coarse.
        server.command(&["CONFIG", "SET", "key-load-delay", "1000"]);
        pressure.suffer_from(|| _ = server.command(&["DEBUG", "RELOAD"]));
    })
}

fn busy(trial: &mut Trial) -> Findings {
    befalls_server(trial, &[("busy-reply-threshold", "20")], Damage::NONE, |trial, server, pressure| {
        let mut other = Connection::open(server.address()).expect("a connection");
        other.send(&["EVAL", "while true do end", "0"]).expect("sent");
        pressure.suffer();
        pressure.endure(trial.about(Duration::from_millis(300)));
        eventually("the script to be killed", || match server.try_command(&["SCRIPT", "KILL"]) {
            Ok(reply) if !reply.is_error() => Ok(()),
            other => Err(format!("{other:?}")),
        });
    })
}

fn asleep(trial: &mut Trial) -> Findings {
    befalls_server(trial, &[("enable-debug-command", "yes")], Damage::NONE, |_, server, pressure| {
        pressure.suffer_from(|| _ = server.command(&["DEBUG", "SLEEP", "4"]));
    })
}

fn misconf(trial: &mut Trial) -> Findings {
    let directives = [("dbfilename", "taken"), ("save", "3600 1")];
    befalls_server(trial, &directives, Damage::NONE, |trial, server, pressure| {
        let directory = server.command(&["CONFIG", "GET", "dir"]).items()[1].text();
        let taken = PathBuf::from(directory).join("taken");
        // A folder of that name is in the way of the file.
        fs::create_dir(&taken).expect("a folder");
        server.command(&["BGSAVE"]);
        pressure.suffer();
        pressure.endure(trial.about(Duration::from_millis(300)));
        fs::remove_dir(&taken).expect("an empty folder");
        server.command(&["BGSAVE"]);
    })
}

fn noreplicas(trial: &mut Trial) -> Findings {
    befalls_server(trial, &[], Damage::NONE, |trial, server, pressure| {
        server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
        pressure.suffer();
        pressure.endure(trial.about(Duration::from_millis(300)));
        server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    })
}

fn noauth(trial: &mut Trial) -> Findings {
    befalls_server(trial, &[], Damage::NONE, |trial, server, pressure| {
        let mut admin = Connection::open(server.address()).expect("a connection");
        let mut say = |words: &[&str]| admin.command(words).expect("a reply");
        say(&["CONFIG", "SET", "requirepass", "secret"]);
        say(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        pressure.suffer();
        pressure.endure(trial.about(Duration::from_millis(300)));
        say(&["CONFIG", "SET", "requirepass", ""]);
    })
}

fn acl_withdrawn(trial: &mut Trial) -> Findings {
    befalls_server(trial, &[], Damage::NONE, |trial, server, pressure| {
        server.command(&["ACL", "SETUSER", "default", "-eval", "-evalsha"]);
        pressure.suffer();
        pressure.endure(trial.about(Duration::from_millis(300)));
        server.command(&["ACL", "SETUSER", "default", "+eval", "+evalsha"]);
    })
}

fn client_kill(trial: &mut Trial) -> Findings {
    befalls_server(trial, &[], Damage::NONE, |trial, server, pressure| {
        for _ in 0..8 {
            server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
            pressure.endure(trial.about(Duration::from_millis(100)));
        }
    })
}

fn client_pause(trial: &mut Trial) -> Findings {
    befalls_server(trial, &[], Damage::NONE, |_, server, pressure| {
        pressure.suffer_from(|| {
            server.command(&["CLIENT", "PAUSE", "4000", "ALL"]);
            // Answered when the pause is over.
            server.command(&["PING"]);
        });
    })
}

fn maxclients(trial: &mut Trial) -> Findings {
    befalls_server(trial, &[], Damage::NONE, |trial, server, pressure| {
        let open = || Connection::open(server.address()).expect("a connection");
        let (mut admin, mut others): (_, Vec<Connection>) = (open(), (0..20).map(|_| open()).collect());
        // A connection that listens is not a normal one: it is there when the others are thrown out.
        for other in &mut others {
            other.command(&["SUBSCRIBE", "anything"]).expect("a reply");
        }
        admin.command(&["CONFIG", "SET", "maxclients", "8"]).expect("a reply");
        admin.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).expect("a reply");
        pressure.suffer();
        pressure.endure(trial.about(Duration::from_millis(300)));
        drop(others);
        admin.command(&["CONFIG", "SET", "maxclients", "1000"]).expect("a reply");
    })
}
