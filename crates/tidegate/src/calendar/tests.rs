use super::*;

fn calendar(words: &str) -> Calendar {
    words.parse().expect(words)
}

/// An instant, in ISO 8601.
fn at(instant: &str) -> Micros {
    let instant: Timestamp = instant.parse().expect(instant);
    Micros::new(instant.as_microsecond().try_into().expect("after the epoch"))
}

#[track_caller]
fn assert_period(words: &str, instant: &str, start: &str, end: &str) {
    let (from, to) = calendar(words).period_of(at(instant));
    assert_eq!((from, to), (at(start), at(end)), "{words} at {instant}");
    // The same for its first and its last microsecond, and not for the one after.
    assert_eq!(calendar(words).computed(from.get()), (from.get(), to.get()), "{words}: first");
    assert_eq!(calendar(words).computed(to.get() - 1), (from.get(), to.get()), "{words}: last");
    assert_eq!(calendar(words).computed(to.get()).0, to.get(), "{words}: next");
}

#[test]
fn a_period_goes_from_anchor_to_anchor() {
    for (words, start, end) in [
        ("hour in UTC", "2026-02-10T13:00:00Z", "2026-02-10T14:00:00Z"),
        ("hour in Asia/Kathmandu", "2026-02-10T13:15:00Z", "2026-02-10T14:15:00Z"),
        ("day in UTC", "2026-02-10T00:00:00Z", "2026-02-11T00:00:00Z"),
        ("day in America/New_York", "2026-02-10T05:00:00Z", "2026-02-11T05:00:00Z"),
        ("day in America/New_York from 06:00", "2026-02-10T11:00:00Z", "2026-02-11T11:00:00Z"),
        ("day in America/New_York from 09:00", "2026-02-09T14:00:00Z", "2026-02-10T14:00:00Z"),
        ("week in UTC", "2026-02-09T00:00:00Z", "2026-02-16T00:00:00Z"),
        ("week in UTC from tuesday", "2026-02-10T00:00:00Z", "2026-02-17T00:00:00Z"),
        ("week in UTC from wednesday", "2026-02-04T00:00:00Z", "2026-02-11T00:00:00Z"),
        ("week in UTC from tuesday 14:00", "2026-02-03T14:00:00Z", "2026-02-10T14:00:00Z"),
        ("month in UTC", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"),
        ("month in UTC from day 31", "2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z"),
        ("month in UTC from day 10 13:00", "2026-02-10T13:00:00Z", "2026-03-10T13:00:00Z"),
        ("month in UTC from day 10 14:00", "2026-01-10T14:00:00Z", "2026-02-10T14:00:00Z"),
        ("quarter in UTC", "2026-01-01T00:00:00Z", "2026-04-01T00:00:00Z"),
        ("quarter in UTC from day 15", "2026-01-15T00:00:00Z", "2026-04-15T00:00:00Z"),
        ("quarter in UTC from 02-01", "2026-02-01T00:00:00Z", "2026-05-01T00:00:00Z"),
        ("quarter in UTC from 12-31", "2025-12-31T00:00:00Z", "2026-03-31T00:00:00Z"),
        ("quarter in UTC from 03-31", "2025-12-31T00:00:00Z", "2026-03-31T00:00:00Z"),
        ("year in UTC", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ("year in UTC from 07-01", "2025-07-01T00:00:00Z", "2026-07-01T00:00:00Z"),
        ("year in Asia/Tokyo from 02-29", "2025-02-27T15:00:00Z", "2026-02-27T15:00:00Z"),
    ] {
        assert_period(words, "2026-02-10T13:30:00Z", start, end);
    }
    assert_period("year in UTC from 02-29", "2024-03-01T00:00:00Z", "2024-02-29T00:00:00Z", "2025-02-28T00:00:00Z");
}

#[test]
fn a_day_on_which_clocks_are_changed_is_shorter_or_longer() {
    let berlin = "day in Europe/Berlin";
    assert_period(berlin, "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z");
    assert_period(berlin, "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z");
    // An anchor that is skipped is as much later, one that comes twice is the first.
    let at_two = "day in Europe/Berlin from 02:00";
    assert_period(at_two, "2026-03-29T12:00:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z");
    assert_period(at_two, "2026-10-25T00:30:00Z", "2026-10-25T00:00:00Z", "2026-10-26T01:00:00Z");
    assert_period(at_two, "2026-10-25T01:30:00Z", "2026-10-25T00:00:00Z", "2026-10-26T01:00:00Z");
    // An hour that comes twice is one period, which is twice as long; one that is skipped is none.
    let hours = "hour in Europe/Berlin";
    assert_period(hours, "2026-10-25T01:30:00Z", "2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z");
    assert_period(hours, "2026-03-29T00:30:00Z", "2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z");
}

#[test]
fn zones_that_are_odd_have_periods_like_any_other() {
    // Half an hour: back and forward.
    let lord_howe = "hour in Australia/Lord_Howe";
    assert_period(lord_howe, "2026-04-04T15:10:00Z", "2026-04-04T14:00:00Z", "2026-04-04T15:30:00Z");
    assert_period(lord_howe, "2026-10-03T15:40:00Z", "2026-10-03T15:30:00Z", "2026-10-03T16:00:00Z");
    let days = "day in Australia/Lord_Howe";
    assert_period(days, "2026-04-04T20:00:00Z", "2026-04-04T13:00:00Z", "2026-04-05T13:30:00Z");
    // The 30th of December 2011 did not exist in Samoa.
    let samoa = "day in Pacific/Apia";
    assert_period(samoa, "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z");
    assert_period(samoa, "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z");
    let at_five = "day in Pacific/Apia from 05:00";
    assert_period(at_five, "2011-12-30T10:00:00Z", "2011-12-29T15:00:00Z", "2011-12-30T15:00:00Z");
    let billed = "month in Pacific/Apia from day 30";
    assert_period(billed, "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2012-01-29T10:00:00Z");
    // Midnight comes twice in Havana, and a minute after it the clocks went back before midnight
    // in St. John's: both times the first is the edge.
    let havana = "day in America/Havana";
    assert_period(havana, "2026-11-01T04:30:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z");
    assert_period(havana, "2026-11-01T05:30:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z");
    let st_johns = "day in America/St_Johns";
    assert_period(st_johns, "2010-11-07T02:30:30Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z");
    assert_period(st_johns, "2010-11-07T03:00:00Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z");
    // Midnight is skipped.
    let beirut = "day in Asia/Beirut";
    assert_period(beirut, "2026-03-28T22:30:00Z", "2026-03-28T22:00:00Z", "2026-03-29T21:00:00Z");
}

#[test]
fn the_periods_of_all_time_follow_each_other() {
    for words in [
        "hour in Antarctica/Troll",
        "day in Africa/Casablanca from 03:00",
        "week in America/St_Johns from sunday",
        "month in Pacific/Kwajalein from day 21",
        "quarter in Asia/Pyongyang from 02-29",
        "year in America/Caracas from 12-09 03:00",
    ] {
        let calendar = calendar(words);
        let longest = calendar.nominal() + 2 * 86_400_000_000;
        let mut next = 0;
        for _ in 0..3_000 {
            let (start, end) = calendar.computed(next);
            assert!(start == next && end > start && end - start <= longest, "{words}: {start} to {end} from {next}");
            next = end;
            if end > Micros::LATEST.get() {
                break;
            }
        }
    }
    // The first begins with the epoch, wherever midnight was.
    assert_eq!(
        calendar("month in America/New_York").period_of(Micros::ZERO),
        (Micros::ZERO, at("1970-01-01T05:00:00Z"))
    );
    let (start, end) = calendar("year in UTC").period_of(Micros::LATEST);
    assert!(start < Micros::LATEST && end > Micros::LATEST);
}

#[test]
fn a_thread_that_remembers_periods_answers_as_one_that_does_not() {
    let words = ["day in UTC", "day in Europe/Berlin", "month in UTC from day 31", "hour in UTC", "year in UTC"];
    let calendars: Vec<Calendar> = words.into_iter().map(calendar).collect();
    let start = at("2026-03-28T22:30:00Z").get();
    for step in 0..20_000_u64 {
        let (calendar, at) = (calendars[step as usize % 5], start + step * 977_000_000);
        assert_eq!(calendar.edges(at), calendar.computed(at));
        assert_eq!(calendar.edges(at - 86_400_000_000), calendar.computed(at - 86_400_000_000));
    }
}

#[test]
fn words_print_as_they_parse() {
    for words in [
        "hour in UTC",
        "day in America/New_York",
        "day in America/New_York from 06:00",
        "week in UTC",
        "week in UTC from sunday 23:00",
        "month in Europe/Berlin from day 31",
        "month in Europe/Berlin from 06:00",
        "quarter in Asia/Kolkata from 02-15",
        "year in UTC from 07-01",
        "year in UTC from 01-31 12:00",
    ] {
        assert_eq!(calendar(words).to_string(), words);
        assert_eq!(format!("{:?}", calendar(words)), format!("Calendar({words})"));
    }
    for (words, canonical) in [
        ("week from monday in UTC", "week in UTC"),
        ("month from day 31 in UTC", "month in UTC from day 31"),
        ("mo in UTC from day 1", "month in UTC"),
        ("quarter in UTC from day 15", "quarter in UTC from 01-15"),
        ("d in UTC from 00:00", "day in UTC"),
        ("year in UTC from 7-1", "year in UTC from 07-01"),
    ] {
        assert_eq!(calendar(words).to_string(), canonical, "{words}");
    }
}

#[test]
fn an_invalid_calendar_is_refused_with_the_valid_values() {
    for (words, expected) in [
        (
            "month in Berlin",
            r#""Berlin" is not a time zone: give one of the IANA database, such as UTC or Europe/Berlin"#,
        ),
        ("month in europe/berlin", r#""europe/berlin" is not a time zone"#),
        (
            "month in UTC from day 32",
            "calendar periods of one month cannot start from day 32: give a day, such as from day 31",
        ),
        ("month in UTC from day 0", "cannot start from day 0"),
        ("month in UTC from day 010", "cannot start from day 010"),
        ("month in UTC from monday", "calendar periods of one month cannot start from monday"),
        ("month in UTC from 02-01", "calendar periods of one month cannot start from 02-01"),
        ("week in UTC from day 3", "calendar periods of one week cannot start from day 3: give a day of the week"),
        ("week in UTC from someday", "calendar periods of one week cannot start from someday"),
        (
            "day in UTC from 24:00",
            "calendar periods of one day cannot start from 24:00: give an hour, such as from 06:00",
        ),
        ("day in UTC from 06:30", "cannot start from 06:30"),
        ("day in UTC from 06:00 07:00", "cannot start from 06:00 07:00"),
        ("hour in UTC from 06:00", "calendar periods of one hour cannot start from 06:00: leave it out"),
        ("year in UTC from 02-30", "calendar periods of one year cannot start from 02-30"),
        ("year in UTC from 13-01", "cannot start from 13-01"),
        ("quarter in UTC from day 0", "cannot start from day 0: give a month and a day"),
        (
            "fortnight in UTC",
            "expected one hour, day, week, month, quarter or year of the calendar, found \"fortnight\"",
        ),
        ("month in UTC from", "expected an anchor after from"),
        ("month in", "expected in and a time zone"),
        ("month", "expected in and a time zone, such as in Europe/Berlin"),
        ("month at UTC", "expected in and a time zone, from and an anchor, or the end, found \"at\""),
        ("month in UTC in UTC", "found \"in\""),
    ] {
        let error = words.parse::<Calendar>().expect_err(words).to_string();
        assert!(error.contains(expected), "{words}: {error}");
    }
}

#[test]
fn instants_are_shown_as_the_zone_shows_them() {
    let berlin = calendar("month in Europe/Berlin");
    assert_eq!(berlin.show(at("2026-11-30T23:00:00Z")), "1 December 2026, 00:00 Europe/Berlin");
    assert_eq!(berlin.show(at("2026-06-30T22:00:01Z")), "1 July 2026, 00:00:01 Europe/Berlin");
    assert_eq!((berlin.unit(), berlin.zone()), (CalendarUnit::Month, "Europe/Berlin"));
    assert!(size_of::<Calendar>() == 6 && size_of::<Option<Calendar>>() == 6, "every limit has room for one");
}

#[test]
fn a_limit_by_the_calendar_is_a_fixed_window_in_words_and_numbers() {
    use crate::{Algorithm, Limit};

    for words in ["1000000/month in Europe/Berlin from day 31", "50/day in America/New_York", "9/week in UTC debt 3"] {
        let limit: Limit = words.parse().expect(words);
        assert_eq!((limit.to_string(), limit.algorithm()), (words.to_owned(), Algorithm::FixedWindow));
        assert!(limit.is_by_calendar() && limit.resets_by().is_some());
    }
    let monthly = Limit::calendar(5, calendar("month in UTC"));
    for words in ["5/month in UTC", "fixed 5/month in UTC", "5 per month in UTC", "5/mo from day 1 in UTC"] {
        assert_eq!(words.parse::<Limit>(), Ok(monthly), "{words}");
    }
    assert_eq!(monthly.resets_on(at("2026-11-18T00:00:00Z")), Some("1 December 2026, 00:00 UTC".to_owned()));
    assert_eq!(Limit::per_day(5).resets_on(Micros::ZERO), None);
    for (words, expected) in [
        ("5/month", "a time zone as well, such as 1000/month in Europe/Berlin or in UTC, found \"month\""),
        ("sliding 5/month in UTC", "fixed, or no algorithm, before a limit by the calendar, found \"sliding\""),
        ("5/2day in UTC", "one hour, day, week, month, quarter or year of the calendar, found \"2day\""),
        ("0/day in UTC", "count is zero"),
        ("5/day in UTC debt", "a number after debt"),
        ("5 in UTC", "a rate such as 100/min"),
    ] {
        let error = words.parse::<Limit>().expect_err(words).to_string();
        assert!(error.contains(expected), "{words}: {error}");
    }
    let error = monthly.try_from_first_request().expect_err("it starts by the calendar").to_string();
    assert_eq!(error, "calendar periods of one month cannot start from the first request: they start by the calendar");
}
