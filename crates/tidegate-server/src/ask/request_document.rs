//! A request as the HTTP API takes it: what the command line sends, and what a refusal keeps to be explained.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate::Request;

/// A request as the HTTP API takes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RequestDocument {
    /// The only rule to decide it; none if the limit came with the request, or a list denies it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) attributes: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<String>,
    pub(crate) cost: u64,
}

impl RequestDocument {
    /// The same as the library's request. Its key, if left out, is the attribute `user`, as over HTTP.
    pub(crate) fn request(&self) -> Request<'_> {
        let request = match self.key.as_ref().or_else(|| self.attributes.get("user")) {
            Some(key) => Request::new(key),
            None => Request::without_key(),
        };
        self.attributes.iter().fold(request, |request, (name, value)| request.with(name, value)).cost(self.cost)
    }
}
