//! Other work on the machine, to show that no test depends on its absence.
//!
//! Each busy process holds the end of a pipe from this one, so it ends when
//! this one does, however that comes about.

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::run::{Failure, root};

/// What `cargo xtask` is called with to be one of the busy processes.
pub(crate) const BUSY: &str = "be-busy";

const FILE_BYTES: usize = 64 * 1_024 * 1_024;

/// Busy processes; they end when this is dropped.
pub(crate) struct Load(Vec<Child>);

impl Load {
    /// Twice as many as there are cores that compute, and one that writes and drops files.
    pub(crate) fn start() -> Result<Load, Failure> {
        let cores = thread::available_parallelism().map_or(2, usize::from);
        let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let start = |work: &str| {
            let child = Command::new(&program).args([BUSY, work]).stdin(Stdio::piped()).spawn();
            child.map_err(|error| format!("could not start a busy process: {error}"))
        };
        let mut children: Vec<Child> = (0..2 * cores).map(|_| start("computing")).collect::<Result<_, _>>()?;
        children.push(start("writing")?);
        println!("Beside {} processes that compute and one that writes files.", 2 * cores);
        Ok(Load(children))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Fails only for one that has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// One busy process, until the other end of its input is closed.
pub(crate) fn be_busy(work: &[String]) -> Result<(), Failure> {
    match work {
        [work] if work == "computing" => {
            thread::spawn(|| {
                let mut number: u64 = 1;
                loop {
                    number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
                }
            });
        }
        [work] if work == "writing" => {
            thread::spawn(|| {
                let path = root().join("target/ci/load");
                while write_and_drop(&path).is_ok() {}
            });
        }
        other => return Err(format!("{other:?} is no work")),
    }
    io::stdin().read_to_end(&mut Vec::new()).map(drop).map_err(|error| error.to_string())
}

fn write_and_drop(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    let mut file = fs::File::create(path)?;
    file.write_all(&vec![1; FILE_BYTES])?;
    file.sync_all()?;
    fs::remove_file(path)
}
