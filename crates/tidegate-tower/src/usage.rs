//! The tokens that a language model used, read from its response while that passes by.
//!
//! Understood are the APIs of OpenAI (chat completions, responses, embeddings) and Anthropic
//! (messages), and what is compatible with them: as JSON, and as server-sent events.
//!
//! ```
//! use tidegate::{Limit, Limiter, Policy, Rule};
//! use tidegate_tower::{RateLimitLayer, by, usage};
//!
//! let tokens = Rule::new("tokens", Limit::per_minute(100_000)).unit("tokens").default_amount(2_000);
//! let layer = RateLimitLayer::new(Limiter::new(Policy::new().rule(tokens)))
//!     .key(by::api_key())
//!     .reserve()
//!     .tally(usage::tokens());
//! # let _ = layer;
//! ```
//!
//! The units are [`input_tokens`](INPUT_TOKENS), [`output_tokens`](OUTPUT_TOKENS) and
//! [`tokens`](TOKENS), which is their sum. Tokens that a provider counts apart from these, such
//! as Anthropic's `cache_read_input_tokens`, are not read.
//!
//! | response | what is settled |
//! |---|---|
//! | it tells its usage | all three units |
//! | a stream without usage (OpenAI: send `stream_options: {"include_usage": true}`) | nothing: the estimates stay |
//! | a stream of Anthropic that is cut before its last event | `input_tokens` |
//! | the status is an error, 4xx or 5xx, and no usage is told | all three units are 0 |
//! | malformed, encoded (`Content-Encoding`), or neither JSON nor events | nothing: the estimates stay |
//! | JSON, or a line of events, of more than [`MAX_KEPT`] bytes | nothing of it is read |
//!
//! Put a layer that compresses responses outside of this one.

use std::mem;
use std::sync::Arc;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::response::Parts;
use serde::Deserialize;

use crate::tally::{BodyEnd, Spent, Tally};

/// The unit of tokens that a model has read.
pub const INPUT_TOKENS: &str = "input_tokens";
/// The unit of tokens that a model has written.
pub const OUTPUT_TOKENS: &str = "output_tokens";
/// The unit of both together.
pub const TOKENS: &str = "tokens";

/// How many bytes of a response are kept: of JSON all that came, of events the line that has
/// begun. The last event of OpenAI's responses API has the whole output in one line.
pub const MAX_KEPT: usize = 1 << 20;

/// What a response says that it used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Tokens that the model has read.
    pub input_tokens: u64,
    /// Tokens that the model has written.
    pub output_tokens: u64,
    /// The model, if the response names it.
    pub model: Option<String>,
}

/// Settles `input_tokens`, `output_tokens` and `tokens`.
pub fn tokens() -> impl Fn(&Parts) -> TokenTally + Send + Sync + 'static {
    tokens_and(|_, spent| spent)
}

/// The same, and what else follows from the tokens: a price, for example. The function is not
/// called where a response tells only one of the two counts.
///
/// ```
/// use tidegate_tower::usage;
///
/// // 3 dollars for a million tokens read, and 15 for a million written.
/// let tally = usage::tokens_and(|usage, spent| {
///     spent.amount("microdollars", 3 * usage.input_tokens + 15 * usage.output_tokens)
/// });
/// # let _ = tally;
/// ```
pub fn tokens_and(
    also: impl Fn(&Usage, Spent) -> Spent + Send + Sync + 'static,
) -> impl Fn(&Parts) -> TokenTally + Send + Sync + 'static {
    let also: AlsoFn = Arc::new(also);
    move |parts| TokenTally::new(parts, Arc::clone(&also))
}

type AlsoFn = Arc<dyn Fn(&Usage, Spent) -> Spent + Send + Sync>;

/// Reads the usage of one response: made by [`tokens`].
pub struct TokenTally {
    reader: Reader,
    found: Found,
    also: AlsoFn,
}

enum Reader {
    Json(Vec<u8>),
    Events(Lines),
    /// What cannot be read.
    Nothing,
}

/// What was found so far.
#[derive(Default)]
struct Found {
    input: Option<u64>,
    output: Option<u64>,
    model: Option<String>,
}

impl TokenTally {
    fn new(parts: &Parts, also: AlsoFn) -> TokenTally {
        let is_encoded = parts.headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity");
        let kind = parts.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let reader = match kind.as_str() {
            _ if is_encoded => Reader::Nothing,
            "text/event-stream" => Reader::Events(Lines::default()),
            kind if kind == "application/json" || kind.ends_with("+json") => Reader::Json(Vec::new()),
            _ => Reader::Nothing,
        };
        let failed = parts.status.is_client_error() || parts.status.is_server_error();
        let counted = failed.then_some(0);
        TokenTally { reader, found: Found { input: counted, output: counted, model: None }, also }
    }
}

