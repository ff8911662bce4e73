"The ledger's derived views against brute force, and the snapshot's promises over any history (VESTA 3.5, B.7)."
import json, math, xml.etree.ElementTree as ET
from itertools import combinations
import pytest
from hypothesis import given, settings, strategies as st
from reveal_kit.core import InputError, Span
from reveal_kit.ledger import OPERATIONS, PERCEPTUAL, Ledger, coverage, interval, meets, observed, verification
from reveal_kit.relations import alike, bounds, changes, conflicts, events, facts, mentions, read_number, readings, support, terms
from reveal_kit.policies import Reference
from reveal_kit.router import Accounting
from reveal_kit.snapshot import FIRST, LEAST, bar, compact, crowded, gaps, lanes

quick = settings(max_examples=70, deadline=None) # a busy machine is no failure
D, OPTS = 60, ("at the market", "at the harbour", "at the mill")
span = st.builds(lambda a, n: Span(float(a), float(min(D, a + n))), st.integers(0, D - 1), st.integers(0, 12))
queries = st.sampled_from(["How many hosts are there?", "Count the hosts.", "how many bells?", "Is the gate open?", "the gate", ""])
texts = st.one_of(st.sampled_from(["four", "Four hosts.", "five hosts", "Yes, it is.", "No.", "a baker sells bread at the market", "the baker sells bread", "a choir sings"]), st.text(max_size=60), st.just("long " * 300))
letters = st.lists(st.sampled_from("ABCZ"), max_size=2)
conf = st.one_of(st.none(), st.floats(-1, 2), st.just(math.nan))
call = st.fixed_dictionaries(dict(source=st.sampled_from(OPERATIONS), step=st.integers(0, 20), span=span, query=queries, text=texts, confidence=conf, number=st.one_of(st.none(), st.floats(allow_nan=True)),
    states=st.lists(st.tuples(st.sampled_from(["the gate", "Gate", "lamp"]), st.sampled_from(["open", "shut"])), max_size=2), supports=letters, refutes=letters, about=letters, found=st.sampled_from([None, True, False])))
history = st.lists(call, max_size=14)
views = st.lists(st.sampled_from(["numbers", "events", "states", "speech", "hypotheses"]), unique=True).map(lambda v: tuple(sorted(v)))
mus = st.builds(Accounting, st.sampled_from(["local", "coverage", "contrast"]), views)

def build(calls, fps=25.0):
    l = Ledger(D, OPTS, fps)
    for c in calls: l.add(**c)
    return l

# --- appending

@quick
@given(history)
def test_append_only_and_everything_counted(calls):
    l, before = Ledger(D, OPTS), ()
    for c in calls:
        e = l.add(**c); assert l.entries[:len(before)] == before and len(l.entries) == len(before) + (e is not None)
        if e: assert e == l.entries[-1] == l[e.id] and e.id == f"E{len(l)}" and 0 <= e.span.start <= e.span.end <= D and set(e.supports + e.refutes + e.about) <= set("ABC")
        before = l.entries
    assert len(l) + l.refused["empty"] + l.refused["outside"] == len(calls)
    for e in l.entries: assert e.confidence is None or 0 <= e.confidence <= 1
    with pytest.raises(AttributeError): l.entries = ()
    with pytest.raises(AttributeError): l.entries.append

@quick
@given(history)
def test_json_round_trip(calls):
    l = build(calls); m = Ledger.from_dict(json.loads(json.dumps(l.to_dict(), allow_nan=False)))
    assert m.entries == l.entries and m.refused == l.refused and m.duration == l.duration and m.options == l.options

def test_refused_by_name():
    l = Ledger(100, ("a", "b"))
    assert l.add("inspect", 1, Span(100, 110), "q", "late") is None and l.add("speech", 1, Span(0, 5), "q", " \n") is None
    e = l.add("clip", 2, Span(90, 130), "q", "x", confidence=7, number=math.inf, supports="AC")
    assert e.span == Span(90, 100) and e.confidence is None and e.number is None and e.supports == ("A",)
    assert l.refused == {"outside": 1, "empty": 1, "confidence": 1, "number": 1, "letter": 1}
    with pytest.raises(ValueError, match="guess"): l.add("guess", 1, Span(0, 1), "q", "x")
    for d in (0, -3, math.nan, math.inf):
        with pytest.raises(InputError, match="duration"): Ledger(d)

