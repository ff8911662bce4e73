"Learning a pool: only train questions, every removal counted, operations pure, and nothing kept that validates worse."
import json
import math
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from reveal_kit.contrast import FILTERS, Example, Funnel, Labels, Pair, candidates, contrast, gold_text, label, label_schema, read_labels, same, training
from reveal_kit.core import Evidence, InputError, Question, Segment, Span
from reveal_kit.refine import (WRITING, Operation, apply, best_threshold, by_criterion, copies, generalise, hold_out, merge_similar, normalise, proposal_schema, propose, read_proposal, refine, separates, separation,
                               validate)
from reveal_kit.replies import Reply, parse_reply, schema_of
from reveal_kit.rubrics import Criterion, RubricPool, load_pool, parse_pool
from reveal_kit.verifier import verdict

PROPS = settings(max_examples=60, deadline=None)
q = Question("h1", "harbour", "Why does the ferry leave late today?", ("a heavy storm", "engine repair"))
C = lambda name, weight=1.0, **kw: Criterion(name, f"asks for {name}", "all", "part", "nothing", weight=weight, **kw)
pool = RubricPool((C("cause", 2.0, kinds=("cause",)), C("order"), C("gist", 0.5)))


def ev(i, text="t", level=1): return Evidence(f"L{level}/{i:04d}", Span(10 * i, 10 * i + 10), text, "text", segment=Segment(f"L{level}/{i:04d}", level, Span(10 * i, 10 * i + 10), text))
def pair(i, good="because of the repair", bad="the ferry waits"): return Pair(Question(f"h{i}", "harbour", q.text, q.options), "B", (ev(2 * i, good),), (ev(2 * i + 1, bad),))


class Always:
    def __init__(self, text): self.text, self.asked = text, []
    def ask(self, role, messages, schema=None, **kw): self.asked.append((role, messages, schema, kw)); return Reply(self.text)


# ---- pairs

@pytest.mark.parametrize("split", ["test", "", "Train", "dev"])
def test_questions_of_another_split_are_refused(split):
    shelf = SimpleNamespace(search=lambda *a, **k: pytest.fail("searched"), level=lambda n: [])
    with pytest.raises(InputError, match=f"'h9' is of the split '{split}'"): contrast([Example(q, "B", "train"), Example(Question("h9", "v", "?x"), "A", split)], lambda v: shelf, None, None)
    assert training([]) == [] and len(training([Example(q, "B", "train")])) == 1


def test_candidates_are_l1_at_16_l2_at_16_and_all_of_l3():
    asked = {}
    def search(text, k, until=None): asked.update(text=text, k=k, until=until); return [ev(1, level=3), ev(5), ev(2, level=2), ev(0)]
    out = candidates(SimpleNamespace(search=search, level=lambda n: [None] * 7 if n == 3 else []), Question("h", "v", "Who?", ("x", "y"), until=60.0))
    assert asked == dict(text="Who? x y", k={1: 16, 2: 16, 3: 7}, until=60.0) and [e.id for e in out] == ["L1/0000", "L1/0005", "L2/0002", "L3/0001"]


def test_labels_are_disjoint_and_strangers_counted():
    pieces = [ev(i) for i in (3, 1, 2)]
    two = read_labels('{"sufficient": [1, 2, 2], "misleading": [2, 3, 4, 0, "x", 1.5, true]}', pieces)
    assert [e.id for e in two.positive] == ["L1/0001", "L1/0003"] and [e.id for e in two.negative] == ["L1/0002"]      # time order; 2 stays decisive
    assert two.counts == {"unknown numbers": 5, "in both": 1}
    assert read_labels("no", pieces) == Labels((), ())


def test_the_teacher_sees_the_gold_answer_and_numbered_pieces():
    chat = Always('{"proof": "engine trouble", "sufficient": [2], "misleading": [1]}')
    two = label(chat, q, "B", [ev(1, "the ferry waits"), ev(2, "engine trouble")])
    (role, messages, schema, kw), = chat.asked
    assert role == "teacher" and "B. engine repair" in str(messages) and "[#2 0:20-0:30] <<engine trouble>>" in str(messages) and kw["question"] == "h1"
    assert two.positive[0] == ev(2, "engine trouble")                                     # the number is not part of the evidence
    assert all(schema_of(schema)["properties"][k]["minItems"] == 1 for k in ("sufficient", "misleading")), "a small teacher left the second list empty for 13 of 13 questions"
    assert schema_of(schema)["properties"]["sufficient"]["items"] == {"enum": [1, 2]} and parse_reply(chat.text, label_schema(2))[1] == ""
    assert gold_text(q, "B") == "B. engine repair" and gold_text(Question("f", "v", "Why?"), "fog") == "fog"


