"Runs: what is kept, what is asked again, who is charged with a failure, and what happens when disk, server or folder misbehave."
import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import zipfile
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest

from reveal_kit import core, evalcli, records, results, runs, serve, specs
from reveal_kit.benchmark_files import Gold
from reveal_kit.benchmarks import Benchmark, load
from reveal_kit.chat import ChatError
from reveal_kit.core import Answer, Evidence, InputError, Question, Span, Trace
from reveal_kit.kit import Kit
from reveal_kit.profiles import Profile
from reveal_kit.runs import RunSpec, compare, ensure, evaluate, export, open_run
from tests.chat_server import ChatServer, Say


def bench(n=6, videos=2, options=("red", "green", "blue"), name="toy"):
    "`n` questions on `videos` videos in turn; the right answer of question i is letter i mod 3."
    qs = tuple(Question(f"q{i:04d}", f"v{i % videos}", f"Which colour has door {i}?", options) for i in range(n))
    return Benchmark(name, "test", qs, {q.id: Gold("ABC"[i % 3], ("Counting", "Reading")[i % 2], (Span(i, i + 1),)) for i, q in enumerate(qs)}, {f"v{v}": Path(f"/nowhere/v{v}.mp4") for v in range(videos)})


class Asked:
    "Answers A and remembers what it was asked; `fails` maps a question to what to raise."
    seen, fails = [], {}
    def answer(self, q):
        Asked.seen.append(q.id)
        if q.id in Asked.fails: raise Asked.fails[q.id]
        return "A"


class Loud:
    "Makes two calls and answers with what was decided."
    def __init__(self, kit): self.chat = kit.chat
    def answer(self, q):
        t = Trace(); say = lambda text: self.chat.ask("answerer", [dict(role="user", content=f"{q}\n{text}")], question=q.id, trace=t).text
        said = say("Think.") + say("Answer.")
        t.add("route", pi="focused"); t.add("operation", operation="retrieve"); t.add("end", rounds=2, sufficient=True, rho=0.75, segments=1)
        return Answer(q.id, q.letters[len(said) % len(q.letters)], said, (Evidence("L1/0001", Span(1, 3), "a red door", "text", 1),), t)


class Greedy:
    "Keeps what it was given."
    got = []
    def __init__(self, kit): self.kit = kit; Greedy.got.append(kit)
    def answer(self, q): Greedy.got.append(q); return None


class Dies:
    "Answers A; `signals` maps a question to what it sends to its own process."
    signals = {}
    def answer(self, q):
        if q.id in Dies.signals: time.sleep(0.05); os.kill(os.getpid(), Dies.signals[q.id]); time.sleep(60)
        time.sleep(0.02); return "A"


@pytest.fixture(autouse=True)
def fresh(): Asked.seen, Asked.fails, Greedy.got, Dies.signals = [], {}, [], {}


@pytest.fixture
def server():
    with ChatServer(keep=False) as s: yield s


def profile(server, **role):
    return Profile.model_validate(dict(name="toy", roles=dict(default=dict(engine="openai", model="test-model", base_url=server.url) | role)))


@pytest.fixture
def kit(server, tmp_path):
    with Kit(profile(server), log=tmp_path / "calls.sqlite") as k: yield k


def go(b, tmp_path, agent=Asked, **how): return evaluate(agent, b, runs_dir=tmp_path / "runs", **how)


# ------------------------------------------------------------------------------------------------ what determines a run

def test_the_id_is_the_same_for_what_cannot_change_an_answer_and_another_for_all_else(server, tmp_path):
    b = bench(); p = profile(server); base = RunSpec("retrieval", b, p)
    assert base == RunSpec("retrieval", b, p, folder=tmp_path) and len(base.id) == 20
    assert base.id == RunSpec("retrieval", b, profile(server, base_url="http://127.0.0.1:9/v1", timeout=7, parallel=4)).id     # where the server is, and how patient we are
    assert RunSpec("reveal", b, p, dict(K=2, tau=0.5)).id == RunSpec("reveal", b, p, dict(tau=0.5, K=2)).id                    # the order of switches
    others = [RunSpec("direct", b, p), RunSpec("retrieval", b, p, dict(k=4)), RunSpec("retrieval", b, p, levels=3), RunSpec("retrieval", b, p, subset=("q0001",)), RunSpec("retrieval", bench(7), p),
              RunSpec("retrieval", b, profile(server, temperature=0.5)), RunSpec("retrieval", b, profile(server, model="another")), RunSpec("retrieval", b, profile(server, max_tokens=9))]
    assert len({base.id, *(s.id for s in others)}) == 1 + len(others)
    assert not any(w in json.dumps(base.settings) for w in ("127.0.0.1", "/nowhere", str(tmp_path), "workers"))


def test_another_answer_key_is_another_run():
    b = bench(); c = Benchmark(b.name, b.split, b.questions, b.oracle | dict(q0000=Gold("B")), b.videos)
    assert RunSpec("retrieval", b).id != RunSpec("retrieval", c).id


def test_an_edit_of_an_agent_or_of_the_kit_is_another_run_and_a_comment_is_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path); monkeypatch.syspath_prepend(str(tmp_path)); b = bench(); ids = []
    for body in ("return 'A'", "return 'A'\n        # why not", "return 'B'"):
        (tmp_path / "mine.py").write_text(f"from reveal_kit.answerer import answer\nclass Mine:\n    def answer(self, q):\n        {body}\n"); ids.append(RunSpec("mine:Mine", b).id)
    assert ids[0] == ids[1] != ids[2]
    code = specs.code_of("mine:Mine"); assert {"mine", "answerer", "chat", "kit", "memory"} <= set(code)
    old = specs._closure(tuple(["answerer"])); monkeypatch.setattr(specs, "_closure", lambda names: old | dict(answerer=old["answerer"].replace("above", "below")))
    assert RunSpec("mine:Mine", b).id != ids[2]


def test_the_same_id_in_another_process(tmp_path):
    "No set order, no address, no time in it."
    ask = [sys.executable, "-c", "from reveal_kit.specs import RunSpec; print(RunSpec('reveal', switches=dict(verify=False, K=2)).id)"]
    ids = {subprocess.run(ask, capture_output=True, text=True, check=True, env=os.environ | dict(PYTHONHASHSEED=str(seed)), cwd=cwd).stdout for seed, cwd in ((1, core.root()), (2, tmp_path))}
    assert ids == {RunSpec("reveal", switches=dict(verify=False, K=2)).id + "\n"}


def test_a_file_that_a_switch_names_counts_by_its_content(tmp_path):
    b = bench(); starter = specs._home() / "assets" / "rubrics" / "starter.yaml"; text = starter.read_text()
    for d, t in (("a", text), ("b", text), ("c", text + "# more\n")): (tmp_path / d).mkdir(); (tmp_path / d / "mine.yaml").write_text(t)
    one, same, other = (RunSpec("reveal", b, switches=dict(rubrics=str(tmp_path / d / "mine.yaml"))) for d in "abc")
    assert one.id == same.id != other.id and str(tmp_path) not in json.dumps(one.settings) and "rubrics=mine.yaml" in repr(one)
    assert RunSpec("reveal", b).settings["inputs"] == one.settings["inputs"]


def test_run_json_names_the_conditions(kit, tmp_path):
    run = go(bench(), tmp_path, Loud, kit=kit, limit=1); about = run.about
    assert about["conditions"]["engine"] == dict(default="openai") and about["conditions"]["sampling"]["default"]["temperature"] == 0.0
    assert {"frame_rate", "frame_cap", "pixels", "subtitles", "memory_rate"} <= set(about["conditions"]) and about["questions"] == [f"q{i:04d}" for i in range(6)]
    assert about["benchmark"] == {} and about["settings"]["models"]["default"] == ["test-model", ""] and about["settings"]["prompts"] and about["made"][0]["packages"]["numpy"]
    assert {about["conditions"][k] for k in ("frame_rate", "frame_cap", "pixels")} == {"not declared"} and evalcli.frames_text(about["conditions"]) == "not declared"


