"Kill it: the process, the server, either of two runners, at moments nobody chose. What is left, continued, equals a run that nobody disturbed."
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

import reveal_kit
from reveal_kit.records import steady
from reveal_kit import zoo
from reveal_kit.results import open_run
from tests.chat_server import ChatServer
from tests.media import make, picture

KILLS, WORKERS, CALLS = 20, 2, 3
SERVER = Path(__file__).with_name("chat_server.py")
KIT = Path(reveal_kit.__file__).parent

AGENT = '''
from reveal_kit.core import Answer, Trace
class Talks:
    "Three calls, each about the reply to the one before."
    def __init__(self, kit): self.chat = kit.chat
    def answer(self, q):
        t, said = Trace(), str(q)
        for i in range(3): said = self.chat.ask("answerer", [dict(role="user", content=f"{q.id} {i}: {said}")], question=q.id, trace=t).text
        t.add("end", rounds=3, sufficient=len(said) % 2 == 0, rho=0.5)
        return Answer(q.id, q.letters[len(said) % 4], said, trace=t)
'''
RUNNER = '''
import sys
from reveal_kit.core import InputError
from reveal_kit.runs import evaluate
try: evaluate(sys.argv[4], "mini", sys.argv[1], runs_dir=sys.argv[2], workers=int(sys.argv[3]))
except InputError as e: sys.exit(f"reveal: {e}")
'''
PROFILE = 'extends = "mini"\nname = "kill"\n[roles.default]\nengine = "openai"\nmodel = "test-model"\nbase_url = "{url}"\n'


@pytest.fixture(scope="module")
def kit(tmp_path_factory):
    "A copy of the kit and of the mini benchmark's questions: a run's name depends on its code, which must not change under a test."
    base = tmp_path_factory.mktemp("kit"); mini = base / "data" / "mini"; (mini / "videos").mkdir(parents=True)
    shutil.copytree(KIT, base / "reveal_kit", ignore=shutil.ignore_patterns("__pycache__", "*.png"))
    for f in ("questions.jsonl", "oracle.jsonl"): shutil.copy(KIT.parent / "data" / "mini" / f, mini / f)
    for v in {json.loads(l)["video"] for l in (mini / "questions.jsonl").open()}: (mini / "videos" / f"{v}.mp4").write_bytes(b"never opened")
    return base


class Place:
    "A folder with an agent, a home and runs of its own."
    def __init__(self, path, url, kit, agent="talks:Talks"):
        self.path, self.home, self.runs, self.kit, self.agent = path, path / "home", path / "runs", kit, agent; self.home.mkdir(parents=True)
        (path / "talks.py").write_text(AGENT); (path / "kill.toml").write_text(PROFILE.format(url=url))
    def start(self, workers=WORKERS):
        env = os.environ | dict(REVEAL_HOME=str(self.home), PYTHONPATH=os.pathsep.join([str(self.path), str(self.kit)]))
        return subprocess.Popen([sys.executable, "-c", RUNNER, str(self.path / "kill.toml"), str(self.runs), str(workers), self.agent], cwd=self.path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    def finish(self, **how):
        with self.start(**how) as p: out, err = p.communicate(timeout=300)
        assert p.returncode == 0, err
        return self.run
    @property
    def run(self): return open_run(next(self.runs.glob("[0-9a-f]*")))
    def calls(self):
        "The call log without seconds."
        with sqlite3.connect(f"file:{self.home / 'calls' / 'kill.sqlite'}?mode=ro", uri=True) as db: return sorted(db.execute("SELECT key, role, question, request, reply FROM calls"))
    def files(self): return sorted(p.relative_to(self.path).as_posix() for base in (self.home, self.runs) for p in base.rglob("*") if p.is_file() and ".locks" not in p.parts)
    def traces(self):
        out = {p.name: json.loads(p.read_text()) for p in self.run.folder.glob("traces/*.json")}
        return {k: dict(events=t["events"], usage={u: n for u, n in t["usage"].items() if not u.startswith(("replayed", "retried"))}) for k, t in out.items()}
    def told(self): return list(map(steady, self.run.records())), self.calls(), self.files(), self.traces(), self.run.settings


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, kit):
    with ChatServer(keep=False) as s:
        place = Place(tmp_path_factory.mktemp("undisturbed"), s.url, kit); run = place.finish(workers=1)
    place.n = len(run.questions); assert len(run.records()) == place.n >= 40 and s.count == CALLS * place.n == len(place.calls()) and run.missing == []
    return place


