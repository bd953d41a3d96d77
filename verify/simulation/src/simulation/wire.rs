//! Commands and replies as bytes, as far as this store needs them.

/// Takes the next command out of what has arrived, if all of it has: its words.
pub(super) fn take_command(arrived: &mut Vec<u8>) -> Option<Vec<Vec<u8>>> {
    let mut rest = arrived.as_slice();
    let count = number(&mut rest, b'*')?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let length = number(&mut rest, b'$')?;
        words.push(rest.get(..length)?.to_vec());
        rest = rest.get(length + 2..)?;
    }
    let taken = arrived.len() - rest.len();
    arrived.drain(..taken);
    Some(words)
}

/// The number of a line that begins with `mark`.
fn number(rest: &mut &[u8], mark: u8) -> Option<usize> {
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    let line = rest[..end].strip_prefix(&[mark])?;
    *rest = &rest[end + 2..];
    std::str::from_utf8(line).ok()?.parse().ok()
}

/// A reply of the script, or the words in which it was refused.
pub(super) fn reply(answer: &Result<redis::Value, String>) -> Vec<u8> {
    match answer {
        Ok(redis::Value::BulkString(bytes)) => {
            let mut reply = format!("${}\r\n", bytes.len()).into_bytes();
            reply.extend_from_slice(bytes);
            reply.extend_from_slice(b"\r\n");
            reply
        }
        Ok(redis::Value::Okay) => b"+OK\r\n".to_vec(),
        Ok(other) => panic!("no command of this store is answered by {other:?}"),
        Err(words) => format!("-{}\r\n", words.lines().next().unwrap_or("ERR")).into_bytes(),
    }
}
