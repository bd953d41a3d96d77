"""A PostgreSQL server of its own in a temporary directory, and what it says of the cases."""

import csv
import glob
import os
import shutil
import subprocess
import sys
import tempfile
from datetime import datetime, timezone

HERE = os.path.dirname(os.path.abspath(__file__))

# PostgreSQL takes these names for abbreviations of one offset and does not look for the zone. It is asked for the zone that
# the database says is the same.
ABBREVIATIONS = {
    "CET": "Europe/Brussels",
    "EET": "Europe/Athens",
    "EST": "America/Panama",
    "GMT": "Etc/GMT",
    "HST": "Pacific/Honolulu",
    "MET": "Europe/Brussels",
    "MST": "America/Phoenix",
    "UCT": "Etc/UCT",
    "UTC": "Etc/UTC",
    "WET": "Europe/Lisbon",
    "Zulu": "Etc/Zulu",
}

# What the database says otherwise in 2026e, which jiff and Python have, than in 2025b, which PostgreSQL has: zones, and from
# when until when. PostgreSQL is not asked for periods that begin or end there, nor at instants that are there.
CHANGED = [
    # UTC+00 for good, in place of UTC+01 and UTC+00 in Ramadan.
    ("Africa/Casablanca Africa/El_Aaiun", "2026-09-18", "2101-01-01"),
    # The offset of summer for good.
    ("America/Edmonton America/Yellowknife America/Inuvik Canada/Mountain", "2026-10-30", "2101-01-01"),
    ("America/Vancouver Canada/Pacific", "2026-10-30", "2101-01-01"),
    ("America/Winnipeg America/Rainy_River Canada/Central", "2026-10-30", "2101-01-01"),
    # The hour at which summer time begins and ends.
    ("Europe/Chisinau Europe/Tiraspol", "2022-03-25", "2101-01-01"),
    # History that was corrected: summer time until 1975, and single changes.
    ("America/Tijuana America/Ensenada America/Santa_Isabel Mexico/BajaNorte", "1970-01-01", "1976-05-01"),
    ("America/Bogota", "1992-05-01", "1992-05-06"),
    ("Asia/Tehran Iran", "1979-05-24", "1979-05-30"),
]


def second(day):
    return int(datetime.fromisoformat(day).replace(tzinfo=timezone.utc).timestamp())


CHANGED_ZONES = {zone: (second(start), second(end)) for zones, start, end in CHANGED for zone in zones.split()}


def program(name):
    """From Debian's packages, which are not in the path, or from the path."""
    packaged = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"))
    found = packaged[-1] if packaged else shutil.which(name)
    return found or sys.exit(f"{name} is missing: install postgresql (as root, on Debian: apt-get install postgresql)")


def run(*command):
    # The server does not run as root.
    other = ["runuser", "-u", "nobody", "--"] if os.geteuid() == 0 else []
    done = subprocess.run([*other, *command], cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stdout}{done.stderr}")


def differences(asked):
    """What the server is and which zones it has, how many cases it was not asked, and the cases in which it differs."""
    with tempfile.TemporaryDirectory(prefix="tidegate-calendar-") as place:
        os.chmod(place, 0o777)
        data = os.path.join(place, "data")
        run(program("initdb"), "--pgdata", data, "--username", "tidegate", "--auth", "trust", "--no-sync", "--encoding", "UTF8")
        options = f"-F -c listen_addresses='' -c unix_socket_directories='{place}' -c shared_buffers=256MB"
        # Its log is a file: the server would keep a pipe open.
        run(program("pg_ctl"), "--pgdata", data, "--wait", "--log", os.path.join(place, "log"), "--options", options, "start")
        try:
            return compared(asked, place)
        finally:
            run(program("pg_ctl"), "--pgdata", data, "--wait", "--mode", "immediate", "stop")


def compared(asked, place):
    def psql(*arguments):
        command = [program("psql"), "--no-psqlrc", "--host", place, "--username", "tidegate", "--dbname", "postgres"]
        command += ["--quiet", "--no-align", "--tuples-only", "--set", "ON_ERROR_STOP=1", *arguments]
        return subprocess.run(command, cwd=place, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    def table(name, rows):
        with open(os.path.join(place, name), "w", newline="") as file:
            csv.writer(file).writerows(rows)

    def read(name):
        with open(os.path.join(place, name), newline="") as file:
            return list(csv.reader(file))

    abbreviations = set(psql("--command", "SELECT abbrev FROM pg_timezone_abbrevs").split())
    calendars, cases, skipped = [], [], 0
    for number, (calendar, its) in enumerate(asked.items()):
        zone = ABBREVIATIONS.get(calendar.zone, calendar.zone)
        if zone.upper() in abbreviations:
            sys.exit(f"{zone} is an abbreviation to PostgreSQL: name a zone that is the same")
        words = " ".join(map(str, calendar))
        calendars.append([number, words, calendar.unit, zone, calendar.month, calendar.day, calendar.weekday, calendar.hour])
        for case in its:
            if is_asked(calendar.zone, case):
                cases.append([number, *case])
            else:
                skipped += 1
    table("calendars.csv", calendars)
    table("cases.csv", cases)
    psql("--file", os.path.join(HERE, "edges.sql"))
    if read("counted.csv") != [[str(len(cases))]]:
        sys.exit(f"PostgreSQL answered {read('counted.csv')} of {len(cases)} cases")
    # Debian's goes by the zones of the system.
    zones = "SELECT pg_read_file('/usr/share/zoneinfo/tzdata.zi', 10, 5) FROM pg_config WHERE setting LIKE '%with-system-tzdata=%'"
    version = psql("--command", "SHOW server_version").split()[0]
    return f"PostgreSQL {version} with tzdata {psql('--command', zones) or 'of its own'}", skipped, read("differing.csv")


def is_asked(zone, case):
    first, last = CHANGED_ZONES.get(zone, (1, 0))
    return not any(first <= instant <= last for instant in (case.at // 1_000_000, case.start, case.end))
