"The update contract of the online memory: idempotent, order-stable, nothing said twice, and a planner that sees only what it may."
import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from reveal_kit.core import Evidence, Segment, Span
from reveal_kit.online import SAME_ID, SAME_TEXT, UNIFORM, OnlineMemory, PlannerView


def ev(i, start=0.0, score=0.5, level=1, query="q", id=None):
    id = id or f"L{level}/{i:04d}"
    return Evidence(id, Span(start, start + 5), f"text {i}", "text", query=query, score=score, segment=Segment(id, level, Span(start, start + 5), f"text {i}"))


batches = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 5), st.sampled_from([.2, .5, .5, .9]), st.lists(st.integers(-2, 2), min_size=3, max_size=3)), max_size=12)


def build(rows): return [ev(i, start=t * 10.0, score=s) for i, t, s, _ in rows], np.array([v for *_, v in rows], float).reshape(-1, 3)


@settings(max_examples=80, deadline=None)
@given(batches, batches, st.randoms())
def test_admission_is_idempotent_order_stable_and_never_repeats(first, second, rnd):
    a, b = OnlineMemory(), OnlineMemory()
    for rows in (first, second):
        cands, vecs = build(rows)
        order = list(range(len(cands))); rnd.shuffle(order)
        out = a.admit(cands, vecs)
        b.admit([cands[i] for i in order], vecs[order])
        assert len(out.admitted) + len(out.rejected) == len(cands)                # nothing dropped silently
        assert sum(out.counts.values()) == len(cands)
    # same ids in the same order; candidates that tie in everything but their vector are the one thing an order could decide
    if len({(i, t, s) for i, t, s, _ in first + second}) == len(first + second): assert [e.id for e in a.evidence] == [e.id for e in b.evidence]
    assert a.visited == b.visited == {e.id for rows in (first, second) for e in build(rows)[0]}
    before = list(a.evidence)
    for rows in (first, second): assert not a.admit(*build(rows)).admitted
    assert a.evidence == before
    V = np.array(a.vectors).reshape(-1, 3)
    assert ((V @ V.T)[~np.eye(len(V), dtype=bool)] <= 0.9 + 1e-12).all()
    assert len({e.id for e in a.evidence}) == len(a.evidence)


def test_the_limit_is_exclusive():
    c = np.array([[1, 0], [.9, np.sqrt(1 - .81)]])
    m = OnlineMemory(); m.admit([ev(0)], c[:1])
    limit = float(m.vectors[0] @ (c[1] / np.linalg.norm(c[1])))
    assert OnlineMemory(limit=limit).admit([ev(0, score=.9), ev(1)], c).counts["admitted"] == 2         # exactly at the limit: admitted
    assert OnlineMemory(limit=np.nextafter(limit, 0)).admit([ev(0, score=.9), ev(1)], c).counts == {"admitted": 1, SAME_ID: 0, SAME_TEXT: 1}


def test_the_better_scored_of_two_equal_texts_stays_and_time_orders_the_cache():
    m = OnlineMemory()
    out = m.admit([ev(1, 50, .3), ev(2, 10, .8), ev(3, 90, .6)], [[1, 0], [1, 0], [0, 1]])
    assert [e.id for e in out.admitted] == ["L1/0002", "L1/0003"] and out.rejected[0][0].id == "L1/0001"
    assert m.admit([ev(4, 0, .9)], [[-1, 0]]).admitted and [e.id for e in m.evidence] == ["L1/0002", "L1/0003", "L1/0004"]  # append-only across rounds


def test_no_limit_compares_ids_only():
    m = OnlineMemory(limit=None)
    assert m.admit([ev(1), ev(2), ev(2)], [[1, 0]] * 3).counts == {"admitted": 2, SAME_ID: 1, SAME_TEXT: 0}


def test_bad_vectors_are_refused():
    m = OnlineMemory()
    with pytest.raises(ValueError, match="2 candidates need 2 vectors, got 1"): m.admit([ev(1), ev(2)], [[1, 0]])
    with pytest.raises(ValueError, match="not finite"): m.admit([ev(1)], [[np.nan, 0]])
    m.admit([ev(1)], [[1, 0]])
    with pytest.raises(ValueError, match="3 dimensions, the cache has 2"): m.admit([ev(2)], [[1, 0, 0]])
    assert not m.admit([], []).admitted and len(m.evidence) == 1


def test_each_query_that_found_a_new_item_gets_the_credit():
    m = OnlineMemory(); out = m.admit([ev(1), ev(2, 20)], [[1, 0], [0, 1]])
    m.record({"a": ["L1/0001"], "b": ["L1/0001", "L1/0099"], "c": ["L1/0099"], "d": []}, out)
    m.record({UNIFORM: ["L1/0002"]}, m.admit([ev(2, 20)], [[0, 1]]))
    assert m.gained == [True, True, False, False, False] and m.queries[-1] == UNIFORM


def test_the_planner_sees_history_gain_analysis_and_covered_times_and_nothing_else():
    assert [f.name for f in dataclasses.fields(PlannerView)] == ["history", "gained", "analysis", "covered"]
    m = OnlineMemory()
    m.admit([ev(1, 0), ev(2, 5.5), ev(3, 40), ev(1, 0, level=3)], [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    m.record({"a": ["L1/0001"]}, m.admit([], [])); m.diagnose(False, "the number on the door")
    v = m.planner_view()
    assert v == PlannerView(("a",), (False,), "the number on the door", (Span(0, 10.5), Span(40, 45)))   # neighbours merged, the summary does not cover
    assert not any(e.text in str(v) or e.id in str(v) for e in m.evidence)
    with pytest.raises(dataclasses.FrozenInstanceError): v.analysis = "x"


def test_only_an_insufficient_analysis_with_words_is_kept():
    m = OnlineMemory()
    m.diagnose(True, "no"); assert m.analysis == ""
    m.diagnose(False, " first "); m.diagnose(False, ""); m.diagnose(True, "later"); assert m.analysis == "first"


def test_display_survives_bars_and_newlines():
    m = OnlineMemory(); m.admit([dataclasses.replace(ev(1), text="a | b\nc")], [[1, 0]])
    assert "a \\| b c" in m._repr_markdown_()
