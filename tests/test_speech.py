"""Timed text: every subtitle form and fault, and listening in windows. `data/spoken.mp4` was spoken by flite's slt, awb and rms; `data/spoken.srt` says what and when."""
import json, math, os, re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from reveal_kit.core import InputError, Span
from reveal_kit import speech
from reveal_kit.speech import RATE, Sound, Whisper, glue, join_tracks, normal_words, quietest, unloop, windows, words_error_rate
from reveal_kit.subtitles import Line, Track, Word, from_json, join_text, read_track, tidy, to_json, to_lines, to_srt

DATA = Path(__file__).parent / "data"
got = lambda track: [(l.span.start, l.span.end, l.text) for l in track]

@pytest.fixture
def put(tmp_path):
    def put(text, name="a.srt", encoding="utf-8"):
        p = tmp_path / name
        p.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
        return p
    return put

# --- forms -----------------------------------------------------------------------------------------------------------------------------------------------------------------------

VIDEO_MME = """1
00:00:00,000 --> 00:00:02,879
<font color="white" size=".72c">the ferry &amp; the island</font>

2
00:00:02,879 --> 00:00:05,000
a line without the tag

3
00:00:05,000 --> 00:00:07,500
<font color="white" size=".72c">it leaves at</font>
<font color="white" size=".72c">9 < 10</font>
"""

def test_video_mme_font_tags_and_lines_that_lack_them(put):
    t = read_track(put(VIDEO_MME))
    assert got(t) == [(0, 2.879, "the ferry & the island"), (2.879, 5, "a line without the tag"), (5, 7.5, "it leaves at 9 < 10")] and t.problems == {} and t.source == "a.srt"

VTT = """WEBVTT Kind: captions
Language: en

STYLE
::cue { color: red }

NOTE all that follows is invented

intro
00:01.000 --> 00:02.500 align:start position:0%
<v Ann>Hello</v> <i>there</i>

NOTE
00:99 is no cue

100:00:03.000 --> 100:00:04.000
<c.yellow>late</c>
"""

def test_webvtt_comments_names_and_voices(put):
    t = read_track(put(VTT, "a.vtt"))
    assert got(t) == [(1, 2.5, "Ann: Hello there"), (360003, 360004, "late")] and t.problems == {}

def test_rolling_captions_say_each_line_once(put):
    t = read_track(put("WEBVTT\n\n00:00.000 --> 00:02.000\n \nso today we\n\n00:02.000 --> 00:02.010\nso today we\n \n\n00:02.010 --> 00:04.000\nso today we\nbake<00:00:02.500><c> a</c><c> loaf</c>\n\n"
                       "00:04.000 --> 00:04.010\nbake a loaf\n\n00:04.010 --> 00:06.000\nbake a loaf\nof rye\n", "a.vtt"))
    assert t.text() == "so today we bake a loaf of rye" and t.problems == {"rolling repeats": 4}

def test_a_sentence_said_twice_stays(put):
    assert read_track(put("1\n00:00:01,000 --> 00:00:02,000\nNo.\n\n2\n00:00:05,000 --> 00:00:06,000\nNo.\n")).text() == "No. No."

def test_longvideobench_both_forms_offset_and_null_ends(put):
    a = put(json.dumps([{"timestamp": [30.0, 32.5], "text": "first"}, {"timestamp": [33, None], "text": " second "}, {"timestamp": [36.5, 39], "text": "third"}, {"timestamp": [41, None], "text": "last"}]), "a_en.json")
    b = put(json.dumps([{"start": "00:00:30.000", "end": "00:00:32.500", "line": "first"}, {"start": "00:00:33.000", "end": None, "line": "second"}, {"start": "00:00:36,500", "end": "00:00:39,000", "line": "third"},
                        {"start": "00:00:41.000", "end": "", "line": "last"}]), "b_en.json")
    want = [(0, 2.5, "first"), (3, 6.5, "second"), (6.5, 9, "third"), (11, 12, "last")]
    assert got(read_track(a, offset=30, duration=12)) == want == got(read_track(b, offset=30, duration=12))
    assert read_track(a, offset=30, duration=12).problems == {"no end": 2}
    later = read_track(a, offset=36, duration=12)                                    # a clip that begins within a line
    assert got(later) == [(.5, 3, "third"), (5, 12, "last")] and later.problems == {"no end": 1, "outside the video": 2}