def test_a_replay_leaves_out_what_was_never_recorded():
    from reveal_kit.calls import ReplayMiss
    def answer(qq, evidence):
        if qq.id == "new": raise ReplayMiss("no such call")
        return "B" if len(evidence) == 2 else "A"
    shelf = SimpleNamespace(search=lambda *a, **k: [ev(1), ev(2), ev(3)], level=lambda n: [])
    pairs, funnel = contrast([Example(Question(i, "v", q.text, q.options), "B", "train") for i in ("old", "new")], lambda v: shelf, lambda *a: Labels((ev(1), ev(2)), (ev(3),)), answer)
    assert [p.question.id for p in pairs] == ["old"] and (funnel.total, funnel.kept, funnel.unrecorded) == (1, 1, 1) and "1 more were never recorded" in funnel._repr_markdown_()


def test_the_funnel_counts_each_question_where_it_first_fails():
    two = Labels((ev(1), ev(2)), (ev(3),), {"in both": 1})
    rows = {  # question -> labels, answer to nothing, to E+ (two pieces), to E- (one piece)
        "guessed": (two, "B", "B", None), "no_plus": (Labels((), (ev(3),)), None, "B", None), "no_minus": (Labels((ev(1),), ()), "A", "B", None), "not_learned": (two, "A", "A", "A"),
        "leaks": (two, None, "B", "B"), "kept_wrong": (two, "A", "B", "A"), "kept_unsupported": (two, None, " b", None)}
    shelf = lambda v: SimpleNamespace(search=lambda *a, **k: [] if v == "empty" else [ev(1), ev(2), ev(3)], level=lambda n: [])
    asked = []
    def answer(qq, evidence): asked.append((qq.id, len(evidence))); return rows[qq.id][1 + {0: 0, 2: 1, 1: 2}[len(evidence)]]
    examples = [Example(Question(k, "v", "Why?", ("x", "y")), "B", "train") for k in rows] + [Example(Question("none", "empty", "Why?"), "B", "train")]
    pairs, f = contrast(examples, shelf, lambda qq, g, p: rows[qq.id][0], answer)
    assert [p.question.id for p in pairs] == ["kept_wrong", "kept_unsupported"] and f.total == 8 and f.kept == 2
    assert f.removed == dict(zip(FILTERS, [1, 1, 1, 1, 1, 1])) and f.labels == {"in both": 4}
    assert ("guessed", 2) not in asked and ("not_learned", 1) not in asked                # nothing is asked that cannot matter any more
    assert "75% filtered out" in f._repr_markdown_() and "| 8 |" in f._repr_markdown_() and "no questions" in Funnel()._repr_markdown_()


def test_answers_compare_without_case_and_none_is_never_right():
    assert same(" b", "B") and same("Fog", "fog") and not same(None, "None") and not same("", "B")


# ---- operations

NEW = (C("reason"), C("link"))


@pytest.mark.parametrize("op, names, weights", [
    (Operation("add", criteria=(C("text", 3.0),)), "cause order gist text", [2, 1, .5, 3]),
    (Operation("rewrite", "cause", (C("reason", 9.0),)), "reason order gist", [2, 1, .5]),      # the weight is not what was rewritten
    (Operation("decompose", "cause", NEW), "reason link order gist", [1, 1, 1, .5]),
    (Operation("decompose", "order", (C("order"), C("link"))), "cause order link gist", [2, .5, .5, .5]),
    (Operation("delete", "order"), "cause gist", [2, .5]),
    (Operation("reweight", "gist", weight=4), "cause order gist", [2, 1, 4]),
])
def test_valid_operations(op, names, weights):
    before = pool.dump()
    out = apply(pool, op)
    assert out.names == tuple(names.split()) and [c.weight for c in out] == weights and pool.dump() == before
    assert out.threshold == pool.threshold and parse_pool(out.dump()) == out


