//! The end of a server, for clients of gRPC that ask on and on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

const CLIENTS: usize = 8;
const MANY: u64 = 1_000_000;

/// Without any grace: what has been charged has been answered, and what has no answer was not charged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_was_charged_before_the_end_has_been_answered() {
    let policy = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    fs::write(policy.path(), format!("[rules.all]\nlimit = \"{MANY}/day\"\nkey = [\"domain\"]\n")).unwrap();
    let path = policy.path().to_owned();
    let running = start(|settings| (settings.policy, settings.drain_grace_ms) = (Some(path), 0)).await;
    let (app, address) = (Arc::clone(running.server.app()), running.server.grpc_socket().unwrap());
    let answered = Arc::<AtomicU64>::default();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let (mut client, answered) = (Client::connect(address).await, Arc::clone(&answered));
        clients.push(tokio::spawn(async move {
            while let Ok(answer) = client.ask(request("loop", &["user=a"])).await {
                assert_eq!(answer.overall_code(), Limit::Ok);
                answered.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    while answered.load(Ordering::Relaxed) < 500 {
        tokio::task::yield_now().await;
    }
    assert!(running.server.drain().await);
    for client in clients {
        // A client that finds no connection any more may also say so by a panic.
        let _ = client.await;
    }
    let left = app.engine.limiter.peek_async(Request::without_key().with("domain", "loop")).await.unwrap().remaining();
    assert_eq!(MANY - left.expect("a limit"), answered.load(Ordering::Relaxed));
}
