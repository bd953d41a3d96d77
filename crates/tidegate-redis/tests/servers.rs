//! Ways to a server, and what is left there.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use crate::support::{self, RUNTIME, SERVER, assert_kept};
use tidegate::store::StoreError;
use tidegate::{CheckError, Limit, Limiter, ManualClock, MemoryStore, Micros, Policy, Request, Rule};
use tidegate_redis::{Certificates, RedisStore, Servers};
use tidegate_testkit::block_on;
use tidegate_testkit::servers::{ClientCertificates, GUARD, Program, Reply, Server, TlsServer, eventually};

/// The server answers, and remembers.
fn works(store: RedisStore) {
    let limiter = Limiter::with_store(Limit::per_hour(10), store).expect("a valid policy");
    for remaining in [9, 8] {
        let decision = RUNTIME.block_on(limiter.check_async("alice")).expect("an answer");
        assert_eq!((decision.is_allowed(), decision.remaining()), (true, Some(remaining)));
    }
}

#[test]
fn by_url() {
    // The deadline is the default one, which a busy machine may miss: then again, on another server.
    let store = eventually("three round trips of less than 50 ms", || {
        let server = Server::start();
        let store = RUNTIME.block_on(RedisStore::connect(&server.url())).expect("a valid URL");
        let limiter = Limiter::with_store(Limit::per_hour(10), store.clone()).expect("a valid policy");
        for remaining in [9, 8] {
            let decision = RUNTIME.block_on(limiter.check_async("alice"))?;
            assert_eq!((decision.is_allowed(), decision.remaining()), (true, Some(remaining)));
        }
        Ok::<_, CheckError>(store)
    });
    assert_eq!(store.statistics().round_trips, 3, "one to learn that the script is unknown, two to decide");
}

#[test]
fn by_unix_socket_and_database_and_password() {
    let server = Server::start_with(&[("requirepass", "secret")]);
    works(support::build(support::builder(&format!("redis+unix://{}?pass=secret", server.unix_socket().display()))));
    works(support::build(support::builder(&format!("redis://:secret@{}/3", server.address()))));
    assert!(server.command(&["INFO", "keyspace"]).text().contains("db3:keys=1"));
}

#[test]
fn a_rejected_client_is_told_why() {
    let server = Server::start_with(&[("requirepass", "secret")]);
    let refused = |url: String| {
        let store = support::build(support::builder(&url));
        let limiter = Limiter::with_store(Limit::per_hour(10), store).expect("a valid policy");
        let error = RUNTIME.block_on(limiter.check_async("alice")).expect_err("not let in");
        let CheckError::Store(StoreError::Failed { source }) = error else { panic!("{error:?}") };
        source.to_string()
    };
    let words = refused(format!("redis://:guess@{}", server.address()));
    assert!(words.to_lowercase().contains("auth") && !words.contains("guess"), "{words}");
    let words = refused(format!("redis+cluster://:secret@{}", server.address()));
    assert!(words.contains("cluster support disabled"), "{words}");
}

/// What the documentation of the crate says that a user needs.
fn documented_rights() -> impl Iterator<Item = &'static str> {
    let after = include_str!("../src/lib.rs").split_once("access control needs `").expect("the rights").1;
    after.split('`').next().unwrap_or_default().split_whitespace().filter(|word| word.starts_with('+'))
}

#[test]
fn the_documented_rights_are_those_of_the_commands_in_the_scripts() {
    let mut commands = BTreeSet::from(["+eval".to_owned(), "+evalsha".to_owned()]);
    for part in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/lua")).expect("the scripts") {
        let text = fs::read_to_string(part.expect("a file").path()).expect("a script");
        let calls = ["call('", "push('"].map(|called| text.split(called).skip(1).collect::<Vec<_>>()).concat();
        let names = calls.iter().filter_map(|after| after.split('\'').next());
        commands.extend(names.map(|name| format!("+{}", name.to_lowercase())));
    }
    // For the strict mode only.
    assert!(commands.remove("+info"));
    assert_eq!(commands, documented_rights().map(str::to_owned).collect());
}

