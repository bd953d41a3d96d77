"""The server across edges of the calendar, under clocks of its own (`shifted.c`).

For each edge the clock of the whole scene starts three seconds before it. Four clients ask as fast as they are answered
until some seconds after it. Exactly the limit passes before the edge and exactly the limit after it: in memory, and on
Redis, where two servers are asked whose clocks are a second ahead and a second behind that of Redis.

    python clocks.py TIDEGATE REDIS-SERVER
"""

import datetime
import http.client
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time

LIMIT = 40
BEFORE, AFTER = 3.0, 3.0

# A limit, and an edge of it in UTC.
EDGES = [
    ("day in Europe/Berlin", "2026-03-28 23:00:00", "the day that has 23 hours begins"),
    ("day in Europe/Berlin", "2026-03-29 22:00:00", "and ends"),
    ("hour in Europe/Berlin", "2026-03-29 01:00:00", "clocks are put forward"),
    ("day in Europe/Berlin", "2026-10-24 22:00:00", "the day that has 25 hours begins"),
    ("hour in Europe/Berlin", "2026-10-25 00:00:00", "the hour that comes twice begins"),
    ("hour in Europe/Berlin", "2026-10-25 02:00:00", "and ends"),
    ("day in Europe/Berlin", "2026-10-25 23:00:00", "the day that has 25 hours ends"),
    ("month in Europe/Berlin from day 31", "2028-02-28 23:00:00", "29 February stands for the 31st"),
    ("day in America/New_York", "2028-02-29 05:00:00", "29 February begins"),
    ("day in America/New_York", "2028-03-01 05:00:00", "and ends"),
]


def library(folder):
    """The clock that processes preload."""
    built = f"{folder}/shifted.so"
    source = pathlib.Path(__file__).with_name("shifted.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", built, source], check=True)
    return built


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Scene:
    """Processes that believe in a time, and end with the scene."""

    def __init__(self, edge):
        self.edge = datetime.datetime.fromisoformat(f"{edge}+00:00")
        self.folder = tempfile.TemporaryDirectory()
        self.library = library(self.folder.name)
        self.processes = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()
        self.folder.cleanup()

    def start(self, command, starts_at):
        """Starts a process whose clock is so many seconds from the edge."""
        told = self.edge + datetime.timedelta(seconds=starts_at)
        shift = told - datetime.datetime.now(datetime.timezone.utc)
        clock = {"LD_PRELOAD": self.library, "SHIFTED": str(shift // datetime.timedelta(microseconds=1))}
        log = open(pathlib.Path(self.folder.name) / f"{len(self.processes)}.log", "w")
        self.processes.append(subprocess.Popen(command, env={**os.environ, **clock}, stdout=log, stderr=log))

    def serve(self, program, policy, starts_at, store):
        port = free_port()
        command = [program, "serve", "--http", f"127.0.0.1:{port}", "--policy", policy, *store]
        self.start(command, starts_at)
        return port

    def redis(self, program, starts_at):
        port = free_port()
        command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self.start([*command, "--dir", self.folder.name], starts_at)
        return port


def until_it_answers(port, path):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if path is None:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", path)
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.02)
    sys.exit(f"no answer on port {port}")


def ask(port, end, admitted, refused, failed):
    """Asks until the end, and notes when a request passed, was refused, or got no answer of the store."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    body = json.dumps({"attributes": {"user": "alice"}})
    while time.monotonic() < end:
        connection.request("POST", "/v1/check", body, {"content-type": "application/json"})
        response = connection.getresponse()
        response.read()
        if response.status == 200:
            admitted.append(time.monotonic())
        elif response.status == 429:
            refused.append(time.monotonic())
        else:
            failed.append(response.status)
    connection.close()


def cross(program, redis_server, words, edge, on_redis):
    with Scene(edge) as scene:
        policy = pathlib.Path(scene.folder.name) / "policy.toml"
        policy.write_text(f'[rules.quota]\nlimit = "{LIMIT}/{words}"\nkey = ["user"]\n')
        began = time.monotonic()
        passed = lambda: time.monotonic() - began
        if on_redis:
            port = scene.redis(redis_server, -BEFORE)
            until_it_answers(port, None)
            store = ["--store", f"redis://127.0.0.1:{port}"]
            ports = [scene.serve(program, policy, passed() - BEFORE + ahead, store) for ahead in (1, -1)]
        else:
            ports = [scene.serve(program, policy, -BEFORE, [])]
        for port in ports:
            until_it_answers(port, "/readyz")
        ready = passed()
        if ready > BEFORE - 0.5:
            return None
        admitted, refused, failed = [], [], []
        end = began + BEFORE + AFTER
        clients = [threading.Thread(target=ask, args=(ports[number % len(ports)], end, admitted, refused, failed))
                   for number in range(4)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        # On a busy machine an answer of the store may be too late: its charge may have been made.
        if failed:
            return None
        # By the clock of the scene, give or take what starting a process takes.
        crossed = [moment for moment in sorted(admitted) if moment > began + BEFORE - 1]
        before = len(admitted) - len(crossed)
        return before, len(crossed), len(refused)


def main(program, redis_server):
    failures = 0
    for words, edge, what in EDGES:
        for on_redis in (False, True):
            result = None
            for attempt in range(5):
                result = cross(program, redis_server, words, edge, on_redis)
                if result is not None:
                    break
            where = "Redis, two servers" if on_redis else "memory"
            if result is None:
                failures += 1
                print(f"NOT SEEN  {words:36} {edge}  {where}: the machine is too busy")
                continue
            before, after, refused = result
            well = (before, after) == (LIMIT, LIMIT) and refused > 0
            failures += not well
            print(f"{'exact' if well else 'WRONG':8}  {words:36} {edge}  {where:18} {before} before, {after} after, "
                  f"{refused} refused ({what})", flush=True)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
