"""The mini benchmark: what is committed is what the seed gives, every question is sound, and the checker notices when one is not."""
import copy, gzip, json, shutil, subprocess, sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from reveal_kit import mini, mini_film
from reveal_kit.core import InputError
from reveal_kit.mini_day import OPENING, Day, draw, reckon, timeline, weave
from reveal_kit.mini_pictures import frames, guests, still
from reveal_kit.mini_questions import CORE, GLANCE, GROUPS, TYPES, ask, check_one, check_questions, holds, questions, surface, tail
from reveal_kit.mini_stories import plan_day
from reveal_kit.mini_words import MEN, PIERS, WOMEN

DATA = Path(__file__).resolve().parent.parent / "data" / "mini"
DAYS = list(mini.DAYS)
read = lambda name: [json.loads(l) for l in (DATA / name).read_text().splitlines()]

@pytest.fixture(scope="module")
def bench(): return read("questions.jsonl"), read("oracle.jsonl"), {n: json.loads((DATA / "timeline" / f"{n}.json").read_text()) for n in DAYS}

needs_flite = pytest.mark.skipif(not shutil.which("flite"), reason="flite makes the voices; using the benchmark does not need it")

# --- what is committed

def test_the_seed_gives_the_committed_texts(tmp_path):
    mini.make_texts(tmp_path)
    for f in ["questions.jsonl", "oracle.jsonl", *(f"timeline/{n}.json" for n in DAYS)]: assert (tmp_path / f).read_bytes() == (DATA / f).read_bytes(), f

def test_committed_questions_are_sound(bench): assert check_questions(*bench) == []

def test_counts(bench):
    rows, oracle, tls = bench
    by = {o["id"]: o for o in oracle}
    assert Counter(q["split"] for q in rows) == dict(train=48, test=116) and set(tls) == set(DAYS)
    test = Counter(by[q["id"]]["type"] for q in rows if q["split"] == "test")
    assert set(test) == set(TYPES) and min(test.values()) >= 9
    assert Counter(by[q["id"]]["type"] for q in rows if q["core"]) == {t: 4 for t in TYPES}
    assert all(sum(q["video"] == n for q in rows) == (16 if tls[n]["split"] == "train" else 24 if n in GLANCE else 20) for n in DAYS)
    for n, t in tls.items(): assert 600 <= t["duration"] <= 900 and 70 <= len(t["events"]) <= 92, n

def test_groups_make_group_scores_defined(bench):
    _, oracle, _ = bench
    groups = {}
    for o in oracle: groups.setdefault(o["group"], []).append(o)
    for g in groups.values():
        assert [o["position"] for o in g] == [1, 2, 3, 4] and len({json.dumps(o["structure"]) for o in g}) == 1 and len({o["video"] for o in g}) == 1
        assert g[0]["structure"] in ([1, 2, 3, 4], [1, [2, 3], 4], [[1, 2], 3, 4]) and {o["level"] for o in g} <= {1, 2, 3}
        assert g[0]["group_type"] == "logic" or g[0]["structure"] == [1, 2, 3, 4]
    ends = Counter((g[-1]["level"], g[0]["video"] in GLANCE) for g in groups.values() if int(g[0]["video"][3:]) > 3)
    assert {level for level, _ in ends} == {1, 2, 3} and ends[1, True] == len(GLANCE) == 4 and (1, False) not in ends   # a group's level is its last question's
    assert len(groups) == 41 and {g[0]["group_type"] for g in groups.values()} == {"logic", "relevance"}
    assert sorted(" ".join(CORE.values()).split()) == sorted({r for v in GROUPS.values() for r in v.split()})

def test_gold_letters_are_balanced_within_a_video(bench):
    for n in DAYS: assert len(set(Counter(o["gold"] for o in bench[1] if o["video"] == n).values())) == 1

def test_agents_rows_hold_nothing_of_the_oracle(bench):
    for q in bench[0]: assert set(q) == {"id", "video", "split", "core", "text", "options"}

