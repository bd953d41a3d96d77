//! How much a request takes, by the names of what is counted.

/// Amounts by what they are of: `tokens`, `bytes`, `microdollars`.
///
/// A number alone is the [cost](crate::Request::cost), which rules count that name no
/// [unit](crate::Rule::unit).
///
/// ```
/// use tidegate::Amounts;
///
/// let spent = Amounts::new().amount("tokens", 412).amount("microdollars", 1_236);
/// let cost = Amounts::from(3);
/// assert_ne!(spent, cost);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts<'a> {
    pub(crate) cost: Option<u64>,
    pub(crate) named: NamedAmounts<'a>,
}

/// Amounts by name, on the heap, since most requests have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::box_collection, reason = "a word in every request, of which most have no amounts")]
pub(crate) struct NamedAmounts<'a>(Option<Box<Vec<(&'a str, u64)>>>);

impl<'a> Amounts<'a> {
    /// None yet.
    #[must_use]
    pub fn new() -> Amounts<'a> {
        Amounts::default()
    }

    /// The cost, which rules count that name no unit.
    ///
    /// ```
    /// use tidegate::Amounts;
    ///
    /// assert_eq!(Amounts::new().cost(3), Amounts::from(3));
    /// ```
    #[must_use]
    pub fn cost(mut self, cost: u64) -> Amounts<'a> {
        self.cost = Some(cost);
        self
    }

    /// Adds an amount, or changes it.
    ///
    /// ```
    /// use tidegate::Amounts;
    ///
    /// let spent = Amounts::new().amount("tokens", 400).amount("tokens", 412);
    /// assert_eq!(spent, Amounts::new().amount("tokens", 412));
    /// ```
    #[must_use]
    pub fn amount(mut self, unit: &'a str, amount: u64) -> Amounts<'a> {
        self.named.set(unit, amount);
        self
    }
}

impl<'a> NamedAmounts<'a> {
    pub(crate) fn set(&mut self, unit: &'a str, amount: u64) {
        let named = self.0.get_or_insert_default();
        match named.iter_mut().find(|(name, _)| *name == unit) {
            Some((_, known)) => *known = amount,
            None => named.push((unit, amount)),
        }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn get(&self, unit: &str) -> Option<u64> {
        self.iter().find(|(name, _)| *name == unit).map(|(_, amount)| amount)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'a str, u64)> + '_ {
        self.0.iter().flat_map(|named| named.iter().copied())
    }

    /// By name, so that the order in which they were added does not matter.
    pub(crate) fn sorted(&self) -> Vec<(&'a str, u64)> {
        let mut sorted: Vec<_> = self.iter().collect();
        sorted.sort_unstable();
        sorted
    }
}

impl From<u64> for Amounts<'_> {
    fn from(cost: u64) -> Self {
        Amounts::new().cost(cost)
    }
}
