//! Tokens and certificates with rights: those of a file, and those of flags.
//!
//! ```toml
//! [[token]]
//! name = "gateway"
//! sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
//! rights = ["check"]
//!
//! [[certificate]]
//! name = "uri:spiffe://corp/gateway"
//! rights = ["check", "metrics"]
//! ```
//!
//! The server knows only hashes. A token has 256 random bits, so a fast hash is
//! enough. All are compared, each in constant time.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::de::{self, DeserializeOwned, DeserializeSeed, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::Credential;
use crate::access::digest::Digest;
use crate::run::peer::Certificate;
use crate::run::protocol::Protocol;
use crate::settings::Settings;
use crate::settings::rights::{Right, Rights};

/// Entries of either kind in a file: a request is compared with every token.
const MAX_ENTRIES: usize = 1_000;

/// The user that clients of Redis give where they name none.
const DEFAULT_USER: &str = "default";

/// A tokens file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TokensFile {
    #[serde(deserialize_with = "distinct")]
    token: Vec<TokenEntry>,
    #[serde(deserialize_with = "distinct")]
    certificate: Vec<CertificateEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenEntry {
    name: EntryName,
    sha256: Digest,
    rights: Vec<Right>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CertificateEntry {
    name: CertificateName,
    rights: Vec<Right>,
}

/// A name that can stand in a log, and be a user of RESP.
#[derive(Debug)]
struct EntryName(Arc<str>);

impl<'de> Deserialize<'de> for EntryName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<EntryName, D::Error> {
        let name = String::deserialize(deserializer)?;
        check_name(&name).map(|name| EntryName(name.into())).map_err(de::Error::custom)
    }
}

/// A name of a token, if it is one.
pub(crate) fn check_name(name: &str) -> Result<String, &'static str> {
    const MAX_LENGTH: usize = 100;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/@".contains(&byte);
    match (1..=MAX_LENGTH).contains(&name.len()) && name.bytes().all(is_name) {
        true => Ok(name.to_owned()),
        false => Err("a name has 1 to 100 letters, digits, or any of - _ . : / @"),
    }
}

/// `uri:..`, `dns:..` or `cn:..`.
#[derive(Debug)]
struct CertificateName(Arc<str>);

impl<'de> Deserialize<'de> for CertificateName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CertificateName, D::Error> {
        let name = String::deserialize(deserializer)?;
        let is_known =
            ["uri:", "dns:", "cn:"].iter().any(|kind| name.strip_prefix(kind).is_some_and(|n| !n.is_empty()));
        if !is_known {
            return Err(de::Error::custom("the name of a certificate begins with uri:, dns: or cn:"));
        }
        Ok(CertificateName(name.into()))
    }
}

/// What has a name that no other of its list may have.
trait Named {
    fn name(&self) -> &Arc<str>;
}

impl Named for TokenEntry {
    fn name(&self) -> &Arc<str> {
        &self.name.0
    }
}

impl Named for CertificateEntry {
    fn name(&self) -> &Arc<str> {
        &self.name.0
    }
}

/// A list without two of one name. The error stands where the second is.
fn distinct<'de, D: Deserializer<'de>, T: Named + DeserializeOwned>(deserializer: D) -> Result<Vec<T>, D::Error> {
    deserializer.deserialize_seq(Distinct(PhantomData))
}

struct Distinct<T>(PhantomData<T>);

impl<'de, T: Named + DeserializeOwned> Visitor<'de> for Distinct<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let mut seen = Vec::new();
        while let Some(item) = items.next_element_seed(Next(&seen))? {
            seen.push(item);
        }
        Ok(seen)
    }
}

/// The next of a list, beside those before.
struct Next<'s, T>(&'s [T]);

impl<'de, T: Named + DeserializeOwned> DeserializeSeed<'de> for Next<'_, T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        if self.0.len() >= MAX_ENTRIES {
            return Err(de::Error::custom(format!("the list is too long: the most is {MAX_ENTRIES}")));
        }
        let item = T::deserialize(deserializer)?;
        if self.0.iter().any(|other| other.name() == item.name()) {
            return Err(de::Error::custom(format!("the name {:?} is there twice", item.name())));
        }
        Ok(item)
    }
}