@pytest.mark.parametrize("agent,switches,shown,text", [
    ("direct", dict(frame_cap=32, width=320), dict(frame_rate=1.0, frame_cap=32, pixels="320 on the longer side at most"), "1 a second, at most 32, 320 on the longer side at most"),
    ("direct", dict(blind=True), dict(frame_cap=0, memory_rate=0.0, subtitles="none: nothing of the video is shown"), "none are shown"),
    ("retrieval", {}, dict(frame_rate=0.0, frame_cap=0, pixels="none are shown", memory_rate=1.0), "none are shown"),
    ("reveal", dict(frame_rate=0.5), dict(frame_rate=0.5, frame_cap=768, pixels="640 on the longer side at most", frames="of the retrieved spans; of the whole video up to 600 s"), "0.5 a second, at most 768, 640 on the longer side at most; of the retrieved spans; of the whole video up to 600 s"),
    ("vesta", dict(clip_frames=9), dict(frame_rate=dict(inspect=1.0, clip=2.0), frame_cap=dict(inspect=150, clip=9), pixels="640 on the longer side at most", frames="shown to the perceiver; the answerer reads what it said"),
     "1 (inspect), 2 (clip) a second, at most 150 (inspect), 9 (clip), 640 on the longer side at most; shown to the perceiver; the answerer reads what it said")])
def test_each_agent_declares_the_frames_that_its_models_are_shown(agent, switches, shown, text):
    p = lambda vision: profile(SimpleNamespace(url="http://127.0.0.1:1/v1"), vision=vision)
    sees = specs.conditions(RunSpec(agent, bench(), p(True), switches)); assert {k: sees[k] for k in shown} == shown and evalcli.frames_text(sees) == text
    blind = specs.conditions(RunSpec(agent, bench(), p(False), switches)); assert (blind["frame_rate"], blind["frame_cap"], blind["pixels"]) == (0.0, 0, "none are shown")


@pytest.mark.parametrize("body,says", [("raise KeyError('x')", "failed .KeyError"), ("return None", "gave NoneType"), ("return ['frame_cap', 5]", "gave list"), ("return dict(frame_cap={1, 2}.__iter__())", "failed .TypeError")])
def test_an_agent_that_declares_nothing_of_use_is_told_what_to_declare(body, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path); monkeypatch.syspath_prepend(str(tmp_path)); sys.modules.pop("declares", None)
    (tmp_path / "declares.py").write_text(f"class Mine:\n    @staticmethod\n    def conditions(profile, switches): {body}\n    def answer(self, q): return 'A'\n")
    with pytest.raises(InputError, match=rf"declares:Mine'.*{says}.*frame_rate, frame_cap, pixels"): specs.conditions(RunSpec("declares:Mine", bench()))


def test_a_rate_told_in_words_is_printed():
    assert evalcli.frames_text(dict(frame_rate="two", frame_cap=5, pixels="all")) == "two a second, at most 5, all"
    assert evalcli.frames_text(dict(frame_rate=dict(look="each shot", clip=2.0), frame_cap=5, pixels="all")) == "each shot (look), 2 (clip) a second, at most 5, all"


def test_the_longer_side_is_what_is_bounded(tmp_path):
    from tests import media
    from reveal_kit.agents.direct import Direct
    from reveal_kit.memory import side
    from reveal_kit.reel import open_video
    sent = []; v = open_video(media.make(tmp_path / "tall.mp4", seconds=2, size=(360, 960)))
    def ask(role, messages, *a, **k): sent.extend(messages); raise InputError("enough")
    d = Direct(SimpleNamespace(ask=ask, endpoint=lambda role: SimpleNamespace(vision=True, context=8192)), lambda id: SimpleNamespace(duration=2.0, video=v), frame_cap=1)
    with pytest.raises(InputError, match="enough"): d.answer(Question("q", "v", "Which?", ("a", "b")))
    import base64, cv2, numpy as np
    url = next(p["image_url"]["url"] for m in sent for p in m["content"] if isinstance(p, dict) and p["type"] == "image_url")
    assert cv2.imdecode(np.frombuffer(base64.b64decode(url.partition(",")[2]), np.uint8), 1).shape[:2] == (640, 240)


def test_every_prompt_of_the_kit_is_found():
    ps = specs.prompts_of("reveal")
    assert {"chat.SYSTEM", "answerer.ANSWER_TASK", "planner.DECOMPOSE_TASK", "planner.REPAIR_TASK", "verifier.SELECT_TASK", "verifier.VERIFY_TASK", "narrate.NARRATOR"} <= set(ps)


def test_what_an_agent_imports_from_its_own_folder_is_part_of_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path); monkeypatch.syspath_prepend(str(tmp_path)); b = bench()
    files = dict(own_agent="import numpy\nfrom own_words import (  # the words (all)\n    word,\n)\nclass Mine:\n    def answer(self, q):\n        from own_pack.deep import letter\n        return letter\n",
                 own_words="from reveal_kit.verifier import VERIFY_TASK\nASK_TASK = 'Think about it as long as you want, then say one letter and nothing else at all.'\nword = 1\n", own_unused="x = 1\n")
    (tmp_path / "own_pack").mkdir(); (tmp_path / "own_pack" / "__init__.py").write_text("from .core import y\n"); (tmp_path / "own_pack" / "core.py").write_text("y = 1\n"); (tmp_path / "own_pack" / "deep.py").write_text("from . import core, absent\nletter = 'A'\n".replace(", absent", ""))
    for k, v in files.items(): (tmp_path / f"{k}.py").write_text(v)
    code = specs.code_of("own_agent:Mine"); first = RunSpec("own_agent:Mine", b).id
    assert {"own_agent", "own_words", "own_pack", "own_pack.core", "own_pack.deep", "verifier", "core"} <= set(code) and not {"own_unused", "numpy"} & set(code) and "own_words.ASK_TASK" in specs.prompts_of("own_agent:Mine")
    for f, changes in (("own_unused", False), ("own_words", True), ("own_pack/__init__", True), ("own_pack/core", True), ("own_pack/deep", True)):
        p = tmp_path / f"{f}.py"; was = p.read_text(); p.write_text(was + "z = 2\n"); assert (RunSpec("own_agent:Mine", b).id != first) == changes, f
        p.write_text(was + "# z = 2\n"); assert RunSpec("own_agent:Mine", b).id == first; p.write_text(was)


def test_an_installed_agent_is_its_own_package_and_a_helper_called_core_hides_none_of_the_kit(tmp_path, monkeypatch):
    site = tmp_path / "site-packages"; (site / "agent_pack").mkdir(parents=True); monkeypatch.syspath_prepend(str(site)); monkeypatch.delitem(sys.modules, "core", raising=False)
    for f, text in (("agent_pack/__init__", ""), ("agent_pack/one", "import somebody_elses\nfrom .two import a\nclass One:\n    def answer(self, q): return a\n"), ("agent_pack/two", "a = 'A'\n"), ("somebody_elses", "")): (site / f"{f}.py").write_text(text)
    code = specs.code_of("agent_pack.one:One"); assert {"agent_pack", "agent_pack.one", "agent_pack.two"} <= set(code) and "somebody_elses" not in code
    monkeypatch.syspath_prepend(str(tmp_path)); (tmp_path / "core.py").write_text("c = 1\n"); (tmp_path / "uses_core.py").write_text("import core\nclass Uses:\n    def answer(self, q): return 'A'\n")
    code = specs.code_of("uses_core:Uses"); assert code["core"] == specs.code_of("reveal")["core"] != code["own core"]; sys.modules.pop("core", None)