def test_train_and_test_share_no_people(bench):
    for n, t in bench[2].items():
        strangers = (WOMEN["test"] + MEN["test"]) if t["split"] == "train" else (WOMEN["train"] + MEN["train"])
        words = set(" ".join(e["spoken"] for e in t["events"]).replace(".", " ").replace(",", " ").replace("!", " ").split())
        assert not words & set(strangers), n

def test_heard_is_not_shown_and_seen_is_not_said(bench):
    "A fact that is only seen has its decisive value on the screen and not in the speech; one that is only heard the other way round."
    value = dict(price="euros", departs="time", hull="colour", colour="colour", cover="colour", stands="where", gear="gear", placed="where", moved=None, reason="because", repaired="how", arrived="pier", goal="how")
    seen = heard = 0
    for t in bench[2].values():
        for e in t["events"]:
            said, shown = e["spoken"].lower(), " ".join(e["screen"]).lower()
            for f in e["facts"]:
                v = value.get(f["rel"])
                if not v or v not in f: continue
                x = str(f[v]).lower()
                if f["mode"] == "seen": seen += 1; assert x in shown and x not in said, (t["video"], e["kind"], f)
                if f["mode"] == "heard": heard += 1; assert x in said and x not in shown, (t["video"], e["kind"], f)
    assert seen > 150 and heard > 150

def test_every_day_has_plans_that_fail_and_numbers_that_are_corrected(bench):
    for t in bench[2].values():
        facts = [f for e in t["events"] for f in e["facts"]]
        assert {f["status"] for f in facts} == {"true", "plan", "wrong"} and {f["mode"] for f in facts} == {"heard", "seen", "both"}
        wrong = [f["n"] for f in facts if f["rel"] in ("crates", "sold") and f["status"] == "wrong"]
        assert len(wrong) == 2

def test_everybody_has_parts_in_several_programmes(bench):
    for t in bench[2].values():
        people = set(WOMEN[t["split"]] + MEN[t["split"]])
        where = {p: {e["programme"] for e in t["events"] if p in e["spoken"]} for p in people}
        assert sum(len(v) >= 2 for v in where.values()) >= 10

# --- the checker notices

def broken(bench, i, **change):
    rows, oracle, tls = copy.deepcopy(bench)
    for k, v in change.items(): (rows if k in ("text", "options") else oracle)[i][k] = v
    return check_questions(rows, oracle, tls)

def test_a_wrong_gold_letter(bench):
    i, o = 0, bench[1][0]
    assert any("marked is" in b for b in broken(bench, i, gold="ABCD"[("ABCD".index(o["gold"]) + 1) % 4]))

def test_a_second_right_option(bench):
    rows, oracle, tls = copy.deepcopy(bench)
    o = next(o for o in oracle if o["query"][:2] == ["get", "bought"])
    other = next(v for i, v in enumerate(o["values"]) if "ABCD"[i] != o["gold"])
    tls[o["video"]]["events"][3]["facts"].append(dict(rel="bought", mode="heard", status="true", who=o["query"][2]["who"], good=other))
    assert [b for b in check_questions(rows, oracle, tls) if b.startswith(o["id"])]

def test_a_fact_that_is_gone(bench):
    rows, oracle, tls = copy.deepcopy(bench)
    o = next(o for o in oracle if o["query"][0] == "order")
    for e in tls[o["video"]]["events"]: e["facts"] = []
    assert any("no option right" in b for b in check_one(next(q for q in rows if q["id"] == o["id"]), o, tls[o["video"]]))

def test_equal_options_and_an_answer_in_the_question(bench):
    q, o = bench[0][0], bench[1][0]
    assert any("four distinct" in b for b in broken(bench, 0, options=[q["options"][0]] * 4))
    assert any("stands in the question" in b for b in broken(bench, 0, text=q["text"] + " Is it " + q["options"]["ABCD".index(o["gold"])].lower() + "?"))

def test_options_from_nowhere_and_of_mixed_kind(bench):
    o = bench[1][0]; at = ("ABCD".index(o["gold"]) + 1) % 4
    assert any("never occur" in b for b in broken(bench, 0, values=[("unicorn" if i == at else v) for i, v in enumerate(o["values"])]))
    assert any("one kind" in b for b in broken(bench, 0, values=[(7 if i == at else v) for i, v in enumerate(o["values"])]))