def test_video_mme_v2_words_become_lines(put):
    ws = [("Good", 1, 1.2), ("morning.", 1.25, 1.6), ("The", 1.7, 1.8), ("ferry", 1.8, 2.2), ("is", 2.8, 2.9), ("late", 2.95, 3.3)]
    t = read_track(put("\n".join(json.dumps(dict(text=w, start_time=a, end_time=b)) for w, a, b in ws) + "\n", "001.jsonl"))
    assert got(t) == [(1, 1.6, "Good morning."), (1.7, 2.2, "The ferry"), (2.8, 3.3, "is late")]          # at the full stop; at a gap of 0.6 s
    assert t.text(Span(0, 1.9)) == "Good morning. The" and t.text(Span(1.9, 9)) == "ferry is late"
    assert len(t.lines[0].words) == 2 and t.problems == {}

def test_egolife_two_languages_and_hours(put):
    p = put("1\n00:09:42,100 --> 00:09:43,000\nJake: 我们开始吧\nJake: Let us begin\n\n2\n00:09:50,000 --> 00:09:51,000\nShure: 好\n", "A1_JAKE_DAY1_11000000.srt")
    assert got(read_track(p, offset=-11 * 3600, english=True)) == [(40182.1, 40183, "Jake: Let us begin"), (40190, 40191, "Shure: 好")]
    assert read_track(p, offset=582).lines[0] == Line(Span(.1, 1), "Jake: 我们开始吧 Jake: Let us begin")

def test_other_forms_through_pysubs2(put):
    ass = "[Script Info]\nScriptType: v4.00+\n\n[V4+ Styles]\nFormat: Name, Fontname\nStyle: Default,Arial\n\n[Events]\nFormat: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text\nDialogue: 0,0:00:01.00,0:00:02.50,Default,,0,0,0,,{\\an8}On\\Ntop\n"
    assert got(read_track(put(ass, "a.ass"))) == [(1, 2.5, "On top")]
    assert got(read_track(put("{1}{1}25.0\n{25}{50}Hello|you\n", "a.sub"))) == [(1, 2, "Hello you")]

def test_srt_oddities(put):
    t = read_track(put("\n\n7\n0:00:01.5 --> 0:00:02.5  X1:40\nA number ends it\n42\n\n\n8\n00:03 -> 00:04\nIf a --> b, then\n\nwhat?\n9\n00:00:05,120 --> 00:00:06,000\n12\n"))
    assert got(t) == [(1.5, 2.5, "A number ends it 42"), (3, 4, "If a --> b, then what?"), (5.12, 6, "12")]

def test_names_do_not_decide_the_form(put):
    assert got(read_track(put(VIDEO_MME, "a.json"))) == got(read_track(put(VIDEO_MME.replace("\n", "\r\n"), "b.txt"))) == got(read_track(put(VIDEO_MME.replace("\n", "\r"), "ü 'q\".vtt")))

# --- encodings -------------------------------------------------------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("encoding,note", [("utf-8", {}), ("utf-8-sig", {}), ("utf-16", {}), ("utf-16-le", {"encoding guessed": 1}), ("utf-16-be", {"encoding guessed": 1}), ("utf-32", {}),
                                           ("latin-1", {"encoding guessed": 1}), ("cp1252", {"encoding guessed": 1})])
def test_encodings(put, encoding, note):
    t = read_track(put("1\n00:00:01,000 --> 00:00:02,000\nDéjà vu im Café\n", encoding=encoding))
    assert got(t) == [(1, 2, "Déjà vu im Café")] and t.problems == note

def test_chinese_in_utf_16_without_a_mark(put):
    for e in ("utf-16-le", "utf-16-be"): assert read_track(put("1\n00:00:01,000 --> 00:00:02,000\n一二三\n", encoding=e)).text() == "一二三"

