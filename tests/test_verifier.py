"The verdict is arithmetic: bounded, monotone, and total on whatever a model writes."
import json
import math
import time

import pytest
from hypothesis import example, given, settings, strategies as st

from reveal_kit.core import Evidence, Question, Span, Trace
from reveal_kit.replies import Reply, parse_reply, schema_of
from reveal_kit.rubrics import Criterion, RubricPool, load_pool
from reveal_kit.verifier import (AGGREGATES, SCORES, WHOLE, Verifier, keys_of, leaves, lower, missing, option_score, read_scores, read_selection, select_schema, soften, sufficient, verdict,
                                 verify_schema, verify_task)

PROPS = settings(max_examples=80, deadline=None)
q = Question("q1", "harbour", "How many boats leave before noon?", ("two", "three"))
C = lambda name, weight=1.0, **kw: Criterion(name, f"asks for {name}", "all", "part", "nothing", weight=weight, **kw)
pool = RubricPool((C("decides", 2.0), C("count", kinds=("counting",)), C("order", kinds=("order",)), C("gist", kinds=("gist",))))
ev = [Evidence("L1/0004", Span(40, 50), "The red and the blue boat leave at ten.", "text")]


class Scripted:
    "Replies in order, the last one for ever; remembers what it was asked."
    def __init__(self, *replies): self.replies, self.asked = [r if isinstance(r, Reply) else Reply(r) for r in replies], []
    def ask(self, role, messages, schema=None, **kw):
        self.asked.append((role, messages, schema, kw))
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


def scores(grid, unknown=(), analysis="the third boat"): return json.dumps(dict(rubric_criteria_scores=grid, unknown_options=list(unknown), missing_evidence_analysis=analysis))


# ---- aggregation

unit_scores = st.floats(0, 1)
grids = st.integers(1, 5).flatmap(lambda k: st.tuples(st.lists(st.lists(unit_scores, min_size=k, max_size=k), min_size=1, max_size=6), st.lists(st.floats(1e-3, 1e3), min_size=k, max_size=k)))


def as_grid(rows): return {chr(65 + i): {f"c{j}": z for j, z in enumerate(r)} for i, r in enumerate(rows)}


@PROPS
@given(grids, st.sampled_from([*AGGREGATES]), st.data())
def test_rho_lies_in_the_unit_interval_and_grows_with_any_score(gw, agg, data):
    rows, ws = gw
    cs = tuple(C(f"c{j}", w) for j, w in enumerate(ws))
    v = verdict(as_grid(rows), cs, aggregate=agg)
    assert 0 <= v.rho <= 1 and all(0 <= r <= 1 for r in v.by_option.values()) and v.sufficient == (v.rho >= 0.7 - 1e-9)
    i, j = data.draw(st.integers(0, len(rows) - 1)), data.draw(st.integers(0, len(ws) - 1))
    more = [list(r) for r in rows]; more[i][j] = data.draw(st.floats(more[i][j], 1))
    up = verdict(as_grid(more), cs, aggregate=agg)
    assert up.rho >= v.rho and up.by_option[chr(65 + i)] >= v.by_option[chr(65 + i)] and (up.sufficient or not v.sufficient)


def test_aggregation_by_hand():
    g = {"A": {"decides": 1, "count": 0}, "B": {"decides": 0.5, "count": 1}, "C": {"decides": 0, "count": 0}}
    cs = (pool["decides"], pool["count"])
    assert verdict(g, cs).by_option == {"A": 2 / 3, "B": 2 / 3, "C": 0} and verdict(g, cs).rho == 2 / 3
    assert verdict(g, cs, aggregate="mean").rho == pytest.approx(4 / 9) and verdict(g, cs, aggregate="min").rho == 0
    ones = {o: dict.fromkeys(("decides", "count"), 1) for o in "AB"}
    assert [verdict(ones, cs, aggregate=a, threshold=1.0).sufficient for a in AGGREGATES] == [True] * 3


