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
from reveal_kit.metrics import accuracy, by, by_duration, by_role, compare, cost, frame, known, mcnemar, mean, phases, resampled, rescored, scored, spread, unasked, units

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


@pytest.mark.parametrize("name, letters", [("longvideobench", "ABCDE"), ("egoschema-500", "ABCDE"), ("longvideobench-3600", "ABCD")])
def test_one_reply_to_many_questions_is_not_one_letter(name, letters):
    got = [extract("no idea", letters, "official", name, (), f"q{i}") for i in range(300)]
    expected = 300 / len(letters); assert sum((got.count(l) - expected) ** 2 / expected for l in letters) < 18.5     # chi square with 4 degrees of freedom, p 0.001
    assert set(got) == set(letters) and got[7] == extract("no idea", letters, "official", name, (), "q7")


def test_rescoring_draws_by_question():
    b = load("longvideobench", FIX / "benchmarks" / "longvideobench"); q = b.questions[0]
    qs = [Question(f"q{i}", "v", "What?", tuple("abcde")) for i in range(300)]
    many = SimpleNamespace(name="longvideobench", split="validation", questions=qs, by_id={x.id: x for x in qs}, oracle={x.id: Gold("A") for x in qs})
    m = scored([dict(rec(x.id, "v", False), text="no idea") for x in qs], many, "official"); assert m.n == 300 and .12 < m.value < .28 and m.unparsed == 0
    failed = [dict(rec(x.id, "v", False, None), text="", error="timeout") for x in qs]; assert .12 < scored(failed, many, "official").value < .28 and scored(failed, many).value == 0
    assert rescored([dict(rec(q.id, q.video, False), text="no idea")], b, "official")[0]["prediction"] == extract("no idea", q.letters, "official", b.name, q.options, q.id)


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
    t = time.process_time(); extract(text, "ABCD"); assert time.process_time() - t < 2


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


def test_a_week_of_one_person_is_clustered_by_the_day_of_asking():
    days = ["DAY1", "DAY1", "DAY2", "DAY2", "DAY5"]; rs = [dict(rec(str(i), "A1_JAKE", c == "1"), day=d) for i, (c, d) in enumerate(zip("10110", days))]
    m = accuracy(rs)                                                            # mean 3/5; sums of deviations -1/5, 4/5, -3/5; three days
    assert math.isclose(m.se, math.sqrt(3 / 2 * (1 + 16 + 9) / 25) / 5) and (m.clusters, m.unit, m.videos) == (3, "day", 1) and "n = 5, 3 days" in str(m)
    assert frame(dict(all=m)).loc["all", "videos"] == 1 and by(rs)["T"].unit == "day"
    for bare in ([{k: v for k, v in r.items() if k != "day"} for r in rs], [dict(rs[0], day=None), *rs[1:]]): assert math.isnan(accuracy(bare).se) and accuracy(bare).unit == "video"  # a record lacks the day
    two = [dict(r, video=f"A{i % 2 + 1}") for i, r in enumerate(rs)]; assert units(two) == (["A1", "A2", "A1", "A2", "A1"], "video") and accuracy(two).clusters == 2     # two people: the person


def test_the_day_comes_from_the_benchmark():
    b = load("egolife-a1", FIX / "benchmarks" / "egolife-a1")                   # asked on days 2, 1, 6 and 7; gold B, C, D, A
    rs = [dict(rec(q.id, q.video, False), text=t) for q, t in zip(b.questions, ["B", "C", "The answer is A", "no idea"])]
    assert [r["day"] for r in known(rs, b)] == ["DAY2", "DAY1", "DAY6", "DAY7"] and "day" not in rs[0] and known([dict(rs[0], day="DAY9")], b)[0]["day"] == "DAY9"
    m = scored(rs, b); assert m.value == .5 and math.isclose(m.se, math.sqrt(4 / 3) / 4) and (m.clusters, m.unit) == (4, "day") and math.isnan(accuracy(rs).se)    # deviations of 1/2 each
    two = known([dict(r, correct=True) for r in rs], b); c = compare(known([dict(r, correct=False) for r in rs], b), two, draws=99); assert c.difference.unit == "day" and (c.low, c.p) == (1, .02) and "interval by day" in str(c)
    e = load("ego-r1", FIX / "benchmarks" / "ego-r1"); assert scored([dict(rec(q.id, q.video, True), text="A") for q in e.questions], e).unit == "video"


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


