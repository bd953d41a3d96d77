//! Thresholds at the server: on the dashboard, in the metrics, and by webhook.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;

use serde_json::Value;

use crate::server::client::{curl, post};
use crate::server::running::{Folder, Running, tidegate};

const POLICY: &str = "
[rules.api]
limit = 'fixed 4/d'
key = ['user']
notify = ['50%', '100%']
";

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Receives events, and answers each by 200.
fn receive() -> (String, mpsc::Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/events", listener.local_addr().unwrap());
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let (mut line, mut length) = (String::new(), 0);
            while stream.read_line(&mut line).unwrap() > 2 {
                if let Some(text) = line.strip_prefix("content-length: ") {
                    length = text.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
            if sender.send(serde_json::from_slice(&body).unwrap()).is_err() {
                return;
            }
        }
    });
    (url, receiver)
}

#[test]
fn a_threshold_is_sent_counted_and_shown_once() {
    let folder = Folder::new();
    let policy = folder.write("policy.toml", POLICY);
    let secret = folder.write("secret", &format!("{SECRET}\n"));
    let (url, events) = receive();
    let server = Running::start(&[
        "--policy",
        &policy,
        "--webhook",
        &url,
        "--webhook-secret-file",
        &secret,
        "--webhook-allow-private",
    ]);
    for _ in 0..6 {
        post(&server.url("/v1/check"), r#"{ "attributes": { "user": "alice" } }"#);
    }
    let sent = [events.recv().unwrap(), events.recv().unwrap()];
    for (event, (threshold, used)) in sent.iter().zip([(50, 2), (100, 4)]) {
        let data = &event["data"];
        assert_eq!(event["type"], "threshold.crossed");
        assert!(event["timestamp"].is_string() && data["resets_at"].is_string(), "{event}");
        assert_eq!((&data["rule"], &data["key"]), (&"api".into(), &"alice".into()), "{event}");
        assert_eq!(
            (&data["threshold"], &data["used"], &data["capacity"]),
            (&threshold.into(), &used.into(), &4.into())
        );
    }
    let metrics = curl(&[&server.url("/metrics")]).body;
    for threshold in ["50%", "100%"] {
        let line = format!("tidegate_thresholds_total{{rule=\"api\",threshold=\"{threshold}\"}} 1\n");
        assert!(metrics.contains(&line), "{metrics}");
    }
    let crossings = curl(&[&server.url("/admin/v1/live")]).json()["crossings"].clone();
    let shown: Vec<_> = crossings.as_array().unwrap().iter().map(|crossing| crossing["threshold"].clone()).collect();
    assert_eq!(shown, [100, 50]);
    assert!(server.stop().success());
}

#[test]
fn a_webhook_that_may_not_be_called_or_has_no_secret_is_refused_at_start() {
    let start = |arguments: &[&str]| {
        let output = tidegate().args(["serve", "--http", "127.0.0.1:0"]).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    for url in ["http://127.0.0.1:1/", "http://169.254.169.254/latest", "https://[::1]/", "http://localhost/"] {
        let said = start(&["--webhook", url, "--webhook-secret", SECRET]);
        assert!(said.contains("not a public address") && said.contains("--webhook-allow-private"), "{said}");
    }
    let said = start(&["--webhook", "http://127.0.0.1:1/", "--webhook-allow-private"]);
    assert!(said.contains("--webhook-secret-file"), "{said}");
    let said = start(&["--webhook", "ftp://example.com/", "--webhook-secret", SECRET]);
    assert!(said.contains("is not a URL that can be called"), "{said}");
}
