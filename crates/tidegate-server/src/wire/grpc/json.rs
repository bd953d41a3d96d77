//! The same service for those without gRPC: `POST /json`, as the reference
//! service has it. Messages are those of gRPC in protobuf's own JSON; the
//! status is 200 or 429. `GET /healthcheck` says whether the server stays.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{Request, StatusCode};
use prost_types::value::Kind;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::answer::{self, Client};
use super::messages::rate_limit_descriptor::{Entry, RateLimitOverride};
use super::messages::rate_limit_response::rate_limit::Unit;
use super::messages::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use super::messages::{HeaderValue, RateLimitDescriptor, RateLimitRequest, RateLimitResponse, RateLimitUnit};
use crate::run::protocol::Protocol;
use crate::settings::rights::Right;
use crate::wire::app::App;
use crate::wire::http::{guarded, read_body, wrong_method};
use crate::wire::json::{self, FromObject, Shape, WholeOrText};

/// The routes of the reference service, for an HTTP listener.
pub(super) fn router<S: Clone + Send + Sync + 'static>(app: &Arc<App>) -> Router<S> {
    let posts = |request: Request<Body>| async move { wrong_method(&request, "POST") };
    guarded(Router::new().route("/json", post(decide).fallback(posts)), app, Right::Check)
        .route("/healthcheck", get(health))
        .with_state(Arc::clone(app))
}

async fn health(State(app): State<Arc<App>>) -> (StatusCode, &'static str) {
    if app.guards.drain.is_leaving() {
        (StatusCode::INTERNAL_SERVER_ERROR, "draining\n")
    } else {
        (StatusCode::OK, "OK")
    }
}

async fn decide(State(app): State<Arc<App>>, request: Request<Body>) -> Response {
    let client = Client::of(request.extensions());
    let body = match read_body(request, &app).await {
        Ok(body) => body,
        Err(problem) => return problem,
    };
    let began = Instant::now();
    let (status, body) = answer(&app, &client, &body).await;
    app.records.metrics.answered(Protocol::Http, began.elapsed());
    let kind = match status {
        StatusCode::OK | StatusCode::TOO_MANY_REQUESTS => "application/json",
        _ => "text/plain",
    };
    let mut response = (status, [(CONTENT_TYPE, kind)], body).into_response();
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, http::HeaderValue::from_static("Bearer"));
    }
    response
}

pub(super) async fn answer(app: &Arc<App>, client: &Client, body: &[u8]) -> (StatusCode, String) {
    let FromObject(request): FromObject<RequestJson> = match json::read(body) {
        Ok(request) => request,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("not a RateLimitRequest: {error}\n")),
    };
    match answer::answer_to_the_end(app, client, request.into(), answer::Purpose::Decide).await {
        Ok(response) if response.overall_code() == Code::OverLimit => {
            (StatusCode::TOO_MANY_REQUESTS, write(&response).to_string())
        }
        Ok(response) => (StatusCode::OK, write(&response).to_string()),
        Err(problem) => {
            let outcome = problem.outcome();
            // As of the reference service: one status for all that is wrong with a request.
            let is_invalid = outcome.code() == tonic::Code::InvalidArgument;
            let status = if is_invalid { StatusCode::BAD_REQUEST } else { outcome.status() };
            (status, outcome.words(&problem) + "\n")
        }
    }
}

