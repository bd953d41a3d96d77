//! Commands are found, or refused, whatever arrives and in whichever pieces.

use tidegate_server::Call;
use tidegate_server::resp::frame::{
    MAX_ARGUMENT_BYTES, MAX_ARGUMENTS, MAX_COMMAND_BYTES, MAX_LINE_BYTES, Parser, ProtocolError,
};
use tidegate_server::resp::request;
use tidegate_server::resp::throttle::{Dialect, Throttle};

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
                    assert!((1..=MAX_ARGUMENTS).contains(&arguments.count()));
                    assert!(arguments.from(0).all(|argument| argument.len() <= MAX_ARGUMENT_BYTES));
                    // Whatever they are, they are read or refused.
                    let _ = Throttle::parse(Dialect::RedisCell, arguments).map(|throttle| throttle.verb_and_cost());
                    let _ = Throttle::parse(Dialect::Throttlecrab, arguments).map(|throttle| throttle.verb_and_cost());
                    let _ = request::parse(Call::Check, arguments);
                    let _ = request::parse(Call::Settle, arguments);
                    found.push(arguments.from(0).map(<[u8]>::to_vec).collect());
                }
                Ok(false) => break,
                Err(error) => return (found, Some(error)),
            }
        }
        buffer.drain(..parser.forget());
        assert!(buffer.len() <= MAX_COMMAND_BYTES.max(MAX_LINE_BYTES) + piece.len());
    }
    (found, None)
}

/// Bytes of the protocol of Redis, whole and in pieces.
pub fn resp(input: &[u8]) {
    // The first byte says in pieces of which size the rest arrives.
    let [size, bytes @ ..] = input else { return };
    let whole = commands(std::iter::once(bytes));
    let pieces = commands(bytes.chunks(usize::from(*size) + 1));
    assert_eq!(whole, pieces);
}
