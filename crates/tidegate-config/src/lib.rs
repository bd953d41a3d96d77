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
//! assert_eq!(limiter.check(order)?.limit(), 10);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`load`] reads a file and what it includes. All fields are those of
//! [`PolicyFile`]; [`schema`] gives them to editors.
//!
//! # Order
//!
//! Rules stand in the order in which the file has their tables, and so do
//! overrides, of which the first pattern that matches applies. Rules of
//! included files follow those of the file that includes them.
//!
//! # Mistakes
//!
//! A file with a mistake is refused whole. A [`Report`] shows all of its
//! mistakes, up to [`Report::MOST`], each at its place:
//!
//! ```
//! use tidegate_config::{Format, parse};
//!
//! let report = parse("[rules.orders]\nlimt = \"100/min\"\n", Format::Toml, "policy.toml".as_ref()).unwrap_err();
//! assert_eq!(report.mistakes()[0].place().map(|place| (place.line, place.column)), Some((2, 1)));
//! assert!(report.to_string().contains("did you mean \"limit\"?"));
//! ```
//!
//! # Bounds
//!
//! No input makes it panic or run away. A file may have 16 MiB, all files of a
//! policy together 64 MiB; includes nest 8 deep, and there may be 1,000 of them.
//! A YAML file may have a million values, those that aliases stand for
//! included, and values nest 64 deep. Of a TOML file above 1 MiB, only the
//! first mistake of syntax is told.
//!
//! # Reload
//!
//! With the feature `watch`, a policy follows its file and what it includes
//! while the program runs. It is replaced whole, and only by one without a
//! mistake.
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
//! # Envoy
//!
//! [`envoy`] reads the descriptor files of Envoy's rate limit service as they are.

pub mod envoy;
mod file;
mod load;
mod reader;
mod report;
pub mod settings;
mod source;
mod suggest;
mod tree;
#[cfg(feature = "watch")]
pub mod watch;

pub use file::{Cost, KeyPart, Listed, Lists, Match, Named, OnFailure, PolicyFile, RuleFile, WhenMissing, Words};
pub use load::{Format, load, parse, schema};
pub use report::{Mistake, Problem, Report};
pub use source::Place;
#[cfg(feature = "watch")]
pub use watch::{watch, watch_envoy};