/// Names are in either spelling; a field that is null is not there.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct RequestJson {
    domain: Option<String>,
    descriptors: Option<Vec<FromObject<DescriptorJson>>>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<WholeOrText<MAX_U32>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct DescriptorJson {
    entries: Option<Vec<FromObject<EntryJson>>>,
    limit: Option<FromObject<LimitJson>>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<WholeOrText<{ u64::MAX }>>,
    #[serde(alias = "is_negative_hits")]
    is_negative_hits: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct EntryJson {
    key: Option<String>,
    value: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct LimitJson {
    #[serde(alias = "requests_per_unit")]
    requests_per_unit: Option<WholeOrText<MAX_U32>>,
    unit: Option<UnitJson>,
}

impl Shape for RequestJson {
    const EXPECTED: &'static str = "an object with domain, descriptors and hitsAddend";
}

impl Shape for DescriptorJson {
    const EXPECTED: &'static str = "a descriptor: an object with entries, limit, hitsAddend, isNegativeHits";
}

impl Shape for EntryJson {
    const EXPECTED: &'static str = "an entry: an object with key and value";
}

impl Shape for LimitJson {
    const EXPECTED: &'static str = "a limit: an object with requestsPerUnit and unit";
}

impl From<RequestJson> for RateLimitRequest {
    fn from(json: RequestJson) -> RateLimitRequest {
        RateLimitRequest {
            domain: json.domain.unwrap_or_default(),
            descriptors: json.descriptors.unwrap_or_default().into_iter().map(|json| json.0.into()).collect(),
            hits_addend: json.hits_addend.map_or(0, u32_of),
        }
    }
}

impl From<DescriptorJson> for RateLimitDescriptor {
    fn from(json: DescriptorJson) -> RateLimitDescriptor {
        let entry = |FromObject(entry): FromObject<EntryJson>| Entry {
            key: entry.key.unwrap_or_default(),
            value: entry.value.unwrap_or_default(),
        };
        RateLimitDescriptor {
            entries: json.entries.unwrap_or_default().into_iter().map(entry).collect(),
            limit: json.limit.map(|FromObject(limit)| RateLimitOverride {
                requests_per_unit: limit.requests_per_unit.map_or(0, u32_of),
                unit: limit.unit.map_or(0, |unit| unit.0),
            }),
            hits_addend: json.hits_addend.map(|hits| hits.0),
            is_negative_hits: json.is_negative_hits.unwrap_or_default(),
        }
    }
}

const MAX_U32: u64 = u32::MAX as u64;

fn u32_of(number: WholeOrText<MAX_U32>) -> u32 {
    u32::try_from(number.0).unwrap_or(u32::MAX)
}

/// A unit, by its name or number.
struct UnitJson(i32);

impl<'de> Deserialize<'de> for UnitJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<UnitJson, D::Error> {
        struct NameOrNumber;

        impl Visitor<'_> for NameOrNumber {
            type Value = UnitJson;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a unit such as \"MINUTE\"")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<UnitJson, E> {
                let fits = i32::try_from(number).map(UnitJson);
                fits.map_err(|_| E::invalid_value(de::Unexpected::Unsigned(number), &self))
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<UnitJson, E> {
                match RateLimitUnit::from_str_name(name) {
                    Some(unit) => Ok(UnitJson(unit.into())),
                    None => Err(E::invalid_value(de::Unexpected::Str(name), &self)),
                }
            }
        }

        deserializer.deserialize_any(NameOrNumber)
    }
}

/// A response in protobuf's JSON: what is zero or empty is left out.
fn write(response: &RateLimitResponse) -> Value {
    object([
        ("overallCode", json!(response.overall_code().as_str_name())),
        ("statuses", response.statuses.iter().map(status).collect()),
        ("responseHeadersToAdd", response.response_headers_to_add.iter().map(header).collect()),
        ("requestHeadersToAdd", response.request_headers_to_add.iter().map(header).collect()),
        ("rawBody", json!(STANDARD.encode(&response.raw_body))),
        ("dynamicMetadata", response.dynamic_metadata.as_ref().map_or(Value::Null, fields)),
    ])
}

/// An object of those values that are there.
fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let is_there = |(_, value): &(&str, Value)| ![json!(null), json!(0), json!(""), json!([])].contains(value);
    Value::Object(fields.into_iter().filter(is_there).map(|(name, value)| (name.to_owned(), value)).collect())
}

fn status(status: &DescriptorStatus) -> Value {
    let limit = |limit: &RateLimit| {
        let unit = Some(limit.unit()).filter(|unit| *unit != Unit::Unknown).map(|unit| unit.as_str_name());
        let count = limit.requests_per_unit;
        object([("name", json!(limit.name)), ("requestsPerUnit", json!(count)), ("unit", json!(unit))])
    };
    let reset = status.duration_until_reset.and_then(|duration| Duration::try_from(duration).ok());
    object([
        ("code", json!(status.code().as_str_name())),
        ("currentLimit", status.current_limit.as_ref().map_or(Value::Null, limit)),
        ("limitRemaining", json!(status.limit_remaining)),
        ("durationUntilReset", json!(reset.map(seconds))),
    ])
}

/// `1s`, or with three or six digits behind the point.
fn seconds(duration: Duration) -> String {
    let (whole, micros) = (duration.as_secs(), duration.subsec_micros());
    match micros {
        0 => format!("{whole}s"),
        _ if micros % 1_000 == 0 => format!("{whole}.{:03}s", micros / 1_000),
        _ => format!("{whole}.{micros:06}s"),
    }
}

fn header(header: &HeaderValue) -> Value {
    object([("key", json!(header.key)), ("value", json!(header.value))])
}

fn fields(metadata: &prost_types::Struct) -> Value {
    Value::Object(metadata.fields.iter().map(|(name, value)| (name.clone(), plain(value))).collect())
}

fn plain(value: &prost_types::Value) -> Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(value)) => json!(value),
        Some(Kind::NumberValue(number)) => json!(number),
        Some(Kind::StringValue(text)) => json!(text),
        Some(Kind::ListValue(list)) => Value::Array(list.values.iter().map(plain).collect()),
        Some(Kind::StructValue(inner)) => fields(inner),
    }
}
