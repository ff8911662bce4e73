"The store: what a kill, a full disk, an edit or a foreign folder leaves behind."
import json, os, signal, subprocess, sys, textwrap

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from reveal_kit.core import InputError
from reveal_kit.store import Parts, Store, canonical, digest, locked

SETTINGS = dict(video="v", model="m")


def test_key_is_of_the_settings_only(tmp_path):
    a, b = Store("x", dict(a=1, b=2), tmp_path), Store("x", dict(b=2, a=1), tmp_path)
    assert a.key == b.key and a.path.name == a.key[:20]
    assert Store("y", dict(a=1, b=2), tmp_path).key != a.key
    assert digest(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False), lambda s: st.lists(s, max_size=4) | st.dictionaries(st.text(), s, max_size=4)))
@settings(max_examples=50, deadline=None)
def test_canonical_round_trips(obj): assert json.loads(canonical(obj)) == obj and canonical(json.loads(canonical(obj))) == canonical(obj)


def test_nan_has_no_spelling():
    with pytest.raises(ValueError): canonical(float("nan"))


def test_files_and_arrays_come_back(tmp_path):
    s = Store("x", SETTINGS, tmp_path)
    s.write("a.json", dict(z=1, a=[1.5, "é"])); s.write("l.jsonl", [1, {"b": 2}]); s.write("v.npy", np.eye(2, dtype=np.float32))
    t = Store("x", SETTINGS, tmp_path)
    assert t.read("a.json") == dict(z=1, a=[1.5, "é"]) and t.read("l.jsonl") == [1, {"b": 2}] and t.read("v.npy").tolist() == [[1, 0], [0, 1]]
    assert not [p for p in t.path.iterdir() if p.name.endswith(".tmp")]


@pytest.mark.parametrize("harm, says", [
    (lambda p: (p / "manifest.json").write_text("{"), "not a readable manifest"),
    (lambda p: (p / "manifest.json").write_text("[]"), "not a readable manifest"),
    (lambda p: (p / "manifest.json").write_text(json.dumps(dict(json.loads((p / "manifest.json").read_text()), format=99))), "format 99"),
    (lambda p: (p / "manifest.json").write_text(json.dumps(dict(json.loads((p / "manifest.json").read_text()), settings=dict(video="other", model="m")))), "differs in video"),
])
def test_foreign_folders_are_refused_by_name(tmp_path, harm, says):
    s = Store("x", SETTINGS, tmp_path); s.write("a.json", 1); harm(s.path)
    with pytest.raises(InputError, match=says) as e: Store("x", SETTINGS, tmp_path)
    assert str(s.path) in str(e.value)


@pytest.mark.parametrize("harm", [lambda p: p.write_bytes(p.read_bytes()[:-3]), lambda p: p.write_bytes(b"[]"), lambda p: p.unlink()])
def test_truncated_files_are_refused_by_name(tmp_path, harm):
    s = Store("x", SETTINGS, tmp_path); s.write("a.json", list(range(50))); harm(s.path / "a.json")
    with pytest.raises(InputError, match="a.json"): Store("x", SETTINGS, tmp_path).read("a.json")


def test_parts_drop_a_torn_line_and_refuse_a_broken_one(tmp_path):
    s = Store("x", SETTINGS, tmp_path); p = Parts(s, "w.jsonl"); p.add(3, "c"); p.add(0, "a")
    with open(p.path, "ab") as f: f.write(b'[1,"b')
    q = Parts(s, "w.jsonl"); assert q.done == {3: "c", 0: "a"}
    q.add(1, "b"); assert Parts(s, "w.jsonl").finish() == ["a", "b", "c"]
    p.path.write_bytes(b"junk\n")
    with pytest.raises(InputError, match="w.jsonl.part"): Parts(s, "w.jsonl")


BUILDER = textwrap.dedent("""
    import sys, time
    from reveal_kit.store import Parts, Store, locked
    s = Store("x", dict(video="v", model="m"), sys.argv[1])
    with locked(s):
        if "w.jsonl" not in s:
            p = Parts(s, "w.jsonl")
            for i in range(40):
                if i not in p: time.sleep(0.01); p.add(i, {"piece": i, "text": "é" * 300})
            p.finish()
        if "last.json" not in s: s.write("last.json", "done")
    """)


def test_killed_builds_end_byte_for_byte_like_an_undisturbed_one(tmp_path):
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    subprocess.run([sys.executable, "-c", BUILDER, str(whole)], check=True, timeout=60)
    for wait in (0.35, 0.5, 0.42, 0.6):
        p = subprocess.Popen([sys.executable, "-c", BUILDER, str(torn)])
        try: p.wait(wait)
        except subprocess.TimeoutExpired: os.kill(p.pid, signal.SIGKILL); p.wait()
    subprocess.run([sys.executable, "-c", BUILDER, str(torn)], check=True, timeout=60)
    files = lambda d: {p.relative_to(d): p.read_bytes() for p in d.rglob("*") if p.is_file() and ".locks" not in p.parts}
    assert files(whole) == files(torn)


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    s = Store("x", SETTINGS, tmp_path); s.write("a.json", 1)
    def full(fd): raise OSError(28, "No space left on device")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"): s.write("a.json", 2)
    monkeypatch.undo()
    assert Store("x", SETTINGS, tmp_path).read("a.json") == 1 and not list(s.path.glob("*.tmp")) and not list(s.path.glob(".*.tmp"))


def test_the_second_builder_waits_and_then_sees_the_first_ones_work(tmp_path):
    s, other = Store("x", SETTINGS, tmp_path), Store("x", SETTINGS, tmp_path)
    with locked(s):
        with pytest.raises(InputError, match="another process"): locked(other, timeout=0.2)
        s.write("a.json", 1)
    with locked(other): assert "a.json" in other
