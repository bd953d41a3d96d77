//! Processes that end, stop and come back: the server, and its clients.

use std::time::Duration;

use tidegate::Limit;
use tidegate_testkit::block_on;
use tidegate_testkit::servers::{Admission, ChaosProxy, Fault as Spoil, Server, Tally, eventually};

use super::{befalls_server, reservations};
use crate::bound::Damage;
use crate::client::{CALLERS, Client, Diary, RULE};
use crate::fault::Fault;
use crate::findings::Findings;
use crate::pressure::{Pressure, judge_admissions, span};
use crate::trial::{KEY, Trial, limiter};

pub(super) const FAULTS: &[Fault] = &[
    Fault::new("primary-killed", "the server gets kill -9 and comes back empty", "one burst", primary_killed).quick(),
    Fault::new("primary-killed-thrice", "the same three times in a row", "a burst each time", primary_killed_thrice),
    Fault::new(
        "primary-killed-with-file",
        "kill -9 of a server that writes every command to disk before it answers",
        "nothing",
        primary_killed_with_file,
    )
    .quick(),
    Fault::new("primary-killed-strict", "kill -9, in strict mode", "nothing", primary_killed_strict).quick(),
    Fault::new(
        "primary-restarted",
        "SIGTERM: the server saves what it knows, ends and comes back",
        "nothing",
        primary_restarted,
    )
    .quick(),
    Fault::new("primary-paused", "SIGSTOP, and SIGCONT a moment later", "nothing", primary_paused).quick(),
    Fault::new("primary-swapped", "another, empty server in its place", "one burst", primary_swapped).quick(),
    Fault::new("primary-late", "the clients are there before their server", "nothing", primary_late).quick(),
    Fault::new(
        "replica-promoted",
        "a replica that has lagged behind takes the place of a killed server",
        "one burst",
        replica_promoted,
    ),
    Fault::new("client-killed", "kill -9 of one client of three", "nothing", client_killed),
    Fault::new(
        "client-killed-with-lease",
        "kill -9 of a client that has units on lease",
        "at most its lease is lost; a lease for each client beside the bound",
        client_killed_with_lease,
    )
    .quick(),
    Fault::new(
        "client-restarted-with-lease",
        "a client ends in good order, gives back its lease, and is started again",
        "nothing is lost; a lease for each client beside the bound",
        client_restarted_with_lease,
    ),
    Fault::new(
        "client-paused-with-lease",
        "SIGSTOP of a client until its lease is over, then SIGCONT",
        "a lease for each client beside the bound",
        client_paused_with_lease,
    ),
    Fault::new(
        "holder-killed",
        "kill -9 of one process of three that hold reservations, 10 times",
        "its permits until they expire, and its estimates",
        reservations::holder_killed,
    )
    .quick(),
    Fault::new(
        "holder-killed-often",
        "the same 100 times",
        "its permits until they expire, and its estimates",
        reservations::holder_killed_often,
    ),
];

fn kill_for_a_while(trial: &mut Trial, server: &Server, pressure: &Pressure) {
    server.kill();
    pressure.suffer();
    pressure.endure(trial.about(Duration::from_millis(400)));
    server.restart();
}

fn primary_killed(trial: &mut Trial) -> Findings {
    befalls_server(trial, &[], Damage::losses(1), kill_for_a_while)
}

fn primary_killed_thrice(trial: &mut Trial) -> Findings {
    befalls_server(trial, &[], Damage::losses(3), |trial, server, pressure| {
        for _ in 0..3 {
            kill_for_a_while(trial, server, pressure);
            pressure.recover();
        }
    })
}

fn primary_killed_with_file(trial: &mut Trial) -> Findings {
    befalls_server(trial, &[("appendonly", "yes"), ("appendfsync", "always")], Damage::NONE, kill_for_a_while)
}

fn primary_killed_strict(trial: &mut Trial) -> Findings {
    let server = Server::start();
    let pressure = Pressure::strict(trial, &server.url());
    pressure.settle();
    kill_for_a_while(trial, &server, &pressure);
    pressure.recover();
    pressure.judge(Damage::NONE)
}

fn primary_restarted(trial: &mut Trial) -> Findings {
    befalls_server(trial, &[("save", "3600 1")], Damage::NONE, |trial, server, pressure| {
        server.terminate();
        pressure.suffer();
        pressure.endure(trial.about(Duration::from_millis(300)));
        server.restart();
    })
}

fn primary_paused(trial: &mut Trial) -> Findings {
    befalls_server(trial, &[], Damage::NONE, |trial, server, pressure| {
        server.pause();
        pressure.suffer();
        pressure.endure(trial.about(Duration::from_millis(600)));
        server.resume();
    })
}

fn primary_swapped(trial: &mut Trial) -> Findings {
    let (server, other) = (Server::start(), Server::start());
    let proxy = ChaosProxy::start(server.address());
    let pressure = Pressure::start(trial, &trial.store(&proxy.url()));
    pressure.settle();
    proxy.redirect(other.address());
    pressure.recover();
    pressure.judge(Damage::losses(1))
}

