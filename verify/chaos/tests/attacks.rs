//! The attacks that need a moment, each time: the server survives, the honest client
//! beside it gets all its answers, and memory stays below its bound. Latencies are
//! for `cargo xtask verify attack`, which has the machine to itself.

use tidegate_chaos::attack;

#[test]
fn quick_attacks_break_no_bound() {
    let quick: Vec<attack::Attack> = attack::all().into_iter().filter(|attack| attack.is_quick).collect();
    assert!(quick.len() > 10, "{} quick attacks", quick.len());
    let attempts: Vec<attack::Attempt> = quick.iter().map(|attack| attack::make(attack, false)).collect();
    let broken: Vec<String> =
        attempts.iter().filter(|attempt| !attempt.broken().is_empty()).map(ToString::to_string).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