/// A secret by its hash, and what its holder may do.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) name: Arc<str>,
    pub(super) rights: Rights,
    digest: Digest,
    /// The only protocol that it is for, if it is not for all.
    only: Option<Protocol>,
}

impl Token {
    /// Those that flags give: the admin token, and the password of RESP.
    pub(super) fn of_flags(settings: &Settings) -> Vec<Token> {
        let given = |secret: &Option<crate::settings::Secret>, name: &str, rights, only| {
            // An empty one is none: a variable that a template leaves out.
            let secret = secret.as_ref().map(crate::settings::Secret::expose).filter(|secret| !secret.is_empty())?;
            Some(Token { name: name.into(), rights, digest: Digest::of(secret.as_bytes()), only })
        };
        let admin = given(&settings.admin_token, "admin", Rights::ALL, None);
        let rights = [Right::Check, Right::Manage].into_iter().collect();
        let password = given(&settings.resp_password, DEFAULT_USER, rights, Some(Protocol::Resp));
        admin.into_iter().chain(password).collect()
    }

    pub(super) fn is_for(&self, protocol: Protocol) -> bool {
        self.only.is_none_or(|only| only == protocol)
    }
}

/// All that are in force.
#[derive(Debug)]
pub(super) struct Tokens {
    tokens: Vec<Token>,
    certificates: Vec<(Arc<str>, Rights)>,
}

impl Tokens {
    pub(super) fn new(given: &[Token], file: TokensFile) -> Tokens {
        let of_file = file.token.into_iter().map(|TokenEntry { name, sha256, rights }| Token {
            name: name.0,
            rights: rights.into_iter().collect(),
            digest: sha256,
            only: None,
        });
        let certificates = file.certificate.into_iter();
        Tokens {
            tokens: given.iter().cloned().chain(of_file).collect(),
            certificates: certificates.map(|entry| (entry.name.0, entry.rights.into_iter().collect())).collect(),
        }
    }

    /// The token that a credential is, if it is one.
    pub(super) fn find(&self, credential: Credential<'_>, protocol: Protocol) -> Option<&Token> {
        let (user, digest) = match credential {
            Credential::Secret { user, secret } => (user, Digest::of(secret)),
            Credential::Proven(digest) => (None, *digest),
            Credential::Unreadable => return None,
        };
        let is_of_user =
            |token: &Token| user.is_none_or(|user| user == DEFAULT_USER.as_bytes() || user == token.name.as_bytes());
        // Every one is looked at, the right one or not.
        self.tokens.iter().fold(None, |found, token| {
            let is_right = token.digest.is(&digest) & token.is_for(protocol) & is_of_user(token);
            if is_right { Some(token) } else { found }
        })
    }

    /// What the holder of a certificate is called and may do: to check, unless the file says otherwise.
    pub(super) fn of_certificate(&self, certificate: &Certificate) -> (Arc<str>, Rights) {
        let is_named = |(name, _): &&(Arc<str>, Rights)| certificate.names().iter().any(|own| **own == **name);
        self.certificates.iter().find(is_named).cloned().unwrap_or_else(|| {
            let name = certificate.names().first().map_or("a certificate without a name", String::as_str);
            (name.into(), [Right::Check].into_iter().collect())
        })
    }
}

/// The token in a field `Authorization: Bearer TOKEN`, whose scheme is in any letters.
pub(crate) fn bearer(field: &[u8]) -> Credential<'_> {
    const SCHEME: &[u8] = b"Bearer ";
    match field.split_at_checked(SCHEME.len()) {
        Some((scheme, secret)) if scheme.eq_ignore_ascii_case(SCHEME) => Credential::Secret { user: None, secret },
        _ => Credential::Unreadable,
    }
}