impl Tally for TokenTally {
    fn data(&mut self, data: &[u8]) {
        match &mut self.reader {
            Reader::Json(kept) if kept.len() + data.len() <= MAX_KEPT => kept.extend_from_slice(data),
            Reader::Json(_) => self.reader = Reader::Nothing,
            Reader::Events(lines) => lines.add(data, |line| self.found.read_line(line)),
            Reader::Nothing => {}
        }
    }

    fn spent(&mut self, _: BodyEnd) -> Option<Spent> {
        match mem::replace(&mut self.reader, Reader::Nothing) {
            Reader::Json(kept) => self.found.read(&kept),
            Reader::Events(mut lines) => lines.add(b"\n", |line| self.found.read_line(line)),
            Reader::Nothing => {}
        }
        let Found { input, output, model } = mem::take(&mut self.found);
        match (input, output) {
            (Some(input_tokens), Some(output_tokens)) => {
                let spent = Spent::new().amount(INPUT_TOKENS, input_tokens).amount(OUTPUT_TOKENS, output_tokens);
                let spent = spent.amount(TOKENS, input_tokens.saturating_add(output_tokens));
                Some((self.also)(&Usage { input_tokens, output_tokens, model }, spent))
            }
            (Some(input), None) => Some(Spent::new().amount(INPUT_TOKENS, input)),
            (None, Some(output)) => Some(Spent::new().amount(OUTPUT_TOKENS, output)),
            (None, None) => None,
        }
    }
}

/// A JSON body, or the data of an event, as far as it matters.
#[derive(Deserialize)]
struct Document {
    usage: Option<Counts>,
    model: Option<String>,
    /// In the first event of Anthropic's.
    message: Option<Told>,
    /// In the last event of OpenAI's responses API.
    response: Option<Told>,
}

#[derive(Deserialize)]
struct Told {
    usage: Option<Counts>,
    model: Option<String>,
}

#[derive(Deserialize)]
struct Counts {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    total_tokens: Option<u64>,
}

impl Found {
    /// Reads a line of events; those without usage, nearly all, are not parsed.
    fn read_line(&mut self, line: &[u8]) {
        const USAGE: &[u8] = b"\"usage\"";
        if let Some(data) =
            line.strip_prefix(b"data:").filter(|data| data.windows(USAGE.len()).any(|part| part == USAGE))
        {
            self.read(data);
        }
    }

    fn read(&mut self, json: &[u8]) {
        let Ok(Document { usage, model, message, response }) = serde_json::from_slice(json) else { return };
        if let Some(Told { usage, model }) = message {
            // The output has only begun: what it counts is not what it will be.
            self.add(Told { usage: usage.map(|counts| Counts { output_tokens: None, ..counts }), model });
        }
        self.add(Told { usage, model });
        response.into_iter().for_each(|told| self.add(told));
    }

    /// Counts of a stream are those so far: the later ones are right.
    fn add(&mut self, told: Told) {
        self.model = told.model.or(self.model.take());
        let Some(counts) = told.usage else { return };
        let input = counts.input_tokens.or(counts.prompt_tokens);
        // Embeddings have no output, and tell only the total.
        let rest = || counts.total_tokens?.checked_sub(input?);
        let output = counts.output_tokens.or(counts.completion_tokens).or_else(rest);
        (self.input, self.output) = (input.or(self.input), output.or(self.output));
    }
}

/// Makes lines of data that is cut anywhere.
#[derive(Default)]
struct Lines {
    line: Vec<u8>,
    /// Whether the line that has begun is too long to be kept.
    is_skipped: bool,
}

impl Lines {
    fn add(&mut self, data: &[u8], mut read: impl FnMut(&[u8])) {
        for piece in data.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let ended = piece.strip_suffix(b"\n").or(piece.strip_suffix(b"\r"));
            let text = ended.unwrap_or(piece);
            if self.line.len() + text.len() > MAX_KEPT {
                (self.line, self.is_skipped) = (Vec::new(), true);
            }
            if !self.is_skipped {
                self.line.extend_from_slice(text);
            }
            if ended.is_some() {
                read(&self.line);
                self.line.clear();
                self.is_skipped = false;
            }
        }
    }
}