def test_unpacked_subtitles_begin_a_new_run(tmp_path):
    b = bench(); told = Benchmark(b.name, b.split, b.questions, b.oracle, b.videos, {"v1": tmp_path / "v1.srt"})
    one, two = "1\n00:00:01,000 --> 00:00:02,000\nOne.\n", "1\n00:00:01,000 --> 00:00:02,000\nTwo.\n"; (tmp_path / "v1.srt").write_text(one)
    without = go(b, tmp_path, limit=4); run = go(told, tmp_path); assert run.id != without.id and len(Asked.seen) == 4 + 6 and len(open_run(without.folder).done) == 4                # nothing was mixed
    assert results.differing(without.settings, run.settings) == ["subtitles"] == list(compare(without, run).differ) and results.beside(run, "subtitles") == [without.id]
    assert f"beside     run {without.id[:12]} is the same with other subtitle files" in evalcli.run_text(run) and "1 files of the benchmark" in evalcli.run_text(run) and "beside" not in evalcli.run_text(go(b, tmp_path / "elsewhere"))
    (tmp_path / "moved").mkdir(); (tmp_path / "moved" / "v1.srt").write_text(one); moved = Benchmark(b.name, b.split, b.questions, b.oracle, {"v0": b.videos["v0"]}, {"v1": tmp_path / "moved" / "v1.srt"})
    assert RunSpec(f"{__name__}:Asked", moved).id == run.id                                                # where they lie, and which videos are here, does not matter
    (tmp_path / "v1.srt").write_text(two); edited = RunSpec(f"{__name__}:Asked", told).id; assert edited not in (run.id, without.id)
    later = Benchmark(b.name, b.split, b.questions, b.oracle, b.videos, told.subtitles, clocks=dict(v1=dict(offset=3.0))); assert len({edited, run.id, RunSpec(f"{__name__}:Asked", later).id}) == 3
    week = tmp_path / "week"; said = week / "EgoLifeCap" / "Transcript" / "v1" / "DAY1"; said.mkdir(parents=True); (said / "v1_DAY1_11000000.srt").write_text(one)
    folder = Benchmark(b.name, b.split, b.questions, b.oracle, b.videos, {"v1": week}); a = RunSpec("direct", folder).id
    for beside in ("DAY1_v1_11094208.mp4", ".DS_Store", "notes.srt"): (week / beside).write_text(two)
    assert RunSpec("direct", folder).id == a                                                               # a week that is still arriving, and what else lies there
    (said / "v1_DAY1_12000000.srt").write_text(two); assert RunSpec("direct", folder).id != a
    (tmp_path / "v1.srt").unlink(); assert RunSpec(f"{__name__}:Asked", told).id not in (run.id, edited)


# ------------------------------------------------------------------------------------------------ what is kept

def test_a_record_says_what_the_tables_need(kit, tmp_path):
    run = go(bench(2), tmp_path, Loud, kit=kit); r = run.records()[1]
    assert r["correct"] == (r["prediction"] == "B") and (r["id"], r["video"], r["benchmark"], r["split"], r["agent"], r["type"]) == ("q0001", "v1", "toy", "test", f"{__name__}:Loud", "Reading")
    assert (r["rounds"], r["sufficient"], r["rho"], r["segments"], r["evidence"], r["operations"], r["route"]) == (2, True, 0.75, 1, [["L1/0001", 1, 3, 1, "text"]], ["retrieve"], "focused")
    assert (r["calls"], r["replayed"], r["retried"], r["error"], r["tries"]) == (2, 0, 0, None, 0) and r["prompt"] > 10 and r["completion"] > 0 and r["usage"]["calls/answerer"] == 2 and r["wall"] > 0
    t = run.trace("q0001"); assert [e["kind"] for e in t["events"]] == ["call", "call", "route", "operation", "end"]
    assert set(records.blank(bench().questions[0], Gold("A"), {})) <= set(r)


def test_the_oracle_cannot_be_reached_from_what_an_agent_is_given(kit, tmp_path):
    b = load("mini"); b = Benchmark(b.name, b.split, b.questions[:2], {q.id: b.oracle[q.id] for q in b.questions[:2]}, b.videos, b.subtitles, settings=b.settings)
    go(b, tmp_path, Greedy, kit=kit); seen, todo = set(), list(Greedy.got)
    assert len(Greedy.got) == 3 and [f.name for f in fields(Question)] == ["id", "video", "text", "options", "until"]
    while todo:
        x = todo.pop()
        if id(x) in seen: continue
        seen.add(id(x)); assert not isinstance(x, (Gold, Benchmark, RunSpec, runs.Going)), type(x)
        todo += list(x.values()) if isinstance(x, dict) else list(x) if isinstance(x, (list, tuple, set)) else list(getattr(x, "__dict__", {}).values())
    assert len(seen) > 50


def test_letters_none_and_nonsense(tmp_path):
    said = iter(["B", None, Answer("q0002", "C"), "D", Answer("q0001", "A"), 7])
    class Says:
        def answer(self, q): return next(said)
    globals()["Says"] = Says; Says.__qualname__ = "Says"
    rows = go(bench(videos=1), tmp_path, Says).records()
    assert [r["prediction"] for r in rows] == ["B", None, "C", None, None, None] and [bool(r["error"]) for r in rows] == [False, False, False, True, True, True]
    assert [r["correct"] for r in rows] == [False, False, True, False, False, False]
    assert "none of this question's letters A, B, C" in rows[3]["error"] and "'q0001' when asked 'q0004'" in rows[4]["error"] and "returned int" in rows[5]["error"]


def test_a_question_without_a_public_answer_is_kept_and_not_scored(tmp_path):
    b = bench(3); b = Benchmark(b.name, b.split, b.questions, b.oracle | dict(q0000=Gold(None)), b.videos)
    run = go(b, tmp_path); assert [r["correct"] for r in run.records()] == [None, False, False] and run.summary["n"] == 2 and run.summary["done"] == 3


# ------------------------------------------------------------------------------------------------ asking only what is missing

def test_finished_questions_are_not_asked_again(tmp_path):
    b = bench(); first = go(b, tmp_path, limit=2); assert Asked.seen == ["q0000", "q0001"] and first.missing == ["q0002", "q0003", "q0004", "q0005"]
    whole = go(b, tmp_path); assert whole.id == first.id and Asked.seen == ["q0000", "q0001", "q0002", "q0004", "q0003", "q0005"] and not whole.missing     # video by video
    go(b, tmp_path, workers=3); assert len(Asked.seen) == 6
    assert [r["id"] for r in whole.records()] == [q.id for q in b.questions] and whole.summary["accuracy"] == 1 / 3


def test_a_subset_is_a_run_of_its_own(tmp_path):
    b = bench(); run = go(b, tmp_path, subset=("q0004", "q0001")); assert run.questions == ["q0001", "q0004"] and Asked.seen == ["q0001", "q0004"] and run.id != RunSpec(f"{__name__}:Asked", b).id
    with pytest.raises(InputError, match="no question 'q9'"): go(b, tmp_path, subset=("q9",))


def test_ensure_shares_a_kit_and_asks_only_what_is_missing(kit, server, tmp_path):
    b, p = bench(4), kit.profile; ss = [RunSpec(f"{__name__}:Loud", b, p), RunSpec(f"{__name__}:Asked", b, p)]
    first = ensure(ss, runs_dir=tmp_path / "r", kit=kit, limit=2); assert [len(r.done) for r in first] == [2, 2] and server.count == 4
    again = ensure(ss, runs_dir=tmp_path / "r", kit=kit); assert [r.missing for r in again] == [[], []] and server.count == 8 and Asked.seen == ["q0000", "q0001", "q0002", "q0003"]
    with pytest.raises(InputError, match="profile"): ensure([RunSpec(f"{__name__}:Asked", bench(5), "mini")], runs_dir=tmp_path / "r", kit=kit)


