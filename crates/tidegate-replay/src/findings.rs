//! From what was counted to the report.

use std::time::Duration;

use tidegate::Limit;

use crate::decider::{Changes, Decider, Found};
use crate::headroom::{FULL, OVER, Peak};
use crate::report::{
    Against, BinReport, Change, KeyReport, LimitReport, NearReport, Report, RuleReport, Span, Timeline, Timings,
    Titles, UndecidedReport,
};
use crate::search::Smallest;
use crate::share::Share;
use crate::tally::{Concerned, Refusals, Undecided};
use crate::top::Top;
use crate::watched::LimitUse;
use crate::when::Utc;

/// Keys that are named, in each list.
const MAX_NAMED_KEYS: usize = 20;

impl Report {
    pub(crate) fn new(
        decider: &Decider,
        (smallest, is_partial): Found,
        (at_most, tolerate): (Option<Share>, Share),
        timings: Timings,
    ) -> Report {
        let side = &decider.side;
        let store = side.limiter.store();
        let seen = store.seen();
        let mut smallest = smallest.into_iter();
        let limits = seen.limits.iter().map(|limit| LimitReport::new(limit, smallest.next().flatten())).collect();
        let overflowed = store.overflowed();
        drop(seen);
        let against = decider.old.as_ref().map(|old| Against {
            admitted: old.admitted,
            refused: old.refused.count,
            undecided: old.undecided.count,
            undecided_reasons: reasons_of(&old.undecided),
            rules: rules_of(&old.refused),
            newly_refused: Change::new(&decider.newly_refused),
            newly_admitted: Change::new(&decider.newly_admitted),
        });
        let bins = decider.bins.iter().map(|(at, bin)| BinReport {
            at: Utc(at),
            admitted: bin.admitted,
            refused: bin.refused,
            newly_refused: bin.newly_refused,
            newly_admitted: bin.newly_admitted,
            by_rule: (0..side.refused.rules.len()).map(|rule| bin.by_rule.get(rule).copied().unwrap_or(0)).collect(),
        });
        let rules = side.refused.rules.iter().map(|(rule, _)| rule.to_string()).collect();
        Report {
            titles: Titles::default(),
            lines: 0,
            broken: 0,
            broken_examples: Vec::new(),
            late: decider.late,
            late_by_us: decider.latest_by.get(),
            span: decider.span.map(|(from, to)| Span { from: Utc(from), to: Utc(to) }),
            sources: Vec::new(),
            missing: decider.missing(),
            unused: Vec::new(),
            admitted: side.admitted,
            refused: side.refused.count,
            impossible: side.impossible,
            repeated: side.repeated,
            undecided: side.undecided.count,
            undecided_reasons: reasons_of(&side.undecided),
            rules: rules_of(&side.refused),
            refused_keys: keys_of(&side.refused.keys),
            refused_examples: decider.examples.clone(),
            limits,
            most_in_flight: decider.in_flight.most,
            unsettled: decider.in_flight.unsettled,
            overflowed,
            against,
            timeline: Timeline { width_us: decider.bins.width().get(), rules, bins: bins.collect() },
            at_most,
            tolerate,
            inconclusive: None,
            search_is_partial: is_partial,
            timings,
        }
    }
}

impl Timings {
    pub(crate) fn new((decided, processor): (Duration, Duration), searched: Duration, whole: Duration) -> Timings {
        let micros = |time: Duration| time.as_micros() as u64;
        let [decided_us, processor_us, searched_us, whole_us] = [decided, processor, searched, whole].map(micros);
        Timings { decided_us, processor_us, searched_us, whole_us }
    }
}

impl LimitReport {
    fn new(limit: &LimitUse, smallest: Option<Smallest>) -> LimitReport {
        let peaks = limit.headroom.peaks();
        let (keys, is_exact) = limit.headroom.keys();
        // The key that so many thousandths of all keys do not surpass.
        let quantile =
            |thousandths: usize| peaks.get((peaks.len() * thousandths / 1_000).min(peaks.len().saturating_sub(1)));
        let mut tenths = [0_usize; 11];
        for peak in &peaks {
            tenths[tenth(*peak)] += 1;
        }
        let share = |count: usize| (count * 1_000 / peaks.len().max(1)) as u16;
        LimitReport {
            rule: limit.rule.to_string(),
            limit: limit.meaning.clone(),
            shadow: limit.is_shadow,
            asked: limit.asked,
            refused: limit.refused,
            most_in_flight: limit.limit.filter(Limit::is_in_flight).map(|_| limit.most_used),
            longest_debt_us: limit.longest_debt.get(),
            keys,
            is_exact,
            peak_median: quantile(500).copied().unwrap_or(0),
            peak_p90: quantile(900).copied().unwrap_or(0),
            peak_p99: quantile(990).copied().unwrap_or(0),
            // Beyond the sample, the busiest are known by name.
            peak_most: limit.headroom.nearest().map(|(_, peak)| peak).max().unwrap_or(0),
            peaks: tenths.map(share),
            nearest: limit.headroom.nearest().map(|(key, peak)| NearReport { key: key.to_string(), peak }).collect(),
            smallest,
        }
    }
}

fn tenth(peak: Peak) -> usize {
    if peak >= OVER { 10 } else { (usize::from(peak) * 10 / usize::from(FULL)).min(9) }
}

impl Change {
    fn new(changes: &Changes) -> Change {
        Change {
            count: changes.refusals.count,
            rules: rules_of(&changes.refusals),
            keys: keys_of(&changes.refusals.keys),
            examples: changes.examples.clone(),
        }
    }
}

fn reasons_of(undecided: &Undecided) -> Vec<UndecidedReport> {
    let mut reasons = undecided.reasons.clone();
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.lines));
    reasons
}

fn rules_of(refusals: &Refusals) -> Vec<RuleReport> {
    let mut rules: Vec<RuleReport> =
        refusals.rules.iter().map(|(rule, refused)| RuleReport { rule: rule.to_string(), refused: *refused }).collect();
    rules.sort_by_key(|rule| std::cmp::Reverse(rule.refused));
    rules
}

fn keys_of(keys: &Top<Concerned>) -> Vec<KeyReport> {
    let named = keys.iter().take(MAX_NAMED_KEYS).map(|entry| {
        let Concerned { rule, key, attributes } = &entry.item;
        let (rule, key, attributes) = (rule.to_string(), key.to_string(), attributes.clone());
        KeyReport { rule, key, count: entry.count, error: entry.error, attributes }
    });
    named.collect()
}
