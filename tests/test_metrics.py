"Metrics against values worked out by hand, against other implementations, and on large and odd input."
import json, math, time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from reveal_kit.benchmark_files import Gold
from reveal_kit.benchmarks import load
from reveal_kit.core import InputError, Question, Span
from reveal_kit.extraction import extract
from reveal_kit.groups import by_head, group_score, group_table, score_groups
from reveal_kit.grounding import by_verdict, chance, discrimination, evidence_spans, grounded, oracle_recovery, recall, touched
from reveal_kit.metrics import accuracy, by, by_duration, by_role, compare, cost, frame, known, mcnemar, mean, phases, rescored, scored, spread, unasked

FIX = Path(__file__).resolve().parent / "fixtures"
HAND = json.loads((FIX / "metrics" / "groups.json").read_text())


def rec(id, video, ok, letter="A", **kw): return dict(id=id, video=video, prediction=letter, correct=ok, error=None, text=letter or "", type="T", **kw)


# ---- letters

@pytest.mark.parametrize("text, letters, want", [
    ("B", "ABCD", "B"), ("b.", "ABCD", "B"), (" (c) ", "ABCD", "C"), ("**D**", "ABCD", "D"), ("`A`", "ABCD", "A"), ("Option C", "ABCD", "C"), ("E", "ABCD", None), ("H", "ABCDEFGH", "H"),
    ("B. The red van", "ABCD", "B"), ("(B) The red van", "ABCD", "B"), ("B) van", "ABCD", "B"), ("B: van", "ABCD", "B"), ("**B.** van", "ABCD", "B"), ("B - van", "ABCD", "B"), ("A red van", "ABCD", None), ("A-line skirt", "ABCD", None),
    ("The best answer is: B", "ABCD", "B"), ("The correct option would be (B).", "ABCD", "B"), ("So the answer is most likely **C**.", "ABCD", "C"), ("ANSWER: d", "ABCD", None), ("Answer:\n\nD", "ABCD", "D"), ("answer = B", "ABCD", "B"),
    ("The answer to this question is option (A).", "ABCD", "A"), ("I'd go with C.", "ABCD", "C"), ("Option D is the best choice.", "ABCD", "D"), ("D is correct answer", "ABCD", "D"), ("Answer: A man in red", "ABCD", None), ("Answer: A because he is red", "ABCD", "A"),
    ("Answer: A. A man in red", "ABCD", "A"), ("The answer is I think B", "ABCDEFGHI", None), ("The answer is not B.", "ABCD", None), ("B is not the correct answer.", "ABCD", None), ("Option B is incorrect.", "ABCD", None), ("The answer is B or C.", "ABCD", None),
    ("The answer is A, B and C are wrong", "ABCD", None), ("At first the answer is B. Then again, the answer is D.", "ABCD", "D"), ("The answer is B.\nThe answer is E.", "ABCD", None), ("<answer>C</answer>", "ABCD", "C"), ("<answer> (C) the van </answer>", "ABCD", "C"), ("$\\boxed{\\text{B}}$", "ABCD", "B"),
    ('{"answer": "B"}', "ABCD", "B"), ('{"reason": "option is A", "final_answer": "(D) van"}', "ABCD", "D"), ("<think>the answer is A</think>B", "ABCD", "B"), ("<think>the answer is A", "ABCD", None), ("A. red\nB. blue\nC. green\nD. none", "ABCD", None), ("A. red\nB. blue\nThe answer is B", "ABCD", "B"),
    ("He opens it.\nHence\nC", "ABCD", "C"), ("Based on the video, it is C", "ABCD", None), ("However, nothing is said.", "ABCDEFGH", None), ("", "ABCD", None), ("I cannot tell.", "ABCD", None), ("Both A and B", "ABCD", None), ("答案是B", "ABCD", None), ("B\u3002", "ABCD", "B"), ("The answer is 'B'", "ABCD", "B"), ("Answer: None of the above", "ABCD", None)])
def test_strict(text, letters, want): assert extract(text, letters) == want