def test_questions_without_their_video_wait(tmp_path):
    b = bench(); b = Benchmark(b.name, b.split, b.questions, b.oracle, dict(v1=b.videos["v1"]))
    run = go(b, tmp_path); assert run.done == ["q0001", "q0003", "q0005"] and run.waiting == ["q0000", "q0002", "q0004"]
    assert go(bench(), tmp_path).missing == []
    with pytest.raises(InputError, match="none of its 2 videos is here"): go(Benchmark("toy", "test", b.questions[:3], b.oracle, {}), tmp_path)


def test_a_failure_is_recorded_asked_again_and_at_last_set_aside(tmp_path):
    b = bench(); Asked.fails = dict(q0002=KeyError("door"))
    for attempt in (1, 2, 3):
        run = go(b, tmp_path); r = run.records()[2]
        assert (r["error"], r["prediction"], r["correct"], r["tries"]) == ("KeyError: 'door'", None, False, attempt) and (run.failed == ["q0002"]) == (attempt < 3) and (run.aside == ["q0002"]) == (attempt == 3)
    assert Asked.seen.count("q0002") == 3 and len(Asked.seen) == 8 and run.summary["aside"] == 1 and run.summary["n"] == 6
    assert "answer" in run.trace("q0002")["where"][-1] and "/" not in "".join(run.trace("q0002")["where"])
    go(b, tmp_path); assert Asked.seen.count("q0002") == 3                        # left alone
    Asked.fails = {}; assert go(b, tmp_path, again=True).aside == [] and Asked.seen.count("q0002") == 4


def test_a_failed_question_comes_last(tmp_path):
    b = bench(); Asked.fails = dict(q0000=ValueError("x")); go(b, tmp_path, limit=2); Asked.fails = {}; run = go(b, tmp_path)
    assert Asked.seen[2:] == ["q0002", "q0004", "q0003", "q0005", "q0000"] and run.records()[0]["tries"] == 1 and run.missing == []


def test_an_agent_that_leaves_the_program_fails_its_question_only(tmp_path):
    Asked.fails = dict(q0001=SystemExit(3)); run = go(bench(), tmp_path); assert run.failed == ["q0001"] and len(run.done) == 5


# ------------------------------------------------------------------------------------------------ the server

def test_a_server_that_is_gone_stops_the_run_and_nobody_is_charged(tmp_path):
    b = bench(12, 1); down = ChatError("http://127.0.0.1:1: connection refused."); Asked.fails = {q.id: down for q in b.questions[2:]}
    for _ in range(4):
        with pytest.raises(InputError, match="3 questions in a row could not be asked.*the same command continues"): go(b, tmp_path)
    run = open_run(next((tmp_path / "runs").glob("[0-9a-f]*"))); assert run.aside == [] and len(run.done) == 2 and all(r["tries"] == 0 for r in run.records())
    Asked.fails = {}; assert go(b, tmp_path).missing == []


def test_a_question_that_brings_the_server_down_is_charged_while_others_are_answered(server, tmp_path):
    "Left to itself it looks like an outage: then nothing is charged, and a person may set it aside."
    b = bench(5, 1); server.answer = lambda r: Say(status=401) if "door 2" in r["messages"][0]["content"] else "yes"     # 401: what the client does not try again
    with Kit(profile(server), log=tmp_path / "c.sqlite") as kit:
        for n in (3, 4, 5): run = go(b, tmp_path, Loud, kit=kit, limit=n); assert run.records()[2]["tries"] == n - 2             # each time one more is answered
        assert run.aside == ["q0002"] and "401" in run.records()[2]["error"] and len(run.done) == 5
        go(b, tmp_path / "other", Loud, kit=kit, limit=2); server.count = 0
        kit.log.rows.run("DELETE FROM calls WHERE question = 'q0003' OR question = 'q0004'"); run = go(b, tmp_path / "other", Loud, kit=kit); assert [r["tries"] for r in run.records()] == [0, 0, 1, 0, 0]
        for _ in range(3):
            with pytest.raises(InputError, match="Question q0002 could not be asked.*--aside q0002 gives up on it"): go(b, tmp_path / "other", Loud, kit=kit)
        assert run.aside == [] and run.records()[2]["tries"] == 1
        run = go(b, tmp_path / "other", Loud, kit=kit, aside=("q0002", "q0001")); assert run.aside == ["q0002"] and run.records()[2]["error"].startswith("set aside by hand") and run.records()[1]["error"] is None and not run.missing
        with pytest.raises(InputError, match="no question 'q9'"): go(b, tmp_path / "third", Loud, kit=kit, aside=("q9",))


@pytest.mark.parametrize("how", [dict(limit=2), dict(limit=1), dict(limit=2, workers=2)])
def test_an_outage_with_few_questions_left_is_charged_to_nobody(tmp_path, how):
    b = bench(5, 1); Asked.fails = {q.id: ConnectionRefusedError(111, "Connection refused") for q in b.questions}
    for _ in range(4):
        with pytest.raises(InputError, match="Connection refused.*could not be asked, so the run stopped; the same command continues"): go(b, tmp_path, **how)
    run = open_run(next((tmp_path / "runs").glob("[0-9a-f]*"))); assert [r["tries"] for r in run.records()] == [0] * how["limit"] and run.aside == []
    Asked.fails = {}; assert go(b, tmp_path).missing == []


def test_an_outage_that_begins_at_the_last_questions_charges_them_once(server, tmp_path):
    b = bench(6, 1); server.answer = lambda r: Say(status=401) if any(f"door {i}" in r["messages"][0]["content"] for i in (4, 5)) else "yes"
    with Kit(profile(server), log=tmp_path / "c.sqlite") as kit:
        run = go(b, tmp_path, Loud, kit=kit); assert [r["tries"] for r in run.records()] == [0, 0, 0, 0, 1, 1]
        for _ in range(3):
            with pytest.raises(InputError, match="2 questions in a row could not be asked"): go(b, tmp_path, Loud, kit=kit)
        assert [r["tries"] for r in run.records()] == [0, 0, 0, 0, 1, 1] and run.aside == []
        server.answer = lambda r: "yes"; assert go(b, tmp_path, Loud, kit=kit).missing == []


def raised(*errors, hidden=False):
    "The last of `errors`, each raised from the one before."
    e = None
    for x in errors:
        try:
            try:
                if e: raise e
            except BaseException as before: raise x from (None if hidden else before)
            raise x
        except type(x) as caught: e = caught
    return e


def test_whose_fault_is_told_by_the_whole_chain():
    from reveal_kit.calls import ReplayMiss
    from reveal_kit.records import DISK, OWN, REPLAY, SERVER, fault
    refused, full = ConnectionRefusedError(111, "Connection refused"), OSError(errno.ENOSPC, "No space left on device")
    for errors, whose in (((refused,), SERVER), ((TimeoutError("slow"),), SERVER), ((ConnectionResetError(),), SERVER), ((ChatError("gone"), RuntimeError("my model failed")), SERVER), ((refused, KeyError("x"), RuntimeError("y")), SERVER),
                          ((ReplayMiss("never asked"), RuntimeError("x")), REPLAY), ((full, refused), DISK), ((refused, full), DISK), ((refused, ChatError("too long", status=400)), OWN), ((ChatError("too long", status=400), RuntimeError("x")), OWN),
                          ((KeyError("x"),), OWN), ((FileNotFoundError(2, "none"),), OWN), ((InputError("not a video"),), OWN)):
        for hidden in (False, True): assert fault(raised(*errors, hidden=hidden)) == whose, (errors, hidden)
    with pytest.raises(InputError) as e: serve.serve(Profile.model_validate(dict(name="toy", roles=dict(default=dict(engine="llama.cpp", model="/nowhere/m.gguf"))))).__enter__()
    assert fault(e.value) == SERVER                                                                        # a model that does not start is no question's fault