def test_only_weight_ratios_matter_and_rounding_does_not_decide():
    z = {"a": 1.0, "b": .5, "c": 0.0}
    assert option_score(z, {"a": 1, "b": 2, "c": 1}) == option_score(z, {"a": 8, "b": 16, "c": 8}) == .5
    assert sufficient(option_score({"a": 1, "b": 1, "c": 1}, {"a": .1, "b": .2, "c": .4, "d": .3}), .7)     # 0.7000000000000001 or 0.69999..., never decided by that
    assert sufficient(.7, .7) and not sufficient(.6999, .7)


def test_an_unknown_option_contributes_nothing():
    g = {"A": {"decides": 1, "count": 1}, "B": {"decides": 0.5, "count": 0.5}}
    v = verdict(g, (pool["decides"], pool["count"]), unknown=("A",))
    assert v.by_option == {"A": 0, "B": 0.5} and v.rho == 0.5 and not v.sufficient and v.grid["A"] == {"decides": 0, "count": 0}
    assert verdict(g, (pool["decides"],), unknown=("A", "B")).rho == 0       # Fig. 5: every option unknown, insufficient


def test_an_empty_analysis_is_composed_when_insufficient_and_only_then():
    cs = (pool["decides"], pool["count"], pool["order"])
    g = {"A": {"decides": .5, "count": 0, "order": .5}, "B": {"decides": .5, "count": .5, "order": .5}}
    v = verdict(g, cs, analysis=" \n ")
    assert v.analysis == "Not shown yet: asks for count" == missing(v.grid, cs) and v.counts == {"composed analysis": 1}
    assert verdict(g, cs, analysis=" the third\n boat ").analysis == "the third boat"
    assert verdict({o: dict.fromkeys(z, 1) for o, z in g.items()}, cs).analysis == ""
    assert missing({"A": {}}, cs) == "Not shown yet: asks for decides asks for count"      # equally low: the heavier first, two at most
    assert len(verdict(g, cs, analysis="word " * 500).analysis) <= 600


# ---- reading replies

def read(text, keys=("A", "B"), names=("decides", "count")): return read_scores(text, keys, names)


@pytest.mark.parametrize("text, grid, counts", [
    (scores({"A": {"decides": 1, "count": .5}, "B": {"decides": 0, "count": 0}}), [[1, .5], [0, 0]], {}),
    (scores({"A": {"decides": 1.0, "count": "0.5"}, "B": {"decides": 0.0, "count": 1}}), [[1, .5], [0, 1]], {}),
    (scores({"A": {"decides": 1, "mood": 1}, "B": {"decides": 1, "count": 1}}), [[1, 0], [1, 1]], {"unknown criteria": 1, "missing": 1}),
    (scores({"A": {"decides": 1, "count": 1}}), [[1, 1], [0, 0]], {"missing": 2}),
    (scores({"A": {"decides": 1, "count": 1}, "B": {"decides": 1, "count": 1}, "C": {"decides": 1, "count": 1}}), [[1, 1], [1, 1]], {"no such option": 2}),
    (scores({"a ": {"decides": 1, "count": 1}, "b": {"decides": 1, "count": 1}}), [[1, 1], [1, 1]], {}),
    (scores({"A": {"decides": 0.7, "count": 0.99}, "B": {"decides": 0.2, "count": 0.5}}), [[.5, .5], [0, .5]], {"lowered": 3}),
    (scores({"A": {"decides": 2, "count": -0.5}, "B": {"decides": 5, "count": 1}}), [[0, 0], [0, 1]], {"out of range": 3}),
    (scores({"A": {"decides": "high", "count": None}, "B": {"decides": True, "count": 1}}), [[0, 0], [0, 1]], {"not a number": 3}),
    (scores({"A": 1, "B": {"decides": {"z": 1}, "count": 1}}), [[0, 0], [0, 1]], {"misplaced": 2, "missing": 3}),
    ('{"rubric_criteria_scores": {"A": {"decides": 1e999, "count": 1}, "B": {"decides": 1, "count": 1}}}', [[0, 1], [1, 1]], {"out of range": 1}),
    ("I think it is enough.", [[0, 0], [0, 0]], {"unreadable": 1, "missing": 4}),
    ("", [[0, 0], [0, 0]], {"unreadable": 1, "missing": 4}),
    ('[{"A": 1}]', [[0, 0], [0, 0]], {"unreadable": 1, "missing": 4}),
    ('```json\n{"rubric_criteria_scores": {"A": {"decides": 1, "count": 0.5}, "B": {"decides": 0.5, "cou', [[1, .5], [.5, 0]], {"missing": 1}),   # cut by a token limit
    ('{"rubric_criteria_scores": {"A": {"decides": 1, "decides": 0.5, "count": 1}, "B": {"decides": 0, "count": 0}}', [[.5, 1], [0, 0]], {}),         # a repeated key keeps its last value
])
def test_every_way_off_has_a_rule_and_a_count(text, grid, counts):
    r = read(text)
    assert [[*z.values()] for z in r.grid.values()] == grid and dict(r.counts) == counts


