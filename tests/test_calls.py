"The call log: keys, misses, concurrency, export; whatever can go wrong with the file."
import gzip
import hashlib
import multiprocessing as mp
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
import pytest
from hypothesis import given, settings, strategies as st
from reveal_kit import calls as C
from reveal_kit.calls import Call, CallLog, ReplayMiss, as_request, differences, key_of, pack, unpack
from reveal_kit.core import InputError

def req(text="When?", model="m", **kw): return as_request(model, [dict(role="system", content="You read."), dict(role="user", content=text)], **{"sampling": dict(temperature=0.0, max_tokens=64), **kw})
def call(text="When?", reply="at ten", role="answerer", question="q1", seconds=0.5, tokens=(), **kw): r = req(text, **kw); return Call(key_of(r), reply, "stop", dict(prompt=9, cached=4, completion=2), seconds, role, question, tokens, C.canonical(r))
def says(reply="at ten"): return lambda: Call("", reply, usage=dict(prompt=9, cached=0, completion=2), seconds=0.1)

# ---------------------------------------------------------------- keys

def test_the_key_is_the_hash_of_the_canonical_request():
    "Worked out by hand, so that nothing changes the keys of recorded runs unnoticed."
    text = ('{"messages":[{"content":"You read.","role":"system"},{"content":"When?","role":"user"}],"model":"m","repeat":0,'
            '"sampling":{"max_tokens":64,"temperature":0.0},"schema":"{\\"type\\":\\"object\\"}","weights":"w1"}')
    assert key_of(req(weights="w1", schema={"type": "object"})) == hashlib.sha256(text.encode()).hexdigest()

def test_every_part_changes_the_key_and_is_named():
    base = req(schema={"type": "object"})
    others = {"model": req(model="n", schema={"type": "object"}), "weights": req(weights="x", schema={"type": "object"}), "repeat": req(repeat=1, schema={"type": "object"}),
              "schema": req(schema={"type": "array"}), "sampling.temperature": req(sampling=dict(temperature=0.5, max_tokens=64), schema={"type": "object"}),
              "sampling.seed": req(sampling=dict(temperature=0.0, max_tokens=64, seed=1), schema={"type": "object"}), "message 2": req("When? ", schema={"type": "object"})}
    assert len({key_of(r) for r in (base, *others.values())}) == 8
    for part, r in others.items():
        d = differences(base, r); assert len(d) == 1 and d[0][0].startswith(part), (part, d)

def test_the_order_of_schema_fields_is_part_of_the_question(): # a model writes fields in this order
    a, b = ({"properties": {k: {} for k in ks}} for ks in ("xy", "yx"))
    assert key_of(req(schema=a)) != key_of(req(schema=b))

def test_images_are_keyed_by_content():
    import base64
    part = lambda raw: dict(type="image_url", image_url=dict(url="data:image/jpeg;base64," + base64.b64encode(raw).decode(), detail="low"))
    ask = lambda raw: as_request("m", [dict(role="user", content=[dict(type="text", text="look"), part(raw)])])
    a = ask(b"one"); assert a["messages"][0]["content"][1] == dict(type="image", sha256=hashlib.sha256(b"one").hexdigest())
    assert key_of(a) == key_of(ask(b"one")) != key_of(ask(b"two")) and "at character" in differences(a, ask(b"two"))[0][0]
    for url in ("http://x/y.jpg", "file:///etc/passwd", "data:image/png;base64,@@@", "data:text/plain;base64,AAAA"):
        with pytest.raises(InputError): as_request("m", [dict(role="user", content=[dict(type="image_url", image_url=dict(url=url))])])

