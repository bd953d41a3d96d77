//! What lies between a client and its server: a proxy that spoils connections,
//! packets that vanish, a name that is lost.

use std::time::Duration;

use tidegate_testkit::servers::{ChaosProxy, Fault as Spoil, Server, eventually};

use crate::bound::Damage;
use crate::fault::{Fault, Needs};
use crate::findings::Findings;
use crate::namespace::{Cut, Names};
use crate::pressure::Pressure;
use crate::trial::{DEADLINE, Trial};

pub(super) const FAULTS: &[Fault] = &[
    Fault::new("delay", "every packet is late, but within the deadline", "nothing, and no error", delay).quick(),
    Fault::new("delay-beyond-deadline", "every packet is later than the deadline", "nothing", long_delay).quick(),
    Fault::new("hang", "connections stay open, and nothing arrives until it is over", "nothing", hang).quick(),
    Fault::new("replies-swallowed", "requests arrive, replies vanish", "nothing", swallowed).quick(),
    Fault::new("reset", "connections are reset, old ones and new ones", "nothing", reset).quick(),
    Fault::new(
        "reset-after-request",
        "a connection is reset in place of a reply, again and again",
        "nothing",
        reset_after_request,
    )
    .quick(),
    Fault::new("half-closed", "the server's side of every connection is closed", "nothing", half_closed).quick(),
    Fault::new("dripping", "bytes arrive one by one", "nothing", dripping).quick(),
    Fault::new("flapping", "good and bad moments of every sort, in turn", "nothing", flapping).quick(),
    Fault::new("partition", "packets between clients and server vanish", "nothing", partition).needs(Needs::Namespace),
    Fault::new(
        "partition-of-requests",
        "packets to the server vanish, those from it arrive",
        "nothing",
        partition_of_requests,
    )
    .needs(Needs::Namespace),
    Fault::new(
        "partition-of-replies",
        "packets from the server vanish, those to it arrive",
        "nothing",
        partition_of_replies,
    )
    .needs(Needs::Namespace),
    Fault::new("name-lost", "the server's name is known no more when connections break", "nothing", name_lost)
        .needs(Needs::Namespace),
];

/// A server behind a proxy, and what the proxy does under load.
fn befalls(trial: &mut Trial, harm: impl FnOnce(&mut Trial, &ChaosProxy, &Pressure)) -> Findings {
    let server = Server::start();
    let proxy = ChaosProxy::start(server.address());
    let pressure = Pressure::start(trial, &trial.store(&proxy.url()));
    pressure.settle();
    harm(trial, &proxy, &pressure);
    proxy.set(Spoil::None);
    pressure.recover();
    pressure.judge(Damage::NONE)
}

/// One thing is wrong until it was felt, and a while longer.
fn spoiled(trial: &mut Trial, spoil: Spoil) -> Findings {
    befalls(trial, |trial, proxy, pressure| {
        proxy.set(spoil);
        pressure.suffer();
        pressure.endure(trial.about(Duration::from_millis(500)));
    })
}

fn delay(trial: &mut Trial) -> Findings {
    trial.be_patient();
    befalls(trial, |trial, proxy, pressure| {
        proxy.set(Spoil::Delay(Duration::from_millis(25)));
        pressure.endure(trial.about(Duration::from_millis(900)));
        pressure.go_on();
    })
    .without_errors()
}

fn long_delay(trial: &mut Trial) -> Findings {
    spoiled(trial, Spoil::Delay(DEADLINE * 2))
}

fn hang(trial: &mut Trial) -> Findings {
    spoiled(trial, Spoil::Stall)
}

fn swallowed(trial: &mut Trial) -> Findings {
    spoiled(trial, Spoil::SwallowReplies)
}

fn reset(trial: &mut Trial) -> Findings {
    spoiled(trial, Spoil::Reset)
}

fn half_closed(trial: &mut Trial) -> Findings {
    spoiled(trial, Spoil::HalfClose)
}

fn dripping(trial: &mut Trial) -> Findings {
    spoiled(trial, Spoil::Drip(Duration::from_millis(20)))
}

fn reset_after_request(trial: &mut Trial) -> Findings {
    befalls(trial, |_, proxy, _| {
        for _ in 0..12 {
            proxy.reset_after_next_request();
            eventually("a request", || if proxy.awaits_request() { Err("none") } else { Ok(()) });
        }
    })
}

fn flapping(trial: &mut Trial) -> Findings {
    befalls(trial, |trial, proxy, pressure| {
        let spoils = [Spoil::Reset, Spoil::Stall, Spoil::SwallowReplies, Spoil::HalfClose, Spoil::Delay(DEADLINE * 2)];
        for _ in 0..6 {
            let spoil = trial.random.choose(&spoils);
            proxy.set(spoil);
            pressure.endure(trial.about(Duration::from_millis(150)));
            proxy.set(Spoil::None);
            proxy.reset_connections();
            pressure.endure(trial.about(Duration::from_millis(150)));
        }
    })
}

/// A server that packets no longer reach, or that no longer reach its clients.
fn parted(trial: &mut Trial, cut: impl FnOnce(&Cut, u16)) -> Findings {
    let server = Server::start();
    let pressure = Pressure::start(trial, &trial.store(&server.url()));
    pressure.settle();
    let packets = Cut::none();
    cut(&packets, server.port());
    pressure.suffer();
    pressure.endure(trial.about(Duration::from_millis(700)));
    drop(packets);
    pressure.recover();
    pressure.judge(Damage::NONE)
}

fn partition(trial: &mut Trial) -> Findings {
    parted(trial, |cut, port| {
        cut.requests(port);
        cut.replies(port);
    })
}

fn partition_of_requests(trial: &mut Trial) -> Findings {
    parted(trial, Cut::requests)
}

fn partition_of_replies(trial: &mut Trial) -> Findings {
    parted(trial, Cut::replies)
}

fn name_lost(trial: &mut Trial) -> Findings {
    const NAME: &str = "store.tidegate.test";
    let server = Server::start();
    let names = Names::with(NAME);
    let pressure = Pressure::start(trial, &trial.store(&format!("redis://{NAME}:{}", server.port())));
    pressure.settle();
    names.set("");
    server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    pressure.suffer();
    pressure.endure(trial.about(Duration::from_millis(500)));
    names.set(&format!("127.0.0.1 {NAME}\n"));
    pressure.recover();
    pressure.judge(Damage::NONE)
}
