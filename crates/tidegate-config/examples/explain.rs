//! Loads a policy and explains what it makes of a request: by default the
//! policy beside this file and an order of a user.
//!
//! ```text
//! cargo run -p tidegate-config --example explain -- policy.yaml user=alice ip=10.0.0.1
//! ```

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use tidegate::{Limiter, MemoryStore, Request};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/policy.toml");
    let path = arguments.next().map_or(here, Into::into);
    let mut attributes: Vec<String> = arguments.collect();
    if attributes.is_empty() {
        let order =
            ["user=alice", "tenant=acme-eu", "method=POST", "path=/api/orders", "ip=198.51.100.7", "agent=a bot"];
        attributes = order.map(String::from).into();
    }

    let policy = match tidegate_config::load(&path) {
        Ok(policy) => policy,
        Err(report) => {
            eprintln!("{report}");
            return Ok(ExitCode::FAILURE);
        }
    };
    let limiter = Limiter::with_store(policy, MemoryStore::default())?;
    let mut request = Request::new(());
    for attribute in &attributes {
        let (name, value) = attribute.split_once('=').ok_or("give attributes as name=value")?;
        request = request.with(name, value);
    }
    print!("{}", limiter.explain(request)?);
    Ok(ExitCode::SUCCESS)
}