def test_adding_under_a_name_of_the_pool_rewords_that_criterion():
    new = replace(C("cause"), description="asks anew", provenance="add for q7")
    out = apply(pool, Operation("add", criteria=(new,)))
    assert out.names == pool.names and out["cause"] == replace(new, weight=2, provenance="rewrite for q7")


@pytest.mark.parametrize("op, why", [
    (Operation("merge", "cause"), "unknown operation"), (Operation("delete", "mood"), "unknown target"), (Operation("rewrite", "", (C("x"),)), "unknown target"),
    (Operation("add"), "wrong number of criteria"), (Operation("add", criteria=NEW), "wrong number of criteria"), (Operation("decompose", "cause", NEW[:1]), "wrong number of criteria"),
    (Operation("delete", "cause", NEW[:1]), "wrong number of criteria"), (Operation("add", criteria=(C("order"),)), "changes nothing"), (Operation("rewrite", "order", (C("order"),)), "changes nothing"), (Operation("rewrite", "cause", (C("order"),)), "name taken"),
    (Operation("decompose", "cause", (C("a"), C("a"))), "name taken"), (Operation("reweight", "cause"), "bad weight"), (Operation("reweight", "cause", weight=0.0), "bad weight"),
    (Operation("reweight", "cause", weight=math.inf), "bad weight"), (Operation("reweight", "cause", weight=math.nan), "bad weight"),
])
def test_invalid_operations_have_a_reason(op, why):
    with pytest.raises(ValueError) as e: apply(pool, op)
    assert str(e.value) == why


def test_the_last_criterion_stays():
    with pytest.raises(ValueError, match="last criterion"): apply(RubricPool((C("a"),)), Operation("delete", "a"))


crits = st.sampled_from("cause order gist new other".split()).map(C)
operations = st.builds(Operation, st.sampled_from(["add", "rewrite", "decompose", "delete", "reweight", "x"]), st.sampled_from(["cause", "order", "gist", "new", ""]), st.lists(crits, max_size=3).map(tuple),
                       st.none() | st.floats())


@PROPS
@given(st.lists(operations, max_size=8))
def test_any_sequence_of_operations_leaves_a_valid_pool(ops):
    p = pool
    for o in ops:
        try: p = apply(p, o)
        except ValueError: pass
    assert parse_pool(p.dump()) == p and parse_pool(normalise(p).dump()).names == p.names


# ---- proposals

GOOD = dict(name="Stated Reason!", description="The reason is stated.", full="stated", half="hinted", none="absent", kinds=["cause", "nonsense"])


def proposal(*ops): return json.dumps(dict(lacking="the reason", operations=list(ops)))


def test_a_proposal_is_read_with_its_faults_counted():
    ops, counts = read_proposal("Well: " + proposal(dict(op="add", criterion=GOOD), dict(op="delete", target="order"), dict(op="reweight", target="gist", weight=2), dict(op="decompose", target="cause", first=GOOD, second=GOOD | dict(name="link")),
                                                    "add", dict(op="add", criterion=GOOD | dict(half="")), dict(op="add", criterion=[]), dict(op="add", criterion=GOOD | dict(full="why does the ferry leave")), dict(op="add", criterion=GOOD | dict(half="Stated")), dict(op="reweight", target="gist", weight=True)), q)
    assert [o.op for o in ops] == ["add", "delete", "reweight", "decompose", "reweight"] and ops[4].weight is None
    c = ops[0].criteria[0]
    assert c.name == "stated_reason" and c.kinds == ("cause",) and c.provenance == "add for h1" and [x.name for x in ops[3].criteria] == ["stated_reason", "link"]
    assert counts == {"malformed": 2, "bad criterion": 1, "copies the question": 1, "levels alike": 1}
    for bad in ("", "no", "{", '{"operations": 3}', "[1]", '{"a": ' * 3000): assert read_proposal(bad, q) == ([], {"unparsed": 1})