def test_a_replay_that_knows_nothing_charges_nobody(server, tmp_path):
    with Kit(profile(server), mode="replay", log=tmp_path / "c.sqlite") as kit:
        for _ in range(4): run = go(bench(2), tmp_path, Loud, kit=kit)
    assert server.count == 0 and run.aside == [] and [r["tries"] for r in run.records()] == [0, 0] and "no call" in run.records()[0]["error"]
    with Kit(profile(server), log=tmp_path / "c.sqlite") as kit: assert go(bench(2), tmp_path, Loud, kit=kit).missing == []


# ------------------------------------------------------------------------------------------------ questions that end the process

def in_a_child(b, tmp_path, **how) -> int: # the signal that ended it, 0: it returned, 1: it was interrupted
    "One command in a process of its own."
    if not (pid := os.fork()):
        code = 2
        try: go(b, tmp_path, Dies, **how); code = 0
        except KeyboardInterrupt: code = 1
        finally: os._exit(code)
    status = os.waitpid(pid, 0)[1]; return os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def the_run(tmp_path): return open_run(next((tmp_path / "runs").glob("[0-9a-f]*")))


def test_a_question_that_kills_the_process_comes_last_and_is_set_aside_after_three_deaths(tmp_path):
    b = bench(); Dies.signals = dict(q0002=signal.SIGKILL); done = []
    for _ in range(3): assert in_a_child(b, tmp_path) == signal.SIGKILL; done.append(the_run(tmp_path).done)
    assert done == [["q0000"], ["q0000", "q0001", "q0003", "q0004", "q0005"], ["q0000", "q0001", "q0003", "q0004", "q0005"]]
    assert in_a_child(b, tmp_path) == 0; run = the_run(tmp_path); r = run.records()[2]
    assert (run.aside, run.missing, r["tries"], r["prediction"], r["correct"]) == (["q0002"], [], 3, None, False) and r["error"].startswith("the process ended 3 times while this question was asked, 3 times with no other under way") and "--again" in r["error"]
    assert run.trace("q0002")["error"] == r["error"] and not (run.folder / "under_way.jsonl").exists() and run.summary["aside"] == 1
    assert in_a_child(b, tmp_path, again=True) == signal.SIGKILL and the_run(tmp_path).aside == ["q0002"]  # asked once more, it counts from one
    Dies.signals = {}; assert in_a_child(b, tmp_path, again=True) == 0 and the_run(tmp_path).aside == [] and not (run.folder / "under_way.jsonl").exists()


def test_with_several_workers_only_the_culprit_is_set_aside(tmp_path):
    "Four were under way when it died; after two deaths each is asked alone."
    b = bench(8, 1); Dies.signals = dict(q0001=signal.SIGKILL); ends = []
    while not ends or ends[-1]: ends.append(in_a_child(b, tmp_path, workers=4)); assert len(ends) < 9
    run = the_run(tmp_path); assert run.aside == ["q0001"] and run.missing == [] and [r["prediction"] for r in run.records() if r["id"] != "q0001"] == ["A"] * 7 and 3 <= len(ends) - 1 <= 5
    assert not (run.folder / "under_way.jsonl").exists()


def test_two_kills_from_outside_cost_a_question_nothing_and_an_interrupt_does_not_count(tmp_path):
    b = bench(3, 1)
    for sent, ends, times in ((signal.SIGINT, 1, 4), (signal.SIGKILL, signal.SIGKILL, 2), (signal.SIGINT, 1, 4)):
        Dies.signals = dict(q0001=sent)
        for _ in range(times): assert in_a_child(b, tmp_path) == ends
    run = the_run(tmp_path); assert run.done == ["q0000", "q0002"] and [json.loads(l) for l in (run.folder / "under_way.jsonl").read_text().splitlines()] == [[0, ["q0001"]], [1, ["q0001"]]]
    Dies.signals = {}; assert in_a_child(b, tmp_path) == 0 and the_run(tmp_path).aside == the_run(tmp_path).missing == [] and not (run.folder / "under_way.jsonl").exists()


@pytest.mark.parametrize("deaths,aside", [(2, []), (3, []), (4, []), (5, ["q0002"])])
def test_kills_that_hit_questions_which_were_answered_later_are_allowed_for(tmp_path, deaths, aside):
    "Somebody kills from outside: twice others were hit, so this one is given up after five."
    b = bench(4, 1); run = go(b, tmp_path, limit=2); Asked.seen = []; p = run.folder / "under_way.jsonl"
    p.write_text("".join(json.dumps([n, ids]) + "\n" for n, ids in enumerate([["q0000"], ["q0000", "q0001"], [], *[["q0002"]] * deaths])))
    run = go(b, tmp_path); assert run.aside == aside and run.missing == [] and Asked.seen == ["q0003", "q0002"][:2 - len(aside)] and not p.exists()
    p.write_text("".join(json.dumps([n, ["q0002", "q0003"]]) + "\n" for n in range(9))); u = records.UnderWay(p, {"q0003"}, {"q0002"})
    assert not u.deaths and u.outside == 0; u.close()                                                      # whoever was with a culprit is cleared


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_a_scheduler_that_stops_a_command_is_obeyed_in_order(tmp_path, sent):
    was = signal.getsignal(sent); signal.signal(sent, signal.SIG_DFL)
    def told(p): os.kill(os.getpid(), sent)
    try:
        with pytest.raises(KeyboardInterrupt), evalcli.in_order(): go(bench(), tmp_path, progress=told); time.sleep(5)
        assert signal.getsignal(sent) == signal.SIG_DFL and not (the_run(tmp_path).folder / "under_way.jsonl").exists()
        signal.signal(sent, signal.SIG_IGN)
        with evalcli.in_order(): os.kill(os.getpid(), sent)                                                # `nohup` said so
    finally: signal.signal(sent, was)
    assert go(bench(), tmp_path).missing == []


def test_after_a_death_the_suspects_come_last_and_nothing_is_built_ahead(kit, tmp_path, monkeypatch):
    "A video that crashes its decoder must do so on a question of its own, not on that of the video before."
    built = []; monkeypatch.setattr(kit, "memory", lambda path, **how: built.append((Path(path).stem, threading.current_thread().name == "shelf")) or "m")
    class Opens:
        def __init__(self, kit): self.memory = kit.memory
        def answer(self, q): Asked.seen.append(q.id); self.memory(q.video); time.sleep(0.05); return "A"
    globals()["Opens"] = Opens; Opens.__qualname__ = "Opens"; b = bench(6, 3)
    folder = tmp_path / "runs" / RunSpec(f"{__name__}:Opens", b, kit.profile).id; folder.mkdir(parents=True)
    (folder / "under_way.jsonl").write_bytes(b'[0,["q0000"]]\n[0,["q0000","q0003"]]\n\xff\n5\n{"a":1}\n[1,7]\n[1,["q0000"]]\n[1,["q00')    # of two processes; the last line of each counts, what is none is passed over
    run = go(b, tmp_path, Opens, kit=kit); assert Asked.seen == ["q0001", "q0004", "q0002", "q0005", "q0003", "q0000"] and run.missing == run.aside == []
    assert built == [("v1", False), ("v2", False), ("v0", False)] and not (folder / "under_way.jsonl").exists()


# ------------------------------------------------------------------------------------------------ what cannot be written as text

def test_a_lone_surrogate_in_an_error_a_reply_or_a_trace_is_replaced(tmp_path):
    class Odd:
        def answer(self, q):
            if q.id == "q0000": raise FileNotFoundError("vid\udce9o.mp4")
            t = Trace(); t.add("end", rounds=1, note="caf\udce9"); return Answer(q.id, "B", "B\ud83d", (Evidence("L1/1", Span(0, 1), "x", "te\udcffxt", 1),), t)
    globals()["Odd"] = Odd; Odd.__qualname__ = "Odd"
    for attempt in (1, 2, 3): run = go(bench(2), tmp_path, Odd); assert run.records()[0]["tries"] == attempt
    (a, b) = run.records(); assert a["error"] == "FileNotFoundError: vid\ufffdo.mp4" and run.trace("q0000")["error"] == a["error"] and b["text"] == "B\ufffd" and b["evidence"][0][4] == "te\ufffdxt"
    assert run.trace("q0001")["events"][-1]["note"] == "caf\ufffd" and run.done == ["q0000", "q0001"] and export(run, tmp_path / "x.csv").read_text(encoding="utf-8").count("\ufffd") == 3