def test_a_right_option_that_is_always_longest(bench):
    rows, oracle, tls = copy.deepcopy(bench)
    for q, o in zip(rows, oracle): q["options"]["ABCD".index(o["gold"])] += " and nothing else at all"
    assert any("longest" in b for b in check_questions(rows, oracle, tls))

def swapped(bench, n, split=None): # in the first `n` questions whose longest option is one wrong one, it and the right one change places
    rows, oracle, tls = copy.deepcopy(bench)
    for q, o in zip(rows, oracle):
        s = [len(t) for t in q["options"]]; right, long = "ABCD".index(o["gold"]), s.index(max(s))
        if n and split in (None, q["split"]) and s.count(max(s)) == 1 and right != long: q["options"][right], q["options"][long] = q["options"][long], q["options"][right]; n -= 1
    assert not n; return rows, oracle, tls

def test_length_is_judged_where_it_tells(bench):
    rows, oracle, _ = bench; gold = {o["id"]: o["gold"] for o in oracle}
    part = lambda s: surface([q for q in rows if q["split"] == s], gold)
    assert [surface(rows, gold)[k] for k in ("longest", "shortest")] == [(22, 88), (25, 94)] and [part(s)[k] for s in ("train", "test") for k in ("longest", "shortest")] == [(8, 24), (8, 28), (14, 64), (17, 66)]
    assert [surface(rows, gold)[l] for l in "ABCD"] == [(41, 164)] * 4
    two = [dict(id="1", options=["a", "bb", "ccc", "ccc"]), dict(id="2", options=["aaa", "bb", "bb", "c"])]; assert surface(two, {"1": "A", "2": "A"}) == dict(A=(2, 2), longest=(1, 1), shortest=(1, 2))

def test_longest_in_42_of_88_is_not_chance_though_it_is_in_42_of_164(bench):
    assert tail(42, 164, .25) > .4 and tail(42, 88, .25) < 1e-4
    assert "the right option is longest in 42 of 88 questions: more than chance" in check_questions(*swapped(bench, 20)) and not any("questions:" in b for b in check_questions(*swapped(bench, 3)))

def test_a_split_is_judged_by_itself(bench):
    assert tail(30, 88, .25) > .03 and tail(16, 24, .25) < 1e-4
    assert [b for b in check_questions(*swapped(bench, 8, "train")) if "questions:" in b] == ["the right option is longest in 16 of 24 train questions: more than chance"]

def test_spans_outside_the_video(bench): assert any("outside" in b for b in broken(bench, 0, spans=[[0, 5000]]))

def test_files_that_do_not_belong_together(bench): assert "same ids" in check_questions(bench[0], bench[1][::-1], bench[2])[0]

def test_binomial_tail():
    assert tail(3, 3, .5) == pytest.approx(.125) and tail(2, 3, .5) == pytest.approx(.5) and tail(0, 7, .3) == pytest.approx(1)
    assert tail(4000, 8000, .25) < 1e-12

# --- the query language, on facts worked out by hand

FACTS = [dict(rel="goal", status=s, who=w, match=m, event=e) for s, w, m, e in [("true", "Ann", 1, 2), ("true", "Bob", 1, 4), ("wrong", "Ann", 2, 6), ("true", "Ann", 2, 8)]]

@pytest.mark.parametrize("query, answer", [
    (["count", "goal", {"who": "Ann"}], [2]), (["get", "goal", {"match": 1}, "who"], ["Ann", "Bob"]), (["first", "goal", {}, "who"], ["Ann"]), (["last", "goal", {"match": 1}, "who"], ["Bob"]),
    (["next", "goal", {}, "who", ["goal", {"who": "Bob"}]], ["Ann"]), (["next", "goal", {}, "who", ["goal", {"who": "Ann"}]], []),  # two anchors: no answer
    (["join", "scorer ", ["last", "goal", {"match": 1}, "who"]], ["scorer Bob"]), (["count", "goal", {"who": ["get", "goal", {"match": 2}, "who"]}], [2]),
    (["order", {"x": ["goal", {"who": "Bob"}], "y": ["goal", {"match": 1, "who": "Ann"}]}], [["y", "x"]]), (["order", {"x": ["goal", {"who": "Ann"}]}], [])])