#[test]
fn works_with_the_least_privileges() {
    let server = Server::start();
    let rights = documented_rights().chain(["+client|setinfo", "+info"]);
    let mut words = vec!["ACL", "SETUSER", "limiter", "on", ">secret", "~tidegate:*"];
    words
        .extend(rights.filter(|right| server.program().version().starts_with("valkey") || *right != "+client|setinfo"));
    server.command(&words);
    let url = format!("redis://limiter:secret@{}", server.address());
    let store = support::build(support::builder(&url).prefix("tidegate"));
    let all = Policy::new()
        .limit("a", Limit::per_second(10))
        .limit("b", Limit::fixed_window(10, Duration::from_secs(1)))
        .limit("c", Limit::sliding_log(10, Duration::from_secs(1)))
        .limit("d", Limit::sliding_counter(10, Duration::from_secs(1)));
    let limiter = Limiter::with_store(all, store.clone()).expect("a valid policy");
    for _ in 0..3 {
        assert!(RUNTIME.block_on(limiter.check_async("alice")).expect("an answer").is_allowed());
    }
    let _ = RUNTIME.block_on(limiter.refund_async("alice")).expect("an answer");
    let _ = RUNTIME.block_on(limiter.reset_async("alice")).expect("an answer");
    limiter.set_policy(Policy::new().limit("a", Limit::per_second(20))).expect("a valid policy");
    assert!(RUNTIME.block_on(limiter.check_async("alice")).expect("an answer").is_allowed());
    // What is given back of the older of two entries is written at the other end of the list.
    let permits = Limiter::with_store(Limit::in_flight(2, GUARD), store).expect("a valid policy");
    let [first, second] =
        [(); 2].map(|()| RUNTIME.block_on(permits.reserve_async("bob")).expect("an answer").made().expect("a permit"));
    assert!(RUNTIME.block_on(first.renew_async()).expect("an answer").is_allowed());
    for (permit, left) in [(second, 1), (first, 2)] {
        let released = RUNTIME.block_on(permit.release_async()).expect("an answer");
        assert_eq!(released.remaining(), Some(left));
    }
}

#[test]
fn by_tls_with_a_private_authority() {
    if !Program::from_environment().speaks_tls() {
        println!("{} is built without TLS", Program::from_environment().version());
        return;
    }
    let server = TlsServer::start_with(ClientCertificates::Required, &[]);
    let certificates = redis::TlsCertificates {
        client_tls: Some(redis::ClientTlsConfig {
            client_cert: server.client_certificate().as_bytes().to_vec(),
            client_key: server.client_key().as_bytes().to_vec(),
        }),
        root_cert: Some(server.authority().as_bytes().to_vec()),
    };
    let client = redis::Client::build_with_tls(server.url(), certificates).expect("a client");
    works(support::build(support::patient(client)));
    let certificates = Certificates::default().authority(server.authority());
    let certificates = certificates.client(server.client_certificate(), server.client_key());
    assert!(!format!("{certificates:?}").contains("KEY"));
    let servers = Servers::parse_with_certificates(&server.url(), certificates.clone()).expect("a URL");
    works(support::build(support::patient(servers).prefix("by url")));
    let plain = Servers::parse_with_certificates("redis://127.0.0.1", certificates).expect_err("no TLS");
    assert!(plain.to_string().contains("rediss"), "{plain}");
}

#[test]
fn without_a_runtime_of_the_callers() {
    let store = support::builder(&SERVER.url()).build().expect("valid settings");
    let limiter = Limiter::with_store(Limit::per_hour(10), store).expect("a valid policy");
    assert_eq!(block_on(limiter.check_async("alice")).expect("an answer").remaining(), Some(9));
    assert!(limiter.acquire("alice", GUARD).is_ok_and(|decision| decision.remaining() == Some(8)));
}

#[test]
fn several_limits_are_one_round_trip() {
    let policy = Policy::new()
        .limit("a", Limit::per_second(10))
        .limit("b", Limit::fixed_window(100, Duration::from_secs(60)))
        .limit("c", Limit::sliding_log(10, Duration::from_secs(1)))
        .limit("d", Limit::leaky_bucket(10, Duration::from_secs(1)))
        .limit("e", Limit::sliding_counter(10, Duration::from_secs(1)));
    let limiter = Limiter::with_store(policy, support::build(support::builder(&SERVER.url()))).expect("a valid policy");
    let _ = RUNTIME.block_on(limiter.check_async("alice")).expect("an answer");
    let before = limiter.store().statistics().round_trips;
    let _ = RUNTIME.block_on(limiter.check_async("alice")).expect("an answer");
    assert_eq!(limiter.store().statistics().round_trips, before + 1);
}