@pytest.mark.parametrize("bench, text, want", [
    ("video-mme-long", "The best answer is: C", "C"), ("video-mme-long", "Best option: C", "B"), ("video-mme-long", "Best answer: C", "B"), ("video-mme-long", "Answer: C", "C"), ("video-mme-long", "nothing", None), ("video-mme-long", "Based on it, D", "B"),
    ("video-mme-v2", "Best option: C", "C"), ("video-mme-v2", "Final Answer: H", "H"), ("video-mme-v2", "However, C", "H"), ("video-mme-v2", "Given that, B", "G"), ("video-mme-v2", "", None),
    ("lvbench", "(C) The van", "C"), ("lvbench", "B) van", "B"), ("lvbench", "The van", "T"), ("lvbench", "Because (D)", "D"), ("lvbench", "", None), ("lvbench", "(", None),
    ("longvideobench", "Answer: C", "A"), ("longvideobench", "D. A book", "D"), ("longvideobench-3600", "The answer is E", "E"), ("egolife-a1", "A man takes B", "A"), ("egolife-a1", "Option B.", "B"), ("egolife-a1", "E", None),
    ("ego-r1", "<answer>B</answer> no <answer>(c)</answer>", "C"), ("ego-r1", "<answer>option B</answer>", "O"), ("ego-r1", "The answer is C", "A"), ("egoschema-500", "(B) or (D)", "D"), ("egoschema-500", "B. It", "B"), ("egoschema-500", "the thing that he does is washing dishes", "C")])
def test_official(bench, text, want):
    assert extract(text, "ABCDE", "official", bench, ("cooking", "reading", "washing dishes", "nothing", "sleep")) == want


def test_random_letters_repeat_and_vary():
    got = [extract(f"no idea {i}", "ABCDE", "official", "longvideobench", ()) for i in range(5000) if "A" not in f"no idea {i}"]
    assert got == [extract(f"no idea {i}", "ABCDE", "official", "longvideobench") for i in range(5000)]
    share = np.array([got.count(l) for l in "ABCDE"]) / len(got)
    assert abs(share - .2).max() < .02


def test_scorers_are_refused_by_name():
    with pytest.raises(InputError, match="choose strict or official"): extract("B", "ABCD", "lenient")
    with pytest.raises(InputError, match="mini has no official scorer; these have: ego-r1"): extract("B", "ABCD", "official", "mini")


@given(st.text(st.sampled_from(list("ABCDE()*.:\n \tis answertheoptcI{}<>\"\\")), max_size=80), st.sampled_from(["AB", "ABCD", "ABCDEFGH"]))
@settings(max_examples=500, deadline=None)
def test_a_letter_is_the_questions_own_and_stands_in_the_reply(text, letters):
    l = extract(text, letters)
    assert l is None or l in letters and (l in text or text.strip(" *.:()\n\t<>\"\\{}").upper().endswith(l))
    assert l == extract(text, letters)


@pytest.mark.parametrize("text", ["answer" + " " * 200_000, "*" * 200_000, "the answer is " * 20_000, "(" * 100_000 + "B", "A.\n" * 50_000, "<answer>" * 20_000, "\\boxed{" * 30_000])
def test_long_replies_are_read_quickly(text):
    t = time.perf_counter(); extract(text, "ABCD"); assert time.perf_counter() - t < 2


# ---- means

def test_clustered_error_by_hand():
    m = mean([1, 0, 1, 1, 0], ["a", "a", "b", "b", "c"])                        # mean 3/5; sums of deviations -1/5, 4/5, -3/5; G 3
    assert math.isclose(m.value, .6) and math.isclose(m.se, math.sqrt(3 / 2 * (1 + 16 + 9) / 25) / 5) and (m.n, m.clusters) == (5, 3)


def test_interval_covers():
    "Five to forty clusters of six dependent questions: the interval holds the truth about 95 times of 100, the naive one does not."
    r = np.random.default_rng(1)
    for G, low in ((5, .90), (40, .92)):
        hit, naive = [], []
        for _ in range(600):
            p = np.clip(.6 + .25 * r.standard_normal(G), 0, 1); x = r.random((G, 6)) < p[:, None]
            truth = .5949                                                        # the mean of the clipped normal, by numerical integration
            m = mean(x.ravel(), np.repeat(np.arange(G), 6)); a, b = m.interval(); hit.append(a <= truth <= b)
            s = 1.96 * math.sqrt(m.value * (1 - m.value) / m.n); naive.append(abs(m.value - truth) <= s)
        assert low < np.mean(hit) <= .99 and np.mean(naive) < np.mean(hit) - .03, (G, np.mean(hit), np.mean(naive))