def test_unknown_options_are_read_by_letter_and_strangers_counted():
    r = read(scores({o: {"decides": 1, "count": 1} for o in "AB"}, unknown=["b", "Z", 3]))
    assert r.unknown == ("B",) and r.counts["no such option"] == 2 and r.analysis == "the third boat"


def test_lower_never_rounds_up():
    for x in [i / 100 for i in range(101)]: assert lower(x)[0] <= x and lower(x)[0] in SCORES


json_values = st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8), lambda x: st.lists(x, max_size=3) | st.dictionaries(st.sampled_from(
    ["rubric_criteria_scores", "unknown_options", "missing_evidence_analysis", "A", "B", "decides", "count", "criteria", "queries", "strategy", "x"]), x, max_size=4), max_leaves=12)


@PROPS
@given(st.text(max_size=60) | json_values.map(json.dumps), st.sampled_from(["hard", "soft"]), st.sampled_from([*AGGREGATES]), st.integers(0, 200))
def test_no_reply_breaks_the_verifier(text, mode, agg, cut):
    for t in (text, text[:cut], "{" * 40 + text, '{"rubric_criteria_scores": ' + text):
        tr = Trace()
        v = Verifier(Scripted(t), pool, mode, agg).judge(q, ev, tr)
        assert 0 <= v.rho <= 1 and v.sufficient == sufficient(v.rho, .7) and (v.sufficient or v.analysis)
        assert set(v.grid) == {"A", "B"} and all(set(z) == set(v.weights) and v.weights for z in v.grid.values())
        json.dumps(tr.to_dict(), allow_nan=False); v._repr_html_()


@PROPS
@given(json_values)
@example({"a": [[], {}, [1, {"b": None}]], "": "\\\"", "e": -1.5e-3})
def test_leaves_are_what_json_says_at_the_place_they_say(value):
    if not isinstance(value, dict): value = {"v": value}
    value = json.loads(json.dumps(value).replace("NaN", "0").replace("Infinity", "0"))
    text = "Here: " + json.dumps(value, indent=1) + " done"
    found = leaves(text)
    flat = {}
    def walk(v, p):
        if isinstance(v, (dict, list)):
            for k, x in (v.items() if isinstance(v, dict) else enumerate(v)): walk(x, (*p, k))
        else: flat[p] = v
    walk(value, ())
    number = lambda v: float(v) if isinstance(v, int) and not isinstance(v, bool) else v      # every number is read as a float
    assert {p: v for p, (v, _) in found.items()} == {p: number(v) for p, v in flat.items()}
    for p, (v, i) in found.items(): assert number(json.JSONDecoder().raw_decode(text, i)[0]) == v


def test_a_hostile_reply_is_read_quickly():
    t0 = time.process_time()
    for t in ("[" * 10**5, "{\"a\":" * 10**5, "{" + " " * 10**6, '{"a": "' + "\\" * 10**6, '{"a": ' + "9" * 10**6 + "}"): leaves(t)
    assert time.process_time() - t0 < 2


# ---- selection

