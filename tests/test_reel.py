"A folder of clips as one video: what is shown, heard and remembered, and when; and what a folder can have wrong with it."
import json, os
from types import SimpleNamespace as N

import numpy as np
import pytest

from reveal_kit import reel as rooms
from reveal_kit.benchmarks import load
from reveal_kit.core import InputError, Question, Span
from reveal_kit.egolife import clips, moment
from reveal_kit.memory import Recipe, boundaries
from reveal_kit.operations import Senses, perform
from reveal_kit.profiles import VestaSpec
from reveal_kit.reel import Reel, in_view, open_video, recorded, tiles
from reveal_kit.scenes import cuts_stage, scene_spans
from reveal_kit.speech import windows
from reveal_kit.subtitles import Line, Track
from reveal_kit.video import Video
from tests.media import heard, make, number, picture, spoil

@pytest.fixture(autouse=True)
def own(tmp_path_factory, monkeypatch): # notes of files that are a moment old are kept too
    from reveal_kit.core import home
    models, own = home() / "models", tmp_path_factory.mktemp("home"); (own / "models").symlink_to(models)
    monkeypatch.setenv("REVEAL_HOME", str(own)); monkeypatch.setattr(rooms, "FRESH", -1)

def film(path, first=0, **kw): return make(path, **dict(dict(seconds=2, rate=10, sound=False, draw=lambda n, size: picture(first + n, size)) | kw)) # its frames are numbered from `first`

D1, D2 = 11*3600, 86400 + 9*3600 + 30*60 + .5 # DAY1 11:00:00.00 and DAY2 09:30:00.10, frame 10 of 20

@pytest.fixture(scope="module")
def week(tmp_path_factory):
    "Two clips that follow one another, and one the next morning; with sound, without, with."
    d = tmp_path_factory.mktemp("week")
    film(d / "A1_JAKE/DAY1/DAY1_A1_JAKE_11000000.mp4", 1000, sound=True, sound_rate=16000); film(d / "A1_JAKE/DAY1/DAY1_A1_JAKE_11000200.mp4", 2000); film(d / "A1_JAKE/DAY2/DAY2_A1_JAKE_09300010.mp4", 3000, sound=True, sound_rate=16000)
    return d

numbers = lambda frames: [number(f) for f in frames]

# --- the clock

def test_a_second_of_the_reel_is_a_second_of_the_week(week):
    r = open_video(week)
    assert [t for t, _ in r.clips] == [t for t, _ in clips(week)] == [D1, D1 + 2, D2] == [moment(1, "11000000"), moment(1, "11000200"), moment(2, "09300010")]
    assert r.id == "A1_JAKE" and r.begin == D1 and r.duration == pytest.approx(D2 + 2, abs=.1) and r.size == (64, 48) and r.fps == 10 and r.has_audio and r.damage == 0
    assert [s.start for s in r.recorded()] == [D1, D2] and r.recorded()[0].end == D1 + 4

def test_frames_are_sampled_where_something_was_recorded(week):
    r = open_video(week); ts, fs = (np.concatenate(x) for x in zip(*r.frames(1, batch=4)))
    assert ts.tolist() == [D1, D1 + 1, D1 + 2, D1 + 3, D2 + .5, D2 + 1.5] and numbers(fs) == [1000, 1010, 2000, 2010, 3005, 3015]

def test_neighbouring_spans_give_the_frames_of_their_union(week, monkeypatch):
    r = open_video(week); all_of = lambda spans, rate: [(t, number(f)) for s in spans for ts, fs in r.frames(rate, s, batch=3) for t, f in zip(ts, fs)]
    whole = all_of([None], 4); assert 24 <= len(whole) <= 25 # sound may outlast the picture by some hundredths
    for cut in (D1 + 1.3, D1 + 2, D1 + 3.9, D1 + 50, D2, D2 + 1.1): assert all_of([Span(0, cut), Span(cut, D2 + 99)], 4) == whole
    monkeypatch.setattr(rooms, "PART", 1.7); assert all_of([None], 4) == whole

def test_batches_are_all_that_is_held(week): assert [len(t) for t, _ in open_video(week).frames(10, batch=7)] [:8] == [7]*8