def test_one_broken_byte_does_not_cost_the_others(put):
    text = "1\n00:00:01,000 --> 00:00:02,000\ndéjà là été\n".encode()
    t = read_track(put(text.replace(b"\xc3\xa9j", b"\xffj")))
    assert t.text() == "d\ufffdjà là été" and t.problems == {"characters unreadable": 1}

# --- times that cannot be true -------------------------------------------------------------------------------------------------------------------------------------------------------

def test_overlapping_reversed_and_huge_times(put):
    t = read_track(put("""1
00:00:05,000 --> 00:00:04,000
reversed

2
00:00:06,000 --> 00:00:09,000
runs into the next

3
00:00:07,000 --> 99:59:59,999
endless

4
00:59:58,000 --> 00:00:01,000
the hour was forgotten

5
99999:00:00,000 --> 99999:00:01,000
far away

6
00:01:00,000 --> 00:01:00,000
an instant

7
00:xx:00,000 --> 00:01:09,000
no time at all

8
00:01:00,000 --> 00:01:02,000
beside it
"""), duration=7200)
    assert got(t) == [(4, 5, "reversed"), (6, 7, "runs into the next"), (7, 17, "endless"), (60, 62, "an instant beside it"), (3598, 3608, "the hour was forgotten")]
    assert t.problems == {"reversed times": 2, "too long": 1, "no end": 1, "times out of reach": 1, "no length": 1, "times unreadable": 1, "same start": 1, "overlaps": 1, "out of order": 1}

def test_lines_beyond_the_video_are_counted(put):
    t = read_track(put("1\n00:00:01,000 --> 00:00:02,000\nin\n\n2\n00:00:09,000 --> 00:00:12,000\nhalf in\n\n3\n00:00:20,000 --> 00:00:21,000\nout\n"), duration=10)
    assert got(t) == [(1, 2, "in"), (9, 10, "half in")] and t.problems == {"past the end": 1, "outside the video": 1}

times = st.one_of(st.floats(-50, 500), st.sampled_from([0.0, 1.0, 1.0004, 5.0, math.inf, -math.inf, math.nan, 1e9, 3e300]))
@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(times, st.one_of(st.none(), times), st.sampled_from(["", "a", "b", "c d"])), max_size=12), st.floats(-20, 20), st.one_of(st.none(), st.floats(1, 300)))
def test_tidy_lines_never_overlap_and_every_cue_is_accounted_for(cues, offset, duration):
    problems = Counter(); lines = tidy([(s, e, t and f"{t}{i}") for i, (s, e, t) in enumerate(cues)], problems, offset, duration)
    for a, b in zip(lines, lines[1:]): assert a.span.end <= b.span.start
    for l in lines: assert 0 <= l.span.start < l.span.end and (duration is None or l.span.end <= duration + 5e-4)
    dropped = problems["empty lines"] + problems["times out of reach"] + problems["outside the video"]
    kept = sum(f"{t}{i}" in l.text.split() or t == "c d" and f"d{i}" in l.text.split() for i, (_, _, t) in enumerate(cues) if t for l in lines)
    assert kept + dropped == len(cues)

# --- files that are not subtitles ---------------------------------------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("text,says", [
    (b"\0\0\0\x20ftypisom\0\0\2\0" * 40, "not a text file"), ("Dear diary, nothing today.\n", "no subtitle line"), ('{"a": 1}', "without subtitle rows"), ('[{"timestamp": [0, 1], "text"', "without subtitle rows"),
    ("[" * 100000, "without subtitle rows"), ('[1, 2, "x"]', "without subtitle rows"), ('{"source": "x", "lines": [', "not a whole track"), ('{"source": "x", "language": "", "problems": {}, "lines": [[1, NaN, "a", []]]}', "not a whole track"),
    ("\x89PNG\r\n\x1a\n" + "ÿØ" * 50, "no subtitle line"), ("[Script Info]\n[Events]\nDialogue: 0,zz\n", "no subtitle line"), ("WEBVTT\n\nNOTE only this\n", "no subtitle line")])
