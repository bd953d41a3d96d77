//! What happens now: a picture of the server, or one a second.
//!
//! The stream is lines of JSON, not server-sent events: an `EventSource` cannot
//! send the token in a header, and an address is no place for one.

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::State;
use futures_util::stream::unfold;
use http::header::AUTHORIZATION;
use http::{Request, Response};

use crate::access::StreamCaller;
use crate::access::audit::{Action, AuditOutcome, Entry};
use crate::run::peer::Link;
use crate::run::protocol::Protocol;
use crate::screen::Screen;
use crate::screen::live;
use crate::settings::rights::Right;
use crate::wire::http::guard::{identity_of, only};
use crate::wire::http::problem::Problem;
use crate::wire::http::reply::{JSON, uncached};

/// One picture.
pub(super) async fn picture(State(screen): State<Screen>) -> Response<Body> {
    uncached(JSON, Body::from(live::picture(&screen).await))
}

/// A picture each second, until the server closes, or the caller has lost the right to view.
pub(super) async fn stream(State(screen): State<Screen>, request: Request<Body>) -> Result<Response<Body>, Problem> {
    let link = Link::of(request.extensions());
    let (peer, identity) = (Some(link.peer), identity_of(request.extensions()));
    let watcher = live::watch(&screen, link.peer.address());
    let watcher = watcher.map_err(|bound| Problem::TooManyWatchers { bound })?;
    let caller = StreamCaller::new(Protocol::Http, link, only(request.headers(), AUTHORIZATION));
    // A client without a credential does not sign in.
    if !identity.is_anonymous() {
        let identity = identity.name();
        let (action, outcome) = (Action::SignIn, AuditOutcome::Done);
        screen.app.guards.audit.record(Entry { peer, identity, action, outcome, policy: None, reason: None });
    }
    let pictures = unfold((watcher, caller, screen), async |(mut watcher, mut caller, screen)| {
        let picture = watcher.next().await?;
        caller.may(Right::View, &screen.app.guards.access).ok()?;
        Some((Ok::<_, Infallible>(picture), (watcher, caller, screen)))
    });
    Ok(uncached("application/x-ndjson", Body::from_stream(pictures)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use http_body_util::BodyExt;
    use tidegate::MemoryStore;
    use tidegate_config::document;
    use tidegate_testkit::servers::GUARD;
    use tokio::time::timeout;
    use tower::ServiceExt;

    use super::*;
    use crate::access::digest::Digest;
    use crate::{Server, Settings};

    fn line(name: &str, right: &str) -> String {
        let digest = Digest::of(name.as_bytes());
        format!("[[token]]\nname = \"{name}\"\nsha256 = \"{digest}\"\nrights = [\"{right}\"]\n")
    }

    #[tokio::test]
    async fn a_stream_of_pictures_ends_when_its_token_is_gone_or_lacks_the_right() {
        let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        fs::write(file.path(), ["gone", "less", "kept"].map(|name| line(name, "view")).concat()).unwrap();
        let settings = Settings { http: Vec::new(), tokens: Some(file.path().into()), ..Settings::default() };
        let server = Server::start(settings, MemoryStore::default()).await.unwrap();
        let router = server.routes();
        let mut streams = Vec::new();
        for name in ["gone", "less", "kept"] {
            let request = Request::get("/admin/v1/live/stream").header(AUTHORIZATION, format!("Bearer {name}"));
            let answer = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
            let mut pictures = answer.into_body();
            pictures.frame().await.unwrap().unwrap();
            streams.push(pictures);
        }
        fs::write(file.path(), line("less", "metrics") + &line("kept", "view")).unwrap();
        server.app().guards.access.set_tokens(document::load(file.path()).unwrap());
        let [gone, less, mut kept] = <[Body; 3]>::try_from(streams).unwrap();
        for ended in [gone, less] {
            timeout(GUARD, ended.collect()).await.expect("the stream ends").unwrap();
        }
        kept.frame().await.unwrap().unwrap();
    }
}
