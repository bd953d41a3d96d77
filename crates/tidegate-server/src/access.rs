//! Who may do what: one decision for every wire.
//!
//! A wire gathers the facts of a request in a [`Caller`]: the credential, the
//! connection, and over HTTP what a browser would say. [`Access::decide`] is a
//! function of these facts and of the tokens in force. How a denial reads on
//! the wire is the wire's own.

pub(crate) mod audit;
mod denied;
pub(crate) mod digest;
mod failures;
pub(crate) mod guards;
mod page;
mod tokens;

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

pub(crate) use self::denied::Denied;
use self::digest::Digest;
use self::failures::Failures;
use self::page::Hosts;
pub(crate) use self::page::{Page, is_grpc, without_port};
use self::tokens::{Token, Tokens};
pub(crate) use self::tokens::{TokensFile, bearer, check_name};
use crate::run::peer::Link;
use crate::run::protocol::Protocol;
use crate::settings::Settings;
use crate::settings::rights::{Right, Rights};

/// A caller that is known, by its token or certificate, or an anonymous one.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    name: Option<Arc<str>>,
    rights: Rights,
}

impl Identity {
    pub(crate) fn anonymous(rights: Rights) -> Identity {
        Identity { name: None, rights }
    }

    /// As the audit log names it.
    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("anonymous")
    }

    pub(crate) fn is_anonymous(&self) -> bool {
        self.name.is_none()
    }

    pub(crate) fn rights(&self) -> Rights {
        self.rights
    }

    /// # Errors
    /// If it lacks the right.
    pub(crate) fn may(&self, right: Right) -> Result<(), Denied> {
        match &self.name {
            _ if self.rights.contains(right) => Ok(()),
            None => Err(Denied::Unauthenticated { right }),
            Some(name) => Err(Denied::Forbidden { name: Arc::clone(name), right }),
        }
    }
}

/// What a caller says to prove who it is.
#[derive(Clone, Copy)]
pub(crate) enum Credential<'a> {
    /// A token or a password, for a user if one was named.
    Secret { user: Option<&'a [u8]>, secret: &'a [u8] },
    /// A secret that was right before, on the same connection.
    Proven(&'a Digest),
    /// Something that can be no token, such as another scheme of HTTP.
    Unreadable,
}

/// The facts of a request.
#[derive(Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub(crate) protocol: Protocol,
    pub(crate) link: &'a Link,
    pub(crate) credential: Option<Credential<'a>>,
    /// What a browser would say, where a browser could have sent the request.
    pub(crate) page: Option<Page<'a>>,
}

/// The caller of a stream, which outlives the tokens that it began with.
pub(crate) struct StreamCaller {
    protocol: Protocol,
    link: Link,
    /// The token that it was opened with.
    proof: Option<Digest>,
    /// Of the tokens by which it had the right.
    generation: Option<u64>,
}

impl StreamCaller {
    /// The caller that a connection and the field `authorization` tell.
    pub(crate) fn new(protocol: Protocol, link: Link, authorization: Option<&[u8]>) -> StreamCaller {
        let proof = match authorization.map(bearer) {
            Some(Credential::Secret { secret, .. }) => Some(Digest::of(secret)),
            Some(Credential::Proven(_) | Credential::Unreadable) | None => None,
        };
        StreamCaller { protocol, link, proof, generation: None }
    }

    /// The address that it counts against.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.link.peer.address()
    }

    /// Whether it has the right by the tokens in force.
    ///
    /// # Errors
    /// As for a new call.
    pub(crate) fn may(&mut self, right: Right, access: &Access) -> Result<(), Denied> {
        let generation = Some(access.generation());
        if self.generation != generation {
            let credential = self.proof.as_ref().map(Credential::Proven);
            access.decide(&Caller { protocol: self.protocol, link: &self.link, credential, page: None }, right)?;
            self.generation = generation;
        }
        Ok(())
    }
}

