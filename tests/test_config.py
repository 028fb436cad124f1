"""Configs: every file composes, every key is read, no key is ignored."""

import dataclasses
import inspect
import runpy
from collections.abc import Iterator
from typing import Any

import hydra
import numpy as np
import pytest
import yaml
from omegaconf import OmegaConf

from benchmarks.data.items import load_dataset
from benchmarks.errors import UserError
from benchmarks.models.load import ModelSpec
from benchmarks.run import cell
from benchmarks.run.config_types import first_type_error
from goose import Sampling, decode
from paths import REPO
from toy import P0, counter

CONF = REPO / "conf"
CURVE = REPO / "results" / "cost" / "llama3-h200-float16-roofline.json"
RUN = runpy.run_path(str(REPO / "run.py"))
GROUPS = ("model", "dataset", "method")
FILES = [(group, file.stem) for group in GROUPS for file in sorted((CONF / group).glob("*.yaml"))]
METHODS = [name for group, name in FILES if group == "method"]
# Files of their own, and files that change another one (`defaults: [goose, _self_]`).
OWN_FILE = [name for name in METHODS if "defaults:" not in (CONF / "method" / f"{name}.yaml").read_text()]
VARIANTS = [name for name in METHODS if name not in OWN_FILE]
# Those over a draft model cannot be made without one; tests/test_draft_model.py makes its own.
ORIGINALS = [name for name in OWN_FILE if not name.endswith("_draft")]
# Another value for every text setting of a method, and for those that are null.
OTHER_TEXT = {
    "strict": "elastic", "earliest": "latest", "occurrences": "lengths", "saturate": "off", "harmonic": "linear",
    "hf": "vllm", "cold": "warm", "tree": "chain", "budget": "cost", "cost": "budget", "step": "request",
    "online": "prior", "smollm2": "no_such_model", "float16": "bfloat16",
    "float32": "bfloat16", "auto": "float16",
}  # fmt: skip
OTHER_NULL = {
    "n_harvested": 3,
    "template": [[0], [1], [0, 0]], "acceptance_file": "/nowhere.json", "cost": {1: 0.03, 16: 0.04},
    "file": "/nowhere.json", "prior_file": "/nowhere.json",
    "fill": {"_target_": "baselines.AdjacencyCandidates"},
}  # fmt: skip
# Arguments that a file may leave out, because nothing of that method reads them.
UNREAD = {"iso_mixed": {"consensus", "long_match"}}
# The harness brings goose_opt's single-token rows; only Python users name a line end.
UNREAD |= {name: {"line_end"} for name in METHODS if name.startswith("goose_opt")}


def composed(*overrides: str):
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        return hydra.compose("config", overrides=list(overrides))


def test_the_oracle_has_the_sources_of_the_method_it_bounds():
    oracle, strict = (composed(f"method={name}").method.drafter.evidence for name in ("oracle", "goose_opt_strict"))
    assert oracle == strict


def methods_of(*overrides: str) -> dict[str, dict]:
    """What a run with these overrides records and instantiates."""
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = hydra.compose("config", overrides=list(overrides))
        return RUN["selected_methods"](cfg, RUN["checked"](cfg))


