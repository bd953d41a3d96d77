//! As much of the Redis protocol as tests need: a command, then its reply.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::GUARD;

/// What a server answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Nothing there.
    Nil,
    /// A word such as `OK`.
    Status(String),
    /// A refusal, with its code first.
    Error(String),
    /// A whole number.
    Integer(i64),
    /// Any bytes.
    Bulk(Vec<u8>),
    /// Replies in a row.
    Array(Vec<Reply>),
}

impl Reply {
    /// Whether the server refused.
    pub fn is_error(&self) -> bool {
        matches!(self, Reply::Error(_))
    }

    /// The number that it is, or that it spells.
    ///
    /// # Panics
    ///
    /// When it is something else.
    pub fn integer(&self) -> i64 {
        match self {
            Reply::Integer(number) => *number,
            Reply::Bulk(_) => self.text().parse().unwrap_or_else(|_| panic!("expected a number, got {self:?}")),
            Reply::Nil | Reply::Status(_) | Reply::Error(_) | Reply::Array(_) => {
                panic!("expected a number, got {self:?}")
            }
        }
    }

    /// The text that it is.
    ///
    /// # Panics
    ///
    /// When it is something else.
    pub fn text(&self) -> String {
        match self {
            Reply::Status(text) => text.clone(),
            Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Reply::Nil | Reply::Error(_) | Reply::Integer(_) | Reply::Array(_) => {
                panic!("expected a text, got {self:?}")
            }
        }
    }

    /// The bytes that it is.
    ///
    /// # Panics
    ///
    /// When it is something else.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Reply::Bulk(bytes) => bytes,
            Reply::Nil | Reply::Status(_) | Reply::Error(_) | Reply::Integer(_) | Reply::Array(_) => {
                panic!("expected bytes, got {self:?}")
            }
        }
    }

    /// The replies that it is made of.
    ///
    /// # Panics
    ///
    /// When it is something else.
    pub fn items(&self) -> &[Reply] {
        match self {
            Reply::Array(items) => items,
            Reply::Nil | Reply::Status(_) | Reply::Error(_) | Reply::Integer(_) | Reply::Bulk(_) => {
                panic!("expected an array, got {self:?}")
            }
        }
    }
}

/// A connection to a server, in the protocol that every version speaks (RESP2).
pub struct Connection {
    reader: BufReader<Box<dyn Source>>,
    writer: Box<dyn Write + Send>,
}

/// What replies come from.
trait Source: Read + Send {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()>;
}

impl Source for TcpStream {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout))
    }
}

impl Source for UnixStream {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout))
    }
}

/// How long to listen where silence is expected. A machine that is slower is silent for longer.
const SILENCE: Duration = Duration::from_millis(200);

