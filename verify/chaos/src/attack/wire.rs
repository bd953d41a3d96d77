//! Bytes as an attacker sends them: sockets from chosen addresses, heads as they are
//! written, and as much of HTTP/2 as it takes to open streams that never end.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tidegate_testkit::servers::GUARD;

/// Where attacks come from, unless they are about one address: another than the honest client's.
pub(super) const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 66);

/// Connects from an address of this machine.
pub(super) fn connect(from: Ipv4Addr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    socket.connect_timeout(&to.into(), GUARD)?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(GUARD))?;
    stream.set_write_timeout(Some(GUARD))?;
    Ok(stream)
}

/// As many connections as the server lets in, up to a number.
pub(super) fn connect_many(from: Ipv4Addr, to: SocketAddr, count: usize) -> Vec<TcpStream> {
    (0..count).filter_map(|_| connect(from, to).ok()).collect()
}

/// Whether the server has closed a connection, as far as is known within a moment.
pub(super) fn is_closed(stream: &TcpStream, within: Duration) -> bool {
    let _ = stream.set_read_timeout(Some(within));
    let mut byte = [0];
    match io::Read::read(&mut &*stream, &mut byte) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
    }
}

/// A POST of JSON with further fields, each with its line end.
pub(super) fn post(path: &str, fields: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{fields}content-length: {length}\r\n\r\n{body}"
    )
}

/// Frames of HTTP/2 (RFC 9113).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// A setting: the window of each stream is of no bytes.
const NO_WINDOW: &[u8] = &[0, 4, 0, 0, 0, 0];

/// Opens a connection of HTTP/2 with this many streams of a gRPC method, each with a
/// message that declares a length and never comes.
pub(super) fn declare(to: SocketAddr, method: &str, streams: u32, declared: u32) -> io::Result<TcpStream> {
    let mut bytes = PREFACE.to_vec();
    frame(&mut bytes, SETTINGS, 0, 0, &[]);
    for stream in (0..streams).map(|number| 2 * number + 1) {
        let fields = [(":method", "POST"), (":path", method), ("content-type", "application/grpc"), ("te", "trailers")];
        frame(&mut bytes, HEADERS, END_HEADERS, stream, &head(&fields));
        let mut message = vec![0];
        message.extend(declared.to_be_bytes());
        frame(&mut bytes, DATA, 0, stream, &message);
    }
    let mut connection = connect(ATTACKER, to)?;
    connection.write_all(&bytes)?;
    Ok(connection)
}

/// Asks for a path on this many streams of a connection of HTTP/2 that opens no window for the answers.
pub(super) fn get_without_window(to: SocketAddr, path: &str, streams: u32) -> io::Result<TcpStream> {
    let mut bytes = PREFACE.to_vec();
    frame(&mut bytes, SETTINGS, 0, 0, NO_WINDOW);
    for stream in (0..streams).map(|number| 2 * number + 1) {
        let fields = [(":method", "GET"), (":path", path)];
        frame(&mut bytes, HEADERS, END_HEADERS | END_STREAM, stream, &head(&fields));
    }
    let mut connection = connect(ATTACKER, to)?;
    connection.write_all(&bytes)?;
    Ok(connection)
}

fn frame(bytes: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    bytes.extend(&length[1..]);
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
}

/// The head of a request, in literals that are not indexed (RFC 7541, 6.2.2).
fn head(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in [(":scheme", "http"), (":authority", "localhost")].iter().chain(fields) {
        block.push(0);
        for text in [name, value] {
            // All of them are shorter than what fits into seven bits.
            block.push(u8::try_from(text.len()).unwrap_or(0x7e));
            block.extend(text.as_bytes());
        }
    }
    block
}
