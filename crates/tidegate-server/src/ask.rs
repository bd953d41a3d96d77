//! What a request may ask, and what decides it: the store, the policy in force, limits that come with requests.

pub(crate) mod attributes;
pub(crate) mod budget;
pub(crate) mod call;
pub(crate) mod engine;
pub(crate) mod inline;
pub(crate) mod inline_store;
pub(crate) mod opening;
pub(crate) mod outcome;
pub(crate) mod policy;
pub(crate) mod request;
pub(crate) mod request_document;
pub(crate) mod snapshot;
pub(crate) mod store;
pub(crate) mod watch;
