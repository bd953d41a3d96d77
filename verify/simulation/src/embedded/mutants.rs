//! The scripts with every small defect there is, one at a time: do the tests
//! notice?
//!
//! A mutant is another text for the interpreter, so nothing is compiled, and
//! most are caught within milliseconds. Those that are not must be listed in
//! `mutants/survivors.rs`, with the reason why they change nothing.

mod lua;
mod survivors;

use std::cell::Cell;
use std::fmt;
use std::panic::{self, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tidegate::Algorithm;
use tidegate_redis::internals::{Length, PARTS, assemble};

use self::lua::PlantedDefect;
use self::survivors::{SURVIVORS, Survivor};
use super::{
    calendar, compare, debt, embedded, expiry, former, heal, host, once, settings, strict, sums, swap, told, undo,
};

/// What a mutant has to pass: about a second for one that passes it all.
fn quick() -> Vec<(&'static str, fn())> {
    let mut tests: Vec<(&str, fn())> = vec![
        ("a few decisions", || drop(compare(&Algorithm::ALL, 3_000))),
        ("a swap", swap::a_swap_is_carried_out_with_the_others_or_not_at_all),
        ("a list", swap::a_list_is_swapped_as_a_string_is),
        ("any bytes", swap::a_state_may_be_of_any_bytes_and_its_time_may_be_over),
        ("the bounds of states", swap::a_state_at_its_bound_is_one_and_beyond_it_none),
        ("what no limit wrote", swap::what_no_limit_wrote_is_an_error),
        ("marks", told::marks_are_kept_for_a_period_and_removed_when_less_is_used),
        ("marks that stay", told::a_mark_is_removed_only_when_less_is_used_than_its_threshold),
        ("marks of percentages", told::a_mark_is_of_its_own_percentage),
        ("what a client crossed", told::what_the_client_decided_is_told_once),
        ("usual settings", settings::what_is_not_sent_is_as_usual),
        ("periods", calendar::a_period_that_is_not_the_servers_is_refused_and_nothing_is_done),
        ("the time", settings::the_time_that_is_sent_is_the_time),
        ("what is withheld", settings::what_is_withheld_is_decided_and_not_carried_out),
        ("an id", once::an_id_is_known_for_its_time_with_and_without_a_history),
        ("totals", || sums::play(10)),
        ("debt", || debt::play(20)),
        ("nothing", debt::a_cost_of_nothing_writes_nothing),
        ("a log at the epoch", debt::a_log_that_is_given_back_at_the_epoch_is_as_if_never_used),
        ("strict mode gives nothing back", strict::nothing_is_given_back_while_a_history_is_new),
        ("a clock set back", strict::a_clock_that_steps_back_locks_no_key_out),
        ("a look in the past", strict::a_look_in_the_past_moves_no_history_back),
        ("strict mode", || strict::play(4)),
        ("expiry", || expiry::play(300)),
        ("a new history", strict::a_state_ahead_of_a_new_history_grants_nothing),
        ("what was decided by", once::a_reply_is_known_by_its_limits),
        ("what a client decided", once::what_a_client_decided_is_remembered_and_renewed),
        ("a late settlement", once::what_is_settled_late_is_given_back_but_for_what_is_kept),
        ("a renewal", once::a_renewal_lasts_as_long_as_the_reservation),
        ("a limit that replaced another", once::a_charge_is_found_by_the_limit_that_was_replaced),
        ("a settlement after a change", once::a_charge_is_settled_in_the_state_that_was_charged),
        ("a renewal after a change", once::a_charge_that_is_renewed_is_of_the_limit_that_was_charged),
        ("a log in use", expiry::a_log_in_use_expires_and_forgets_in_time),
        ("all given back", expiry::what_is_given_back_in_full_leaves_nothing),
        ("an undo in the past", undo::an_undo_by_a_clock_that_went_back_tells_how_things_stand),
        ("its own window", undo::an_undo_takes_only_from_its_own_window),
        ("an entry undone", undo::a_log_loses_the_entry_that_is_undone),
        ("an entry within a long log", undo::an_entry_within_a_long_log_is_undone),
        ("healing", heal::a_state_heals_from_the_same_microsecond_on_as_by_the_oracle),
        ("one increment", expiry::a_bucket_in_use_is_one_increment),
        ("what has not drained", undo::a_bucket_gives_back_what_has_not_drained),
        ("undone charges", || undo::play(40)),
        ("former limits", || former::play(120)),
    ];
    tests.extend(embedded::ALL);
    tests
}

/// What those have to pass as well that are not caught by then.
fn thorough() -> Vec<(&'static str, fn())> {
    vec![
        ("all strict mode", || strict::play(20)),
        ("all undone charges", || undo::play(200)),
        ("all expiry", || expiry::play(1_000)),
        ("all totals", || sums::play(50)),
        ("all debt", || debt::play(200)),
        ("all former limits", || former::play(1_000)),
        ("many decisions", || drop(compare(&Algorithm::ALL, 60_000))),
    ]
}

/// A test, and how often it calls the scripts when they are sound.
struct Test {
    name: &'static str,
    run: fn(),
    calls: u64,
}

impl Test {
    fn all(tests: Vec<(&'static str, fn())>) -> Vec<Test> {
        let counted = |(name, run): (&'static str, fn())| {
            host::allow_calls(u64::MAX);
            run();
            Test { name, run, calls: u64::MAX - host::allow_calls(u64::MAX) }
        };
        tests.into_iter().map(counted).collect()
    }

    /// Half as many calls again are allowed, as a test that fails may look for a shorter way to.
    fn notices(&self) -> bool {
        host::allow_calls(self.calls + self.calls / 2);
        catch_unwind(self.run).is_err()
    }
}

struct Mutant {
    file: &'static str,
    defect: PlantedDefect,
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mutant { file, defect: PlantedDefect { line, from, to } } = self;
        write!(f, "{file}, line {}:\n  - {from}\n  + {to}", line + 1)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is no Lua.
    Unviable,
    Caught {
        by: &'static str,
    },
    Missed,
    /// Said to be none, and taken for that.
    Listed,
}

impl Mutant {
    fn all() -> Vec<Mutant> {
        let of_part = |(file, text): (&'static str, &str)| {
            let defects = lua::defects(text).into_iter();
            defects.map(move |defect| Mutant { file, defect }).collect::<Vec<_>>()
        };
        PARTS.into_iter().flat_map(of_part).collect()
    }

    /// The short and the long script with the defect in them.
    fn texts(&self) -> [String; 2] {
        let texts = PARTS.map(|(file, text)| if file == self.file { self.defect.made_in(text) } else { text.into() });
        let parts = texts.each_ref().map(String::as_str);
        [Length::Short, Length::Long].map(|length| assemble(length, &parts))
    }

    /// The test that noticed the defect before comes first: neighbours in the text are mostly noticed by the same.
    fn fate<'t>(&self, tests: &'t [Test], last: &mut Option<&'t Test>) -> Fate {
        if host::replace(self.texts()).is_err() {
            return Fate::Unviable;
        }
        match last.iter().copied().chain(tests).find(|test| test.notices()) {
            Some(test) => {
                *last = Some(test);
                Fate::Caught { by: test.name }
            }
            None => Fate::Missed,
        }
    }

    fn is_listed(&self) -> bool {
        SURVIVORS.iter().any(|survivor| self.is(survivor))
    }

    fn is(&self, survivor: &Survivor) -> bool {
        let PlantedDefect { from, to, .. } = &self.defect;
        (self.file, from.as_str(), to.as_str()) == (survivor.file, survivor.from, survivor.to)
    }
}

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// What the tests of mutants say when they fail is of no interest.
fn be_quiet() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_QUIET.get() {
                usual(info);
            }
        }));
    });
    IS_QUIET.set(true);
}