def test_unparsed_and_failed_are_wrong_and_shown():
    rs = [rec("1", "a", True), rec("2", "a", False, None), dict(rec("3", "b", False, None), error="timeout"), rec("4", "b", True)]
    m = accuracy(rs)
    assert (m.value, m.n, m.unparsed, m.failed) == (.5, 4, 1, 1) and "1 unparsed, 1 failed" in str(m)
    with pytest.raises(InputError, match="1 records do not say"): accuracy([dict(rs[0], correct=None)])
    assert str(accuracy([])) == "none"


def test_by_type_counts_every_label():
    rs = [dict(rec("1", "a", True), type="reasoning; summarization"), dict(rec("2", "b", False), type="reasoning"), dict(rec("3", "b", True), type=None)]
    t = by(rs)
    assert {k: (m.value, m.n) for k, m in t.items()} == {"reasoning": (.5, 2), "summarization": (1, 1)} and list(frame(t).columns) == ["score", "se", "n", "videos", "unparsed", "failed", "dropped"]
    assert frame(t).loc["reasoning", "score"] == 50


def test_by_duration():
    b = load("longvideobench", FIX / "benchmarks" / "longvideobench"); rs = [rec(q.id, q.video, True) for q in b.questions]
    assert {k: m.n for k, m in by_duration(rs, b).items()} == {"60 s group": 1, "3600 s group": 2}
    b = load("lvbench", FIX / "benchmarks" / "lvbench"); assert {k: m.n for k, m in by_duration([rec(q.id, q.video, True) for q in b.questions], b).items()} == {"60 min and more": 2, "30 to 60 min": 2}
    b = load("video-mme-long", FIX / "benchmarks" / "video-mme-long"); assert list(by_duration([rec(q.id, q.video, True) for q in b.questions], b)) == ["long"]


def test_records_of_other_questions_are_refused():
    b = load("mini", FIX / "benchmarks" / "mini"); rs = [rec(q.id, q.video, True) for q in b.questions]
    assert unasked(rs[2:], b) == list(b.ids[:2])
    with pytest.raises(InputError, match="1 records belong to no question of mini .test., the first is 'day9-01'"): known(rs + [rec("day9-01", "day9", True)], b)
    with pytest.raises(InputError, match="several records, the first is 'day4-01'"): grounded(rs + rs[:1], b)


# ---- scorers over a run

def test_official_denominators():
    b = load("video-mme-long", FIX / "benchmarks" / "video-mme-long")          # gold C, B, B, D
    rs = [dict(rec(q.id, q.video, False), text=t) for q, t in zip(b.questions, ["The answer is C", "Best option: B", "nothing at all", "Based on it, D"])]
    assert [r["prediction"] for r in rescored(rs, b)] == ["C", "B", None, None] and scored(rs, b).value == .5 and scored(rs, b).unparsed == 2
    m = scored(rs, b, "official"); assert (m.n, m.dropped, m.value) == (3, 1, 2 / 3)
    lv = load("lvbench", FIX / "benchmarks" / "lvbench"); rs = [dict(rec(q.id, q.video, True), text="(C)") for q in lv.questions]; rs[1] = dict(rs[1], error="timeout", text="")
    m = scored(rs, lv, "official"); assert (m.n, m.dropped, m.value) == (3, 1, 1 / 3) and scored(rs, lv).failed == 1 and scored(rs, lv).n == 4


# ---- groups of four

@pytest.mark.parametrize("case", HAND["cases"], ids=lambda c: f"{c['kind']} {c['structure']}")
def test_all_sixteen_patterns(case):
    assert len(case["scores"]) == 16
    for pattern, want in case["scores"].items(): assert abs(100 * group_score([c == "1" for c in pattern], case["kind"], case["structure"]) - want) < 1e-4, pattern


@pytest.mark.parametrize("case", HAND["minus_one"], ids=lambda c: c["why"])
def test_the_original_scripts_minus_one(case): assert 100 * group_score(case["right"], case["kind"], case["structure"]) == case["score"]


def v2_like(groups, order=1):
    oracle = {f"{g['video']}-{i}": Gold("A", f"head of {g['video']}", group=g["video"], level=g["level"] if i == 4 or g["kind"] == "relevance" else None, structure=g["structure"], group_type=g["kind"], extra=dict(position=i)) for g in groups for i in (1, 2, 3, 4)}
    rs = [rec(f"{g['video']}-{i}", g["video"], r == "1") for g in groups for i, r in enumerate(g["right"], 1)]
    return SimpleNamespace(name="video-mme-v2", split="test", questions=[Question(i, i[:3], "What?", ("x", "y")) for i in list(oracle)[::order]], oracle=oracle), rs