@pytest.mark.parametrize("text, names, counts", [
    ('{"criteria": ["order", "decides"]}', ["decides", "order"], {}),
    ('{"criteria": ["order", "mood", "order", 3]}', ["order"], {"unknown names": 1}),
    ('{"criteria": ["mood"]}', ["decides", "count"], {"unknown names": 1, "chosen by wording": 1}),      # a counting question
    ('{"criteria": []}', ["decides", "count"], {"chosen by wording": 1}),
    ("always the same", ["decides", "count"], {"chosen by wording": 1}),
    ('{"criteria": ["gist", "order", "count", "decides"]}', ["order", "gist"], {"beyond the limit": 2}),   # the first two named, in pool order
    ('{"criteria": "order"}', ["order"], {}),
])
def test_selection_rules(text, names, counts):
    chosen, c = read_selection(text, Question("q", "v", "How many?", ("1", "2")), RubricPool((C("decides"), *pool.criteria[1:])), most=2)
    assert [x.name for x in chosen] == names and dict(c) == counts


def test_selection_is_asked_once_per_question_and_sees_no_evidence():
    chat = Scripted('{"criteria": ["count"]}', scores({o: {"count": 1} for o in "AB"}))
    v = Verifier(chat, pool); tr = Trace()
    assert v.judge(q, ev, tr).sufficient and v.judge(q, ev, tr).sufficient
    assert len(chat.asked) == 3 and len(tr.of("select")) == 1 and len(tr.of("verify")) == 2 and tr.of("verify")[0]["rho"] == 1
    assert ev[0].text not in str(chat.asked[0][1]) and ev[0].text in str(chat.asked[1][1])
    assert {r for r, *_ in chat.asked} == {"verifier"} and all(kw["question"] == "q1" for *_, kw in chat.asked)
    v.judge(Question("q1", "harbour", "Another text?", q.options), ev)                   # same id, other question: asked again
    assert len(chat.asked) == 5


def test_the_model_is_never_asked_for_the_verdict():
    text = json.dumps(schema_of(verify_schema(("A",), ("count",)))) + verify_task(q, pool.criteria)
    assert "verdict" not in text.lower() and '"sufficient"' not in text and list(schema_of(verify_schema(("A",), ("count",)))["properties"]) == ["rubric_criteria_scores", "unknown_options", "missing_evidence_analysis"]


# ---- schemas, rows

@pytest.mark.parametrize("options, keys", [((), (WHOLE,)), (("only",), ("A",)), (tuple("abcdefgh"), tuple("ABCDEFGH")), (("Ten", "ten"), ("A", "B"))])
def test_rows_for_free_answers_one_eight_and_look_alike_options(options, keys):
    qq = Question("q", "v", "How many boats?", options)
    assert keys_of(qq) == keys
    chat = Scripted('{"criteria": ["decides"]}', scores({keys[-1]: {"decides": 1}}))
    v = Verifier(chat, pool).judge(qq, ())
    assert v.by_option[keys[-1]] == 1 and sum(v.by_option.values()) == 1 and v.sufficient and v.counts.get("missing", 0) == len(keys) - 1
    assert list(schema_of(chat.asked[1][2])["properties"]["rubric_criteria_scores"]["properties"]) == [*keys]


def test_the_schema_holds_a_good_reply_and_criteria_may_have_awkward_names():
    form = verify_schema(("A", "B"), ("schema", "json", "model_x", "copy"))
    good = scores({o: {k: z for k, z in zip(("schema", "json", "model_x", "copy"), (0, .5, 1, 1))} for o in "AB"}, analysis="")
    data, problem = parse_reply(good, form)
    assert data is not None and problem == ""
    assert schema_of(form)["properties"]["rubric_criteria_scores"]["properties"]["A"]["properties"]["json"] == {"enum": [0, 0.5, 1]}
    assert schema_of(select_schema(("a", "b"), 2))["properties"]["criteria"] == {"items": {"type": "string", "enum": ["a", "b"]}, "type": "array", "minItems": 1, "maxItems": 2}


def test_the_reply_of_four_by_four_stays_small():
    cs = load_pool("starter").criteria[:4]
    longest = scores({o: {c.name: 0.5 for c in cs} for o in "ABCD"}, unknown="ABCD", analysis="x" * 300)
    assert len(longest) / 3 < 160 + 4 * (8 + 10 * 4)          # three characters a token is on the safe side


# ---- soft

