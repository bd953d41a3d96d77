//! What redis-cell does, written down from its documentation and source: the
//! theoretical arrival time, in whole nanoseconds.

/// Its state of one key.
#[derive(Default)]
pub(crate) struct RedisCell {
    arrival: Option<i128>,
}

const SECOND: i128 = 1_000_000_000;

impl RedisCell {
    /// Its five numbers, at a time in nanoseconds.
    pub(crate) fn throttle(&mut self, now: i128, [max_burst, count, period, quantity]: [i64; 4]) -> [i64; 5] {
        let interval = i128::from(period) * SECOND / i128::from(count);
        let tolerance = interval * i128::from(max_burst + 1);
        let increment = interval * i128::from(quantity);
        // Redis drops the key once it has expired.
        let arrival = self.arrival.filter(|arrival| *arrival > now).unwrap_or(now);
        let next = arrival + increment;
        let early = next - tolerance - now;
        let limited = early > 0;
        let retry_after = if limited && increment <= tolerance { early } else { -SECOND };
        let reset_after = if limited { arrival } else { next } - now;
        if !limited {
            self.arrival = Some(next);
        }
        let remaining = (tolerance - reset_after) / interval;
        let seconds = |time: i128| (time / SECOND + i128::from(time % SECOND >= SECOND / 1000)) as i64;
        [i64::from(limited), max_burst + 1, remaining as i64, seconds(retry_after), seconds(reset_after)]
    }
}

/// The example of redis-cell's own tests: five at once, one a second.
#[test]
fn the_model_of_redis_cell_answers_as_its_own_tests_ask() {
    let cases = [
        (0, 6, [1, 5, 5, -1, 0]),
        (0, 1, [0, 5, 4, -1, 1]),
        (0, 1, [0, 5, 3, -1, 2]),
        (0, 1, [0, 5, 2, -1, 3]),
        (0, 1, [0, 5, 1, -1, 4]),
        (0, 1, [0, 5, 0, -1, 5]),
        (0, 1, [1, 5, 0, 1, 5]),
        (3_000, 1, [0, 5, 2, -1, 3]),
        (3_100, 1, [0, 5, 1, -1, 4]),
        (4_000, 1, [0, 5, 1, -1, 4]),
        (8_000, 1, [0, 5, 4, -1, 1]),
        (9_500, 1, [0, 5, 4, -1, 1]),
        (9_500, 0, [0, 5, 4, -1, 1]),
        (9_500, 2, [0, 5, 2, -1, 3]),
        (9_500, 5, [1, 5, 2, 3, 3]),
    ];
    let mut model = RedisCell::default();
    for (millis, quantity, expected) in cases {
        assert_eq!(model.throttle(millis * SECOND / 1000, [4, 1, 1, quantity]), expected, "at {millis} ms");
    }
}