@pytest.mark.parametrize("order", [1, -1])
def test_the_table_by_hand(order):
    b, rs = v2_like(HAND["table"]["groups"], order); t = group_table(rs[::order], b)
    assert list(t) == list(HAND["table"]["expected"])
    for k, want in HAND["table"]["expected"].items(): assert abs(100 * t[k].value - want) < 1e-3, k
    assert [t[k].n for k in t] == [1, 2, 2, 3, 3, 6, 24] and by_head(rs, b)["head of 004"].value == 4 / 12
    assert math.isclose(t["CC"].se, np.std([1, .25, .0625], ddof=1) / math.sqrt(3))


def test_groups_that_are_not_whole_have_no_score():
    b, rs = v2_like(HAND["table"]["groups"]); rs = [r for r in rs if r["id"] not in ("001-3", "006-1")]
    groups, broken = score_groups(rs, b)
    assert broken == ["001", "006"] and len(groups) == 4 and group_table(rs, b)["Non-Lin"].dropped == 2 and not group_table(rs, b)["Level 1"].n and math.isnan(group_table(rs, b)["Level 1"].value)


def test_groups_of_the_files():
    b = load("video-mme-v2", FIX / "benchmarks" / "video-mme-v2"); rs = [rec(i, b.by_id[i].video, i != "002-2") for i in b.ids]
    groups, broken = score_groups(rs, b)
    assert not broken and [(g.kind, g.level, g.score) for g in groups] == [("relevance", 2, 1), ("logic", 3, 4 / 12)]
    m = load("mini", FIX / "benchmarks" / "mini"); groups, _ = score_groups([rec(i, m.by_id[i].video, i != "day4-03") for i in m.ids], m)
    assert [(g.structure, g.score) for g in groups] == [("[1,[2,3],4]", 4 / 12), ("[1,2,3,4]", 1)]
    with pytest.raises(InputError, match="a group has four questions, not 3"): group_score([1, 1, 1], "logic")
    with pytest.raises(InputError, match="structure '.1,2,4,3.'"): group_score([1] * 4, "logic", "[1,2,4,3]")


@given(st.lists(st.booleans(), min_size=4, max_size=4), st.integers(0, 3), st.sampled_from(["[1,2,3,4]", "[1,[2,3],4]", "[[1,2],3,4]"]), st.sampled_from(["relevance", "logic"]))
def test_one_more_right_answer_never_costs(right, i, structure, kind):
    better = [r or j == i for j, r in enumerate(right)]
    assert 0 <= group_score(right, kind, structure) <= group_score(better, kind, structure) <= 1 and (group_score(right, kind, structure) == 1) == all(right)


# ---- verdicts, grounding, recall

def test_verdicts():
    rs = [dict(rec(str(i), "ab"[i % 2], ok), sufficient=s, rho=rho) for i, (ok, s, rho) in enumerate([(True, True, .9), (True, True, .8), (False, True, .75), (True, False, .6), (False, False, .6), (False, None, None)])]
    v = by_verdict(rs); assert list(v) == ["sufficient", "insufficient", "no verdict"] and [m.n for m in v.values()] == [3, 2, 1] and v["sufficient"].value == 2 / 3
    assert math.isclose(discrimination(rs), (2 + 2 + .5) / 6)                  # .9 and .8 beat both wrong ones, .6 ties with one and loses to the other
    from sklearn.metrics import roc_auc_score
    assert math.isclose(discrimination(rs), roc_auc_score([r["correct"] for r in rs[:5]], [r["rho"] for r in rs[:5]]))
    assert math.isnan(discrimination(rs[:2]))


def test_oracle_recovery_by_hand():
    base = [dict(rec(str(i), "abc"[i % 3], ok), sufficient=s) for i, (ok, s) in enumerate([(1, True), (1, True), (0, True), (0, False), (0, False), (1, False), (1, False)])]
    gold = [dict(r, correct=bool(c)) for r, c in zip(base, [1, 0, 1, 1, 1, 1])]     # the last has no oracle record
    got = oracle_recovery(base, gold)
    s, i = got["sufficient"], got["insufficient"]
    assert (s.before.value, s.after.value, s.gain.value, s.mended, s.spoilt) == (2 / 3, 2 / 3, 0, 1, 1) and (i.before.value, i.after.value, i.mended, i.gain.dropped) == (1 / 3, 1, 2, 1) and math.isclose(i.gain.value, 2 / 3)