fn primary_late(trial: &mut Trial) -> Findings {
    let server = Server::start();
    server.kill();
    let pressure = Pressure::start(trial, &trial.store(&server.url()));
    pressure.suffer();
    server.restart();
    pressure.recover();
    pressure.judge(Damage::NONE)
}

fn replica_promoted(trial: &mut Trial) -> Findings {
    let (server, replica) = (Server::start(), Server::start());
    let replication = ChaosProxy::start(server.address());
    let proxy = ChaosProxy::start(server.address());
    replica.command(&["REPLICAOF", "127.0.0.1", &replication.address().port().to_string()]);
    eventually("the replica to follow", || match replica.info("replication", "master_link_status") {
        status if status == "up" => Ok(()),
        status => Err(status),
    });
    let pressure = Pressure::start(trial, &trial.store(&proxy.url()));
    pressure.settle();
    replication.set(Spoil::Stall);
    pressure.endure(trial.about(Duration::from_millis(800)));
    pressure.go_on();
    server.kill();
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    proxy.redirect(replica.address());
    pressure.recover();
    pressure.judge(Damage::losses(1)).with_losses()
}

const CLIENTS: u64 = 3;

/// Three clients in processes of their own, to the first of which something happens.
fn clients_of(
    server: &Server,
    limit: Limit,
    lease: Option<u64>,
    harm: impl FnOnce(&mut Client),
) -> (Tally, Vec<Admission>) {
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::start(&server.url(), limit, lease)).collect();
    clients.iter().for_each(|client| client.wait_for_admitted(10));
    harm(&mut clients[0]);
    let before = clients[1].diary().admissions.len();
    clients[1].wait_for_admitted(before + 30);
    clients.iter_mut().for_each(Client::finish);
    let diaries: Vec<Diary> = clients.iter().map(Client::diary).collect();
    let in_doubt = diaries.iter().map(|diary| diary.in_doubt).sum();
    let admissions: Vec<Admission> = diaries.into_iter().flat_map(|diary| diary.admissions).collect();
    (Tally { admitted: admissions.len() as u64, in_doubt, ..Tally::default() }, admissions)
}

/// Once by a limit that refills, for the bound; once by one that does not, for the
/// account: of what was charged, no more than `lost` may be unaccounted for.
fn befalls_client(trial: &mut Trial, lease: Option<u64>, lost: u64, harm: impl Fn(&mut Client)) -> Findings {
    let server = Server::start();
    let limit = Limit::token_bucket(trial.random.within(60..=150), Duration::from_secs(1)).burst(100);
    let mut findings = Findings { notes: vec![format!("{limit}, lease {lease:?}")], ..Findings::default() };
    let (tally, admissions) = clients_of(&server, limit, lease, &harm);
    let damage = Damage { on_lease: lease.unwrap_or(0) * CLIENTS, ..Damage::NONE };
    findings.count(&tally, damage.most(&limit, span(&admissions)));
    judge_admissions(&mut findings, &admissions, &limit, damage);

    let counted = Limit::fixed_window(1_000_000, Duration::from_secs(86_400)).from_first_request();
    let (tally, _) = clients_of(&server, counted, lease, &harm);
    let limiter = limiter(&trial.store(&server.url()), RULE, counted, None);
    let left = eventually("what is left of a limit", || block_on(limiter.peek_async(KEY)));
    let (charged, admitted) = (counted.capacity() - left.remaining().unwrap_or_default(), tally.admitted);
    // A reply that was lost may have been about a whole lease.
    let most = admitted + tally.in_doubt * lease.unwrap_or(1) + lost;
    findings.count_calls(&tally);
    findings.claim(admitted <= charged, || format!("{admitted} were admitted, and {charged} charged"));
    findings.claim(charged <= most, || format!("{charged} were charged for {admitted}, of {most} at most"));
    findings
}

fn client_killed(trial: &mut Trial) -> Findings {
    befalls_client(trial, None, CALLERS, Client::kill)
}

fn client_killed_with_lease(trial: &mut Trial) -> Findings {
    let chunk = trial.random.within(10..=40);
    // What it was about to write down, and what it held or was about to be given.
    befalls_client(trial, Some(chunk), CALLERS + chunk, Client::kill)
}

fn client_restarted_with_lease(trial: &mut Trial) -> Findings {
    let chunk = trial.random.within(10..=40);
    befalls_client(trial, Some(chunk), 0, Client::restart)
}

fn client_paused_with_lease(trial: &mut Trial) -> Findings {
    let (chunk, pause) = (trial.random.within(10..=40), trial.about(Duration::from_millis(900)));
    befalls_client(trial, Some(chunk), 0, |client| {
        client.pause();
        std::thread::sleep(pause);
        client.resume();
    })
}
