//! The server's files, followed while it runs: its policy, and the descriptor
//! files of Envoy.
//!
//! What they come to say is applied whole or not at all; on a mistake, what was
//! in force stays in force. Every outcome is logged and counted.

use std::sync::Arc;

use tidegate_config::watch::{Outcome, Watch};
use tidegate_config::{watch, watch_envoy};
use tracing::{error, info, warn};

use crate::app::App;
use crate::grpc;
use crate::policy::PolicyText;
use crate::serve::StartError;

/// The files that a server follows.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    policy: Option<Watch>,
    envoy: Option<Watch>,
}

impl Watches {
    /// Follows all files that the settings name.
    pub(crate) fn start(app: &Arc<App>) -> Result<Watches, StartError> {
        let mut watches = Watches::default();
        if let Some(path) = app.settings.policy.clone() {
            let (changed, told) = (Arc::clone(app), Arc::clone(app));
            let shown = path.clone();
            let watch = watch(&path, move |policy| {
                changed.policy.replace(&changed.limiter, policy, PolicyText::of_file(&shown))
            });
            let mut tell = teller(Arc::clone(&told), "the policy");
            let report = move |outcome: &Outcome| {
                match outcome {
                    Outcome::Applied | Outcome::Unchanged => told.policy.set_mistakes(None),
                    Outcome::Refused(report) => told.policy.set_mistakes(Some(report.to_string())),
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
        Ok(watches)
    }

    /// Reads all files again soon, for those who say so by a signal.
    pub(crate) fn reload(&self) {
        if self.policy.is_none() && self.envoy.is_none() {
            info!("there are no files to read again");
        }
        self.policy.iter().chain(&self.envoy).for_each(Watch::reload);
    }
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
