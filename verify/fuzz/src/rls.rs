//! Whatever arrives as a message of Envoy's, in bytes or in JSON, is answered
//! or refused, and the answer is about what was asked.

use std::sync::LazyLock;

use prost::Message;
use tidegate_server::envoy_message::rate_limit_response::Code;
use tidegate_server::envoy_message::{self, RateLimitRequest, RateLimitResponse};
use tidegate_server::{HeaderStyle, Server, Settings};

use crate::serving::{self, RUNTIME};

const FILE: &str = "
domain: d
descriptors:
  - { key: a, rate_limit: { unit: minute, requests_per_unit: 3, name: n } }
  - { key: a, value: b, rate_limit: { unit: day, requests_per_unit: 0 } }
  - { key: a, value: c*, share_threshold: true, rate_limit: { unlimited: true, replaces: [{ name: n }] } }
  - { key: b, shadow_mode: true, rate_limit: { unit: year, requests_per_unit: 1 } }
";

static SERVER: LazyLock<Server> = LazyLock::new(|| {
    let file = std::env::temp_dir().join(format!("tidegate-fuzz-{}.yaml", std::process::id()));
    std::fs::write(&file, FILE).expect("a file");
    let settings = Settings {
        envoy_config: vec![file.clone()],
        envoy_headers: HeaderStyle::Draft8,
        envoy_problem: true,
        envoy_metadata: true,
        ..Settings::default()
    };
    let server = serving::start(settings);
    let _ = std::fs::remove_file(file);
    server
});

/// A message of Envoy's, in bytes and in JSON.
pub fn rls(input: &[u8]) {
    let app = SERVER.app();
    RUNTIME.block_on(async {
        let answered = envoy_message::answer(app, input).await;
        match (RateLimitRequest::decode(input), answered) {
            (Err(_), answered) => assert!(answered.is_none(), "an answer to what is no message"),
            (Ok(_), None) => {}
            (Ok(request), Some(answer)) => {
                let response = RateLimitResponse::decode(&answer[..]).expect("an answer is a message");
                assert!(!request.domain.is_empty());
                assert_eq!(response.statuses.len(), request.descriptors.len());
                // No descriptor of the file has quota_mode.
                let refused = response.statuses.iter().any(|status| status.code() == Code::OverLimit);
                assert_eq!(response.overall_code() == Code::OverLimit, refused);
                assert_eq!(response.raw_body.is_empty(), !refused);
            }
        }
        let (status, _) = envoy_message::answer_json(app, input).await;
        assert!(matches!(status, 200 | 400 | 429), "{status}");
    });
}
