"""Tests that the exporter gives the metrics that the alerts, the dashboard and docs/metrics.md name.

scripts/test-metrics.sh runs this file, with prometheus and prometheus-redis-exporter on PATH. It starts a server with the
module, the exporter with the script and the ACL user of docs/acl.md, and a Prometheus that scrapes it, all on free ports
of 127.0.0.1. They end with this process. It needs only Python's own library.
"""

import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ALERTS = ROOT / "contrib/prometheus/alerts.yml"
DASHBOARD = ROOT / "contrib/grafana/dsync.json"
SCRIPT = ROOT / "contrib/prometheus/dsync.lua"
SOON = 60  # seconds
SERIES = re.compile(r'^(\w+)(?:\{(.*)\})? (\S+)$', re.M)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def eventually(what, condition):
    """Waits until the condition is true, and returns its value. Fails with `what` if that does not happen soon."""
    until = time.monotonic() + SOON
    problem = None
    while time.monotonic() < until:
        try:
            if value := condition():
                return value
        except OSError as error:
            problem = error
        time.sleep(0.05)
    raise AssertionError(f"not within {SOON} s: {what} ({problem})")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(stack, name, directory, command):
    """Starts a program that ends with the stack. Its output goes to a file, which is printed if the tests fail."""
    log = open(directory / f"{name}.log", "wb")
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=directory)

    def end():
        process.kill()
        process.wait()
        log.close()

    stack.callback(end)
    return process


class Client:
    """Sends commands to the server as lines, and reads replies in RESP2."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.replies = self.socket.makefile("rb")

    def send(self, line):
        self.socket.sendall(line.encode() + b"\r\n")

    def call(self, line):
        self.send(line)
        return self.reply()

    def reply(self):
        kind, rest = (line := self.replies.readline())[:1], line[1:].strip().decode()
        if kind == b"$":
            return None if rest == "-1" else self.replies.read(int(rest) + 2)[:-2].decode()
        if kind == b"*":
            return None if rest == "-1" else [self.reply() for _ in range(int(rest))]
        return int(rest) if kind == b":" else rest

    def metrics(self):
        """The fields of INFO dsync that are numbers."""
        fields = dict(line.split(":", 1) for line in self.call("INFO dsync").splitlines() if ":" in line)
        return {name: int(value) for name, value in fields.items() if value.isdigit()}


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def series(text):
    """(name, labels, value) of each series of a scrape."""
    found = []
    for name, labels, value in SERIES.findall(text):
        found.append((name, dict(LABEL.findall(labels)), float(value)))
    return found


def exporter_acl():
    """The rules of the ready-made user, for any server."""
    page = (ROOT / "docs/acl.md").read_text(encoding="utf-8")
    chapter = page.split("## Any server")[1]
    return re.search(r"^user (exporter .*)$", chapter, re.M).group(1)


def expressions():
    """The dashboard's expressions by panel, with values in place of its variables."""
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    names = {"$job": ".*", "$instance": ".*", "$__rate_interval": "20s"}
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            expression = target["expr"]
            for name, value in names.items():
                expression = expression.replace(name, value)
            yield panel["title"], expression


def alert_expressions():
    """The text of alerts.yml without its comments; promtool has checked it."""
    lines = ALERTS.read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("#"))


def check_names(scrape):
    """Each series that the alerts and the dashboard select is one that the exporter gives."""
    texts = [expression for _, expression in expressions()] + [alert_expressions()]
    selectors = set(itertools.chain.from_iterable(re.findall(r"\b(redis_\w+)(\{[^}]*\})?", text) for text in texts))
    assert len(selectors) > 15, selectors
    for name, labels in selectors:
        wanted = re.findall(r'(\w+)(=~?)"([^"]*)"', labels)
        wanted = [(label, kind, value) for label, kind, value in wanted if label not in ("job", "instance")]

        def fits(found):
            return all(
                re.fullmatch(value, found.get(label, "")) if kind == "=~" else found.get(label) == value
                for label, kind, value in wanted
            )

        assert any(name == given and fits(found) for given, found, _ in scrape), f"the exporter gives no {name}{labels}"


