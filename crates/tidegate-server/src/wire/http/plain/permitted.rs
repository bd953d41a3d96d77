//! Callers of plain requests that may check. Those that may not are hyper's.

use super::super::guard;
use super::head::Facts;
use crate::access::{Caller, bearer};
use crate::run::peer::Link;
use crate::run::protocol::Protocol;
use crate::settings::rights::Right;
use crate::wire::app::App;

/// The facts that were permitted last, so that the same need not be looked into with each request.
#[derive(Default)]
pub(super) struct Permitted {
    last: Option<[Option<Box<[u8]>>; 5]>,
    generation: u64,
}

impl Permitted {
    pub(super) fn includes(&mut self, facts: Facts<'_>, app: &App, link: &Link) -> bool {
        let generation = app.guards.access.generation();
        let is_last = |last: &[Option<Box<[u8]>>; 5]| {
            last.iter().zip(facts.fields()).all(|(last, field)| last.as_deref() == field)
        };
        if self.generation == generation && self.last.as_ref().is_some_and(is_last) {
            return true;
        }
        let is_permitted = app.guards.access.decide(&caller(facts, link), Right::Check).is_ok();
        self.last = is_permitted.then(|| facts.fields().map(|field| field.map(Box::from)));
        self.generation = generation;
        is_permitted
    }
}

/// Whether a caller may check as a proxy does.
pub(super) fn includes_proxy(facts: Facts<'_>, app: &App, link: &Link) -> bool {
    let caller = caller(facts, link);
    guard::decide_trusted(app, &caller).unwrap_or_else(|| app.guards.access.decide(&caller, Right::Check)).is_ok()
}

fn caller<'a>(facts: Facts<'a>, link: &'a Link) -> Caller<'a> {
    Caller { protocol: Protocol::Http, link, credential: facts.authorization.map(bearer), page: Some(facts.page) }
}