def test_other_files_are_refused_in_one_line(put, text, says):
    p = put(text)
    with pytest.raises(InputError) as e: read_track(p)
    assert says in str(e.value) and p.name in str(e.value) and "\n" not in str(e.value)

def test_paths_that_are_no_files(tmp_path):
    big = tmp_path / "big.srt"
    with open(big, "wb") as f: f.truncate(65 << 20)
    os.mkfifo(tmp_path / "pipe.srt")
    for p, says in ((tmp_path / "none.srt", "cannot be read"), (tmp_path, "is not a file"), (tmp_path / "pipe.srt", "is not a file"), (big, "Is it the video?")):
        with pytest.raises(InputError, match=re.escape(says)): read_track(p)

def test_empty_files_are_empty_tracks(put):
    for text in ("", " \n\n", "\ufeff", "WEBVTT\n"): assert (t := read_track(put(text))).lines == () and t.problems == {"empty file": 1}
    assert read_track(put("[]")).lines == ()

def test_torn_rows_are_counted(put):
    t = read_track(put('{"text": "Good", "start_time": 1, "end_time": 1.2}\nnonsense\n{"text": "day", "start_time": 1.5, "end_time": 1.3}\n{"text": "x"}\n{"text": "night", "start_ti', "001.jsonl"))
    assert t.text() == "Good day" and t.problems == {"rows unreadable": 3, "reversed times": 1}

@settings(max_examples=300, deadline=None)
@given(st.one_of(st.binary(max_size=200), st.lists(st.sampled_from(["1\n", "00:00:01,000 --> ", "00:00:02,000\n", "-->", "\n\n", "WEBVTT\n\n", "[", "{", '"text"', ":", "1e999", '{"text":"a","start_time":', "}", ",", "hi", "é", "\0", "<v x>", "{\\b1}", "{1}{2}"]), max_size=25).map(lambda x: "".join(x).encode())))
def test_any_bytes_give_a_track_or_one_clear_line(tmp_path_factory, data):
    p = tmp_path_factory.getbasetemp() / "any.srt"; p.write_bytes(data)
    try: t = read_track(p)
    except InputError as e: assert "any.srt" in str(e) and "\n" not in str(e); return
    assert from_json(to_json(t)) == t

# --- keeping -------------------------------------------------------------------------------------------------------------------------------------------------------------------------

text = st.text(st.characters(blacklist_categories=("Cs",)), min_size=1, max_size=8)
word = st.builds(lambda a, n, t, p: Word(a, a + n, t, p), st.floats(0, 1e5), st.floats(0, 3), text, st.floats(0, 1))
line = st.builds(lambda a, n, t, ws: Line(Span(min(w.start for w in ws), max(w.end for w in ws)) if ws else Span(a, a + n), t, tuple(ws)), st.floats(0, 1e5), st.floats(0, 9), text, st.lists(word, max_size=2))
@settings(max_examples=100, deadline=None)
@given(st.builds(lambda ls, s, p, g: Track(tuple(ls), s, p, g), st.lists(line, max_size=5), text, st.dictionaries(text, st.integers(0, 9), max_size=3), st.sampled_from(["", "en"])))
def test_json_round_trip_is_the_same_track_and_the_same_bytes(t):
    j = to_json(t)
    assert from_json(j) == t and to_json(from_json(j)) == j and len(j.splitlines()) >= 2

def test_json_has_one_line_per_line_and_read_track_reads_it(put):
    t = Track((Line(Span(1, 2), "Hi.", (Word(1, 2, "Hi.", .75),)), Line(Span(3, 4), "Ho\u2028.")), "w", {"b": 1, "a": 2}, "en")
    assert to_json(t) == '{"source": "w", "language": "en", "problems": {"a": 2, "b": 1}, "lines": [\n[1.0, 2.0, "Hi.", [[1.0, 2.0, "Hi.", 0.75]]],\n[3.0, 4.0, "Ho\u2028.", []]\n]}\n'
    p = put(to_json(t), "t.json")
    assert read_track(p) == t and got(read_track(p, offset=2.5)) == [(.5, 1.5, "Ho\u2028.")] and read_track(p, offset=2.5).problems == {"a": 2, "b": 1, "outside the video": 1}

