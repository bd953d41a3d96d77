//! A word to systemd: ready, leaving, still there.
//!
//! One datagram to the socket that it names (`sd_notify`); without one,
//! nothing is sent.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tracing::warn;

/// Tells systemd, if it is there.
pub(crate) fn notify(state: &str) {
    let Some(socket) = env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(socket.as_encoded_bytes(), state) {
        warn!(%error, "cannot tell systemd");
    }
}

fn send(socket: &[u8], state: &str) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let address = match socket.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(socket))?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

/// Tells the watchdog, if there is one, that the runtime still runs: twice in
/// each of its periods.
pub(crate) async fn feed_watchdog() {
    let period = env::var("WATCHDOG_USEC").ok().and_then(|text| text.parse().ok());
    let Some(period) = period.filter(|period| *period > 1).map(Duration::from_micros) else { return };
    loop {
        tokio::time::sleep(period / 2).await;
        notify("WATCHDOG=1");
    }
}