# ------------------------------------------------------------------------------------------------ the disk

class Full:
    "A disk that takes so many more bytes."
    def __init__(self, monkeypatch, room):
        self.room, self.write, self.real = room, os.pwrite, core.write_atomic
        monkeypatch.setattr(records.os, "pwrite", self.pwrite)
    def pwrite(self, fd, data, at):
        if self.room <= 0: raise OSError(errno.ENOSPC, "No space left on device")
        n = min(len(data), self.room); self.room -= n; return self.write(fd, data[:n], at)                  # a full disk takes the beginning of a line


@pytest.mark.parametrize("room", [0, 1, 400, 1000, 1900])
def test_a_disk_that_fills_up(tmp_path, monkeypatch, room):
    b = bench(); whole = go(b, tmp_path / "undisturbed"); asked = len(Asked.seen)
    with monkeypatch.context() as m:
        Full(m, room)
        with pytest.raises(InputError, match="No space left on device. Nothing that was asked is lost.*the same command continues"): go(b, tmp_path)
    folder = next((tmp_path / "runs").glob("[0-9a-f]*")); raw = (folder / "records.jsonl").read_bytes()
    assert raw == b"" or raw.endswith(b"\n"); kept = open_run(folder).done; sizes = [len(l) for l in (whole.folder / "records.jsonl").read_bytes().splitlines(True)]
    assert len(kept) in (room // (max(sizes) + 8), room // (min(sizes) - 8)) and len(raw) <= room               # whole lines only
    run = go(b, tmp_path); assert list(map(records.steady, run.records())) == list(map(records.steady, whole.records())) and len(Asked.seen) == asked + 6 + 1
    assert not list(folder.rglob("*.tmp"))


def test_a_call_log_whose_disk_is_full(server, tmp_path):
    "SQLite's own refusal, from a limit on its pages."
    b = bench(40, 1); server.answer = lambda r: Say("x" * 3000)
    with Kit(profile(server, max_tokens=2000), log=tmp_path / "c.sqlite") as kit:
        kit.log.rows.run(f"PRAGMA max_page_count={kit.log.rows.run('PRAGMA page_count')[0][0] + 8}")
        with pytest.raises(InputError, match="disk is full.*Nothing that was asked is lost"): go(b, tmp_path, Loud, kit=kit)
        done = len(open_run(next((tmp_path / "runs").glob("[0-9a-f]*"))).done); assert 0 < done < 10
        kit.log.rows.run("PRAGMA max_page_count=100000"); run = go(b, tmp_path, Loud, kit=kit)
    assert run.missing == [] and run.failed == [] and server.count == 80 + 1                                 # the one reply that could not be kept


def test_a_tiny_disk(tmp_path, server):
    "A real file system of 200 kB, where the machine lets us mount one."
    disk = tmp_path / "disk"; disk.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(disk)], capture_output=True).returncode: pytest.skip("no file system can be mounted here")
    try:
        b = bench(60, 1); filler = disk / "filler"
        with Kit(profile(server), log=tmp_path / "c.sqlite") as kit:
            with pytest.raises(InputError, match="No space left on device. Nothing that was asked is lost"): go(b, disk, Loud, kit=kit)
            folder = next((disk / "runs").glob("[0-9a-f]*")); done = len(open_run(folder).done); assert 0 < done < 60 and (folder / "records.jsonl").read_bytes().endswith(b"\n") and not list(disk.rglob("*.tmp"))
            subprocess.run(["mount", "-o", "remount,size=4m", str(disk)], check=True, capture_output=True)
            assert go(b, disk, Loud, kit=kit).missing == [] and server.count == 120
    finally: subprocess.run(["umount", str(disk)], check=True)


# ------------------------------------------------------------------------------------------------ one writer

HOLD = "import sys, time; from pathlib import Path; from reveal_kit.runs import alone\nwith alone(Path(sys.argv[1])): print('held', flush=True); sys.stdin.readline()"

def test_a_second_runner_refuses_or_waits(tmp_path):
    b = bench(); spec = RunSpec(f"{__name__}:Asked", b)
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "runs" / spec.id)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as p:
        assert p.stdout.readline() == "held\n"
        with pytest.raises(InputError, match="another process is filling this run"): go(b, tmp_path)
        assert Asked.seen == [] and not (tmp_path / "runs" / spec.id).exists()
        t = threading.Timer(0.3, lambda: p.communicate("\n")); t.start(); run = go(b, tmp_path, wait=120); t.join()
    assert run.missing == []


def test_two_runners_in_one_process(tmp_path):
    "Either waits for the other; nothing is asked twice."
    b = bench(40); done = []
    ts = [threading.Thread(target=lambda: done.append(go(b, tmp_path, wait=120))) for _ in range(3)]
    for t in ts: t.start()
    for t in ts: t.join()
    assert len(done) == 3 and sorted(Asked.seen) == sorted(q.id for q in b.questions) and len(done[0].lines()) == 40


# ------------------------------------------------------------------------------------------------ folders that are not what they should be

@pytest.fixture
def run(tmp_path): return go(bench(), tmp_path)

def edit(run, **about): p = run.folder / "run.json"; p.write_text(json.dumps(run.about | about))

def test_a_torn_last_line_is_dropped_and_its_question_asked_again(run, tmp_path):
    p = run.folder / "records.jsonl"; whole = p.read_bytes(); steady = list(map(records.steady, run.records()))
    for cut in (1, 2, 40, 300):
        p.write_bytes(whole[:-cut]); assert len(open_run(run.folder).done) == 5
        Asked.seen = []; again = go(bench(), tmp_path); assert Asked.seen == ["q0005"] and list(map(records.steady, again.records())) == steady
        assert all(json.loads(l) for l in p.read_text().splitlines()) and p.read_bytes().endswith(b"\n")


@pytest.mark.parametrize("line,says", [('{"id": "q0001", "vid', "line 7 is not JSON"), ("[1]", "line 7 is no record"), ('{"id": "q0001"}', "line 7 is no record \\(it lacks video\\)"), ("\0" * 30, "line 7 is not JSON"),
                                       ('{"id": "../../q", "video": "v", "prediction": null, "correct": false, "error": null}', "record for question '../../q', which toy test does not have"),
                                       ('{"id": "q0001", "video": "v", "prediction": "A", "correct": false, "error": null, "agent": "direct"}', "made by another agent")])
def test_a_damaged_line_is_named(run, tmp_path, line, says):
    with (run.folder / "records.jsonl").open("a") as f: f.write(line + "\n")
    with pytest.raises(InputError, match=says): open_run(run.folder).records()
    with pytest.raises(InputError, match=says): go(bench(), tmp_path)
    assert "problem" in results.runs(tmp_path / "runs")[0]


def test_an_older_format_other_settings_and_no_run_at_all(run, tmp_path):
    edit(run, format=0)
    with pytest.raises(InputError, match="written in format 0, this version reads format 1"): go(bench(), tmp_path)
    edit(run, settings=run.settings | dict(levels=1))
    with pytest.raises(InputError, match="its settings are not those of run"): go(bench(), tmp_path)
    other = go(bench(9), tmp_path / "other"); edit(run, id=other.id, settings=other.settings)
    with pytest.raises(InputError, match="with other settings \\(they differ in questions\\). Move the folder away"): go(bench(), tmp_path)
    for text in ("", "[]", "{", '{"format": 1}', '{"format": 1, "id": "x", "settings": {}, "questions": []}'):
        (run.folder / "run.json").write_text(text)
        with pytest.raises(InputError, match="run.json"): open_run(run.folder)
    with pytest.raises(InputError, match="is no run"): open_run(tmp_path)


