//! A way to Redis on which the call of one's choice fails.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use tokio::sync::oneshot;

/// Forwards everything but the call that is to fail.
pub(crate) struct Faulty {
    address: SocketAddr,
    plan: Arc<Mutex<Plan>>,
}

#[derive(Default)]
struct Plan {
    /// Calls until one fails, if it is above zero.
    left: u64,
    /// Told when that call has come, and waited for before it fails.
    hold: Option<(oneshot::Sender<()>, mpsc::Receiver<()>)>,
}

/// A call that does not fail before this is dropped.
pub(crate) struct Held {
    come: oneshot::Receiver<()>,
    _release: mpsc::Sender<()>,
}

impl Held {
    /// Waits until the call has come.
    pub(crate) async fn has_come(&mut self) {
        (&mut self.come).await.unwrap();
    }
}

impl Faulty {
    pub(crate) fn before(server: SocketAddr) -> Faulty {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, plan) = (listener.local_addr().unwrap(), Arc::<Mutex<Plan>>::default());
        let of_thread = Arc::clone(&plan);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(server).unwrap());
                let (to_client, from_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let plan = Arc::clone(&of_thread);
                thread::spawn(move || forward(client, server, Some(&plan)));
                thread::spawn(move || forward(from_server, to_client, None));
            }
        });
        Faulty { address, plan }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Lets the call of this number, from now on, have an error for its answer.
    pub(crate) fn fail_at(&self, number: u64) {
        *self.plan.lock().unwrap() = Plan { left: number, hold: None };
    }

    /// As [`fail_at`](Faulty::fail_at), but when the test says so.
    pub(crate) fn hold_at(&self, number: u64) -> Held {
        let ((say, come), (release, released)) = (oneshot::channel(), mpsc::channel());
        *self.plan.lock().unwrap() = Plan { left: number, hold: Some((say, released)) };
        Held { come, _release: release }
    }
}

/// A client that waits for each answer sends one call at a time.
fn forward(mut from: TcpStream, mut to: TcpStream, plan: Option<&Mutex<Plan>>) {
    let mut bytes = [0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        let is_call = bytes[..length].windows(7).any(|word| word == b"EVALSHA");
        let fails = is_call && plan.is_some_and(fails);
        let forwarded = if fails { from.write_all(b"-ERR planted\r\n") } else { to.write_all(&bytes[..length]) };
        if forwarded.is_err() {
            return;
        }
    }
}

/// Whether this call is the one that fails, once it may.
fn fails(plan: &Mutex<Plan>) -> bool {
    let hold = {
        let mut plan = plan.lock().unwrap();
        let is_last = plan.left == 1;
        plan.left = plan.left.saturating_sub(1);
        if !is_last {
            return false;
        }
        plan.hold.take()
    };
    if let Some((come, released)) = hold {
        let _ = come.send(());
        // An error says that it was released.
        let _ = released.recv();
    }
    true
}
