//! The server's files, followed while it runs: its policy, or the limits of limitador, the descriptor files
//! of Envoy, the tokens, and what TLS is made of.
//!
//! What they come to say is applied whole or not at all; on an error, what was
//! in force stays in force. Every outcome is logged and counted.

use std::sync::Arc;

use tidegate_config::watch::{Outcome, Watch};
use tidegate_config::{Report, watch, watch_document, watch_envoy, watch_limitador};
use tracing::{error, info, warn};

use crate::access::audit::{Action, Audit, AuditOutcome, Entry, PolicyChange, SERVER};
use crate::access::guards::Guards;
use crate::ask::engine::Engine;
use crate::ask::policy::PolicyText;
use crate::run::tls::Tls;
use crate::settings::Settings;

/// The files that a server follows.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    policy: Option<Watch>,
    envoy: Option<Watch>,
    tokens: Option<Watch>,
    tls: Option<Watch>,
}

impl Watches {
    /// Follows all files that the settings name.
    /// What becomes of a policy that is read is told to `count`: whether it was applied.
    pub(crate) fn start(
        settings: &Settings,
        engine: &Arc<Engine>,
        guards: &Arc<Guards>,
        tls: Option<Tls>,
        count: impl Fn(bool) + Clone + Send + 'static,
    ) -> Result<Watches, Report> {
        let mut watches = Watches::default();
        if let Some(path) = settings.policy.as_ref().or(settings.limitador_limits.as_ref()) {
            let (changed, told, audited, of_errors) = (engine.clone(), engine.clone(), guards.clone(), guards.clone());
            let shown = path.clone();
            let apply = move |policy| {
                let change = changed.policy.replace(&changed.limiter, policy, PolicyText::of_file(&shown), SERVER)?;
                // The first reading finds what the server has started with.
                if let Some(change) = change {
                    change.rules.iter().for_each(|line| info!("the policy: {line}"));
                    record(&audited.audit, Action::ReloadPolicy, AuditOutcome::Done, Some(change.texts));
                }
                Ok(())
            };
            let watch = match settings.limitador_limits {
                None => watch(path, apply),
                Some(_) => watch_limitador(path, apply),
            };
            let mut tell = teller("the policy", count.clone());
            let report = move |outcome: &Outcome| {
                match outcome {
                    Outcome::Applied | Outcome::Unchanged => told.policy.set_errors(None),
                    Outcome::Refused(report) => {
                        told.policy.set_errors(Some(report.to_string()));
                        record(&of_errors.audit, Action::ReloadPolicy, AuditOutcome::Refused, None);
                    }
                    _ => {}
                }
                tell(outcome);
            };
            watches.policy = Some(watch.report_to(report).start()?);
        }
        let files = settings.descriptor_files();
        if !files.is_empty() {
            let changed = Arc::clone(engine);
            let watch = watch_envoy(files, move |config| {
                changed.envoy.set_config(config);
                Ok(())
            });
            watches.envoy = Some(watch.report_to(teller("the descriptor files", count)).start()?);
        }
        if let Some(path) = &settings.tokens {
            let (changed, told) = (Arc::clone(guards), Arc::clone(guards));
            let watch = watch_document(path, move |tokens| {
                changed.access.set_tokens(tokens);
                Ok(())
            });
            watches.tokens = Some(watch.report_to(token_teller(told)).start()?);
        }
        if let Some(tls) = tls {
            let watch = tls.follow().report_to(after_the_first(|outcome| log("the TLS files", outcome)));
            watches.tls = Some(watch.start()?);
        }
        Ok(watches)
    }

    /// Reads all files again soon, after a SIGHUP.
    pub(crate) fn reload(&self) {
        let watches = || [&self.policy, &self.envoy, &self.tokens, &self.tls].into_iter().flatten();
        if watches().next().is_none() {
            info!("there are no files to read again");
        }
        watches().for_each(Watch::reload);
    }
}

/// Logs what comes of reading the tokens.
fn token_teller(guards: Arc<Guards>) -> impl FnMut(&Outcome) {
    after_the_first(move |outcome| {
        log("the tokens", outcome);
        match outcome {
            Outcome::Applied => record(&guards.audit, Action::ReloadTokens, AuditOutcome::Done, None),
            Outcome::Refused(_) => record(&guards.audit, Action::ReloadTokens, AuditOutcome::Refused, None),
            _ => {}
        }
    })
}

/// Tells the audit log what a file has changed.
fn record(audit: &Audit, action: Action, outcome: AuditOutcome, policy: Option<PolicyChange>) {
    audit.record(Entry { peer: None, identity: SERVER, action, outcome, policy, reason: None });
}

/// Logs and counts what comes of reading files.
fn teller(what: &'static str, count: impl Fn(bool)) -> impl FnMut(&Outcome) {
    after_the_first(move |outcome| {
        log(what, outcome);
        match outcome {
            Outcome::Applied => count(true),
            Outcome::Refused(_) => count(false),
            _ => {}
        }
    })
}

/// Says nothing of the first outcome: that is how the server starts.
fn after_the_first(mut tell: impl FnMut(&Outcome)) -> impl FnMut(&Outcome) {
    let mut is_first = true;
    move |outcome| {
        if !std::mem::take(&mut is_first) {
            tell(outcome);
        }
    }
}

fn log(what: &str, outcome: &Outcome) {
    match outcome {
        Outcome::Applied => info!("{what}: applied"),
        Outcome::Unchanged => info!("{what}: unchanged"),
        Outcome::Refused(report) => error!("{what}: refused, and what was in force still is:\n{report}"),
        other => warn!("{what}: {other}"),
    }
}
