//! The servers, clusters and faults of the testkit, on the real programs.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use tidegate_testkit::servers::{
    ChaosProxy, ClientCertificates, Cluster, Connection, Fault, Program, Reply, SentinelSet, Server, TlsServer,
    eventually, slot_of,
};

fn ok() -> Reply {
    Reply::Status("OK".into())
}

mod server {
    use super::*;

    #[test]
    fn the_program_tells_its_version() {
        let program = Program::from_environment();
        println!("running on {}", program.version());
        let number = program.version().rsplit(' ').next().expect("a name and a number");
        let server = Server::start();
        let told = ["valkey_version", "redis_version"].map(|field| {
            let info = server.command(&["INFO", "server"]).text();
            info.lines().any(|line| line.trim() == format!("{field}:{number}"))
        });
        assert!(told.contains(&true), "{number}");
    }

    #[test]
    #[should_panic(expected = "run `cargo xtask install`")]
    fn a_missing_program_says_what_to_do() {
        let _ = Program::at("no-such-server");
    }

    #[test]
    fn it_answers_on_its_port_and_its_socket() {
        let server = Server::start();
        let mut tcp = Connection::open(server.address()).expect("it listens");
        assert_eq!(tcp.command(&["SET", "tide", "high"]).expect("a reply"), ok());
        let mut unix = Connection::open_unix(&server.unix_socket()).expect("it listens");
        assert_eq!(unix.command(&["GET", "tide"]).expect("a reply").text(), "high");
        assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.port()));
        assert_eq!(server.info("server", "tcp_port"), server.port().to_string());
    }

    #[test]
    fn directives_are_taken_and_a_password_is_used() {
        let server = Server::start_with(&[("maxmemory", "2mb"), ("requirepass", "neap")]);
        assert_eq!(server.info("memory", "maxmemory"), "2097152");
        assert_eq!(server.url(), format!("redis://:neap@127.0.0.1:{}", server.port()));
        let mut stranger = Connection::open(server.address()).expect("it listens");
        assert!(stranger.command(&["PING"]).expect("a reply").is_error());
    }

    #[test]
    #[should_panic(expected = "did not start")]
    fn a_directive_that_is_none_shows_the_log() {
        let _ = Server::start_with(&[("tide", "high")]);
    }

    #[test]
    fn a_restart_keeps_the_port_and_loses_the_data() {
        let server = Server::start();
        let port = server.port();
        server.command(&["SET", "tide", "high"]);
        server.restart();
        assert_eq!(server.command(&["GET", "tide"]), Reply::Nil);
        server.terminate();
        assert!(!server.is_running());
        server.restart();
        assert!(server.is_running());
        assert_eq!(server.port(), port);
        assert!(Connection::open(server.address()).is_ok());
    }

    #[test]
    fn a_restart_keeps_what_was_appended_to_a_file() {
        let server = Server::start_with(&[("appendonly", "yes"), ("appendfsync", "always")]);
        server.command(&["SET", "tide", "high"]);
        server.kill();
        server.restart();
        assert_eq!(server.command(&["GET", "tide"]).text(), "high");
    }

    #[test]
    fn a_killed_server_refuses_and_a_paused_one_is_silent() {
        let server = Server::start();
        let mut connection = Connection::open(server.address()).expect("it listens");
        server.pause();
        assert!(!server.is_running());
        connection.send(&["INCR", "count"]).expect("it is taken");
        assert!(connection.is_silent());
        server.resume();
        assert_eq!(connection.receive().expect("the late reply").integer(), 1);
        assert_eq!(server.command(&["GET", "count"]).integer(), 1);
        server.kill();
        let refused = Connection::open(server.address()).err().expect("no server listens");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_dropped_server_leaves_nothing() {
        let server = Server::start();
        let (address, socket) = (server.address(), server.unix_socket());
        drop(server);
        assert!(Connection::open(address).is_err());
        assert!(!socket.parent().expect("a directory").exists());
    }

    #[test]
    fn many_start_at_once() {
        let starts: Vec<_> = (0..4).map(|_| std::thread::spawn(Server::start)).collect();
        let servers: Vec<Server> = starts.into_iter().map(|start| start.join().expect("a server")).collect();
        for server in &servers {
            assert_eq!(server.info("server", "process_id"), server.process_id().to_string());
        }
    }
}

