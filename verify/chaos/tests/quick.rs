//! The faults that need a moment and no more than the servers: all of them each time.

use tidegate_chaos::{Family, Verdict, all, attempt, set_program};

/// Makes every quick fault of a family once, by a seed that is always the same.
fn make(family: Family) {
    set_program(env!("CARGO_BIN_EXE_tidegate-chaos"));
    let faults = all().into_iter().filter(|(of, fault)| *of == family && fault.is_quick);
    let mut made = 0;
    for (_, fault) in faults {
        match attempt(&fault, 1) {
            Verdict::Run(findings) => {
                assert!(findings.broken.is_empty(), "{}: {:?}; {:?}", fault.name, findings.broken, findings.notes);
                assert!(findings.claims > 0 && findings.calls > 0, "{}: nothing was looked at", fault.name);
            }
            Verdict::NotRun { reason } => panic!("{} is quick, and was not run: {reason}", fault.name),
        }
        made += 1;
    }
    assert!(made > 3, "{made} faults of the family {family}");
}

#[test]
fn processes_that_end_and_come_back_cost_what_is_promised() {
    make(Family::Process);
}

#[test]
fn servers_that_answer_badly_cost_what_is_promised() {
    make(Family::Replies);
}

#[test]
fn connections_that_go_wrong_cost_nothing() {
    make(Family::Network);
}

#[test]
fn a_store_in_memory_keeps_its_bound_whatever_the_clock_does() {
    make(Family::Memory);
}
