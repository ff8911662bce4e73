"Scene bounds, cuts in windows, and a cache that survives kills, changes of setting and six hours (VESTA 3.3, B.1)."
import json, math, shutil
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from reveal_kit import scenes
from reveal_kit.core import InputError, Question, Span
from reveal_kit.policies import POLICIES, retrieve
from reveal_kit.scenes import BATCH, SceneRecipe, build, cuts_stage, moments, scene_spans, scenes_of, unpack, pack, window_cuts
from reveal_kit.subtitles import Line, Track
from reveal_kit.video import Video
from tests.media import make, number

class Toy:
    "Encodes words by their first letters, and remembers what it was given."
    name, dim, sees = "toy", 26, False
    def __init__(self, fail_at=None, **over): self.calls, self.given, self.fail_at = 0, [], fail_at; self.__dict__.update(over)
    @property
    def settings(self): return dict(encoder=self.name, dim=self.dim)
    def row(self, text):
        v = np.zeros(self.dim, np.float32)
        for w in text.lower().split():
            if w[0].isalpha() and ord(w[0]) < 123: v[(ord(w[0]) - 97) % self.dim] += 1
        return v / max(np.linalg.norm(v), 1e-9)
    def encode(self, views):
        if self.calls == self.fail_at: raise KeyboardInterrupt
        self.calls += 1; self.given += views
        return np.stack([self.row(v.speech + " " + v.screen) for v in views])
    def query(self, texts): return np.stack([self.row(t) for t in texts])

