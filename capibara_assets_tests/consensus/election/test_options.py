"""One liar's options reach neither the vote nor what is published: PEFT loads what was certified."""

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from capibara_assets.consensus.agree import agree
from capibara_assets.consensus.election.attestation import attest
from capibara_assets.consensus.election.options import common_options, option_problem
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.modeling.adapters import LoraAdapter, applied, read_adapter, write_adapter
from capibara_assets.modeling.base import Base
from capibara_assets_tests.consensus.conftest import Tokens
from capibara_assets_tests.consensus.in_process import hold_here


def saying(adapter: LoraAdapter, **options: Any) -> LoraAdapter:
    return LoraAdapter({**adapter.config, **options}, adapter.tensors)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"layers_to_transform": [0]}, "layers_to_transform is [0]: PEFT would make something else"),
        ({"layers_pattern": "layers"}, "layers_pattern"),
        ({"exclude_modules": ["q_proj"]}, "exclude_modules"),
        ({"lora_bias": True}, "lora_bias"),
        ({"an_option_of_next_year": {"a": 1}}, "an_option_of_next_year"),
        ({"target_modules": ["q_proj"]}, "target_modules does not select"),
        ({"target_modules": r".*self_attn\..*"}, "target_modules does not select"),
        ({"target_modules": "("}, "target_modules does not select"),
    ],
)
def test_what_changes_what_peft_loads_is_rejected(
    honest: dict[str, LoraAdapter], options: dict[str, Any], words: str
) -> None:
    verdicts = attest({**honest, "voter-1": saying(honest["voter-1"], **options)}, None)
    assert not verdicts["voter-1"].accepted and words in verdicts["voter-1"].reason
    assert [name for name, verdict in verdicts.items() if not verdict.accepted] == ["voter-1"]


def test_options_that_are_off_or_without_effect_are_accepted(honest: dict[str, LoraAdapter]) -> None:
    off: dict[str, Any] = dict.fromkeys(("layers_to_transform", "modules_to_save", "exclude_modules"))
    usual = {
        "use_dora": False,
        "loftq_config": {},
        "bias": "none",
        "megatron_core": "megatron.core",
        "peft_version": "9",
    }
    usual |= {**off, "qalora_group_size": 16, "lora_dropout": 0.1, "target_modules": "all-linear"}
    assert option_problem(saying(honest["voter-0"], **usual)) == ""


def test_one_liar_does_not_write_the_published_config(
    honest: dict[str, LoraAdapter], tiny: Base, validation: list[Tokens], shards: dict[str, list[int]], tmp_path: Path
) -> None:
    """Whichever candidate is chosen, and whoever's digest comes first; PEFT gives the logits that were certified."""
    lies = {"base_model_name_or_path": "a/stranger", "auto_mapping": {"base_model_class": "Other"}, "revision": "evil",
            "fan_in_fan_out": True, "task_type": "SEQ_CLS"}  # fmt: skip
    truth = {"base_model_name_or_path": "tiny", "task_type": "CAUSAL_LM", "fan_in_fan_out": False}
    for liar in sorted(honest):
        told = {name: saying(adapter, **(lies if name == liar else truth)) for name, adapter in honest.items()}
        options = common_options(list(told.values()))
        assert truth.items() <= options.items() and options["auto_mapping"] is options["revision"] is None
    for name, adapter in told.items():
        write_adapter(adapter, tmp_path / "voters" / name)
    folders = {name: tmp_path / "voters" / name for name in told}
    for strategy in (None, "weighted_average"):
        recipe = ConsensusRecipe.model_validate({"merge_strategy": strategy})
        agreement = agree(tiny, folders, validation, shards, recipe, {"domain": "python"}, hold=hold_here)
        config = agreement.adapter.config
        assert truth.items() <= config.items() and not config.get("auto_mapping") and not config.get("revision")
        write_adapter(agreement.adapter, tmp_path / "published")
        loaded = PeftModel.from_pretrained(
            AutoModelForCausalLM.from_pretrained(tiny.path, dtype=torch.float32), str(tmp_path / "published")
        )
        rows = torch.tensor([example.input_ids for example in validation[:8]])
        with torch.no_grad(), applied(tiny.model, read_adapter(tmp_path / "published")):
            certified = tiny.model(input_ids=rows).logits
        with torch.no_grad():
            assert torch.allclose(loaded(input_ids=rows).logits, certified, atol=1e-4)


def test_no_pattern_of_a_voter_holds_up_the_vote(honest: dict[str, LoraAdapter]) -> None:
    adapter = next(iter(honest.values()))
    for targets in (r"((a|[a-z_.0-9])+)+X$", ".*" * 12 + "X"):
        began = time.process_time()
        assert "does not select" in option_problem(saying(adapter, target_modules=targets))
        assert time.process_time() - began < 1