/// What the server knows of its callers.
pub(crate) struct Access {
    /// The tokens of flags, which stay.
    given: Vec<Token>,
    tokens: RwLock<Arc<Tokens>>,
    /// How many sets of tokens have been in force.
    generation: AtomicU64,
    has_file: bool,
    anonymous: Rights,
    anonymous_resp: Rights,
    hosts: Hosts,
    failures: Failures,
}

impl Access {
    pub(crate) fn new(settings: &Settings, file: TokensFile) -> Access {
        let given = Token::of_flags(settings);
        let anonymous = |protocol| match settings.anonymous.as_slice() {
            [] if has_credentials(settings, protocol) => Rights::default(),
            [] => Rights::ALL,
            rights => rights.iter().copied().collect(),
        };
        Access {
            tokens: RwLock::new(Arc::new(Tokens::new(&given, file))),
            given,
            generation: AtomicU64::new(0),
            has_file: settings.tokens.is_some(),
            anonymous: anonymous(Protocol::Http),
            anonymous_resp: anonymous(Protocol::Resp),
            hosts: Hosts::of(settings),
            failures: Failures::default(),
        }
    }

    /// Puts the tokens of a file in the place of those before.
    pub(crate) fn set_tokens(&self, file: TokensFile) {
        let tokens = Arc::new(Tokens::new(&self.given, file));
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = tokens;
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Changes with the tokens: what was decided before may be decided otherwise now.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Whether there are tokens, or a password, for the protocol. Without, a credential means nothing.
    pub(crate) fn takes_tokens(&self, protocol: Protocol) -> bool {
        self.has_file || self.given.iter().any(|token| token.is_for(protocol))
    }

    /// Whether anonymous callers over HTTP may check.
    pub(crate) fn is_open(&self) -> bool {
        self.anonymous.contains(Right::Check)
    }

    /// Who the caller is.
    ///
    /// # Errors
    /// If its credential is wrong.
    pub(crate) fn identify(&self, caller: &Caller<'_>) -> Result<Identity, Denied> {
        let anonymous = match caller.protocol {
            Protocol::Http | Protocol::Grpc => self.anonymous,
            Protocol::Resp => self.anonymous_resp,
        };
        let tokens = Arc::clone(&self.tokens.read().unwrap_or_else(PoisonError::into_inner));
        let (name, rights) = match (caller.credential, &caller.link.certificate) {
            (Some(credential), _) if self.takes_tokens(caller.protocol) => {
                let token = tokens.find(credential, caller.protocol).ok_or(Denied::WrongCredential)?;
                (Arc::clone(&token.name), token.rights)
            }
            (_, Some(certificate)) => tokens.of_certificate(certificate),
            (_, None) => return Ok(Identity::anonymous(anonymous)),
        };
        Ok(Identity { name: Some(name), rights: rights.with(anonymous) })
    }

    /// Whether the caller may do it, and who it is. Nothing is counted.
    ///
    /// # Errors
    /// Why it may not.
    pub(crate) fn decide(&self, caller: &Caller<'_>, right: Right) -> Result<Identity, Denied> {
        let identity = self.identify(caller)?;
        identity.may(right)?;
        if let Some(page) = &caller.page {
            let is_by_token = caller.credential.is_some() && self.takes_tokens(caller.protocol);
            // A browser adds a certificate to whatever a page sends, as it adds its address; a token it does not.
            if !is_by_token {
                page.is_of_no_other_site()?;
            }
            if identity.is_anonymous() {
                page.is_meant_for(&self.hosts)?;
            }
        }
        Ok(identity)
    }

    /// Holds a wrong credential against the address that it came from.
    pub(crate) fn hold_against(&self, denied: Denied, link: &Link) -> Denied {
        match denied {
            Denied::WrongCredential => self.failures.hold_against(link.peer),
            other => other,
        }
    }
}

/// Whether callers of a protocol can prove who they are.
pub(crate) fn has_credentials(settings: &Settings, protocol: Protocol) -> bool {
    let is_known = settings.tokens.is_some() || settings.tls_client_ca.is_some();
    is_known || Token::of_flags(settings).iter().any(|token| token.is_for(protocol))
}

#[cfg(test)]
mod tests;
