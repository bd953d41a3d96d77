-- The periods of all cases by PostgreSQL's date_trunc and its own time zones, beside those that Python found.
--
-- AT TIME ZONE makes a local time that comes twice the later instant, and the definition wants the first. So the offset of a
-- day before is tried as well: it is that of the first, as no zone changes its clocks twice in a day. A local time
-- that is skipped gets the offset of before the change, which is the definition. OFFSET 0 has PostgreSQL compute each step once.
SET TimeZone = 'UTC';
SET max_parallel_workers_per_gather = 0;

CREATE TABLE calendars (id int PRIMARY KEY, words text, unit text, zone text, month int, day int, weekday int, hour int);
CREATE TABLE cases (calendar int, at bigint, starts bigint, ends bigint);
\copy calendars FROM 'calendars.csv' CSV
\copy cases FROM 'cases.csv' CSV
ANALYZE;

CREATE TABLE steps (unit text PRIMARY KEY, step interval, reach int);
INSERT INTO steps VALUES
    ('hour', '1 hour', 27), ('day', '1 day', 3), ('week', '1 week', 2),
    ('month', '1 month', 2), ('quarter', '3 months', 2), ('year', '1 year', 2);

CREATE TABLE found AS
SELECT words, at, starts, ends, period.*
FROM cases
JOIN calendars ON calendars.id = calendar
JOIN steps USING (unit)
CROSS JOIN LATERAL (SELECT timestamptz 'epoch' + at * interval '1 microsecond' AS instant OFFSET 0) AS asked
CROSS JOIN LATERAL (
    SELECT
        greatest(extract(epoch FROM max(edge) FILTER (WHERE edge <= instant)), 0)::bigint AS sql_starts,
        extract(epoch FROM min(edge) FILTER (WHERE edge > instant))::bigint AS sql_ends
    FROM generate_series(-reach, reach) AS number
    CROSS JOIN LATERAL (SELECT date_trunc(unit, instant AT TIME ZONE zone) + number * step AS unit_begins OFFSET 0) AS units
    -- Months are counted from the first of a month, and only then have a day.
    CROSS JOIN LATERAL (
        SELECT unit_begins + make_interval(months => CASE unit
            WHEN 'quarter' THEN (month - 1) % 3 WHEN 'year' THEN month - 1 ELSE 0 END) AS first OFFSET 0
    ) AS firsts
    CROSS JOIN LATERAL (
        SELECT first + CASE
            WHEN unit = 'hour' THEN interval '0'
            WHEN unit = 'day' THEN make_interval(hours => hour)
            WHEN unit = 'week' THEN make_interval(days => weekday - 1, hours => hour)
            ELSE make_interval(
                days => least(day, extract(day FROM first + interval '1 month' - interval '1 day')::int) - 1,
                hours => hour)
        END AS anchor OFFSET 0
    ) AS anchors
    CROSS JOIN LATERAL (SELECT anchor AT TIME ZONE zone AS later OFFSET 0) AS laters
    CROSS JOIN LATERAL (
        SELECT later - ((later - interval '1 day') AT TIME ZONE zone - (later - interval '1 day') AT TIME ZONE 'UTC'
            - (anchor - later AT TIME ZONE 'UTC')) AS earlier OFFSET 0
    ) AS earliers
    CROSS JOIN LATERAL (
        SELECT CASE WHEN earlier AT TIME ZONE zone = anchor THEN least(earlier, later) ELSE later END AS edge OFFSET 0
    ) AS edges
) AS period;

\copy (SELECT count(*) FROM found) TO 'counted.csv' CSV
\copy (SELECT * FROM found WHERE (starts, ends) IS DISTINCT FROM (sql_starts, sql_ends) ORDER BY words, at) TO 'differing.csv' CSV
