//! Policies as files: TOML or YAML, the same shape in both.
//!
//! ```
//! use tidegate::{Limiter, Request};
//! use tidegate_config::{Format, parse};
//!
//! let policy = parse(
//!     r#"
//!     [rules.orders]
//!     limit = "100/min burst 20"
//!     match = { method = "POST", path = { prefix = "/api/" } }
//!     key = ["user"]
//!     tiers.plan = { pro = "1000/min", free = "10/min" }
//!     overrides.tenant = { acme = "500/min", "test-*" = "unlimited" }
//!     "#,
//!     Format::Toml,
//!     "policy.toml".as_ref(),
//! )?;
//! let limiter = Limiter::new(policy);
//! let order = Request::user("alice").with("method", "POST").with("path", "/api/orders").with("plan", "free");
//! assert_eq!(limiter.check(order)?.capacity(), Some(10));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`load`] reads a file and what it includes. All fields are those of
//! [`PolicyFile`]; [`schema`] gives them to editors.
//!
//! # Keys
//!
//! `key` names the attributes that requests are counted by. A request that lacks
//! one is an error, unless the rule has `missing = "skip"` (it does not apply) or
//! `missing = "shared"` (all such requests share a limit). `first` names several,
//! of which the first that the request has counts:
//!
//! ```
//! use tidegate::{Limiter, Request};
//! use tidegate_config::{Format, parse};
//!
//! let policy = "[rules.callers]\nlimit = '1/h'\nkey = [{ first = ['user', 'ip'], ipv6 = 56 }]\n";
//! let limiter = Limiter::new(parse(policy, Format::Toml, "policy.toml".as_ref())?);
//! assert!(limiter.allow(Request::user("alice").with("ip", "2001:db8::1")));
//! assert!(limiter.allow(Request::new(()).with("ip", "2001:db8::1")));
//! assert!(!limiter.allow(Request::new(()).with("ip", "2001:db8:0:ff::1")), "the same network");
//! assert!(limiter.check(Request::new(())).is_err(), "neither is there");
//! # Ok::<(), tidegate_config::Report>(())
//! ```
//!
//! The attribute `ip`, and one that a key takes by `ipv4` or `ipv6` bits, is an
//! address: all its spellings are one, and what is not an address is an error, in a
//! request and in a file.
//!
//! # Tiers and overrides
//!
//! Each is a limit that counts apart from the rule's own: a caller who has used up
//! one and comes to meet the other has all of it. Their attributes, those of keys
//! and those of `lists.allow` must come from an authenticated source, never from
//! what callers can set.
//!
//! # Order
//!
//! Rules stand in the order in which the file has their tables, and so do
//! overrides, of which the first pattern that matches applies. Rules of
//! included files follow those of the file that includes them.
//!
//! # Errors
//!
//! A file with an error is refused whole. A [`Report`] shows all of its
//! errors, up to [`Report::MAX`], each at its place:
//!
//! ```
//! use tidegate_config::{Format, parse};
//!
//! let report = parse("[rules.orders]\nlimt = \"100/min\"\n", Format::Toml, "policy.toml".as_ref()).unwrap_err();
//! assert_eq!(report.diagnostics()[0].place().map(|place| (place.line, place.column)), Some((2, 1)));
//! assert!(report.to_string().contains("did you mean \"limit\"?"));
//! ```
//!
//! [`load_with_warnings`] also tells what is valid and probably not meant, such as
//! a key attribute `usr`, or `key = []`, which is one limit for all requests.
//!
//! # Bounds
//!
//! No input makes it panic, hang or run away. Only regular files and links to
//! them are read. A file may have 16 MiB, all files of a
//! policy together 64 MiB; includes nest 8 deep, and there may be 1,000 of them.
//! A YAML file may have a million values and 64 MiB of text in them, those that
//! aliases stand for included, and values nest 64 deep. Of a TOML file above 1 MiB,
//! only the first error of syntax is told.
//!
//! # Reload
//!
//! With the feature `watch`, a policy follows its file and what it includes
//! while the program runs. It is replaced whole, and only by one without a
//! error.
#![cfg_attr(
    feature = "watch",
    doc = "
```
# let path = std::env::temp_dir().join(format!(\"tidegate-config-{}.toml\", std::process::id()));
# std::fs::write(&path, \"[rules.orders]\\nlimit = '100/min'\\n\")?;
let limiter = tidegate::Limiter::new(tidegate_config::load(&path)?);
let changed = limiter.clone();
let watch = tidegate_config::watch(&path, move |policy| changed.set_policy(policy))
    .report_to(|outcome| eprintln!(\"{outcome}\"))
    .start()?;
# drop(watch);
# std::fs::remove_file(&path)?;
# Ok::<(), Box<dyn std::error::Error>>(())
```

What is noticed and when it is applied stands at [`mod@watch`]."
)]
//!
//! # Files of other services
//!
//! With the feature `envoy`, the module `envoy` reads the descriptor files of Envoy's rate limit service as they are. With
//! the feature `limitador`, the module `limitador` makes policies of the limits files of limitador.

pub mod document;
#[cfg(feature = "envoy")]
pub mod envoy;
mod file;
#[cfg(feature = "limitador")]
pub mod limitador;
mod load;
mod reader;
mod regular;
mod report;
pub mod settings;
mod source;
mod suggest;
mod tree;
#[cfg(feature = "watch")]
pub mod watch;

pub use file::{
    Cost, Estimate, KeyPart, Listed, Lists, Match, Named, OnFailure, PolicyFile, RuleFile, WhenMissing, Words,
};
pub use load::{
    Format, Loaded, MAX_UNIT_LENGTH, Validation, load, load_with_warnings, parse, parse_with_warnings, schema,
};
pub use regular::{FileError, MAX_FILE, open_file, read_file};
pub use report::{Diagnostic, Problem, Report};
pub use source::Place;
#[cfg(all(feature = "watch", feature = "envoy"))]
pub use watch::watch_envoy;
#[cfg(all(feature = "watch", feature = "limitador"))]
pub use watch::watch_limitador;
#[cfg(feature = "watch")]
pub use watch::{watch, watch_document, watch_files};

/// The code in the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
