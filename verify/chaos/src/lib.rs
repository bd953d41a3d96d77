//! Faults under load: something goes wrong while callers ask without end, and
//! what `PROMISES.md` says has to hold all the same.
//!
//! A [`Fault`] is one kind of misfortune: a name, a sentence, a bound, and a
//! function that starts real servers, puts a load on them, does the harm, heals it
//! and judges. What is judged is always the same, by [`Findings`]:
//!
//! - in *every* interval no more was admitted than the bound of this fault says;
//! - of a limit without refill, exactly what was admitted was charged, plus at most
//!   what stayed in doubt; with request ids, exactly;
//! - while the store is down the fallback decides as configured, and says so;
//! - every call ended in time, with an answer or an error of a known type;
//! - once it is healed, the store answers again.
//!
//! A fault that cannot be made on a machine is *not run*, with the reason; it never
//! counts as passed. Everything that chance decides (the algorithm, the numbers, the
//! failure mode, how long it lasts) follows from a seed.
//!
//! `cargo xtask verify chaos` runs all of them and writes a report; `docs/book/src/operate/chaos.md` lists
//! them.

pub mod attack;
mod attempt;
mod bound;
mod client;
mod fault;
mod faults;
mod findings;
mod holder;
mod namespace;
mod pressure;
mod report;
mod shim;
mod tidegate_process;
mod trial;

pub use attempt::{Verdict, attempt};
pub use client::{ClientOptions, run as run_client, set_program};
pub use fault::{Family, Fault, Needs};
pub use faults::all;
pub use findings::Findings;
pub use holder::{HolderOptions, run as run_holder};
pub use namespace::{enter as enter_namespace, is_own as is_own_namespace};
pub use report::{Report, Run};
pub use trial::Trial;
