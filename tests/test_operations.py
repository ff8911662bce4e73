"What comes back when a video is searched, looked at, listened to and asked about; in video time, whatever is asked (VESTA 3.4, B.5)."
import json, math, re
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from reveal_kit import operations
from reveal_kit.calls import CallLog
from reveal_kit.chat import Chat, ChatError, Endpoint
from reveal_kit.core import InputError, Question, Span, Trace, overlap
from reveal_kit.operations import (BLIND, DENSE, LEAST, PARTS, Note, Senses, few, glance, inspect, analyse, judgement, listen, look_up, noted, paragraphs, perform, place, rate_for, read_parts, stretches, understood)
from reveal_kit.profiles import VestaSpec
from reveal_kit.replies import schema_of
from reveal_kit.screen import Written
from reveal_kit.subtitles import Line, Track
from reveal_kit.video import Video
from tests.chat_server import ChatServer, Say
from tests.media import make, number

quick = settings(max_examples=150, deadline=None)
Q = Question("q1", "v", "How many crates come in?", ("four", "six", "nine"))

@pytest.fixture(scope="module")
def film(tmp_path_factory): return Video(make(tmp_path_factory.mktemp("film") / "film.mp4", seconds=120, rate=2, gop=20, sound=False)) # every frame carries its number: second t shows 2t

@pytest.fixture
def own(tmp_path, monkeypatch): monkeypatch.setenv("REVEAL_HOME", str(tmp_path / "home")); return tmp_path / "home"

