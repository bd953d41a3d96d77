//! Tokens, as responses of language models tell them.

use axum::body::Body;
use futures_util::stream;
use http_body_util::BodyExt;
use tidegate_tower::usage;

use super::reserving::left;
use super::*;

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream; charset=utf-8";

const OPENAI_CHAT: &str = r#"{"id":"c","object":"chat.completion","model":"gpt-x","choices":[{"index":0,"message":
    {"role":"assistant","content":"say \"usage\": {\"prompt_tokens\": 9}"},"finish_reason":"stop"}],
    "usage":{"prompt_tokens":30,"completion_tokens":12,"total_tokens":42,
    "prompt_tokens_details":{"cached_tokens":0}}}"#;
const OPENAI_RESPONSES: &str = r#"{"id":"r","object":"response","output":[],
    "usage":{"input_tokens":30,"output_tokens":12,"total_tokens":42}}"#;
const OPENAI_EMBEDDINGS: &str = r#"{"object":"list","data":[],"usage":{"prompt_tokens":42,"total_tokens":42}}"#;
const ANTHROPIC: &str = r#"{"type":"message","content":[{"type":"text","text":"hi"}],
    "usage":{"input_tokens":30,"output_tokens":12}}"#;

const OPENAI_CHAT_EVENTS: &str = concat!(
    "data: {\"id\":\"c\",\"choices\":[{\"delta\":{\"content\":\"h\"}}],\"usage\":null}\n\n",
    ": a comment\n\n",
    "data: {\"id\":\"c\",\"choices\":[{\"delta\":{\"content\":\"\\\"usage\\\"\"}}],\"usage\":null}\n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":30,\"completion_tokens\":12,\"total_tokens\":42}}\n\n",
    "data: [DONE]\n\n",
);
const OPENAI_RESPONSES_EVENTS: &str = concat!(
    "event: response.created\r\n",
    "data: {\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"usage\":null}}\r\n\r\n",
    "event: response.completed\r\n",
    "data: {\"type\":\"response.completed\",\"response\":",
    "{\"usage\":{\"input_tokens\":30,\"output_tokens\":12}}}\r\n\r\n",
);
const ANTHROPIC_START: &str = concat!(
    "event: message_start\n",
    "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":30,\"output_tokens\":1}}}\n\n",
);
const ANTHROPIC_END: &str = concat!(
    "event: message_delta\n",
    "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":12}}\n\n",
    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
);

fn policy() -> Policy {
    let rule = |unit: &'static str| {
        Rule::new(unit, Limit::sliding_log(10_000, Duration::from_secs(60))).unit(unit).default_amount(100)
    };
    Policy::new().rule(rule("input_tokens")).rule(rule("output_tokens")).rule(rule("tokens")).rule(rule("microdollars"))
}

/// What a response with these frames is charged of each unit; all of it is read, unless it is cut.
async fn charged(head: http::response::Builder, frames: Vec<Vec<u8>>, cut_after: Option<usize>) -> [u64; 4] {
    let (limiter, _) = limiter(policy());
    let price = usage::tokens_and(|usage, spent| {
        let scale = if usage.model.as_deref() == Some("gpt-x") { 1 } else { 2 };
        spent.amount("microdollars", scale * (usage.input_tokens + 10 * usage.output_tokens))
    });
    let layer = RateLimitLayer::new(limiter.clone()).reserve().tally(price);
    let whole = frames.concat();
    let body = Body::from_stream(stream::iter(frames.into_iter().map(Ok::<_, Infallible>)));
    let response = std::sync::Mutex::new(Some(head.body(body).expect("a response")));
    let service = service_fn(|_: Request<String>| {
        let response = response.lock().expect("no panic").take().expect("one request");
        async { Ok::<_, Infallible>(response) }
    });
    let mut body = layer.layer(service).oneshot(from(ALICE)).await.expect("a response").into_body();
    match cut_after {
        Some(count) => {
            for _ in 0..count {
                assert!(body.frame().await.is_some());
            }
            drop(body);
        }
        None => assert_eq!(body.collect().await.expect("a body").to_bytes(), whole, "frames pass unchanged"),
    }
    ["input_tokens", "output_tokens", "tokens", "microdollars"].map(|unit| 10_000 - left(&limiter, unit))
}

fn of(kind: &str) -> http::response::Builder {
    Response::builder().header("content-type", kind)
}

async fn charged_in_one(kind: &str, body: &str) -> [u64; 4] {
    charged(of(kind), vec![body.into()], None).await
}

const ESTIMATE: [u64; 4] = [100; 4];
const ACTUAL: [u64; 4] = [30, 12, 42, 2 * (30 + 120)];

#[tokio::test]
async fn usage_is_read_however_the_body_is_cut_into_frames() {
    let anthropic_events = [ANTHROPIC_START, ANTHROPIC_END].concat();
    let carriage_returns = anthropic_events.replace('\n', "\r");
    let unfinished = OPENAI_CHAT_EVENTS.split("\n\ndata: [DONE]").next().expect("a part").to_owned();
    let bodies = [
        (JSON, OPENAI_CHAT, [30, 12, 42, 150]),
        (JSON, OPENAI_RESPONSES, ACTUAL),
        (JSON, OPENAI_EMBEDDINGS, [42, 0, 42, 84]),
        ("application/vnd.model+json", ANTHROPIC, ACTUAL),
        (EVENTS, OPENAI_CHAT_EVENTS, ACTUAL),
        (EVENTS, OPENAI_RESPONSES_EVENTS, ACTUAL),
        (EVENTS, &anthropic_events, ACTUAL),
        (EVENTS, &carriage_returns, ACTUAL),
        (EVENTS, &unfinished, ACTUAL),
    ];
    for (kind, body, expected) in bodies {
        for position in 0..=body.len() {
            let (before, after) = body.as_bytes().split_at(position);
            let charged = charged(of(kind), vec![before.into(), after.into()], None).await;
            assert_eq!(charged, expected, "cut at {position}: {body}");
        }
        let bytes = body.bytes().map(|byte| vec![byte]).collect();
        assert_eq!(charged(of(kind), bytes, None).await, expected, "byte by byte: {body}");
    }
}

