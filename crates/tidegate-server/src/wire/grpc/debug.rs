//! What the reference service has on its port for debugging: `/rlconfig`, the limits in force, and `/stats`, which
//! is `/metrics` here.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::get;

use crate::run::connections::Admitted;
use crate::run::listen::Listener;
use crate::run::protocol::Protocol;
use crate::settings::rights::Right;
use crate::wire::app::App;
use crate::wire::http::{guarded, metrics, serve_connection, serve_reserved};

const INDEX: &str = "/rlconfig: print out the currently loaded configuration for debugging\n/stats: print out stats\n";

/// Serves the routes on a listener until the server closes.
pub(crate) async fn serve(listener: Listener, app: Arc<App>) {
    let routes =
        Router::new().route("/", get(|| async { INDEX })).route("/rlconfig", get(limits)).route("/stats", get(metrics));
    let router = guarded(routes, &app, Right::Metrics).with_state(Arc::clone(&app));
    let connections = Arc::clone(&app.guards.connections);
    let serve = move |stream, admitted| {
        let (app, router) = (Arc::clone(&app), router.clone());
        async move {
            match admitted {
                Admitted::Pool => serve_connection(stream, app, router).await,
                Admitted::Reserve => serve_reserved(stream, app, router).await,
            }
        }
    };
    listener.serve_each(connections, Protocol::Http, serve).await;
}

async fn limits(State(app): State<Arc<App>>) -> String {
    app.engine.envoy.config().limits().iter().map(|limit| format!("{limit}\n")).collect()
}
