//! Who may use a route: the facts of a request of HTTP, and how it is refused.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::middleware::{Next, from_fn_with_state};
use http::header::{AUTHORIZATION, AsHeaderName, CONTENT_TYPE, HOST, ORIGIN};
use http::{Extensions, HeaderMap, Method, Request, Response, Uri, Version};
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use tonic::Status;

use super::problem::Problem;
use crate::access::audit::{Action, AuditOutcome, Entry, MAX_REASON, PolicyChange};
use crate::access::{Caller, Denied, Identity, Page, bearer, is_grpc};
use crate::ask::outcome::Outcome;
use crate::run::peer::Link;
use crate::run::protocol::Protocol;
use crate::settings::rights::{Right, Rights};
use crate::tell::trace::Origin;
use crate::wire::app::App;

pub(crate) const FETCH_SITE: &str = "sec-fetch-site";

/// What is read of the body of a request that is refused, and for how long.
const MAX_DISCARDED: usize = 64 * 1024;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(1);

/// The routes, for callers with the right.
pub(crate) fn guarded<S: Clone + Send + Sync + 'static>(routes: Router<S>, app: &Arc<App>, right: Right) -> Router<S> {
    routes.route_layer(from_fn_with_state((Arc::clone(app), right), permit))
}

/// The routes, with an entry in the audit log for each request, and of a list for each outcome. It is answered to the end, even if
/// its client disconnects meanwhile. They are guarded around it.
pub(crate) fn audited<S: Clone + Send + Sync + 'static>(
    routes: Router<S>,
    app: &Arc<App>,
    action: Action,
) -> Router<S> {
    routes.route_layer(from_fn_with_state((Arc::clone(app), action), audit))
}

/// The routes, for proxies that may check.
pub(crate) fn guarded_for_proxies(routes: Router<Arc<App>>, app: &Arc<App>) -> Router<Arc<App>> {
    routes.route_layer(from_fn_with_state(Arc::clone(app), permit_proxy))
}

async fn permit(State((app, right)): State<(Arc<App>, Right)>, request: Request<Body>, next: Next) -> Response<Body> {
    let link = Link::of(request.extensions());
    let permitted = app.permit(&caller(&request, &link), right);
    run(permitted, request, next).await
}

async fn permit_proxy(State(app): State<Arc<App>>, request: Request<Body>, next: Next) -> Response<Body> {
    let link = Link::of(request.extensions());
    let mut caller = caller(&request, &link);
    // No body is read, whatever its type is.
    caller.page.iter_mut().for_each(|page| page.writes = false);
    let permitted = decide_trusted(&app, &caller).unwrap_or_else(|| app.permit(&caller, Right::Check));
    run(permitted, request, next).await
}

/// Whether a trusted proxy may check; nothing if the caller is none.
///
/// Its head is that of its client's request: `Host`, `Origin` and the like say nothing of the proxy. And a credential
/// that is wrong is its client's: it is not held against the proxy, which has the rights that it has without one.
pub(crate) fn decide_trusted(app: &App, caller: &Caller<'_>) -> Option<Result<Identity, Denied>> {
    caller.link.peer.ip().filter(|peer| app.guards.proxies.trusts(*peer))?;
    let caller = Caller { page: None, ..*caller };
    Some(match app.guards.access.decide(&caller, Right::Check) {
        Err(Denied::WrongCredential) => app.guards.access.decide(&Caller { credential: None, ..caller }, Right::Check),
        decided => decided,
    })
}

async fn run(permitted: Result<Identity, Denied>, mut request: Request<Body>, next: Next) -> Response<Body> {
    match permitted {
        Ok(identity) => {
            request.extensions_mut().insert(identity);
            next.run(request).await
        }
        Err(denied) => {
            if let Some(delay) = denied.delay() {
                tokio::time::sleep(delay).await;
            }
            let response = refuse(&request, denied);
            discard(request.into_body()).await;
            response
        }
    }
}

async fn audit(State((app, action)): State<(Arc<App>, Action)>, request: Request<Body>, next: Next) -> Response<Body> {
    let extensions = request.extensions();
    let (link, identity, reason) = (Link::of(extensions), identity_of(extensions), reason(request.uri()));
    let app_of_task = Arc::clone(&app);
    let answer = async move {
        let response = next.run(request).await;
        let policy = response.extensions().get::<PolicyChange>().copied();
        let (peer, identity, reason) = (Some(link.peer), identity.name(), reason.as_deref());
        let whole = [AuditOutcome::of(response.status().is_success())];
        let outcomes = response.extensions().get::<Vec<AuditOutcome>>().map_or(&whole[..], Vec::as_slice);
        for outcome in
            [AuditOutcome::Done, AuditOutcome::Refused].into_iter().filter(|outcome| outcomes.contains(outcome))
        {
            app_of_task.guards.audit.record(Entry { peer, identity, action, outcome, policy, reason });
        }
        response
    };
    let answered = app.guards.connections.spawn(Origin::current().scope(answer)).await;
    answered.unwrap_or_else(|_| Problem::Leaving.response())
}

/// Why the caller asks for it: the parameter `reason` of the query, as far as it is kept.
fn reason(uri: &Uri) -> Option<String> {
    #[derive(Deserialize)]
    struct Given {
        reason: Option<String>,
    }
    let Query(Given { reason }) = Query::try_from_uri(uri).ok()?;
    Some(reason?.chars().take(MAX_REASON).collect())
}