@PROPS
@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=6), lambda x: st.lists(x, max_size=3) | st.dictionaries(st.sampled_from(
    ["operations", "op", "target", "criterion", "first", "second", "weight", "name", "description", "full", "half", "none", "kinds"]), x, max_size=5), max_leaves=15))
def test_no_proposal_breaks_the_reader(value):
    for v in (value, {"operations": value}, {"operations": [value]}, {"operations": [{"op": "add", "criterion": value}]}):
        ops, counts = read_proposal(json.dumps(v), q)
        for o in ops:
            try: apply(pool, o)
            except ValueError: pass


def test_a_criterion_may_not_copy_its_question():
    assert copies(C("x"), Question("q", "v", "is it asks for x or not")) is False
    assert copies(Criterion("x", "whether the Ferry leave late, today", "a", "b", "c"), q) and copies(Criterion("x", "d", "engine  repair", "b", "c"), q)
    assert not copies(Criterion("x", "the ferry leave", "engine", "repair", "storm"), q)


def test_a_criterion_is_freed_of_the_case_it_was_written_for():
    "Options and proper names go; an option's word stays where the pool itself uses it, and so do capitals that begin a sentence."
    x = Question("h3", "harbour", "Who carried the old lamp?", ("Karen", "after", "the tall Miller"))
    free = lambda t: generalise(t, x, frozenset({"after", "ocr"}))
    assert generalise("It names Karen there.", Question("h4", "harbour", "Who?", ("Karen.", "Tim."))) == "It names the option there."
    assert free("The lamp is carried by Karen. Adam and Karen saw it after noon.") == "The lamp is carried by the option. Adam and the option saw it after noon."
    assert free("It names Adam and the tall miller, or the OCR of Tim.") == "It names the one in question and the option, or the OCR of the one in question."
    ops, counts = read_proposal(proposal(dict(op="add", criterion=GOOD | dict(description="It shows that Karen did it."))), x)
    assert ops[0].criteria[0].description == "It shows that the option did it." and not counts


def test_the_proposer_sees_both_sides_and_its_reply_fits_the_schema():
    reply = proposal(dict(op="add", criterion=GOOD | dict(kinds=["cause"])), dict(op="reweight", target="gist", weight=2.0))
    assert parse_reply(reply, proposal_schema())[1] == ""
    chat = Always(reply)
    ops, counts = propose(chat, pool, pair(1), 0.5, 0.25)
    text = str(chat.asked[0][1])
    for part in ("cause (weight 2): asks for cause", "B. engine repair", "because of the repair", "the ferry waits", "scored 0.50 now", "scored 0.25 now"): assert part in text
    assert chat.asked[0][0] == "proposer" and len(ops) == 2 and not counts


def test_a_proposer_may_be_held_to_some_operations_and_to_the_names_of_the_pool():
    chat = Always(proposal(dict(op="add", criterion=GOOD | dict(kinds=["cause"]))))
    propose(chat, pool, pair(1), 0.5, 0.25, ops=WRITING)
    text, schema = str(chat.asked[0][1]), chat.asked[0][2]
    assert "add: a new criterion. rewrite: a better wording of one. decompose: one split in two." in text and "reweight" not in text and "delete" not in text
    fits = lambda *ops: parse_reply(proposal(*ops), schema)[1] == ""
    new = GOOD | dict(kinds=["cause"])
    assert fits(dict(op="rewrite", target="cause", criterion=new)) and not fits(dict(op="rewrite", target="nobody", criterion=new)) and not fits(dict(op="reweight", target="cause", weight=2.0))
    for ops, why in ((("add", "burn"), "'burn' are unknown"), ((), "is empty")):
        with pytest.raises(InputError, match=why): proposal_schema(ops=ops)


def test_rounds_may_have_proposers_of_their_own_and_the_last_one_stays():
    asked = []
    def of(name): return lambda *a: (asked.append(name), ([], {}))[1]
    refine(RubricPool((C("because"),)), [pair(0)], [pair(1), pair(2, good="unclear")], Toy, [of("first"), of("then")], letters, rounds=3, patience=3)
    assert asked == ["first", "then", "then"]


# ---- clusters and weights

def onehot(texts): return np.array([[("reason" in t) + .01, ("order" in t) + .01, .1] for t in texts])