def test_in_a_gap_stands_the_last_picture_and_never_a_later_one(week):
    r = open_video(week)
    assert numbers(r.frames_at([D2 - 1, 5, D1 + 3.95, D2, 9e5])) == [2019, 1000, 2019, 3000, 3019]

def test_a_clip_of_an_interval_skips_the_gap(week):
    r = open_video(week); ts, fs = r.clip(Span(D1 + 3, D2 + 1), 4)
    assert ts.tolist() == [D1 + 3.25, D1 + 3.75, D2 + .25, D2 + .75] and numbers(fs) == [2012, 2017, 3002, 3007]
    assert r.clip(Span(D1, D1 + 4), 2)[0].tolist() == [D1 + 1, D1 + 3] and len(r.clip(Span(D1 + 9, D2 - 9), 5)[1]) == 0 and r.clip(Span(D1, D2), 0)[1].shape == (0, 48, 64, 3)

def test_keyframes(week): assert open_video(week).keyframes().tolist() == pytest.approx([D1, D1 + 1, D1 + 2, D1 + 3, D2, D2 + 1])

def test_sound_lies_where_its_clip_lies(week):
    r = open_video(week); x = r.audio(Span(D1 - 1, D1 + 5))
    assert len(x) == 6*16000 and not x[:15900].any() and not x[48100:].any()                        # before, the silent clip, after
    assert [heard(x[16000*k:16000*(k + 1)], 16000) for k in (1, 2)] == pytest.approx([300, 400], abs=2)
    assert np.allclose(r.audio(Span(D1 + .5, D1 + 1.5)), x[24000:40000], atol=1e-3) and heard(r.audio(Span(D2, D2 + 1)), 16000) == pytest.approx(300, abs=2)

def test_speech_is_sought_only_where_something_was_recorded(week):
    ws = windows(open_video(week)); assert 1 <= len(ws) <= 4 and all(recorded(open_video(week), w) for w in ws)
    v = Video(next(week.rglob("*11000000.mp4"))); assert windows(v) == [Span(0, v.duration)]

# --- how much is opened

def test_making_a_reel_of_two_thousand_clips_opens_none(tmp_path, monkeypatch):
    p, opened = film(tmp_path / "x.mp4"), []
    for day, k in ((d, k) for d in (1, 2) for k in range(1000)): q = tmp_path / f"w/DAY{day}/DAY{day}_A1_JAKE_{10 + k // 120:02d}{k % 120 // 2:02d}{k % 2 * 30:02d}00.mp4"; q.parent.mkdir(parents=True, exist_ok=True); os.link(p, q)
    monkeypatch.setattr(rooms, "Video", lambda p: opened.append(p) or Video(p))
    r = open_video(tmp_path / "w"); assert len(r) == 2000 and not opened
    assert r.duration == moment(2, "18193000") + 2 and r.size == (64, 48) and len(opened) == 2      # the last and the first
    assert numbers(r.frames_at([moment(1, "12000110")])) == [15] and len(opened) <= 4
    assert len(next(r.frames(1, Span(moment(2, "11000000"), moment(2, "11010000"))))[0]) == 4 and len(opened) <= 9
    assert len(r.fingerprint) == 32 and len(opened) <= 9

def test_what_fails_is_not_noted(week, monkeypatch):
    "A disk that fails once: the clip is a gap today and a clip tomorrow."
    whole = open_video(week).fingerprint
    def sick(*a, **k): raise OSError(5, "Input/output error")
    def refused(path): raise InputError(f"{path}: Input/output error")
    for p in (rooms.home() / "reels").iterdir(): p.unlink()
    with monkeypatch.context() as m:
        m.setattr(rooms, "fingerprint", sick); assert open_video(week).fingerprint != whole
        m.setattr(rooms, "Video", refused)
        with pytest.raises(InputError, match="none of its 3 clips can be read"): open_video(week).duration
    r = open_video(week); assert r.fingerprint == whole and len(r.recorded()) == 2 and r.broken == {}

def test_a_full_disk_costs_the_notes_only(week, monkeypatch):
    for p in (rooms.home() / "reels").glob("*"): p.unlink()
    def full(*a): raise OSError(28, "No space left on device")
    monkeypatch.setattr(rooms, "write_atomic", full); r = open_video(week)
    assert len(r.fingerprint) == 32 and len(r.recorded()) == 2 and not list((rooms.home() / "reels").glob("*"))