def test_no_name_leaves_the_folder(run, tmp_path):
    for bad in ("../x", "a/b", "..", "a\\b", "x\0"):
        with pytest.raises((InputError, ValueError)): run.trace(bad)
        b = bench(2); q = Question(bad, "v0", "Which?", ("a", "b"))
        with pytest.raises(InputError, match="not a plain name"): go(Benchmark("toy", "test", (*b.questions, q), b.oracle | {bad: Gold("A")}, b.videos), tmp_path / "bad")
    assert not (tmp_path / "bad" / "runs").exists() or not [p for p in (tmp_path / "bad" / "runs").rglob("*") if p.name.endswith("json")]


def test_a_misspelt_switch_or_agent_leaves_nothing(tmp_path):
    for agent, switches, says in ((Asked, dict(k=3), "has no switch 'k'"), ("retrievel", {}, "no agent is called"), (f"{__name__}:Nobody", {}, "has no 'Nobody'"), (Asked, dict(k={1}), "no JSON value")):
        with pytest.raises(InputError, match=says): evaluate(agent, bench(), switches=switches, runs_dir=tmp_path / "runs")
    for how in (dict(workers=0), dict(limit=0)):
        with pytest.raises(InputError, match="at least one"): go(bench(), tmp_path, **how)
    assert not list((tmp_path / "runs").glob("[0-9a-f]*"))


def test_leftovers_of_a_killed_writer_are_swept(run, tmp_path):
    (run.folder / "traces" / ".q0001.json.123.456.tmp").write_text("{"); (run.folder / ".run.json.1.2.tmp").write_text("{")
    go(bench(), tmp_path); assert not list(run.folder.rglob("*.tmp"))


# ------------------------------------------------------------------------------------------------ at once

def test_many_workers_give_the_same_records_sooner(tmp_path):
    b = bench(24, 3)
    with ChatServer(latency=0.08, keep=False) as s:                                                        # enough waiting that the disk of a busy machine does not decide
        def timed(n):
            with Kit(profile(s), log=tmp_path / f"{n}.sqlite") as kit: t0 = time.monotonic(); run = go(b, tmp_path / str(n), Loud, kit=kit, workers=n); return run, time.monotonic() - t0
        (one, slow), (eight, fast) = timed(1), timed(8); assert s.peak >= 4
    assert list(map(records.steady, one.records())) == list(map(records.steady, eight.records())) and slow > 24 * 2 * 0.08 and fast < slow / 2


def test_progress_tells_accuracy_rate_tokens_and_time_left(kit, tmp_path):
    told = []; b = bench(8); run = go(b, tmp_path, Loud, kit=kit, progress=told.append, limit=3); told.clear()
    run = go(b, tmp_path, Loud, kit=kit, progress=told.append, workers=2)
    assert [p.asked for p in told] == [1, 2, 3, 4, 5] and {p.total for p in told} == {5} and [p.done for p in told] == [4, 5, 6, 7, 8] and told[-1].left == 0 and told[0].left > 0
    assert told[-1].accuracy == run.summary["accuracy"] and told[-1].tokens == sum(r["prompt"] + r["completion"] for r in run.records()[-5:]) and told[-1].rate > 0 and "a minute" in str(told[-1])


def test_a_progress_callback_that_raises_stops_the_run_and_frees_the_folder(tmp_path):
    def told(p): raise RuntimeError("seen enough")
    with pytest.raises(RuntimeError, match="seen enough"): go(bench(), tmp_path, progress=told)
    assert go(bench(), tmp_path).missing == []


def test_memories_of_later_videos_are_built_while_questions_are_asked(kit, tmp_path, monkeypatch):
    built = []
    class Reads:
        def __init__(self, kit): self.memory = kit.memory
        def answer(self, q):
            m, end = self.memory(q.video, theta=0.5), time.monotonic() + 60
            while len(built) < min(4, int(q.video[1:]) + 3) and time.monotonic() < end: time.sleep(0.01) # two videos ahead
            return Answer(q.id, "A", m)
    globals()["Reads"] = Reads; Reads.__qualname__ = "Reads"
    def memory(path, **how): built.append((Path(path).stem, how, threading.current_thread().name == "shelf")); return Path(path).stem
    monkeypatch.setattr(kit, "memory", memory)
    run = go(bench(12, 4), tmp_path, Reads, kit=kit)
    assert [r["text"] for r in run.records()] == [q.video for q in bench(12, 4).questions] and len(built) == 4
    assert all(how == dict(levels=3, theta=0.5) for _, how, _ in built) and {v: ahead for v, _, ahead in built} == dict(v0=False, v1=True, v2=True, v3=True)


def test_a_video_that_cannot_be_read_costs_its_own_questions_only(kit, tmp_path, monkeypatch):
    def memory(path, **how):
        if "v1" in str(path): raise InputError(f"{path}: not a video")
        return "memory"
    class Opens:
        def __init__(self, kit): self.memory = kit.memory
        def answer(self, q): self.memory(q.video); return "A"
    globals()["Opens"] = Opens; Opens.__qualname__ = "Opens"; monkeypatch.setattr(kit, "memory", memory)
    run = go(bench(), tmp_path, Opens, kit=kit); assert run.failed == ["q0001", "q0003", "q0005"] and run.done == ["q0000", "q0002", "q0004"] and "v1.mp4: not a video" in run.records()[1]["error"]


# ------------------------------------------------------------------------------------------------ reading

@pytest.mark.parametrize("agent,profile,names", [("direct", "paper-vesta", "text_encoder and no frame_encoder"), ("vesta", "paper-reveal", "scene_encoder")])
def test_a_profile_without_the_encoder_that_an_agent_searches_with_is_refused_once(tmp_path, agent, profile, names):
    with pytest.raises(InputError, match=f"profile {profile} names no {names}, which {agent} searches with"): runs.ensure([specs.RunSpec(agent, "mini", profile)], runs_dir=tmp_path, mode="auto")
    assert not list(tmp_path.iterdir())


def test_compare_and_export(tmp_path, kit):
    b = bench(9); a, c = go(b, tmp_path), go(b, tmp_path, Loud, kit=kit); right = lambda run: {r["id"] for r in run.records() if r["correct"]}
    cmp = compare(a, c); assert set(cmp.gained) == right(c) - right(a) and set(cmp.lost) == right(a) - right(c) and cmp.numbers.a.n == 9 and cmp.numbers.both + cmp.numbers.only_a == 3 and "agent" in cmp.differ
    with pytest.raises(InputError, match="different questions"): compare(a, go(bench(4), tmp_path))
    for name in ("r.jsonl", "r.csv", "r.zip"):
        first = export(a, tmp_path / name).read_bytes(); assert export(a, tmp_path / name).read_bytes() == first
    assert [json.loads(l)["id"] for l in (tmp_path / "r.jsonl").read_text().splitlines()] == a.questions and len((tmp_path / "r.csv").read_text().splitlines()) == 10
    with zipfile.ZipFile(tmp_path / "r.zip") as z: z.extractall(tmp_path / "moved")
    assert open_run(tmp_path / "moved" / a.id).records() == a.records()
    with pytest.raises(InputError, match=".csv, a .jsonl or a .zip"): export(a, tmp_path / "r.pkl")
    assert {r["id"] for r in results.runs(tmp_path / "runs")} >= {a.id, c.id} and results.find(a.id[:9], tmp_path / "runs").id == a.id
    for bad in ("zz", "../x", "", "0" * 20):
        with pytest.raises(InputError): results.find(bad, tmp_path / "runs")


