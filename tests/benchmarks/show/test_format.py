"""Numbers, shares and conditions as every table writes them."""

from benchmarks.show.format import header_text, model_text, number, percent, prompt_text, settings_text, without_step
from handmade import header


def test_numbers_and_shares():
    assert [number(1.005, 1, "x"), number(None, 2), number(0.5, 2, sign=True)] == ["1.0x", "n/a", "+0.50"]
    assert [percent(0.126), percent(None), percent(-0.1264, 1, " %", sign=True)] == ["13%", "n/a", "-12.6 %"]
    assert (without_step(0), without_step(2)) == ("", " (2 ended with the first token: no step)")


def test_conditions_name_all_that_decides_a_number():
    own = header(("ar",), temperature=0.7, seed=5)
    machine = "cpu (a CPU, 1 threads), torch 2, transformers 5"
    assert header_text(own) == f"tiny (random, float32, engine eager, attention grouped) on {machine}"
    assert model_text(own["model"]) == "tiny (random, float32)"
    assert prompt_text(own["config"]) == "raw prompts, at most 32 new tokens"
    assert settings_text(own["config"]) == "temperature 0.7, seed 5, stop ids by generation_config, 1 repeat(s)"
    assert settings_text(header(("ar",))["config"]).startswith("greedy, ")