def bench(**spans): return SimpleNamespace(name="mini", split="test", oracle={k: Gold("A", spans=tuple(Span(*s) for s in v), extra=dict(duration=1000.0)) for k, v in spans.items()})


def ev(*spans): return [[f"L1/{i}", s, e, r, "text"] for i, (s, e, r) in enumerate(spans)]


def test_grounding_by_hand():
    b = bench(q1=[(100, 110)], q2=[(100, 110)], q3=[(100, 110), (500, 520)], q4=[], q5=[(100, 110)])
    rs = [dict(rec("q1", "a", True), evidence=ev((105, 120, 0))), dict(rec("q2", "a", True), evidence=ev((110, 120, 0), (0, 600, 0))), dict(rec("q3", "b", False), evidence=ev((490, 501, 1))), dict(rec("q4", "b", True), evidence=ev((0, 1, 0))),
          dict(rec("q5", "b", False, None), error="x")]
    g = grounded(rs, b)
    assert (g.right_grounded, g.right_ungrounded, g.wrong_grounded, g.wrong_ungrounded, g.unknown, g.too_long) == (1, 1, 1, 1, 1, 1)      # touching at an edge is no overlap; ten minutes of summary ground nothing
    assert g.both.value == .25 and g.accuracy.value == .5 and g.both.dropped == 1
    assert math.isclose(g.chance, (.025 + .020 + .021 + .031 + 0) / 4)          # (15+10, 10+10, 10+11 and 20+11 of 1000 s, nothing)
    assert grounded(rs, b, longest=None).right_grounded == 2


def test_recall_by_hand():
    b = bench(q1=[(100, 110), (300, 310)], q2=[(50, 60)], q3=[])
    rs = [dict(rec("q1", "a", True), evidence=ev((100, 105, 0), (305, 400, 2))), dict(rec("q2", "b", True), evidence=ev((0, 10, 0), (55, 70, 1))), dict(rec("q3", "b", True), evidence=[])]
    t = recall(rs, b)
    assert list(t.index) == ["round 0", "round 1", "round 2", "end"] and list(t["recall"]) == [25, 75, 100, 100] and list(t["all"]) == [0, 50, 100, 100] and list(t["n"]) == [2] * 4
    assert list(t["seconds"]) == [12.5, 37.5, 50, 50]                           # (5/20, 0), (5/20, 5/10), (10/20, 5/10)
    assert recall([rs[2]], b).empty


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 30)), min_size=1, max_size=4), st.lists(st.tuples(st.integers(0, 99), st.integers(1, 30)), max_size=4))
@settings(max_examples=100, deadline=None)
def test_chance_is_the_share_of_shifts_that_touch(targets, pieces):
    D = 140
    ts = [Span(s, min(s + l, D)) for s, l in targets]; es, _ = evidence_spans(dict(evidence=ev(*[(s, min(s + l, D), 0) for s, l in pieces])))
    def shifted(k): return sorted(Span(*x) for e in es for x in ([(e.start + k, e.end + k)] if e.end + k <= D else [(e.start + k - D, e.end + k - D)] if e.start + k >= D else [(e.start + k, D), (0, e.end + k - D)]) if x[1] > x[0])
    share = np.mean([any(touched(ts, shifted(k + .5))) for k in range(D)])      # all starts are whole numbers: half shifts see every case equally often
    assert abs(chance(ts, es, D) - share) < 1e-9


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=8), st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=5))
def test_touched_is_overlap(pieces, targets):
    es, _ = evidence_spans(dict(evidence=ev(*[(s, s + l, 0) for s, l in pieces]))); ts = [Span(s, s + l) for s, l in targets]
    assert touched(ts, es) == [any(min(t.end, s + l) > max(t.start, s) for s, l in pieces) for t in ts]


# ---- two runs

def test_mcnemar_against_scipy():
    from scipy.stats import binomtest
    for a, b in ((0, 1), (3, 9), (40, 61), (700, 812), (1500, 1400)): assert math.isclose(mcnemar(a, b), binomtest(min(a, b), a + b).pvalue, rel_tol=1e-6)