def test_what_was_found_out_is_not_asked_again(week, monkeypatch):
    first, opened = open_video(week), []; want = first.recorded(), first.fingerprint, first.duration
    with monkeypatch.context() as m:
        m.setattr(rooms, "Video", lambda p: opened.append(p) or Video(p)); m.setattr(rooms, "fingerprint", lambda p, **k: opened.append(p))
        r = open_video(week); assert (r.recorded(), r.fingerprint, r.duration) == want and not opened
    for p in (rooms.home() / "reels").iterdir(): p.write_text("{half a")
    assert open_video(week).recorded() == want[0]

# --- the key of its memory

def test_the_fingerprint_is_that_of_all_contents_and_times(tmp_path):
    kept = {n: film(tmp_path / "kept" / f"{n}.mp4", n).read_bytes() for n in (0, 1, 100, 101)}          # filmed once: of frames this small x264 does not always make the same bytes
    def made(name, numbers, times=("11000000", "11003000")):
        (tmp_path / name).mkdir()
        for n, t in zip(numbers, times): (tmp_path / name / f"DAY1_A1_JAKE_{t}.mp4").write_bytes(kept[n])
        return open_video(tmp_path / name).fingerprint
    one = made("a", (0, 100)); assert made("b", (0, 100)) == one                                        # wherever it lies
    assert len({one, made("c", (0, 101)), made("d", (1, 100)), made("e", (0, 100), ("11000000", "11003001")), made("f", (100, 0)), made("g", (0,))}) == 6
    (tmp_path / "a/DAY1_A1_JAKE_11003000.mp4").write_bytes(kept[101]); assert open_video(tmp_path / "a").fingerprint == open_video(tmp_path / "c").fingerprint

def test_a_file_stays_what_it_was(week):
    p = next(week.rglob("*09300010.mp4")); v = open_video(p)
    assert type(v) is Video and v.fingerprint == Video(p).fingerprint and recorded(v) == [v.span] and tiles(v, .75) == [Span(0, .75), Span(.75, 1.5), Span(1.5, v.duration)]
    assert in_view(v, [1, 99]) == [1, 99] and recorded(v, Span(1, 99)) == [Span(1, v.duration)] and recorded(v, Span(50, 60)) == []

# --- what can be wrong with a folder

def test_a_broken_clip_is_named_and_the_rest_is_used(tmp_path):
    for k, t in enumerate(("11000000", "11000200", "11000400")): film(tmp_path / f"DAY1_A1_JAKE_{t}.mp4", 1000*k)
    bad = tmp_path / "DAY1_A1_JAKE_11000200.mp4"; bad.write_bytes(b"no film " * 400)
    r = open_video(tmp_path); ts, fs = next(r.frames(1))
    assert ts.tolist() == [D1, D1 + 1, D1 + 4, D1 + 5] and numbers(fs) == [0, 10, 2000, 2010]
    assert list(r.broken) == [str(bad)] and "not a video" in r.broken[str(bad)] and r.damage == 1 and r.recorded() == [Span(D1, D1 + 2), Span(D1 + 4, D1 + 6)]
    assert open_video(tmp_path).recorded() == r.recorded() and (two := open_video(tmp_path)).recorded() and two.damage == 1 # noted or not
    assert numbers(r.frames_at([D1 + 3])) == [19] and "broken" in r._repr_markdown_()
    for p in tmp_path.glob("DAY*.mp4"): p.write_bytes(b"")
    with pytest.raises(InputError, match="none of its 3 clips can be read.*empty"): open_video(tmp_path).size

def test_a_clip_damaged_inside_is_shown_and_counted(tmp_path):
    good = film(tmp_path / "x.mp4", seconds=8, size=(320, 240), draw=lambda n, size: np.random.default_rng(n).integers(0, 255, (size[1], size[0], 3), np.uint8))
    (tmp_path / "w").mkdir(); spoil(good, .5, 4000, tmp_path / "w/DAY1_A1_JAKE_11000000.mp4"); film(tmp_path / "w/DAY1_A1_JAKE_11001000.mp4", 7)
    r = open_video(tmp_path / "w"); ts, _ = next(r.frames(1)); assert ts.tolist() == [D1 + k for k in (*range(8), 10, 11)] and not r.broken
    list((v := Video(r.clips[0][1])).frames(1)); assert r.damage == v.damage

