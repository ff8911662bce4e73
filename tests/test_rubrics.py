"Rubric files are checked line by line, pools survive a round trip, and a question's kinds come from its words alone."
import re
import string

import pytest
from hypothesis import given, settings, strategies as st

from reveal_kit.core import InputError, Question, root
from reveal_kit.rubrics import KINDS, Criterion, RubricPool, catalogue, is_negation, load_pool, matching, parse_pool, question_kinds, save_pool, shipped_pools

GOOD = """name: mine
threshold: 0.6
criteria:
- name: count
  description: Instances are told apart.
  weight: 2
  kinds: [counting]
  boundaries:
    1: all
    0.5: some
    0: none
- name: order
  description: Two times are stated.
  weight: 0.5
  boundaries: {1: both, .5: one, 0.0: no}
"""


def test_a_good_file_reads():
    p = parse_pool(GOOD)
    assert p.names == ("count", "order") and p.threshold == 0.6 and p.name == "mine" and p.origin == "hand"
    assert p["count"] == Criterion("count", "Instances are told apart.", "all", "some", "none", 2.0, ("counting",)) and p["order"].kinds == ("any",) and p["order"].none == "no"


@pytest.mark.parametrize("old, new, line, says", [
    ("- name: order", "- name: count", 12, "'count' appears twice (first on line 4)"),
    ("weight: 2", "weight: 0", 6, "weight of 'count' is 0.0: write a number above 0"),
    ("weight: 2", "weight: -1", 6, "above 0"),
    ("weight: 2", "weight: .nan", 6, "write a number"),
    ("weight: 2", "weight: nan", 6, "above 0"),
    ("weight: 2", "weight: 1e999", 6, "above 0"),
    ("weight: 2", "weight: heavy", 6, "write a number"),
    ("weight: 2", "weight: [1]", 6, "must be text"),
    ("    0.5: some\n", "", 9, "lacks 0.5"),
    ("    0.5: some\n    0: none\n", "", 9, "lacks 0.5, 0"),
    ("    0: none", "    0: ''", 11, "is empty"),
    ("    0: none", "    2: none", 11, "a level '2'"),
    ("    0: none", "    0.50: none", 11, "twice"),
    ("boundaries: {1: both, .5: one, 0.0: no}", "boundaries: 3", 15, "three lines"),
    ("  boundaries: {1: both, .5: one, 0.0: no}\n", "", 12, "lacks 'boundaries'"),
    ("kinds: [counting]", "kinds: [cuonting]", 7, "'cuonting'"),
    ("kinds: [counting]", "kinds: []", 7, "are empty"),
    ("kinds: [counting]", "kinds: counting", 7, "must be a list"),
    ("kinds: [counting]", "kind: [counting]", 7, "unknown field 'kind'"),
    ("  description: Two times are stated.\n", "", 12, "lacks 'description'"),
    ("- name: order", "- name: Order first", 12, "lower-case word"),
    ("threshold: 0.6", "threshold: 1.6", 2, "from 0 to 1"),
    ("threshold: 0.6", "threshold: 0.6\nthreshold: 0.7", 3, "twice"),
    ("threshold: 0.6\n", "", 1, "lacks 'threshold'"),
    ("name: mine", "name: 'mine", 12, "not valid YAML"),
    ("weight: 2", "weight: !!python/object/apply:os.system ['true']", 6, "must be text"),
])
def test_a_bad_file_is_refused_with_its_line(tmp_path, old, new, line, says):
    assert GOOD.count(old) == 1
    (f := tmp_path / "mine.yaml").write_text(GOOD.replace(old, new))
    with pytest.raises(InputError) as e: load_pool(f)
    m = str(e.value)
    assert says in m and "\n" not in m and m.startswith(f"{f}, line ")
    if "not valid YAML" not in says: assert m.startswith(f"{f}, line {line}:"), m


@pytest.mark.parametrize("text, says", [("", "empty"), ("[]", "must be a list of"), ("threshold: 0.7\ncriteria: []", "at least one"), ("threshold: 0.7\ncriteria: {}", "at least one"), ("a: b\n---\nc: d", "not valid YAML"),
                                        ("\x00", "not valid YAML"), ("[" * 5000, "line 1"), ("&a [*a]", "must be a list of"), ("threshold: &x 0.7\ncriteria: [*x]", "must be a list of")])
def test_odd_files_are_refused(text, says):
    with pytest.raises(InputError, match="line \\d") as e: parse_pool(text)
    assert says in str(e.value)


def test_absent_and_unreadable_files(tmp_path):
    with pytest.raises(InputError, match="no rubric file"): load_pool(tmp_path / "none.yaml")
    with pytest.raises(InputError, match=r"no rubric file .*shipped pool \(.*starter"): load_pool("nosuchpool")
    with pytest.raises(InputError, match="no rubric file"): load_pool("../../core")
    (f := tmp_path / "latin.yaml").write_bytes("name: é".encode("latin-1"))
    with pytest.raises(InputError, match="UTF-8"): load_pool(f)


