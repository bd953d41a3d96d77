//! An event as it is sent: its body, its id, and its signature.

use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request};
use http_body_util::Full;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use serde::Serialize;
use tidegate::Micros;

use crate::run::buffered::Held;
use crate::tell::crossings::Crossing;

/// How many bytes a secret may have.
const SECRET: std::ops::RangeInclusive<usize> = 24..=64;

/// What the bytes of a secret begin with, as text.
const PREFIX: &str = "whsec_";

/// Why a secret cannot be used. It is not repeated.
#[derive(Debug, thiserror::Error)]
#[error(
    "--webhook needs a secret: give --webhook-secret-file a file with whsec_ and 24 to 64 random bytes in base64, such \
     as `echo whsec_$(openssl rand -base64 32)` makes"
)]
pub struct SecretError;

/// An event, until it is delivered.
#[derive(Debug)]
pub(super) struct Message {
    /// The same in every attempt: receivers tell by it what they have seen.
    pub(super) id: String,
    /// The hash of the key, whose events are kept in their order.
    pub(super) line: u64,
    pub(super) body: Bytes,
    /// Its part of the room for events that wait.
    pub(super) held: Held,
    pub(super) attempts: u32,
}

#[derive(Serialize)]
struct Body<'a> {
    r#type: &'static str,
    timestamp: String,
    data: Data<'a>,
}

#[derive(Serialize)]
struct Data<'a> {
    rule: &'a str,
    key: &'a str,
    /// In percent of the capacity.
    threshold: u8,
    used: u64,
    capacity: u64,
    resets_at: String,
    shadow: bool,
}

impl Message {
    pub(super) fn new(crossing: &Crossing, line: u64, held: Held) -> Message {
        let body = Body {
            r#type: "threshold.crossed",
            timestamp: written(crossing.at),
            data: Data {
                rule: crossing.rule.as_str(),
                key: &crossing.key,
                threshold: crossing.percent,
                used: crossing.used,
                capacity: crossing.capacity,
                resets_at: written(crossing.resets_at),
                shadow: crossing.shadow,
            },
        };
        let mut random = [0; 16];
        // An id that is not random would only be taken for another one.
        let _ = SystemRandom::new().fill(&mut random);
        let id = format!("msg_{:032x}", u128::from_le_bytes(random));
        let body = serde_json::to_vec(&body).unwrap_or_default().into();
        Message { id, line, body, held, attempts: 0 }
    }
}

fn written(at: Micros) -> String {
    let at = i64::try_from(at.get()).ok().and_then(|at| jiff::Timestamp::from_microsecond(at).ok());
    at.map(|at| at.to_string()).unwrap_or_default()
}

/// Signs what is sent, so that receivers know who sent it, and when.
pub(super) struct Signer {
    key: hmac::Key,
}

impl Signer {
    pub(super) fn new(secret: Option<&str>) -> Result<Signer, SecretError> {
        let text = secret.map(str::trim).and_then(|secret| secret.strip_prefix(PREFIX)).ok_or(SecretError)?;
        let bytes = STANDARD.decode(text).ok().filter(|bytes| SECRET.contains(&bytes.len())).ok_or(SecretError)?;
        Ok(Signer { key: hmac::Key::new(hmac::HMAC_SHA256, &bytes) })
    }

    fn signature(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        let signed = [format!("{id}.{timestamp}.").as_bytes(), body].concat();
        format!("v1,{}", STANDARD.encode(hmac::sign(&self.key, &signed)))
    }

    /// An attempt of now.
    pub(super) fn request(&self, message: &Message) -> Request<Full<Bytes>> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let timestamp = since.map_or(0, |since| since.as_secs());
        let signature = self.signature(&message.id, timestamp, &message.body);
        let mut request = Request::new(Full::new(message.body.clone()));
        *request.method_mut() = Method::POST;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("tidegate/", env!("CARGO_PKG_VERSION"))));
        let signed = [("webhook-id", message.id.clone()), ("webhook-signature", signature)];
        for (name, value) in signed.into_iter().chain([("webhook-timestamp", timestamp.to_string())]) {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(name, value);
            }
        }
        request
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_those_of_the_specification() {
        let signer = Signer::new(Some("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")).unwrap();
        let signature = signer.signature("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_secret_is_random_bytes_in_base64_and_never_repeated() {
        for wrong in
            [None, Some("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), Some("whsec_"), Some("whsec_c2hvcnQ="), Some("whsec_!")]
        {
            let message = Signer::new(wrong).map(drop).unwrap_err().to_string();
            assert!(message.contains("--webhook-secret-file") && !message.contains("c2hvcnQ"), "{wrong:?}");
        }
    }
}
