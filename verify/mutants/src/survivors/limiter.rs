//! Those of the limiter, in front of policies and stores.

use super::Survivor;

const TOLD: &str = "A shortcut: where there are no observers, nobody is told.";
const PLAIN: &str = "A shortcut: one limit is asked as well by the way of several.";
/// From which number tickets go up, and by how much.
const TICKETS: &str = "Any numbers do that go up.";

pub const SURVIVORS: &[Survivor] = &[
    Survivor {
        file: "limiter.rs",
        function: "Limiter::for_each_limit",
        from: "if !request.is_plain() || self.with_only_meter(|meter| show(meter, &request.key)).is_none() {",
        to: &["if true {"],
        why: "A shortcut: the only limit is what the policy says, too.",
    },
    Survivor {
        file: "limiter.rs",
        function: "Limiter::explain_async",
        from: "rules.push(RuleExplanation { rule, say, chosen_by, shadow, binds: false });",
        to: &["rules.push(RuleExplanation { rule, say, chosen_by, shadow, binds: true });"],
        why: "Which of them binds is said when all are known.",
    },
    Survivor {
        file: "limiter/ask.rs",
        function: "Limiter::tell_of",
        from: "if !observers.is_empty() {",
        to: &["if true {"],
        why: TOLD,
    },
    Survivor {
        file: "limiter/many.rs",
        function: "Limiter::tell_of_one",
        from: "if !observers.is_empty() {",
        to: &["if true {"],
        why: TOLD,
    },
    Survivor {
        file: "limiter/current.rs",
        function: "Policies::is_unchanged",
        from: "the whole body",
        to: &["{ false }"],
        why: PLAIN,
    },
    Survivor {
        file: "limiter/current.rs",
        function: "Policies::fast",
        from: "the whole body",
        to: &["{ None }"],
        why: PLAIN,
    },
    Survivor {
        file: "limiter/current.rs",
        function: "Policies::change",
        from: "if policy == current.source {",
        to: &["if false {"],
        why: "A shortcut: a policy that succeeds itself leaves nothing behind.",
    },
    Survivor {
        file: "limiter/many.rs",
        function: "Asked::push",
        from: "if !matches!(attributes, Attributes::None) {",
        to: &["if true {"],
        why: "A shortcut: a request without attributes is made again without any.",
    },
    Survivor {
        file: "limiter/many.rs",
        function: "Limiter::check_many",
        from: "asked.keys.len().min(BATCH)",
        to: &["asked.keys.len().max(BATCH)"],
        why: "A hint: room for checks.",
    },
    Survivor {
        file: "limiter/acquire.rs",
        function: "Waiters::new",
        from: "tickets: AtomicU64::new(0),",
        to: &["tickets: AtomicU64::new(1),"],
        why: TICKETS,
    },
    Survivor {
        file: "limiter/acquire.rs",
        function: "Waiters::join",
        from: "let waiter = Waiter { ticket: number, waker: None, may_be_more: false };",
        to: &["let waiter = Waiter { ticket: number, waker: None, may_be_more: true };"],
        why: "Whoever is told to wait asks once more, and is told the same.",
    },
    Survivor {
        file: "limiter/acquire.rs",
        function: "Limiter::wake_first",
        from: "if self.inner.waiters.places.taken.load(Ordering::Relaxed) > 0 {",
        to: &["if true {"],
        why: "A shortcut: where nobody waits there is nobody to wake.",
    },
    Survivor {
        file: "limiter/acquire.rs",
        function: "Limiter::wake_first",
        from: "self.inner.waiters.places.taken.load(Ordering::Relaxed) > 0",
        to: &["self.inner.waiters.waiting.load(Ordering::Relaxed) >= 0"],
        why: "A shortcut: where nobody waits there is nobody to wake.",
    },
    Survivor {
        file: "limiter/acquire.rs",
        function: "Waiters::join",
        from: "let number = self.tickets.fetch_add(1, Ordering::Relaxed);",
        to: &["let number = self.tickets.fetch_add(2, Ordering::Relaxed);"],
        why: TICKETS,
    },
    Survivor {
        file: "limiter/acquire.rs",
        function: "Waiters::join",
        from: "let mut ticket = Ticket { waiters: self, key, number: 0 };",
        to: &["let mut ticket = Ticket { waiters: self, key, number: 1 };"],
        why: "The number is drawn when its place is taken.",
    },
    Survivor {
        file: "limiter/acquire.rs",
        function: "Ticket::is_first",
        from: "let Some(queue) = shard.get_mut(&self.key) else { return true };",
        to: &["let Some(queue) = shard.get_mut(&self.key) else { return false };"],
        why: "A ticket stands in its queue until it is dropped.",
    },
];
