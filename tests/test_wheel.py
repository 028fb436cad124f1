"""The wheel is the library alone: what is in it, and that it decodes in an environment without the checkout."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import goose
from paths import REPO

DIST_INFO = f"goose_bench-{goose.__version__}.dist-info"
DECODES = """
import importlib.metadata, torch, transformers
import goose

assert importlib.metadata.version("goose-bench") == goose.__version__
config = transformers.LlamaConfig(
    vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=512, tie_word_embeddings=False, bos_token_id=0, eos_token_id=63,
)
torch.manual_seed(0)
model = transformers.LlamaForCausalLM(config).eval()
for name, parameter in model.named_parameters():
    if parameter.ndim >= 2:
        parameter.data.mul_(6)  # logits far apart: no ties
prompt = torch.tensor([[5, 6, 7, 8, 9, 10, 11, 7, 8]])
plain = model.generate(prompt, max_new_tokens=40, do_sample=False)
for drafter in (goose.GooseDrafter(), goose.GooseOptDrafter()):
    generation = goose.decode(model, prompt, drafter, max_new_tokens=40, stop_ids=[63])
    assert generation.output_ids == plain[0, 9:].tolist()
    inside = model.generate(prompt, max_new_tokens=40, do_sample=False, custom_generate=goose.generate_with(drafter))
    assert inside.tolist() == plain.tolist()
for name in ("baselines", "benchmarks", "run"):
    try:
        __import__(name)
    except ModuleNotFoundError:
        continue
    raise SystemExit(f"{name} can be imported")
print(goose.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy of the checkout, which a build would litter; no network, setuptools from this environment."""
    work = tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "runs", "sweeps", "results")
    shutil.copytree(REPO, work / "source", ignore=ignored)
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index",
        "--wheel-dir", str(work), str(work / "source"))  # fmt: skip
    (built,) = work.glob("*.whl")
    return built


def run(*command: str, **options) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, env=env | options.pop("env", {}), capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_holds_the_library_and_nothing_else(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0] for name in names} == {"goose", DIST_INFO}
    library = (file for file in (REPO / "goose").rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    assert {name for name in names if name.startswith("goose/")} == {str(file.relative_to(REPO)) for file in library}
    assert {"goose/py.typed", "goose/priors/smollm2.json"} <= names


def test_its_metadata_say_what_it_is_and_needs(wheel):
    metadata = Parser().parsestr(zipfile.ZipFile(wheel).read(f"{DIST_INFO}/METADATA").decode())
    assert metadata["Version"] == goose.__version__
    needed = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    assert {re.match(r"[\w-]+", line).group() for line in needed} == {"torch", "transformers", "numpy"}
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    assert metadata.get_all("Project-URL")


def test_the_version_is_written_once():
    cited = re.search(r"^version: (\S+)$", (REPO / "CITATION.cff").read_text(), flags=re.MULTILINE)
    assert cited.group(1) == goose.__version__
    newest = re.search(r"^## (\d+\.\d+\.\d+)", (REPO / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert newest.group(1) == goose.__version__


def test_it_decodes_where_the_checkout_is_not_on_the_path(wheel, tmp_path):
    """A new environment with the wheel in it. torch, transformers and numpy are this environment's, by a line in a .pth
    file: Python does not read the .pth files of a folder named that way, so its editable install stays out of sight."""
    run(sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env"))
    folder = "Scripts" if os.name == "nt" else "bin"
    python = str(tmp_path / "env" / folder / "python")
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", str(wheel))
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    outer = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (site / "outer.pth").write_text("\n".join(outer) + "\n")

    env = {"GOOSE_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    printed = run(python, "-P", "-c", DECODES, cwd=tmp_path, env=env)
    assert Path(printed.splitlines()[-1]).is_relative_to(site)
