"""Asks for periods of random calendars at random instants: Python first, then PostgreSQL, which must agree on every one.

    compare.py COUNT FILE [RECORDED]

FILE gets all COUNT cases with Python's answers, and RECORDED the first tenth of them. `crates/tidegate/tests/calendar_edges.rs`
reads both. Nothing here knows the library: a calendar is a line of words, the definition is that of `calendar.rs`.
"""

import random
import sys
import zoneinfo
from collections import namedtuple
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from itertools import groupby
from math import gcd

import dateutil
import tzdata
from dateutil.relativedelta import MO, relativedelta
from zoneinfo import ZoneInfo

import postgres

# The package tzdata, which has the version of the database that jiff carries, and not what the system has.
zoneinfo.reset_tzpath(to=[])

SEED = 1
PER_CALENDAR = 40
UNITS = ["hour", "day", "week", "month", "quarter", "year"]
WEEKDAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
MONTHS_LONGEST = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]

# Two of five calendars are in one of these: a day skipped, half hours and twenty minutes, two hours, midnight skipped or twice,
# a minute after midnight, two changes around Ramadan, a quarter of an hour.
ODD = (
    "Pacific/Apia Pacific/Kwajalein Pacific/Enderbury Pacific/Kiritimati Pacific/Fakaofo Australia/Lord_Howe America/St_Johns"
    " America/Havana Antarctica/Troll Antarctica/Casey Africa/Casablanca Africa/El_Aaiun Asia/Pyongyang America/Caracas Asia/Beirut"
    " Asia/Kathmandu Asia/Gaza Africa/Cairo Africa/Monrovia America/Asuncion America/Scoresbysund Europe/Dublin"
).split()

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
END = int(datetime(2100, 1, 1, tzinfo=timezone.utc).timestamp())
WEEK = 7 * 86_400

Calendar = namedtuple("Calendar", "unit zone month day weekday hour")
# In microseconds, seconds and seconds.
Case = namedtuple("Case", "at start end")


def words(calendar):
    """As the library reads it."""
    anchor = {
        "hour": [],
        "day": [],
        "week": [WEEKDAYS[calendar.weekday - 1]],
        "month": [f"day {calendar.day}"],
        "quarter": [f"{calendar.month:02}-{calendar.day:02}"],
        "year": [f"{calendar.month:02}-{calendar.day:02}"],
    }[calendar.unit]
    anchor = anchor + ([] if calendar.unit == "hour" else [f"{calendar.hour:02}:00"])
    return " ".join([calendar.unit, "in", calendar.zone] + (["from"] + anchor if anchor else []))


