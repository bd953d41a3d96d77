//! Open files: how many connections fit into what the system grants.
//!
//! Each connection is an open file. Bounds that were asked for and do not fit are an error at
//! the start, not a failure to accept under load. Without a bound that was asked for, there are as many
//! connections as fit.

use rustix::process::{Resource, getrlimit};

use crate::run::connections::{Bounds, MAX_RESERVED};
use crate::settings::Settings;

/// Connections of each protocol, unless set and if they fit.
const CONNECTIONS: usize = 20_000;
/// However few files there are, a first try starts with so many.
const MIN_CONNECTIONS: usize = 16;
/// Files for all else: listeners, logs, the store, what a library opens for a moment.
const SPARE: usize = 128;

/// More connections than open files.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "--max-connections {connections} needs {needed} open files, and the system grants {granted}: raise the limit to \
     {needed} (ulimit -n, or LimitNOFILE), or set --max-connections to {fits} or less"
)]
pub struct TooFewFiles {
    connections: usize,
    needed: usize,
    granted: usize,
    fits: usize,
}

/// The bounds that the settings ask for, within the files that this process may open.
///
/// # Errors
/// If they ask for more than there are.
pub(crate) fn bounds(settings: &Settings) -> Result<Bounds, TooFewFiles> {
    let granted = getrlimit(Resource::Nofile).current.and_then(|files| usize::try_from(files).ok());
    within(settings, granted.unwrap_or(usize::MAX))
}

fn within(settings: &Settings, granted: usize) -> Result<Bounds, TooFewFiles> {
    let protocols = [&settings.http, &settings.resp, &settings.grpc].into_iter().filter(|all| !all.is_empty()).count();
    let handshakes = |connections: usize| match settings.tls_certificate {
        Some(_) => (connections / 8).clamp(64, 4096),
        None => 0,
    };
    let needed = |connections: usize| {
        connections.saturating_mul(protocols).saturating_add(handshakes(connections) + MAX_RESERVED + SPARE)
    };
    // With the most handshakes that so many can have: never too many, and at most an eighth too few.
    let rest = granted.saturating_sub(MAX_RESERVED + SPARE);
    let most = (rest / protocols.max(1)).min(CONNECTIONS);
    let fits = (rest.saturating_sub(handshakes(most)) / protocols.max(1)).min(CONNECTIONS);
    let connections = match settings.max_connections {
        Some(connections) if needed(connections) > granted => {
            return Err(TooFewFiles { connections, needed: needed(connections), granted, fits });
        }
        Some(connections) => connections,
        None => fits.max(MIN_CONNECTIONS),
    };
    let per_address = settings.max_connections_per_address.unwrap_or((connections / 4).max(64));
    Ok(Bounds { connections, per_address, handshakes: handshakes(connections) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn settings(max_connections: Option<usize>) -> Settings {
        Settings { max_connections, resp: vec!["127.0.0.1:0".parse().unwrap()], ..Settings::default() }
    }

    #[test]
    fn what_was_not_asked_for_fits() {
        let bounds = |granted| within(&settings(None), granted).unwrap();
        assert_eq!(bounds(1 << 20), Bounds { connections: 20_000, per_address: 5_000, handshakes: 0 });
        assert_eq!(bounds(1_024), Bounds { connections: 432, per_address: 108, handshakes: 0 });
        assert_eq!(bounds(48), Bounds { connections: MIN_CONNECTIONS, per_address: 64, handshakes: 0 });
        let tls = Settings { tls_certificate: Some("c.pem".into()), ..settings(None) };
        let tls = within(&tls, 1_024).unwrap();
        assert_eq!((tls.connections, tls.handshakes), (400, 64));
    }

    #[test]
    fn what_was_asked_for_and_does_not_fit_is_an_error_that_says_what_to_change() {
        let error = within(&settings(Some(1_000)), 1_024).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--max-connections 1000 needs 2160 open files, and the system grants 1024: raise the limit to 2160 (ulimit -n, \
             or LimitNOFILE), or set --max-connections to 432 or less"
        );
        assert_eq!(within(&settings(Some(432)), 1_024).unwrap().connections, 432);
        assert_eq!(within(&settings(Some(1_000)), 2_160).unwrap().connections, 1_000);
    }
}
