//! Whether a layer supplies what the policy of its limiter needs.
//!
//! Each request would be an error to a rule whose key attribute the layer never
//! supplies. The layer knows before the first request what it supplies.

use tidegate::{Name, Policy};

use crate::client_ip::TELL_PEER;
use crate::gate::Gate;
use crate::settings::{Settings, http_attributes};

/// Why a layer does not fit the policy of its limiter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayerError {
    /// A rule counts by an attribute that the layer does not supply.
    #[error(
        "rule {rule:?}: the layer does not supply key attribute {} (it supplies {}): call {}, or have the rule say what \
         to do without it (missing = \"skip\" or \"shared\", or another attribute to use instead)",
        quoted(.attributes, " or "), quoted(.supplied, ", "), remedy(.attributes)
    )]
    MissingAttribute {
        /// The rule.
        rule: Name,
        /// The attribute, or all of which one would do.
        attributes: Vec<String>,
        /// The attributes that the layer supplies.
        supplied: Vec<String>,
    },
    /// The layer asks a rule that the policy does not have.
    #[error("the policy has no rule {rule:?}: name one that it has in .rule(..), or add it to the policy")]
    UnknownRule {
        /// The name.
        rule: String,
    },
}

fn quoted(names: &[String], between: &str) -> String {
    if names.is_empty() {
        return "none".into();
    }
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(between)
}

/// What supplies one of these attributes.
fn remedy(attributes: &[String]) -> String {
    let call = |name: &String| match name.as_str() {
        "ip" => format!(".http_attributes() ({TELL_PEER})"),
        name if http_attributes().iter().any(|(known, _)| *known == name) => ".http_attributes()".into(),
        name => {
            format!(".attribute({name:?}, by::header(\"x-{name}\")) (by::extension(..) if callers must not choose it)")
        }
    };
    attributes.iter().map(call).collect::<Vec<_>>().join(" or ")
}

impl Gate {
    /// Whether requests have what the policy needs. The answer stays: a policy
    /// that comes later never stops a layer that is in use.
    pub(crate) fn check_fit(&self) -> Result<(), LayerError> {
        if self.fits.get().is_none() {
            self.settings.check_fit_to(&self.policy())?;
            // Where another thread was first, it came to the same answer.
            let _ = self.fits.set(());
        }
        Ok(())
    }
}

impl Settings {
    fn check_fit_to(&self, policy: &Policy) -> Result<(), LayerError> {
        let is_asked = |name: &Name| self.rule.as_deref().is_none_or(|rule| rule == name.as_str());
        if let Some(rule) = self.rule.as_deref().filter(|_| !policy.rules().any(|rule| is_asked(rule.name()))) {
            return Err(LayerError::UnknownRule { rule: rule.into() });
        }
        let is_supplied = |name: &String| self.attributes.iter().any(|(known, _)| **known == **name);
        for rule in policy.rules().filter(|rule| is_asked(rule.name())) {
            let mut required = rule.required_attributes().iter();
            if let Some(lacking) = required.find(|attribute| !attribute.names().iter().any(is_supplied)) {
                return Err(LayerError::MissingAttribute {
                    rule: rule.name().clone(),
                    attributes: lacking.names().to_vec(),
                    supplied: self.attributes.iter().map(|(name, _)| String::from(&**name)).collect(),
                });
            }
        }
        Ok(())
    }
}
