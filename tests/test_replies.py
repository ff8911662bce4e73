"Reading replies: JSON held to a form, places inside it, probabilities of values under synthetic token streams."
import json, math, random
from typing import Literal, Optional
import pytest
from hypothesis import given, settings, strategies as st
from pydantic import BaseModel, Field, RootModel, create_model
from chat_server import from_schema, split_tokens
from reveal_kit.replies import SCORES, Reply, expected_values, letter_probabilities, number_at, parse_reply, read_tokens, schema_of, value_probabilities, value_span

class Letter(BaseModel):
    "An answer."
    answer: Literal["A", "B", "C", "D"]
    why: str = Field("", max_length=200)
class Score(BaseModel): title: str; value: Literal[0, 0.5, 1]
class Verdict(BaseModel): scores: list[Score]; by: dict[str, float]; pair: tuple[int, str]; best: Optional[Score] = None; note: str | None
class Bounds(BaseModel): n: int = Field(ge=1, le=4); p: float = Field(gt=0, lt=1); words: list[str] = Field(min_length=2, max_length=4)
FORMS = (Letter, Score, Verdict, Bounds, create_model("Grid", **{"who did it": (Literal[0, 0.5, 1], ...), "A": (Score, ...)}))

# ---------------------------------------------------------------- schemas

def test_the_schema_is_flat_closed_and_whole():
    s = schema_of(Verdict)
    assert s["required"] == ["scores", "by", "pair", "best", "note"] and s["additionalProperties"] is False
    score = {"type": "object", "properties": {"title": {"type": "string"}, "value": {"enum": [0, 0.5, 1]}}, "required": ["title", "value"], "additionalProperties": False}
    assert s["properties"]["scores"]["items"] == score and s["properties"]["best"] == {"anyOf": [score, {"type": "null"}]} and s["properties"]["by"] == {"type": "object", "additionalProperties": {"type": "number"}}
    assert not {"$ref", "$defs", "default", "An answer."} & set(json.dumps(s).replace('"', " ").split()) and schema_of(Letter)["properties"]["why"] == {"type": "string", "maxLength": 200}

def test_forms_that_no_grammar_can_hold_are_refused():
    class Tree(BaseModel): children: list["Tree"]
    with pytest.raises(TypeError, match="Tree"): schema_of(Tree)
    with pytest.raises(TypeError, match="object"): schema_of(RootModel[list[int]])

@given(st.sampled_from(FORMS), st.integers(0, 10**9))
def test_what_the_schema_admits_is_read_without_a_problem(form, seed):
    "The server's generator follows the schema that is sent; whatever it makes has to be accepted by the form."
    value = from_schema(schema_of(form), random.Random(seed)); data, problem = parse_reply(json.dumps(value), form)
    assert problem == "" and json.loads(data.model_dump_json()) == value

# ---------------------------------------------------------------- strictness

@pytest.mark.parametrize("text, problem", [
    ("", "the reply is empty"), ("   ", "the reply is empty"), ("B", "not JSON"), ('"B"', "not a JSON object"), ("[]", "not a JSON object"), ("null", "not a JSON object"), ("{}", "answer is missing"),
    ('{"answer": "B"}', "why is missing"), ('{"answer": "E", "why": ""}', "answer: input should be 'A', 'B', 'C' or 'D', got 'E'"), ('{"answer": null, "why": ""}', "answer"), ('{"answer": ["A"], "why": ""}', "answer"),
    ('{"answer": "A", "why": 3}', "why: input should be a valid string, got '3'"), ('{"answer": "A", "why": ""', "not JSON"), ('{"answer": "A", "answer": "B", "why": ""}', "'answer' is given twice"),
    ('{"answer": "A", "why": ""} {"answer": "B", "why": ""}', "2 JSON objects"), ('```json\n{"answer": "A", "why": ""}\n```\n```json\n{"answer": "B", "why": ""}\n```', "2 JSON objects"),
    ('{"answer": "A", "why": "' + "x" * 300 + '"}', "why: string should have at most 200"), ("{" * 100000, "not JSON"), ('{"a":' * 100000, "nested too deeply"), ("[" * 100000, "nested too deeply"), ('{"n": ' + "9" * 5000 + "}", ""), ("Answer: A {or B}", "not JSON"),
])
def test_what_does_not_fit_gives_no_data_and_a_reason(text, problem):
    data, why = parse_reply(text, Letter)
    assert data is None and why and problem in why and len(why) < 400 and "\n" not in why