def test_a_folder_of_the_same_name_does_not_hide_a_shipped_pool(tmp_path, monkeypatch):
    (tmp_path / "starter").mkdir(); monkeypatch.chdir(tmp_path)
    assert load_pool("starter").name == "starter"


@pytest.mark.parametrize("name", shipped_pools())
def test_every_shipped_pool_reads_and_says_where_it_comes_from(name):
    p = load_pool(name)
    assert p.name == name and ({c.provenance for c in p} == {"hand"} if p.origin == "hand" else "train questions" in p.origin)


def test_the_learned_pool_is_the_one_that_the_pipeline_learns_from_the_recorded_calls():
    "`figures/mini/reveal_fig3.md` is written by every run of the pipeline's notebook; the shipped file must be what it says."
    text = (root() / "figures" / "mini" / "reveal_fig3.md").read_text(encoding="utf-8")
    learned, shipped, starter = parse_pool(text.partition("```yaml\n")[2].partition("```")[0]), load_pool("mini"), load_pool("starter")
    assert learned == shipped and learned.names == starter.names
    assert [c.name for c in shipped if c.provenance != "hand"] == ["identity", "attribute"] and all(re.fullmatch(r"rewrite for day[12]-\d\d", c.provenance) for c in shipped if c.provenance != "hand")


words = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=40).filter(lambda s: s.strip() and s == s.strip())
names = st.text(string.ascii_lowercase, min_size=1, max_size=12)
criteria = st.builds(Criterion, names, words, words, words, words, st.floats(1e-3, 1e3), st.lists(st.sampled_from([*KINDS]), min_size=1, max_size=3, unique=True).map(tuple), words)
pools = st.builds(RubricPool, st.lists(criteria, min_size=1, max_size=4, unique_by=lambda c: c.name).map(tuple), st.floats(0, 1), words, words)


@settings(max_examples=80, deadline=None)
@given(pools)
def test_what_is_written_reads_back_equal(pool):
    assert parse_pool(pool.dump()) == pool and parse_pool(pool.dump()).key == pool.key
    assert pool._repr_markdown_().count("\n|") == len(pool) + 2


def test_the_file_round_trip(tmp_path):
    p = load_pool("starter")
    assert load_pool(save_pool(p, tmp_path / "a" / "p.yaml")) == p and p.key != RubricPool(p.criteria[:-1], p.threshold, p.name, p.origin).key


@settings(max_examples=80, deadline=None)
@given(st.text(max_size=60))
def test_no_text_crashes_the_reader(text):
    try: parse_pool(text)
    except InputError as e: assert "line " in str(e)


def q(text, *options): return Question("q", "v", text, options)


@pytest.mark.parametrize("text, kinds", [
    ("How many crates does the porter carry?", ("counting",)),
    ("What happened immediately after the bell rang?", ("order", "action")),
    ("Why did the librarian close the hall?", ("cause",)),
    ("What colour is the boat behind the crane?", ("attribute", "place")),
    ("At what time does the ferry leave?", ("time",)),
    ("Which of the following did NOT happen?", ("negation",)),
    ("What is written on the banner?", ("text",)),
    ("What is the programme mainly about?", ("gist",)),
    ("What did the price change to?", ("change",)),
    ("Who hands over the key?", ("identity",)),
    ("Name the thing that was lent.", ("identity",)),
    ("Which dish followed the soup?", ("order",)),
    ("For which hour was the match set?", ("time",)),
    ("In which part of the hall is the shelf?", ("place",)),
    ("Which sentence sums up the morning?", ("gist",)),
    ("What was the obstacle?", ("cause",)),
    ("Choose.", ("any",)),
])
def test_kinds_by_cue(text, kinds): assert question_kinds(q(text)) == kinds


def test_options_do_not_make_a_question_negative():
    assert not is_negation(q("What happens to the ferry?", "It does not leave", "It never arrives"))


def test_matching_falls_back_to_the_whole_pool():
    c = lambda name, *kinds: Criterion(name, "d", "1", ".5", "0", kinds=kinds)
    p = RubricPool((c("a", "counting"), c("b", "order"), c("c", "gist", "any")))
    assert [x.name for x in matching(p, q("How many?"))] == ["a", "c"]
    p = RubricPool((c("a", "counting"), c("b", "order")))
    assert [x.name for x in matching(p, q("How many?"))] == ["a"] and matching(p, q("Why?")) == p.criteria
    assert catalogue(p) == "- a (for counting questions): d\n- b (for order questions): d"


def test_a_pool_needs_unique_names_and_a_threshold():
    c = Criterion("a", "d", "1", ".5", "0")
    for args, says in (((), "at least one"), ((c, c), "twice")):
        with pytest.raises(ValueError, match=says): RubricPool(args)
    with pytest.raises(ValueError, match="from 0 to 1"): RubricPool((c,), float("nan"))
    with pytest.raises(ValueError, match="weight"): Criterion("a", "d", "1", ".5", "0", weight=True)