def test_references_enter_provisional():
    l = Ledger(100, ("a", "b"))
    l.refer([Reference("s1", Span(0, 10), .7, "q a", "hypothesis", ("A",)), Reference("s2", Span(20, 30), .6, "q b", "hypothesis", ("B",))], 0)
    assert [(e.source, e.about, e.query) for e in l.entries] == [("retrieve", ("A",), "q a"), ("retrieve", ("B",), "q b")] and [o.status for o in verification(l.entries)] == ["provisional"]*2
    assert coverage(l.entries, 100).share == 0, "retrieval inspects nothing"

# --- times as asked

@pytest.mark.parametrize("a, b, want, said", [("1:02:03", "1:02:10", Span(3723, 3730), ""), (5, 9.5, Span(5, 9.5), ""), (9, 5, Span(5, 9), "swapped"), (-5, 5, Span(0, 5), "clipped"),
    (3990, 5000, Span(3990, 4000), "clipped"), (3999, -2, Span(0, 3999), "swapped"), ("12", "0:12", Span(12, 12), ""), (0, 0, Span(0, 0), "")])
def test_interval(a, b, want, said):
    got, note = interval(a, b, 4000); assert got == want and said in note and bool(said) == bool(note)

@pytest.mark.parametrize("a, b, word", [("nan", 5, "nan"), (math.inf, 5, "inf"), ("noon", 5, "noon"), (4000, 4100, "outside"), (-9, -2, "outside"), (-9, 0, "outside"), (None, 5, "None"), ("1:2:3:4", 5, "1:2:3:4")])
def test_interval_refused(a, b, word):
    with pytest.raises(InputError, match=word): interval(a, b, 4000)

@quick
@given(st.floats(-1e4, 1e4), st.floats(-1e4, 1e4), st.floats(1, 5000))
def test_interval_is_inside_or_refused(a, b, d):
    try: s, note = interval(a, b, d)
    except InputError: assert max(a, b) <= 0 or min(a, b) >= d
    else: assert 0 <= s.start <= s.end <= d and (note == "") == ((s.start, s.end) == (a, b))

# --- coverage and verification by brute force on whole seconds

@quick
@given(history)
def test_coverage_is_the_union(calls):
    l = build(calls); c = coverage(l.entries, D)
    inside = lambda t, *ops: any(e.span.start <= t < e.span.end for e in l.entries if e.source in ops)
    for t in range(D):
        assert any(t in s for s in c.spans) == inside(t, *PERCEPTUAL) == (not any(t in s for s in c.unseen))
        assert any(t in s for s in c.seen) == inside(t, "inspect", "clip") and any(t in s for s in c.heard) == inside(t, "speech")
    assert c.share == pytest.approx(sum(inside(t, *PERCEPTUAL) for t in range(D)) / D) and list(c.unseen) == sorted(c.unseen, key=lambda s: (-s.length, s.start))
    assert all(a.end < b.start for a, b in zip(c.spans, c.spans[1:])) or any(e.span.length == 0 for e in l.entries)

@quick
@given(history)
def test_verified_only_by_a_look_on_an_overlapping_interval(calls):
    l = build(calls)
    for o in verification(l.entries):
        r = o.entry; assert r.source == "retrieve"
        looks = [e for e in l.entries if e.source in PERCEPTUAL and (max(e.span.start, r.span.start) < min(e.span.end, r.span.end) or (0 in (e.span.length, r.span.length) and meets(e.span, r.span)))]
        assert {*o.by} == {e.id for e in looks}
        assert o.status == ("provisional" if not looks else "rejected" if all(e.found is False for e in looks) else "verified")
    assert len(verification(l.entries)) == sum(not e.perceptual for e in l.entries)

def test_touching_is_not_overlapping():
    l = Ledger(100); l.add("retrieve", 0, Span(10, 20), "q", "scene"); l.add("inspect", 1, Span(20, 30), "q", "a street"); l.add("clip", 1, Span(5, 10), "q", "a street")
    assert [o.status for o in verification(l.entries)] == ["provisional"]
    l.add("clip", 2, Span(19.9, 20), "q", "a sign"); assert [o.status for o in verification(l.entries)] == ["verified"]

# --- numbers and conflicts

