//! What people look at: the dashboard, `tidegate top`, and the admin API behind both.

mod admin;
mod dashboard;
pub(crate) mod history;
pub(crate) mod live;
pub(crate) mod recent_requests;
mod watchers;

use std::sync::Arc;

use axum::Router;
use axum::extract::FromRef;
use tokio::sync::Semaphore;

use self::history::History;
use self::recent_requests::RecentRequests;
use self::watchers::Watchers;
use crate::wire::app::App;

/// Simulations of the playground and policies that are read or tried at a time, over all visitors.
const MAX_PLAYERS: usize = 2;

/// Policies that are put at a time.
const MAX_PUTS: usize = 1;

/// A server, and what is shown of it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Screen {
    pub(crate) app: Arc<App>,
    pub(crate) shown: Arc<Shown>,
}

/// What is remembered to be shown.
pub(crate) struct Shown {
    pub(crate) history: Arc<History>,
    watchers: Watchers,
    /// The last requests, for trials of other policies.
    recent_requests: Option<Arc<RecentRequests>>,
    /// Room for simulations of the playground, and for policies that are read or tried.
    players: Arc<Semaphore>,
    /// Room for a policy that is put: simulations and trials, which take less of a right, do not hold it up.
    puts: Arc<Semaphore>,
}

impl Screen {
    pub(crate) fn new(app: Arc<App>, recent_requests: Option<Arc<RecentRequests>>) -> Screen {
        let shown = Shown {
            history: Arc::default(),
            watchers: Watchers::default(),
            recent_requests,
            players: Arc::new(Semaphore::new(MAX_PLAYERS)),
            puts: Arc::new(Semaphore::new(MAX_PUTS)),
        };
        Screen { app, shown: Arc::new(shown) }
    }

    /// The dashboard and the admin API, for a listener of HTTP.
    pub(crate) fn routes<S>(&self) -> Router<S> {
        let mut router = dashboard::router(&self.app.settings);
        if !self.app.settings.no_admin {
            router = router.merge(admin::router(self));
        }
        router.with_state(self.clone())
    }
}

impl FromRef<Screen> for Arc<App> {
    fn from_ref(screen: &Screen) -> Arc<App> {
        Arc::clone(&screen.app)
    }
}
