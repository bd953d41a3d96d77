//! What happens now: a picture of the server, or one a second.
//!
//! The stream is lines of JSON, not server-sent events: an `EventSource` cannot
//! send the token in a header, and an address is no place for one.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use futures_util::stream::unfold;
use http::{Extensions, Response};

use super::guard::identity_of;
use super::problem::Problem;
use super::reply::{JSON, uncached};
use crate::app::App;
use crate::audit::{Action, Entry, Outcome};
use crate::live;
use crate::peer::Peer;

/// One picture.
pub(super) async fn picture(State(app): State<Arc<App>>) -> Response<Body> {
    uncached(JSON, Body::from(live::picture(&app).await))
}

/// A picture each second, until the server closes.
pub(super) async fn stream(State(app): State<Arc<App>>, extensions: Extensions) -> Result<Response<Body>, Problem> {
    let watcher = live::watch(&app, Peer::of(&extensions).address());
    let watcher = watcher.map_err(|bound| Problem::TooManyWatchers { bound })?;
    let identity = identity_of(&extensions);
    // A client without a credential does not sign in.
    if !identity.is_anonymous() {
        let (peer, identity) = (Some(Peer::of(&extensions)), identity.name());
        let (action, outcome) = (Action::SignIn, Outcome::Done);
        app.audit.record(Entry { peer, identity, action, outcome, policy: None, reason: None });
    }
    let pictures = unfold(watcher, |mut watcher| async {
        let picture = watcher.next().await?;
        Some((Ok::<_, std::convert::Infallible>(picture), watcher))
    });
    Ok(uncached("application/x-ndjson", Body::from_stream(pictures)))
}
