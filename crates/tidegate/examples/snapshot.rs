//! Over a restart: the states are written to a file and restored from it, so
//! that a key that was limited before still is.

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter};
use std::time::Duration;

use tidegate::{Limit, Limiter, MemoryStore};

fn main() -> Result<(), Box<dyn Error>> {
    let limit = Limit::sliding_log(3, Duration::from_secs(3_600));
    let path = std::env::temp_dir().join(format!("tidegate-example-{}.snapshot", std::process::id()));

    let before = Limiter::new(limit);
    for _ in 0..3 {
        assert!(before.allow("alice"));
    }
    assert!(before.allow("bob"));
    before.store().snapshot(BufWriter::new(File::create(&path)?))?;
    println!("before: {} keys, alice is {}", before.store().count_keys(), before.peek("alice")?);
    println!("snapshot: {} bytes", fs::metadata(&path)?.len());
    drop(before);

    let store = MemoryStore::builder().restore(BufReader::new(File::open(&path)?))?;
    let after = Limiter::with_store(limit, store)?;
    println!("after:  {} keys", after.store().count_keys());
    for caller in ["alice", "bob", "carol"] {
        println!("  {caller:<6} {}", after.check(caller)?);
    }

    // A snapshot that is cut short is refused whole.
    let bytes = fs::read(&path)?;
    fs::remove_file(&path)?;
    match MemoryStore::builder().restore(&bytes[..bytes.len() - 1]) {
        Ok(_) => println!("half a snapshot was taken for a whole one"),
        Err(error) => println!("a byte less: {error}"),
    }
    Ok(())
}
