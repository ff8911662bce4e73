"Every artefact of the mini profile is run from the committed recordings: it must run through, write the files that are committed, and their numbers must agree."
import json, math, re

import pandas as pd
import pytest

from reveal_kit.core import root
from reveal_kit.reproduce import accepted, artefacts, run_one

KEPT = root() / "figures" / "mini"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def agree(a, b, digits: float = 1e-3) -> bool:
    "Whether two values are the same up to rounding."
    if isinstance(a, dict): return isinstance(b, dict) and a.keys() == b.keys() and all(agree(a[k], b[k]) for k in a)
    if isinstance(a, list): return isinstance(b, list) and len(a) == len(b) and all(map(agree, a, b))
    if isinstance(a, bool) != isinstance(b, bool): return False
    if isinstance(a, bool) or not isinstance(a, (int, float)) or not isinstance(b, (int, float)): return a == b
    return math.isclose(a, b, rel_tol=digits, abs_tol=digits) or math.isnan(a) and math.isnan(b)


def numbers(text: str): return [float(x) for x in NUMBER.findall(text)], NUMBER.sub("#", text)


def test_what_agrees():
    assert agree({"a": [1, 2.0001]}, {"a": [1, 2.0]}) and not agree({"a": 1}, {"a": 1.1}) and not agree([1], [1, 2]) and not agree("x", "y") and agree(math.nan, math.nan) and not agree(True, 1)
    assert numbers("55.6 ± 17.6 (n=9)") == ([55.6, 17.6, 9.0], "# ± # (n=#)")


@pytest.mark.slow
@pytest.mark.parametrize("a", artefacts(), ids=lambda a: a.name)
def test_an_artefact_comes_out_as_it_is_committed(a, tmp_path):
    params = dict(profile="mini", mode="replay", out_dir=str(tmp_path / "out"), runs_dir=str(tmp_path / "runs"))
    o = run_one(a, {k: v for k, v in params.items() if k in accepted(a)}, tmp_path / "executed")
    assert o.ok, o.error
    made = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert made and {f"{a.name}.csv", f"{a.name}.json", f"{a.name}.md", f"{a.name}.png"} & {*made}
    for name in made:
        new, old = tmp_path / "out" / name, KEPT / name
        assert old.exists(), f"figures/mini/{name} is not committed: reveal reproduce {a.name}"
        if name.endswith(".json"): assert agree(json.loads(new.read_text()), json.loads(old.read_text())), name
        elif name.endswith((".csv", ".md")):
            (x, words), (y, kept) = numbers(new.read_text()), numbers(old.read_text())
            assert words == kept and agree(x, y), f"{name} differs from what is committed: reveal reproduce {a.name}, and look at it"
