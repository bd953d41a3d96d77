//! Settings that no log may show.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// A secret: printed for debugging, it is `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The secret itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl FromStr for Secret {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Secret, Infallible> {
        Ok(text.into())
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Secret {
        Secret(text.into())
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Secret {
        Secret(text)
    }
}

/// A URL without the user and the password in it.
pub(super) fn without_password(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let separator = if scheme.is_empty() { "" } else { "://" };
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}{separator}***@{host}"),
        None => url.to_owned(),
    }
}
