//! All faults, by family.

mod clock;
mod cluster;
mod memory;
mod network;
mod process;
mod replies;
mod reservations;
mod sentinel;
mod server;

use tidegate_testkit::servers::Server;

use crate::bound::Damage;
use crate::fault::{Family, Fault};
use crate::findings::Findings;
use crate::pressure::Pressure;
use crate::trial::Trial;

/// Every fault, in the order of reports.
#[must_use]
pub fn all() -> Vec<(Family, Fault)> {
    let of = |family| {
        let faults = match family {
            Family::Process => process::FAULTS,
            Family::Replies => replies::FAULTS,
            Family::Network => network::FAULTS,
            Family::Cluster => cluster::FAULTS,
            Family::Sentinel => sentinel::FAULTS,
            Family::Clock => clock::FAULTS,
            Family::Server => server::FAULTS,
            Family::Memory => memory::FAULTS,
        };
        faults.iter().map(move |fault| (family, *fault))
    };
    Family::ALL.into_iter().flat_map(of).collect()
}

/// A server of its own, something that befalls it under load, and what that may cost.
fn befalls_server(
    trial: &mut Trial,
    directives: &[(&str, &str)],
    damage: Damage,
    harm: impl FnOnce(&mut Trial, &Server, &Pressure),
) -> Findings {
    let server = Server::start_with(directives);
    let pressure = Pressure::start(trial, &trial.store(&server.url()));
    pressure.settle();
    harm(trial, &server, &pressure);
    pressure.recover();
    pressure.judge(damage)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::all;

    #[test]
    fn there_are_forty_kinds_and_more_each_with_a_name_of_its_own() {
        let faults = all();
        let names: BTreeSet<&str> = faults.iter().map(|(_, fault)| fault.name).collect();
        assert_eq!(names.len(), faults.len());
        assert!(faults.len() >= 40, "{}", faults.len());
        let is_word =
            |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        assert!(names.iter().all(|name| is_word(name)), "{names:?}");
    }

    /// The page lists what there is, in the words of the list.
    #[test]
    fn the_page_names_every_fault() {
        let page = include_str!("../../../docs/book/src/operate/chaos.md");
        for (_, fault) in all() {
            let row = format!("| `{}` | {} | {} |", fault.name, fault.what, fault.costs);
            assert!(page.contains(&row), "docs/book/src/operate/chaos.md lacks: {row}");
        }
    }
}