def test_a_run_is_scored_by_another_rule_without_being_asked_again(tmp_path):
    "Video-MME's own script reads `Best option: C` as B, takes the first capital anywhere, and leaves out what it cannot read."
    said = dict(q0000=("A", "Best option: A"), q0001=("B", "Because the door is green, the answer is C."), q0002=("C", "(C)"), q0003=("A", "no idea"), q0004=("B", ""))
    class Writes:
        def answer(self, q): return Answer(q.id, *said[q.id])
    globals()["Writes"] = Writes; Writes.__qualname__ = "Writes"
    b = bench(5, 2, name="video-mme-long"); run = go(b, tmp_path, Writes); assert run.summary["accuracy"] == 1.0                        # as the agent read itself: A B C A B
    strict, official = run.scored(b), run.scored(b, "official")
    assert [r["prediction"] for r in run.reread(b)] == ["A", "C", "C", None, "B"] and (strict.value, strict.n, strict.unparsed, strict.dropped) == (3 / 5, 5, 1, 0)
    assert [r["prediction"] for r in run.reread(b, "official")] == ["B", "B", "C", "B"] and (official.value, official.n, official.dropped) == (3 / 4, 4, 1)
    other = go(b, tmp_path, limit=5); c = compare(other, run, "official", b); assert (c.numbers.a.value, c.numbers.b.value, c.lost, c.gained) == (1 / 4, 3 / 4, ("q0000",), ("q0001", "q0002", "q0004"))
    assert compare(other, run).numbers.b.value == 1.0
    with pytest.raises(InputError, match="no scorer is called 'lenient'"): run.scored(b, "lenient")
    with pytest.raises(InputError, match="are not those that this run was asked"): run.scored(bench(4, 2, name="video-mme-long"))


def test_progress_without_a_terminal(capsys):
    "A line about every minute, and where things stand at the end."
    now = [0.0]; p = lambda n: runs.Progress(total=9, asked=n, done=n, right=n, scored=n, seconds=now[0])
    with evalcli.told(clock=lambda: now[0]) as show:
        for n, at in ((1, 10), (2, 59), (3, 61), (4, 90), (5, 125), (6, 126)): now[0] = at; show(p(n))
    out, err = capsys.readouterr(); assert out == "" and [l.split(",")[0] for l in err.splitlines()] == ["3/9", "5/9", "6/9"] and err.splitlines()[0] == "3/9, 100.0% right of 3, 3.0 a minute, 0 tokens, 122 s left"
    with evalcli.told(): pass
    with pytest.raises(InputError), evalcli.told(clock=lambda: 0.0) as show: show(p(2)); raise InputError("x")
    assert [l.split(",")[0] for l in capsys.readouterr().err.splitlines()] == ["2/9"]                       # whatever ended it


def test_commands(tmp_path, monkeypatch):
    import typer
    from typer.testing import CliRunner
    from reveal_kit.evalcli import register
    monkeypatch.chdir(tmp_path); monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mine_too.py").write_text(textwrap.dedent("""
        class Mine:
            def __init__(self, last=False): self.last = last
            def answer(self, q):
                if not self.last and q.id.endswith("3"): raise ValueError("three")
                return q.letters[-1] if self.last else "A"
        """))
    app = typer.Typer(); register(app)
    def say(*args, code=0): r = CliRunner().invoke(app, [*map(str, args), "--runs", tmp_path / "runs"]); assert r.exit_code == code, r.output; return r.stdout
    n = len(load("mini").questions); a = json.loads(say("eval", "mine_too:Mine", "mini", "--switch", "last=true", "--json")); assert a["done"] == n and a["switches"] == dict(last=True)
    err = CliRunner().invoke(app, ["eval", "mine_too:Mine", "mini", "--switch", "last=true", "--again", "--limit", "2", "--runs", str(tmp_path / "fresh"), "--json"]); assert json.loads(err.stdout)["done"] == 2 and err.stderr.startswith("2/2, ") and err.stderr.count("\n") == 1
    assert "error" in say("eval", "mine_too:Mine", "mini", "--limit", 4, code=1) and "3 of" in say("eval", "mine_too:Mine", "mini", "--limit", 4, code=1)
    rows = json.loads(say("runs", "list", "--json")); assert [r["done"] for r in rows] == [3, n]; ids = [r["id"] for r in rows][::-1]
    c = json.loads(say("runs", "compare", *ids, "--json")); assert c["numbers"]["a"]["n"] == 3 and c["numbers"]["unpaired"] == [n - 3, 0] and c["differ"] == ["switches.last"]
    one = json.loads(say("runs", "show", ids[1][:8], "-q", load("mini").questions[0].id, "--json")); assert one["record"]["prediction"] == "A"
    m = json.loads(say("runs", "show", ids[0], "--scorer", "strict", "--json"))["strict"]; assert m["value"] == a["accuracy"] and m["n"] == n and m["unparsed"] == 0 and f"strict     {100 * m['value']:.1f}" in say("runs", "show", ids[0], "--scorer", "strict")
    again = json.loads(say("runs", "compare", *ids, "--scorer", "strict", "--folder", core.root() / "data" / "mini", "--json")); assert again == c
    for args in (["show", ids[0]], ["compare", *ids]): assert "mini has no official scorer" in str(CliRunner().invoke(app, ["runs", *args, "--scorer", "official", "--runs", str(tmp_path / "runs")]).exception)
    assert "mine_too:Mine (last=True) on mini test, mini" in say("runs", "show", ids[0]) and (say("runs", "export", ids[0], tmp_path / "x.csv"), (tmp_path / "x.csv").exists())[1]
    assert isinstance(CliRunner().invoke(app, ["eval", "mine_too:Mine", "mini", "--switch", "oops", "--runs", str(tmp_path / "runs")]).exception, InputError)


# ------------------------------------------------------------------------------------------------ speed

def test_resuming_3200_questions_and_the_cost_of_one(tmp_path):
    "Processor time, so that a busy machine does not decide."
    b = bench(3200, 100); Asked.seen = []; spec = RunSpec(f"{__name__}:Asked", b)
    t0 = time.process_time(); go(b, tmp_path, limit=200); per = (time.process_time() - t0) / 200; assert per < 0.010, per
    rows = [r | dict(id=q.id, video=q.video) for r in open_run(tmp_path / "runs" / spec.id).records()[:1] for q in b.questions]
    (tmp_path / "runs" / spec.id / "records.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    t0 = time.process_time(); run = go(b, tmp_path); took = time.process_time() - t0; assert took < 2 and run.missing == [] and len(Asked.seen) == 200, took


def test_what_cannot_be_asked_waits_and_a_week_is_told_by_its_days(tmp_path):
    qs = tuple(Question(f"q{i}", "A1_JAKE", f"Where is cup {i}?", ("here", "there"), until=86400.0 * (i // 2) + 3600 * i) for i in range(6))
    b = Benchmark("toy", "test", qs, {q.id: Gold("AB"[i % 2]) for i, q in enumerate(qs)}, {"A1_JAKE": Path("/nowhere")}, missing=dict(videos=[], subtitles=[], rows=[], footage=["q0"]))
    run = go(b, tmp_path); assert Asked.seen == ["q1", "q2", "q3", "q4", "q5"] and run.waiting == ["q0"]
    assert [r["day"] for r in run.records()] == ["DAY1", "DAY2", "DAY2", "DAY3", "DAY3"]
    assert "day" not in go(bench(), tmp_path / "other").records()[0]


def test_aside_is_heard_when_nothing_is_left_to_ask_and_again_is_not_meant_for_it(tmp_path):
    b = bench(); Asked.fails = dict(q0001=KeyError("x")); go(b, tmp_path); Asked.fails = {}
    assert go(b, tmp_path, aside=["q0001"]).aside == ["q0001"]; Asked.seen.clear()
    run = go(b, tmp_path, aside=["q0001"], again=True); assert Asked.seen == [] and run.aside == ["q0001"]
    with pytest.raises(InputError, match="has no question 'q9'"): go(b, tmp_path, aside=["q9"])
    assert go(b, tmp_path, again=True).missing == [] and Asked.seen == ["q0001"]