impl Connection {
    /// Connects over TCP; only the [`GUARD`] ends a wait.
    ///
    /// # Errors
    ///
    /// When the connection is refused or not made.
    pub fn open(address: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&address, GUARD)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(GUARD))?;
        stream.set_write_timeout(Some(GUARD))?;
        Ok(Connection::over(stream.try_clone()?, stream))
    }

    /// Connects over a Unix socket; only the [`GUARD`] ends a wait.
    ///
    /// # Errors
    ///
    /// When the connection is refused.
    pub fn open_unix(path: &Path) -> io::Result<Connection> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(GUARD))?;
        stream.set_write_timeout(Some(GUARD))?;
        Ok(Connection::over(stream.try_clone()?, stream))
    }

    fn over(reader: impl Source + 'static, writer: impl Write + Send + 'static) -> Connection {
        Connection { reader: BufReader::new(Box::new(reader)), writer: Box::new(writer) }
    }

    /// Sends a command and receives its reply.
    ///
    /// # Errors
    ///
    /// When the connection ends, or takes too long. A [`Reply::Error`] is a reply.
    pub fn command<A: AsRef<[u8]>>(&mut self, words: &[A]) -> io::Result<Reply> {
        self.send(words)?;
        self.receive()
    }

    /// Sends a command, and leaves its reply for [`receive`](Connection::receive).
    ///
    /// # Errors
    ///
    /// When the connection has ended, or takes too long.
    pub fn send<A: AsRef<[u8]>>(&mut self, words: &[A]) -> io::Result<()> {
        let mut message = format!("*{}\r\n", words.len()).into_bytes();
        for word in words.iter().map(AsRef::as_ref) {
            message.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            message.extend_from_slice(word);
            message.extend_from_slice(b"\r\n");
        }
        self.send_bytes(&message)
    }

    /// Sends bytes as they are, whether they are commands or not.
    ///
    /// # Errors
    ///
    /// When the connection has ended, or takes too long.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes)
    }

    /// Receives the next reply.
    ///
    /// # Errors
    ///
    /// When the connection ends, or takes too long, or says what is no reply.
    pub fn receive(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        let Some(line) = line.strip_suffix("\r\n") else {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection ended before the reply"));
        };
        let no_reply = || io::Error::new(io::ErrorKind::InvalidData, format!("not a reply: {line:?}"));
        let (kind, rest) = line.split_at_checked(1).ok_or_else(no_reply)?;
        let number = || rest.parse::<i64>().map_err(|_| no_reply());
        match kind {
            "+" => Ok(Reply::Status(rest.to_owned())),
            "-" => Ok(Reply::Error(rest.to_owned())),
            ":" => Ok(Reply::Integer(number()?)),
            "$" => match usize::try_from(number()?) {
                Ok(length) => self.receive_bulk(length),
                Err(_) => Ok(Reply::Nil),
            },
            "*" => match usize::try_from(number()?) {
                Ok(count) => Ok(Reply::Array((0..count).map(|_| self.receive()).collect::<io::Result<_>>()?)),
                Err(_) => Ok(Reply::Nil),
            },
            _ => Err(no_reply()),
        }
    }

    /// Whether nothing comes, neither a reply nor an end, for a fifth of a second.
    ///
    /// # Panics
    ///
    /// When the connection cannot be listened to.
    pub fn is_silent(&mut self) -> bool {
        let listen = |reader: &BufReader<Box<dyn Source>>, timeout| {
            reader.get_ref().set_timeout(timeout).expect("a connection that is open");
        };
        listen(&self.reader, SILENCE);
        let heard = self.reader.fill_buf().map(<[u8]>::len);
        listen(&self.reader, GUARD);
        heard.is_err_and(|error| matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut))
    }

    fn receive_bulk(&mut self, length: usize) -> io::Result<Reply> {
        let mut bytes = vec![0; length + 2];
        self.reader.read_exact(&mut bytes)?;
        bytes.truncate(length);
        Ok(Reply::Bulk(bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind};
    use std::time::Duration;

    use super::{Connection, Reply, Source};

    impl Source for &'static [u8] {
        fn set_timeout(&self, _: Duration) -> io::Result<()> {
            Ok(())
        }
    }

    fn received(bytes: &'static [u8]) -> io::Result<Reply> {
        Connection::over(bytes, io::sink()).receive()
    }

    #[test]
    fn every_kind_of_reply_is_read() {
        let bulk = |text: &str| Reply::Bulk(text.into());
        let table = [
            (&b"+OK\r\n"[..], Reply::Status("OK".into())),
            (b"-ERR no\r\n", Reply::Error("ERR no".into())),
            (b":-7\r\n", Reply::Integer(-7)),
            (b"$4\r\na\r\nb\r\n", bulk("a\r\nb")),
            (b"$0\r\n\r\n", bulk("")),
            (b"$-1\r\n", Reply::Nil),
            (b"*-1\r\n", Reply::Nil),
            (b"*2\r\n:1\r\n*1\r\n$1\r\nx\r\n", Reply::Array(vec![Reply::Integer(1), Reply::Array(vec![bulk("x")])])),
        ];
        for (bytes, reply) in table {
            assert_eq!(received(bytes).expect("a whole reply"), reply);
        }
    }

    #[test]
    fn half_a_reply_is_an_error() {
        for bytes in [&b""[..], b"+O", b"$4\r\nab", b"*2\r\n:1\r\n"] {
            assert_eq!(received(bytes).expect_err("not whole").kind(), ErrorKind::UnexpectedEof);
        }
        assert_eq!(received(b"HTTP/1.1 200\r\n").expect_err("no reply").kind(), ErrorKind::InvalidData);
    }
}
