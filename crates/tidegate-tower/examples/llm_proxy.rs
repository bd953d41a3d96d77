//! A proxy in front of a language model: requests, tokens, dollars and calls in flight in one
//! policy. Responses are streamed, and settled when they have ended.
//!
//! ```text
//! cargo run -p tidegate-tower --example llm_proxy
//! ```
//!
//! The model is a mock in the same process. It writes half of an answer, and the rest when it
//! is let, so that calls overlap without a timer.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::stream;
use http::StatusCode;
use tidegate::{Limit, Limiter, Policy, Rule};
use tidegate_tower::{RateLimitLayer, by, usage};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// What a token costs, in millionths of a dollar: 3 dollars for a million read, 15 for a million written.
const INPUT_PRICE: u64 = 3;
const OUTPUT_PRICE: u64 = 15;

fn policy() -> Policy {
    const MINUTE: Duration = Duration::from_secs(60);
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    Policy::new()
        .limit("requests", Limit::per_minute(20))
        // A log gives back exactly what was not used, however long the call was.
        .rule(Rule::new("tokens", Limit::sliding_log(2_000, MINUTE)).unit("tokens").clamp_estimate())
        .rule(Rule::new("dollars", Limit::fixed_window(50_000, DAY)).unit("microdollars"))
        .limit("in flight", Limit::in_flight(2, MINUTE))
}

/// What a call may take at most, as its body says before the model has answered.
#[derive(Clone, Copy)]
struct Estimate {
    tokens: u64,
    microdollars: u64,
}

/// Reads the body of a call, which the limit does not see, and estimates what it will take.
async fn estimate(request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, 1 << 20).await else { return StatusCode::PAYLOAD_TOO_LARGE.into_response() };
    let Ok(call) = serde_json::from_slice::<serde_json::Value>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    // About four characters make a token.
    let input = call["messages"].to_string().len() as u64 / 4;
    let output = call["max_tokens"].as_u64().unwrap_or(1_000);
    let estimate = Estimate { tokens: input + output, microdollars: INPUT_PRICE * input + OUTPUT_PRICE * output };
    parts.extensions.insert(estimate);
    next.run(Request::from_parts(parts, Body::from(body))).await
}

/// Sends a call on to the model, and its response back as it comes.
async fn forward(State((client, model)): State<(reqwest::Client, String)>, body: Bytes) -> Response {
    match client.post(&model).body(body).send().await {
        Ok(response) => http::Response::from(response).map(Body::new),
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

fn proxy(limiter: Limiter, model: String, client: reqwest::Client) -> Router {
    let price = usage::tokens_and(|usage, spent| {
        let microdollars = INPUT_PRICE * usage.input_tokens + OUTPUT_PRICE * usage.output_tokens;
        spent.amount("microdollars", microdollars)
    });
    let layer = RateLimitLayer::new(limiter)
        .key(by::api_key())
        .amount("tokens", |request| Some(request.extension::<Estimate>()?.tokens))
        .amount("microdollars", |request| Some(request.extension::<Estimate>()?.microdollars))
        .reserve()
        .tally(price);
    Router::new()
        .route("/v1/chat/completions", post(forward))
        .layer(layer)
        .layer(from_fn(estimate))
        .with_state((client, model))
}

/// The mock: half of an answer, then the rest and the usage.
fn model(may_finish: Arc<Semaphore>) -> Router {
    let answer = move || async move {
        let first = Bytes::from("data: {\"choices\":[{\"delta\":{\"content\":\"The tide \"}}],\"usage\":null}\n\n");
        let rest = async move {
            may_finish.acquire().await.expect("open").forget();
            Ok::<_, Infallible>(Bytes::from(concat!(
                "data: {\"choices\":[{\"delta\":{\"content\":\"comes in.\"}}],\"usage\":null}\n\n",
                "data: {\"choices\":[],\"usage\":",
                "{\"prompt_tokens\":20,\"completion_tokens\":200,\"total_tokens\":220}}\n\n",
                "data: [DONE]\n\n",
            )))
        };
        let head = [("content-type", "text/event-stream")];
        (
            head,
            Body::from_stream(stream::unfold((Some(first), Some(rest)), |(first, rest)| async move {
                match (first, rest) {
                    (Some(first), rest) => Some((Ok(first), (None, rest))),
                    (None, Some(rest)) => Some((rest.await, (None, None))),
                    (None, None) => None,
                }
            })),
        )
    };
    Router::new().route("/v1/chat/completions", post(answer))
}

/// Serves an app on a port of its own, and says where.
async fn serve(app: Router) -> std::io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/v1/chat/completions", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(url)
}

fn print_remaining(limiter: &Limiter, when: &str) -> Result<(), tidegate::CheckError> {
    let mut line = format!("{when:40}");
    for rule in ["requests", "tokens", "dollars", "in flight"] {
        let left = limiter.peek(tidegate::Request::new("key-of-alice").rule(rule).cost(0))?.remaining();
        line += &match left {
            Some(left) if rule == "dollars" => format!("  ${:.6}", left as f64 / 1e6),
            Some(left) => format!("  {left} {rule}"),
            None => String::new(),
        };
    }
    println!("{line}");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let (limiter, may_finish) = (Limiter::new(policy()), Arc::new(Semaphore::new(0)));
    let model = serve(model(Arc::clone(&may_finish))).await?;
    let proxy = serve(proxy(limiter.clone(), model, client.clone())).await?;
    let ask = |max_tokens: u64| {
        let call = serde_json::json!({
            "model": "mock", "max_tokens": max_tokens, "stream": true, "stream_options": {"include_usage": true},
            "messages": [{"role": "user", "content": "What does the tide do? Answer in a few words, please."}],
        });
        client.post(&proxy).header("x-api-key", "key-of-alice").body(call.to_string()).send()
    };

    print_remaining(&limiter, "remaining at first")?;
    let first = ask(500).await?;
    print_remaining(&limiter, "the first call streams: its estimate")?;
    let second = ask(500).await?;
    print_remaining(&limiter, "the second call streams, too")?;

    let third = ask(10).await?;
    let limit = third.headers().get("ratelimit").map_or("", |value| value.to_str().unwrap_or(""));
    println!("  a third call beside them: {}, {limit}", third.status());

    may_finish.add_permits(1);
    println!("  the first call answered {} bytes", first.text().await?.len());
    print_remaining(&limiter, "the first call has ended: as it was used")?;

    drop(second);
    // The proxy finds out that the client has gone away when the connection is closed.
    while limiter.peek(tidegate::Request::new("key-of-alice").rule("in flight").cost(0))?.remaining() != Some(2) {
        tokio::task::yield_now().await;
    }
    print_remaining(&limiter, "the client of the second one left")?;

    let fourth = ask(5_000).await?;
    println!("  a call that may cost more than a day allows: {}", fourth.status());
    Ok(())
}