def leaves(config: dict, path: tuple = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in config.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def state(value: Any) -> Any:
    """All that a drafter holds, in plain values that can be compared."""
    if hasattr(value, "__dict__"):
        return {"class": type(value).__name__, **{k: state(v) for k, v in vars(value).items()}}
    if isinstance(value, dict):
        return {k: state(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return value.shape, str(value.dtype)  # rows of a table that were never written hold anything
    return [state(v) for v in value] if isinstance(value, list | tuple | range) else value


# Files


@pytest.mark.parametrize(("group", "name"), FILES, ids="/".join)
def test_every_file_composes_and_is_named_like_its_file(group, name):
    config = RUN["checked"](composed(f"{group}={name}"))
    assert getattr(config, group)["name"] == name


def test_the_keys_of_the_main_file_are_the_fields_that_code_reads():
    main = yaml.safe_load((CONF / "config.yaml").read_text())
    fields = {field.name for field in dataclasses.fields(RUN["RunConfig"])}
    assert set(main) - {"defaults", "hydra"} | set(GROUPS) == fields
    defaults = {f.name: f.default for f in dataclasses.fields(RUN["RunConfig"]) if f.default is not dataclasses.MISSING}
    assert {key: main[key] for key in defaults} == defaults  # compare: [] aside, both places say the same


def test_every_group_folder_is_a_group_that_code_reads():
    assert {path.name for path in CONF.iterdir() if path.is_dir()} >= set(GROUPS)


@pytest.mark.parametrize(("group", "name"), [x for x in FILES if x[0] != "method"], ids="/".join)
def test_model_and_dataset_files_hold_exactly_what_code_reads(group, name):
    keys = set(composed(f"{group}={name}")[group])
    if group == "model":
        assert keys == {field.name for field in dataclasses.fields(ModelSpec)} | {"chat_frame"}
    else:
        assert keys == set(inspect.signature(load_dataset).parameters) - {"data_dir", "limit", "offset"} | {
            "prompt_style", "max_new_tokens",
        }  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_differs_from_its_original_in_exactly_what_its_file_says(name):
    file = yaml.safe_load((CONF / "method" / f"{name}.yaml").read_text())
    original, own_last = file.pop("defaults")
    assert own_last == "_self_"
    before, after = (dict(leaves(OmegaConf.to_container(composed(f"method={m}").method))) for m in (original, name))
    stated = dict(leaves(file))
    assert {key: value for key, value in after.items() if before.get(key, "absent") != value} == stated
    # Nothing is lost but what a stated null takes with it, and a null that a stated group replaces.
    nulls = [key for key, value in stated.items() if value is None]
    lost = [key for key in before.keys() - after.keys() if not any(path[: len(key)] == key for path in stated)]
    assert all(any(key[: len(null)] == null for null in nulls) for key in lost)


def test_goose_elastic_is_goose_but_for_its_budget():
    file = yaml.safe_load((CONF / "method" / "goose_elastic.yaml").read_text())
    assert file["defaults"][0] == "goose"
    assert {path for path, _ in leaves(file)} == {("defaults",), ("name",), ("drafter", "budget_mode")}


# The oracle needs to be told: tests/test_oracle.py.
@pytest.mark.parametrize("name", [n for n in (*ORIGINALS, *VARIANTS) if not n.endswith("_draft") and n != "oracle"])
def test_every_method_makes_fresh_drafters_that_decode(name):
    # A curve is named: COUNTER has no shape that one could be found or measured for.
    methods = methods_of(f"method={name}", f"cost_curve={CURVE}")
    assert list(methods) == list(dict.fromkeys(["ar", name]))
    make = RUN["makers"](methods)[name]
    one, other = make(), make()
    assert one is not other
    assert decode(counter(), P0, one, max_new_tokens=8, sampling=Sampling()).output_ids == list(range(12, 20))
    assert state(make()) == state(other)


@pytest.mark.parametrize("name", METHODS)
def test_every_argument_of_a_method_is_in_its_file(name):
    def check(config: dict) -> None:
        arguments = set(inspect.signature(hydra.utils.get_class(config["_target_"]).__init__).parameters) - {"self"}
        assert set(config) - {"_target_"} == arguments - {"args", "kwargs"} - (UNREAD.get(name, set()) - set(config))
        for value in config.values():
            if isinstance(value, dict) and "_target_" in value:  # a model's shape is data
                check(value)

    check(methods_of(f"method={name}")[name])


def flipped(key: str, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value / 2 or 0.5
    if isinstance(value, str):
        return OTHER_TEXT[value]
    return OTHER_NULL[key] if value is None else [flipped(key, v) for v in value]


def settings_of(config: dict) -> list[tuple[tuple[str, ...], Any]]:
    return [(path, value) for path, value in leaves(config) if path[-1] != "_target_"]


def made_or_refused(name: str, config: dict) -> tuple[Any, str]:
    """The state of a fresh drafter and "", or None and the refusal."""
    try:
        return state(RUN["makers"]({name: config})[name]()), ""
    except UserError as error:
        return None, str(error)


@pytest.mark.parametrize("name", ORIGINALS)
def test_flipping_any_setting_changes_the_drafter_or_is_refused(name):
    plain = methods_of(f"method={name}")[name]
    drafter, _ = made_or_refused(name, plain)
    for path, value in settings_of(plain):
        changed = replaced(plain, path, flipped(path[-1], value))
        made, refusal = made_or_refused(name, changed)
        assert changed != plain
        assert made != drafter, f"{'.'.join(path)} is recorded and changes nothing"
        assert made is not None or refusal.startswith(f"method {name}: ")
        assert "\n" not in refusal


def test_an_override_of_a_setting_is_what_is_recorded():
    plain = methods_of("method=goose")["goose"]
    for path, value in settings_of(plain):
        other = flipped(path[-1], value)
        changed = methods_of("method=goose", f"method.drafter.{'.'.join(path)}={other}")["goose"]
        assert changed == replaced(plain, path, other)


def replaced(config: dict, path: tuple[str, ...], value: Any) -> dict:
    head, *rest = path
    return {**config, head: replaced(config[head], tuple(rest), value) if rest else value}


@pytest.mark.parametrize("name", ORIGINALS)
def test_a_text_setting_takes_its_own_words_only(name):
    plain = methods_of(f"method={name}")[name]
    for path, value in settings_of(plain):
        if isinstance(value, str) and path[-1] != "acceptance_of":  # any model's name
            made, refusal = made_or_refused(name, replaced(plain, path, "nonsense"))
            assert made is None
            assert refusal.startswith(f"method {name}: ")
            assert "nonsense" in refusal


@pytest.mark.parametrize(
    "override",
    [
        "method.drafter.context.lengths=[]", "method.drafter.context.lengths=[0]", "method.drafter.context.max_match=0",
        "method.drafter.table.top_k=0", "method.drafter._target_=goose.drafters.goose.NoSuchDrafter",
        "method.drafter._target_=no_such_module.Drafter", "method.drafter.table.top_k=many",
        "method.drafter.table.top_k=3.5", "method.drafter.min_score=abc", "method.drafter.max_chain=x",
        "method.drafter.max_depth=-1", "method.drafter.ema_alpha=7", "method.drafter=null",
    ],
)  # fmt: skip
def test_impossible_values_are_refused_before_any_work(override):
    methods = methods_of("method=goose", override)
    with pytest.raises(UserError, match="method goose: ") as caught:
        RUN["makers"](methods)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["nonsense", *(f"method.{k}nonsense" for k in ("", "drafter.", "drafter.table."))])
def test_unknown_keys_of_a_run_or_method_are_user_errors(key):
    with pytest.raises(UserError, match="nonsense"):
        RUN["makers"](methods_of("method=goose", f"+{key}=1"))


@pytest.mark.parametrize("key", ["model.nonsense", "dataset.nonsense"])
def test_unknown_keys_of_a_model_or_dataset_are_user_errors(key, tmp_path):
    config = RUN["checked"](composed("model=tiny", f"+{key}=1"))
    settings = dataclasses.asdict(config) | {"runs_dir": str(tmp_path)}
    with pytest.raises(UserError, match="nonsense"):
        cell.start(settings, {}, lambda methods: {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("removed", ["model.source", "dataset.prompt_style", "dataset.name"])
def test_missing_keys_of_a_model_or_dataset_are_user_errors(removed, tmp_path):
    config = RUN["checked"](composed("model=tiny", f"~{removed}"))
    with pytest.raises(UserError, match=removed.partition(".")[2]):
        cell.start(dataclasses.asdict(config) | {"runs_dir": str(tmp_path)}, {}, lambda methods: {})


@pytest.mark.parametrize("removed", ["method.drafter", "method.name", "method.drafter._target_"])
def test_missing_keys_of_a_method_are_user_errors(removed):
    with pytest.raises(UserError, match=removed.rpartition(".")[2]):
        RUN["makers"](methods_of(f"~{removed}"))


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("node_budget=0", "node_budget"), ("repeats=0", "repeats"), ("max_new_tokens=0", "max_new_tokens"),
        ("temperature=-0.1", "temperature"), ("temperature=nan", "temperature"), ("temperature=inf", "temperature"),
        ("limit=abc", "limit"), ("seed=1.5", "seed"), ("compare=pld", "compare"), ("node_budget=null", "node_budget"),
    ],
)  # fmt: skip
def test_values_that_make_no_run_are_user_errors_that_name_the_key(override, key):
    with pytest.raises(UserError, match=key):
        RUN["checked"](composed(override))


@pytest.mark.parametrize(
    ("method", "override", "message"),
    [
        ("goose", "table.bigram=no", "table.bigram must be true or false, got 'no'"),
        ("goose", "max_depth=2.5", "max_depth must be a whole number, got 2.5"),
        ("goose", "context.max_match=true", "context.max_match must be a whole number, got True"),
        ("goose", "context.lengths=[2.5]", "a whole number"),
        ("goose", "context=foo", "context must be a config with _target_ or null, got 'foo'"),
        ("goose", "rho=null", "rho must be a number, got None"),
        ("iso3", "k=2.5", "k must be a whole number, got 2.5"),
        ("pld", "num_tokens=2.5", "num_tokens must be a whole number, got 2.5"),
        ("tr", "template=[[0],[0,x]]", "a list .of: a whole number.. or null"),
        ("sequoia", "acceptance=0.5", "acceptance must be a list .of: a number. or null, got 0.5"),
        ("sequoia", "cost={1:x}", "cost must be a mapping .a whole number: a number. or a config with _target_"),
        ("suffix", "shape=3", "shape must be text, got 3"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_before_any_work_and_says_the_kind(method, override, message):
    methods = methods_of(f"method={method}", f"method.drafter.{override}")
    with pytest.raises(UserError, match=f"^method {method}: .*{message}"):
        RUN["makers"](methods)


@pytest.mark.parametrize("name", METHODS)
def test_no_file_holds_a_value_of_the_wrong_kind(name):
    assert first_type_error(methods_of(f"method={name}")[name]) is None


# compare=


def test_the_baseline_comes_first_and_once_and_names_may_repeat():
    assert list(methods_of("compare=[pld,ar,goose,pld]")) == ["ar", "pld", "goose"]
    assert list(methods_of("method=ar")) == ["ar"]


def test_overrides_of_a_method_reach_its_name_in_compare():
    methods = methods_of("method=goose", "method.drafter.rho=0.25", "compare=[pld,goose,goose_elastic]")
    assert {name: config.get("rho") for name, config in methods.items()} == {
        "ar": None, "pld": None, "goose": 0.25, "goose_elastic": 0.5,
    }  # fmt: skip


def test_overrides_of_a_method_that_is_not_compared_are_not_silently_dropped():
    with pytest.raises(UserError, match="method"):
        methods_of("method=goose", "method.drafter.rho=0.25", "compare=[pld,iso3]")


def test_nothing_but_plain_decoding_can_be_called_ar():
    with pytest.raises(UserError, match="ar"):
        methods_of("method=goose", "method.name=ar")


def test_a_name_that_is_no_text_is_a_user_error():
    with pytest.raises(UserError, match="name"):
        methods_of("method=goose", "method.name=5")


def test_unknown_names_in_compare_are_user_errors():
    with pytest.raises(UserError, match="there is no method 'nope'"):
        methods_of("compare=[ar,nope]")
