"The papers' reported numbers, as transcribed: their own sums, differences and averages come out again."
import csv
from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parent.parent / "data" / "paper"


def table(name):
    out = {}
    for r in csv.DictReader((DATA / f"{name}.csv").open()): out.setdefault(r["row"], {})[r["column"]] = r["value"]
    return out


def num(t, row, col): return float(t[row][col])


@pytest.mark.parametrize("path", sorted(DATA.glob("*.csv")), ids=lambda p: p.stem)
def test_every_number_names_its_source_and_stands_once(path):
    rows = list(csv.DictReader(path.open()))
    assert rows and all(r["source"].startswith(("REVEAL ", "VESTA ")) and r["value"] != "" for r in rows)
    assert len({(r["row"], r["column"]) for r in rows}) == len(rows)


def test_reveal_table1_averages_are_means_of_its_columns():
    t, cols = table("reveal_table1"), ("EgoLifeQA", "Ego-R1", "LVBench", "Video-MME-L", "LVB")
    got = {r: round(sum(num(t, r, c) for c in cols) / 5, 1) for r in t if "Avg." in t[r]}
    assert len(got) == 11 and {r for r in got if abs(got[r] - num(t, r, "Avg.")) > 0.051} == set()
    assert round(num(t, "REVEAL-27B", "EgoLifeQA") - 53.5, 1) == 10.9 and round(num(t, "REVEAL-27B", "Ego-R1") - num(t, "M3-Agent", "Ego-R1"), 1) == 14.7


def test_reveal_table2_steps():
    t = table("reveal_table2"); names = list(t)
    step = lambda c: [round(num(t, b, c) - num(t, a, c), 1) for a, b in zip(names, names[1:])]
    assert step("Video-MME-L") == [1.7, 1.7, 1.4, 7.8] and step("LVBench") == [0.6, 2.2, 0.6, 10.9]
    assert num(table("reveal_table1"), "REVEAL-27B", "LVBench") == num(t, "REVEAL", "LVBench")


def test_reveal_table3_is_sixteen_gpus():
    t = table("reveal_table3")
    assert all(abs(16 * num(t, r, f"{b}: hours") - num(t, r, f"{b}: GPU-hours")) <= 1 for r in t for b in ("LVBench", "Video-MME-L"))


def test_reveal_table4_rounds_and_calls_follow_from_its_counts():
    t, sizes = table("reveal_table4"), {}
    for r in t:
        n = [num(t, r, f"{i} round{'s' if i > 1 else ''}") for i in (1, 2, 3)]
        rounds = (n[0] + 2 * n[1] + 3 * n[2]) / sum(n); sizes[r] = sum(n)
        assert abs(rounds - num(t, r, "Avg. rounds")) < 0.0051 and abs(2 + 2 * rounds - num(t, r, "LLM calls/Q")) < 0.0501
    assert list(sizes.values()) == [900, 1267, 134, 50, 150]


def test_reveal_figure4a_gap(): assert round(79.1 - num(table("reveal_fig4a"), "no verification, best", "accuracy"), 1) == num(table("reveal_fig4a"), "gap", "points")


def test_vesta_gains_over_videoarm():
    t = table("vesta_table1")
    gain = {c: round(num(t, "VESTA", c) - num(t, "VideoARM", c), 1) for c in t["VESTA"]}
    assert gain == {"Level 1": 6.6, "Level 2": 0.6, "Level 3": 2.0, "CC": 3.5, "RC": 1.4, "Avg": 2.7}
    u = table("vesta_table2_3_4")
    assert {c: round(num(u, "VESTA", c) - num(u, "VideoARM*", c), 1) for c in u["VESTA"]} == {"LongVideoBench 15-60 min": 6.9, "EgoSchema-500": 0.0, "LVBench": 1.5}


def test_vesta_table5_differences():
    t = table("vesta_table5"); full = num(t, "full", "Accuracy")
    assert all(round(num(t, r, "Accuracy") - full, 1) == num(t, r, "vs. Full") for r in t if r != "full") and set(t["full"]) == {"routing", "retrieval", "ledger", "Accuracy"}
    step = lambda a, b: round(num(t, b, "Accuracy") - num(t, a, "Accuracy"), 1)
    assert step("none", "retrieval") == 9.3 and step("retrieval", "routing + retrieval") == 3.0 and step("routing + retrieval", "full") == 3.5


def test_vesta_table6_tokens_add_up():
    t = table("vesta_table6")
    assert all(num(t, r, "Input tokens") + num(t, r, "Output tokens") == num(t, r, "Total tokens") for r in t)


def test_the_profiles_hold_the_settings_that_the_papers_state():
    from reveal_kit.profiles import Profile
    t, r, v = {k: d["value"] for k, d in table("reveal_settings").items()}, Profile.load("paper-reveal").reveal, Profile.load("paper-vesta").vesta
    pair = lambda k: tuple(map(int, t[k].split()))
    assert pair("subquestions") == pair("queries of the initial round") == r.subquestions and pair("queries of a repair") == (1, r.repair_queries)
    names = {"frames per second": "rate", "L1 per L2": "group", "L2 per L3": "group", "words of an L2 summary, about": "l2_words", "words of an L3 summary, about": "l3_words", "cosine to the cache above which evidence is rejected": "dedup", "words of a subquestion at most": "query_words",
             "Jaccard to earlier queries that rejects": "jaccard", "cosine to evidence that rejects": "cosine_evidence", "L1 per query": "top_l1", "L2 per query": "top_l2", "L3 per query": "top_l3", "pieces after reranking": "rerank"}
    assert {k: getattr(r, f) for k, f in names.items()} == {k: float(t[k]) for k in names}
    h = table("reveal_hyper"); assert (r.K, r.tau, r.theta) == tuple(num(h, k, "chosen") for k in ("K", "tau", "theta"))
    u = {k: d["value"] for k, d in table("vesta_settings").items()}
    names = {"K": "K", "recall pool at most": "pool", "recall pool, times K": "alpha", "separation seconds at least": "separation", "scene threshold": "scene_threshold", "scene seconds at least": "scene_min", "scene seconds at most": "scene_max", "frames per scene at most": "scene_frames",
             "contrastive hypotheses at most": "hypotheses", "inspection frames at most": "inspect_frames", "clip frames at most": "clip_frames"}
    assert {k: getattr(v, f) for k, f in names.items()} == {k: float(u[k]) for k in names} and str(v.N) in u["N"].split()
