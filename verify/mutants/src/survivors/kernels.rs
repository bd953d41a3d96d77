//! Those of the kernels, and of what they are made of.

use super::Survivor;

/// Where a tick is a microsecond, or drains one unit of a level.
const SHORTCUT: &str = "A shortcut: to divide by one is to do nothing.";

pub const SURVIVORS: &[Survivor] = &[
    Survivor {
        file: "kernel/bucket.rs",
        function: "Bucket::ticks",
        from: "if self.tick == 1 { now.get() } else { now.get() / self.tick }",
        to: &[
            "if false { now.get() } else { now.get() / self.tick }",
            "if self.tick == 0 { now.get() } else { now.get() / self.tick }",
        ],
        why: SHORTCUT,
    },
    Survivor {
        file: "kernel/bucket.rs",
        function: "Bucket::ticks",
        from: "if self.tick == 1 { now.get() } else { now.get() / self.tick }",
        to: &["if self.tick == 2 { now.get() } else { now.get() / self.tick }"],
        why: "A shortcut, and a tick is a power of ten.",
    },
    Survivor {
        file: "kernel/bucket.rs",
        function: "Bucket::drained_in",
        from: "if self.drain == 1 { (level, 0) } else { (level / self.drain, level % self.drain) }",
        to: &[
            "if false { (level, 0) } else { (level / self.drain, level % self.drain) }",
            "if self.drain == 0 { (level, 0) } else { (level / self.drain, level % self.drain) }",
        ],
        why: SHORTCUT,
    },
    Survivor {
        file: "kernel/bucket.rs",
        function: "Bucket::ticks_to_drain",
        from: "if self.drain == 1 { level } else { level.div_ceil(self.drain) }",
        to: &[
            "if false { level } else { level.div_ceil(self.drain) }",
            "if self.drain == 0 { level } else { level.div_ceil(self.drain) }",
        ],
        why: SHORTCUT,
    },
    Survivor {
        file: "kernel/bucket.rs",
        function: "Bucket::fill_if_room",
        from: "let level = if self.drain == 1 {",
        to: &["let level = if false {", "let level = if self.drain == 0 {"],
        why: "A shortcut: a level above full leaves no room either way.",
    },
    Survivor {
        file: "kernel/bucket.rs",
        function: "Bucket::first_tick_with_room",
        from: "if self.drain == 1 {",
        to: &["if false {", "if self.drain == 0 {"],
        why: SHORTCUT,
    },
    Survivor {
        file: "kernel/bucket.rs",
        function: "Bucket::delay",
        from: "level > 0",
        to: &["level >= 0"],
        why: "What is before a request in an empty bucket has gone by now.",
    },
    Survivor {
        file: "kernel/bucket.rs",
        function: "Bucket::take_over",
        from: "let added = units.min(room + 1) * self.scale + part;",
        to: &["let added = units.min(room + 2) * self.scale + part;"],
        why: "Any more units than there is room for do not fit, however many.",
    },
    Survivor {
        file: "kernel/bucket.rs",
        function: "Bucket::take_over",
        from: "} else if room > 0 {",
        to: &["} else if true {"],
        why: "Where there is no room, nothing moves.",
    },
    Survivor {
        file: "kernel/bucket.rs",
        function: "Bucket::take_over",
        from: "room > 0",
        to: &["room >= 0"],
        why: "Where there is no room, nothing moves.",
    },
    Survivor {
        file: "kernel/bucket.rs",
        function: "Bucket::heal",
        from: "if state.at <= tick + self.horizon {",
        to: &["if false {"],
        why: "A shortcut: the condition below asks for more.",
    },
    Survivor {
        file: "kernel/bucket.rs",
        function: "Bucket::heal",
        from: "state.at <= tick + self.horizon",
        to: &["state.at < tick + self.horizon"],
        why: "A shortcut: the condition below asks for more.",
    },
    Survivor {
        file: "kernel/bucket.rs",
        function: "Bucket::heal",
        from: "LEAST_GRACE.div_ceil(self.tick)",
        to: &["LEAST_GRACE / self.tick"],
        why: "A tick is a power of ten: the quotient is whole, or less than one, and no horizon is shorter than a tick.",
    },
    Survivor {
        file: "warm_up/kernel.rs",
        function: "Warming::when_empty",
        from: "empty <= step.end",
        to: &["empty < step.end"],
        why: "What is empty at the end of a step is empty where the next one begins.",
    },
    Survivor {
        file: "warm_up/kernel.rs",
        function: "Warming::admit",
        from: "ready <= end",
        to: &["ready < end"],
        why: "What a step would let pass at its end, the next one lets pass there: it admits more.",
    },
    Survivor {
        file: "kernel/window.rs",
        function: "Window::ticks",
        from: "if self.tick == 1 { now.get() } else { now.get() / self.tick }",
        to: &[
            "if false { now.get() } else { now.get() / self.tick }",
            "if self.tick == 0 { now.get() } else { now.get() / self.tick }",
        ],
        why: SHORTCUT,
    },
    Survivor {
        file: "kernel/window.rs",
        function: "Window::ticks",
        from: "if self.tick == 1 { now.get() } else { now.get() / self.tick }",
        to: &["if self.tick == 2 { now.get() } else { now.get() / self.tick }"],
        why: "A shortcut, and a tick is a power of ten.",
    },
    Survivor {
        file: "kernel/window.rs",
        function: "Window::grace",
        from: "LEAST_GRACE.div_ceil(self.tick)",
        to: &["LEAST_GRACE / self.tick"],
        why: "A tick is a power of ten: the quotient is whole, or less than one, and no period is shorter than a tick.",
    },
    Survivor {
        file: "kernel/window.rs",
        function: "Window::heal",
        from: "state.start <= tick",
        to: &["state.start < tick"],
        why: "A shortcut: the condition after it asks for more.",
    },
    Survivor {
        file: "time.rs",
        function: "Micros::new",
        from: "micros > Micros::MAX.0",
        to: &["micros >= Micros::MAX.0"],
        why: "The most is the most either way.",
    },
    Survivor {
        file: "time.rs",
        function: "Micros::from_duration",
        from: "micros > Micros::MAX.0 as u128",
        to: &["micros >= Micros::MAX.0 as u128"],
        why: "The most is the most either way.",
    },
    Survivor {
        file: "decision/refill.rs",
        function: "Limit::more_after",
        from: "self.capacity().saturating_sub(decision.verdict.remaining).saturating_sub(1)",
        to: &["self.capacity().saturating_sub(decision.verdict.remaining).wrapping_sub(1)"],
        why: "Where nothing is used the whole is zero already, and nothing less.",
    },
    Survivor {
        file: "decision/refill.rs",
        function: "Limit::more_after",
        from: "self.capacity().saturating_sub(decision.verdict.remaining)",
        to: &["self.capacity().wrapping_sub(decision.verdict.remaining)"],
        why: "No more remains than the capacity.",
    },
];
