"""What serving needs: every folder opens with the library that will open it, and every byte is accounted for."""

import json
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.evaluation.routing.router import Router, train_router
from capibara_assets.evaluation.serving.export import (
    PROMOTED,
    ExportParts,
    check_export,
    max_lora_rank,
    servable_adapter,
    write_export,
)
from capibara_assets.modeling.adapters import LoraAdapter, read_adapter, write_adapter
from capibara_assets.modeling.base import load_base
from capibara_assets_tests.evaluation.routing.test_router import ASKED, routes
from capibara_assets_tests.modeling.random_adapter import adapter
from capibara_assets_tests.modeling.tiny import save_tiny

SERVING = {"experts": {"sql": "s" * 64, "python": "p" * 64}, "merged": "m" * 64, "router": "r" * 64}


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory, nano: Path) -> Path:
    return save_tiny(tmp_path_factory.mktemp("merged"), tokenizer_of=nano)


@pytest.fixture
def parts(merged: Path, tmp_path: Path) -> ExportParts:
    model = load_base(merged).model
    for seed, name in enumerate(("sql", "python")):
        found = adapter(model, seed, 2 + seed, ("q_proj", "down_proj"))
        config = {**found.config, "task_type": "CAUSAL_LM", "base_model_name_or_path": "tiny"}
        write_adapter(LoraAdapter(config, found.tensors), tmp_path / "made" / name)
    (tmp_path / "made" / "router").mkdir()
    train_router(routes(*ASKED), ["sql", "python"], 1).write(tmp_path / "made" / "router")
    adapters = {name: (str(SERVING["experts"][name]), tmp_path / "made" / name) for name in ("sql", "python")}  # type: ignore[index]
    return ExportParts(
        promotion={"serving": SERVING, "domains": {}},
        number=3,
        base_name="tiny",
        base_digest="b" * 64,
        adapters=adapters,
        merged=("m" * 64, merged),
        router=("r" * 64, tmp_path / "made" / "router"),
    )


def generated(model: torch.nn.Module, folder: Path) -> int:
    ids = AutoTokenizer.from_pretrained(folder)("select name from", return_tensors="pt").input_ids
    with torch.no_grad():
        return int(model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=3, do_sample=False).shape[1])


def test_every_folder_opens_with_its_library_and_generates(parts: ExportParts, tmp_path: Path):
    out = tmp_path / "out"
    document = write_export(parts, out, "card\n")
    model = AutoModelForCausalLM.from_pretrained(out / "merged").eval()
    assert generated(model, out / "merged") > 3
    for name in ("sql", "python"):
        adapted = PeftModel.from_pretrained(
            AutoModelForCausalLM.from_pretrained(out / "merged"), out / "adapters" / name
        )
        assert generated(adapted.eval(), out / "merged") > 3
        layer = adapted.base_model.model.model.layers[0].self_attn.q_proj
        change = layer.get_delta_weight("default")
        torch.testing.assert_close(
            change, read_adapter(parts.adapters[name][1]).delta("model.layers.0.self_attn.q_proj")
        )
    assert Router.read(out / "router").pick([ASKED["sql"].format("orders")]) == ["sql"]
    assert document["max_lora_rank"] == 8 and document["number"] == 3
    assert document["vllm"] == {
        "experts": "vllm serve ${BASE_MODEL:-tiny} --enable-lora --max-loras 2 --max-lora-rank 8 "
        "--lora-modules python=adapters/python sql=adapters/sql",
        "merged": "vllm serve merged --served-model-name merged",
    }


def test_every_byte_is_accounted_for(parts: ExportParts, tmp_path: Path):
    out = tmp_path / "out"
    document = write_export(parts, out, "card\n")
    assert check_export(out) == document == json.loads((out / PROMOTED).read_text())
    files = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert files == {*document["files"], PROMOTED}
    again = write_export(parts, tmp_path / "again", "card\n")
    assert again == document  # the same inputs, the same bytes
    config = out / "adapters" / "sql" / "adapter_config.json"
    config.unlink()
    with pytest.raises(IntegrityError, match=r"adapter_config\.json is missing or does not belong there"):
        check_export(out)
    config.write_text("{}")
    with pytest.raises(IntegrityError, match="is not the file that was exported"):
        check_export(out)
    with pytest.raises(InputError, match=r"has no promoted\.json: give the folder"):
        check_export(tmp_path)
    (tmp_path / "promoted.json").write_text("[]")
    with pytest.raises(InputError, match="is not what `capibara promote --export` writes"):
        check_export(tmp_path)


def test_large_files_are_linked_and_a_former_export_is_replaced_whole(parts: ExportParts, merged: Path, tmp_path: Path):
    out = tmp_path / "out"
    write_export(parts, out, "card\n")
    weights = out / "adapters" / "sql" / "adapter_model.safetensors"
    assert weights.stat().st_ino == (parts.adapters["sql"][1] / weights.name).stat().st_ino
    fewer = ExportParts(parts.promotion, 4, "tiny", "b" * 64, {"sql": parts.adapters["sql"]})
    write_export(fewer, out, "card\n")
    assert not (out / "merged").exists() and check_export(out)["number"] == 4
    assert (parts.adapters["sql"][1] / weights.name).exists()


