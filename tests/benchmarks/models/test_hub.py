"""What the hub answers, and what is done without one: a stand-in, or an address that refuses at once. All offline."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub.errors import EntryNotFoundError, GatedRepoError, RepositoryNotFoundError

from benchmarks.errors import UserError
from benchmarks.models import hub, load
from benchmarks.models.load import ModelSpec, load_model
from benchmarks.models.tiny import tiny_model, tiny_tokenizer
from paths import REPO

HUB = ModelSpec("there", "hub", hub_id="someone/there")


def refused() -> str:
    with pytest.raises(UserError) as caught:
        load_model(HUB, device="cpu")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def hub_error(kind: type, status: int) -> Exception:
    error = kind.__new__(kind)
    Exception.__init__(error, "what the library says\nat length")
    error.response = SimpleNamespace(status_code=status)
    return error


def fake_hub(monkeypatch, answer, offline: bool = False) -> None:
    """Nothing cached; `answer` stands in for the request."""
    monkeypatch.setattr(hub, "is_offline_mode", lambda: offline)
    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda *_: None)
    monkeypatch.setattr(hub, "get_hf_file_metadata", answer)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (hub_error(GatedRepoError, 401), "is gated; pass model.path=FOLDER with a local copy, or accept its licence"),
        (hub_error(RepositoryNotFoundError, 401), "is not on the hub, or is private"),
        (hub_error(EntryNotFoundError, 404), "has no config.json on the hub"),
        (hub_error(OSError, 403), "is refused by the hub (HTTP 403)"),
        (ConnectionError("no route"), "the hub cannot be reached (no route); pass model.path=FOLDER"),
    ],
    ids=["gated", "absent", "no config", "forbidden", "unreachable"],
)
def test_what_the_hub_answers(monkeypatch, error, expected):
    def answer(url, timeout):
        assert timeout == hub.TIMEOUT_S
        raise error

    fake_hub(monkeypatch, answer)
    message = refused()
    assert message.startswith("someone/there ")
    assert expected in message
    if "reached" in message or "gated" in message:
        assert "hf auth login" in message


def test_a_hub_that_never_answers(monkeypatch):
    monkeypatch.setattr(hub, "DEADLINE_S", 0.05)
    fake_hub(monkeypatch, lambda *_, **__: time.sleep(5))
    assert "the hub cannot be reached (no answer within" in refused()


def test_a_hub_that_answers_gives_the_commit(monkeypatch):
    fake_hub(monkeypatch, lambda *_, **__: SimpleNamespace(commit_hash="abc"))
    assert load._locate(HUB) == load._Location("someone/there", "someone/there", local_only=False, commit="abc")


def test_offline_mode_asks_nobody(monkeypatch):
    fake_hub(monkeypatch, lambda *_, **__: pytest.fail("the hub was asked"), offline=True)
    message = refused()
    assert "offline mode is on; pass model.path=FOLDER with a local copy, or unset HF_HUB_OFFLINE" in message


@pytest.fixture
def hub_cache(tmp_path):
    """someone/there with tiny's weights, as the hub client lays it out."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    repo = tmp_path / "hub" / "models--someone--there"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(commit)
    snapshot = repo / "snapshots" / commit
    tiny_model().save_pretrained(snapshot)
    tiny_tokenizer().save_pretrained(snapshot)
    return tmp_path / "hub", snapshot


def run_with_cache(cache: Path) -> str:
    script = (
        "from benchmarks.models.load import ModelSpec, load_model\n"
        "from benchmarks.errors import UserError\n"
        "try:\n"
        "    loaded = load_model(ModelSpec('a', 'hub', hub_id='someone/there'), device='cpu')\n"
        "    print(loaded.source, loaded.revision)\n"
        "except UserError as error: print(error)\n"
    )
    env = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "TRANSFORMERS_"))}
    env |= {"HF_HUB_CACHE": str(cache), "HF_ENDPOINT": "http://127.0.0.1:9", "PYTHONPATH": str(REPO)}
    return subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=60).stdout


def test_a_cached_model_needs_no_hub_and_its_commit_is_known(hub_cache):
    cache, snapshot = hub_cache
    assert run_with_cache(cache).strip() == f"someone/there hub:{snapshot.name}"


def test_a_real_attempt_without_a_hub_fails_soon(tmp_path):
    assert "someone/there is not in the local hub cache and the hub cannot be reached" in run_with_cache(tmp_path)


def test_half_a_download_is_not_a_cached_model(hub_cache):
    cache, snapshot = hub_cache
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (snapshot / "model.safetensors.index.json").write_text(json.dumps(index))
    (snapshot / "model.safetensors").rename(snapshot / "model-00001-of-00002.safetensors")
    assert "the hub cannot be reached" in run_with_cache(cache)
