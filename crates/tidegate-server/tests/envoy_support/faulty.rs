//! A way to Redis on which the call of one's choice fails.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

/// How long a call takes to fail: those who are impatient have gone by then.
pub(crate) const DELAY: Duration = Duration::from_millis(300);

/// Forwards everything but the call that is to fail.
pub(crate) struct Faulty {
    address: SocketAddr,
    /// Calls until one fails, if it is above zero.
    left: Arc<AtomicI64>,
}

impl Faulty {
    pub(crate) fn before(server: SocketAddr) -> Faulty {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, left) = (listener.local_addr().unwrap(), Arc::new(AtomicI64::new(0)));
        let of_thread = Arc::clone(&left);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(server).unwrap());
                let (to_client, from_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let left = Arc::clone(&of_thread);
                thread::spawn(move || forward(client, server, Some(&left)));
                thread::spawn(move || forward(from_server, to_client, None));
            }
        });
        Faulty { address, left }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Lets the call of this number, from now on, have an error for its answer.
    pub(crate) fn fail_at(&self, number: i64) {
        self.left.store(number, Ordering::SeqCst);
    }
}

/// Whoever waits for each answer sends one call at a time.
fn forward(mut from: TcpStream, mut to: TcpStream, left: Option<&AtomicI64>) {
    let mut bytes = [0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        let is_call = bytes[..length].windows(7).any(|word| word == b"EVALSHA");
        let fails = left.is_some_and(|left| is_call && left.fetch_sub(1, Ordering::SeqCst) == 1);
        if fails {
            thread::sleep(DELAY);
        }
        let forwarded = if fails { from.write_all(b"-ERR planted\r\n") } else { to.write_all(&bytes[..length]) };
        if forwarded.is_err() {
            return;
        }
    }
}
