//! Meters: equality, identity, warm-up and floors.

use std::time::Duration;

use super::*;
use crate::kernel::{Admission, Log};

const NOW: Micros = Micros::new(1_700_000_000_000_000);

fn meter(words: &str) -> Meter {
    Meter::new(Name::literal("rule"), words.parse::<Limit>().expect("a limit"))
}

#[test]
fn states_belong_to_the_name_and_the_limit_and_what_keys_are_made_of() {
    let plain = meter("10/s");
    assert_eq!(plain.meaning(), "10/s");
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
    let keyed: [Vec<Vec<String>>; 7] = [
        vec![],
        vec![names(&["a"])],
        vec![names(&["a"]), names(&["b"])],
        vec![names(&["a b"])],
        vec![names(&["a\\"]), names(&["b"])],
        vec![names(&["a", "b"])],
        vec![names(&["a|b"])],
    ];
    let with = |attributes: &[Vec<String>]| meter("10/s").keyed_by(attributes.iter().map(Vec::as_slice));
    let meanings = keyed.each_ref().map(|attributes| with(attributes).meaning().to_owned());
    let expected = [" for all", " by a", " by a b", " by a\\ b", " by a\\\\ b", " by a|b", " by a\\|b"];
    assert_eq!(meanings, expected.map(|words| format!("10/s{words}")));
    let renamed = Meter::new(Name::literal("other"), "10/s".parse().expect("a limit"));
    let all: Vec<Meter> =
        keyed.iter().map(|attributes| with(attributes)).chain([plain, meter("11/s"), renamed]).collect();
    for (index, one) in all.iter().enumerate() {
        for (other_index, other) in all.iter().enumerate() {
            assert_eq!(one.is_same_as(other), index == other_index, "{} {}", one.meaning(), other.meaning());
            assert_eq!(one.identity() == other.identity(), index == other_index);
        }
    }
}

#[test]
fn a_name_does_not_run_into_the_limit() {
    let (one, other) = (Meter::new(Name::literal("rule"), Limit::per_second(110)), Limit::per_second(10));
    assert_ne!(one.identity(), Meter::new(Name::literal("rule1"), other).identity());
}

#[test]
fn a_limit_that_keys_climb_to_is_another_one() {
    let warm_up = WarmUp::new(2, Duration::from_secs(60)).expect("a warm-up");
    let (plain, climbed) = (meter("10/s"), meter("10/s").warming_up(warm_up));
    assert!(plain.is_simple() && !climbed.is_simple());
    assert_eq!([&plain, &climbed].map(Meter::capacity), [10, 10]);
    assert_eq!([&plain, &climbed].map(Meter::largest_cost), [10, 2]);
    assert_eq!([&plain, &climbed].map(Meter::warm_up), [None, Some(warm_up)]);
    assert_eq!([&plain, &climbed].map(|meter| meter.limit().is_some()), [true, false]);
    assert_eq!(climbed.nominal_limit(), plain.limit());
    assert_eq!(climbed.meaning(), "10/s warming up from 2 over 1min");
    assert_ne!(climbed.identity(), plain.identity());
    let refused = climbed.kernel().admit(&Default::default(), NOW, 3);
    assert!(matches!(refused, Admission::Wait { .. }), "the kernel is the one that climbs");
    // A limit of no more than the start, and a custom kernel, stay as they are.
    assert_eq!(meter("2/s").warming_up(warm_up), meter("2/s"));
    let custom = Meter::custom(Name::literal("rule"), Log::new(5, 1_000_000)).warming_up(warm_up);
    assert_eq!((custom.warm_up(), custom.limit(), custom.largest_cost()), (None, None, 5));
}

#[test]
fn fixed_windows_of_one_period_can_share_one_state() {
    let [ten, six, hourly] = ["fixed 10/min", "fixed 6/min", "fixed 10/h"].map(|words| meter(words).by_period());
    assert_eq!([&ten, &six, &hourly].map(Meter::meaning), ["fixed any/min", "fixed any/min", "fixed any/h"]);
    assert!(ten.is_same_as(&six) && ten.identity() == six.identity() && ten != six);
    assert_ne!(ten.identity(), hourly.identity());
    assert_ne!(ten.identity(), meter("fixed 10/min").identity());
    assert_eq!((ten.capacity(), six.capacity(), ten.is_simple()), (10, 6, false));
    assert_eq!(meter("fixed 10/10s from-first").by_period().meaning(), "fixed any/10s from-first");
    for words in ["10/min", "leaky 10/min", "sliding 10/min", "sliding-log 10/min"] {
        assert_eq!(meter(words).by_period(), meter(words), "{words}");
    }
}

#[test]
fn a_share_counts_as_the_whole_does() {
    let share = |meter: &Meter| meter.share(NonZeroU32::new(2).expect("not zero"));
    for words in ["10/min", "fixed 10/min", "sliding 10/min", "sliding-log 10/min"] {
        let limit = words.parse::<Limit>().expect("a limit").share(NonZeroU32::new(2).expect("not zero"));
        assert_eq!(share(&meter(words)), Meter::new(Name::literal("rule"), limit), "{words}");
    }
    let any = share(&meter("fixed 10/min").by_period());
    assert_eq!((any.capacity(), any.meaning()), (5, "fixed any/min"));
    let custom = Meter::custom(Name::literal("rule"), Log::new(5, 1_000_000));
    assert_eq!(share(&custom), custom);
}

#[test]
fn meters_are_equal_that_answer_alike() {
    let log = || meter("sliding-log 5/s");
    assert_eq!(meter("5/s"), meter("5/s"));
    assert_eq!(log(), log(), "its kernel lives on the heap, but is no custom one");
    assert_ne!(meter("5/s"), meter("6/s"));
    assert_ne!(log(), meter("sliding-log 6/s"));
    assert_ne!(meter("5/s"), Meter::new(Name::literal("other"), Limit::per_second(5)));
    assert_ne!(meter("5/s"), meter("5/s").on_failure(FailureMode::Open));
    assert_ne!(meter("5/s"), meter("5/s").keyed_by([&["user".to_owned()][..]]));
    let [own, other] = [(); 2].map(|()| Meter::custom(Name::literal("rule"), Log::new(5, 1_000_000)));
    assert_eq!(own, own.clone());
    assert_ne!(own, other, "kernels cannot be compared");
    assert_eq!(format!("{:?}", meter("5/s")), r#"Meter { name: "rule", limit: "5/s" }"#);
    assert_eq!(format!("{own:?}"), r#"Meter { name: "rule", kernel: "custom" }"#);
}