@quick
@given(history)
def test_numbers_and_conflicts_by_pairs(calls):
    l = build(calls); fs, cs = facts(l.entries), conflicts(l.entries, l.letters); rs = readings(l.entries)
    nums = [f for f in fs if f.kind == "number"]
    assert sorted(i for r in rs for i in r.by) == sorted(f.entry.id for f in nums) and [r.span for r in rs] == sorted(r.span for r in rs)
    for a, b in combinations(nums, 2):
        if a.topic == b.topic and meets(a.entry.span, b.entry.span) and a.value == b.value: assert any({a.entry.id, b.entry.id} <= {*r.by} for r in rs)
    clash = [(a, b) for a, b in combinations(fs, 2) if a.kind == b.kind and a.topic == b.topic and a.value != b.value and meets(a.entry.span, b.entry.span)]
    plain = [c for c in cs if c.kind != "hypothesis"]
    for a, b in clash: assert any(c.kind == a.kind and {a.entry.id, b.entry.id} <= {i for _, ids in c.sides for i in ids} for c in plain)
    assert bool(clash) == bool(plain)
    for c in cs: assert len(c.sides) >= 2 and len({v for v, _ in c.sides}) == len(c.sides) and c.spans
    both = {s.letter for s in support(l.entries, l.letters) if s.supports and s.refutes}
    assert {c.what for c in cs if c.kind == "hypothesis"} == both

@pytest.mark.parametrize("second, where, clash, n", [("4", Span(10, 20), False, 1), ("four hosts", Span(15, 25), False, 1), ("4", Span(40, 50), False, 2), ("5", Span(12, 14), True, 2), ("5", Span(20, 30), False, 2), ("4 or 5", Span(10, 20), False, 1)])
def test_same_number_is_one_reading_and_another_a_conflict(second, where, clash, n):
    l = Ledger(100)
    l.add("clip", 1, Span(10, 20), "How many hosts stand there?", "There are four."); l.add("clip", 2, where, "Count the hosts who stand there.", second)
    assert bool(conflicts(l.entries)) == clash and len(readings(l.entries)) == n

def test_another_query_is_another_thing():
    l = Ledger(100)
    l.add("clip", 1, Span(10, 20), "How many hosts enter before noon?", "four"); l.add("clip", 2, Span(10, 20), "How many hosts enter after noon?", "five")
    l.add("speech", 3, Span(10, 20), "How many hosts enter before noon?", "No, nine of us were late")
    assert not conflicts(l.entries) and sorted(r.value for r in readings(l.entries)) == [4, 5], "what somebody says answers no query"

@pytest.mark.parametrize("text, n", [("four", 4), ("There are 12 boats", 12), ("1,250 loaves", 1250), ("2.5 litres", 2.5), ("twice", 2), ("at 1:05 four", 4), ("three, that is 3", 3), ("two or three", None), ("the one on the left", None), ("none", None), ("", None), ("one", 1), ("one of them", None)])
def test_read_number(text, n): assert read_number(text) == n

def test_states_change_or_conflict():
    l = Ledger(100); put = lambda a, b, s: l.add("inspect", 1, Span(a, b), "gate", f"gate {s}", states=[("the gates", s)])
    put(0, 10, "shut"), put(20, 30, "Shut "), put(50, 60, "open"), put(55, 65, "shut")
    assert [(c.before, c.after, c.span) for c in changes(l.entries)] == [("shut", "open", Span(30, 50))]
    assert [(c.kind, c.sides) for c in conflicts(l.entries)] == [("state", (("open", ("E3",)), ("shut", ("E4",))))]

@quick
@given(history)
def test_changes_are_changes(calls):
    for c in changes(build(calls).entries): assert c.before != c.after and c.span.start <= c.span.end

# --- events

@quick
@given(history)
def test_events_partition_the_looks(calls):
    l = build(calls); ev = events(l.entries)
    assert sorted(i for e in ev for i in e.by) == sorted(e.id for e in observed(l.entries) if e.found is not False)
    lo, hi = bounds(ev); assert hi == len(ev) and lo <= hi and (lo > 0) == bool(ev) and (lo == hi) == all(e.status == "independent" for e in ev)
    own = {i: e.by for e in ev for i in e.by}
    for e in ev:
        for i in e.unresolved: assert i not in e.by and {*e.by} & {*next(o for o in ev if i in o.by).unresolved}, "an open question is open on both sides"

def test_words_decide_likeness():
    assert terms("The Bells ring four times") == {"bell", "ring", "4"} and terms("it is there") == set()
    assert alike("a baker sells bread", "the baker sells bread at the market") == 1 and alike("bell", "choir") == 0 and alike("", "") == 1 and alike("", "bell") == 0
    assert mentions("It stood at the mill, by the harbour", OPTS) == ("B", "C") and mentions("nothing", OPTS) == () and mentions("4 hosts", ("four", "five")) == ("A",)

# --- snapshot

