//! A mock model server that answers as OpenAI's chat completions do.
//!
//! The body of a call says what to answer, and the model remembers the tokens
//! that it has told for each user.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

/// Bytes of a streamed response that are sent at a time: events arrive in pieces.
const PIECE: usize = 37;

const JSON: &str = "application/json";

/// What a call is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reply {
    /// JSON, with its usage.
    Plain { tokens: u64 },
    /// Events, of which the last one tells the usage.
    Streamed { tokens: u64 },
    /// Events, each with the usage so far.
    Counting { tokens: u64 },
    /// Events, none of which tells the usage.
    Silent,
    /// Events that tell 7 tokens so far, and no end.
    Endless,
    /// Events that tell nothing, and no end.
    SilentEndless,
    /// An error in JSON, without usage.
    Error,
    /// Something that is neither JSON nor events.
    Text,
}

impl Reply {
    /// The body of a call that is answered so.
    pub(crate) fn call(self) -> String {
        let (kind, tokens) = match self {
            Reply::Plain { tokens } => ("plain", tokens),
            Reply::Streamed { tokens } => ("streamed", tokens),
            Reply::Counting { tokens } => ("counting", tokens),
            Reply::Silent => ("silent", 0),
            Reply::Endless => ("endless", 7),
            Reply::SilentEndless => ("silent endless", 0),
            Reply::Error => ("error", 0),
            Reply::Text => ("text", 0),
        };
        json!({"model": "mock", "kind": kind, "tokens": tokens}).to_string()
    }
}

#[derive(Debug, Default)]
struct Record {
    calls: u64,
    tokens: u64,
}

/// A model server on loopback.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) port: u16,
    users: Arc<Mutex<HashMap<String, Record>>>,
}

impl Model {
    pub(crate) fn start() -> Model {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let model = Model { port: listener.local_addr().unwrap().port(), users: Arc::default() };
        let users = Arc::clone(&model.users);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, users) = (stream.unwrap(), Arc::clone(&users));
                // A client that closes its connection early is part of the tests.
                thread::spawn(move || answer(stream, &users));
            }
        });
        model
    }

    /// The calls of a user that have arrived here.
    pub(crate) fn calls(&self, user: &str) -> u64 {
        self.users.lock().unwrap().get(user).map_or(0, |record| record.calls)
    }

    /// The tokens that were told to a user, in whole responses.
    pub(crate) fn tokens(&self, user: &str) -> u64 {
        self.users.lock().unwrap().get(user).map_or(0, |record| record.tokens)
    }
}

fn answer(mut stream: TcpStream, users: &Mutex<HashMap<String, Record>>) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut head = HashMap::new();
    for line in reader.by_ref().lines().skip(1) {
        match line?.split_once(": ") {
            Some((name, value)) => head.insert(name.to_lowercase(), value.to_owned()),
            None => break,
        };
    }
    assert_eq!(head.get("accept-encoding"), None, "a compressed response hides its usage");
    let mut body = vec![0; head["content-length"].parse().unwrap()];
    reader.read_exact(&mut body)?;
    let call: Value = serde_json::from_slice(&body).unwrap();
    let (kind, tokens) = (call["kind"].as_str().unwrap(), call["tokens"].as_u64().unwrap());
    let is_whole = !kind.ends_with("endless");
    {
        let mut users = users.lock().unwrap();
        let record = users.entry(head["x-user"].clone()).or_default();
        record.calls += 1;
        record.tokens += if is_whole { tokens } else { 0 };
    }
    let mut write = |status: &str, kind: &str, body: &str| {
        let head = format!("content-type: {kind}\r\ncontent-length: {}\r\nconnection: close", body.len());
        write!(stream, "HTTP/1.1 {status}\r\n{head}\r\n\r\n{body}")
    };
    match kind {
        "plain" => write("200 OK", JSON, &completion(&usage(tokens)).to_string()),
        "error" => write("400 Bad Request", JSON, r#"{"error": {"message": "invalid"}}"#),
        "text" => write("200 OK", "text/plain", "total_tokens"),
        _ => {
            stream_events(&mut stream, &events(kind, tokens), is_whole)?;
            // Ends when the proxy closes the connection.
            reader.read_to_end(&mut body).map(drop)
        }
    }
}

/// Three in four tokens are of the prompt, so that only the total is the total.
fn usage(tokens: u64) -> Value {
    let completion = tokens / 4;
    json!({"prompt_tokens": tokens - completion, "completion_tokens": completion, "total_tokens": tokens})
}

fn completion(usage: &Value) -> Value {
    json!({"object": "chat.completion", "choices": [{"message": {"content": "total_tokens: 1"}}], "usage": usage})
}

fn events(kind: &str, tokens: u64) -> String {
    let chunk = |usage: Value| json!({"choices": [{"delta": {"content": "\"usage\":"}}], "usage": usage});
    let last = json!({"choices": [], "usage": usage(tokens)});
    let chunks = match kind {
        "streamed" => vec![chunk(Value::Null), chunk(Value::Null), last],
        "counting" => vec![chunk(usage(tokens / 3)), chunk(usage(tokens / 2)), last],
        "silent" | "silent endless" => vec![chunk(Value::Null), chunk(Value::Null)],
        "endless" => vec![chunk(usage(tokens / 2)), last],
        other => panic!("unknown kind of reply: {other}"),
    };
    let events: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    if kind.ends_with("endless") { events } else { events + "data: [DONE]\n\n" }
}

/// Sends events in pieces, and ends the response if it is whole.
fn stream_events(stream: &mut TcpStream, events: &str, is_whole: bool) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let head = "content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\nconnection: close";
    write!(stream, "HTTP/1.1 200 OK\r\n{head}\r\n\r\n")?;
    for piece in events.as_bytes().chunks(PIECE) {
        let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
        stream.write_all(&chunk)?;
    }
    if is_whole { stream.write_all(b"0\r\n\r\n") } else { Ok(()) }
}