text = st.text(st.characters(exclude_categories=()), max_size=40) | st.sampled_from(["a\nb\r\n", "\u2028x\x0b", "\ud800", "\ud83d\ude00", "\0", "é" * 3])
message = st.fixed_dictionaries(dict(role=st.sampled_from(["system", "user"]), content=text | st.lists(st.fixed_dictionaries(dict(type=st.just("text"), text=text)) | st.just(dict(type="image_url", image_url=dict(url="data:image/png;base64,AAAA"))), max_size=3)))
requests = st.builds(lambda m, ms, s, k: as_request(m, ms, schema=s, sampling=dict(temperature=0.0, extra={"k": k})), text.map(C.sound), st.lists(message, max_size=4), st.none() | st.just({"type": "object"}), text.map(C.sound))
token = st.tuples(text.map(C.sound), st.floats(-20, 0).map(lambda x: round(x, 5)), st.lists(st.tuples(text.map(C.sound), st.just(-1.5)), max_size=2).map(tuple))
calls_ = st.lists(st.builds(lambda r, t, f, q, tk: Call(key_of(r), t, f, dict(prompt=1, cached=0, completion=1), 0.25, "r", q, tuple(tk), C.canonical(r)), requests, text.map(C.sound), st.sampled_from(["stop", "length"]), text.map(C.sound), st.lists(token, max_size=2)), max_size=5, unique_by=lambda c: c.key)

@given(requests, requests)
def test_requests_are_equal_exactly_when_nothing_differs(a, b):
    assert (key_of(a) == key_of(b)) == (differences(a, b) == []) and differences(a, a) == []

@settings(max_examples=60)
@given(calls_, st.randoms())
def test_whatever_is_recorded_comes_back_from_the_file_and_from_the_table(calls, rng):
    by = lambda cs: sorted(cs, key=lambda c: c.key)
    data = pack(calls); back = unpack(data); mixed = calls[:]; rng.shuffle(mixed)
    assert by(back) == by(calls) and [c.request for c in by(back)] == [c.request for c in by(calls)]
    assert pack(mixed) == data == pack(back)
    rows = C.Rows(); [rows.put(c) for c in calls]
    assert by(rows.all()) == by(calls) and all(rows.get(c.key) == c for c in calls)

# ---------------------------------------------------------------- modes and misses

def test_modes(tmp_path):
    auto = CallLog(tmp_path / "a.sqlite")
    assert auto.fetch(req(), says("one"))[1] is False and [auto.fetch(req(), says("two")) for _ in range(2)][1][0].text == "one"
    live = CallLog(tmp_path / "a.sqlite", "live"); call, replayed = live.fetch(req(), says("three"))
    assert (call.text, replayed) == ("three", False) and auto.fetch(req(), says())[0].text == "three" and len(auto) == 1
    replay = CallLog(tmp_path / "a.sqlite", "replay")
    assert replay.fetch(req(), None)[0].text == "three"
    with pytest.raises(ReplayMiss): replay.fetch(req("other"), None)
    with pytest.raises(InputError, match="'now'"): CallLog(mode="now")

def test_a_miss_names_the_nearest_call_of_the_role_and_the_first_difference():
    log = CallLog(mode="replay"); long = "Evidence: " + "the ferry leaves at ten. " * 30
    for c in (call(long + "Answer.", question="q1"), call(long + "Answer.", question="q2", role="planner"), call("something else", question="q1"), call(long + "Answer with a lett", question="q3")): log.rows.put(c)
    with pytest.raises(ReplayMiss) as e: log.fetch(req(long + "Answer with a letter."), None, "answerer", "q1")
    part, old, new = e.value.parts[0]
    assert part == f"message 2 (user) at character {len(long) + 6}" and old.endswith("Answer.") and new.endswith("Answer with a letter.") and part in str(e.value) and "\n" not in str(e.value)
    with pytest.raises(ReplayMiss) as e: log.fetch(req(long + "Answer.", sampling=dict(temperature=0.0, max_tokens=99)), None, "answerer", "q1")
    assert e.value.parts == (("sampling.max_tokens", "64", "99"),)
    with pytest.raises(ReplayMiss, match="no call of role router"): log.fetch(req(), None, "router", "q1")
    with pytest.raises(ReplayMiss) as e: log.fetch(req(long + "Answer with a letter", model="n"), None, "answerer", "new")
    assert e.value.parts[0] == ("model", '"m"', '"n"') and "(question q3)" in str(e.value)