@quick
@given(history, mus, st.integers(LEAST, 4000))
def test_snapshot_is_bounded_pure_and_changes_nothing(calls, mu, limit):
    l = build(calls); before = json.dumps(l.to_dict())
    s = compact(l, mu, limit)
    assert len(s.text) <= limit and s == compact(l, mu, limit) == compact(Ledger.from_dict(json.loads(before)), mu, limit) and json.dumps(l.to_dict()) == before
    assert all(e in l.entries for e in s.entries)
    for e in s.entries: # no observation without its provenance
        rows = [r for r in s.text.splitlines() if r.startswith(f"- {e.id} [{e.span}")]; assert any(f"{e.source}, step {e.step}" in r or e.source == "retrieve" for r in rows)
    assert [FIRST[mu.emphasis].index(g.kind) for g in s.gaps] == sorted(FIRST[mu.emphasis].index(g.kind) for g in s.gaps)

@quick
@given(history, mus)
def test_nothing_is_lost_under_any_emphasis(calls, mu):
    l = build(calls); s = compact(l, mu, 10**6)
    assert s.left_out == 0 and {e.id for e in s.entries} >= {e.id for e in observed(l.entries)} | {o.entry.id for o in verification(l.entries) if o.status == "provisional"}
    small = compact(l, mu, LEAST); rows = lambda t: [r for r in t.splitlines() if r.startswith("- ") and not r.startswith("- and ")]
    assert small.relations == s.relations and small.coverage == s.coverage, "what is shown is cut, what is known is not"
    assert len(rows(small.text)) + small.left_out == len(rows(s.text)) and {*rows(small.text)} <= {*rows(s.text)}, "every line is shown whole or counted"

def test_left_out_is_counted():
    l = Ledger(600)
    for i in range(30): l.add("inspect", i, Span(i*20, i*20 + 10), "street", f"number {i} " + "x"*150)
    s = compact(l, Accounting("local"), 1200); n = len(s.entries)
    assert 3 <= n < 30 and f"- and {30 - n} more" in s.text and s.left_out >= 30 - n

def test_emphasis_decides_what_comes_first():
    l = Ledger(600, ("one gate", "two gates"))
    l.refer([Reference("s1", Span(0, 30), .7, "gate", letters=("A",))], 0)
    l.add("clip", 1, Span(100, 110), "how many gates?", "two gates", .9, supports="B"); l.add("clip", 2, Span(105, 110), "how many gates?", "one gate", .3, supports="A")
    kinds = {e: [g.kind for g in gaps(l, Accounting(e))] for e in FIRST}
    assert kinds["local"][:3] == ["conflict", "unverified", "unsure"] and kinds["coverage"][:2] == ["conflict", "unseen"] and kinds["contrast"][0] == "conflict"
    assert "Numbers:" not in compact(l, Accounting("local")).text and "Numbers:" in compact(l, Accounting("local", ("numbers",))).text
    assert compact(l, Accounting("contrast")).text.splitlines()[2] == "Options:"

def test_conflicting_and_deciding_observations_survive_the_squeeze():
    l = Ledger(3600, ("a", "b"))
    l.add("clip", 0, Span(10, 20), "how many gates?", "two"); l.add("clip", 0, Span(10, 20), "how many gates?", "three"); l.add("inspect", 0, Span(30, 40), "gate", "the gate, at last", refutes="B")
    for i in range(60): l.add("inspect", i + 1, Span(100 + i*30, 110 + i*30), "street", f"plain observation {i} " + "x"*180, confidence=.99)
    for e in FIRST: assert {"E1", "E2", "E3"} <= {x.id for x in compact(l, Accounting(e), 1500).entries}, e

def test_too_small_is_refused():
    with pytest.raises(InputError, match="600"): compact(Ledger(10), Accounting(), 100)

def test_repeated_looking_is_a_constraint():
    l = Ledger(844.8)
    for i in range(10): l.add("inspect", i, Span(15 + i, 120 + i), "golden sign", f"a crowded street {i}")
    g, = [g for g in gaps(l, Accounting("local")) if g.kind == "repeated"]
    assert g.span == Span(17, 127) and "elsewhere" in g.text
    assert crowded([Span(0, 5)]*3) == [Span(0, 5)] and crowded([]) == []

# --- display

@quick
@given(history)
def test_bar_is_well_formed_whatever_was_said(calls):
    l = build(calls); ET.fromstring(bar(l)); assert l._repr_html_().startswith("<div>")
    status = {o.entry.id: o.status for o in verification(l.entries)}
    for lane, kind, _, title in lanes(l):
        if lane == "retrieved": assert kind == status[title.split(",")[0]]

def test_markup_in_observations_is_text():
    l = Ledger(10); l.add("clip", 1, Span(0, 5), "<script>", "</title><script>alert(1)</script>\x00\ud800")
    assert "<script>" not in bar(l) and json.dumps(l.to_dict()).encode()