def test_queries(query, answer): assert ask(FACTS, query) == answer

def test_statements():
    t, f = [["goal", {"who": "Bob", "match": 1}]], [["goal", {"who": "Bob", "match": 1}], ["goal", {"who": "Bob", "match": 2}]]
    assert holds(FACTS, ["true"], t) and not holds(FACTS, ["true"], f) and holds(FACTS, ["false"], f)
    with pytest.raises(InputError, match="not a query"): ask(FACTS, ["eval", "1"])

# --- any seed

@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["train", "test"]))
def test_any_seed_gives_a_sound_day(seed, split):
    d = plan_day("any", seed, split); tl = json.loads(json.dumps(timeline(d)))
    rows, oracle = questions(d)
    oracle = json.loads(json.dumps(oracle))
    assert len(rows) == 40 and Counter(o["type"] for o in oracle) == {t: 4 for t in TYPES}
    assert [b for q, o in zip(rows, oracle) for b in check_one(q, o, tl)] == []
    assert 70 <= len(d.events) <= 92 and 600 <= tl["duration"] <= 900 and all(6 <= e.span.length <= 14 + OPENING for e in d.events)
    assert all(x.span.end == y.span.start for x, y in zip(d.events, d.events[1:]))
    assert json.dumps(timeline(plan_day("any", seed, split))) == json.dumps(timeline(d)) and questions(plan_day("any", seed, split))[0] == rows

def test_weaving_keeps_the_order_of_a_lane():
    import random
    out = weave(random.Random(4), [[1, 2, 3], ["a", "b"], []])
    assert [x for x in out if isinstance(x, int)] == [1, 2, 3] and [x for x in out if isinstance(x, str)] == ["a", "b"]

def test_pools_run_dry_with_a_word():
    d = Day("x", 1, "test")
    assert len({*draw(d, PIERS, 4), *draw(d, PIERS, 3)}) == 7
    with pytest.raises(InputError, match="has 0 left"): draw(d, PIERS)

def test_bad_names():
    with pytest.raises(InputError, match="choose from day1"): mini.day("day9")
    with pytest.raises(InputError, match="'train' or 'test'"): Day("x", 1, "dev")

def test_unsound_questions_are_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(mini, "check_questions", lambda *a: ["day1-01: broken"])
    with pytest.raises(InputError, match="day1-01: broken"): mini.make_texts(tmp_path, ["day1"])
    assert not list(tmp_path.rglob("*.json*"))

# --- pictures and sound

def test_pictures_move_and_repeat():
    d = mini.day("day4"); e = next(x for x in d.events if x.prop[0] and not x.board)
    a, b = list(frames(d, e, False)), list(frames(d, e, False))
    assert len(a) == round(e.span.length * 2) and all(x.tobytes() == y.tobytes() for x, y in zip(a, b))
    assert sum(x.tobytes() != y.tobytes() for x, y in zip(a, a[1:])) > len(a) / 2 and a[0].size == (640, 360)

def test_programmes_differ_more_than_cameras():
    d = mini.day("day4")
    small = lambda im: np.asarray(im.resize((64, 36)), float)
    by = {}
    for e in d.events: by.setdefault(e.programme, []).append(small(still(d, e)))
    within = [np.abs(x - y).mean() for v in by.values() for x, y in zip(v, v[1:])]
    mean = {p: np.mean(v, 0) for p, v in by.items()}
    between = [np.abs(mean[p] - mean[q]).mean() for p in mean for q in mean if p < q]
    assert min(within) > 1 and np.median(between) > 1.5 * np.median([np.abs(x - mean[p]).mean() for p, v in by.items() for x in v])

def test_guests_are_those_whom_the_event_names():
    d = mini.day("day4"); e = d.at["handover0/lend"]
    assert guests(d, e) == sorted(d.story["handover0"]["cast"][:2], key=e.speech.find)