#[test]
fn every_key_expires_and_not_before_it_is_fresh() {
    let server = Server::start();
    for words in [
        "10/s burst 100",
        "7/s burst 50",
        "leaky 10/min",
        "fixed 10/min",
        "fixed 10/min from-first",
        "sliding 10/min",
        "sliding-log 10/min",
    ] {
        server.command(&["FLUSHALL"]);
        let limiter =
            Limiter::with_store(words.parse::<Limit>().expect(words), support::build(support::builder(&server.url())));
        let limiter = limiter.expect("a valid policy");
        for cost in [1, 3, 2, 1] {
            let began = Instant::now();
            let decision = RUNTIME.block_on(limiter.check_async(Request::new("alice").cost(cost))).expect("an answer");
            assert_kept(&server, began + decision.reset_after().expect("a time"), words);
        }
        let began = Instant::now();
        let decision = RUNTIME.block_on(limiter.refund_async(Request::new("alice").cost(2))).expect("an answer");
        assert_kept(&server, began + decision.reset_after().expect("a time"), words);
        let _ = RUNTIME.block_on(limiter.reset_async("alice")).expect("an answer");
        assert!(server.command(&["KEYS", "*"]).items().is_empty(), "{words}: a reset leaves nothing");
    }
}

#[test]
fn a_server_that_throws_states_away_is_found_out() {
    let evictions = |server: &Server| {
        let store = support::build(support::builder(&server.url()));
        RUNTIME.block_on(store.evictions())
    };
    let forgetful = Server::start_with(&[("maxmemory", "100mb"), ("maxmemory-policy", "volatile-lru")]);
    let found = evictions(&forgetful);
    assert_eq!((found.len(), &*found[0].policy, found[0].memory), (1, "volatile-lru", 100 << 20));
    assert!(evictions(&Server::start_with(&[("maxmemory", "100mb"), ("maxmemory-policy", "noeviction")])).is_empty());
    let unbounded = Server::start();
    assert!(evictions(&unbounded).is_empty());
    // What cannot be asked is no reason to wait, or to fail.
    let store = support::build(support::builder(&unbounded.url()));
    unbounded.kill();
    assert!(RUNTIME.block_on(store.evictions()).is_empty());
}

/// The state that a cost of 3 leaves at [`RECORDED`], as it stands on a server: limit, name, value.
const FIRST_VERSION: [(&str, &str, &[&str]); 6] = [
    ("7/3s burst 9", "tidegate:{alice}+/a%20b:per%20user:7/3s burst 9 by user path", &["1700000004409171:2"]),
    ("leaky 3/s queue 5", "tidegate:{alice}+/a%20b:per%20user:leaky 3/s queue 5 by user path", &["1700000004123457"]),
    ("fixed 5/h", "tidegate:{alice}+/a%20b:per%20user:fixed 5/h by user path", &["1699999200000000:3:0"]),
    (
        "fixed 6/2h from-first",
        "tidegate:{alice}+/a%20b:per%20user:fixed 6/2h from-first by user path",
        &["1700000003123457:3:0"],
    ),
    ("sliding 5/h", "tidegate:{alice}+/a%20b:per%20user:sliding-counter 5/h by user path", &["1699999200000000:3:0"]),
    (
        "sliding-log 5/h",
        "tidegate:{alice}+/a%20b:per%20user:sliding-log 5/h by user path",
        &["0", "1700000003123457", "3"],
    ),
];

const RECORDED: Micros = Micros::new(1_700_000_003_123_457);

/// Servers keep states while their clients are updated: what an older process wrote is
/// read, and written in the same form.
#[test]
fn names_and_states_of_the_first_version_are_read_and_written() {
    let server = Server::start();
    for (words, name, value) in FIRST_VERSION {
        let rule = || Rule::new("per user", words.parse().expect("a limit")).key(["user", "path"]);
        let request = || Request::user("alice").with("path", "/a b");
        let memory = MemoryStore::builder().clock(ManualClock::at(RECORDED)).build().expect("valid settings");
        let memory = Limiter::with_store(rule(), memory).expect("a valid policy");
        assert!(memory.allow(request().cost(3)));
        let store = || support::patient(Servers::parse(&server.url()).expect("a valid URL"));
        let store = support::build(store().clock(ManualClock::at(RECORDED)));
        let redis = Limiter::with_store(rule(), store).expect("a valid policy");

        let is_list = value.len() > 1;
        server.command(&[if is_list { "RPUSH" } else { "SET" }, name].iter().chain(value).collect::<Vec<_>>());
        let read = RUNTIME.block_on(redis.peek_async(request())).expect("a state that is read");
        assert_eq!(read, memory.peek(request()).expect("an answer"), "{words}");

        server.command(&["DEL", name]);
        assert!(RUNTIME.block_on(redis.check_async(request().cost(3))).is_ok_and(|decision| decision.is_allowed()));
        let written = match is_list {
            true => server.command(&["LRANGE", name, "0", "-1"]).items().iter().map(Reply::text).collect(),
            false => vec![server.command(&["GET", name]).text()],
        };
        assert_eq!(written, value, "{words}");
    }
}
