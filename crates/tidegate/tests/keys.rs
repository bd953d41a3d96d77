//! Keys: what they are made of, and what tells them apart.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tidegate::kernel::Verb;
use tidegate::store::{Check, Meter, Purpose, RequestId};
use tidegate::{Key, KeyPart, Limit};

/// Around every bound there is: of what needs no allocation, and of lengths of one byte and of two.
const LENGTHS: [usize; 16] = [0, 1, 2, 43, 44, 45, 46, 47, 126, 127, 128, 129, 255, 16_383, 16_384, 40_000];

fn text(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

#[test]
fn the_parts_of_a_key_come_back_as_they_were() {
    for first in LENGTHS {
        for second in LENGTHS {
            let parts = [text(first), text(second), b"end".to_vec()];
            let key = Key::of(parts.iter().map(|part| KeyPart::from(&part[..])));
            assert!(key.is_composite() && key.parts().eq(parts.iter().map(Vec::as_slice)), "{first} {second}");
            let copy = key.clone().into_owned();
            assert!(copy == key && copy.as_bytes() == key.as_bytes(), "{first} {second}");
        }
        let one = text(first);
        let key = Key::from(&*one);
        assert!(!key.is_composite() && key.parts().eq([&*one]) && key.as_bytes() == one, "{first}");
        assert_eq!(key.clone().into_owned(), key);
        assert_eq!(Key::from(&key), key);
    }
    assert_eq!(Key::of([]).parts().count(), 0);
}

#[test]
fn the_bytes_of_a_key_are_the_same_in_every_version() {
    // Processes of several versions share a store.
    assert_eq!(Key::from(("a", "bc")).as_bytes(), b"\x01a\x02bc");
    let lengths: [(usize, &[u8]); 6] = [
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (300, b"\xac\x02"),
        (16_383, b"\xff\x7f"),
        (16_384, b"\x80\x80\x01"),
        (40_000, b"\xc0\xb8\x02"),
    ];
    for (length, prefix) in lengths {
        let part = text(length);
        assert_eq!(Key::of([KeyPart::from(&part[..])]).as_bytes(), [prefix, &part].concat(), "{length}");
    }
}

fn hash(key: &Key<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

#[test]
fn a_key_is_another_if_its_parts_are_others_or_divided_otherwise() {
    let keys = [
        Key::from("ab"),
        Key::from(("ab",)),
        Key::from(("a", "b")),
        Key::from(("", "ab")),
        Key::from(("ab", "")),
        Key::from("\x01a\x01b"),
        Key::from(("a", "b", "")),
        Key::from(("a", "b", "", "")),
        Key::from(()),
        Key::of([]),
        Key::from(("",)),
    ];
    for (index, one) in keys.iter().enumerate() {
        for (other_index, other) in keys.iter().enumerate() {
            assert_eq!(one == other, index == other_index, "{one:?} {other:?}");
            assert_eq!(hash(one) == hash(other), index == other_index, "{one:?} {other:?}");
        }
    }
}

#[test]
fn numbers_and_addresses_are_the_same_as_their_text() {
    let (four, six) = (Ipv4Addr::new(192, 0, 2, 1), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
    let longest: Ipv6Addr = "fedc:ba98:7654:3210:fedc:ba98:7654:3210".parse().expect("an address");
    for (key, words) in [
        (Key::from(u64::MAX), "18446744073709551615"),
        (Key::from(four), "192.0.2.1"),
        (Key::from(six), "2001:db8::1"),
        (Key::from(IpAddr::V6(longest)), "fedc:ba98:7654:3210:fedc:ba98:7654:3210"),
    ] {
        assert_eq!(key, Key::from(words));
        assert_eq!(key, Key::from(words.to_owned()));
    }
    assert_eq!(Key::from((7, "a", IpAddr::V4(four))), Key::from(("7", "a", "192.0.2.1")));
}

#[test]
fn a_key_is_shown_to_people_by_its_parts() {
    assert_eq!(Key::from("alice").to_string(), "alice");
    assert_eq!(Key::from(("alice", "GET /", 7)).to_string(), "alice / GET / / 7");
    assert_eq!(Key::from(()).to_string(), "");
    assert_eq!(format!("{:?}", Key::from(&b"\xff\n"[..])), "Key(\\xff\\n)");
}

#[test]
fn a_number_of_any_width_is_its_digits_and_sixteen_bytes_are_themselves() {
    let text: std::sync::Arc<str> = "-7".into();
    for key in
        [Key::from(-7_i8), Key::from(-7_i16), Key::from(-7), Key::from(-7_i64), Key::from(-7_isize), Key::from(&text)]
    {
        assert_eq!(key, Key::from("-7"));
    }
    for key in [Key::from(7_u8), Key::from(7_u16), Key::from(7_u32), Key::from(7_u64), Key::from(7_usize), Key::from(7)]
    {
        assert_eq!(key, Key::from("7"));
    }
    assert_eq!(Key::from(i64::MIN), Key::from("-9223372036854775808"));
    assert_eq!(Key::from(*b"0123456789abcdef"), Key::from("0123456789abcdef"));
    assert_eq!(Key::from((*b"0123456789abcdef", -1, &text)), Key::from(("0123456789abcdef", "-1", "-7")));
}

#[test]
fn a_part_may_be_owned_and_is_the_same_key_as_if_borrowed() {
    use std::sync::Arc;
    use tidegate::{Limit, Limiter, Request};

    let (text, shared): (String, Arc<str>) = ("alice".into(), "alice".into());
    let borrowed = Key::from(("alice", "7"));
    let keys = [
        Key::from((text.clone(), 7_u8)),
        Key::from((shared.clone(), 7_i64)),
        Key::from((&text, "7")),
        Key::from((&shared, 7_usize)),
        Key::from((b"alice".to_vec(), "7".to_owned())),
    ];
    assert!(keys.iter().all(|key| *key == borrowed));
    assert_eq!(KeyPart::from("alice"), KeyPart::from(text.clone()));
    assert_ne!(KeyPart::from("bob"), KeyPart::from(shared.clone()));
    let alone = [text.clone().into(), shared.clone().into(), Key::from(&shared), b"alice".to_vec().into()];
    assert!(alone.iter().all(|key| *key == Key::from("alice")));
    assert_eq!(Key::from([7; 16]).as_bytes(), [7; 16]);

    let limiter = Limiter::new(tidegate::Rule::new("users", Limit::per_hour(2)).key(["user", "path"]));
    let ask = |request: Request<'_>| limiter.allow(request);
    assert!(ask(Request::user(text).with("path", "/".to_owned())));
    assert!(ask(Request::user(shared).with("path", "/")));
    assert!(!ask(Request::user("alice").with("path", "/")));
}

#[test]
fn a_check_of_a_composite_key_is_about_another_state_than_one_of_the_same_bytes() {
    let [hourly, daily] = [Meter::new("limit", Limit::per_hour(5)), Meter::new("limit", Limit::per_day(5))];
    let composite = Key::from(("alice", "GET"));
    let text = std::str::from_utf8(composite.as_bytes()).expect("short parts").to_owned();
    let plain = Key::from(text.as_str());
    assert_eq!((plain.as_bytes(), plain.is_composite()), (composite.as_bytes(), false));
    let subject = |meter, key| Check::new(meter, key, Verb::Charge, 1).expect("a check").subject();
    let keys = [&composite, &plain];
    let subjects: Vec<u64> = [&hourly, &daily].iter().flat_map(|meter| keys.map(|key| subject(meter, key))).collect();
    let distinct: HashSet<_> = subjects.iter().collect();
    assert_eq!(distinct.len(), 4, "{subjects:?}");
    assert_eq!(subject(&hourly, &plain), subjects[1], "the same each time");
}

#[test]
fn a_check_corrects_what_was_charged_if_its_id_is_to() {
    let (meter, key) = (Meter::new("limit", Limit::per_hour(5)), Key::from("alice"));
    for (purpose, corrects) in [(Purpose::Once, false), (Purpose::Settle, true), (Purpose::Renew, true)] {
        let id = RequestId { purpose, ..RequestId::once("a", 1) };
        let check = Check::new(&meter, &key, Verb::Charge, 1).expect("a check");
        assert_eq!((check.is_correction(), check.with_id(&id).is_correction()), (false, corrects), "{purpose:?}");
    }
}