/// Who was permitted; without rights where nothing was asked for.
pub(crate) fn identity_of(extensions: &Extensions) -> Identity {
    extensions.get::<Identity>().cloned().unwrap_or_else(|| Identity::anonymous(Rights::default()))
}

fn caller<'a, B>(request: &'a Request<B>, link: &'a Link) -> Caller<'a> {
    let headers = request.headers();
    let content_type = only(headers, CONTENT_TYPE);
    let protocol = protocol_of(request);
    let page = Page {
        host: host(request),
        origin: only(headers, ORIGIN),
        fetch_site: only(headers, FETCH_SITE),
        content_type,
        writes: matches!(*request.method(), Method::POST | Method::PUT),
    };
    Caller {
        protocol,
        link,
        credential: only(headers, AUTHORIZATION).map(bearer),
        // Browsers speak HTTP/2 over TLS only, where a name that is rebound to this server is not in its certificate. And
        // the host that clients of gRPC name can be anything: Envoy's is the name of its cluster.
        page: (protocol != Protocol::Grpc).then_some(page),
    }
}

/// What a request speaks.
pub(crate) fn protocol_of<B>(request: &Request<B>) -> Protocol {
    let is_grpc = request.version() == Version::HTTP_2 && only(request.headers(), CONTENT_TYPE).is_some_and(is_grpc);
    if is_grpc { Protocol::Grpc } else { Protocol::Http }
}

/// The value of a field; empty if it is there more than once.
pub(crate) fn only(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&[u8]> {
    let mut values = headers.get_all(name).into_iter();
    let first = values.next()?.as_bytes();
    Some(if values.next().is_none() { first } else { b"" })
}

/// The host that a request is for; empty if it names two.
pub(crate) fn host<B>(request: &Request<B>) -> Option<&[u8]> {
    let authority = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    match (authority, only(request.headers(), HOST)) {
        (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host) => Some(b""),
        (authority, host) => authority.or(host),
    }
}

/// Reads what a small body has, and drops it: some clients of HTTP/2 take an answer before the end of their request for
/// a failure of the connection.
async fn discard(body: Body) {
    let mut body = Limited::new(body, MAX_DISCARDED);
    let all = async { while let Some(Ok(_)) = body.frame().await {} };
    let _ = tokio::time::timeout(DISCARD_TIMEOUT, all).await;
}

fn refuse<B>(request: &Request<B>, denied: Denied) -> Response<Body> {
    if only(request.headers(), CONTENT_TYPE).is_some_and(is_grpc) {
        return Status::new(Outcome::from(&denied).code(), denied.to_string()).into_http();
    }
    Problem::Denied(denied).response()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use futures_util::FutureExt;
    use tidegate::MemoryStore;
    use tidegate_testkit::servers::GUARD;
    use tower::ServiceExt;

    use super::*;
    use crate::run::admission::TURN;
    use crate::{Server, Settings};

    async fn start() -> (Server, Router) {
        let settings = Settings { http: Vec::new(), ..Settings::default() };
        let server = Server::start(settings, MemoryStore::default()).await.unwrap();
        let router = server.routes();
        (server, router)
    }

    fn posted(path: &str, body: String) -> Request<Body> {
        let request = Request::post(path).header("host", "localhost").header("content-type", "application/json");
        request.body(Body::from(body)).unwrap()
    }

    /// The entries since the start, the latest first.
    fn entries(server: &Server) -> Vec<serde_json::Value> {
        serde_json::from_slice(&server.app().guards.audit.recent()).unwrap()
    }

    #[tokio::test]
    async fn a_list_has_an_entry_for_each_outcome() {
        let (server, router) = start().await;
        let list = r#"[{"key":"a"},{"key":"a","rule":"none"},{"key":"b"}]"#;
        for body in [list, r#"[{"key":"a"},{}]"#, "[]"] {
            let answer = router.clone().oneshot(posted("/v1/refund", body.to_owned())).await.unwrap();
            assert_eq!(answer.status().is_success(), !body.contains("{}"), "{body}");
        }
        let entries = entries(&server);
        let outcomes: Vec<&str> = entries.iter().map(|entry| entry["outcome"].as_str().unwrap()).collect();
        assert_eq!(outcomes, ["done", "refused", "refused", "done"]);
    }

    /// Each has more requests than are decided in a row.
    #[tokio::test]
    async fn resets_and_refunds_whose_client_disconnects_are_in_the_audit_log() {
        let (server, router) = start().await;
        for (path, action) in [
            ("/admin/v1/keys/reset", "admin-reset"),
            ("/admin/v1/keys/refund", "admin-refund"),
            ("/v1/reset", "reset"),
            ("/v1/refund", "refund"),
        ] {
            let body = format!("[{}]", vec![r#"{"key":"a","limit":"5/s"}"#; TURN + 1].join(","));
            let mut answer = Box::pin(router.clone().oneshot(posted(path, body)));
            assert!(answer.as_mut().now_or_never().is_none(), "{path} is answered at once");
            drop(answer);
            let recorded = async {
                while entries(&server).first().is_none_or(|latest| latest["action"] != action) {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(GUARD, recorded).await.expect(path);
        }
    }
}
