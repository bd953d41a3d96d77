//! A limiter that follows its file: a limit is lowered, then the file is
//! spoilt, then mended. Each step waits for what the watcher tells.
//!
//! ```text
//! cargo run -p tidegate-config --features watch --example reload
//! ```

use std::error::Error;
use std::fs;
use std::sync::mpsc::channel;

use tidegate::Limiter;

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::temp_dir().join(format!("tidegate-reload-{}.toml", std::process::id()));
    fs::write(&file, "[rules.orders]\nlimit = '10/h'\n")?;
    let limiter = Limiter::new(tidegate_config::load(&file)?);
    let (teller, told) = channel();
    let changed = limiter.clone();
    let watch = tidegate_config::watch(&file, move |policy| changed.set_policy(policy))
        .report_to(move |outcome| drop(teller.send(outcome.to_string())))
        .start()?;
    println!("at the start: {}", told.recv()?);

    let used = (0..6).filter(|_| limiter.allow("alice")).count();
    println!("alice has used {used}; the next is {}", limiter.peek("alice")?);
    for text in ["[rules.orders]\nlimit = '8/h'\n", "[rules.orders]\nlimt = '9/h'\n", "[rules.orders]\nlimit = '9/h'\n"]
    {
        // As editors do it: the file is never there by half.
        let new = file.with_extension("new");
        fs::write(&new, text)?;
        fs::rename(&new, &file)?;
        println!("\n{}: {}", text.replace('\n', " ").trim(), told.recv()?);
        println!("alice's next is {}", limiter.peek("alice")?);
    }
    println!("\n{:?}", watch.counts());
    fs::remove_file(&file)?;
    Ok(())
}