@pytest.mark.parametrize("text, note", [
    ('  {"answer": "B", "why": ""}\n', ""), ('```json\n{"answer": "B", "why": ""}\n```', "around the JSON object"), ('Here it is: {"answer": "B", "why": ""} Good luck!', "around the JSON object"),
    ('<think>{"answer": "A", "why": ""} or {}?</think>{"answer": "B", "why": ""}', "around the JSON object"), ('{"answer": "B", "why": "", "sure": true}', "sure was not asked for"), ('{"answer": "B", "why": "two\nlines"}', "line breaks"),
    ('{"answer": "B", "why": ""}{', "around the JSON object"), ('{note} {"answer": "B", "why": ""}', "around the JSON object"),
])
def test_what_can_be_mended_without_doubt_is_mended_and_noted(text, note):
    data, problem = parse_reply(text, Letter)
    assert data.answer == "B" and (note in problem if note else problem == "")

def test_a_cut_reply_is_a_problem_even_when_it_reads():
    assert parse_reply('{"answer": "B", "why": "', Letter, "length")[0] is None and "token limit" in parse_reply('{"answer": "B", "why": "', Letter, "length")[1]
    data, problem = parse_reply('{"answer": "B", "why": ""}  \n\n\n', Letter, "length"); assert data.answer == "B" and "token limit" in problem

def test_strict_types():
    assert parse_reply('{"n": 2.0, "p": 0.5, "words": ["a", "b"]}', Bounds)[0] is None and parse_reply('{"n": "2", "p": 0.5, "words": ["a", "b"]}', Bounds)[0] is None
    assert parse_reply('{"n": 2, "p": 0.5, "words": ["a"]}', Bounds)[1].startswith("words: list should have at least 2") and parse_reply('{"n": 2, "p": NaN, "words": ["a", "b"]}', Bounds)[0] is None
    assert parse_reply('{"scores": [{"title": "x"}], "by": {}, "pair": [1, "b"], "best": null, "note": null}', Verdict) == (None, "scores[0].value is missing")

@settings(max_examples=300)
@given(st.text() | st.text(alphabet='{}[]":,AB answerwhy\\\n`') | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda c: st.lists(c) | st.dictionaries(st.sampled_from(["answer", "why", "x"]), c)).map(json.dumps), st.sampled_from(["stop", "length"]))
def test_no_reply_raises_and_none_is_invented(text, finish):
    data, problem = parse_reply(text, Letter, finish)
    assert (data is None and problem) or (data.answer in "ABCD" and f'"{data.answer}"' in text.replace("\\u00", ""))

# ---------------------------------------------------------------- places

values = st.recursive(st.none() | st.booleans() | st.integers(-99, 99) | st.floats(-5, 5) | st.text(max_size=5), lambda c: st.lists(c, max_size=4) | st.dictionaries(st.text(max_size=4), c, max_size=4), max_leaves=15)
def paths(v, at=()):
    yield at
    for k, x in v.items() if isinstance(v, dict) else enumerate(v) if isinstance(v, list) else (): yield from paths(x, (*at, k))

@given(st.dictionaries(st.text(max_size=4), values, max_size=4), st.sampled_from([None, 2]), st.sampled_from(["", "\n ", "```json\n"]))
def test_a_path_leads_to_its_value(obj, indent, before):
    text = before + json.dumps(obj, indent=indent) + ("\n```" if "`" in before else "")
    for path in paths(obj):
        start, end = value_span(text, path); v = obj
        for k in path: v = v[k]
        assert json.loads(text[start:end]) == v and text[start] not in " \n" and text[end - 1] not in " \n,"

def test_a_wrong_path_is_a_key_error():
    for path in (("b",), ("a", 1), ("a", 0, "x"), (0,), ("a", "x")):
        with pytest.raises(KeyError): value_span('{"a": [1]}', path)
    assert number_at(Reply('{"a": [1, {"b": -2.5e1}]}'), ("a", 1, "b")) == -25

# ---------------------------------------------------------------- tokens