def same(a: Place, b: Place):
    for x, y in zip(a.told(), b.told(), strict=True): assert x == y


def until(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.002)


def test_twenty_kills(undisturbed, kit, tmp_path):
    "Moments are drawn in requests seen by the server, so that they fall into the run on a machine of any speed."
    rng, n = random.Random(20), undisturbed.n
    with ChatServer(latency=0.01, keep=False) as s:
        place = Place(tmp_path, s.url, kit); done = []
        for kill in range(KILLS):
            p, at = place.start(), s.count + rng.randint(0, 2 * CALLS * n // (KILLS + 2))
            until(lambda: s.count >= at or p.poll() is not None); time.sleep(rng.uniform(0, 0.015))
            done.append(p.poll() is None); p.kill(); p.communicate()
            if (folders := list(place.runs.glob("[0-9a-f]*"))) and (folders[0] / "run.json").exists():
                kept = open_run(folders[0]).records(); assert all(r["error"] is None for r in kept)                          # what stands there is whole
        before = s.count; run = place.finish(); until(lambda: s.open == 0)
    assert sum(done) >= 15, done                                                # most kills hit a run that was under way
    assert s.count <= CALLS * n + KILLS * WORKERS and before < CALLS * n + KILLS * WORKERS
    assert run.missing == run.aside == [] and not list(tmp_path.rglob("*.tmp"))
    same(place, undisturbed)
    print(f"{sum(done)} kills, {s.count - CALLS * n} of {CALLS * n} requests answered twice")


def test_an_interrupted_run_ends_at_once_and_continues(undisturbed, kit, tmp_path):
    with ChatServer(latency=0.02, keep=False) as s:
        place = Place(tmp_path, s.url, kit); p = place.start(); until(lambda: s.count > 20); p.send_signal(signal.SIGINT); t0 = time.monotonic(); p.communicate(timeout=30)
        assert p.returncode not in (0, None) and time.monotonic() - t0 < 10 and 0 < len(place.run.done) < len(place.run.questions)
        place.finish()
    same(place, undisturbed)


def serve(port=0):
    p = subprocess.Popen([sys.executable, str(SERVER), "--port", str(port), "--latency", "0.005"], stdout=subprocess.PIPE, text=True); return p, p.stdout.readline().strip()

@pytest.mark.parametrize("comes_back", [True, False], ids=["it comes back", "it stays away"])
def test_the_server_is_killed(undisturbed, kit, tmp_path, comes_back):
    "A server that is back in time costs nothing; one that stays away stops the run, and no question is blamed for it."
    server, url = serve(); servers, place = [server], Place(tmp_path, url, kit)
    try:
        p = place.start(workers=3); until(lambda: list(place.runs.glob("*/records.jsonl")) and len(place.run.done) >= 7); server.kill(); server.wait()
        if comes_back: servers.append(serve(url.rsplit(":", 1)[1].split("/")[0])[0])
        err = p.communicate(timeout=120)[1]; assert p.returncode == (0 if comes_back else 1), err
        if not comes_back:
            assert "connection refused" in err and "questions in a row could not be asked, so the run stopped; the same command continues" in err and err.count("\n") == 1
            assert 7 <= len(place.run.done) < undisturbed.n and all(r["tries"] == 0 for r in place.run.records()) and len(place.run.failed) >= 3
            servers.append(serve(url.rsplit(":", 1)[1].split("/")[0])[0]); place.finish()
    finally:
        for s in servers: s.kill(); s.wait(); s.stdout.close()
    assert place.run.aside == []; same(place, undisturbed)


def test_the_disk_is_full_again_and_again(undisturbed, kit, tmp_path):
    "A real file system under home and runs, a little larger each time: every stop is one line, and the end is that of a run with room."
    disk, size, stops = tmp_path / "disk", 100, 0; disk.mkdir()
    def mount(how): return subprocess.run(["mount", "-t", "tmpfs", "-o", f"{how}size={size}k", "tmpfs", str(disk)], capture_output=True).returncode
    if os.geteuid() or mount(""): pytest.skip("no file system can be mounted here")
    try:
        with ChatServer(keep=False) as s:
            place = Place(disk / "p", s.url, kit)
            while True:
                with place.start() as p: out, err = p.communicate(timeout=300)
                if p.returncode == 0: break
                assert p.returncode == 1 and err.count("\n") == 1 and ("No space left on device" in err or "disk is full" in err), err
                assert not [f for f in place.files() if f.endswith(".tmp")]
                stops, size = stops + 1, size + 360; assert size < 20_000 and mount("remount,") == 0
        assert stops >= 8 and s.count <= CALLS * undisturbed.n + stops * WORKERS and place.run.aside == []
        same(place, undisturbed); print(f"{stops} stops, {s.count - CALLS * undisturbed.n} of {CALLS * undisturbed.n} requests answered twice")
    finally: subprocess.run(["umount", str(disk)], check=True)


def test_two_runners_on_one_folder(undisturbed, kit, tmp_path):
    "Started at the same moment: one works, the other refuses; killed, the lock dies with its process."
    n = undisturbed.n
    with ChatServer(latency=0.01, keep=False) as s:
        place = Place(tmp_path, s.url, kit); two = [place.start(), place.start()]
        until(lambda: any(p.poll() is not None for p in two)); loser, winner = sorted(two, key=lambda p: p.poll() is None)
        assert loser.returncode == 1 and "another process is filling this run" in loser.communicate()[1] and winner.poll() is None
        winner.kill(); winner.communicate(); place.finish()
    assert s.count <= CALLS * n + WORKERS; same(place, undisturbed)


@pytest.fixture(scope="module")
def films(tmp_path_factory, kit):
    "The same kit with four real films, ten seconds each, and three questions about each: now there is something to build."
    base = tmp_path_factory.mktemp("films"); mini = base / "data" / "mini"; (mini / "subtitles").mkdir(parents=True); shutil.copytree(kit / "reveal_kit", base / "reveal_kit"); left = {f"day{d}": 3 for d in (4, 5, 6, 7)}; asked = set()
    for q in map(json.loads, (kit / "data/mini/questions.jsonl").open()):
        if left.get(q["video"], 0): left[q["video"]] -= 1; asked.add(q["id"])
    for f in ("questions.jsonl", "oracle.jsonl"): (mini / f).write_text("".join(l for l in (kit / "data/mini" / f).open() if json.loads(l)["id"] in asked))
    for i, v in enumerate(left):
        make(mini / "videos" / f"{v}.mp4", seconds=10, draw=lambda n, size, i=i: picture(n // 40 + 10 * i, size))
        (mini / "subtitles" / f"{v}.srt").write_text("".join(f"{k}\n00:00:0{2 * k},000 --> 00:00:0{2 * k + 1},000\nFerry {i} brings {k} crates.\n\n" for k in range(1, 4)))
    return base


def test_kills_while_memories_are_built(films, tmp_path, minilm):
    "Retrieval needs a memory of every video, and the next ones are built ahead in a thread: moments are drawn in files written and requests seen."
    kept = lambda place: {f: (place.path / f).read_bytes() for f in place.files() if f.startswith("home/") and not f.startswith("home/calls/")}
    def place_at(path, url): place = Place(path, url, films, "retrieval"); (place.home / "models").symlink_to(zoo.folder("minilm-int8").resolve().parent); return place
    with ChatServer(keep=False) as s: whole = place_at(tmp_path / "whole", s.url); run = whole.finish(workers=1); n = s.count
    assert len(run.done) == n == 12 and {k for r in run.records() for k in r["memory"]} and len(kept(whole)) > 20
    rng, did = random.Random(6), lambda: len(place.files()) + s.count
    with ChatServer(latency=0.02, keep=False) as s:
        place, hit = place_at(tmp_path / "torn", s.url), 0; total = len(whole.files()) + n
        for kill in range(6):
            p, at = place.start(), did() + rng.randint(1, total // 4)
            until(lambda: did() >= at or p.poll() is not None); time.sleep(rng.uniform(0, 0.05)); hit += p.poll() is None; p.kill(); p.communicate()
        run = place.finish(); until(lambda: s.open == 0)
        assert hit >= 3 and run.missing == run.aside == [] and s.count <= n + 6 * WORKERS and not list(tmp_path.rglob("*.tmp"))
    same(place, whole); assert kept(place) == kept(whole), "what was built differs"