def test_srt_round_trip(put):
    t = Track((Line(Span(1.25, 2), "Hi --> ho"), Line(Span(3599.9996, 3601), "7"), Line(Span(450000, 450001), "a\n\nb")))
    assert to_srt(t).startswith("1\n00:00:01,250 --> 00:00:02,000\nHi → ho\n\n2\n01:00:00,000 --> 01:00:01,000\n7\n\n3\n125:00:00,000")
    assert got(read_track(put(to_srt(t)))) == [(1.25, 2, "Hi → ho"), (3600, 3601, "7"), (450000, 450001, "a b")]

# --- spans -----------------------------------------------------------------------------------------------------------------------------------------------------------------------------

def test_a_line_lies_in_the_span_that_holds_its_middle_or_most_of_it():
    t = Track((Line(Span(8, 12), "straddles"), Line(Span(20, 40), "long")))
    assert t.text(Span(0, 10)) == "" and t.text(Span(10, 20)) == "straddles"          # exactly half each: the middle decides, and it is in neither twice
    assert t.text(Span(22, 26)) == "long" and t.text(Span(39, 60)) == "" and t.text(Span(0, 9.9)) == ""

def test_words_are_cut_between_words():
    t = Track((Line(Span(0, 3), "one two three", (Word(0, 1, "one"), Word(1, 2, "two"), Word(2, 3, "three"))),), problems={"overlaps": 1})
    part = t.within(Span(0, 1.6))
    assert got(part) == [(0, 2, "one two")] and part.problems == {} and t.within(Span(5, 9)).lines == () and t.within(Span(0, 3)) .lines == t.lines

@settings(max_examples=60, deadline=None)
@given(st.lists(line, max_size=4), st.lists(st.floats(0, 1e5), max_size=5))
def test_tiles_hear_every_line_and_every_word_once(lines, cuts):
    t, edges = Track(tuple(lines)), [0.0, *sorted(set(cuts)), 2e5]
    parts = [t.within(Span(a, b)) for a, b in zip(edges, edges[1:]) if b > a]
    assert sorted((w.start, w.end, w.text) for p in parts for l in p for w in l.words) == sorted((w.start, w.end, w.text) for l in t for w in l.words)
    for l in t:
        if not l.words: assert any(l in p.lines for p in parts)

def test_within_finds_by_bisection_what_a_scan_finds():
    rng = np.random.default_rng(0); starts = np.sort(rng.uniform(0, 5000, 3000))
    t = Track(tuple(Line(Span(s, s + d), str(i)) for i, (s, d) in enumerate(zip(starts, rng.exponential(3, 3000)))))
    from reveal_kit.subtitles import _cut
    for a in rng.uniform(0, 5000, 40): assert list(t.within(Span(a, a + 7))) == [l for l in t if _cut(l, Span(a, a + 7))]

@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.floats(0, .9), st.floats(.05, 2), st.sampled_from(["a", "b.", "c?", "d"])), max_size=60), st.sampled_from([0, 3, 6]))
def test_to_lines_loses_no_word_and_keeps_its_limits(steps, long):
    ws, now = [], 0.0
    for pause, length, t in steps: ws.append(Word(now + 2 * pause, now + 2 * pause + length, t)); now = ws[-1].end
    lines = to_lines(ws, gap=1.0, long=long, longest=20)
    assert [w for l in lines for w in l.words] == ws and all(l.span.length <= 20 for l in lines)
    assert all(b.start - a.end <= 1 for l in lines for a, b in zip(l.words, l.words[1:]))
    if long == 0: assert all(w.text[-1] not in ".?" for l in lines for w in l.words[:-1])

# --- windows ----------------------------------------------------------------------------------------------------------------------------------------------------------------------------