def tokens(*parts): return tuple(p if isinstance(p, tuple) else (p, 0.0, ()) for p in parts)
def tok(text, **p): return text, math.log(p.get(text, 1.0)), tuple((t, math.log(x)) for t, x in p.items())


def test_soft_is_the_expectation_under_the_token_probabilities():
    parts = tokens('{"rubric_criteria_scores": {"A": {"decides": ', tok("1", **{"1": .6, "0": .4}), ', "count": ', tok("0", **{"0": .9, "1": .1}), tok(".", **{".": .5, "}": .5}), "5", '}}, "unknown_options": [], "missing_evidence_analysis": ""}')
    r = Reply("".join(t for t, *_ in parts), tokens=parts)
    v = Verifier(Scripted('{"criteria": ["decides", "count"]}', r), pool, "soft").judge(Question("q", "v", "How many?", ("2",)), ev)
    assert v.grid["A"]["count"] == pytest.approx(.9 * .5 * .5 + .1)                       # 0.325: 0 and 0.5 share .9 evenly
    assert v.grid["A"]["decides"] == pytest.approx(.6 + .4 * .5 * .5)                     # the same division serves the place where it was not seen
    assert v.rho == pytest.approx((2 * .7 + .325) / 3) and v.mode == "soft" and not v.counts.get("no probability")


def test_soft_keeps_the_written_number_without_probabilities_and_refuses_nothing_twice():
    text = scores({"A": {"decides": 1, "count": 7}, "B": {"decides": .5, "count": .7}})
    v = Verifier(Scripted('{"criteria": ["decides", "count"]}', text), pool, "soft").judge(q, ev)
    assert v.grid == {"A": {"decides": 1, "count": 0}, "B": {"decides": .5, "count": .5}}
    assert v.counts == {"out of range": 1, "lowered": 1, "no probability": 2}


def test_a_named_unknown_option_counts_as_zero_in_hard_mode_and_by_choice_in_soft():
    text = scores({o: {"decides": 1, "count": 1} for o in "AB"}, unknown=["A", "B"])
    def judge(*args, **kw): return Verifier(Scripted('{"criteria": ["decides", "count"]}', text), pool, *args, **kw).judge(q, ev)
    assert judge().rho == 0 and judge().unknown == ("A", "B")
    soft = judge("soft")
    assert soft.rho == 1 and soft.unknown == () and soft.counts["unknown not applied"] == 2
    assert judge("soft", trust_unknown=True).rho == 0 and judge("hard", trust_unknown=False).rho == 1


def test_soft_reads_a_cut_reply_place_by_place():
    parts = tokens('{"rubric_criteria_scores": {"A": {"decides": ', tok("1", **{"1": .8, "0": .2}), ', "count": 0')
    r = Reply("".join(t for t, *_ in parts), tokens=parts)
    grid, counts = soften(read(r.text, ("A",)), r)
    assert grid["A"]["decides"] == pytest.approx(.8 + .2 * .25) and grid["A"]["count"] == 0 and not counts


def test_hard_asks_for_no_probabilities_and_soft_does():
    for mode, n in (("hard", 0), ("soft", 10)):
        chat = Scripted('{"criteria": ["count"]}'); Verifier(chat, pool, mode).judge(q, ev)
        assert [kw.get("logprobs", 0) for *_, kw in chat.asked] == [0, n]


# ---- display and switches

def test_the_grid_shows_every_number_and_escapes_words():
    v = verdict({"A": {"decides": 1, "count": .5}, "B": {"decides": 0, "count": 0}}, (pool["decides"], pool["count"]), analysis="<b>x</b>", threshold=.9)
    h = v._repr_html_()
    assert h.count("<tr>") == 3 and "0.83" in h and "&lt;b&gt;" in h and "<b>x" not in h and "insufficient" in h


def test_switches_are_checked():
    for kw in (dict(score_mode="mild"), dict(aggregate="median")):
        with pytest.raises(ValueError, match=next(iter(kw))): Verifier(Scripted(""), pool, **kw)
    assert Verifier(Scripted(""), pool).threshold == .7 and Verifier(Scripted(""), pool, threshold=0.0).threshold == 0
