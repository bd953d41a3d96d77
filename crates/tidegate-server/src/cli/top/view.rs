//! What is seen: the latest picture, what the ones before it add up to, and
//! what was chosen.

use std::collections::{BTreeMap, VecDeque};

use ratatui::crossterm::event::KeyCode;

use super::Wish;
use super::feed::News;
use crate::run::causes::in_full;
use crate::screen::live::{LatencyPicture, Picture, RefusalPicture, RulePicture};

/// Seconds that are remembered of each rule.
const HISTORY: usize = 120;

/// What is seen.
pub(super) struct View {
    pub(super) server: String,
    pub(super) picture: Picture,
    /// What the server does not say any more, and why.
    pub(super) silence: Option<String>,
    /// What happened to the last wish.
    pub(super) message: Option<String>,
    /// The refusal that is chosen: by rule and key, as the list moves.
    chosen: Option<(String, String)>,
    /// A reset that still has to be confirmed.
    pub(super) asked: bool,
    rates: BTreeMap<String, Rates>,
    before: Option<Picture>,
}

/// What a rule decided in each of the last seconds, the latest last.
#[derive(Default)]
pub(super) struct Rates {
    pub(super) allowed: VecDeque<u64>,
    pub(super) refused: VecDeque<u64>,
}

/// How long answers took of late.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Latency {
    pub(super) protocol: String,
    pub(super) per_second: u64,
    /// The bound below which half of them were, and 99 of 100; none if they were above all.
    pub(super) median_us: Option<u64>,
    pub(super) p99_us: Option<u64>,
}

impl View {
    pub(super) fn new(server: &str, picture: Picture) -> View {
        View {
            server: server.to_owned(),
            picture,
            silence: None,
            message: None,
            chosen: None,
            asked: false,
            rates: BTreeMap::new(),
            before: None,
        }
    }

    pub(super) fn hear(&mut self, news: News) {
        match news {
            News::Picture(picture) => self.see(*picture),
            News::Silence(refused) => self.silence = Some(in_full(&refused)),
            News::Reset(Ok(())) => self.message = Some("forgotten: the key begins anew".to_owned()),
            News::Reset(Err(refused)) => self.message = Some(format!("not reset: {}", in_full(&refused))),
        }
    }

    fn see(&mut self, picture: Picture) {
        self.silence = None;
        let before = std::mem::replace(&mut self.picture, picture);
        // A server that began anew counts anew.
        if before.uptime_us > self.picture.uptime_us {
            self.rates.clear();
            self.before = None;
            return;
        }
        let elapsed = self.picture.uptime_us - before.uptime_us;
        for rule in &self.picture.rules {
            let known = before.rules.iter().find(|known| known.rule == rule.rule);
            let ((allowed, refused), (allowed_before, refused_before)) = (decided(rule), known.map_or((0, 0), decided));
            let rates = self.rates.entry(rule.rule.clone()).or_default();
            push(&mut rates.allowed, per_second(allowed.saturating_sub(allowed_before), elapsed));
            push(&mut rates.refused, per_second(refused.saturating_sub(refused_before), elapsed));
        }
        let rules = &self.picture.rules;
        self.rates.retain(|name, _| rules.iter().any(|rule| rule.rule == *name));
        self.before = Some(before);
    }

    pub(super) fn press(&mut self, key: KeyCode) -> Wish {
        if std::mem::take(&mut self.asked) {
            return match key {
                KeyCode::Char('y' | 'Y') => self.reset(),
                _ => Wish::Nothing,
            };
        }
        self.message = None;
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return Wish::Leave,
            KeyCode::Down | KeyCode::Char('j') => self.choose(|place, last| place.map_or(0, |it| (it + 1).min(last))),
            KeyCode::Up | KeyCode::Char('k') => self.choose(|place, _| place.map_or(0, |it| it.saturating_sub(1))),
            KeyCode::Home => self.choose(|_, _| 0),
            KeyCode::End => self.choose(|_, last| last),
            KeyCode::Char('r') => match self.chosen() {
                Some((_, refusal)) if refusal.request.is_some() => self.asked = true,
                Some(_) => self.message = Some("this request cannot be asked again: it is not text".to_owned()),
                None => self.message = Some("choose a key by the arrows".to_owned()),
            },
            _ => {}
        }
        Wish::Nothing
    }

    fn reset(&self) -> Wish {
        match self.chosen().and_then(|(_, refusal)| refusal.request.clone()) {
            Some(request) => Wish::Reset(Box::new(request)),
            None => Wish::Nothing,
        }
    }

    fn choose(&mut self, next: impl FnOnce(Option<usize>, usize) -> usize) {
        let Some(last) = self.picture.recent_refusals.len().checked_sub(1) else { return };
        let place = next(self.chosen().map(|(place, _)| place), last);
        let refusal = &self.picture.recent_refusals[place];
        self.chosen = Some((refusal.rule.clone(), refusal.key.clone()));
    }

    /// The refusal that is chosen, and where it is in the list.
    pub(super) fn chosen(&self) -> Option<(usize, &RefusalPicture)> {
        let (rule, key) = self.chosen.as_ref()?;
        let mut refusals = self.picture.recent_refusals.iter().enumerate();
        refusals.find(|(_, refusal)| refusal.rule == *rule && refusal.key == *key)
    }

    /// What a rule decided of late.
    pub(super) fn rates(&self, rule: &str) -> Option<&Rates> {
        self.rates.get(rule)
    }

    /// How long answers took since the picture before.
    pub(super) fn latencies(&self) -> Vec<Latency> {
        let Some(before) = &self.before else { return Vec::new() };
        let elapsed = self.picture.uptime_us - before.uptime_us;
        let latency = |now: &LatencyPicture| {
            let known = before.latency.iter().find(|known| known.protocol == now.protocol);
            let count = |index: usize| known.and_then(|known| known.buckets.get(index)).map_or(0, |it| it.count);
            let news = now.buckets.iter().enumerate();
            let news: Vec<(Option<u64>, u64)> =
                news.map(|(index, it)| (it.within_us, it.count.saturating_sub(count(index)))).collect();
            let all: u64 = news.iter().map(|(_, count)| count).sum();
            (all > 0).then(|| Latency {
                protocol: now.protocol.clone(),
                per_second: per_second(all, elapsed),
                median_us: quantile(&news, all.div_ceil(2)),
                p99_us: quantile(&news, (all * 99).div_ceil(100)),
            })
        };
        self.picture.latency.iter().filter_map(latency).collect()
    }
}

/// What a rule admitted and refused; what it would have, if it only watches.
pub(super) fn decided(rule: &RulePicture) -> (u64, u64) {
    match rule.shadow {
        true => (rule.counts.shadow_allowed, rule.counts.shadow_refused),
        false => (rule.counts.allowed, rule.counts.refused),
    }
}

/// The bound below which so many are.
fn quantile(buckets: &[(Option<u64>, u64)], wanted: u64) -> Option<u64> {
    let mut seen = 0;
    let reached = buckets.iter().find(|(_, count)| {
        seen += count;
        seen >= wanted
    });
    reached.and_then(|(within, _)| *within)
}

fn per_second(count: u64, elapsed_us: u64) -> u64 {
    let rate = (u128::from(count) * 1_000_000).div_ceil(u128::from(elapsed_us.max(1)));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

fn push(history: &mut VecDeque<u64>, value: u64) {
    if history.len() == HISTORY {
        history.pop_front();
    }
    history.push_back(value);
}