def test_another_folder_is_not_overwritten_and_a_failure_leaves_nothing(parts: ExportParts, tmp_path: Path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="holds something else"):
        write_export(parts, out, "card\n")
    broken = ExportParts(parts.promotion, 4, "tiny", "b" * 64, {"sql": ("s", tmp_path / "nothing")})
    with pytest.raises(InputError, match="is missing"):
        write_export(broken, tmp_path / "new", "card\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "out"]
    with pytest.raises(InputError, match="made of the merged model, and none serves"):
        write_export(
            ExportParts(parts.promotion, 4, "tiny", "b" * 64), tmp_path / "new", "card\n", {"int8": lambda *_: {}}
        )


def test_ranks_and_scales_that_differ_become_one(tmp_path: Path, merged: Path):
    model = load_base(merged).model
    one = adapter(model, 1, 2, ("q_proj", "down_proj"))
    odd = dict(one.tensors)
    name = "base_model.model.model.layers.0.mlp.down_proj"
    odd[f"{name}.lora_A.weight"], odd[f"{name}.lora_B.weight"] = torch.randn(5, 64), torch.randn(32, 5)
    pattern = {"model.layers.0.mlp.down_proj": 5}
    config = {**one.config, "rank_pattern": pattern, "alpha_pattern": {"model.layers.0.mlp.down_proj": 20}}
    write_adapter(LoraAdapter(config, odd), tmp_path / "odd")
    before, fit = read_adapter(tmp_path / "odd"), servable_adapter(tmp_path / "odd")
    assert fit.rank == 5 and fit.adapter is not None and fit.targets == ("down_proj", "q_proj")
    assert fit.adapter.config["rank_pattern"] == {} and fit.adapter.config["lora_alpha"] == fit.adapter.config["r"] == 5
    for module in before.modules:
        torch.testing.assert_close(fit.adapter.delta(module), before.delta(module))
        assert len(fit.adapter.a(module)) == 5
    write_adapter(one, tmp_path / "even")
    assert servable_adapter(tmp_path / "even").adapter is None


def test_what_servers_do_not_take_is_refused(tmp_path: Path):
    assert [max_lora_rank(ranks) for ranks in ([], [2], [8], [9, 3], [300])] == [1, 8, 8, 16, 320]
    module = "base_model.model.model.layers.0.self_attn.q_proj"
    tensors = {f"{module}.lora_A.weight": torch.ones(513, 4), f"{module}.lora_B.weight": torch.ones(4, 513)}
    config = {"peft_type": "LORA", "bias": "none", "r": 513, "lora_alpha": 513}
    write_adapter(LoraAdapter(config, tensors), tmp_path / "wide")
    with pytest.raises(InputError, match="rank 513 is above 512"):
        servable_adapter(tmp_path / "wide")
    write_adapter(LoraAdapter({**config, "use_dora": True}, tensors), tmp_path / "dora")
    with pytest.raises(InputError, match="use_dora"):
        servable_adapter(tmp_path / "dora")


def test_what_no_export_wrote_is_not_removed(parts: ExportParts, tmp_path: Path):
    target = tmp_path / "out"
    write_export(parts, target, "card")
    (target / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"notes.txt was not exported, and a new export would remove it"):
        write_export(parts, target, "card")
    (target / "notes.txt").unlink()
    write_export(parts, target, "card")
    (target / "README.md").write_text("my own card")
    with pytest.raises(InputError, match=r"README.md was changed since it was exported: move it"):
        write_export(parts, target, "card")
    (target / "README.md").unlink()
    write_export(parts, target, "card")
    mine = tmp_path / "mine"
    (mine / "photos").mkdir(parents=True)
    (mine / "photos" / "a.jpg").write_text("x")
    for text in ('{"mine": 1}', "[]", '{"files": null}', "no JSON"):
        (mine / PROMOTED).write_text(text)
        with pytest.raises(InputError, match="holds something else than a former export"):
            write_export(parts, mine, "card")
        with pytest.raises(InputError, match="is not what `capibara promote --export` writes"):
            check_export(mine)
    assert (mine / "photos" / "a.jpg").read_text() == "x"


def test_paths_and_commands_of_an_export_are_checked(parts: ExportParts, tmp_path: Path):
    target = tmp_path / "out"
    document = write_export(parts, target, "card")
    domain = next(iter(document["adapters"]))
    for place, value in ((("vllm", "experts"), "rm -rf /"), (("adapters", domain, "path"), "merged")):
        other = json.loads(json.dumps(document))
        node = other
        for step in place[:-1]:
            node = node[step]
        node[place[-1]] = value
        (target / PROMOTED).write_text(json.dumps(other))
        with pytest.raises(IntegrityError, match="is not what was exported"):
            check_export(target)