def test_questions_without_a_public_answer_are_left_out_and_counted():
    b = load("longvideobench", FIX / "benchmarks" / "longvideobench", "all")    # gold C, D, A and one that is not public
    rs = [dict(rec(q.id, q.video, None), text="The answer is D") for q in b.questions]; hidden = next(i for i, q in enumerate(b.questions) if b.oracle[q.id].letter is None)
    assert [r["correct"] for r in rescored(rs, b)] == [False, True, False, None] and hidden == 3
    for scorer in ("strict", "official"): m = scored(rs, b, scorer); assert (m.value, m.n, m.dropped) == (1 / 3, 3, 1)
    rs[3] = dict(rs[3], error="timeout", text=""); m = scored(rs, b); assert (m.n, m.dropped, m.failed) == (3, 1, 0)
    with pytest.raises(InputError, match="1 records do not say"): accuracy(rescored(rs, b))
    none = scored(rs[3:], b); assert (none.n, none.dropped) == (0, 1) and str(none) == "none, 1 dropped"
    assert discrimination([dict(rs[0], correct=True, rho=.9), dict(rs[1], correct=False, rho=.5), dict(rs[2], correct=None, rho=1.0)]) == 1


# ---- groups of four

@pytest.mark.parametrize("case", HAND["cases"], ids=lambda c: f"{c['kind']} {c['structure']}")
def test_all_sixteen_patterns(case):
    assert len(case["scores"]) == 16
    for pattern, want in case["scores"].items(): assert abs(100 * group_score([c == "1" for c in pattern], case["kind"], case["structure"]) - want) < 1e-4, pattern


@pytest.mark.parametrize("case", HAND["minus_one"], ids=lambda c: c["why"])
def test_the_original_scripts_minus_one(case): assert 100 * group_score(case["right"], case["kind"], case["structure"]) == case["score"]


def test_official_reading_and_the_original_scripts_minus_one_together():
    b = load("video-mme-v2", FIX / "benchmarks" / "video-mme-v2")               # 001 relevance, 002 logic [1,[2,3],4]
    gold = lambda i: f"The answer is {b.oracle[i].letter}"
    said = {"001-3": "nothing", "001-4": "nothing", "002-1": "nothing"}; rs = [dict(rec(i, b.by_id[i].video, False), text=said.get(i) or gold(i)) for i in b.ids]
    assert len(rescored(rs, b, "official")) == 5 and group_table(rescored(rs, b, "official"), b)["CC"].dropped == 2                        # without `keep` no group is whole
    whole = rescored(rs, b, "official", keep=True); groups, broken = score_groups(whole, b, failed=-1)
    assert not broken and [(g.right, g.score) for g in groups] == [((1, 1, -1, -1), 0), ((-1, 1, 1, 1), 1)]                              # 2 - 2 = 0 right; -1 is true, so the chain is whole
    t = group_table(whole, b, failed=-1); assert (t["CC"].value, t["RC"].value, t["Avg"].value, t["Avg"].n, t["Avg"].dropped) == (0, 1, 1, 5, 3)   # the plain average is over readable replies
    t = group_table(rescored(rs, b), b); assert (t["CC"].value, t["RC"].value, t["Avg"].value, t["Avg"].n) == (4 / 16, 0, 5 / 8, 8)        # the kit's own: unreadable is wrong
    rs[5] = dict(rs[5], error="timeout", text=""); assert score_groups(rescored(rs, b, "official", keep=True), b, failed=-1)[1] == ["002"]     # no reply at all is no -1: the question is not there


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


def test_answers_without_recorded_evidence_cannot_be_judged():
    b = bench(**{f"q{i}": [(100, 110)] for i in range(6)})
    rs = [dict(rec("q0", "a", True), evidence=ev((105, 120, 0))), dict(rec("q1", "a", True), evidence=[]), dict(rec("q2", "b", False), evidence=[]), rec("q3", "b", True), dict(rec("q4", "b", False, None), evidence=[], error="timeout"), dict(rec("q5", "b", True), evidence=ev((200, 210, 0)))]
    g = grounded(rs, b)
    assert (g.right_grounded, g.right_ungrounded, g.wrong_grounded, g.wrong_ungrounded, g.unrecorded, g.unknown) == (1, 3, 0, 2, 0, 0)     # this agent says what it saw: an answer without evidence rests on nothing
    assert g.accuracy.value == 4 / 6 and g.both.value == 1 / 6 and g.both.dropped == 0 and "cannot be judged" not in str(g)
    seeing = grounded([dict(r, evidence=[], error=None) for r in rs], b); assert seeing.both.n == 0 and seeing.unrecorded == 6 and str(seeing).startswith("no answer can be judged\n6 answers")
    assert recall([dict(r, evidence=[]) for r in rs], b).empty and recall(rs[:2], b).loc["end", "recall"] == 50


