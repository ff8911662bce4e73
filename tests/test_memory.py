"The offline memory: any video in, the same bytes out however often it was killed, and clear words for what cannot be built."
import os, signal, subprocess, sys, textwrap
from dataclasses import replace
from types import SimpleNamespace as N

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from reveal_kit.core import InputError, Span
from reveal_kit.memory import Recipe, boundaries, build
from reveal_kit.narrate import batches, spoken_by_span
from reveal_kit.segments import cut_long, group
from tests import media

unit = lambda v: v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-9)
rows = st.integers(0, 2**31).map(lambda s: unit(np.random.default_rng(s).normal(size=(np.random.default_rng(s).integers(1, 40), 3)) + 1))
kinds = st.sampled_from(["previous", "first", "mean"])


@given(rows, st.floats(-1, 1), kinds)
@settings(max_examples=150, deadline=None)
def test_grouping_covers_every_kept_frame_once_and_in_order(v, theta, kind):
    g = group(v, theta, kind)
    assert [i for s in g for i in range(s.start, s.stop)] == list(range(len(v))) and all(s.start < s.stop for s in g)


@given(rows, st.floats(-1, 1), st.floats(0, 1))
@settings(max_examples=150, deadline=None)
def test_a_lower_threshold_never_cuts_more(v, theta, less): assert len(group(v, theta - less)) <= len(group(v, theta))


@given(rows, st.floats(-1, 1))
@settings(max_examples=100, deadline=None)
def test_more_similar_frames_never_give_more_segments(v, theta):
    closer = unit(v + 0.5 * v.mean(0))                       # every pair moves towards the common direction
    if ((closer[1:] * closer[:-1]).sum(1) >= (v[1:] * v[:-1]).sum(1) - 1e-9).all(): assert len(group(closer, theta)) <= len(group(v, theta))


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=8), st.one_of(st.none(), st.floats(1, 40)), st.lists(st.floats(0, 400), max_size=30))
@settings(max_examples=200, deadline=None)
def test_cut_spans_adjoin_and_stay_near_the_bound(lengths, longest, pauses):
    cuts = np.concatenate([[0], np.cumsum(lengths)]); spans = [Span(float(a), float(b)) for a, b in zip(cuts, cuts[1:])]
    out = cut_long(spans, longest, pauses)
    assert out[0].start == 0 and out[-1].end == spans[-1].end and all(a.end == b.start for a, b in zip(out, out[1:]))
    if longest: assert max(s.length for s in out) <= 1.5 * longest + 1e-6     # a cut may move by a quarter of a part at either end


@given(st.lists(st.tuples(st.floats(0, 50), st.floats(0, 20)), max_size=12), st.lists(st.floats(0.5, 20), min_size=1, max_size=6))
@settings(max_examples=150, deadline=None)
def test_every_spoken_line_belongs_to_exactly_one_segment(lines, lengths):
    cuts = np.concatenate([[0], np.cumsum(lengths)]); spans = [Span(float(a), float(b)) for a, b in zip(cuts, cuts[1:])]
    said = [N(span=Span(a, a + d), text=str(i)) for i, (a, d) in enumerate(sorted(lines))]
    assert sorted(t for part in spoken_by_span(said, spans) for t in part) == sorted(l.text for l in said)


def test_a_short_last_group_is_kept(): assert [len(b) for b in batches(list(range(145)))] == [12] * 12 + [1]


def test_a_video_of_twenty_thousand_segments_is_cut_and_searched(minilm):
    v = unit(np.random.default_rng(0).normal(size=(20_000, 8)))
    spans = boundaries(np.arange(20_000.0), v, 20_000.0, Recipe(None, None, theta=1.0))
    assert len(spans) == 20_000 and spans[-1] == Span(19_999, 20_000)


@pytest.fixture(scope="module")
def recipe(minilm, descriptor): return Recipe(minilm, descriptor, levels=1, longest=4.0)


@pytest.mark.parametrize("name, kw", [
    ("one frame.mp4", dict(seconds=0.1, rate=10)), ("silent.mp4", dict(sound=False)), ("odd.mp4", dict(size=(63, 47))), ("ten bit.mp4", dict(pix_fmt="yuv420p10le")),
    ("upright.mp4", dict(rotate=-90)), ("vfr.mp4", dict(times=[0, .1, .2, 1.5, 1.6, 3.0, 5.0])), ("späte „Fähre“ 'x'.mp4", dict(start=7.0)), ("日本.mkv", {})])
def test_unusual_videos_become_memories(tmp_path, own_home, recipe, name, kw):
    m = build(media.make(tmp_path / name, **kw), recipe)
    assert m.level(1)[0].span.start == 0 and abs(m.level(1)[-1].span.end - m.duration) < 1e-6 and len(m.vectors) == len(m.segments)
    assert m.search("anything", k=3) and build(tmp_path / name, recipe, make=False).segments == m.segments


def test_a_file_cut_in_the_middle_works_or_says_so(tmp_path, own_home, recipe):
    for name in ("a.mp4", "b.mkv"):
        p = media.cut(media.make(tmp_path / name, seconds=6))
        try: assert build(p, recipe).segments
        except InputError as e: assert p.name in str(e) and "\n" not in str(e)


@pytest.mark.parametrize("write, says", [(None, "no such|not there|does not exist"), (b"", "empty"), (b"just some text\n" * 50, "not a video|cannot be read|no video")])
def test_what_is_no_video_is_refused_in_one_line_and_leaves_nothing(tmp_path, own_home, recipe, write, says):
    p = tmp_path / "movie.mp4"
    if write is not None: p.write_bytes(write)
    with pytest.raises(InputError, match=says) as e: build(p, recipe)
    assert "movie.mp4" in str(e.value) and "\n" not in str(e.value)
    assert sorted(x.name for x in own_home.iterdir()) == ["models"]


