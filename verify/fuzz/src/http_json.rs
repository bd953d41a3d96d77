//! Whatever arrives as a request in JSON is answered or refused, in JSON, and
//! a status says the same as its body.

use std::sync::LazyLock;

use serde_json::Value;
use tidegate_server::{Call, Server, Settings, http_question};

use crate::serving::{self, RUNTIME};

static SERVER: LazyLock<Server> = LazyLock::new(|| serving::start(Settings { max_batch: 8, ..Settings::default() }));

/// All of them.
const CALLS: [Call; 9] = [
    Call::Check,
    Call::Peek,
    Call::Report,
    Call::Refund,
    Call::Reset,
    Call::Reserve,
    Call::Settle,
    Call::Renew,
    Call::Release,
];

/// A request in JSON, by every call.
pub fn http_json(input: &[u8]) {
    let app = SERVER.app();
    RUNTIME.block_on(async {
        for call in CALLS {
            let (status, body) = http_question::answer(app, call, input).await;
            let body: Value = serde_json::from_slice(&body).expect("every answer is JSON");
            match (status, call) {
                (200, _) if body.is_array() => {
                    let asked: Vec<Value> = serde_json::from_slice(input).expect("a batch was asked");
                    assert_eq!(body.as_array().map(Vec::len), Some(asked.len()));
                }
                (200, Call::Check | Call::Reserve | Call::Renew) => assert_eq!(body["allowed"], true),
                (200, _) => assert!(body["allowed"].is_boolean()),
                (403 | 429, Call::Check | Call::Reserve) | (403 | 409, Call::Renew) => {
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