def check_dashboard():
    """Panels have their own numbers and titles, lie side by side, say what they show, and have units."""
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert place["x"] + place["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
        if panel["type"] != "row":
            assert panel["description"] and panel["targets"] and panel["fieldConfig"]["defaults"]["unit"], panel["title"]


def check_runbooks():
    """Each alert has a chapter in docs/alerts.md, and each such chapter an alert."""
    page = (ROOT / "docs/alerts.md").read_text(encoding="utf-8")
    chapters = {f"docs/alerts.md#{title.lower()}" for title in re.findall(r"^## (Dsync\w+)$", page, re.M)}
    text = ALERTS.read_text(encoding="utf-8")
    runbooks = re.findall(r"runbook_url: (\S+)", text)
    assert set(runbooks) == chapters and len(runbooks) == text.count("- alert:"), chapters ^ set(runbooks)


def check_page(fields):
    """docs/metrics.md has every field."""
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    for name in fields:
        short = re.sub(r"^dsync_(lock|sem|wg|once)_", "_", name)
        short = re.sub(r"^dsync_wait_le_\d+_ms$", "dsync_wait_le_<n>_ms", short)
        assert f"{short}`" in page, f"docs/metrics.md does not name {name}"


def is_between(before, value, after):
    """Whether the exporter's value fits to what INFO said before and after; the exporter rounds large numbers."""
    return min(before, after) * (1 - 1e-9) <= value <= max(before, after) * (1 + 1e-9)


def make_things_happen(port, admin, stack):
    """Makes holds, lapses, waiters and refusals of several kinds."""
    holder, waiter = Client(port), Client(port)
    stack.callback(holder.socket.close)
    stack.callback(waiter.socket.close)
    for line in ("DLOCK.ACQUIRE held EX 600", "DSEM.ACQUIRE sem LIMIT 2 EX 600", "DWG.ADD group EX 600",
                 "DONCE.BEGIN once EX 600", "DLOCK.ACQUIRE short PX 1", "DSEM.ACQUIRE sem LIMIT 3 EX 600"):
        assert isinstance(holder.call(line), list), line
    eventually("a lapse", lambda: admin.metrics()["dsync_lock_lapsed_unrenewed"] == 1)
    waiter.send("DLOCK.ACQUIRE held BLOCK 0")
    eventually("a waiter", lambda: admin.metrics()["dsync_waiters"] == 1)
    assert admin.call("CONFIG SET dsync.max-waiters-per-key 1") == "OK"
    assert "QUEUEFULL" in holder.call("DLOCK.ACQUIRE held BLOCK 1000")


def check_scrape(url, admin):
    before = admin.metrics()
    scrape = series(get(url))
    after = admin.metrics()
    given = {labels["key"]: value for name, labels, value in scrape if name == "redis_script_values"}
    assert given.keys() == before.keys(), given.keys() ^ before.keys()
    for name, value in given.items():
        assert is_between(before[name], value, after[name]), (name, before[name], value, after[name])
    check_names(scrape)
    check_page(before)


def check_bad_times(url, admin):
    """The metrics are there when the server pauses writes, has no memory, or is a replica that has lost its primary."""
    for begin, end in (
        ("CLIENT PAUSE 600000 WRITE", "CLIENT UNPAUSE"),
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
    ):
        assert admin.call("CONFIG SET replica-serve-stale-data no") == "OK"
        assert admin.call(begin) == "OK"
        assert 'redis_script_values{key="dsync_waiters"}' in get(url), begin
        assert admin.call(end) == "OK"


def check_prometheus(stack, directory, exporter_port):
    """Prometheus evaluates every expression of the dashboard to something, and every alert without an error."""
    port = free_port()
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [{"job_name": "redis", "static_configs": [{"targets": [f"127.0.0.1:{exporter_port}"]}]}],
    }
    # JSON is YAML.
    (directory / "prometheus.yml").write_text(json.dumps(config))
    start(stack, "prometheus", directory, [
        "prometheus", f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
    ])

    def query(expression):
        words = urllib.parse.urlencode({"query": expression})
        try:
            return json.loads(get(f"http://127.0.0.1:{port}/api/v1/query?{words}"))["data"]["result"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expression}: {error.read().decode()}") from error

    eventually("a Prometheus", lambda: get(f"http://127.0.0.1:{port}/-/ready"))
    for title, expression in expressions():
        eventually(f"a value for {title!r}: {expression}", lambda: query(expression))
    eventually("the alert of a refused request", lambda: query('ALERTS{alertname="DsyncQueueFull",alertstate="firing"}'))
    rules = json.loads(get(f"http://127.0.0.1:{port}/api/v1/rules"))["data"]["groups"][0]["rules"]
    assert all(rule["health"] == "ok" for rule in rules), rules
    firing = [rule["name"] for rule in rules if rule["state"] == "firing"]
    assert firing == ["DsyncQueueFull"], firing


def main():
    check_dashboard()
    check_runbooks()
    directory = Path(tempfile.mkdtemp(prefix="dsync-metrics-"))
    try:
        with ExitStack() as stack:
            port, exporter_port = free_port(), free_port()
            start(stack, "server", directory, [
                os.environ["DSYNC_TEST_SERVER"], "--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory),
                "--save", "", "--loadmodule", os.environ["DSYNC_TEST_MODULE"],
            ])
            admin = eventually("a server", lambda: Client(port))
            stack.callback(admin.socket.close)
            assert admin.call(f"ACL SETUSER {exporter_acl()}") == "OK"
            start(stack, "exporter", directory, [
                "prometheus-redis-exporter", "-redis.addr", f"redis://127.0.0.1:{port}", "-redis.user", "exporter",
                "-redis.password", "change-me", "-web.listen-address", f"127.0.0.1:{exporter_port}",
                "-script", str(SCRIPT), "-include-config-metrics",
            ])
            url = f"http://127.0.0.1:{exporter_port}/metrics"
            eventually("an exporter", lambda: "redis_up 1" in get(url))
            make_things_happen(port, admin, stack)
            check_scrape(url, admin)
            check_prometheus(stack, directory, exporter_port)
            refusals = [row for row in admin.call("ACL LOG") if "exporter" in row]
            assert not refusals, f"the exporter's user lacks a permission: {refusals}"
            check_bad_times(url, admin)
    except BaseException:
        for log in sorted(directory.glob("*.log")):
            print(f"--- {log.name}", log.read_text(errors="replace")[-3000:], sep="\n")
        raise
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print("dsync: the exporter gives every metric that the alerts, the dashboard and docs/metrics.md name.")


if __name__ == "__main__":
    main()