def test_boards_can_be_read():
    rapidocr = pytest.importorskip("rapidocr")
    d = mini.day("day4"); e = d.at["market/prices1"]
    r = rapidocr.RapidOCR(params={"Global.log_level": "error", "Det.limit_type": "max", "Det.limit_side_len": 640})(np.asarray(still(d, e))[:, :, ::-1], use_det=True, use_cls=False, use_rec=True)
    assert {x["am"] for x in d.story["market"]["stalls"]} <= set(r.txts)

@needs_flite
def test_rendering_twice_gives_the_same_bytes(tmp_path):
    d = mini.day("day5"); seen = []
    a, b = mini_film.film(d, tmp_path / "a.mp4", upto=3, progress=lambda i, n: seen.append((i, n))), mini_film.film(d, tmp_path / "b.mp4", upto=3)
    assert a.read_bytes() == b.read_bytes() and seen == [(1, 3), (2, 3), (3, 3)]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.mp4", "b.mp4"]

def test_without_flite_the_message_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="apt-get install flite"): mini_film.film(mini.day("day4"), tmp_path / "x.mp4", upto=1)
    assert list(tmp_path.iterdir()) == []

def test_a_voice_that_does_not_fit_names_the_event(tmp_path, monkeypatch):
    monkeypatch.setattr(mini_film, "voice", lambda text, name: np.zeros(16000 * 20, np.float32))
    with pytest.raises(InputError, match="day4: the speech of .* takes"): mini_film.film(mini.day("day4"), tmp_path / "x.mp4", upto=1)
    assert list(tmp_path.iterdir()) == []

def test_reckoned_time_grows_with_the_text():
    assert reckon("Hi.", "slt") == 6 and reckon("x" * 500, "rms") == 14 and reckon("x" * 120, "rms") > reckon("x" * 120, "slt")

@pytest.mark.parametrize("name", DAYS)
def test_committed_videos_are_what_the_timeline_says(name, bench):
    import av
    with av.open(str(DATA / "videos" / f"{name}.mp4")) as f:
        v, a = f.streams.video[0], f.streams.audio[0]
        assert (v.width, v.height, float(v.average_rate), a.layout.nb_channels) == (640, 360, 2.0, 1) and v.codec_context.name == "h264"
        keys = [i for i, p in enumerate(p for p in f.demux(video=0) if p.size) if p.is_keyframe]
        assert keys[0] == 0 and max(y - x for x, y in zip(keys, keys[1:])) <= 10
        assert abs(f.duration / 1e6 - bench[2][name]["duration"]) < .6

def test_everything_fits_into_the_repository(): assert sum(p.stat().st_size for p in (DATA / "videos").glob("*.mp4")) < 38e6

def test_importing_is_light():
    code = "import sys, reveal_kit.mini; print([m for m in ('torch', 'av', 'PIL', 'matplotlib', 'pandas', 'faster_whisper') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"

def test_the_datasheet_shows_these_files(): assert mini.statistics(DATA) in (DATA / "README.md").read_text()

def test_the_datasheet_says_how_large_the_recordings_are():
    packed = (DATA / "calls.jsonl.gz").read_bytes(); text = gzip.decompress(packed); head = json.loads(text.splitlines()[0])
    said = f"{head['calls']:,} recorded calls of the small model, {len(packed) / 1e6:.1f} MB ({len(text) / 1e6:.1f} MB unpacked)"
    assert said in (DATA / "README.md").read_text(), said

@pytest.mark.parametrize("name", DAYS)
def test_subtitles_belong_to_this_video(name, bench):
    "A track of an earlier rendering drifts; the goodbye of the last event is the easiest place to see it."
    from reveal_kit.speech import read_track
    path = DATA / "subtitles" / f"{name}.srt"
    if not path.exists(): pytest.skip(f"{path.name} is not made yet")
    last = bench[2][name]["events"][-1]
    t = read_track(path)
    assert "goodnight" in "".join(l.text for l in t.lines if l.span.middle >= last["start"]).lower().replace(" ", "")
    assert last["start"] < t.lines[-1].span.end <= last["end"] + 1