def test_windows_tile_and_each_cut_is_local():
    rng = np.random.default_rng(1); x = (.1 * rng.standard_normal(460 * RATE)).astype(np.float32)
    for t in (83, 171, 280): x[t * RATE:(t + 1) * RATE] *= .003
    ws = windows(x)
    assert ws[0].start == 0 and ws[-1].end == 460 and all(a.end == b.start for a, b in zip(ws, ws[1:])) and len(ws) == 5
    assert all(60 <= w.length <= 120 for w in ws[:-1])
    y = x.copy(); y[300 * RATE:] *= .5
    assert windows(y)[:3] == ws[:3]
    assert all(abs(w.end - t - .5) < .4 for w, t in zip(ws, (83, 171, 280)))

@pytest.mark.parametrize("seconds,n", [(0.01, 1), (5, 1), (134.9, 1), (135, 2), (224, 2), (226, 3), (3600, 40)])
def test_window_counts(seconds, n):
    ws = windows(Sound(np.zeros(round(seconds * 160), np.float32), 160)) if seconds < 1 else windows(type("Silent", (), dict(duration=seconds, audio=lambda s, span, rate: np.zeros(0, np.float32)))())
    assert len(ws) == n and ws[-1].end == pytest.approx(seconds, abs=.01) and all(w.length > 0 for w in ws)

def test_quietest_prefers_a_long_pause_to_closed_lips():
    x = np.full(30 * RATE, .1, np.float32)
    x[5 * RATE:int(5.06 * RATE)] = 0; x[20 * RATE:int(20.7 * RATE)] = .001
    assert 20.2 <= quietest(x) <= 20.5
    x[24 * RATE:27 * RATE] = .001
    assert quietest(x) == pytest.approx(25.5, abs=.03) and quietest(x[:100]) == pytest.approx(50 / RATE)

# --- what Whisper hands over --------------------------------------------------------------------------------------------------------------------------------------------------------------

def test_glue_makes_words_of_tokens_and_keeps_time_forward():
    ws = glue([(0, .5, " At", .9), (.4, .9, " 9", .8), (.9, 1.2, ":30", .7), (1.1, 1.0, " sharp", .6), (1.3, 9, ",", .9), (.2, .4, " late", .9)], Span(100, 105))
    assert [(w.text, w.start, w.end, w.p) for w in ws] == [("At", 100, 100.5, .9), ("9:30", 100.4, 101.2, .7), ("sharp,", 101.1, 105, .6), ("late", 101.3, 101.3, .9)]
    assert [w.text for w in glue([(0, 1, "我", 1), (1, 2, "们", 1), (2, 3, " ", 1)], Span(0, 9))] == ["我", "们"]

def test_unloop():
    say = lambda s: [Word(i, i + 1, w) for i, w in enumerate(s.split())]
    words = lambda s: join_text(w.text for w in unloop(say(s))[0])
    assert words("no no no no") == "no no no no" and words("no no no no no, yes") == "no no yes"
    assert words("a " + "he is not there, and it is not there. " * 6 + "b") == "a " + "he is not there, and it is not there. " * 2 + "b"
    assert unloop(say("x " * 40))[1] == 38 and unloop([]) == ([], 0) and words("— — — — — —") == "— — — — — —"

class Segment:
    def __init__(self, text, start, no_speech_prob=.1, avg_logprob=-.3):
        tokens = re.findall(r"\s*\S+", text)
        W = lambda i, t: type("W", (), dict(start=np.float64(start + i / 2), end=np.float64(start + i / 2 + .4), word=t, probability=np.float64(.9)))()
        self.text, self.no_speech_prob, self.avg_logprob, self.words = text, no_speech_prob, avg_logprob, [W(i, t) for i, t in enumerate(tokens)]

class Stub:
    "Behaves like faster-whisper's model: says how loud a piece is, so that the text depends on the sound and on nothing else."
    model = type("M", (), dict(is_multilingual=True))()
    def __init__(self, languages=(("en", .9),)): self.languages, self.calls, self.asked = list(languages), [], 0
    def detect_language(self, audio): self.asked += 1; l, p = self.languages[min(self.asked, len(self.languages)) - 1]; return l, p, []
    def transcribe(self, audio, language, **k):
        self.calls.append((len(audio), language))
        return [Segment(f" Level {int(np.abs(audio).max() * 1000)}.", 0), Segment(" . ...", 2), Segment(" you", 3, .8, -1.5), Segment(" Sure you are.", 5, .9, -.2)], None

