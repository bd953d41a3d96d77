//! One attempt at a fault, and what came of it.

use std::panic::{self, AssertUnwindSafe};

use tidegate_testkit::Random;

use crate::fault::{Fault, Needs};
use crate::findings::Findings;
use crate::trial::Trial;
use crate::{namespace, shim, tidegate_process};

/// What came of making a fault once.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// It was made.
    Run(Box<Findings>),
    /// It cannot be made here.
    NotRun {
        /// Why.
        reason: String,
    },
}

/// Makes a fault once, by chance of this seed.
pub fn attempt(fault: &Fault, seed: u64) -> Verdict {
    if let Err(reason) = possible(fault.needs) {
        return Verdict::NotRun { reason };
    }
    // The same fault meets the same chance, whichever others are run.
    let name = fault.name.bytes().fold(seed, |sum, byte| Random::new(sum ^ u64::from(byte)).number());
    let mut trial = Trial::new(name);
    match panic::catch_unwind(AssertUnwindSafe(|| (fault.happens)(&mut trial))) {
        Ok(findings) => Verdict::Run(Box::new(findings)),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words");
            let broken = vec![format!("it did not come to its end: {text}")];
            Verdict::Run(Box::new(Findings { broken, ..Findings::default() }))
        }
    }
}

/// Whether this machine has what a fault needs; why not, if not.
fn possible(needs: Needs) -> Result<(), String> {
    match needs {
        Needs::Nothing => Ok(()),
        Needs::Namespace => namespace::is_ready(),
        Needs::Compiler => shim::is_ready(),
        Needs::Tidegate => tidegate_process::is_ready(),
        Needs::TidegateInNamespace => namespace::is_ready().and_then(|()| tidegate_process::is_ready()),
        Needs::TidegateAndCompiler => shim::is_ready().and_then(|()| tidegate_process::is_ready()),
    }
}
