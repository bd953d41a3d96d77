//! The parser beside a naive one, which reads the whole at once and copies.

use proptest::prelude::*;

use super::*;

type Commands = Vec<Vec<Vec<u8>>>;

/// What there is in `pieces`, which arrive one after the other.
fn parse<'p>(pieces: impl IntoIterator<Item = &'p [u8]>, stranger: bool) -> (Commands, Result<(), ProtocolError>) {
    let mut parser = Parser::default();
    parser.set_stranger(stranger);
    let mut buffer = Vec::new();
    let mut commands = Commands::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match parser.advance(&mut buffer) {
                Ok(true) => commands.push(parser.arguments(&buffer).from(0).map(<[u8]>::to_vec).collect()),
                Ok(false) => break,
                Err(error) => return (commands, Err(error)),
            }
        }
        buffer.drain(..parser.forget());
    }
    (commands, Ok(()))
}

fn parse_all(bytes: &[u8]) -> (Commands, Result<(), ProtocolError>) {
    parse([bytes], false)
}

fn command(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn refused(bytes: impl AsRef<[u8]>) -> ProtocolError {
    let (commands, end) = parse_all(bytes.as_ref());
    assert_eq!(commands, Commands::new());
    end.expect_err("a protocol error")
}

/// Nothing found, nothing wrong: more may come.
fn awaited(bytes: impl AsRef<[u8]>) {
    assert_eq!(parse_all(bytes.as_ref()), (Commands::new(), Ok(())));
}

#[test]
fn arrays_and_lines_are_commands() {
    let (commands, end) =
        parse_all(b"*2\r\n$4\r\nPING\r\n$2\r\n\r\n\r\nPING a\n\r\n*0\r\n*-1\r\n  ECHO  'b c'\r\n*1\r\n$0\r\n\r\n");
    let expected = [command(&["PING", "\r\n"]), command(&["PING", "a"]), command(&["ECHO", "b c"]), command(&[""])];
    assert_eq!((commands, end), (expected.to_vec(), Ok(())));
}

#[test]
fn quotes_are_those_of_redis() {
    let cases: [(&str, &[&str]); 8] = [
        (r#""a b" c"#, &["a b", "c"]),
        (r#""\x41\n\t\q\"""#, &["A\n\tq\""]),
        (r#"'a\nb' 'it\'s'"#, &[r"a\nb", "it's"]),
        (r#"a"b c" d'e'"#, &["ab c", "de"]),
        (r#""" ''"#, &["", ""]),
        (r#""\x4""#, &["x4"]),
        ("\ta\x0bb\x0c", &["a", "b"]),
        (r"a\b", &[r"a\b"]),
    ];
    for (line, words) in cases {
        assert_eq!(parse_all(format!("{line}\r\n").as_bytes()), (vec![command(words)], Ok(())), "{line}");
    }
    for line in [r#""a"#, "'a", r#""a"b"#, "'a'b", r#""a\""#, r#"a""b"#] {
        assert_eq!(refused(format!("{line}\n")), ProtocolError::UnbalancedQuotes, "{line}");
    }
}

#[test]
fn what_is_no_command_is_refused_in_the_words_of_redis() {
    let cases = [
        ("*a\r\n", "invalid multibulk length"),
        ("*\r\n", "invalid multibulk length"),
        ("*01\r\n", "invalid multibulk length"),
        ("*+1\r\n", "invalid multibulk length"),
        ("*1025\r\n", "invalid multibulk length"),
        ("*9223372036854775808\r\n", "invalid multibulk length"),
        ("*1111111111111111111111", "invalid multibulk length"),
        ("*1\rx", "invalid multibulk length"),
        ("*1\r\n*1\r\n$1\r\na\r\n", "expected '$', got '*'"),
        ("*1\r\n\r\n", "expected '$', got '\\r'"),
        ("*1\r\n$-1\r\n", "invalid bulk length"),
        ("*1\r\n$65537\r\n", "invalid bulk length"),
        ("*1\r\n$4294967296\r\n", "invalid bulk length"),
        ("*1\r\n$1\r\nabc", "expected the end of a line"),
    ];
    for (bytes, words) in cases {
        assert_eq!(refused(bytes).to_string(), words, "{bytes:?}");
    }
}

#[test]
fn what_may_become_a_command_is_waited_for() {
    for bytes in ["", "*", "*1", "*1\r", "*1\r\n", "*1\r\n$", "*1\r\n$1\r\n", "*1\r\n$1\r\na\r", "PING", "*-"] {
        awaited(bytes);
    }
}

#[test]
fn endless_lines_and_commands_are_refused_at_their_bounds() {
    awaited("a".repeat(MAX_LINE_BYTES - 1));
    assert_eq!(refused("a".repeat(MAX_LINE_BYTES)), ProtocolError::LineTooLong);
    assert_eq!(refused("a ".repeat(MAX_ARGUMENTS + 1) + "\n"), ProtocolError::ArgumentCount);
    let longest = format!("${MAX_ARGUMENT_BYTES}\r\n{}\r\n", "a".repeat(MAX_ARGUMENT_BYTES));
    let fits = (MAX_COMMAND_BYTES / longest.len()).min(3);
    assert_eq!(parse_all(format!("*{fits}\r\n{}", longest.repeat(fits)).as_bytes()).0.len(), 1);
    assert_eq!(refused(format!("*9\r\n{}", longest.repeat(9))), ProtocolError::CommandTooLong);
}

#[test]
fn strangers_have_tighter_bounds() {
    let refused = |bytes: &[u8]| parse([bytes], true).1.expect_err("a protocol error");
    assert_eq!(refused(b"*11\r\n"), ProtocolError::ArgumentCountOfStranger);
    assert_eq!(refused(b"*1\r\n$16385\r\n"), ProtocolError::ArgumentLengthOfStranger);
    assert_eq!(parse([&b"*10\r\n$16384\r\n"[..]], true), (Commands::new(), Ok(())));
}

/// The protocol, read without any thought of speed or of halves.
mod naive {
    use super::*;

    enum Stop {
        Unfinished,
        Error(ProtocolError),
    }

    pub(super) fn parse(bytes: &[u8]) -> (Commands, Result<(), ProtocolError>) {
        let mut rest = bytes;
        let mut commands = Commands::new();
        loop {
            let read = match rest.first() {
                None => return (commands, Ok(())),
                Some(b'*') => array(rest),
                Some(_) => line(rest),
            };
            match read {
                Ok((arguments, after)) => {
                    commands.extend(Some(arguments).filter(|arguments| !arguments.is_empty()));
                    rest = after;
                }
                Err(Stop::Unfinished) => return (commands, Ok(())),
                Err(Stop::Error(error)) => return (commands, Err(error)),
            }
        }
    }

    fn number(bytes: &[u8], error: ProtocolError) -> Result<(i64, &[u8]), Stop> {
        let Some(at) = bytes.iter().position(|byte| *byte == b'\r').filter(|at| *at <= MAX_NUMBER_BYTES) else {
            return Err(if bytes.len() > MAX_NUMBER_BYTES { Stop::Error(error) } else { Stop::Unfinished });
        };
        let text = String::from_utf8_lossy(&bytes[..at]);
        // What prints as it was read has no plus and no zeros in front.
        let number = text.parse::<i64>().ok().filter(|number| number.to_string() == text);
        let number = number.ok_or(Stop::Error(error))?;
        match bytes.get(at + 1) {
            None => Err(Stop::Unfinished),
            Some(b'\n') => Ok((number, &bytes[at + 2..])),
            Some(_) => Err(Stop::Error(error)),
        }
    }

    fn array(bytes: &[u8]) -> Result<(Vec<Vec<u8>>, &[u8]), Stop> {
        let (count, mut rest) = number(&bytes[1..], ProtocolError::ArgumentCount)?;
        if count > MAX_ARGUMENTS as i64 {
            return Err(Stop::Error(ProtocolError::ArgumentCount));
        }
        let mut arguments = Vec::new();
        for _ in 0..count {
            match rest.first() {
                None => return Err(Stop::Unfinished),
                Some(b'$') => {}
                Some(other) => return Err(Stop::Error(ProtocolError::NoBulkString(*other))),
            }
            let (length, after) = number(&rest[1..], ProtocolError::ArgumentLength)?;
            if !(0..=MAX_ARGUMENT_BYTES as i64).contains(&length) {
                return Err(Stop::Error(ProtocolError::ArgumentLength));
            }
            if after.len() < length as usize + 2 {
                return Err(Stop::Unfinished);
            }
            let (argument, after) = after.split_at(length as usize);
            rest = after.strip_prefix(b"\r\n").ok_or(Stop::Error(ProtocolError::LineEnd))?;
            arguments.push(argument.to_vec());
        }
        Ok((arguments, rest))
    }

    fn line(bytes: &[u8]) -> Result<(Vec<Vec<u8>>, &[u8]), Stop> {
        let at = bytes.iter().position(|byte| *byte == b'\n').ok_or(Stop::Unfinished)?;
        let mut characters = bytes[..at].iter().copied().chain([b' ']).peekable();
        let mut words = Vec::new();
        let mut word: Option<Vec<u8>> = None;
        while let Some(byte) = characters.next() {
            match byte {
                b' ' | b'\t' | b'\r' | 0x0b | 0x0c => words.extend(word.take()),
                b'"' | b'\'' => {
                    let word = word.get_or_insert_default();
                    loop {
                        let inside = characters.next().filter(|_| characters.peek().is_some());
                        let inside = inside.ok_or(Stop::Error(ProtocolError::UnbalancedQuotes))?;
                        if inside == byte {
                            break;
                        }
                        let escapes = inside == b'\\' && (byte == b'"' || characters.peek() == Some(&b'\''));
                        // The space that was put after the line cannot be escaped.
                        let mut ahead = characters.clone();
                        ahead.next();
                        if !escapes || ahead.next().is_none() {
                            word.push(inside);
                            continue;
                        }
                        let mut ahead = characters.clone();
                        let code: Vec<u8> = ahead.by_ref().take(3).collect();
                        let is_code = code.len() == 3 && code[0] == b'x' && ahead.next().is_some();
                        let code = std::str::from_utf8(code.get(1..).unwrap_or_default()).unwrap_or_default();
                        let digits = code.len() == 2 && code.bytes().all(|digit| digit.is_ascii_hexdigit());
                        match characters.next() {
                            Some(b'x') if byte == b'"' && is_code && digits => {
                                word.push(u8::from_str_radix(code, 16).expect("two digits"));
                                characters.nth(1);
                            }
                            Some(b'n') if byte == b'"' => word.push(b'\n'),
                            Some(b'r') if byte == b'"' => word.push(b'\r'),
                            Some(b't') if byte == b'"' => word.push(b'\t'),
                            Some(b'b') if byte == b'"' => word.push(8),
                            Some(b'a') if byte == b'"' => word.push(7),
                            other => word.extend(other),
                        }
                    }
                    if !matches!(characters.peek(), Some(b' ' | b'\t' | b'\r' | 0x0b | 0x0c)) {
                        return Err(Stop::Error(ProtocolError::UnbalancedQuotes));
                    }
                }
                other => word.get_or_insert_default().push(other),
            }
        }
        Ok((words, &bytes[at + 1..]))
    }
}

fn pieces_of_traffic() -> impl Strategy<Value = Vec<u8>> {
    let argument = prop_oneof![
        Just(b"CL.THROTTLE".to_vec()),
        prop::collection::vec(any::<u8>(), 0..12),
        "[0-9]{1,3}".prop_map(String::into_bytes),
        Just(b"\r\n$1\r\n*".to_vec()),
    ];
    let array = prop::collection::vec(argument, 0..7).prop_map(|arguments| {
        let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in arguments {
            bytes.extend(format!("${}\r\n", argument.len()).bytes());
            bytes.extend(argument);
            bytes.extend(b"\r\n");
        }
        bytes
    });
    let line = r#"[ a-cx0-9'"\\\t]{0,16}\r?\n"#.prop_map(String::into_bytes);
    let junk = prop::collection::vec(
        prop_oneof![Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'), Just(b'1'), any::<u8>()],
        0..8,
    );
    prop_oneof![6 => array, 3 => line, 1 => junk]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn commands_are_those_of_the_naive_parser_however_they_arrive(
        traffic in prop::collection::vec(pieces_of_traffic(), 0..8),
        spoilt in prop::option::weighted(0.3, (any::<prop::sample::Index>(), any::<u8>())),
        size in 1_usize..40,
    ) {
        let mut bytes = traffic.concat();
        if let (Some((at, byte)), false) = (spoilt, bytes.is_empty()) {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let expected = naive::parse(&bytes);
        prop_assert_eq!(&parse_all(&bytes), &expected);
        prop_assert_eq!(&parse(bytes.chunks(size), false), &expected);
    }
}