/// What outlives the tests is only seen from outside, so a test runs this
/// file's program again, with one test that leaves a server in a `static`.
mod after_the_tests {
    use super::*;

    const VARIABLE: &str = "TIDEGATE_LEAVES_A_SERVER";

    #[test]
    fn leaves_a_server_for_another_test() {
        static SERVER: LazyLock<Server> = LazyLock::new(Server::start);
        let Some(end) = std::env::var_os(VARIABLE) else { return };
        std::thread::spawn(|| SERVER.port()).join().expect("it starts on a thread that ends");
        println!("left {} {}", SERVER.port(), SERVER.unix_socket().display());
        if end == "killed" {
            std::io::stdout().flush().expect("a pipe");
            SERVER.pause();
            let own = std::process::id().to_string();
            let _ = Command::new("sh").args(["-c", "kill -KILL \"$0\"", &own]).status();
        }
    }

    fn ends_with_the_process(end: &str) {
        let test = "after_the_tests::leaves_a_server_for_another_test";
        let mut command = Command::new(std::env::current_exe().expect("a test has a program"));
        command.args([test, "--exact", "--nocapture"]).env(VARIABLE, end).stderr(Stdio::null());
        let printed = String::from_utf8(command.output().expect("it runs").stdout).expect("a text");
        let line = printed.lines().find_map(|line| line.split_once("left ")).expect("it left a server").1;
        let (port, socket) = line.split_once(' ').expect("a port and a path");
        let address = format!("127.0.0.1:{port}").parse().expect("an address");
        eventually("the server to end", || match Connection::open(address) {
            Ok(_) => Err("it still listens"),
            Err(_) => Ok(()),
        });
        let directory = Path::new(socket).parent().expect("a directory");
        eventually("the directory to go", || if directory.exists() { Err("it exists") } else { Ok(()) });
    }

    #[test]
    fn a_server_in_a_static_ends_with_the_process() {
        ends_with_the_process("exits");
    }

    #[test]
    fn a_server_ends_even_if_paused_when_the_tests_are_killed() {
        ends_with_the_process("killed");
    }
}

mod tls {
    use super::*;

    /// What `redis-cli` prints, which speaks TLS as the testkit does not.
    fn ping(server: &TlsServer, shows_certificate: bool) -> String {
        let directory = server.server().unix_socket().with_file_name("client");
        fs::create_dir_all(&directory).expect("a directory");
        let write = |name: &str, text: &str| {
            let path = directory.join(name);
            fs::write(&path, text).expect("a file");
            path
        };
        let mut command = Command::new("redis-cli");
        command.args(["-p", &server.server().port().to_string(), "--tls", "--sni", "localhost", "--cacert"]);
        command.arg(write("authority.pem", server.authority()));
        if shows_certificate {
            command.arg("--cert").arg(write("certificate.pem", server.client_certificate()));
            command.arg("--key").arg(write("key.pem", server.client_key()));
        }
        let output = command.arg("PING").output().expect("redis-cli is missing: run `cargo xtask install`");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn is_possible() -> bool {
        let program = Program::from_environment();
        let speaks_tls = program.speaks_tls();
        if !speaks_tls {
            println!("{} was built without TLS: not tested", program.version());
        }
        speaks_tls
    }

    #[test]
    fn a_client_that_trusts_the_authority_is_served() {
        if !is_possible() {
            return;
        }
        let server = TlsServer::start();
        assert_eq!(server.url(), format!("rediss://127.0.0.1:{}", server.server().port()));
        assert_eq!(ping(&server, false), "PONG");
        server.server().restart();
        assert_eq!(ping(&server, false), "PONG");
        assert_eq!(server.server().command(&["PING"]).text(), "PONG");
        let mut plain = Connection::open(server.server().address()).expect("it listens");
        assert!(plain.command(&["PING"]).is_err());
    }

    #[test]
    fn a_client_without_a_certificate_is_refused_where_one_is_required() {
        if !is_possible() {
            return;
        }
        let server = TlsServer::start_with(ClientCertificates::Required, &[]);
        assert_eq!(ping(&server, true), "PONG");
        assert_ne!(ping(&server, false), "PONG");
    }
}

mod proxy {
    use super::*;