def test_like_criteria_become_one_in_a_stable_way():
    cs = (Criterion("a", "the reason", "x", "y", "z", 3.0, ("cause",), "p"), Criterion("b", "an order", "x", "y", "z"), Criterion("c", "reason again", "x", "y", "z", 1.0, ("gist",), "r"))
    out, gone = merge_similar(RubricPool(cs), onehot, .95)
    assert gone == 1 and out.names == ("a", "b") and out["a"].weight == 2 and out["a"].kinds == ("cause", "gist") and out["a"].provenance == "p; r" and out["a"].description == "the reason"
    assert merge_similar(out, onehot, .95) == (out, 0) and merge_similar(RubricPool(cs), onehot, 1.01)[1] == 0


def test_normalising_keeps_ratios():
    n = normalise(pool)
    assert [c.weight for c in n] == [1.7143, .8571, .4286] and normalise(n) == n
    g = {"A": {"cause": 1, "order": .5, "gist": 0}}
    assert verdict(g, n.criteria).rho == pytest.approx(verdict(g, pool.criteria).rho, abs=1e-4)


# ---- separation and thresholds

@PROPS
@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.lists(st.integers(0, 4), min_size=1, max_size=12))
def test_auroc_is_the_share_of_won_comparisons(x, y):
    s = separation(x, y, repeats=50)
    assert s.auroc == pytest.approx(sum((a > b) + .5 * (a == b) for a in x for b in y) / len(x) / len(y))
    assert 0 <= s.low <= s.high <= 1 and s == separation(x, y, repeats=50) and s.n == (len(x), len(y))
    assert separation(y, x, repeats=2).auroc == pytest.approx(1 - s.auroc)


def test_pairs_resampled_together_know_more():
    x = [.1, .3, .5, .7, .9]; y = [v - .05 for v in x]
    a, b = separation(x, y), separation(x, y, paired=True)
    assert a.auroc == b.auroc == .6 and b.high - b.low < a.high - a.low


def test_auroc_agrees_with_scikit_learn_and_seeds_matter():
    from sklearn.metrics import roc_auc_score
    rng = np.random.default_rng(1); x, y = rng.normal(.5, 1, 40), rng.normal(0, 1, 30)
    s = separation(x, y)
    assert s.auroc == pytest.approx(roc_auc_score([1] * 40 + [0] * 30, [*x, *y])) and s.low < s.auroc < s.high and s != separation(x, y, seed=1)
    with pytest.raises(ValueError, match="one length"): separation(x, y, paired=True)
    assert math.isnan(separation([], []).auroc) and "nan" in str(separation([], [1]))


def test_best_threshold():
    assert best_threshold([.9, .8], [.1, .2]) == (.7, 1)                  # 0.7 parts all: it stays
    assert best_threshold([.5, .6], [.4, .55]) == (.6, .5)
    assert best_threshold([.5, .5], [.2, .4]) == (.5, 1) and best_threshold([], []) == (.7, 0)


# ---- the loop, with a verifier that counts words

class Toy:
    "Scores a criterion 1 when its name stands in the evidence, else 0: a perfect judge of a pool's words."
    def __init__(self, pool): self.pool = pool
    def judge(self, question, evidence): return self.score(question, evidence, self.pool.criteria)
    def score(self, question, evidence, criteria): return verdict({"A": {c.name: float(c.name in " ".join(e.text for e in evidence)) for c in criteria}}, criteria, self.pool.threshold)


def letters(texts): return np.eye(200)[[texts.index(t) for t in texts]]      # equal texts alike, others at right angles
def adding(*names): return lambda p, x, hi, lo: ([Operation("add", criteria=(C(n),)) for n in names if n not in p], {})


def test_validation_judges_both_sides():
    pairs = [pair(0), pair(1, bad="because it waits"), pair(2, good="nothing said")]
    v = validate(pairs, Toy(RubricPool((C("because"),))))
    assert v.accuracy == 1 / 3 and [p.question.id for p in v.misjudged] == ["h1", "h2"]
    assert v.separation.auroc == pytest.approx((2 * 2 + .5 * (2 * 1 + 1 * 2)) / 9) and by_criterion(v)["because"].auroc == v.separation.auroc
    assert math.isnan(validate([], Toy(pool)).accuracy)