def test_a_miss_among_thousands_is_quick():
    rows = C.Rows(); rng = random.Random(1)
    rows.run("INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?)", [C._row(call(" ".join(rng.choices(["ferry", "harbour", "ten"], k=900)) + str(i))) for i in range(2000)], many=True)
    log = CallLog(mode="replay"); log.rows = rows; t = time.process_time()     # of this process: others share the machine
    with pytest.raises(ReplayMiss): log.fetch(req("no"), None, "answerer", "q1")
    assert time.process_time() - t < 3

# ---------------------------------------------------------------- many at once

def test_the_same_request_in_flight_is_asked_once():
    log, asked, gate = CallLog(), [], threading.Event()
    def slow(): asked.append(1); gate.wait(60); return says()()
    with ThreadPoolExecutor(16) as pool:
        jobs = [pool.submit(log.fetch, req(), slow, "r") for _ in range(16)]
        time.sleep(1); gate.set(); got = [j.result(60) for j in jobs]
    assert len(asked) == 1 and {c.text for c, _ in got} == {"at ten"} and sum(not replayed for _, replayed in got) == 1

def test_an_error_reaches_all_who_wait_and_is_not_recorded():
    log, asked, gate = CallLog(), [], threading.Event()
    def fails(): asked.append(1); gate.wait(60); raise InputError("the server is gone")
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(log.fetch, req(), fails, "r") for _ in range(4)]; time.sleep(1); gate.set()
        for j in jobs:
            with pytest.raises(InputError, match="gone"): j.result(60)
    assert len(asked) == 1 and len(log) == 0 and log.fetch(req(), says())[0].text == "at ten"

def test_who_waits_for_an_interrupted_thread_asks_himself():
    log, entered, gate = CallLog(), threading.Event(), threading.Event()
    def stopped(): entered.set(); gate.wait(60); raise KeyboardInterrupt
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(log.fetch, req(), stopped); entered.wait(60); second = pool.submit(log.fetch, req(), says("mine")); time.sleep(0.1); gate.set()
        with pytest.raises(KeyboardInterrupt): first.result(60)
        assert second.result(60)[0].text == "mine"

def _writer(path, who, n):
    log = CallLog(path)
    for i in range(n): log.fetch(req(f"shared {i}"), says(f"from {who}"), "r"); log.fetch(req(f"own {who} {i}"), says(), "r")

def test_processes_write_one_new_file_together(tmp_path):
    "All open the file at the same moment, and what one has recorded the others replay."
    context = mp.get_context("fork"); n = 60
    jobs = [context.Process(target=_writer, args=(tmp_path / "c.sqlite", who, n)) for who in range(6)]
    [j.start() for j in jobs]; [j.join(60) for j in jobs]
    assert [j.exitcode for j in jobs] == [0] * 6
    log = CallLog(tmp_path / "c.sqlite"); assert len(log) == 7 * n

def test_a_fork_opens_its_own_connection(tmp_path):
    log = CallLog(tmp_path / "c.sqlite"); log.fetch(req("parent"), says())
    child = mp.get_context("fork").Process(target=lambda: log.fetch(req("child"), says())); child.start(); child.join(20)
    assert child.exitcode == 0 and len(log) == 2 and log.fetch(req("child"), None)[1]

def test_what_was_recorded_survives_a_kill(tmp_path):
    code = "import sys; from reveal_kit.calls import *\nlog = CallLog(sys.argv[1])\nfor i in range(10**6): log.fetch(as_request('m', [dict(role='user', content=f'q {i}' * 200)]), lambda: Call('', 'B')); print(i, flush=True)"
    for kill in range(3):
        p = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "c.sqlite")], stdout=subprocess.PIPE, text=True)
        for _ in range(30 + 37 * kill): last = p.stdout.readline()
        os.kill(p.pid, signal.SIGKILL); seen = int((p.stdout.read().split() or [last])[-1]); p.wait(); p.stdout.close()
        assert len(log := CallLog(tmp_path / "c.sqlite")) >= seen + 1; log.close()

# ---------------------------------------------------------------- the file that is shipped