    fn behind_a_proxy() -> (Server, ChaosProxy, Connection) {
        let server = Server::start();
        let proxy = ChaosProxy::start(server.address());
        let mut connection = Connection::open(proxy.address()).expect("the proxy listens");
        assert_eq!(connection.command(&["PING"]).expect("a reply").text(), "PONG");
        (server, proxy, connection)
    }

    /// Whether a request gets no reply, at least not yet.
    fn is_held(connection: &mut Connection, request: &[&str]) -> bool {
        connection.send(request).expect("it is taken");
        connection.is_silent()
    }

    #[test]
    fn without_a_fault_everything_passes_and_is_counted() {
        let (_server, proxy, mut connection) = behind_a_proxy();
        let large = "x".repeat(1_000_000);
        assert_eq!(connection.command(&["SET", "large", &large]).expect("a reply"), ok());
        assert_eq!(connection.command(&["GET", "large"]).expect("a reply").text(), large);
        assert_eq!((proxy.connections(), proxy.open_connections()), (1, 1));
        assert!(proxy.bytes_to_server() > 1_000_000);
        assert!(proxy.bytes_to_clients() > 1_000_000);
        drop(connection);
        eventually("the connection to close", || match proxy.open_connections() {
            0 => Ok(()),
            open => Err(open),
        });
    }

    #[test]
    fn a_delay_is_waited_both_ways() {
        let (_server, proxy, mut connection) = behind_a_proxy();
        proxy.set(Fault::Delay(Duration::from_millis(50)));
        let began = Instant::now();
        assert_eq!(connection.command(&["PING"]).expect("a reply").text(), "PONG");
        assert!(began.elapsed() >= Duration::from_millis(100));
    }

    #[test]
    fn a_stall_holds_everything_until_it_is_over() {
        let (server, proxy, mut connection) = behind_a_proxy();
        proxy.set(Fault::Stall);
        assert!(is_held(&mut connection, &["INCR", "count"]));
        assert_eq!(server.command(&["GET", "count"]), Reply::Nil);
        let mut second = Connection::open(proxy.address()).expect("connections are made");
        assert!(is_held(&mut second, &["INCR", "count"]));
        proxy.set(Fault::None);
        let late = [connection.receive(), second.receive()].map(|reply| reply.expect("the late reply").integer());
        assert_eq!(late.iter().sum::<i64>(), 3);
    }

    #[test]
    fn swallowed_replies_are_of_requests_that_arrived() {
        let (server, proxy, mut connection) = behind_a_proxy();
        proxy.set(Fault::SwallowReplies);
        let before = proxy.bytes_to_clients();
        let swallowed = |bytes: u64| {
            eventually("a reply to vanish", || match proxy.bytes_swallowed() {
                vanished if vanished == bytes => Ok(()),
                vanished => Err(format!("{vanished} bytes so far")),
            });
        };
        connection.send(&["INCR", "count"]).expect("it is taken");
        swallowed(4);
        assert_eq!(server.command(&["GET", "count"]).integer(), 1);
        proxy.set(Fault::None);
        connection.send(&["INCR", "count"]).expect("it is taken");
        swallowed(8);
        assert!(connection.is_silent(), "a reply to another request");
        assert_eq!(proxy.bytes_to_clients(), before);
        let mut second = Connection::open(proxy.address()).expect("connections are made");
        assert_eq!(second.command(&["INCR", "count"]).expect("a reply").integer(), 3);
    }