def test_of_overlapping_clips_the_later_one_is_shown(tmp_path):
    film(tmp_path / "DAY1_A1_JAKE_11000000.mp4", 0, seconds=4); film(tmp_path / "DAY1_A1_JAKE_11000110.mp4", 1000)
    r = open_video(tmp_path); ts, fs = next(r.frames(2))
    assert r.recorded() == [Span(D1, D1 + 3.5)] and list(zip(ts - D1, numbers(fs))) == [(0, 0), (.5, 5), (1, 10), (1.5, 1000), (2, 1005), (2.5, 1010), (3, 1015)]

def test_clips_less_than_a_second_apart_are_one_stretch(tmp_path):
    film(tmp_path / "DAY1_A1_JAKE_11000000.mp4", 0); film(tmp_path / "DAY1_A1_JAKE_11000215.mp4", 1000); film(tmp_path / "DAY1_A1_JAKE_11000519.mp4", 2000)
    r = open_video(tmp_path); assert [(round(s.start - D1, 3), round(s.end - D1, 3)) for s in r.recorded()] == [(0, 4.75), (5.95, 7.95)] # 0.75 s apart, then 1.2 s
    ts, fs = next(r.frames(2, Span(D1 + 1.5, D1 + 3.5))); assert numbers(fs) == [15, 19, 19, 1002] and (ts - D1).tolist() == [1.5, 2, 2.5, 3]
    assert [x.tolist() for s in (Span(D1 + 1.5, D1 + 2.2), Span(D1 + 2.2, D1 + 3.5)) for x, _ in r.frames(2, s)] == [[D1 + 1.5, D1 + 2], [D1 + 2.5, D1 + 3]]

def test_pictures_have_the_size_of_the_first_clip(tmp_path):
    film(tmp_path / "DAY1_A1_JAKE_11000000.mp4", 5); film(tmp_path / "DAY1_A1_JAKE_11000200.mp4", 6, size=(96, 96))
    r = open_video(tmp_path); _, fs = next(r.frames(1)); assert fs.shape == (4, 48, 64, 3) and numbers(fs) == [5, 15, 6, 16]
    assert next(r.frames(1, size=32))[1].shape == (4, 24, 32, 3)

def test_what_is_no_clip_is_named(tmp_path):
    d = tmp_path / "w"
    film(d / "DAY1_A1_JAKE_11000000.mp4"); film(d / "DAY1_A1_JAKE_25000000.mp4"); film(d / "holiday.mp4"); (d / "notes.txt").write_text("x")
    outside = film(tmp_path / "DAY1_A1_JAKE_11003000.mp4", 9); (d / "DAY1_A1_JAKE_11003000.mp4").symlink_to(outside); (d / "same.mp4").symlink_to(d / "holiday.mp4")
    r = open_video(d); why = {os.path.basename(k): v for k, v in r.left_out.items()}
    assert len(r) == 1 and why == {"DAY1_A1_JAKE_25000000.mp4": "its name is no time of the week", "holiday.mp4": "its name is no time of the week", "same.mp4": "its name is no time of the week", "DAY1_A1_JAKE_11003000.mp4": "a link that leads out of the folder, or nowhere; links = true in the profile follows it"}
    assert len(open_video(d, links=True)) == 2
    film(tmp_path / "n/DAY1_A1_JAKE_25000000.mp4")
    with pytest.raises(InputError, match="no clip of A1_JAKE bears a time"): open_video(tmp_path / "n")

def test_of_several_people_one_is_named(tmp_path):
    for who, n in (("A1_JAKE", 1), ("A2_ALICE", 2)): film(tmp_path / f"flat/DAY1_{who}_11000000.mp4", n); film(tmp_path / f"deep/{who}/DAY1/DAY1_{who}_11000000.mp4", n)
    for d in ("flat", "deep"):
        r = open_video(tmp_path / d / "A2_ALICE"); assert r.id == "A2_ALICE" and len(r) == 1 and numbers(r.frames_at([D1])) == [2] and not r.left_out
        with pytest.raises(InputError, match="holds clips of A1_JAKE, A2_ALICE. Name one"): open_video(tmp_path / d)
        with pytest.raises(InputError, match="no such file"): open_video(tmp_path / d / "A3_TASHA")