class Reads:
    "Reads the ten-second card that a frame belongs to, and counts what it was given."
    settings = dict(engine="fake")
    def __init__(self, words=lambda second: [f"card {second//10}"]): self.words, self.seen = words, []
    def lines(self, frame): self.seen.append(number(frame)); return self.words(self.seen[-1]//2)

TALK = Track((Line(Span(2, 5), "Six crates came in."), Line(Span(5.5, 9), "No, four."), Line(Span(50, 53), "Nine gulls.")))

def senses(film, server=None, vision=False, track=TALK, reader=None, scenes=None, **kw):
    chat = Chat(dict(default=Endpoint("test-model", server.url if server else "http://unserved.invalid/v1", vision=vision, timeout=30, **kw)), CallLog(), pause=0.01)
    return Senses(film, chat, lambda: track, scenes, Reads() if reader is None and not vision else reader)

# --- where

times = st.one_of(st.floats(-1e4, 1e4), st.integers(-99, 9999), st.sampled_from(["1:02:03", "0:10", "75", "", "nan", "inf", "-5", "1:-3", "soon", "1:2:3:4", "m:ss", "9" * 400]), st.text(max_size=8))

@quick
@given(times, times, st.floats(.5, 5000))
def test_a_place_lies_in_the_video_or_is_refused_in_words(a, b, limit):
    try: span, said = place(a, b, limit)
    except InputError as e: assert 10 < len(str(e)) < 600
    else:
        assert 0 <= span.start <= span.end <= limit and span.length >= min(LEAST, limit) - 1e-6
        try: asked = sorted(operations.interval(a, b, math.inf)[0].__dict__.values())
        except Exception: asked = None
        if asked and (span.start, span.end) != tuple(asked): assert said, "what was changed is told"

@pytest.mark.parametrize("a, b, want, says", [
    ("1:02:03", "1:02:10", (3723, 3730), ""), (90, 60, (60, 90), "reversed"), (-9, 9, (0, 9), "clipped"), ("4000", "5000", (4000, 4200), "clipped"), ("0:07", "0:07", (6, 8), "widened"), (4200, 4199.5, (4198, 4200), "widened"), (0, 0, (0, 2), "widened")])
def test_places_by_hand(a, b, want, says):
    span, said = place(a, b, 4200); assert (span.start, span.end) == pytest.approx(want, abs=.26 if says == "widened" else 1e-9) and says in said

@pytest.mark.parametrize("a, b", [("nan", 5), (5, "nan"), ("", ""), (5000, 6000), (-9, -3), ("inf", 3)])
def test_places_that_are_none(a, b):
    with pytest.raises(InputError): place(a, b, 4200)

def test_what_is_understood(film):
    s = senses(film)
    assert understood(Q, s, "clip", 0, 5) == (Span(0, 5), Q.text, "") and understood(Q, s, "inspect", 0, 5, "  a \n gull ") == (Span(0, 5), "a gull", "")
    for op, query in (("retrieve", "a"), ("retrieve", " ")):
        with pytest.raises(InputError): understood(Q, s, op, "", "", query)
    s.scenes = lambda: None; assert understood(Q, s, "retrieve", "x", "y", "a gull") == (Span(0, 120), "a gull", "")
    with pytest.raises(InputError, match="query"): understood(Q, s, "retrieve", "", "", " \n")
    early = Question("q", "v", "What?", until=30); assert understood(early, s, "speech", 20, 90)[0] == Span(20, 30), "what comes after the question's time does not exist"
    with pytest.raises(InputError, match="outside"): understood(early, s, "speech", 31, 90)

# --- parts

@quick
@given(st.integers(0, 60), st.integers(1, 15))
def test_few_keeps_all_in_order(n, most):
    got = few(list(range(n)), most); assert sum(got, []) == list(range(n)) and len(got) == min(n, most) and all(got)

spans = st.tuples(st.floats(0, 100), st.floats(0, 40)).map(lambda t: Span(t[0], t[0] + t[1]))

@quick
@given(spans, st.lists(st.tuples(spans, st.sampled_from("ABCDE")), max_size=30))
def test_stretches_cover_the_interval_once_and_keep_every_line(span, rows):
    ws = [Written(Span(max(s.start, span.start), min(s.end, span.end)), t) for s, t in rows if overlap(s, span) > 0]
    got = stretches(ws, span)
    assert 1 <= len(got) <= PARTS if span.length else len(got) <= PARTS
    if got: assert got[0][0].start == span.start and got[-1][0].end == span.end and all(a.end == b.start for (a, _), (b, _) in zip(got, got[1:]))
    assert {w.text for w in ws} == {w.text for _, g in got for w in g}
    if len(got) > 1: assert all(g for _, g in got), "only an interval without any line has a part without one"

def test_a_title_that_stays_and_captions_that_change():
    ws = [Written(Span(0, 40), "Market Walk"), Written(Span(5, 12), "Adam: walnuts"), Written(Span(12, 20), "Susan: pears"), Written(Span(30, 30.5), "noise")]
    got = stretches(ws, Span(0, 40))
    assert [(s.start, s.end, [w.text for w in g]) for s, g in got] == [(0, 5, ["Market Walk"]), (5, 12, ["Market Walk", "Adam: walnuts"]), (12, 20, ["Market Walk", "Susan: pears"]), (20, 40, ["Market Walk", "noise"])]

def test_long_parts_say_when_and_short_ones_how_it_looks():
    none = np.zeros((0, 6)); looks = np.array([[t, 255, 0, 0, 1, 0] for t in range(40)], float)
    long, = read_parts([Written(Span(3, 40), "HARBOUR")], none, Span(0, 40)); assert long.text == "On screen: HARBOUR (0:03)" and long.aside == BLIND
    short, = read_parts([], looks, Span(0, 10)); assert short.text == "Nothing is written there." and short.aside == "read, not seen; bright, mostly red, still" and short.found is False, "a look that met nothing verifies nothing"
    assert long.found is None, "what was read is neither yes nor no"

@quick
@given(spans, st.lists(st.tuples(times, times, st.text(max_size=20)), max_size=20))
def test_notes_become_parts_that_cover_what_was_looked_at(span, rows):
    parts, counts = noted([Note.model_construct(start=a, end=b, text=t) for a, b, t in rows], span, True)
    said = [t for *_, t in rows if t.strip()]
    assert counts["empty"] == len(rows) - len(said) and bool(parts) == bool(said) and len(parts) <= PARTS
    if parts: assert parts[0].span.start == span.start and parts[-1].span.end == span.end and sum(p.span.length for p in parts) == pytest.approx(span.length)
    assert all(t.strip() in " ".join(p.text for p in parts) for t in said) and all(p.found for p in parts)

# --- reading

@pytest.mark.parametrize("most", [1, 2, 7, 50, 150])
@pytest.mark.parametrize("length", [.3, 2, 24.5, 75, 900, 21600])
def test_never_more_frames_than_allowed(length, most):
    r = rate_for(length, most)
    for start in (0, .1, 3.99): assert np.count_nonzero((g := np.arange(math.ceil(start*r - 1e-9), math.ceil((start + length)*r - 1e-9))/r) >= start - 1e-6) <= max(most, 1) if most > 1 else True
    assert r == DENSE or length*r*2 + 1 > most

def test_a_glance_reads_what_changed_once_and_for_all(film, own):
    r = Reads(); a = glance(film, Span(4, 24), 2.0, r)
    assert [(w.text, w.span.start, w.span.end) for w in a[0]] == [("card 0", 4, 10), ("card 1", 10, 20), ("card 2", 20, 24)]
    assert len(a[1]) == 40 and a[1][0, 0] == 4 and a[1][-1, 0] == 23.5
    n = len(r.seen); b = glance(film, Span(4, 24), 2.0, r); assert len(r.seen) == n and b[0] == a[0] and (b[1] == a[1]).all(), "kept on disk, and the same"
    glance(film, Span(12, 18), 2.0, r); assert len(r.seen) == n, "part of what was read"
    glance(film, Span(12, 34), 2.0, r); assert n < len(r.seen) and min(r.seen[n:]) >= 60 - 1, "only the window that is new"
    assert glance(Video(film.path), Span(4, 24), 2.0, r)[0] == a[0]
    other = Reads(); other.settings = dict(engine="other"); glance(film, Span(4, 24), 2.0, other); assert other.seen, "another reader reads for itself"

def test_frames_of_a_reading_inspection(film, own):
    o = inspect(Q, senses(film), VestaSpec(), Span(0, 120)); assert o.frames == 120 <= 150 and o.span == Span(0, 120) and sum(p.span.length for p in o.parts) == 120 # at one a second: 241 would be too many
    assert inspect(Q, senses(film), VestaSpec(inspect_frames=20), Span(0, 120)).frames == 15 # every eight seconds
    assert all(p.aside.startswith(BLIND) for p in o.parts) and o.parts[0].text.startswith("On screen: card 0")
    assert inspect(Q, senses(film, reader=Reads(lambda s: [])), VestaSpec(), Span(3, 9)).parts[0].text == "Nothing is written there."

def test_the_end_of_the_video_and_less_than_a_frame(film, own):
    for span in (Span(119, 120), Span(119.9, 120), Span(0, .2)):
        o = inspect(Q, senses(film), VestaSpec(), span); assert o.parts[0].span.start == span.start and o.parts[-1].span.end == span.end and o.frames <= 3

# --- seeing

def frames_of(server, i=-1): return [p for p in server.requests[i]["messages"][1]["content"] if p["type"] == "image_url"] if isinstance(server.requests[i]["messages"][1]["content"], list) else []
NOTES = json.dumps(dict(notes=[dict(start="0:12", end="0:14", text="a gull lands"), dict(start="0:10", end=11, text="an empty pier")], found=True))

def test_a_perceiver_that_sees_is_sent_frames(film):
    with ChatServer(NOTES) as server:
        t = Trace(); o = inspect(Q, senses(film, server, True), VestaSpec(), Span(10, 20), "a gull", t)
        assert [(p.span.start, p.span.end, p.text, p.found, p.aside) for p in o.parts] == [(10, 12, "an empty pier", True, ""), (12, 20, "a gull lands", True, "")]
        assert o.frames == 10 == len(frames_of(server)) and all(i["mime"] == "image/jpeg" for i in server.images) and t.usage["calls/perceiver"] == 1
        assert inspect(Q, senses(film, server, True), VestaSpec(inspect_frames=4), Span(0, 120)).frames == 4 == len(frames_of(server))
        assert inspect(Q, senses(film, server, True), VestaSpec(), Span(10, 20)).parts[0].found is None, "nothing was looked for, so nothing was missed"
        assert inspect(Q, senses(film, server, True), VestaSpec(), Span(0, 120)).frames == 120 and len(frames_of(server)) <= 150

def test_half_of_the_frames_when_they_do_not_fit(film):
    full = Say(status=400, body={"error": dict(code=400, message="request (9000 tokens) exceeds the available context size (4096 tokens)", type="exceed_context_size_error", n_prompt_tokens=9000, n_ctx=4096)})
    with ChatServer([full, full, NOTES]) as server: assert inspect(Q, senses(film, server, True), VestaSpec(), Span(10, 50)).frames == 10 and [len(frames_of(server, i)) for i in range(3)] == [40, 20, 10]
    with ChatServer(full) as server, pytest.raises(ChatError): inspect(Q, senses(film, server, True), VestaSpec(), Span(10, 50))

@pytest.mark.parametrize("reply", ["I see a gull.", "{}", '{"notes": "a", "found": true}', ""])
def test_a_useless_reply_is_no_observation(film, reply):
    with ChatServer(reply) as server:
        o = inspect(Q, senses(film, server, True), VestaSpec(), Span(10, 20)); assert not o.parts and o.counts == dict(nonsense=1) and "could not be used" in o.note
        o = analyse(Q, senses(film, server, True), VestaSpec(), Span(10, 20), "Who?"); assert not o.parts and o.counts == dict(nonsense=1)

# --- listening

def test_speech_is_in_video_time_and_covers_the_interval(film):
    o = listen(Q, senses(film), VestaSpec(), Span(0, 60))
    assert [(p.span.start, p.span.end, p.text) for p in o.parts] == [(0, 50, "[0:02] Six crates came in. [0:05] No, four."), (50, 60, "[0:50] Nine gulls.")] and o.frames == 0
    quiet, = listen(Q, senses(film), VestaSpec(), Span(10, 40)).parts; assert quiet.text == "Nothing is said there." and quiet.found is False
    deaf = listen(Q, senses(film, track=Track()), VestaSpec(), Span(0, 9)); assert not deaf.parts and "no speech" in deaf.note, "nobody listened: no observation, and the Reasoner is told why"

def test_much_speech_is_few_parts():
    lines = [Line(Span(i*3, i*3 + 2.5), f"line {i}") for i in range(400)]
    assert all(g[-1].span.end - g[0].span.start <= 20 for g in paragraphs(lines)) and len(paragraphs(lines)) > PARTS
    from types import SimpleNamespace as NS
    o = listen(Q, NS(heard=lambda: Track(tuple(lines))), VestaSpec(), Span(0, 1200)); assert len(o.parts) == PARTS and all(f"line {i}" in " ".join(p.text for p in o.parts) for i in range(400))

# --- one question about a part

JUDGED = json.dumps(dict(found=True, answer="four crates", option="A", confidence=.8))

def test_a_reader_answers_from_the_interval_alone(film, own):
    with ChatServer(JUDGED) as server:
        o = analyse(Q, senses(film, server), VestaSpec(), Span(0, 20), "How many crates?"); p, = o.parts; prompt = server.requests[0]["messages"][1]["content"]
    assert (p.text, p.confidence, p.supports, p.found, p.aside, p.span) == ("four crates", .8, ("A",), True, BLIND, Span(0, 20)) and o.frames == 40
    assert "No, four." in prompt and "card 1" in prompt and "gulls" not in prompt and "card 2" not in prompt and "nobody can see" in prompt and "<<How many crates?>>" in prompt
    assert server.requests[0]["response_format"]["json_schema"]["schema"]["properties"]["option"]["enum"] == ["A", "B", "C", "none"]

def test_where_nothing_is_said_or_written_nobody_is_asked(film, own):
    with ChatServer(JUDGED) as server:
        o = analyse(Q, senses(film, server, reader=Reads(lambda s: [])), VestaSpec(), Span(20, 40), "How many?"); assert server.count == 0 and o.parts[0].confidence is None and o.parts[0].text.startswith("Nothing")

def test_a_seeing_perceiver_gets_at_most_fifty_frames(film):
    with ChatServer(JUDGED) as server:
        s = senses(film, server, True)
        for length, n in ((2, 4), (20, 40), (100, 50)): assert analyse(Q, s, VestaSpec(), Span(10, 10 + length), "How many?").frames == n == len(frames_of(server))
        assert "nobody can see" not in json.dumps(server.requests) and "gulls" not in json.dumps(server.requests)

@pytest.mark.parametrize("reply, want", [
    (dict(found=True, answer="yes", option="none", confidence=95), ("yes", None, (), True)), (dict(found=False, answer="no crate", option="B", confidence=.4), ("Not found: no crate", .4, (), False)),
    (dict(found=True, answer=" ", option="C", confidence=0), ("yes", 0, ("C",), True)), (dict(found=False, answer="", option="none", confidence=1), ("Not found: no answer", 1, (), False))])
def test_what_a_judgement_becomes(film, reply, want):
    with ChatServer(json.dumps(reply)) as server: o = analyse(Q, senses(film, server, True), VestaSpec(), Span(0, 9), "Is there a crate?")
    p, = o.parts; assert (p.text, p.confidence, p.supports, p.found) == want and (o.counts == dict(confidence=1)) == (reply["confidence"] > 1)

def test_a_free_question_has_no_option():
    assert "option" not in schema_of(judgement(""))["properties"] and schema_of(judgement("AB"))["properties"]["option"]["enum"] == ["A", "B", "none"]

def test_a_clip_of_a_whole_talkative_video_fits_its_context(film, own):
    track = Track(tuple(Line(Span(i, i + .9), "word " * 80) for i in range(120)))
    with ChatServer(JUDGED, context=2048) as server: o = analyse(Q, senses(film, server, track=track, context=2048, max_tokens=64), VestaSpec(), Span(0, 120), "How many?"); assert o.parts[0].text == "four crates"

# --- searching

class Scenes:
    "Ten scenes of twelve seconds; the query's number is the best."
    def __init__(self): self.asked = []
    def search(self, query):
        self.asked.append(query); best = int((re.findall(r"\d+", query) or [0])[0])
        return [(f"S/{i:04d}", Span(12*i, 12*i + 12), 1 - abs(i - best)/10) for i in sorted(range(10), key=lambda i: abs(i - best))]

def test_a_policy_first_and_a_plain_ranking_after(film):
    c = Scenes(); s = senses(film, scenes=lambda: c)
    o = look_up(Q, s, VestaSpec(K=3), policy="recall"); assert len(o.refs) == 3 and not o.parts and c.asked == [Q.text] and {r.why for r in o.refs} <= {"spread", "backfill"}
    assert o.refs[1].span.start - o.refs[0].span.end >= 20
    o = look_up(Q, s, VestaSpec(K=6), policy="contrastive"); assert len(c.asked) == 4 and {l for r in o.refs for l in r.letters} == {*"ABC"}
    o = perform(Q, s, VestaSpec(K=2), "retrieve", Span(0, 120), "scene 7"); assert [r.id for r in o.refs] == ["S/0007", "S/0006"] and o.refs[0].why == "top" and o.refs[0].query == "scene 7" == o.query
    free = look_up(Question("q", "v", "Why?"), s, VestaSpec(), policy="contrastive"); assert "focused was used" in free.note
    assert look_up(Question("q", "v", "scene 9", until=30), s, VestaSpec(), "scene 9").refs[0].span == Span(24, 30)

def test_eight_options_are_counted_not_dropped_in_silence(film):
    q = Question("q", "v", "Which?", tuple(f"thing {i}" for i in range(8))); c = Scenes(); o = look_up(q, senses(film, scenes=lambda: c), VestaSpec(), policy="contrastive")
    assert len(c.asked) == 6 and o.counts == dict(unheard_options=2) and len(o.refs) <= 6

def test_observations_are_json(film, own):
    s = senses(film, scenes=lambda: Scenes())
    for o in (look_up(Q, s, VestaSpec(), policy="focused"), inspect(Q, s, VestaSpec(), Span(0, 20)), listen(Q, s, VestaSpec(), Span(0, 20))):
        d = json.loads(json.dumps(o.to_dict(), allow_nan=False)); assert d["operation"] == o.operation and d["span"]["end"] == o.span.end