    #[test]
    fn a_reset_is_one_for_open_and_new_connections() {
        let (_server, proxy, mut connection) = behind_a_proxy();
        proxy.set(Fault::Reset);
        assert_eq!(connection.receive().expect_err("no reply").kind(), ErrorKind::ConnectionReset);
        let second = Connection::open(proxy.address()).and_then(|mut second| second.receive());
        assert_eq!(second.expect_err("no connection").kind(), ErrorKind::ConnectionReset);
        assert_eq!((proxy.connections(), proxy.open_connections()), (2, 0));
        proxy.set(Fault::None);
        let mut third = Connection::open(proxy.address()).expect("the proxy listens");
        assert_eq!(third.command(&["PING"]).expect("a reply").text(), "PONG");
        proxy.reset_connections();
        assert_eq!(third.receive().expect_err("no reply").kind(), ErrorKind::ConnectionReset);
    }

    #[test]
    fn a_reset_ends_a_stall() {
        let (_server, proxy, mut connection) = behind_a_proxy();
        proxy.set(Fault::Stall);
        connection.send(&["PING"]).expect("it is taken");
        proxy.set(Fault::Reset);
        assert_eq!(connection.receive().expect_err("no reply").kind(), ErrorKind::ConnectionReset);
    }

    #[test]
    fn a_half_closed_connection_still_carries_requests() {
        let (server, proxy, mut connection) = behind_a_proxy();
        proxy.set(Fault::HalfClose);
        assert_eq!(connection.receive().expect_err("the end").kind(), ErrorKind::UnexpectedEof);
        for fault in [Fault::HalfClose, Fault::None] {
            proxy.set(fault);
            connection.send(&["INCR", "count"]).expect("it is taken");
        }
        eventually("both requests to arrive", || match server.command(&["GET", "count"]) {
            Reply::Bulk(count) if count == b"2" => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }

    #[test]
    fn dripping_bytes_arrive_whole() {
        let (_server, proxy, mut connection) = behind_a_proxy();
        proxy.set(Fault::Drip(Duration::from_millis(1)));
        assert_eq!(connection.command(&["ECHO", "low water"]).expect("a reply").text(), "low water");
    }

    #[test]
    fn a_reset_after_the_next_request_hides_that_it_was_done() {
        let (server, proxy, mut connection) = behind_a_proxy();
        let mut other = Connection::open(proxy.address()).expect("the proxy listens");
        proxy.reset_after_next_request();
        assert!(proxy.awaits_request());
        let error = connection.command(&["INCR", "count"]).expect_err("no reply");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert!(!proxy.awaits_request());
        assert_eq!(other.command(&["GET", "count"]).expect("a reply").integer(), 1);
        assert_eq!(server.command(&["GET", "count"]).integer(), 1);
    }

    #[test]
    fn a_dropped_proxy_resets_its_connections() {
        let (_server, proxy, mut connection) = behind_a_proxy();
        let address = proxy.address();
        drop(proxy);
        assert_eq!(connection.receive().expect_err("no reply").kind(), ErrorKind::ConnectionReset);
        assert!(Connection::open(address).is_err());
    }

    #[test]
    fn a_server_that_refuses_is_a_reset() {
        let (server, proxy, _connection) = behind_a_proxy();
        server.kill();
        let refused = Connection::open(proxy.address()).and_then(|mut refused| refused.receive());
        assert_eq!(refused.expect_err("no connection").kind(), ErrorKind::ConnectionReset);
    }
}

mod cluster {
    use super::*;

    #[test]
    fn six_nodes_share_the_slots_and_agree_with_us_on_them() {
        let cluster = Cluster::start();
        assert_eq!(cluster.masters(), [0, 1, 2]);
        assert_eq!([0, 1, 2].map(|master| cluster.replica_of(master)), [3, 4, 5]);
        assert_eq!(cluster.urls()[4], cluster.node(4).url());
        assert_eq!(cluster.addresses().len(), cluster.size());
        for key in ["alice", "{bob}:1", "a{}b", ""] {
            let asked = cluster.node(0).command(&["CLUSTER", "KEYSLOT", key]).integer();
            assert_eq!(i64::from(slot_of(key.as_bytes())), asked, "{key}");
            cluster.node(cluster.master_of(slot_of(key.as_bytes()))).command(&["SET", key, "1"]);
        }
    }

    #[test]
    fn masters_are_replaced_by_agreement_by_force_and_when_they_die() {
        let cluster = Cluster::start();
        let slot = slot_of(b"alice");
        let first = cluster.master_of(slot);
        cluster.node(first).command(&["SET", "alice", "1"]);
        let second = cluster.failover(first);
        assert_eq!((cluster.master_of(slot), cluster.replica_of(second)), (second, first));
        assert_eq!(cluster.node(second).command(&["GET", "alice"]).integer(), 1);
        assert_eq!(cluster.takeover(second), first);
        cluster.node(first).kill();
        cluster.wait_until_healthy();
        assert_eq!(cluster.master_of(slot), second);
        cluster.node(first).restart();
        cluster.wait_until_healthy();
        assert_eq!(cluster.replica_of(second), first);
        cluster.node(second).pause();
        cluster.wait_until_healthy();
        assert_eq!(cluster.master_of(slot), first);
        cluster.node(second).resume();
        cluster.wait_until_healthy();
        assert_eq!(cluster.replica_of(first), second);
    }

    #[test]
    fn a_slot_moves_step_by_step() {
        let cluster = Cluster::start_masters();
        let slot = slot_of(b"{alice}");
        let from = cluster.master_of(slot);
        let to = (from + 1) % 3;
        let keys: Vec<String> = (0..250).map(|number| format!("{{alice}}:{number}")).collect();
        for key in &keys {
            cluster.node(from).command(&["SET", key, "1"]);
        }
        let migration = cluster.begin_migration(slot, to);
        assert_eq!((migration.slot(), migration.from(), migration.to()), (slot, from, to));
        assert_eq!(migration.move_some(10), 10);
        let replies: Vec<Reply> =
            keys.iter().map(|key| cluster.node(from).try_command(&["GET", key]).expect("a reply")).collect();
        let asked = replies.iter().filter(|reply| matches!(reply, Reply::Error(error) if error.starts_with("ASK ")));
        assert_eq!(asked.count(), 10);
        assert_eq!(migration.move_keys(), 240);
        migration.finish();
        assert_eq!(cluster.master_of(slot), to);
        assert_eq!(cluster.node(to).command(&["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]).integer(), 250);
        cluster.migrate_slot(slot, from);
        assert_eq!(cluster.node(from).command(&["GET", &keys[7]]).integer(), 1);
    }
}

mod sentinel {
    use super::*;

    #[test]
    fn another_server_becomes_master_when_told_and_when_the_master_dies() {
        let set = SentinelSet::start();
        assert_eq!(set.current_master(), 0);
        assert_eq!((set.sentinel_addresses().len(), set.sentinel_urls().len()), (3, 3));
        let named = set.sentinel(1).command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", set.master_name()]);
        assert_eq!(named.items()[1].integer(), i64::from(set.server(0).port()));
        let second = set.failover();
        assert_ne!(second, 0);
        set.wait_until_healthy();
        set.server(second).kill();
        let third = set.wait_for_another_master(second);
        set.server(third).command(&["SET", "tide", "high"]);
    }

    #[test]
    fn a_paused_master_is_replaced_and_follows_when_it_wakes() {
        let set = SentinelSet::start();
        set.server(0).pause();
        let second = set.wait_for_another_master(0);
        set.server(0).resume();
        set.wait_until_healthy();
        assert_eq!(set.current_master(), second);
    }
}
