//! Who may run which command.

use tidegate_testkit::servers::{Connection, Reply, eventually};

use crate::resp::harness::{TestServer, ask, refusal};

const NO_AUTH: &str = "NOAUTH Authentication required.";

/// Commands of each right.
const COMMANDS: [(&str, &str); 12] = [
    ("CL.THROTTLE a 9 9 60", "check"),
    ("THROTTLE a 9 9 60", "check"),
    ("TIDEGATE.CHECK user a", "check"),
    ("TIDEGATE.RESERVE user a ID 1", "check"),
    ("TIDEGATE.RENEW user a ID 1", "check"),
    ("TIDEGATE.SETTLE user a ID 1", "check"),
    ("TIDEGATE.RELEASE user a ID 1", "check"),
    ("TIDEGATE.PEEK user a", "check"),
    ("TIDEGATE.REFUND user a", "manage"),
    ("TIDEGATE.RESET user a", "manage"),
    ("TIDEGATE.EXPLAIN user a", "manage"),
    ("CL.THROTTLE a 9 9 60 -1", "manage"),
];

fn line(name: &str, secret: &str, rights: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, secret.as_bytes());
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("[[token]]\nname = \"{name}\"\nsha256 = \"{hex}\"\nrights = [{rights}]\n")
}

fn start(text: &str) -> (TestServer, tempfile::NamedTempFile) {
    let file = tempfile::Builder::new().suffix(".toml").tempfile().expect("a file");
    std::fs::write(file.path(), text).expect("a file");
    let path = file.path().to_owned();
    (TestServer::start_with(move |settings| settings.tokens = Some(path)), file)
}

fn known(server: &TestServer, hello: &str) -> Connection {
    let mut connection = server.connect();
    let reply = ask(&mut connection, hello);
    assert!(!reply.is_error(), "{hello}: {reply:?}");
    connection
}

#[test]
fn every_command_asks_for_its_right() {
    let tokens = [
        line("checker", "one", "\"check\""),
        line("manager", "two", "\"check\", \"manage\""),
        line("scraper", "three", "\"metrics\""),
    ];
    let (server, _file) = start(&tokens.concat());
    for (hello, rights) in [
        ("PING", ""),
        ("AUTH one", "check"),
        ("AUTH checker one", "check"),
        ("AUTH default one", "check"),
        ("HELLO 2 AUTH checker one", "check"),
        ("AUTH two", "check manage"),
        ("HELLO 2 AUTH manager two", "check manage"),
        ("AUTH three", "metrics"),
    ] {
        let mut connection = known(&server, hello);
        for (command, right) in COMMANDS {
            let reply = ask(&mut connection, command);
            if rights.contains(right) {
                assert!(!reply.is_error(), "{hello}, {command}: {reply:?}");
                continue;
            }
            let words = refusal(reply);
            let expected = if rights.is_empty() { "NOAUTH" } else { "NOPERM" };
            assert!(words.starts_with(expected), "{hello}, {command}: {words}");
        }
        assert_eq!(ask(&mut connection, "PING"), Reply::Status("PONG".into()));
        assert_eq!(ask(&mut connection, "RESET"), Reply::Status("RESET".into()));
        assert_eq!(refusal(ask(&mut connection, "TIDEGATE.PEEK user a")), NO_AUTH);
    }
    let mut scraper = known(&server, "AUTH three");
    let words = "NOPERM this user has no permissions to run the 'tidegate.check' command";
    assert_eq!(refusal(ask(&mut scraper, "TIDEGATE.CHECK user a")), words);
    for wrong in ["AUTH manager one", "AUTH stranger one", "AUTH on", "AUTH checker two"] {
        assert!(refusal(ask(&mut server.connect(), wrong)).starts_with("WRONGPASS"), "{wrong}");
    }
}

#[test]
fn what_was_queued_by_one_user_is_not_run_for_another() {
    let tokens = line("manager", "two", "\"check\", \"manage\"") + &line("scraper", "three", "\"metrics\"");
    let (server, _file) = start(&tokens);
    let mut connection = known(&server, "AUTH two");
    for command in ["MULTI", "AUTH three", "TIDEGATE.RESET user a", "CL.THROTTLE a 9 9 60"] {
        assert!(!ask(&mut connection, command).is_error());
    }
    let Reply::Array(replies) = ask(&mut connection, "EXEC") else { panic!("no replies") };
    assert_eq!(replies[0], Reply::Status("OK".into()));
    for reply in &replies[1..] {
        assert!(refusal(reply.clone()).starts_with("NOPERM"), "{reply:?}");
    }
}

#[test]
fn a_token_that_is_gone_is_worth_nothing_on_open_connections_either() {
    let (server, file) = start(&(line("a", "one", "\"check\"") + &line("b", "two", "\"check\"")));
    let (mut first, mut second) = (known(&server, "AUTH one"), known(&server, "AUTH two"));
    std::fs::write(file.path(), line("b", "two", "\"check\", \"manage\"")).expect("a file");
    server.server().reload();
    eventually("the token to be gone", || match ask(&mut first, "TIDEGATE.PEEK user a") {
        Reply::Error(words) if words == NO_AUTH => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert!(!ask(&mut second, "TIDEGATE.RESET user a").is_error(), "its rights are those of now");
}

#[test]
fn wrong_passwords_are_slowed_down_and_the_right_one_passes() {
    let server = TestServer::start_with(|settings| settings.resp_password = Some("tide".into()));
    let mut connection = server.connect();
    let mut wrong = 0;
    // One more comes back each six seconds, so their number depends on the machine.
    let last = loop {
        wrong += 1;
        let words = refusal(ask(&mut connection, "AUTH ebb"));
        if !words.starts_with("WRONGPASS") {
            break words;
        }
    };
    assert!(wrong > 10 && last.starts_with("ERR too many wrong passwords"), "{wrong}: {last}");
    assert_eq!(ask(&mut connection, "AUTH tide"), Reply::Status("OK".into()));
    let metrics = server.server().app().records.metrics.text();
    let counted = format!("tidegate_authentication_failures_total{{protocol=\"resp\"}} {wrong}\n");
    assert!(metrics.contains(&counted), "{metrics}");
}

#[test]
fn resets_and_refunds_are_in_the_audit_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let audit = folder.path().join("audit");
    let server = TestServer::start_with(|settings| {
        settings.resp_password = Some("tide".into());
        settings.audit = Some(audit.clone());
    });
    let mut connection = known(&server, "AUTH tide");
    for command in ["TIDEGATE.CHECK user a", "TIDEGATE.REFUND user a", "TIDEGATE.RESET user a", "TIDEGATE.RESET"] {
        ask(&mut connection, command);
    }
    for quantity in ["5", "-5", "0"] {
        assert!(!ask(&mut connection, &format!("CL.THROTTLE a 9 9 60 {quantity}")).is_error());
    }
    drop(connection);
    assert!(server.drain());
    let text = std::fs::read_to_string(&audit).expect("a file");
    let lines: Vec<&str> = text.lines().collect();
    let expected = [("refund", "done"), ("reset", "done"), ("reset", "refused"), ("refund", "done")];
    assert_eq!(lines.len(), expected.len(), "{text}");
    for (line, (action, outcome)) in lines.iter().zip(expected) {
        let said = format!("\"identity\":\"default\",\"action\":\"{action}\",\"outcome\":\"{outcome}\"");
        assert!(line.contains(&said), "{line}");
    }
}
