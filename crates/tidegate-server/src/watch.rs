//! The server's files, followed while it runs: its policy, the descriptor files
//! of Envoy, and the tokens.
//!
//! What they come to say is applied whole or not at all; on a mistake, what was
//! in force stays in force. Every outcome is logged and counted.

use std::sync::Arc;

use tidegate_config::watch::{Outcome, Watch};
use tidegate_config::{watch, watch_document, watch_envoy};
use tracing::{error, info, warn};

use crate::app::App;
use crate::audit::{Action, Entry, Outcome as Audited, PolicyChange, SERVER};
use crate::grpc;
use crate::policy::PolicyText;
use crate::serve::StartError;

/// The files that a server follows.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    policy: Option<Watch>,
    envoy: Option<Watch>,
    tokens: Option<Watch>,
}

impl Watches {
    /// Follows all files that the settings name.
    pub(crate) fn start(app: &Arc<App>) -> Result<Watches, StartError> {
        let mut watches = Watches::default();
        if let Some(path) = app.settings.policy.clone() {
            let (changed, told) = (Arc::clone(app), Arc::clone(app));
            let shown = path.clone();
            let watch = watch(&path, move |policy| {
                let change = changed.policy.replace(&changed.limiter, policy, PolicyText::of_file(&shown))?;
                // The first reading finds what the server has started with.
                if change.is_some() {
                    record(&changed, Action::ReloadPolicy, Audited::Done, change);
                }
                Ok(())
            });
            let mut tell = teller(Arc::clone(&told), "the policy");
            let report = move |outcome: &Outcome| {
                match outcome {
                    Outcome::Applied | Outcome::Unchanged => told.policy.set_mistakes(None),
                    Outcome::Refused(report) => {
                        told.policy.set_mistakes(Some(report.to_string()));
                        record(&told, Action::ReloadPolicy, Audited::Refused, None);
                    }
                    _ => {}
                }
                tell(outcome);
            };
            watches.policy = Some(watch.report_to(report).start()?);
        }
        let files = grpc::files(&app.settings);
        if !files.is_empty() {
            let (changed, told) = (Arc::clone(app), Arc::clone(app));
            let watch = watch_envoy(files, move |config| changed.envoy.set_config(config));
            watches.envoy = Some(watch.report_to(teller(told, "the descriptor files")).start()?);
        }
        if let Some(path) = &app.settings.tokens {
            let (changed, told) = (Arc::clone(app), Arc::clone(app));
            let watch = watch_document(path, move |tokens| {
                changed.access.set_tokens(tokens);
                Ok(())
            });
            watches.tokens = Some(watch.report_to(token_teller(told)).start()?);
        }
        Ok(watches)
    }

    /// Reads all files again soon, for those who say so by a signal.
    pub(crate) fn reload(&self) {
        let mut watches = self.policy.iter().chain(&self.envoy).chain(&self.tokens).peekable();
        if watches.peek().is_none() {
            info!("there are no files to read again");
        }
        watches.for_each(Watch::reload);
    }
}

/// Logs what comes of reading the tokens, after the first time.
fn token_teller(app: Arc<App>) -> impl FnMut(&Outcome) {
    let mut is_first = true;
    move |outcome| {
        if std::mem::take(&mut is_first) {
            return;
        }
        match outcome {
            Outcome::Applied => {
                info!("the tokens: applied");
                record(&app, Action::ReloadTokens, Audited::Done, None);
            }
            Outcome::Unchanged => info!("the tokens: unchanged"),
            Outcome::Refused(report) => {
                error!("the tokens: refused, and those that were in force still are:\n{report}");
                record(&app, Action::ReloadTokens, Audited::Refused, None);
            }
            other => warn!("the tokens: {other}"),
        }
    }
}

/// Tells the audit log what a file has changed.
fn record(app: &App, action: Action, outcome: Audited, policy: Option<PolicyChange>) {
    app.audit.record(Entry { peer: None, identity: SERVER, action, outcome, policy });
}

/// Logs and counts what comes of reading files, after the first time: that is
/// how the server starts.
fn teller(app: Arc<App>, what: &'static str) -> impl FnMut(&Outcome) {
    let mut is_first = true;
    move |outcome| {
        if std::mem::take(&mut is_first) {
            return;
        }
        match outcome {
            Outcome::Applied => {
                info!("{what}: applied");
                app.metrics.policy_given(true);
            }
            Outcome::Unchanged => info!("{what}: unchanged"),
            Outcome::Refused(report) => {
                error!("{what}: refused, and what was in force still is:\n{report}");
                app.metrics.policy_given(false);
            }
            other => warn!("{what}: {other}"),
        }
    }
}
