//! A client at an address of its own, which keeps its connection.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};

use socket2::{Domain, Socket, Type};
use tidegate_testkit::servers::GUARD;

/// An answer of HTTP.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

pub(crate) struct Client {
    port: u16,
    from: IpAddr,
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Connects to a port of loopback from one of its addresses.
    pub(crate) fn open(port: u16, from: &str) -> Client {
        let from = from.parse().unwrap();
        Client { port, from, stream: connect(port, from) }
    }

    /// A request for a path, with these lines in its head.
    pub(crate) fn get(&mut self, path: &str, lines: &str) -> Response {
        self.request("GET", path, lines, "")
    }

    pub(crate) fn request(&mut self, method: &str, path: &str, lines: &str, body: &str) -> Response {
        let request = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{lines}\r\n{body}");
        self.stream.get_mut().write_all(request.as_bytes()).unwrap();
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(self.stream.read_line(&mut head).unwrap(), 0, "the connection has ended: {head:?}");
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        let headers: HashMap<_, _> = lines.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
        let mut body = vec![0; headers["content-length"].parse().unwrap()];
        self.stream.read_exact(&mut body).unwrap();
        if headers.get("connection").is_some_and(|value| value.eq_ignore_ascii_case("close")) {
            self.stream = connect(self.port, self.from);
        }
        Response { status, headers, body: String::from_utf8(body).unwrap() }
    }
}

fn connect(port: u16, from: IpAddr) -> BufReader<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(from, 0).into()).unwrap();
    socket.connect(&SocketAddr::from(([127, 0, 0, 1], port)).into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    BufReader::new(stream)
}
