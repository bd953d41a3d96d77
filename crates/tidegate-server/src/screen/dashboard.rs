//! The dashboard: files that the build made, as they are.
//!
//! Nothing of it is secret: what it shows comes from the admin API. It asks
//! no server but this one and those that `--dashboard-instance` lists, and the browser is told to hold it to that.

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName,
    HeaderValue, IF_NONE_MATCH, REFERRER_POLICY, VARY,
};
use http::{HeaderMap, Response, StatusCode};

use crate::settings::Settings;
use crate::wire::http::counted::Static;
use crate::wire::http::reads;

/// A file of the dashboard.
struct File {
    path: &'static str,
    kind: &'static str,
    /// Tells it from every other version of it.
    etag: &'static str,
    /// Whether its name changes with its content.
    hashed: bool,
    bytes: &'static [u8],
    gzip: Option<&'static [u8]>,
}

include!(concat!(env!("OUT_DIR"), "/dashboard.rs"));

/// Scripts, styles and answers from here, pictures also from the page itself;
/// nothing else, from nowhere else, in no frame, and no markup made of text.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'; \
     connect-src 'self'";

const COMMON: [(HeaderName, &str); 3] = [
    (REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (VARY, "accept-encoding"),
];

const FOR_EVER: &str = "public, max-age=31536000, immutable";
const ASK_AGAIN: &str = "no-cache";

pub(super) fn router<S: Clone + Send + Sync + 'static>(settings: &Settings) -> Router<S> {
    // Answers come from the other instances as well.
    let policy =
        settings.dashboard_instance.iter().fold(POLICY.to_owned(), |policy, origin| format!("{policy} {origin}"));
    let policy = HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static(POLICY));
    FILES.iter().fold(Router::new(), |router, file| {
        let policy = policy.clone();
        router.route(file.path, reads(get(move |headers: HeaderMap| async move { respond(file, &headers, policy) })))
    })
}

fn respond(file: &File, asked: &HeaderMap, policy: HeaderValue) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    for (name, value) in COMMON {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(if file.hashed { FOR_EVER } else { ASK_AGAIN }));
    headers.insert(ETAG, HeaderValue::from_static(file.etag));
    if is_known(asked, file.etag) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return response;
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(file.kind));
    let bytes = match file.gzip.filter(|_| takes_gzip(asked)) {
        None => file.bytes,
        Some(gzip) => {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            gzip
        }
    };
    *response.body_mut() = Body::from(bytes);
    response.extensions_mut().insert(Static);
    response
}

/// Whether the browser has this version already.
fn is_known(asked: &HeaderMap, etag: &str) -> bool {
    let content = |tag: &str| tag.trim_start_matches("W/").to_owned();
    words(asked, IF_NONE_MATCH).any(|known| known == "*" || content(known) == content(etag))
}

fn takes_gzip(asked: &HeaderMap) -> bool {
    words(asked, ACCEPT_ENCODING).any(|word| {
        let (coding, parameters) = word.split_once(';').unwrap_or((word, ""));
        coding.trim() == "gzip" && !matches!(parameters.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000")
    })
}

/// The members of a list in a header.
fn words(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim)
}
