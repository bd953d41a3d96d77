//! A request to try: one that the policy in force can decide.

use std::collections::BTreeMap;

use serde_json::json;
use tidegate::CheckError;

use super::request::read_one;
use crate::ask::call::Call;
use crate::wire::app::App;

/// For an attribute that is an address: of the networks for documentation.
const ADDRESS: &str = "192.0.2.1";

/// The body of a request with every key attribute of the policy.
pub(crate) async fn example(app: &App) -> String {
    let policy = app.engine.limiter.policy();
    let value = |name: &str| if name == "user" { "alice" } else { "example" };
    // A rule without key attributes goes by the request's key, which is the user.
    let names = policy.rules().flat_map(|rule| match rule.key_attributes() {
        None => vec!["user"],
        Some(key) => key.iter().filter_map(|attribute| attribute.names().first()).map(String::as_str).collect(),
    });
    let mut attributes: BTreeMap<&str, &str> = names.map(|name| (name, value(name))).collect();
    if attributes.is_empty() {
        attributes.insert("user", value("user"));
    }
    // The policy says itself which of them it takes for addresses.
    for _ in 0..attributes.len() {
        let body = json!({ "attributes": attributes }).to_string();
        let Ok(check) = read_one(Call::Check, body.as_bytes()) else { break };
        let Err(CheckError::NotAnAddress { attribute, .. }) = app.engine.limiter.peek_async(&check).await else {
            break;
        };
        match attributes.get_mut(&*attribute) {
            Some(value) => *value = ADDRESS,
            None => break,
        }
    }
    json!({ "attributes": attributes }).to_string()
}