def test_refinement_learns_the_word_that_separates():
    start = RubricPool((C("ferry"),))                                      # scores the misleading side: wrong on every pair
    out = refine(start, [pair(i) for i in range(3)], [pair(i) for i in range(3, 6)], Toy, lambda p, x, hi, lo: ([Operation("add", criteria=(C("because"),)), Operation("delete", "ferry"), Operation("add", criteria=(C("waits"),))], {"unparsed": 1}), letters)
    assert out.pool.names == ("because",) and out.stopped == "nothing misjudged"
    first, r = out.rounds
    assert (first.accuracy, first.kept, r.accuracy, r.auroc, r.kept, r.working, r.proposed, r.applied) == (0, True, 1, 1, True, 3, 12, 2)
    assert r.refused == {"unparsed": 3, "does not separate": 3, "changes nothing": 2, "unknown target": 2}
    assert "| 1 | 3 | 12 | 2 | 0 | 1 | 1.00 | 1.00 | yes |" in out._repr_markdown_() and "stopped: nothing misjudged" in out._repr_markdown_()


def test_what_validates_worse_is_not_kept_and_the_loop_stabilises():
    start = RubricPool((C("because"), C("repair")))
    held = [pair(3), pair(4, good="unclear", bad="waits")]                # one pair no word can judge
    out = refine(start, [pair(0)], held, Toy, adding("storm"), letters, check=False)
    assert out.pool is start and [r.kept for r in out.rounds] == [True, False, False] and out.stopped == "no improvement for 2 rounds"
    assert out.rounds[1].accuracy == 0 and out.rounds[0].accuracy == .5
    assert refine(start, [pair(0)], held, Toy, adding("storm"), letters, check=False, rounds=1).stopped == "1 rounds"


def test_an_idle_proposer_ends_the_loop_and_changes_nothing():
    out = refine(pool, [pair(0)], [pair(1)], Toy, lambda *a: ([], {"unparsed": 1}), letters)
    assert out.pool is pool and len(out.rounds) == 3 and out.rounds[1].refused == {"unparsed": 1} and out.rounds[1].proposed == 1


def test_misjudged_held_out_pairs_are_the_next_working_set():
    seen = []
    def proposer(p, x, hi, lo): seen.append(x.question.id); return [], {}
    refine(RubricPool((C("because"),)), [pair(0)], [pair(1), pair(2, good="unclear")], Toy, proposer, letters)
    assert seen == ["h0", "h2"]


def test_held_out_pairs_are_needed_and_the_split_is_stable():
    with pytest.raises(InputError, match="at least two"): refine(pool, [pair(0)], [], Toy, adding(), letters)
    with pytest.raises(InputError, match="empty list"): refine(pool, [pair(0)], [pair(1)], Toy, [], letters)
    ps = [pair(i) for i in range(9)]
    a, b = hold_out(ps); c, d = hold_out(ps[::-1])
    assert a == c and b == d and len(b) == 4 and {p.question.id for p in a + b} == {f"h{i}" for i in range(9)} and hold_out(ps, seed=1) != (a, b)
    assert hold_out(ps[:1]) == (ps[:1], []) and hold_out([]) == ([], [])


def test_separates_asks_every_criterion_alone():
    assert separates(Toy(pool), pair(0), (C("because"), C("repair"))) and not separates(Toy(pool), pair(0), (C("because"), C("ferry"))) and separates(Toy(pool), pair(0), ())


def test_the_pipeline_runs_through_a_chat_that_always_says_the_same():
    from reveal_kit.verifier import Verifier
    for text in ("no", "{}", proposal(dict(op="add", criterion=GOOD))):
        chat = Always(text)
        pairs, f = contrast([Example(q, "B", "train")], lambda v: SimpleNamespace(search=lambda *a, **k: [ev(1)], level=lambda n: []), partial(label, chat), lambda *a: None)
        assert pairs == [] and f.removed["no decisive evidence"] == 1
        out = refine(load_pool("starter"), [pair(0)], [pair(1)], lambda p: Verifier(chat, p), partial(propose, chat), letters, rounds=2)
        assert out.pool == load_pool("starter") and set(out.rounds[1].refused) <= {"unparsed", "does not separate"}
