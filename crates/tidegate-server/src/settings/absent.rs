//! Settings and commands that this binary was built without.
//!
//! They are known to every build: a flag that is not there would be an unknown word, and a variable of the environment
//! would be passed over in silence.

use crate::settings::Settings;

/// A setting or a command needs a feature that this binary lacks.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error(
    "{needs} needs the feature {feature}, which this binary was built without: cargo build --release --features full"
)]
pub struct Absent {
    needs: &'static str,
    feature: &'static str,
}

impl Absent {
    /// What needs a feature that is not there.
    #[allow(dead_code, reason = "a build with all features lacks nothing")]
    pub(crate) fn new(needs: &'static str, feature: &'static str) -> Absent {
        Absent { needs, feature }
    }

    /// The first setting that this binary cannot do.
    pub(crate) fn check(settings: &Settings) -> Result<(), Absent> {
        let needed = [
            (settings.tls_client_ca.is_some(), cfg!(feature = "certificates"), "--tls-client-ca", "certificates"),
            (settings.otlp.is_some(), cfg!(feature = "otlp"), "--otlp", "otlp"),
            (settings.otlp_traces, cfg!(feature = "otlp"), "--otlp-traces", "otlp"),
        ];
        match needed.into_iter().find(|(is_set, is_there, ..)| *is_set && !is_there) {
            Some((.., needs, feature)) => Err(Absent { needs, feature }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_without_its_feature_is_an_error_that_says_what_to_build() {
        let set = Settings { tls_client_ca: Some("ca.pem".into()), ..Settings::default() };
        let absent = Absent::check(&set).err().map(|absent| absent.to_string());
        let expected = "--tls-client-ca needs the feature certificates, which this binary was built without: cargo \
                        build --release --features full";
        assert_eq!(absent.as_deref(), (!cfg!(feature = "certificates")).then_some(expected));
        assert!(Absent::check(&Settings::default()).is_ok());
    }
}