def test_a_plain_folder_is_one_recording_in_the_order_of_its_names(tmp_path):
    for n in (1, 2, 10): film(tmp_path / f"part {n}.mp4", 1000*n, seconds=n % 9 + 1)
    (tmp_path / "part 3.mp4").write_text("no film"); (tmp_path / "read me.txt").write_text("x")
    r = open_video(tmp_path); assert [t for t, _ in r.clips] == [0, 2, 5, 5] and r.duration == 7 and r.recorded() == [Span(0, 7)] and r.damage == 1
    assert numbers(next(r.frames(1))[1]) == [1000, 1010, 2000, 2010, 2020, 10000, 10010] and r.id == tmp_path.name

def test_clips_on_another_disk_are_links_that_a_profile_can_follow(tmp_path):
    from reveal_kit.kit import Kit
    from reveal_kit.profiles import Profile
    film(tmp_path / "disk/a.mp4"); d = tmp_path / "here"; d.mkdir(); film(d / "b.mp4"); (d / "a.mp4").symlink_to(tmp_path / "disk/a.mp4")
    for links, seen in ((False, ["b.mp4"]), (True, ["a.mp4", "b.mp4"])):
        assert [p.name for _, p in open_video(d, links).clips] == seen
        with Kit(Profile.load("mini").model_copy(update=dict(links=links))) as kit: assert kit.recipe().links is kit.scene_recipe().links is links

@pytest.mark.parametrize("names", [[], ["a.txt"], ["deeper/a.mp4"]])
def test_a_folder_without_videos_is_refused(tmp_path, names):
    for n in names: (tmp_path / "d" / n).parent.mkdir(parents=True, exist_ok=True); (tmp_path / "d" / n).write_text("x")
    (tmp_path / "d").mkdir(exist_ok=True)
    with pytest.raises(InputError, match="a folder without a video file"): open_video(tmp_path / "d")
    with pytest.raises(InputError, match="no such file"): open_video(tmp_path / "e")
    with pytest.raises(InputError, match="no clip"): Reel([], tmp_path)

# --- segments, scenes, senses

def test_no_segment_runs_across_a_gap():
    v = np.array([[1, 0]]*4 + [[1, 0], [0, 1.]]); t = np.array([10., 11, 12, 13, 71, 72]); parts = [Span(10, 14), Span(70.5, 72.5), Span(90, 91)]
    assert boundaries(t, v, 91, Recipe(None, None), stretches=parts) == [Span(10, 14), Span(70.5, 72), Span(72, 72.5), Span(90, 91)]
    assert boundaries(t, v, 91, Recipe(None, None, fixed=2.0), stretches=parts) == [Span(10, 12), Span(12, 14), Span(70.5, 72.5), Span(90, 91)]
    assert boundaries(t, v, 73, Recipe(None, None), stretches=[Span(0.0, 73)]) == boundaries(t, v, 73, Recipe(None, None)) == [Span(0, 72), Span(72, 73)]

def test_a_gap_is_no_cut(tmp_path):
    plain = lambda rgb: (lambda n, size: np.full((size[1], size[0], 3), rgb, np.uint8))
    for t, c in (("11000000", (200, 40, 40)), ("11000200", (235, 235, 235)), ("11010000", (40, 40, 200)), ("11010200", (40, 40, 200))): film(tmp_path / f"DAY1_A1_JAKE_{t}.mp4", draw=plain(c))
    r = open_video(tmp_path); cuts = cuts_stage(r)
    assert cuts == [D1 + 2] and [x for s in recorded(r) for x in scene_spans([c for c in cuts if c in s], s.end, 1, 60, s.start)] == [Span(D1, D1 + 2), Span(D1 + 2, D1 + 4), Span(D1 + 60, D1 + 64)]