def test_a_point_in_time_grounds_inside_a_target():
    b = bench(q1=[(100, 110)], q2=[(100, 110)], q3=[(100, 110)], q4=[(100, 110)], q5=[(100, 110)])
    points = dict(q1=(105, 105, 0), q2=(100, 100, 0), q3=(110, 110, 0), q4=(99, 99, 0)); rs = [dict(rec(i, "a", True), evidence=ev(p)) for i, p in points.items()] + [dict(rec("q5", "a", True), evidence=ev((90, 100, 0), (100, 100, 0)))]
    g = grounded(rs, b); assert (g.right_grounded, g.right_ungrounded) == (3, 2)                                                     # inside, at its start, at its end (no), before (no), at its start behind a piece that ends there
    assert math.isclose(g.chance, (4 * .010 + .020) / 5) and list(recall(rs, b)["recall"]) == [60, 60]
    assert evidence_spans(rs[4])[0] == [Span(90, 100), Span(100, 100)] and evidence_spans(dict(evidence=ev((90, 101, 0), (100, 100, 0), (95, 95, 0))))[0] == [Span(90, 101)]


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


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), max_size=8), st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=5))
def test_touched_is_overlap(pieces, targets):
    es, _ = evidence_spans(dict(evidence=ev(*[(s, s + l, 0) for s, l in pieces]))); ts = [Span(s, s + l) for s, l in targets]
    assert touched(ts, es) == [any(min(t.end, s + l) > max(t.start, s) or l == 0 and t.start <= s < t.end for s, l in pieces) for t in ts]


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


def test_one_video_has_no_interval():
    a = [rec(str(i), "day4", i < 2) for i in range(6)]; b = [dict(r, correct=i > 0) for i, r in enumerate(a)]      # 1 lost, 4 gained
    c = compare(a, b); assert all(map(math.isnan, (c.low, c.high, c.p, c.difference.se))) and (c.only_a, c.only_b, c.difference.value) == (1, 4, .5) and c.mcnemar == 2 * (1 + 5) / 32
    assert "b - a +50.0; one video: no interval\n" in str(c) and "nan" not in str(c) and "draws" not in str(c)


def test_no_p_of_the_bootstrap_is_zero():
    a = [rec(v, v, False) for v in "abcde"]; b = [dict(r, correct=True) for r in a]                                 # five videos, each one more right
    c = compare(a, b, draws=999); assert c.p == 2 * (1 + 0) / (999 + 1) and c.mcnemar == 2 / 32 and compare(a, b).p == 2 / 10_001
    assert "p < 0.001" in str(compare(a, b)) and "p = 0.002 (999 draws, seed 0; with 5 videos a rough guess)" in str(c) and compare(b, a, draws=999).p == c.p and compare(a, a).p == 1
    sums, sizes = np.array([2., -1, 0, 1]), np.array([4., 3, 2, 5]); w = np.random.default_rng(3).multinomial(4, np.full(4, 1 / 4), size=500); m = w @ sums / (w @ sizes)
    assert resampled(sums, sizes, 3, 500, .9)[2] == 2 * (1 + min((m <= 0).sum(), (m >= 0).sum())) / 501 and (m <= 0).sum() > 20
    many = [rec(f"{v}{i}", str(v), (v + i) % 3 > 0) for v in range(12) for i in range(4)]; assert "rough" not in str(compare(many, [dict(r, correct=True) for r in many]))


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
    t = time.process_time(); s = scored(rs, b); by(rs); group_table(rs, b); by_verdict(rs); grounded(rs, b); took = time.process_time() - t     # of this process: others share the machine
    assert s.n == 3200 and s.value == 1 / 8 and took < .5, took