def test_bootstrap_agrees_with_the_clustered_error():
    r = np.random.default_rng(3); p = np.clip(.5 + .2 * r.standard_normal(80), 0, 1)
    a = [rec(f"{g}-{i}", str(g), bool(r.random() < p[g])) for g in range(80) for i in range(10)]; b = [dict(x, correct=bool(r.random() < min(1, p[int(x["video"])] + .1))) for x in a]
    c = compare(a, b, seed=5, draws=4000)
    assert abs((c.high - c.low) / 2 / (1.96 * c.difference.se) - 1) < .06 and c.low < c.difference.value < c.high
    assert c.difference.value == (c.only_b - c.only_a) / 800 and c.only_a + c.only_b + c.both + c.neither == 800
    assert compare(a, b, seed=5, draws=4000) == c and compare(a, b, seed=6, draws=4000).low != c.low
    back = compare(b, a, seed=5, draws=4000); assert math.isclose(back.low, -c.high) and back.mcnemar == c.mcnemar


def test_a_difference_that_is_everywhere_is_in_every_draw():
    sizes = dict(a=1, b=7, c=30); wrong = [rec(f"{v}{i}", v, False) for v, n in sizes.items() for i in range(n)]
    c = compare(wrong, [dict(r, correct=True) for r in wrong], draws=500)
    assert (c.low, c.high, c.difference.value, c.only_b) == (1, 1, 1, 38)


def test_no_difference_is_rarely_found():
    r = np.random.default_rng(7); ps = []
    for _ in range(150):
        g = np.repeat(np.arange(30), 6); x, y = r.random(180) < .6, r.random(180) < .6
        a = [rec(str(i), str(v), bool(k)) for i, (v, k) in enumerate(zip(g, x))]; b = [dict(q, correct=bool(k)) for q, k in zip(a, y)]
        ps.append(compare(a, b, draws=400).p)
    assert .01 <= np.mean(np.array(ps) < .05) <= .12


def test_pairs_only_what_both_have():
    a = [rec(str(i), "v", True) for i in range(4)]; b = [rec(str(i), "v", False) for i in range(2, 9)]
    assert compare(a, b).unpaired == (2, 5) and compare(a, b).difference.n == 2
    with pytest.raises(InputError, match="no question in common"): compare(a[:1], b)


# ---- cost and speed

def test_cost_by_hand():
    rs = [dict(rec("1", "a", True), calls=4, prompt=100, cached=40, completion=10, replayed=1, segments=8, rounds=1, operations=["look", "listen", "look"], seconds={"answer": 1.0, "answer/model": .9}, usage={"calls/planner": 1, "calls/answerer": 3, "prompt/answerer": 90}),
          dict(rec("2", "a", True), calls=6, prompt=300, cached=0, completion=30, replayed=0, segments=10, rounds=2, operations={"look": 2}, seconds={"answer": 2.0}, usage={"calls/planner": 2}), dict(id="3", video="a", prediction=None, correct=False, error="x")]
    c = cost(rs)
    assert (c["calls"], c["prompt"], c["cached"], c["completion"], c["replayed"], c["segments"], c["seconds"]) == (10, 400, 40, 40, 1, 18, 3.0) and c["prompt per question"] == 400 / 3
    assert spread(rs) == {1: 1, 2: 1} and spread(rs, "operations") == {"listen": 1, "look": 4} and by_role(rs).loc["planner", "calls"] == 3 and phases(rs)["answer"] == 1.0


def test_3200_answers_are_scored_within_half_a_second():
    groups = [dict(video=f"{i:03d}", kind="logic" if i % 3 else "relevance", structure=["[1,2,3,4]", "[1,[2,3],4]", "[[1,2],3,4]"][i % 3], level=i % 3 + 1, right="1011") for i in range(800)]
    b, rs = v2_like(groups)
    b.by_id = {q.id: Question(q.id, q.video, "What is said about the van?", tuple("abcdefgh")) for q in b.questions}
    rs = [dict(r, text=f"Looking at the frames one by one, the van is red and the man leaves it at the door.\nThe best answer is: {'ABCDEFGH'[i % 8]}. the red van", evidence=ev((10, 20, 0))) for i, r in enumerate(rs)]
    t = time.perf_counter(); s = scored(rs, b); by(rs); group_table(rs, b); by_verdict(rs); grounded(rs, b); took = time.perf_counter() - t
    assert s.n == 3200 and s.value == 1 / 8 and took < .5, took
