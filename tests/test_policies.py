"Properties of the three policies over any ranking (VESTA B.1, Algorithm 2)."
import math
import pytest
from hypothesis import given, settings, strategies as st
from reveal_kit.core import InputError, Question, Span
from reveal_kit.policies import (SEPARATION, HYPOTHESES, POLICIES, POOL, Hit, Reference, contrastive, dedup, distance, focused, parse_hypotheses, ranked, recall, retrieve, same_place,
                                 shares, truncate)

quick = settings(max_examples=100, deadline=None) # a busy machine is no failure

# scores anywhere, ties and not-a-number included; scenes that touch, repeat and overlap; more and fewer than any bound
score = st.one_of(st.floats(-1, 1), st.sampled_from([0.5, 0.5, 0.0, math.nan, math.inf, -math.inf]))
span = st.builds(lambda a, n: Span(a, a + n), st.integers(0, 400).map(float), st.integers(0, 60).map(float))
hit = st.builds(Hit, st.integers(0, 30).map("s{:02d}".format), span, score)
hits = st.lists(hit, max_size=40)
ks = st.integers(0, 9)
tidy = lambda h: [(x.id, x.span, "nan" if math.isnan(x.score) else x.score) for x in h] # nan != nan would hide an equal pair

@quick
@given(hits)
def test_ranked_is_sorted_once_and_order_free(hs):
    r = ranked(hs)
    assert len({h.id for h in r}) == len(r) == len({h.id for h in hs})
    s = [h.score for h in r]; n = sum(map(math.isnan, s))
    assert all(map(math.isnan, s[len(s)-n:])) and s[:len(s)-n] == sorted(s[:len(s)-n], reverse=True)
    assert tidy(ranked(hs[::-1])) == tidy(r) == tidy(ranked(r))
    assert tidy(ranked([(h.id, h.span, h.score) for h in hs])) == tidy(r)

@quick
@given(hits, st.floats(0, 500))
def test_nothing_after_the_moment_of_asking(hs, until):
    for h in ranked(hs, until): assert h.span.start < until and h.span.end <= until

@quick
@given(hits, ks)
def test_focused_is_the_head(hs, k):
    r = ranked(hs)
    assert [x.id for x in focused(r, k)] == [h.id for h in r[:k]]

@quick
@given(hits, ks, st.sampled_from(["gap", "start", "middle"]))
def test_recall(hs, k, measure):
    r = ranked(hs); got = recall(r, k, measure=measure); pool = r[:min(4*k, POOL)]
    assert len(got) == min(k, len(pool)) and {x.id for x in got} <= {h.id for h in pool}
    first = [x for x in got if x.why == "spread"]; rest = got[len(first):]
    assert all(x.why == "backfill" for x in rest), "backfill comes after the separated ones"
    for i, a in enumerate(first): assert all(distance(a.span, b.span, measure) >= SEPARATION for b in first[:i])
    place = {h.id: i for i, h in enumerate(r)}
    for part in (first, rest): assert [place[x.id] for x in part] == sorted(place[x.id] for x in part)
    if rest: # backfill starts only when nothing separated is left in the pool
        left = [h for h in pool if h.id not in {x.id for x in first}]
        assert all(any(distance(h.span, x.span, measure) < SEPARATION for x in first) for h in left)
        assert [x.id for x in rest] == [h.id for h in left[:len(rest)]], "the best of those passed over"

def test_recall_pool_is_fifteen_and_may_be_less_than_k():
    far = ranked(Hit(f"s{i:02d}", Span(i*100, i*100 + 10), -i) for i in range(40))
    assert len(recall(far, 20)) == 15 and [x.id for x in recall(far, 2)] == ["s00", "s01"]
    near = ranked(Hit(f"s{i:02d}", Span(i*5, i*5 + 5), -i) for i in range(40))
    assert [x.id for x in recall(near, 2)] == ["s00", "s05"], "0-5 s and 25-30 s are 20 s apart"
    only8 = [*near[:9], Hit("far", Span(900, 905), -99)]
    assert "far" not in {x.id for x in recall(only8, 2)}, "place 10 lies outside a pool of min(4*2, 15) = 8"

rankings = st.dictionaries(st.sampled_from("ABCDEFGH"), hits.map(ranked), max_size=8)

@quick
@given(rankings, ks, st.sampled_from(["even", "exact"]))
def test_contrastive(rs, k, split):
    got = contrastive(rs, k, split=split)
    assert len(got) <= k
    assert len({x.id for x in got}) == len(got) and not any(same_place(a.span, b.span) for i, a in enumerate(got) for b in got[:i]), "a place stands once"
    served = {l for x in got for l in x.letters}; can = {l for l, r in rs.items() if r}
    assert served <= can
    if len(can) <= k: assert served == can, "every hypothesis that found anything has a scene"
    n = dict(zip(rs, shares(len(rs), k, split))) if rs else {}
    for x in got:
        for l in x.letters: assert any(h.id == x.id or same_place(h.span, x.span) for h in rs[l][:n[l]]), "found by that hypothesis, within its share"
    assert got == contrastive(dict(reversed(rs.items())), k, split="even") or split == "exact" or any(math.isnan(x.score) for x in got), "the order of the options decides nothing"

