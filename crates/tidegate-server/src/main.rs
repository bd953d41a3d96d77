//! The binary `tidegate`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tidegate_server::{Server, Settings};

/// A rate limiter: exact counts, five algorithms, one binary.
#[derive(Parser)]
#[command(name = "tidegate", version)]
struct Command {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Serve limits until Ctrl-C or SIGTERM
    Serve(Box<Settings>),
}

fn main() -> ExitCode {
    let Command { task: Task::Serve(settings) } = Command::parse();
    tracing_subscriber::fmt().init();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let server = match Server::open(*settings).await {
            Ok(server) => server,
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        };
        for address in server.http() {
            println!("tidegate serves HTTP on {address}");
        }
        for address in server.resp() {
            println!("tidegate serves RESP on {address}");
        }
        let _ = tokio::signal::ctrl_c().await;
        server.drain().await;
        ExitCode::SUCCESS
    })
}
