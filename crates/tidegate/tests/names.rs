//! Names that are configured: kept for good, and so no more than a bound. Alone
//! in its process, whose names it uses up.

use tidegate::{ConfigError, Name};

#[test]
fn a_process_keeps_so_many_names_and_no_more() {
    for number in 0..Name::MOST {
        let name = number.to_string();
        assert_eq!(Name::configured(&name).expect("there is room").as_str(), name);
    }
    assert_eq!(Name::configured("one more"), Err(ConfigError::TooManyNames { bound: 100_000 }));
    assert_eq!(Name::configured("7"), Ok(Name::literal("7")), "those that are there are there");
    assert_eq!(format!("[{0:>3}] {0:?}", Name::literal("7")), "[  7] \"7\"");
    assert!(Name::literal("7") == "7" && Name::literal("7") != "8");
}
