"Notebooks are the source: the committed library is exactly what they export, and they are clean."
import csv, json, os, re, shutil, subprocess, sys, tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
NOTEBOOKS = sorted(p for p in (ROOT / "nbs").rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)


def _run(cmd, cwd):
    env = {k: v for k, v in os.environ.items() if k != "IN_TEST"}        # nbdev_export does nothing while it is set
    return subprocess.run([str(BIN / cmd[0]), *cmd[1:]], cwd=cwd, env=env, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    d = tmp_path_factory.mktemp("export")
    for f in ("settings.ini", "pyproject.toml"): shutil.copy(ROOT / f, d)
    shutil.copytree(ROOT / "nbs", d / "nbs", ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    for cmd in (["nbdev_clean"], ["nbdev_export"]):
        r = _run(cmd, d); assert r.returncode == 0, r.stderr
    return d


def test_library_is_what_the_notebooks_export(exported):
    new = {p.relative_to(exported): p.read_bytes() for p in (exported / "reveal_kit").rglob("*.py")}
    old = {p.relative_to(ROOT): p.read_bytes() for p in (ROOT / "reveal_kit").rglob("*.py")}
    assert set(new) == set(old), f"modules without a notebook or not exported: {sorted(map(str, set(new) ^ set(old)))}"
    assert [str(p) for p in new if new[p] != old[p]] == [], "run nbdev_clean && nbdev_export and commit both"


def test_notebooks_are_clean(exported):
    dirty = [str(p.relative_to(ROOT)) for p in NOTEBOOKS if p.read_bytes() != (exported / p.relative_to(ROOT)).read_bytes()]
    assert dirty == [], "run nbdev_clean"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_cell_ids_are_unique_and_kernel_is_named(path):
    nb = json.loads(path.read_text())
    ids = [c["id"] for c in nb["cells"]]
    assert len(ids) == len(set(ids))
    assert nb["metadata"]["kernelspec"]["name"] == "python3"


@pytest.mark.parametrize("path", [p for p in NOTEBOOKS if p.parent.name in ("paper", "bench")], ids=lambda p: p.stem)
def test_papermill_notebooks_have_a_parameters_cell(path):
    tags = [t for c in json.loads(path.read_text())["cells"] for t in c["metadata"].get("tags", [])]
    assert tags.count("parameters") == 1, "papermill would inject parameters at the top and the defaults would win"


def test_import_is_light():
    code = """
import sys, time
t = time.process_time()
import reveal_kit
import importlib, pathlib
names = [p.stem for p in pathlib.Path(reveal_kit.__file__).parent.glob('[a-z]*.py')]
first = time.process_time() - t
for n in names: importlib.import_module(f'reveal_kit.{n}')
heavy = {'torch', 'faster_whisper', 'ctranslate2', 'onnxruntime', 'rapidocr', 'faiss', 'cv2', 'av', 'xllamacpp', 'transformers', 'sklearn', 'matplotlib', 'pandas', 'openai'} & set(sys.modules)
print(first, sorted(heavy))
"""
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert out.returncode == 0, out.stderr
    first, heavy = out.stdout.split(" ", 1)
    assert heavy.strip() == "[]" and float(first) < 1


def test_every_pin_installs_on_the_oldest_python_that_pyproject_admits():
    from importlib.metadata import PackageNotFoundError, metadata
    from packaging.specifiers import SpecifierSet
    pins = [line.split("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=") + ".0"
    def needs(name):
        try: return metadata(name)["Requires-Python"]
        except PackageNotFoundError: return None                     # pinned for another platform
    known = {name: needs(name) for name in pins}
    assert sum(v is not None for v in known.values()) > 100 and oldest == "3.11.0"
    assert {n: v for n, v in known.items() if v and not SpecifierSet(v).contains(oldest)} == {}, "pip on that Python looks for the version, finds none and ends in ResolutionImpossible"


def test_the_results_that_the_readme_states_are_those_of_the_figures():
    rows = {m[1]: m.groups()[1:] for m in re.finditer(r"^\| (direct|retrieval|REVEAL|VESTA)\b[^|]*\| (\d+) ± (\d+) % \| (\d+) \| ([\d.]+) \| ([\d,]+) \| (\d+) % \|$", (ROOT / "README.md").read_text(), re.M)}
    assert set(rows) == {"direct", "retrieval", "REVEAL", "VESTA"}
    table = lambda name: list(csv.DictReader(open(ROOT / "figures/mini" / f"{name}.csv")))
    told = {}
    for r in [*table("vesta_table2_3_4_ours"), *table("reveal_table1")]: told["VESTA" if r["method"] == "vesta" else "REVEAL" if r["method"] == "reveal" else r["method"]] = tuple(r[k] for k in ("accuracy", "se", "n", "calls", "prompt_tokens", "cached_share"))
    for name, (accuracy, se, n, calls, prompt, cached) in told.items():
        assert rows[name] == (f"{100 * float(accuracy):.0f}", f"{100 * float(se):.0f}", str(n), f"{float(calls):.1f}".removesuffix(".0"), f"{float(prompt):,.0f}", f"{100 * float(cached):.0f}"), name