def test_vesta_is_told_that_nothing_was_recorded(week):
    r = open_video(week); q = Question("q", "A1_JAKE", "What?", ("a", "b"), D2 + 1); talk = Track((Line(Span(D1 + 5, D1 + 6), "Good night."),))
    s = Senses(r, N(endpoint=lambda role: N(vision=False)), lambda: talk, None, N(settings={}, lines=lambda f: [f"card {number(f)}"])); do = lambda op, a, b: perform(q, s, VestaSpec(), op, Span(a, b), "what").parts
    assert s.limit(q) == D2 + 1 and [(p.text, p.found) for op in ("inspect", "clip") for p in do(op, D1 + 100, D2 - 100)] == [("Nothing was recorded then.", False)]*2
    assert "card 1000" in " ".join(p.text for p in do("inspect", D1, D1 + 4)) and [p.text for p in do("speech", D1 + 4, D1 + 9)] == [f"[11:00:05] Good night."]

# --- a benchmark

SAID = {1: "1\n00:00:00,200 --> 00:00:01,500\n剪刀在抽屉里\nJake: The scissors are in the drawer.\n\n2\n00:20:00,000 --> 00:20:02,000\n午饭\nLucia: Lunch is ready.\n",
        2: "1\n00:30:00,600 --> 00:30:01,900\n剪刀在花园里\nJake: The scissors are in the garden now.\n"}

def test_egolife_from_its_folder_to_a_memory_that_keeps_the_future_out(week, tmp_path, minilm):
    from shutil import copytree
    from reveal_kit.kit import Kit
    from reveal_kit.profiles import Profile
    d = tmp_path / "EgoLife"; copytree(week, d); row = dict(ID="1", type="EntityLog", question="Where are the scissors?", choice_a="in the drawer", choice_b="in the garden", choice_c="on the table", choice_d="in the car", answer="A",
        target_time=dict(date="DAY1", time="11000010"), query_time=dict(date="DAY1", time="12000000"), identity="A1_JAKE")
    (d / "EgoLifeQA").mkdir(); (d / "EgoLifeQA/EgoLifeQA_A1_JAKE.json").write_text(json.dumps([row, row | dict(ID="2", answer="B", query_time=dict(date="DAY2", time="18000000"))]))
    for day, hour in ((1, "11"), (2, "09")): p = d / f"EgoLifeCap/Transcript/A1_JAKE/DAY{day}/A1_JAKE_DAY{day}_{hour}000000.srt"; p.parent.mkdir(parents=True); p.write_text(SAID[day], encoding="utf-8")
    b = load("egolife-a1", d); early, late = b.questions; assert b.runnable == b.questions and b.footage == {"A1_JAKE": dict(DAY1=2, DAY2=1)} and b.missing["footage"] == b.missing["days"] == []
    profile = Profile.load("mini").model_copy(update=dict(name="tiny")) # no recorded calls: none is needed
    with Kit(profile, mode="replay", levels=1, videos=b.videos, subtitles=b.ready_subtitles()) as kit:
        m = kit.memory("A1_JAKE"); assert m.id == "A1_JAKE" and m.duration == pytest.approx(D2 + 2, abs=.1)
        gaps = [g for g in m.segments if not any(s.start <= g.span.start and g.span.end <= s.end for s in recorded(m.video))]; assert not gaps and {g.span.start for g in m.segments} >= {D1, D2}
        assert sum(m.counts["frames"].values()) == 6 and m.counts["damaged"] == 0 and m.counts["speech_problems"]["said while nothing was recorded"] == 1
        found = {q.id: m.search(q.text, k=9, until=q.until) for q in b.questions}
        assert found["1"] and all(e.span.end <= early.until for e in found["1"]) and not any("garden" in e.text for e in found["1"]) and "drawer" in found["1"][0].text
        assert {"garden", "drawer"} <= {w for e in found["2"] for w in ("garden", "drawer") if w in e.text}
        assert all(e.span.end <= early.until for e in m.search_frames(m.keyframes[-1:], k=9, until=early.until)[0])
        gold = b.oracle["1"].spans[0]; assert any(g.span.start < gold.end and gold.start < g.span.end for g in m.level(1) if "drawer" in g.spoken)
        assert kit.heard("A1_JAKE").lines[0].span.start == pytest.approx(D1 + .2, abs=1e-3) and m.video.frames_at([D1 + .2]).shape == (1, 48, 64, 3)
    with Kit(profile, mode="replay", levels=1) as kit: assert kit.memory(d, subtitles=b.ready_subtitles()["A1_JAKE"], make=False).segments == m.segments
