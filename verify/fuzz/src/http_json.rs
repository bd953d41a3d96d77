//! Whatever arrives as a question in JSON is answered or refused, in JSON, and
//! a status says the same as its body.

use std::sync::LazyLock;

use serde_json::Value;
use tidegate::kernel::Verb;
use tidegate_server::{Server, Settings, http_question};

use crate::serving::{self, RUNTIME};

static SERVER: LazyLock<Server> = LazyLock::new(|| serving::start(Settings { max_batch: 8, ..Settings::default() }));

/// A question in JSON, by every verb.
pub fn http_json(input: &[u8]) {
    let app = SERVER.app();
    RUNTIME.block_on(async {
        for verb in [Verb::Charge, Verb::Peek, Verb::Refund, Verb::Reset] {
            let (status, body) = http_question::answer(app, verb, input).await;
            let body: Value = serde_json::from_slice(&body).expect("every answer is JSON");
            match (status, verb) {
                (200, _) if body.is_array() => {
                    let asked: Vec<Value> = serde_json::from_slice(input).expect("a batch was asked");
                    assert_eq!(body.as_array().map(Vec::len), Some(asked.len()));
                }
                (200, Verb::Charge) => assert_eq!(body["allowed"], true),
                (200, _) => assert!(body["allowed"].is_boolean()),
                (403 | 429, Verb::Charge) => {
                    assert_eq!((&body["allowed"], &body["status"]), (&false.into(), &status.into()));
                }
                (400 | 404 | 413 | 422, _) => assert_eq!(body["status"], status, "{body}"),
                (other, _) => panic!("{other}: {body}"),
            }
        }
        let (status, body) = http_question::explain(app, input).await;
        assert!(matches!(status, 200 | 400 | 404 | 413 | 422), "{status}");
        assert!(serde_json::from_slice::<Value>(&body).is_ok());
    });
}