def period(calendar, at):
    """The largest edge until then and the next larger one, of all anchors near it."""
    zone = ZoneInfo(calendar.zone)
    local = datetime.fromtimestamp(at // 1_000_000, zone).replace(tzinfo=None, fold=0)
    # fold=0 is the definition: the first of two, and as long after as the gap is.
    edges = [(anchor.replace(tzinfo=zone) - EPOCH) // timedelta(seconds=1) for anchor in anchors(calendar, local)]
    start = max(edge for edge in edges if edge * 1_000_000 <= at)
    end = min(edge for edge in edges if edge * 1_000_000 > at)
    return max(start, 0), end


def anchors(calendar, local):
    """What the clocks read at edges: from at least 26 hours before to 26 hours after, as clocks were changed by 24."""
    day = local.replace(hour=0, minute=0, second=0)
    if calendar.unit == "hour":
        hour = local.replace(minute=0, second=0)
        return [hour + timedelta(hours=number) for number in range(-26, 28)]
    if calendar.unit == "day":
        return [day + relativedelta(days=number, hour=calendar.hour) for number in range(-3, 4)]
    if calendar.unit == "week":
        first = day + relativedelta(weekday=MO(-1))
        weekday = calendar.weekday - 1
        return [first + relativedelta(weeks=number, days=weekday, hour=calendar.hour) for number in range(-2, 3)]
    first = day.replace(day=1) if calendar.unit == "month" else day.replace(month=calendar.month, day=1)
    months = {"month": range(-2, 3), "quarter": range(-15, 16, 3), "year": range(-24, 25, 12)}[calendar.unit]
    # relativedelta takes the last day of a month that is shorter.
    return [first + relativedelta(months=number, day=calendar.day, hour=calendar.hour) for number in months]


@lru_cache(maxsize=None)
def changes(name):
    """The seconds at which the clocks of a zone were changed, but for those that were changed back within a week."""
    zone = ZoneInfo(name)

    def offset(at):
        return datetime.fromtimestamp(at, zone).utcoffset()

    found = []
    before = offset(0)
    for after_week in range(WEEK, END, WEEK):
        after = offset(after_week)
        if after != before:
            low, high = after_week - WEEK, after_week
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if offset(middle) == before else (low, middle)
            found.append(high)
        before = after
    return found


def some_calendar(chance, zones):
    zone = chance.choice(ODD) if chance.random() < 0.4 else chance.choice(zones)
    unit = chance.choice(UNITS)
    # Half of the anchors are where clocks were changed once.
    if changes(zone) and chance.random() < 0.5:
        last = datetime.fromtimestamp(chance.choice(changes(zone)) - 1, ZoneInfo(zone)).replace(tzinfo=None)
        anchor = last + timedelta(seconds=1) + timedelta(hours=chance.choice([-1, 0, 0, 0, 1]))
    else:
        anchor = datetime(1972, 1, 1) + timedelta(hours=chance.randrange(366 * 24))
    hour = anchor.hour if chance.random() < 0.6 else 0
    day = anchor.day if chance.random() < 0.8 else MONTHS_LONGEST[anchor.month - 1]
    return Calendar(unit, zone, anchor.month, day, anchor.isoweekday(), hour)


def some_instant(chance, calendar):
    """In microseconds: a whole second, or the last microsecond before it."""
    how = chance.random()
    at = chance.randrange(END)
    if how < 0.5 and changes(calendar.zone):
        reach = chance.choice([0, 0, 3, 3_600, 4 * 3_600, 26 * 3_600])
        at = chance.choice(changes(calendar.zone)) + chance.randint(-reach, reach)
    elif how < 0.7:
        at = chance.choice(period(calendar, at * 1_000_000)) + chance.choice([-1, 0, 0, 1])
    return max(min(at, END) * 1_000_000 - chance.choice([0, 1]), 0)


def some_cases(chance, count, zones):
    """Calendars with their cases, in the order of the instants."""
    asked = {}
    for _ in range(count // PER_CALENDAR):
        calendar = some_calendar(chance, zones)
        while calendar in asked:
            calendar = some_calendar(chance, zones)
        instants = set()
        while len(instants) < PER_CALENDAR:
            instants.add(some_instant(chance, calendar))
        asked[calendar] = [Case(at, *period(calendar, at)) for at in sorted(instants)]
    return asked


def base36(number):
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits or "0"


def write(path, asked, versions):
    """As `calendar_edges.rs` reads it."""
    with open(path, "w") as file:
        print(f"# {sum(map(len, asked.values()))} cases of seed {SEED}: {versions}", file=file)
        for calendar, cases in asked.items():
            tick = gcd(*(edge for case in cases for edge in (case.start, case.end)))
            print(base36(tick), words(calendar), file=file)
            last = 0
            for (start, end), same in groupby(cases, lambda case: (case.start, case.end)):
                offsets = []
                for case in same:
                    seconds = -(-case.at // 1_000_000)
                    offsets.append(base36(seconds - start) + ("-" if case.at % 1_000_000 else ""))
                print("", base36((start - last) // tick), base36((end - start) // tick), *offsets, file=file)
                last = start


def main():
    count, path, *recorded = sys.argv[1:]
    zones = sorted(zoneinfo.available_timezones())
    asked = some_cases(random.Random(SEED), int(count), zones)
    versions = f"tzdata {tzdata.IANA_VERSION}, dateutil {dateutil.__version__}, Python {sys.version.split()[0]}"
    cases = sum(map(len, asked.values()))
    of_zones = f"{len({calendar.zone for calendar in asked})} zones of {len(zones)}"
    print(f"Python: {cases} cases of {len(asked)} calendars in {of_zones}; {versions}")
    version, skipped, differing = postgres.differences(asked)
    print(f"{version}: {cases - skipped} cases asked, {skipped} not asked, {len(differing)} differences")
    for difference in differing[:40]:
        print("  ", *difference)
    if differing:
        sys.exit("PostgreSQL and Python differ. If their time zones are of other versions, list what was changed in postgres.py.")
    write(path, asked, f"{versions}; {version}")
    for path in recorded:
        write(path, dict(list(asked.items())[: len(asked) // 10]), f"{versions}; {version}")


if __name__ == "__main__":
    main()
