//! Commands are found, or refused, whatever arrives and in whichever pieces.
//!
//! ```text
//! cargo +nightly fuzz run resp fuzz/corpus/resp fuzz/seeds/resp -- -dict=fuzz/resp.dict -runs=1000000
//! ```

#![no_main]

// The pure part by itself: the whole server is a hundred crates more.
#[path = "../../crates/tidegate-server/src/resp/frame.rs"]
#[allow(dead_code)]
mod frame;
#[path = "../../crates/tidegate-server/src/resp/question.rs"]
#[allow(dead_code)]
mod question;
#[path = "../../crates/tidegate-server/src/resp/reply.rs"]
#[allow(dead_code)]
mod reply;
#[path = "../../crates/tidegate-server/src/resp/throttle.rs"]
#[allow(dead_code)]
mod throttle;

use frame::{LONGEST_ARGUMENT, LONGEST_COMMAND, LONGEST_LINE, MOST_ARGUMENTS, Parser, ProtocolError};
use libfuzzer_sys::fuzz_target;
use question::Question;
use throttle::{Dialect, Throttle};

type Commands = Vec<Vec<Vec<u8>>>;

/// Everything that is found in the pieces, and how it ends.
fn commands<'p>(pieces: impl Iterator<Item = &'p [u8]>) -> (Commands, Option<ProtocolError>) {
    let (mut parser, mut buffer, mut found) = (Parser::default(), Vec::new(), Commands::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match parser.advance(&mut buffer) {
                Ok(true) => {
                    let arguments = parser.arguments(&buffer);
                    assert!((1..=MOST_ARGUMENTS).contains(&arguments.count()));
                    assert!(arguments.from(0).all(|argument| argument.len() <= LONGEST_ARGUMENT));
                    // Whatever they are, they are read or refused.
                    let _ = Throttle::parse(Dialect::RedisCell, arguments).map(|throttle| throttle.question());
                    let _ = Throttle::parse(Dialect::Throttlecrab, arguments).map(|throttle| throttle.question());
                    let _ = Question::parse(arguments);
                    found.push(arguments.from(0).map(<[u8]>::to_vec).collect());
                }
                Ok(false) => break,
                Err(error) => return (found, Some(error)),
            }
        }
        buffer.drain(..parser.forget());
        assert!(buffer.len() <= LONGEST_COMMAND.max(LONGEST_LINE) + piece.len());
    }
    (found, None)
}

fuzz_target!(|input: &[u8]| {
    // The first byte says in pieces of which size the rest arrives.
    let [size, bytes @ ..] = input else { return };
    let whole = commands(std::iter::once(bytes));
    let pieces = commands(bytes.chunks(usize::from(*size) + 1));
    assert_eq!(whole, pieces);
});