def test_export_is_byte_stable_and_merges(tmp_path):
    a, b = CallLog(tmp_path / "a.sqlite"), CallLog(); x, y = tmp_path / "x.jsonl.gz", tmp_path / "y.jsonl.gz"
    cs = [call(f"question {i}\nline\n", question=f"q{i}", tokens=(("B", -0.1, (("B", -0.1),)),)) for i in range(9)]
    for c in cs: a.rows.put(c)
    for c in cs[::-1][:5]: b.rows.put(c)
    b.rows.put(call("question 8\nline\n", "something else", question="q8")) # same key as one of cs: the first record stands
    c8 = CallLog(); c8.rows.put(call("question 0\nline\n", "another answer"))
    assert a.export(x) == 9 and b.load(x) == dict(new=4, same=5, differ=0) and b.export(y) == 9
    assert x.read_bytes() == y.read_bytes() and x.read_bytes()[4:8] == b"\0" * 4
    assert c8.load(x) == dict(new=8, same=0, differ=1) and c8.get(cs[0].key).text == "another answer"
    assert a.export(y, keys=[cs[0].key]) == 1 and [c.key for c in unpack(y.read_bytes())] == [cs[0].key]

def test_a_torn_export_never_replaces_a_good_one(tmp_path, monkeypatch):
    log = CallLog(); log.rows.put(call()); x = tmp_path / "x.jsonl.gz"; log.export(x); good = x.read_bytes(); log.rows.put(call("more"))
    for name in ("fsync", "replace"):
        with monkeypatch.context() as m:
            m.setattr(os, name, lambda *a: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            with pytest.raises(OSError): log.export(x)
        assert x.read_bytes() == good and os.listdir(tmp_path) == ["x.jsonl.gz"]

def test_a_damaged_or_foreign_file_is_refused_by_name(tmp_path):
    data = pack([call(f"question {i}", question=f"q{i}") for i in range(20)]); lines = gzip.decompress(data).decode().split("\n"); x = tmp_path / "x.jsonl.gz"; rng = random.Random(0)
    def refused(raw):
        x.write_bytes(raw); log = CallLog()
        with pytest.raises(InputError, match="x.jsonl.gz"): log.load(x)
        assert len(log) == 0
    for cut in (0, 1, 5, 11, len(data) // 2, len(data) - 9, len(data) - 1): refused(data[:cut])
    for _ in range(40):
        i = rng.randrange(10, len(data) - 8); bad = bytearray(data); bad[i] ^= 1 << rng.randrange(8); refused(bytes(bad))
    redo = lambda ls: gzip.compress("\n".join(ls).encode())
    for raw in (b"hello", b"SQLite format 3\0" + b"\0" * 100, gzip.compress(b""), gzip.compress(b"\xff\xfe"), gzip.compress(b'{"a": 1}\n'), gzip.compress(b"[1]\n"), redo(lines[:-3]), redo([*lines[:-1], "{}", ""]),
                redo([lines[0].replace('"version":1', '"version":9'), *lines[1:]]), redo([lines[0].replace('"lines":', '"lines":-'), *lines[1:]]), redo([*lines[:-2], '{"messages": 1}', ""]), redo([*lines[:-2], lines[-2].replace('"schema":0', '"schema":7'), ""]),
                redo([*lines[:-2], lines[-2].replace('"content":[', '"content":[-1,'), ""]), redo([*lines[:-2], lines[-2].replace('"content":[', '"content":[99999,'), ""]), redo([*lines[:-2], lines[-2][:40], ""])): refused(raw)
    for missing in (tmp_path / "none.gz", tmp_path):
        with pytest.raises(InputError, match=missing.name): CallLog().load(missing)

def test_thousands_of_calls_are_a_few_megabytes(tmp_path):
    "3,200 calls of about 1,500 prompt tokens: 8 on each of 400 questions over 8 videos, in words as common as English ones, with token probabilities on each fourth."
    rng = random.Random(0); words = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 9))) for _ in range(3000)]; weights = [1 / (i + 1) for i in range(3000)]
    stories = [[f"[L1/{i:04d} {i//4}:{i%4*15:02d}-{(i+1)//4}:{(i+1)%4*15:02d}] <<" + " ".join(rng.choices(words, weights, k=35)) + ">>\n" for i in range(90)] for _ in range(8)]
    log = CallLog(); rows = []
    for q in range(400):
        seen = rng.sample(stories[q % 8], 24); ask = f"Question: {' '.join(rng.choices(words, weights, k=12))}?\nA. x{q}\nB. y\nC. z\nD. w\n\nEvidence:\n"
        for n in range(8):
            reply = '{"answer": "%s", "why": "%s"}' % (rng.choice("ABCD"), " ".join(rng.choices(words, weights, k=15)))
            tokens = tuple((t, round(-rng.random(), 5), tuple((rng.choice(words)[:3], round(-3 * rng.random(), 5)) for _ in range(5))) for t in reply.split(" ")) if n % 4 == 0 else ()
            rows.append(C._row(call(ask + "".join(seen[:10 + 2 * n]) + f"\nTask {n % 4}.", reply, f"role{n % 4}", f"q{q}", round(rng.uniform(0.5, 9), 4), tokens)))
    log.rows.run("INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?)", rows, many=True)
    raw = sum(len(r[3]) for r in rows); t = time.perf_counter(); log.export(tmp_path / "x.gz"); wrote = time.perf_counter() - t
    t = time.perf_counter(); other = CallLog(tmp_path / "o.sqlite"); assert other.load(tmp_path / "x.gz")["new"] == 3200; read = time.perf_counter() - t
    size = (tmp_path / "x.gz").stat().st_size; print(f"\n{raw / 1e6:.1f} MB of requests -> {size / 1e6:.2f} MB, {size / 3200:.0f} bytes a call; written in {wrote:.1f} s, read in {read:.1f} s")
    assert raw > 12e6 and size < 3e6

