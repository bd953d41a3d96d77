//! What a response took, as its body shows it.
//!
//! A [`Tally`] sees a response body pass by and says at its end what the request took. It never
//! holds a frame back and never changes one.

use std::borrow::Cow;

use http::HeaderMap;
use http::response::Parts;
use tidegate::Amounts;

/// Sees one response body pass, and says what the request took: for
/// [`ReserveLayer::tally`](crate::ReserveLayer::tally).
pub trait Tally: Send + Sync + 'static {
    /// Sees data of a frame, in the order in which it is sent. Frames begin and end anywhere.
    fn data(&mut self, data: &[u8]);

    /// Sees the trailers.
    fn trailers(&mut self, trailers: &HeaderMap) {
        let _ = trailers;
    }

    /// What the request took; called once, and last. `None` leaves the estimate charged.
    ///
    /// A caller chooses when to go away. Of a body that was [cut](BodyEnd::Cut), say only what is
    /// certain: a unit that is left out keeps its estimate.
    fn spent(&mut self, end: BodyEnd) -> Option<Spent>;
}

/// How a response body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEnd {
    /// All of it was sent.
    Complete,
    /// It failed, or was dropped before its end: the client has gone away.
    Cut,
}

/// What a request took: [`Amounts`] that borrow nothing.
///
/// ```
/// use tidegate_tower::Spent;
///
/// let spent = Spent::new().amount("tokens", 412).amount("microdollars", 1_236);
/// # let _ = spent;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    cost: Option<u64>,
    named: Vec<(Cow<'static, str>, u64)>,
}

impl Spent {
    /// Nothing is said yet.
    #[must_use]
    pub fn new() -> Spent {
        Spent::default()
    }

    /// The cost, which rules count that name no unit.
    #[must_use]
    pub fn cost(mut self, cost: u64) -> Spent {
        self.cost = Some(cost);
        self
    }

    /// Adds an amount, or changes it.
    #[must_use]
    pub fn amount(mut self, unit: impl Into<Cow<'static, str>>, amount: u64) -> Spent {
        self.named.push((unit.into(), amount));
        self
    }

    /// The same in the limiter's own type.
    #[must_use]
    pub fn amounts(&self) -> Amounts<'_> {
        let amounts = self.cost.map_or_else(Amounts::new, Amounts::from);
        self.named.iter().fold(amounts, |amounts, (unit, amount)| amounts.amount(unit, *amount))
    }
}

/// Makes the tally of a response.
pub(crate) type TallyFn = std::sync::Arc<dyn Fn(&Parts) -> Box<dyn Tally> + Send + Sync>;