@pytest.fixture
def stub(tmp_path, monkeypatch):
    "A `Whisper` whose model is a `Stub`; whatever is louder than 0.01 counts as speech."
    for f in ("model.bin", "config.json", "tokenizer.json"): (tmp_path / f).write_text("{}")
    def found(audio):
        on = np.flatnonzero(np.abs(audio) > .01)
        return [(int(on[0]), int(on[-1]) + 1)] if len(on) else []
    monkeypatch.setattr(speech, "pieces", found)
    w = Whisper(tmp_path); w._model = Stub()
    return w

def sound(n=4, silent=()):
    x = np.zeros(n * 90 * RATE, np.float32)
    for i in range(n):
        if i not in silent: x[(i * 90 + 20) * RATE:(i * 90 + 60) * RATE] = .1 + i / 10
    return Sound(x)

def test_transcript_and_what_was_dropped(stub):
    t = stub.transcribe(sound(3, silent=(1,)))
    assert got(t) == [(20, 20.9, "Level 100."), (25, 26.4, "Sure you are."), (200, 200.9, "Level 300."), (205, 206.4, "Sure you are.")]
    assert t.problems == {"punctuation only": 2, "taken for silence": 2, "windows without speech": 1} and t.language == "en" and t.source == stub.name

@pytest.mark.parametrize("stop", [0, 1, 2, 3])
def test_killed_after_any_window_the_rest_gives_the_same_bytes(stub, stop):
    whole = stub.transcribe(sound())
    kept = {}
    def keep(i, track):
        if i == stop: raise KeyboardInterrupt
        kept[i] = to_json(track)
    with pytest.raises(KeyboardInterrupt): stub.transcribe(sound(), on_window=keep)
    assert sorted(kept) == list(range(stop))
    stub._model = Stub(); asked = []
    again = stub.transcribe(sound(), skip={i: from_json(t) for i, t in kept.items()}, on_window=lambda i, t: asked.append(i))
    assert to_json(again) == to_json(whole) and asked == list(range(stop, 4)) and len(stub._model.calls) == 4 - stop
    rest = stub.transcribe(sound(), skip=range(stop))
    assert to_json(join_tracks([*(from_json(kept[i]) for i in range(stop)), rest])) == to_json(whole)

def test_nothing_is_asked_when_all_is_known(stub):
    parts = {}; whole = stub.transcribe(sound(), on_window=parts.__setitem__); stub._model = Stub()
    assert to_json(stub.transcribe(sound(), skip=parts)) == to_json(whole) and stub._model.asked == 0 and stub._model.calls == []

def test_language_is_decided_once_by_the_first_clear_speech(stub):
    stub._model = Stub([("fr", .3), ("de", .8), ("en", .9)])
    assert stub.transcribe(sound()).language == "de" and {l for _, l in stub._model.calls} == {"de"} and stub._model.asked == 2
    stub._model = Stub([("fr", .3), ("de", .2), ("de", .2), ("fr", .05)])
    assert stub.transcribe(sound()).language == "de"                                # never clear: .4 against .35
    stub.language, stub._model = "it", Stub()
    assert stub.transcribe(sound()).language == "it" and stub._model.asked == 0

def test_no_sound_and_no_speech(stub):
    silent = type("Mute", (), dict(has_audio=False, duration=100.0, audio=lambda *a: np.zeros(0, np.float32)))()
    assert stub.transcribe(silent) == Track((), stub.name, {"no sound": 1}) == stub.transcribe(np.zeros(0, np.float32))
    t = stub.transcribe(sound(2, silent=(0, 1)))
    assert t.lines == () and t.problems == {"windows without speech": 2} and t.language == "" and stub._model.calls == []