/// What becomes of each, on all processors.
fn fates(mutants: &[Mutant]) -> Vec<Fate> {
    let next = AtomicUsize::new(0);
    // Mostly only those are asked that should be caught: that no test catches the others takes long to find out.
    let is_thorough = std::env::var_os("TIDEGATE_MUTANTS").is_some();
    let tests = Test::all(if is_thorough { [quick(), thorough()].concat() } else { quick() });
    let work = || {
        be_quiet();
        let (mut known, mut last) = (Vec::new(), None);
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(mutant) = mutants.get(index) else { return known };
            let fate = if is_thorough || !mutant.is_listed() { mutant.fate(&tests, &mut last) } else { Fate::Listed };
            if fate == Fate::Missed {
                println!("missed: {mutant}");
            }
            known.push((index, fate));
        }
    };
    let mut fates = vec![Fate::Missed; mutants.len()];
    thread::scope(|scope| {
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            for (index, fate) in worker.join().expect("a worker only catches panics") {
                fates[index] = fate;
            }
        }
    });
    fates
}

#[test]
fn every_defect_in_a_script_is_noticed() {
    let mutants = Mutant::all();
    let fates = fates(&mutants);
    let count = |is: fn(&Fate) -> bool| fates.iter().filter(|fate| is(fate)).count();
    println!(
        "{} mutants of the scripts: {} caught, {} missed, {} listed, {} are no Lua",
        mutants.len(),
        count(|fate| matches!(fate, Fate::Caught { .. })),
        count(|fate| *fate == Fate::Missed),
        mutants.iter().filter(|mutant| mutant.is_listed()).count(),
        count(|fate| *fate == Fate::Unviable),
    );
    let left: Vec<&Mutant> = mutants
        .iter()
        .zip(&fates)
        .filter(|(_, fate)| matches!(fate, Fate::Missed | Fate::Listed))
        .map(|(mutant, _)| mutant)
        .collect();
    let mut wrong = Vec::new();
    for mutant in left.iter().filter(|mutant| !mutant.is_listed()) {
        wrong.push(format!("no test notices {mutant}"));
    }
    for survivor in SURVIVORS.iter().filter(|survivor| !left.iter().any(|mutant| mutant.is(survivor))) {
        let Survivor { file, from, to, .. } = survivor;
        wrong.push(format!("{file}: is noticed, or gone, and still listed\n  - {from}\n  + {to}"));
    }
    assert!(SURVIVORS.iter().all(|survivor| !survivor.why.is_empty()));
    assert!(wrong.is_empty(), "{}\n{} to look at", wrong.join("\n"), wrong.len());
}