def test_opening_without_building_says_what_to_do(tmp_path, own_home, recipe):
    with pytest.raises(InputError, match="reveal memory build"): build(media.make(tmp_path / "a.mp4"), recipe, make=False)


def test_another_encoder_is_refused_with_both_named(tmp_path, own_home, recipe):
    m = build(media.make(tmp_path / "a.mp4"), recipe)
    other = N(settings=dict(encoder="other"), dim=3)
    from reveal_kit.memory import OfflineMemory
    with pytest.raises(InputError, match="minilm.*other"): OfflineMemory(m.store, m.video, other)


def test_subtitles_are_used_and_name_the_memory(tmp_path, own_home, recipe):
    p, s = media.make(tmp_path / "a.mp4", seconds=8), tmp_path / "a.srt"
    s.write_text("1\n00:00:01,000 --> 00:00:02,000\nThe ferry is late.\n\n2\n00:00:05,000 --> 00:00:06,500\nPears are cheap.\n")
    m = build(p, recipe, s)
    assert m.search("fruit prices", k=1)[0].segment.spoken == "Pears are cheap."
    assert build(p, recipe).store.path != m.store.path
    with pytest.raises(InputError, match="b.srt"): build(p, recipe, tmp_path / "b.srt")


def test_only_what_ended_before_the_query_time_is_found(tmp_path, own_home, recipe):
    m = build(media.make(tmp_path / "a.mp4", seconds=12), recipe)
    assert {e.id for e in m.search("x", k=9, until=8.0)} == {g.id for g in m.segments if g.span.end <= 8.0} != set()
    assert m.search("x", k=9, until=0.5) == [] and m.search([], k=2) == []


def test_the_paper_s_three_budgets_are_per_level(tmp_path, own_home, recipe):
    chat = N(ask=lambda role, messages, **kw: N(text=f"summary {len(messages[1]['content'])}", problem=""), endpoint=lambda role: N(model="m", weights="w"))
    m = build(media.make(tmp_path / "a.mp4", seconds=30), replace(recipe, chat=chat, levels=3, group=2, fixed=3.0, words=(10, 20)))
    n = [len(m.level(i)) for i in (1, 2, 3)]
    assert n[0] == 10 and n[1] == 5 and n[2] == 3                                    # the last group has one entry and is kept
    found = m.search("q", k={1: 8, 2: 4, 3: 2})
    assert [sum(e.segment.level == l for e in found) for l in (1, 2, 3)] == [8, 4, 2]
    assert m.level(2)[0].span == Span(0, m.level(1)[1].span.end)


BUILD = textwrap.dedent("""
    import sys, time
    from reveal_kit import memory, screen, zoo
    from reveal_kit.embed import Descriptor, MiniLM
    from types import SimpleNamespace as N
    def slow(f):
        def g(*a, **k): time.sleep(0.12); return f(*a, **k)
        return g
    class Reader(screen.Reader):
        settings = dict(engine="block reader")
        def lines(self, frame): time.sleep(0.05); return [f"level {int(frame.mean())}"]
    chat = N(ask=slow(lambda role, messages, **kw: N(text=f"summary of {len(messages[1]['content'])} characters", problem="")), endpoint=lambda role: N(model="m", weights="w"))
    memory.WINDOW = 5.0
    r = memory.Recipe(MiniLM(zoo.folder("minilm-int8")), Descriptor(), reader=Reader(), chat=chat, levels=3, longest=2.0, group=3)
    memory.build(sys.argv[1], r)
    """)


def test_killed_builds_give_the_bytes_of_an_undisturbed_one(tmp_path, own_home, minilm):
    video = media.make(tmp_path / "a.mp4", seconds=30)
    def run(home, wait=None):
        (home).mkdir(exist_ok=True)
        if not (home / "models").exists(): (home / "models").symlink_to(os.path.realpath(own_home / "models"))
        p = subprocess.Popen([sys.executable, "-c", BUILD, str(video)], env=dict(os.environ, REVEAL_HOME=str(home)), cwd=os.getcwd())
        if wait is None: assert p.wait(60) == 0
        else:
            try: p.wait(wait)
            except subprocess.TimeoutExpired: os.kill(p.pid, signal.SIGKILL); p.wait()
    run(tmp_path / "whole")
    for wait in (0.9, 1.1, 1.3, 1.5): run(tmp_path / "torn", wait)
    run(tmp_path / "torn")
    files = lambda d: {str(p.relative_to(d)): p.read_bytes() for p in d.rglob("*") if p.is_file() and ".locks" not in p.parts and "models" not in p.parts}
    whole, torn = files(tmp_path / "whole"), files(tmp_path / "torn")
    assert len(whole) > 8 and whole == torn


def test_an_empty_or_cut_summary_is_counted_and_says_so(tmp_path, own_home, recipe):
    replies = iter([N(text="", problem="the reply is empty"), N(text="A ferry lea", problem="the reply was cut at its token limit"), N(text="Fine.", problem=""), N(text="All of it.", problem=""), N(text="Whole.", problem="")])
    chat = N(ask=lambda role, messages, **kw: next(replies), endpoint=lambda role: N(model="m", weights="w"))
    m = build(media.make(tmp_path / "a.mp4", seconds=18), replace(recipe, chat=chat, levels=2, group=2, fixed=3.0))
    assert [g.text for g in m.level(2)] == ["The model described nothing here.", "A ferry lea", "Fine."]
    assert m.counts["model_problems"] == {"L2: the reply is empty": 1, "L2: the reply was cut at its token limit": 1}