#[tokio::test]
async fn amounts_that_are_not_given_keep_their_estimate() {
    let truncated = &OPENAI_CHAT[..OPENAI_CHAT.len() - 1];
    for (kind, body) in [
        (JSON, truncated),
        (JSON, ""),
        (JSON, "[1, 2]"),
        (JSON, r#"{"usage":null}"#),
        (JSON, r#"{"usage":"much"}"#),
        (JSON, r#"{"usage":{"input_tokens":-1,"output_tokens":2}}"#),
        (JSON, r#"{"usage":{"input_tokens":1e99,"output_tokens":2}}"#),
        (JSON, r#"{"choices":[{"usage":{"input_tokens":1,"output_tokens":2}}]}"#),
        ("text/plain", ANTHROPIC),
        (EVENTS, ANTHROPIC),
        (EVENTS, "data: {\"choices\":[],\"usage\":null}\n\ndata: [DONE]\n\n"),
        (EVENTS, "data: {\"usage\":{\"input_tokens\":30,\n\n"),
        (EVENTS, "id: \"usage\"\n\n"),
    ] {
        assert_eq!(charged_in_one(kind, body).await, ESTIMATE, "{kind}: {body}");
    }
    let encoded = of(JSON).header("content-encoding", "gzip");
    assert_eq!(charged(encoded, vec![ANTHROPIC.into()], None).await, ESTIMATE);
    let untyped = Response::builder();
    assert_eq!(charged(untyped, vec![ANTHROPIC.into()], None).await, ESTIMATE);
}

#[tokio::test]
async fn no_more_is_kept_than_the_bound() {
    let padded = |length: usize| {
        let rest = r#","usage":{"input_tokens":30,"output_tokens":12}}"#;
        format!(r#"{{"text":"{}"{rest}"#, "x".repeat(length - rest.len() - r#"{"text":""#.len() - 1))
    };
    let in_frames = |body: &str| body.as_bytes().chunks(100_000).map(<[u8]>::to_vec).collect::<Vec<_>>();
    for (length, expected) in [(usage::MAX_KEPT, ACTUAL), (usage::MAX_KEPT + 1, ESTIMATE)] {
        let body = padded(length);
        assert_eq!(body.len(), length);
        assert_eq!(charged(of(JSON), in_frames(&body), None).await, expected, "{length}");
        assert_eq!(charged(of(JSON), vec![body.into()], None).await, expected, "{length} at once");
    }
    // A line that is too long is skipped, and the next one is read.
    let prefix = "data: ".len();
    for (length, expected) in [(usage::MAX_KEPT - prefix, ACTUAL), (usage::MAX_KEPT - prefix + 1, ESTIMATE)] {
        let body = format!("data: {}\n\n", padded(length));
        assert_eq!(charged(of(EVENTS), in_frames(&body), None).await, expected, "{length}");
        let followed = body + OPENAI_CHAT_EVENTS;
        assert_eq!(charged(of(EVENTS), in_frames(&followed), None).await, ACTUAL, "{length}");
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_settles_what_is_certain() {
    let [start, end] = [ANTHROPIC_START, ANTHROPIC_END].map(|part| part.as_bytes().to_vec());
    let frames = || vec![start.clone(), end.clone(), b"data: {}\n\n".to_vec()];
    for (count, expected) in [(0, ESTIMATE), (1, [30, 100, 100, 100]), (2, ACTUAL)] {
        assert_eq!(charged(of(EVENTS), frames(), Some(count)).await, expected, "after {count} frames");
    }
    assert_eq!(charged(of(EVENTS), vec![start.clone()], None).await, [30, 100, 100, 100], "ended without a count");
    // The counts so far: the last ones are right.
    let counts =
        |output: u64| format!("data: {{\"usage\":{{\"prompt_tokens\":30,\"completion_tokens\":{output}}}}}\n\n");
    let frames = || [3, 7, 12].map(|output| counts(output).into_bytes()).to_vec();
    for (count, output) in [(1, 3), (2, 7), (3, 12)] {
        let expected = [30, output, 30 + output, 2 * (30 + 10 * output)];
        assert_eq!(charged(of(EVENTS), frames(), Some(count)).await, expected);
    }
}

#[tokio::test]
async fn a_response_with_the_status_of_an_error_used_nothing_unless_it_says_so() {
    for status in [400, 429, 500, 529] {
        let error = r#"{"error":{"message":"no"}}"#;
        assert_eq!(charged(of(JSON).status(status), vec![error.into()], None).await, [0; 4], "{status}");
        assert_eq!(charged(Response::builder().status(status), vec!["no".into()], Some(0)).await, [0; 4], "{status}");
        assert_eq!(charged(of(JSON).status(status), vec![ANTHROPIC.into()], None).await, ACTUAL, "{status}");
    }
}