# ---------------------------------------------------------------- the file that is written to

def test_another_file_is_never_taken_for_a_log(tmp_path):
    text, other, folder, newer, export = (tmp_path / n for n in ("notes.txt", "other.sqlite", "folder", "newer.sqlite", "x.jsonl.gz"))
    text.write_text("my notes, which nobody may lose " * 50); folder.mkdir()
    db = sqlite3.connect(other); db.execute("CREATE TABLE mine (x)"); db.commit(); db.close()
    CallLog(newer).close(); db = sqlite3.connect(newer); db.execute("PRAGMA user_version=9"); db.commit(); db.close()
    CallLog().export(export)
    for p in (text, other, folder, newer, export):
        before = p.read_bytes() if p.is_file() else None
        with pytest.raises(InputError, match=p.name): CallLog(p)
        assert before is None or p.read_bytes() == before
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="file/c.sqlite"): CallLog(tmp_path / "file" / "c.sqlite")

def test_a_full_disk_is_one_clear_line_and_loses_nothing(tmp_path):
    log = CallLog(tmp_path / "c.sqlite"); log.fetch(req("first"), says())
    pages, = log.rows.run("PRAGMA page_count")[0]; log.rows.run(f"PRAGMA max_page_count={pages + 2}")
    with pytest.raises(InputError, match="c.sqlite.*full.*Free disk space"): [log.fetch(req("x" * 5000 + str(i)), says()) for i in range(9)]
    assert CallLog(tmp_path / "c.sqlite", "replay").fetch(req("first"), None)[0].text == "at ten"

def test_a_damaged_log_says_so(tmp_path):
    p = tmp_path / "c.sqlite"; log = CallLog(p); [log.fetch(req(f"{i}" * 900), says()) for i in range(40)]; log.close()
    raw = bytearray(p.read_bytes()); raw[4096:-4096] = b"\x55" * (len(raw) - 8192); p.write_bytes(raw)
    with pytest.raises(InputError, match="c.sqlite"): CallLog(p).rows.all()

def test_it_shows_itself():
    log = CallLog(); log.rows.put(call()); log.rows.put(call("more", role="planner"))
    assert C.summary(log.rows.all())["answerer"] == dict(calls=1, prompt=9, cached=4, completion=2, seconds=0.5)
    assert "| planner | 1 | 9 | 4 | 2 | 0.5 |" in log._repr_markdown_() and repr(log) == "CallLog(in memory, auto, 2 calls)"