@quick
@given(st.integers(1, 12), st.integers(1, 12))
def test_shares(n, k):
    even, exact = shares(n, k), shares(n, k, "exact")
    assert len(set(even)) == 1 and sum(even) >= k and sum(even) - k < n + max(0, n - k)
    assert sum(exact) == max(n, k) and max(exact) - min(exact) <= 1

def test_truncation_keeps_the_weak_hypothesis():
    refs = [Reference(f"s{i}", Span(i*10, i*10+5), 1 - i/10, letters=tuple(l)) for i, l in enumerate(["A", "A", "A", "AB", "C"])]
    assert [r.id for r in truncate(refs, 3)] == ["s0", "s3", "s4"] and [r.id for r in truncate(refs, 2)] == ["s0", "s3"]
    assert [r.id for r in truncate(refs, 9)] == ["s0", "s1", "s2", "s3", "s4"] and truncate(refs, 0) == []

def test_dedup_by_place_not_only_by_id():
    refs = [Reference("a", Span(0, 10), .9, letters=("A",)), Reference("b", Span(4, 12), .8, letters=("B",)), Reference("c", Span(6, 30), .7, letters=("C",))]
    # b shares 6 of its 8 seconds with a; c shares only 4 of a's 10
    assert [(r.id, r.letters) for r in dedup(refs)] == [("a", ("A", "B")), ("c", ("C",))]

# through the one door: any question, any search
text = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).filter(str.strip)
questions = st.builds(lambda t, o, u: Question("q", "v", t, tuple(o), u), text, st.lists(text, max_size=9), st.one_of(st.none(), st.floats(0, 400)))

@quick
@given(questions, hits, ks, st.sampled_from(POLICIES), st.sampled_from(["gap", "start", "middle"]), st.sampled_from(["even", "exact"]), st.sampled_from(["first", "strongest", "all"]))
def test_total_and_bounded(q, hs, k, policy, measure, split, many):
    asked = []
    def search(query): asked.append(query); return hs
    got = retrieve(q, policy, search, k, measure=measure, split=split, many=many)
    assert len(got.refs) <= k and tuple(asked) == got.queries and all(s.startswith(q.text.strip()) or s == q.text for s in asked)
    assert got.used == policy or (policy == "contrastive" and got.used == "focused" and not parse_hypotheses(q.options))
    if many == "first": assert len(asked) <= HYPOTHESES
    truth = {h.id: h for h in ranked(hs, q.until)}
    for r in got.refs: assert r.id in truth and r.span == truth[r.id].span, "a policy invents nothing and moves nothing"
    for r in got.refs: assert r.score == truth[r.id].score or math.isnan(r.score), "nor does it touch the similarity"
    assert "verified" not in Reference.__dataclass_fields__
    assert got._repr_markdown_().count("\n| ") == 2 + len(got.refs)

def test_every_policy_sees_the_same_ranking():
    hs = [Hit(f"s{i}", Span(i*30, i*30+30), i % 7 / 7) for i in range(20)]
    q = Question("q", "v", "where?", ("here", "there"))
    score = {h.id: h.score for h in hs}
    for p in POLICIES: assert all(score[r.id] == r.score for r in retrieve(q, p, lambda _: hs).refs)

def test_eight_options():
    "Each of eight options finds a scene of its own, later letters better ones; K = 6."
    opts = tuple(f"thing{c}" for c in "abcdefgh")
    def search(query):
        i = "abcdefgh".index(query[-1]); return [(f"s{i}", Span(i*10, i*10+10), i/10), ("common", Span(900, 930), -.5)]
    q = Question("q", "v", "which?", opts)
    ids = {m: [r.id for r in retrieve(q, "contrastive", search, many=m).refs] for m in ("first", "strongest", "all")}
    assert ids == {"first": ["s5", "s4", "s3", "s2", "s1", "s0"], "strongest": ["s7", "s6", "s5", "s4", "s3", "s2"], "all": ["s7", "s6", "s5", "s4", "s3", "s2"]}
    assert retrieve(q, "contrastive", search).left_out == ("G", "H") and retrieve(q, "contrastive", search, many="strongest").left_out == ("A", "B")
    assert retrieve(q, "contrastive", search, many="all", k=8).left_out == () and len(retrieve(q, "contrastive", search, many="all", k=8).refs) == 8

@pytest.mark.parametrize("kw, word", [(dict(policy="wide"), "wide"), (dict(measure="end"), "end"), (dict(split="fair"), "fair"), (dict(many="last"), "last")])
def test_unknown_switch_is_named(kw, word):
    q = Question("q", "v", "which?", ("one", "two")); hs = [Hit("a", Span(0, 10), .5), Hit("b", Span(50, 60), .4)]
    with pytest.raises(InputError, match=word): retrieve(q, kw.pop("policy", "recall" if "measure" in kw else "contrastive"), lambda _: hs, **kw)