@given(st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=30), st.data())
def test_tokens_add_up_to_the_text(text, data):
    "Cut anywhere, also inside a character, with thinking before."
    raw = text.encode(); cuts = sorted(data.draw(st.sets(st.integers(0, len(raw)), max_size=8)) | {0, len(raw)})
    content = [dict(token="�", bytes=list(b), logprob=-0.5, top_logprobs=[]) for b in [b"<think>", *(raw[a:b] for a, b in zip(cuts, cuts[1:])), b""]]
    tokens = read_tokens(content, text)
    assert "".join(t for t, *_ in tokens) == text and len(tokens) == len(content)

def test_tokens_that_do_not_match_or_have_no_bytes():
    e = lambda t, p=-0.1: dict(token=t, bytes=None, logprob=p, top_logprobs=[dict(token=t, logprob=p), dict(token="x", logprob=None)])
    assert read_tokens([e(" B"), e(".")], "B.")[0] == ("B", -0.1, ((" B", -0.1), ("x", -9999.0)))
    assert read_tokens([e("A")], "B") == () == read_tokens(None, "B") == read_tokens([], "") and read_tokens([e("B", float("-inf"))], "B")[0][1] == -9999.0

def stream(prefix, dist, suffix, cut, rng, chosen=None):
    """A synthetic model that writes `prefix`, then one of `dist`'s values, then `suffix`, token by token: `cut(text)` is its tokenizer. At each position it shows the true distribution
    over next tokens, plus a fifth of mass on something that the grammar forbids. Returns the reply and the offset of the value."""
    chosen = chosen or rng.choices(list(dist), dist.values())[0]; texts = {v: cut(v + suffix) for v in dist}; tokens = [(t, 0.0, ((t, 0.0),)) for t in cut(prefix)]
    for i, t in enumerate(texts[chosen]):
        alive = {v: p for v, p in dist.items() if texts[v][:i] == texts[chosen][:i]}; mass = {}
        for v, p in alive.items():
            if i < len(texts[v]): mass[texts[v][i]] = mass.get(texts[v][i], 0) + p / sum(alive.values())
        top = sorted(((t, math.log(0.8 * p)) for t, p in mass.items()), key=lambda x: -x[1]) + [("```", math.log(0.2))]
        tokens.append((t, math.log(0.8 * mass[t]), tuple(top)))
    return Reply(prefix + chosen + suffix, tokens=tuple(tokens)), len(prefix)

weights = st.lists(st.floats(0.01, 1), min_size=4, max_size=4)
@given(weights, st.integers(0, 3), st.randoms())
def test_values_that_begin_differently_are_recovered_exactly(w, pick, rng):
    dist = dict(zip("ABCD", w)); total = sum(w)
    for cut in (split_tokens, list, lambda t: [t[:1], *split_tokens(t[1:])]):
        reply, at = stream('{"answer": "', dist, '"}', cut, rng, "ABCD"[pick])
        for p in (value_probabilities(reply, at, "ABCD"), letter_probabilities(reply, "ABCD")):
            assert all(math.isclose(p[k], dist[k] / total, rel_tol=1e-9) for k in dist)

@given(weights.map(lambda w: w[:3]), st.sampled_from(["0", "0.5", "1"]), st.randoms())
def test_scores_that_begin_alike_are_followed_where_the_model_went(w, written, rng):
    total = sum(w); dist = dict(zip(["0", "0.5", "1"], w))
    for cut in (list, split_tokens, lambda t: [t[:1], t[1:3], *t[3:]] if "." in t else list(t)): # digit by digit; as Qwen; ".5" in one token
        reply, at = stream('{"z": ', dist, "}", cut, rng, written); p = value_probabilities(reply, at, ["0", "0.5", "1"])
        assert math.isclose(sum(p.values()), 1) and math.isclose(p["1"], w[2] / total, rel_tol=1e-9)
        if written != "1": assert math.isclose(p["0.5"], w[1] / total, rel_tol=1e-9)
        elif cut is list: assert math.isclose(p["0"], p["0.5"])          # never seen apart: evenly
        e, = expected_values(reply, [("z",)]); assert math.isclose(e, p["1"] + p["0.5"] / 2) and 0 <= e <= 1

