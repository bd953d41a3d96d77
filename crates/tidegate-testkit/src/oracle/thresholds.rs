//! Which thresholds were crossed, by what was left before a change and after it.

use std::collections::HashMap;

use tidegate::Algorithm;
use tidegate::kernel::Verb;

use super::ratio::Ratio;
use super::{Ask, Terms, label};

/// When each threshold of each key was told, in microseconds.
#[derive(Debug, Default)]
pub(super) struct Told {
    at: HashMap<(Vec<u8>, u8), i128>,
}

impl Told {
    /// The thresholds that a change from one to the other number of units left crosses, and
    /// of which there is something to tell; a bit for each.
    pub(super) fn tell(&mut self, terms: &Terms, ask: &Ask<'_>, left: [i128; 2], now: i128) -> u8 {
        let [before, after] = left.map(|left| terms.capacity - left);
        let lasts = terms.period_in_micros;
        let is_given_back = match ask.verb {
            Verb::Refund | Verb::Reset => true,
            Verb::Settle(charged) => ask.cost < charged.cost,
            Verb::Charge | Verb::Peek | Verb::Report | Verb::Renew(_) => false,
        };
        let mut crossed = 0;
        for (index, percent) in ask.notify.iter().enumerate() {
            let units = Ratio::new(terms.capacity * i128::from(*percent), 100).ceil();
            let name = (label(ask.key), *percent);
            if is_given_back && after < units {
                self.at.remove(&name);
            }
            if before >= units || after < units {
                continue;
            }
            // In a fixed window each crossing is another one. Elsewhere it is once a period, by
            // clocks that may go back, but not by more than that.
            let is_told = self.at.get(&name).is_some_and(|at| (at - lasts..at + lasts).contains(&now));
            if terms.algorithm == Algorithm::FixedWindow || !is_told {
                self.at.insert(name, now);
                crossed |= 1 << index;
            }
        }
        crossed
    }
}