def shots(lengths, rate):
    "draw(n, size) for a video whose picture changes after each of `lengths` seconds."
    ends = np.cumsum(lengths) * rate
    def draw(n, size):
        k = int(np.searchsorted(ends, n, side="right")); rng = np.random.default_rng(k)
        return np.kron(rng.integers(0, 255, (4, 4, 3), np.uint8), np.ones((size[1]//4, size[0]//4, 1), np.uint8))
    return draw

@pytest.fixture(scope="module")
def shotted(tmp_path_factory):
    "24 s: cuts at 7, 8 (a short shot), 12, 20 and 23."
    lengths = (7, 1, 4, 8, 3, 1)
    return make(tmp_path_factory.mktemp("v") / "shots.mp4", seconds=24, rate=10, draw=shots(lengths, 10), sound=False)

@pytest.fixture
def own(tmp_path, monkeypatch): monkeypatch.setenv("REVEAL_HOME", str(tmp_path / "home")); return tmp_path / "home"

def say(folder, lines, name="words.srt"):
    stamp = lambda t: f"{int(t//3600):02d}:{int(t//60%60):02d}:{int(t%60):02d},{round(t%1*1000):03d}"
    (folder / name).write_text("\n".join(f"{i}\n{stamp(a)} --> {stamp(b)}\n{w}\n" for i, (a, b, w) in enumerate(lines, 1)) + "\n"); return folder / name

# --- bounds

quick = settings(max_examples=200, deadline=None)

@quick
@given(st.lists(st.floats(0, 3000), max_size=60), st.floats(.5, 3000), st.sampled_from([(5, 60), (5, 10), (2, 4.5)]))
def test_scenes_cover_the_video_within_bounds(cuts, duration, bounds):
    lo, hi = bounds; spans = scene_spans(sorted(cuts), duration, lo, hi)
    assert spans[0].start == 0 and spans[-1].end == duration and all(a.end == b.start for a, b in zip(spans, spans[1:]))
    assert all(s.length <= hi + 1e-6 for s in spans)
    if duration >= lo: assert all(s.length >= min(lo, hi/2) - 1e-6 for s in spans)
    else: assert len(spans) == 1
    uncut = scene_spans(sorted(cuts), duration, lo, math.inf); assert all(s.start in [0.0, *cuts] for s in uncut), "a border is a cut, or splits a scene evenly"

@pytest.mark.parametrize("cuts, duration, want", [
    ([], 4, [0]), ([2], 4, [0]), ([], 60, [0]), ([], 61, [0, 30.5]),         # no cut at all
    ([7, 8, 12, 20, 23], 24, [0, 7, 12]),                                    # 7-8 joins 8-12; the last 4 s join what came before
    ([4.9, 5], 20, [0, 5]), ([30, 30.1], 60, [0, 30]),                       # a flash costs one cut
    (range(1, 20), 20, [0, 5, 10, 15]), ([5, 65], 70, [0, 5, 65]), ([5, 66], 71, [0, 5, 35.5, 66]),
])
def test_rule_by_hand(cuts, duration, want): assert [s.start for s in scene_spans(cuts, duration)] == want

@pytest.mark.parametrize("kw, word", [(dict(shortest=0), "0"), (dict(shortest=9, longest=5), "9"), (dict(frames=0), "frames")])
def test_impossible_recipes(kw, word):
    with pytest.raises(InputError, match=word): SceneRecipe(Toy(), **kw)

# --- cuts

def test_cuts_are_where_the_picture_changes(shotted, own):
    v = Video(shotted); assert cuts_stage(v) == pytest.approx([7, 8, 12, 20, 23]) and cuts_stage(v, threshold=250) == []

@pytest.mark.parametrize("window", [3, 7, 8, 12, 100])
def test_windows_change_nothing(shotted, window):
    v = Video(shotted); got = [t for a in np.arange(0, v.duration, window) for t in window_cuts(v, a, min(a + window, v.duration))]
    assert got == pytest.approx([7, 8, 12, 20, 23]), "a change on the border of two windows is found once"

def test_cuts_resume_after_a_kill(shotted, own, monkeypatch):
    monkeypatch.setattr(scenes, "WINDOW", 5.0); whole, done = window_cuts, []
    def dies(video, a, b, threshold):
        if len(done) == 3: raise KeyboardInterrupt
        done.append(a); return whole(video, a, b, threshold)
    monkeypatch.setattr(scenes, "window_cuts", dies)
    with pytest.raises(KeyboardInterrupt): cuts_stage(Video(shotted))
    again = []
    monkeypatch.setattr(scenes, "window_cuts", lambda v, a, b, t: again.append(a) or whole(v, a, b, t))
    assert cuts_stage(Video(shotted)) == pytest.approx([7, 8, 12, 20, 23]) and done == [0, 5, 10] and again == [15, 20]

# --- what a scene holds

def test_words_and_moments():
    from reveal_kit.screen import Written
    track = Track((Line(Span(0, 3), "one"), Line(Span(9, 11), "two"), Line(Span(50, 51), "three")))
    a, b = scenes_of([Span(0, 10), Span(10, 20)], track, [Written(Span(1, 2), "SHORT"), Written(Span(0, 20), "LONG"), Written(Span(0, 20), "LONG")])
    assert a.times == (1.25, 3.75, 6.25, 8.75) == moments(Span(0, 10)) and (a.id, b.id) == ("S/0000", "S/0001")
    assert (a.screen, b.screen) == ("SHORT\nLONG", "LONG"), "1.25 lies in 1-2, and a line stands once"
    assert "one" in a.spoken and "three" not in a.spoken + b.spoken

def test_an_encoder_that_sees_gets_the_scenes_frames(own, tmp_path):
    path = make(tmp_path / "numbered.mp4", seconds=12, rate=10, sound=False)
    e = Toy(sees=True); c = build(path, SceneRecipe(e, shortest=3, longest=4, threshold=250))
    assert [len(v.frames) for v in e.given] == [4, 4, 4]
    for v, s in zip(e.given, c.scenes): assert [number(f) for f in v.frames] == [math.floor(t*10 + 1e-6) for t in s.times]
    e = Toy(); build(path, SceneRecipe(e, frames=2, threshold=250)); assert [v.frames for v in e.given] == [None]

# --- the cache

LINES = [(1, 3, "apples arrive"), (9, 11, "boats bring bread"), (14, 18, "choir can come"), (21, 22, "dough")]

def test_build_search_reopen(shotted, own, tmp_path):
    srt, e = say(tmp_path, LINES), Toy(); r = SceneRecipe(e); seen = []
    c = build(shotted, r, srt, progress=lambda *a: seen.append(a))
    assert [s.span for s in c.scenes] == [Span(0, 7), Span(7, 12), Span(12, c.duration)] and [s.spoken for s in c.scenes] == ["apples arrive", "boats bring bread", "choir can come dough"]
    assert [h[0] for h in c.search("bakery")] == ["S/0001", "S/0000", "S/0002"] and c.search("bakery")[0][2] == pytest.approx(1.0) and c.search("bakery", k=1) == c.search("bakery")[:1]
    assert [h[0] for h in c.search("bakery", until=7)] == ["S/0000"], "a scene that begins when the question is asked has not happened"
    assert c["S/0001"].span == Span(7, 12) and {a[0] for a in seen} >= {"cuts", "scenes"} and c.counts["cuts"] == 5 and c.counts["without_words"] == 0
    n = e.calls; d = build(shotted, r, srt, make=False)
    assert e.calls == n and d.scenes == c.scenes and (d.vectors == c.vectors).all() and d.took == {}
    copy = shutil.copy(shotted, tmp_path / "other name.mp4"); assert build(copy, r, srt, make=False).scenes == c.scenes, "the content names the folder"
    assert "<svg" in c._repr_html_() and "3 scenes" in repr(c)

def test_every_setting_has_its_own_folder(shotted, own, tmp_path):
    srt, r = say(tmp_path, LINES), SceneRecipe(Toy()); build(shotted, r, srt)
    srt2 = say(tmp_path, LINES[:2], "b.srt")
    others = [(SceneRecipe(Toy(), threshold=30), srt), (SceneRecipe(Toy(), shortest=4), srt), (SceneRecipe(Toy(), longest=50), srt), (SceneRecipe(Toy(), frames=3), srt), (SceneRecipe(Toy(dim=25)), srt), (r, srt2), (r, None)]
    for o, s in others:
        with pytest.raises(InputError, match="not been built"): build(shotted, o, s, make=False)
    paths = {build(shotted, o, s).store.path for o, s in others} | {build(shotted, r, srt).store.path}
    assert len(paths) == len(others) + 1

@pytest.fixture(scope="module")
def long_talk(tmp_path_factory):
    "400 s of scenes of 5 s: more than two batches."
    d = tmp_path_factory.mktemp("talk")
    return make(d / "talk.mp4", seconds=400, rate=2, draw=shots([5]*80, 2), sound=False, size=(32, 32)), say(d, [(i*5 + 1, i*5 + 3, f"{chr(97 + i % 26)}word number{i}") for i in range(80)])

def test_encoding_resumes_and_ends_the_same(long_talk, own, tmp_path, monkeypatch):
    path, srt = long_talk
    whole = build(path, SceneRecipe(Toy()), srt)
    monkeypatch.setenv("REVEAL_HOME", str(tmp_path / "second"))
    e = Toy(fail_at=3)
    with pytest.raises(KeyboardInterrupt): build(path, SceneRecipe(e), srt)
    again = Toy(); c = build(path, SceneRecipe(again), srt)
    assert (e.calls, again.calls) == (3, 2) and len(c) == 80 and not list(c.store.path.glob("*.part"))
    files = lambda x: {p.name: p.read_bytes() for p in x.store.path.iterdir()}
    assert files(c) == files(whole), "byte for byte what an unbroken build writes"

def test_a_torn_piece_is_done_again(long_talk, own):
    path, srt = long_talk
    with pytest.raises(KeyboardInterrupt): build(path, SceneRecipe(Toy(fail_at=2)), srt)
    part, = (own / "scenes").glob("*/encoded.jsonl.part"); part.write_bytes(part.read_bytes()[:-40])
    e = Toy(); assert len(build(path, SceneRecipe(e), srt)) == 80 and e.calls == 4

def test_damaged_and_foreign_folders_are_named(shotted, own, tmp_path):
    srt, r = say(tmp_path, LINES), SceneRecipe(Toy()); p = build(shotted, r, srt).store.path; good = (p / "vectors.npy").read_bytes()
    (p / "vectors.npy").write_bytes(good[:-8])
    with pytest.raises(InputError, match="vectors.npy"): build(shotted, r, srt)
    (p / "vectors.npy").unlink()
    with pytest.raises(InputError, match="vectors.npy"): build(shotted, r, srt)
    (p / "vectors.npy").write_bytes(good); build(shotted, r, srt)
    m = json.loads((p / "manifest.json").read_text()); m["settings"]["threshold"] = 99; (p / "manifest.json").write_text(json.dumps(m))
    with pytest.raises(InputError, match="threshold"): build(shotted, r, srt)
    (p / "manifest.json").write_text("{")
    with pytest.raises(InputError, match="manifest.json"): build(shotted, r, srt)

def test_other_dimensions_are_refused_with_both_numbers(shotted, own, tmp_path):
    srt = say(tmp_path, LINES)
    liar = Toy(); liar.encode = lambda views: np.ones((len(views), 7), np.float32)
    with pytest.raises(InputError, match=r"26.*7"): build(shotted, SceneRecipe(liar), srt)
    c = build(shotted, SceneRecipe(Toy()), srt); c.encoder = Toy(dim=9)
    with pytest.raises(InputError, match=r"26.*9"): c.search("bread")

def test_silence_is_counted_and_searchable(shotted, own):
    c = build(shotted, SceneRecipe(Toy()))
    assert c.counts["without_words"] == 3 == c.counts["without_direction"] and [(h[0], h[2]) for h in c.search("bread")] == [("S/0000", 0), ("S/0001", 0), ("S/0002", 0)]

def test_one_scene(own, tmp_path):
    path = make(tmp_path / "short.mp4", seconds=2, rate=5, sound=False); c = build(path, SceneRecipe(Toy()))
    assert len(c) == 1 and c.scenes[0].span == Span(0, c.duration)
    q = Question("q", "short", "which bread?", ("apple bread", "bean bread"))
    for p in POLICIES: assert [x.id for x in retrieve(q, p, c.search).refs] == ["S/0000"]

def test_policies_read_one_ranking(long_talk, own):
    path, srt = long_talk; c = build(path, SceneRecipe(Toy()), srt)
    q = Question("q", "talk", "number word", ("apple", "bread"))
    f, r, x = (retrieve(q, p, c.search) for p in POLICIES)
    assert [h.id for h in f.refs] == [h[0] for h in c.search("number word")[:6]] and len(r.refs) == 6 and 2 <= len(x.refs) <= 6, "what two hypotheses share stands once"
    near = [a.span for a in r.refs if a.why == "spread"]; assert all(abs(a.start - b.end) >= 20 or abs(b.start - a.end) >= 20 for a in near for b in near if a != b)
    assert {l for h in x.refs for l in h.letters} == {"A", "B"}

def test_six_hours(own, tmp_path, monkeypatch):
    "A real file of six hours, one picture every twenty seconds: many scenes, few frames at a time."
    path = make(tmp_path / "day.mp4", times=[i*20 for i in range(6*180)], size=(32, 32), draw=shots([math.inf], 1), sound=False, gop=50)
    most, real = [0], Video.frames_at
    monkeypatch.setattr(Video, "frames_at", lambda self, times, size=None: most.append(len(times)) or real(self, times, size))
    e = Toy(sees=True); c = build(path, SceneRecipe(e, frames=1))
    assert c.duration == pytest.approx(21600, abs=30) and len(c) == math.ceil(c.duration/60) and all(5 <= s.span.length <= 60 for s in c.scenes)
    assert max(most) <= BATCH and e.calls == math.ceil(len(c)/BATCH) and c.scenes[-1].span.end == c.duration

@quick
@given(st.integers(1, 5), st.integers(1, 9))
def test_pieces_survive_as_text(n, dim):
    x = np.random.default_rng(n*10 + dim).standard_normal((n, dim)).astype(np.float32); assert (unpack(pack(x), dim) == x).all()