def test_settings_name_what_shapes_the_result(stub):
    s = stub.settings
    assert json.loads(json.dumps(s)) == s and s["engine"]["faster-whisper"] and s["decode"]["beam_size"] == 1
    other = Whisper(stub.folder, language="de"); more = Whisper(stub.folder, threads=1)
    assert other.settings != s == more.settings
    (stub.folder / "model.bin").write_text("[]"); assert stub.settings["weights"] != s["weights"]

def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(InputError, match="model.bin, config.json, tokenizer.json missing"): Whisper(tmp_path)

# --- error rate ----------------------------------------------------------------------------------------------------------------------------------------------------------------------------

def slow(a, b):
    d = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        prev, d[0] = d[0], i
        for j, y in enumerate(b, 1): prev, d[j] = d[j], min(d[j] + 1, d[j-1] + 1, prev + (x != y))
    return d[-1]

@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=12), st.lists(st.sampled_from("abcd"), max_size=12))
def test_error_rate_is_the_edit_distance(a, b):
    a, b = [x * 3 for x in a], [x * 3 for x in b]
    assert words_error_rate(" ".join(a), " ".join(b)) == slow(a, b) / len(a)

@pytest.mark.parametrize("ref,hyp,rate", [
    ("", "", 0), ("", "a word", 1), ("one two", "", 1), ("It's OK, Mr. Smith!", "its okay mister smith", 0), ("four five six", "456", 0), ("two million three hundred thousand and twelve", "2,300,012", 0),
    ("not four but six", "not 4 but 7", 1/4), ("nineteen hundred", "1900", 0), ("a hundred and one", "101", 0), ("seventy-first street", "71st street", 0), ("and one and two", "and 1 and 2", 0),
    ("forty percent", "40 %", 0), ("the colour grey", "the color gray", 0), ("oh no", "oh no", 0), ("zero", "0", 0), ("seven oh five", "7:05", 0), ("hundreds of boats", "hundreds of goats", 1/3), ("twenty one", "20 1", 1)])
def test_error_rate_cases(ref, hyp, rate): assert words_error_rate(ref, hyp) == pytest.approx(rate)

@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**9 - 1))
def test_number_words_become_their_digits(n):
    ones, tens = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split(), "twenty thirty forty fifty sixty seventy eighty ninety".split()
    def under(k): return ones[k] if k < 20 else tens[k//10-2] + (f"-{ones[k%10]}" if k % 10 else "") if k < 100 else f"{ones[k//100]} hundred" + (f" and {under(k%100)}" if k % 100 else "")
    parts = [f"{under(n // s % 1000)} {name}".strip() for s, name in ((10**6, "million"), (1000, "thousand"), (1, "")) if n // s % 1000]
    assert normal_words(" ".join(parts) or "zero") == [str(n)]

# --- the real thing ---------------------------------------------------------------------------------------------------------------------------------------------------------------------------

def test_whisper_hears_a_broadcast():
    from reveal_kit import zoo
    from reveal_kit.video import Video
    if not zoo.present("whisper-base"): pytest.skip("Whisper's weights are not here: reveal models pull mini")
    said, video, parts = read_track(DATA / "spoken.srt"), Video(DATA / "spoken.mp4"), {}
    w = Whisper(zoo.folder("whisper-base"))
    heard = w.transcribe(video, on_window=lambda i, t: parts.__setitem__(i, to_json(t)))
    assert words_error_rate(said.text(), heard.text()) < .1 and heard.language == "en" and len(parts) == 2
    for text in ("twenty-four passengers", "250 grams of flour", "quarter past six", "nineteen days"): assert " ".join(normal_words(text)) in " ".join(normal_words(heard.text()))
    spoken = [Span(l.span.start - .8, l.span.end + .5) for l in said]
    assert all(any(w.middle in s for s in spoken) for l in heard for w in l.words), "words were heard where nobody speaks"
    assert all(any(c.isalnum() for c in l.text) for l in heard) and all(b.start - a.end <= 1 for l in heard for a, b in zip(l.words, l.words[1:]))
    again = Whisper(w.folder, threads=1).transcribe(video, skip={0: from_json(parts[0])})     # another process, one thread, resumed after the first window
    assert to_json(again) == to_json(heard)