@given(weights.map(lambda w: w[:3]), st.integers(1, 4), st.randoms())
def test_a_division_seen_once_serves_the_whole_reply(w, n, rng):
    "The first score goes through 0, the others were written as 1 by the same model: all expectations are the true one."
    total = sum(w); dist = dict(zip(["0", "0.5", "1"], w)); text, tokens = "", ()
    for i in range(n + 1):
        r, _ = stream(('{' if i == 0 else "") + f'"s{i}": ', dist, "}" if i == n else ", ", list, rng, "0.5" if i == 0 else "1"); text += r.text; tokens += r.tokens
    got = expected_values(Reply(text, tokens=tokens), [(f"s{i}",) for i in range(n + 1)])
    assert all(math.isclose(g, (w[1] / 2 + w[2]) / total, rel_tol=1e-9) for g in got)

def test_tokens_that_reach_beyond_the_value():
    top = lambda **k: tuple((t, math.log(p)) for t, p in k.items())
    r = Reply('{"answer":"B"}', tokens=(('{"answer', 0, ()), ('":"', 0, ()), ('B"}', math.log(0.5), (('B"}', math.log(0.5)), ("C", math.log(0.25)), ("Both", math.log(0.25))))))
    assert letter_probabilities(r, "ABC") == pytest.approx({"A": 0, "B": 2 / 3, "C": 1 / 3})
    r = Reply('{"answer":"B"}', tokens=(('{"answer":"B', math.log(0.6), (('{"answer":"B', math.log(0.6)), ('{"answer":"A', math.log(0.2)), ("{", math.log(0.2)))), ('"}', 0, ())))
    assert letter_probabilities(r, "AB") == pytest.approx({"A": 0.25, "B": 0.75})
    r = Reply('{"z":0}', tokens=(('{"z":', 0, ()), ("0", math.log(0.5), (("0", math.log(0.5)), (" 0.5", math.log(0.25)), (" 1", math.log(0.25)))), ("}", 0.0, (("}", 0.0),))))
    assert value_probabilities(r, 5, ["0", "0.5", "1"]) == pytest.approx({"0": 0.5, "0.5": 0.25, "1": 0.25})

def test_a_bare_letter_and_a_bare_number_at_the_end():
    r = Reply(" B.", tokens=((" B", math.log(0.5), ((" B", math.log(0.5)), ("B", math.log(0.2)), ("C", math.log(0.1)), ("Because", math.log(0.2)))), (".", 0, ())))
    assert letter_probabilities(r, "BC", path=None) == pytest.approx({"B": 7 / 8, "C": 1 / 8})
    r = Reply("0", tokens=(("0", math.log(0.5), (("0", math.log(0.5)), ("1", math.log(0.5)))),))
    assert value_probabilities(r, 0, ["0", "0.5", "1"]) == pytest.approx({"0": 0.5, "0.5": 0, "1": 0.5})

def test_spellings_that_the_schema_did_not_ask_for():
    r, at = stream('{"z": ', {"0.0": 0.5, "1.0": 0.5}, "}", list, random.Random(0), "0.0")
    assert expected_values(r, [("z",)]) == pytest.approx([0.5]) and value_probabilities(r, at, {"0.0": "no", "1.0": "yes", "1": "yes"}) == pytest.approx({"no": 0.5, "yes": 0.5})

def test_nothing_known_is_nothing_said():
    r = Reply('{"z": 1, "a": null, "answer": null}')
    assert value_probabilities(r, 6, "01") == {} and expected_values(r, [("z",)]) == [None] and letter_probabilities(r, "AB") == {}
    assert value_probabilities(Reply("1", tokens=(("1", -1.0, (("x", -0.5),)),)), 0, "23") == {} and value_probabilities(Reply("1", tokens=(("1", -1.0, ()),)), 5, "1") == {}

@settings(max_examples=200)
@given(st.lists(st.tuples(st.text(alphabet="01.5 ,}AB\"", max_size=3), st.floats(-9, 0), st.lists(st.tuples(st.text(alphabet="01.5 ,}AB\"", max_size=3), st.floats(-9, 0)), max_size=4).map(tuple)), max_size=6), st.integers(0, 12))
def test_any_tokens_give_shares_or_nothing(tokens, at):
    r = Reply("".join(t for t, *_ in tokens), tokens=tuple(tokens))
    for v in (["0", "0.5", "1"], "AB", SCORES):
        p = value_probabilities(r, at, v); assert p == {} or (math.isclose(sum(p.values()), 1) and min(p.values()) >= 0)

def test_it_shows_itself():
    assert "9 tokens read (4 from cache), 2 written" in Reply("```x", usage=dict(prompt=9, cached=4, completion=2), problem="odd")._repr_markdown_()
