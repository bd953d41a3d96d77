//! What a tower layer adds to a request, beside tower_governor's.
//!
//! The same service, which answers at once, bare and behind each layer. The
//! requests are made beforehand; what the bare service takes is taken off, round
//! by round.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, Response};
use tidegate::{Limit, Limiter};
use tidegate_tower::RateLimitLayer;
use tower::{Layer, Service, service_fn};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

use crate::measure::{Run, Series, Stopwatch, race};
use crate::report::{Goal, Table};
use crate::session::Session;

const REQUESTS: usize = 10_000;
const MANY: u32 = 100_000;

const BARE: &str = "no layer";
const OURS: &str = "tidegate";
const OURS_SILENT: &str = "tidegate, no fields";
const THEIRS: &str = "tower_governor, fields";
const THEIRS_SILENT: &str = "tower_governor";

/// Whether requests are refused.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Terms {
    Generous,
    Refusing,
}

/// A service and its layer, whatever they are.
trait Site {
    fn serve(&mut self, requests: Vec<Request<Body>>);
}

impl<S> Site for S
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    fn serve(&mut self, requests: Vec<Request<Body>>) {
        let mut context = Context::from_waker(Waker::noop());
        for request in requests {
            assert!(matches!(self.poll_ready(&mut context), Poll::Ready(Ok(()))));
            let response = pin!(self.call(request));
            match response.poll(&mut context) {
                Poll::Ready(response) => drop(black_box(response)),
                Poll::Pending => panic!("no request waits here"),
            }
        }
    }
}

fn answer(_: Request<Body>) -> Ready<Result<Response<Body>, Infallible>> {
    ready(Ok(Response::new(Body::empty())))
}

fn ours(terms: Terms) -> RateLimitLayer {
    RateLimitLayer::new(Limiter::new(match terms {
        Terms::Generous => Limit::per_second(1_000_000).burst(1_000_000_000),
        Terms::Refusing => Limit::per_day(1),
    }))
}

fn site(name: &str, terms: Terms) -> Option<Box<dyn Site>> {
    let service = service_fn(answer);
    let mut config = GovernorConfigBuilder::default();
    match terms {
        Terms::Generous => config.per_nanosecond(1).burst_size(1_000_000),
        Terms::Refusing => config.period(Duration::from_secs(86_400)).burst_size(1),
    };
    Some(match name {
        BARE => Box::new(service),
        OURS => Box::new(ours(terms).layer(service)),
        OURS_SILENT => Box::new(ours(terms).headers([]).layer(service)),
        THEIRS => Box::new(GovernorLayer::<_, _, Body>::new(config.use_headers().finish()?).layer(service)),
        THEIRS_SILENT => Box::new(GovernorLayer::<_, _, Body>::new(config.finish()?).layer(service)),
        _ => return None,
    })
}

/// Requests of so many clients, in rotation.
fn requests(clients: u32, seed: &mut u32) -> Vec<Request<Body>> {
    let mut next = || {
        *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        request((*seed >> 8) % clients)
    };
    (0..REQUESTS).map(|_| next()).collect()
}

fn request(client: u32) -> Request<Body> {
    let address = Ipv4Addr::from_bits(0x0a00_0000 + client);
    let mut request = Request::new(Body::empty());
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from((address, 4711))));
    request
}

pub(crate) fn layer(session: &mut Session) {
    for (name, clients, terms) in [
        ("tower layer, one client", 1, Terms::Generous),
        ("tower layer, 10^5 clients", MANY, Terms::Generous),
        ("tower layer, one client, refused", 1, Terms::Refusing),
    ] {
        if !session.wants(name) {
            continue;
        }
        let runs = [BARE, OURS, THEIRS, OURS_SILENT, THEIRS_SILENT].into_iter().filter_map(|name| {
            let (mut site, mut seed) = (site(name, terms)?, 7);
            // None of those that are counted is new.
            site.serve((0..clients).map(request).collect());
            let run = move || {
                let requests = requests(clients, &mut seed);
                let watch = Stopwatch::start();
                site.serve(requests);
                watch.stop().nanos() / REQUESTS as f64
            };
            Some(Run { name, run: Box::new(run) as Box<dyn FnMut() -> f64> })
        });
        let mut series = race(session.pace.rounds.max(9), runs.collect());
        let bare = series.remove(0);
        let added = series.into_iter().map(|series| {
            let rounds = series.rounds.iter().zip(&bare.rounds).map(|(with, without)| with - without);
            Series { name: series.name, rounds: rounds.collect() }
        });
        let goals = match terms {
            Terms::Generous => vec![
                Goal::AtMostTimes { ours: OURS, theirs: THEIRS, times: 0.5 },
                Goal::AtMostTimes { ours: OURS_SILENT, theirs: THEIRS_SILENT, times: 0.5 },
            ],
            Terms::Refusing => Vec::new(),
        };
        let unit = "ns added";
        session.add(Table { name: name.into(), unit, series: added.collect(), goals });
    }
}

/// Requests for an instruction counter to count; `None` if the name is unknown.
pub(crate) fn count(name: &str) -> Option<()> {
    let mut site = site(name, Terms::Generous)?;
    site.serve(requests(1, &mut 7));
    counted_requests(&mut *site, requests(1, &mut 7));
    println!("divide the instructions by {REQUESTS}, and take off those of {BARE:?}");
    Some(())
}

/// What is counted, under a name that `--toggle-collect` finds.
#[inline(never)]
fn counted_requests(site: &mut dyn Site, requests: Vec<Request<Body>>) {
    site.serve(requests);
}
