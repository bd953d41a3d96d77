//! What `COMMAND` says of the commands, beside what a real Redis says of its own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use tidegate_testkit::servers::{Connection, Reply, Server};

use crate::resp::harness::{TestServer, ask};

/// The kinds of replies that one is made of; as many of a kind in a row as one.
fn shape(reply: &Reply) -> String {
    match reply {
        Reply::Nil => "_".into(),
        Reply::Status(_) => "+".into(),
        Reply::Error(_) => "-".into(),
        Reply::Integer(_) => ":".into(),
        Reply::Bulk(_) => "$".into(),
        Reply::Array(items) => {
            let mut shapes: Vec<String> = items.iter().map(shape).collect();
            shapes.dedup();
            format!("[{}]", shapes.concat())
        }
    }
}

fn entry(connection: &mut Connection, name: &str) -> Option<Vec<Reply>> {
    let reply = ask(connection, &format!("COMMAND INFO {name}"));
    match &reply.items()[0] {
        Reply::Nil => None,
        entry => Some(entry.items().to_vec()),
    }
}

/// All but the tips and the subcommands, of which some commands have none.
fn shapes(entry: &[Reply]) -> Vec<String> {
    assert_eq!(entry.len(), 10, "{entry:?}");
    assert!(matches!((&entry[7], &entry[9]), (Reply::Array(_), Reply::Array(_))), "{entry:?}");
    entry[..7].iter().chain([&entry[8]]).map(shape).collect()
}

#[test]
fn commands_have_the_entries_of_redis() {
    let (server, redis) = (TestServer::start(), Server::start());
    let (mut ours, mut theirs) = (server.connect(), Connection::open(redis.address()).expect("a connection"));
    let all = ask(&mut ours, "COMMAND");
    let mut compared = 0;
    for command in all.items() {
        let (command, name) = (command.items(), command.items()[0].text());
        assert_eq!(entry(&mut ours, &name).as_deref(), Some(command), "{name}");
        match entry(&mut theirs, &name) {
            Some(entry) => {
                assert_eq!(shapes(command), shapes(&entry), "{name}");
                // The arity, and where the keys are.
                assert_eq!((&command[1], &command[3..6]), (&entry[1], &entry[3..6]), "{name}");
                compared += 1;
            }
            None => {
                let like = if command[3] == Reply::Integer(1) { "incr" } else { "echo" };
                let like = entry(&mut theirs, like).expect("Redis has it");
                assert_eq!(shapes(command), shapes(&like), "{name}");
            }
        }
        for subcommand in command[9].items() {
            let name = subcommand.items()[0].text();
            assert_eq!(entry(&mut ours, &name).as_deref(), Some(subcommand.items()), "{name}");
            if let Some(entry) = entry(&mut theirs, &name) {
                assert_eq!(shapes(subcommand.items()), shapes(&entry), "{name}");
            }
        }
    }
    assert_eq!(compared, 15, "those that are not about limits");
    assert_eq!(entry(&mut ours, "nonsense"), None);
    assert_eq!(entry(&mut ours, "client|nonsense"), None);
}

/// The types of RESP3 in a reply to a line, in order; as many flags in a row as one.
fn types(address: SocketAddr, line: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.write_all(format!("HELLO 3\r\n{line}\r\nQUIT\r\n").as_bytes()).expect("the server reads");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("answers, and the end");
    let (_, reply) = said.split_once("modules\r\n*0\r\n").expect("a greeting");
    let mut types: Vec<&str> = reply.lines().filter_map(|line| line.get(..1)).collect();
    types.retain(|kind| "*~%$:+_".contains(kind));
    types.dedup_by(|kind, before| *kind == "+" && *before == "+");
    types.concat()
}

#[test]
fn entries_have_the_types_of_resp3() {
    let (server, redis) = (TestServer::start(), Server::start());
    for (ours, theirs) in [("cl.throttle", "incr"), ("watch", "watch"), ("tidegate.check", "echo")] {
        let [ours, theirs] = [(server.address(), ours), (redis.address(), theirs)]
            .map(|(address, name)| types(address, &format!("COMMAND INFO {name} nonsense")));
        assert_eq!(ours, theirs);
    }
}

#[test]
fn documents_have_the_fields_of_redis() {
    let (server, redis) = (TestServer::start(), Server::start());
    let (mut ours, mut theirs) = (server.connect(), Connection::open(redis.address()).expect("a connection"));
    let fields = |connection: &mut Connection, name: &str| -> Vec<(String, Reply)> {
        let reply = ask(connection, &format!("COMMAND DOCS nonsense {name}"));
        assert_eq!((reply.items().len(), reply.items()[0].text()), (2, name.into()));
        reply.items()[1].items().chunks(2).map(|field| (field[0].text(), field[1].clone())).collect()
    };
    for name in ["echo", "multi", "watch", "client", "command"] {
        let known = fields(&mut theirs, name);
        for (field, value) in fields(&mut ours, name) {
            let (_, like) = known.iter().find(|(known, _)| *known == field).expect("a field of Redis");
            match &*field {
                // Maps of as many fields as there are things to say.
                "arguments" => assert_eq!(value.items().len(), like.items().len(), "{name}"),
                "subcommands" => {
                    let names = |reply: &Reply| reply.items().iter().step_by(2).map(Reply::text).collect::<Vec<_>>();
                    assert!(names(&value).contains(&format!("{name}|info")), "{value:?}");
                    assert!(names(like).contains(&format!("{name}|info")), "{like:?}");
                }
                _ => assert_eq!(shape(&value), shape(like), "{name} {field}"),
            }
        }
    }
}
