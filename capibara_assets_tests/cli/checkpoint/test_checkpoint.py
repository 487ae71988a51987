"""`capibara checkpoint`: what a person types and reads, damage and mistakes; once, everything by real processes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from capibara_assets.checkpoints.content import to_torch
from capibara_assets.checkpoints.formats import FORMATS, read
from capibara_assets.checkpoints.inspect.verify import adapter_digest
from capibara_assets.checkpoints.store.store import CheckpointStore
from capibara_assets.cli.checkpoint.text import age, size
from capibara_assets.cli.main import main
from capibara_assets.cli.terminal.tables import plain_table
from capibara_assets.datasets.schema import Example, LeftOut
from capibara_assets.modeling.adapters import LoraAdapter, write_adapter
from capibara_assets.storage.records import table as rows_of
from capibara_assets.storage.store import ArtifactStore, Table
from capibara_assets_tests.lineage.conftest import example

CONFIG = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"], "base_model_name_or_path": "b"}


def _have(form: str) -> None:
    """Skips where the libraries of a format's extra are not installed."""
    for library in {"t5x": ["tensorstore"], "orbax": ["tensorstore", "orbax.checkpoint"]}.get(form, []):
        pytest.importorskip(library, reason=f"the extra of {form} is not installed")


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Capibara:
    """The command in this process, on a deployment of its own."""

    def __init__(self, home: Path, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> None:
        self.home, self._patch, self._capture = home, patch, capture
        patch.setenv("CAPIBARA_HOME", str(home))
        patch.setenv("DAGSTER_HOME", "")
        for name in ("CAPIBARA_STORE", "CAPIBARA_WORK", "CAPIBARA_RECIPES"):
            patch.delenv(name, raising=False)

    @property
    def artifacts(self) -> ArtifactStore:
        return ArtifactStore(self.home / "store")

    @property
    def checkpoints(self) -> Path:
        return self.home / "store" / "checkpoints"

    def __call__(self, *arguments: object) -> Done:
        self._patch.setattr(sys, "argv", ["capibara", "checkpoint", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as error:
            code = int(error.code or 0)
        return Done(code, *self._capture.readouterr())


@pytest.fixture
def capibara(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Capibara:
    return Capibara(tmp_path / "home", monkeypatch, capsys)


def adapter(folder: Path, seed: int, grow: float = 1.0) -> Path:
    """A small LoRA adapter in PEFT's format, its B scaled by `grow`."""
    generator = torch.Generator().manual_seed(seed)
    name = "base_model.model.model.layers.{}.self_attn.q_proj.lora_{}.weight"
    tensors = {}
    for layer in range(2):
        tensors[name.format(layer, "A")] = torch.randn(2, 6, generator=generator)
        tensors[name.format(layer, "B")] = torch.randn(6, 2, generator=generator) * (grow if layer else 1.0)
    write_adapter(LoraAdapter(CONFIG, tensors), folder)
    return folder


@pytest.fixture
def saved(capibara: Capibara, tmp_path: Path) -> list[str]:
    """Ids of three checkpoints of `python/v0`: the second moved in layer 1, the third is another one."""
    found = []
    for number, (seed, grow) in enumerate([(1, 1.0), (1, 2.0), (2, 1.0)], start=1):
        folder = adapter(tmp_path / f"adapter-{number}", seed, grow)
        done = capibara("save", folder, "--model", "python/v0", "--step", 10 * number, "--metric", f"loss={4 - number}",
                        *(["--parent", found[-1]] if found else []), "--json")  # fmt: skip
        assert done.code == 0, done.err
        found.append(done.json["id"])
    return found


def test_a_new_deployment_has_none(capibara: Capibara) -> None:
    assert capibara("ls").out == f"no checkpoints in {capibara.checkpoints}\n"
    assert capibara("ls", "--json").json == []


def test_ls_lists_model_version_step_sizes_and_metrics(capibara: Capibara, saved: list[str]) -> None:
    rows = capibara("ls", "--json").json
    assert [(row["model"], row["version"], row["id"], row["step"]) for row in rows] == [
        ("python/v0", number, saved[number - 1], 10 * number) for number in (1, 2, 3)
    ]
    assert all(row["kind"] == "adapter" and row["damaged"] is None for row in rows)
    assert rows[0]["plain_bytes"] == 4 * 12 * 4 + len(
        (capibara.home.parent / "adapter-1/adapter_config.json").read_bytes()
    )
    assert rows[0]["stored_bytes"] > 0
    text = capibara("ls", "python/v0").out.splitlines()
    assert text[0].split() == [
        "model",
        "version",
        "id",
        "step",
        "age",
        "stored",
        "plain",
        "promoted",
        "tags",
        "metrics",
    ]
    assert text[2].split()[:4] == ["python/v0", "v2", saved[1][:12], "20"] and text[2].endswith("loss=2")
    assert capibara("ls", "nobody").out.startswith("no checkpoints of nobody in ")
    assert capibara("ls", "pyhton/v0").out.endswith("; did you mean 'python/v0'?\n")


def test_show_says_what_it_shares_its_parents_and_where_it_came_from(
    capibara: Capibara, saved: list[str], tmp_path: Path
) -> None:
    examples = [example("e-1", "g-1", "train", ["x1", "x2"]), example("v-1", "g-2", "validation", ["x3"])]
    dataset = capibara.artifacts.publish(
        "moe_dataset",
        "python",
        tables={
            "examples": Table(Example, rows_of(Example, examples)),
            "left_out": Table(LeftOut, rows_of(LeftOut, [])),
        },
    )
    done = capibara("save", tmp_path / "adapter-2", "--model", "consensus", "--step", 0, "--tag", "pinned", "--parent",
                    "python/v0@v3", "--source", f"moe_dataset[python]={dataset.digest}",
                    "--source", f"trained_adapters[python]={'0' * 64}", "--base", saved[0])  # fmt: skip
    assert done.code == 0, done.err
    found = capibara("show", "consensus", "--json").json
    checkpoint = found["checkpoint"]
    assert checkpoint["base_version"] == "python/v0@v1" and checkpoint["tags"] == ["pinned"]
    assert [parent["version"] for parent in checkpoint["parents"]] == ["python/v0@v3", "python/v0@v2", "python/v0@v1"]
    assert [(one["version"], one["pieces"]) for one in checkpoint["shares"]] == [
        ("python/v0@v2", 5), ("python/v0@v1", 4), ("python/v0@v3", 1),
    ]  # fmt: skip
    assert len(found["tensors"]) == 4
    states = [(one["asset"], one["state"], one["executions"]) for one in found["origin"]["artifacts"]]
    assert states == [("moe_dataset", "present", 3), ("trained_adapters", "missing", None)]
    text = capibara("show", "consensus@latest").out
    for said in (
        f"base model: {saved[0]} = python/v0@v1",
        "tags: pinned",
        f"moe_dataset[python] {dataset.digest[:12]}: 2 examples of 3 executions",
        "trained_adapters[python] 000000000000: not in the artifact store any more",
        "executions: 3 in its datasets, such as\n  x1\n  x2\n  x3",
        "kind: adapter, imported from huggingface",
        "no other checkpoint has 0 B of the distinct ones",
    ):
        assert said in text
    assert "made from: it names no artifact" in capibara("show", saved[0][:8]).out
    assert "kept by: consensus@v1" in capibara("show", saved[0]).out


def test_diff_puts_the_layer_that_moved_most_first(capibara: Capibara, saved: list[str], tmp_path: Path) -> None:
    found = capibara("diff", "python/v0@v1", "python/v0@step:20", "--json").json
    assert not found["equal"]
    (layer,) = found["diff"]["layers"]
    assert (layer["layer"], layer["changed"], layer["tensors"]) == ("model.layers.1", 1, 2)
    assert layer["delta_relative"] == pytest.approx(1.0)  # B doubled, so the weight change did
    (delta,) = found["diff"]["deltas"]
    assert delta["module"] == "model.layers.1.self_attn.q_proj" and delta["cosine"] == pytest.approx(1.0)
    text = capibara("diff", saved[0], saved[1]).out
    assert "1 of 4 common tensors differ" in text and "weight changes, scale * B @ A:" in text
    assert "equal to the bit" in capibara("diff", tmp_path / "adapter-1", "python/v0@v1").out
    on_disk = capibara("diff", tmp_path / "adapter-1", tmp_path / "adapter-3").out
    assert "4 of 4 common tensors differ" in on_disk


def test_a_nan_is_said_and_json_stays_json(capibara: Capibara, tmp_path: Path) -> None:
    for name, value in (("a", 1.0), ("b", float("nan"))):
        torch.save({"layers.0.w": torch.tensor([2.0, value])}, tmp_path / f"{name}.pt")
    text = capibara("diff", tmp_path / "a.pt", tmp_path / "b.pt").out
    assert "0/1" in text and "NaN or infinite elements are left out of the distances." in text
    assert capibara("diff", tmp_path / "a.pt", tmp_path / "b.pt", "--json").json["diff"]["layers"][0]["not_finite"] == [
        0,
        1,
    ]


def test_prune_says_what_and_why_before_it_does_it(capibara: Capibara, saved: list[str]) -> None:
    planned = capibara("prune", "--keep-last", 1, "--keep-best", 1, "--metric", "loss", "--mode", "max", "--dry-run",
                       "--json").json  # fmt: skip
    assert [(row["version"], row["keep"]) for row in planned["checkpoints"]] == [(1, True), (2, False), (3, True)]
    assert planned["checkpoints"][0]["reasons"] == ["loss 3 is number 1 of the best 1"]
    assert planned["removed"] == [saved[1]] and planned["freed_plain_bytes"] == 48
    assert len(capibara("ls", "--json").json) == 3  # nothing was done
    text = capibara("prune", "--keep-last", 1, "--dry-run").out
    assert "rules (options): keep_last 1\n" in text and "2 would be removed, 1 kept" in text
    assert "not among the last 1" in text
    done = capibara("prune", "--keep-last", 1)
    assert done.code == 0 and "2 removed, 1 kept" in done.out
    assert [row["version"] for row in capibara("ls", "--json").json] == [3]
    before = sum(path.stat().st_size for path in capibara.checkpoints.rglob("*") if path.is_file())
    assert capibara("gc", "--dry-run", "--json").json["bytes_freed"] > 0
    freed = capibara("gc", "--json").json
    after = sum(path.stat().st_size for path in capibara.checkpoints.rglob("*") if path.is_file())
    assert after < before and freed["bytes_freed"] > 0 and any("packs/" in item["name"] for item in freed["deleted"])
    assert capibara("verify").out == f"{capibara.checkpoints}: whole\n"


def test_prune_keeps_what_a_certificate_names(capibara: Capibara, saved: list[str], tmp_path: Path) -> None:
    voters = [{"name": "v0", "digest": adapter_digest(tmp_path / "adapter-1")}]
    certificate = {"voters": voters, "context": {"domain": "python"}}
    made = capibara.artifacts.publish("consensus_checkpoint", "python", documents={"certificate": certificate})
    planned = capibara("prune", "python/v0", "--keep-last", 1, "--json").json
    assert [row["keep"] for row in planned["checkpoints"]] == [True, False, True]
    where = f"the certificate of consensus_checkpoint[python] {made.digest[:12]} names it (voters v0 digest)"
    assert planned["checkpoints"][0]["reasons"] == [where]
    assert [row["id"] for row in capibara("ls", "--json").json] == [saved[0], saved[2]]


def test_prune_goes_by_the_recipe_where_no_option_says_otherwise(
    capibara: Capibara, saved: list[str], tmp_path: Path
) -> None:
    shipped = capibara("prune", "--dry-run", "--json").json
    assert shipped["policy"]["keep_last"] == 3 and shipped["policy_from"].endswith("retention.yaml")
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("keep_every: 20\n")
    planned = capibara("prune", "--recipe", recipe, "--dry-run", "--json").json
    assert [row["keep"] for row in planned["checkpoints"]] == [False, True, True]
    recipe.write_text("keep_evry: 20\n")
    wrong = capibara("prune", "--recipe", recipe)
    assert wrong.code == 2 and "did you mean 'keep_every'" in wrong.err
    assert capibara("prune", "--recipe", recipe, "--keep-last", 1).code == 2


def test_damage_is_found_named_and_exit_code_1(capibara: Capibara, saved: list[str], tmp_path: Path) -> None:
    pack = sorted((capibara.checkpoints / "packs").iterdir())[0]
    pack.chmod(0o644)
    data = bytearray(pack.read_bytes())
    data[700] ^= 4
    pack.write_bytes(data)
    done = capibara("verify")
    assert done.code == 1
    assert pack.name in done.out and "damages" in done.out and "lora_" in done.out
    found = capibara("verify", "--json")
    assert found.code == 1 and found.json["damaged"]
    hurt = {one["checkpoint"] for one in found.json["damages"]}
    assert hurt and hurt <= set(saved)
    for name in hurt:
        loaded = capibara("load", name, "--format", "huggingface", "--out", tmp_path / "out")
        assert loaded.code == 1 and pack.name in loaded.err and "Traceback" not in loaded.err
        assert not (tmp_path / "out").exists()
        assert capibara("verify", name).code == 1


def test_a_lost_pack_does_not_end_the_list_or_the_pruning(capibara: Capibara, saved: list[str]) -> None:
    store = CheckpointStore(capibara.checkpoints)
    (lost,) = set(store.open(saved[2]).manifest.packs) - set(store.open(saved[0]).manifest.packs)
    (capibara.checkpoints / "packs" / f"{lost}.safetensors").unlink()
    rows = capibara("ls", "--json").json
    assert [row["damaged"] is None for row in rows] == [True, True, False]
    assert "DAMAGED" in capibara("ls").out
    assert capibara("prune", "--keep-last", 1).code == 0


@pytest.mark.parametrize("address", ["memory://{name}/checkpoints", "file://{tmp}/checkpoints", "{tmp}/checkpoints"])
def test_a_store_may_be_anywhere(address: str, capibara: Capibara, tmp_path: Path) -> None:
    where = ("--store", address.format(name=tmp_path.name, tmp=tmp_path))
    assert capibara("save", adapter(tmp_path / "a", 1), "--model", "m", "--step", 1, *where).code == 0
    assert len(capibara("ls", *where, "--json").json) == 1
    assert capibara("verify", *where).code == 0
    assert capibara("load", "m", "--format", "huggingface", "--out", tmp_path / "out", *where).code == 0
    assert adapter_digest(tmp_path / "out") == adapter_digest(tmp_path / "a")
    assert not capibara.checkpoints.exists()


def key_file(path: Path, byte: int) -> Path:
    path.write_text(bytes([byte] * 32).hex())
    path.chmod(0o600)
    return path


def test_a_store_is_encrypted_rotated_and_decrypted(capibara: Capibara, saved: list[str], tmp_path: Path) -> None:
    one, two = key_file(tmp_path / "one.key", 1), key_file(tmp_path / "two.key", 2)
    needless = capibara("encrypt")
    assert needless.code == 2 and "CAPIBARA_CHECKPOINT_KEY" in needless.err
    sealed = capibara("encrypt", "--key-file", one, "--json")
    assert sealed.code == 0, sealed.err
    ids = sealed.json["ids"]
    assert list(ids) == saved and not set(ids.values()) & set(saved)
    everything = b"".join(path.read_bytes() for path in capibara.checkpoints.rglob("*") if path.is_file())
    for secret in (b"python/v0", b"q_proj", saved[0].encode(), bytes.fromhex(saved[0])):
        assert secret not in everything

    locked = capibara("ls")
    assert locked.code == 2 and "is encrypted" in locked.err and locked.err.count("\n") == 1
    wrong = capibara("ls", "--key-file", two)
    assert wrong.code == 2 and "wrong key" in wrong.err and wrong.err.count("\n") == 1
    assert [row["id"] for row in capibara("ls", "--key-file", one, "--json").json] == list(ids.values())
    assert f"former ids: {saved[1]}" in capibara("show", saved[1], "--key-file", one).out
    assert capibara("diff", "python/v0@v1", "python/v0@v2", "--key-file", one, "--json").json["diff"]["layers"]
    planned = capibara("prune", "--keep-last", 1, "--key-file", one, "--dry-run", "--json").json
    assert planned["removed"] == [ids[saved[0]], ids[saved[1]]]

    assert capibara("rotate", "--key-file", one).code == 2
    same = capibara("rotate", "--key-file", one, "--new-key-file", one)
    assert same.code == 2 and "the new key is the store's own" in same.err
    assert capibara("rotate", "--key-file", one, "--new-key-file", two).code == 0
    assert capibara("verify", "--key-file", one).code == 2
    assert capibara("verify", "--key-file", two).code == 0

    plain = capibara("decrypt", "--key-file", two)
    assert plain.code == 0, plain.err
    assert [row["id"] for row in capibara("ls", "--json").json] == saved
    assert "equal to the bit" in capibara("diff", tmp_path / "adapter-2", saved[1]).out


def test_with_a_key_nothing_is_saved_in_the_clear(capibara: Capibara, tmp_path: Path) -> None:
    folder, key = adapter(tmp_path / "a", 1), ("--key-file", key_file(tmp_path / "one.key", 1))
    looked = capibara("ls", *key)
    assert looked.code == 2 and "no checkpoint store" in looked.err and not capibara.checkpoints.exists()
    new = ("save", folder, "--model", "m", "--step", 1, "--store", tmp_path / "new")
    assert capibara(*new, *key).code == 0
    assert capibara("ls", "--store", tmp_path / "new").code == 2
    assert len(capibara("ls", "--store", tmp_path / "new", *key, "--json").json) == 1
    plain = ("save", folder, "--model", "m", "--step", 1, "--store", tmp_path / "plain")
    assert capibara(*plain).code == 0
    refused = capibara(*plain[:5], 2, *plain[6:], *key)
    assert refused.code == 2 and "not encrypted" in refused.err
    assert len(capibara("ls", "--store", tmp_path / "plain", "--json").json) == 1


SAVE = ["save", "{tmp}/adapter-1", "--model", "m", "--step", "1"]
MISTAKES = {
    "no such checkpoint": (["show", "python/v0@v9"], "no checkpoint python/v0@v9"),
    "unknown model": (["load", "nobody", "--format", "pytorch", "--out", "{tmp}/x"], "no checkpoint nobody"),
    "existing target": (["load", "python/v0", "--format", "pytorch", "--out", "{tmp}"], "exists already"),
    "unknown format": (["load", "python/v0", "--format", "onnx", "--out", "{tmp}/x"], "huggingface"),
    "read-only format": (["load", "python/v0", "--format", "deepspeed", "--out", "{tmp}/x"], "not written as"),
    "missing file": (["save", "{tmp}/nix", "--model", "m", "--step", "1"], "does not exist"),
    "metric without a value": ([*SAVE, "--metric", "loss"], "NAME=VALUE"),
    "metric that is no number": ([*SAVE, "--metric", "loss=nan"], "finite"),
    "source without a digest": ([*SAVE, "--source", "moe_dataset=1"], "DIGEST"),
    "no model's name": (
        ["save", "{tmp}/adapter-1", "--model", "", "--step", "1"],
        "it is empty: was a variable not set",
    ),
    "unknown parent": ([*SAVE, "--parent", "who"], "no checkpoint who"),
    "negative step": (["save", "{tmp}/adapter-1", "--model", "m", "--step", "-1"], "--step"),
    "mistyped store": (["ls", "--store", "{tmp}/nowhere"], "the folder does not exist"),
    "metric that nobody states": (["prune", "--keep-best", "1", "--metric", "f1"], "they state loss"),
    "best without a metric": (["prune", "--keep-best", "1"], "keep_best and metric belong together"),
    "mode alone": (["prune", "--mode", "max"], "keeps nothing"),
    "prune of an unknown model": (["prune", "sql", "--keep-last", "1"], "there are python/v0"),
    "conversion to what is only read": (["convert", "{tmp}/adapter-1", "{tmp}/x", "--to", "deepspeed"], "deepspeed"),
    "diff with nothing": (["diff", "{tmp}/adapter-1", "nix"], "no checkpoint nix"),
}


@pytest.mark.parametrize("name", sorted(MISTAKES))
def test_a_mistake_is_one_sentence_and_exit_code_2(
    name: str, capibara: Capibara, saved: list[str], tmp_path: Path
) -> None:
    arguments, said = MISTAKES[name]
    done = capibara(*(argument.format(tmp=tmp_path) for argument in arguments))
    assert done.code == 2, done.out + done.err
    assert said in done.err and "Traceback" not in done.err
    assert len(capibara("ls", "--json").json) == 3


def test_numbers_for_people() -> None:
    from datetime import UTC, datetime

    assert [size(count) for count in (0, 1023, 1024, 3 << 20, 5 << 40, 1 << 60, None)] == [
        "0 B", "1023 B", "1.0 KiB", "3.0 MiB", "5.0 TiB", "1048576.0 TiB", "?",
    ]  # fmt: skip
    now = datetime(2026, 11, 20, 12, tzinfo=UTC)
    ages = ["2026-11-20T11:59:59+00:00", "2026-11-20T11:58:00+00:00", "2026-11-20T09:00:00+00:00",
            "2026-11-01T12:00:00+00:00", "2026-11-20T12:00:05+00:00"]  # fmt: skip
    assert [age(text, now) for text in ages] == ["1 s", "2 min", "3 h", "19 d", "0 s"]
    assert plain_table(("a", "b"), [("xx", "1"), ("y", "100")], (1,)) == "a     b\nxx    1\ny   100"


def process(home: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "capibara_assets.cli", "checkpoint", *map(str, arguments)],
        env={**os.environ, "CAPIBARA_HOME": str(home), "DAGSTER_HOME": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.extended
def test_from_save_to_load_by_real_processes(tmp_path: Path) -> None:
    """A store in a folder of its own, by nothing but the command line: every step in another process."""
    home, store = tmp_path / "home", tmp_path / "elsewhere"

    def run(*arguments: object, code: int = 0) -> str:
        done = process(home, *arguments, "--store", store)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    for number in (1, 2, 3):
        state = {"model": {"layers.0.w": torch.full((40, 5), float(number)), "frozen": torch.ones(300)}, "lr": 0.1}
        torch.save(state, tmp_path / f"{number}.pt")
        run("save", tmp_path / f"{number}.pt", "--model", "demo", "--step", number, "--metric", f"loss={number}")
    assert [row["step"] for row in json.loads(run("ls", "--json"))] == [1, 2, 3]
    assert "demo@v2" in run("show", "demo@step:2")
    assert json.loads(run("diff", "demo@v1", "demo@v3", "--json"))["diff"]["layers"][0]["relative"] == 2.0
    rules = ("--keep-last", 1, "--keep-best", 1, "--metric", "loss")
    assert "1 would be removed" in run("prune", *rules, "--dry-run")
    assert "1 removed, 2 kept" in run("prune", *rules)
    assert json.loads(run("gc", "--json"))["bytes_freed"] > 0
    assert "whole" in run("verify")
    for form in ("pytorch", "dcp"):  # a process takes seconds: all formats are tried in this one, below
        run("load", "demo@v1", "--format", form, "--out", tmp_path / form)
        back = to_torch(read(tmp_path / form, form).tensors["model/layers.0.w"])
        assert torch.equal(back, torch.ones(40, 5))
    refused = process(home, "load", "demo", "--format", "huggingface", "--out", tmp_path / "hf", "--store", store)
    assert refused.returncode == 2 and "lr" in refused.stderr and not (tmp_path / "hf").exists()
    assert "equal to the bit" in run("diff", tmp_path / "pytorch", "demo@v1")
    converted = process(home, "convert", tmp_path / "pytorch", tmp_path / "again.pt", "--to", "pytorch")
    assert converted.returncode == 0, converted.stderr
    assert torch.load(tmp_path / "again.pt", weights_only=True)["lr"] == 0.1
    missing = process(home, "show", "demo@v2", "--store", store)
    assert missing.returncode == 2 and "of demo there are v1 (step 1), v3 (step 3)" in missing.stderr


@pytest.mark.parametrize("form", [name for name, known in FORMATS.items() if known.write is not None])
def test_what_is_loaded_in_a_format_is_what_was_saved(form: str, capibara: Capibara, tmp_path: Path) -> None:
    _have(form)
    state = {"layers.0.w": torch.randn(5, 3), "layers.1.w": torch.randn(5, 3).bfloat16(), "step": torch.tensor(7)}
    torch.save(state, tmp_path / "state.pt")
    assert capibara("save", tmp_path / "state.pt", "--model", "m", "--step", 7).code == 0
    done = capibara("load", "m", "--format", form, "--out", tmp_path / "out")
    assert done.out == f"m@v1 as {form} in {tmp_path / 'out'}\n", done.err
    assert "equal to the bit: 3 tensors" in capibara("diff", "m", tmp_path / "out").out
    assert capibara("save", tmp_path / "out", "--model", "again", "--step", 7, "--format", form).code == 0
    assert "equal to the bit: 3 tensors" in capibara("diff", "m", "again").out


def test_a_t5_goes_to_t5x_and_back_under_the_names_of_each(capibara: Capibara, tmp_path: Path) -> None:
    from transformers import T5Config, T5ForConditionalGeneration

    _have("t5x")
    config = T5Config(
        vocab_size=32, d_model=8, d_kv=4, d_ff=16, num_layers=2, num_heads=2, feed_forward_proj="gated-gelu",
        tie_word_embeddings=False,
    )  # fmt: skip
    model = T5ForConditionalGeneration(config)
    model.lm_head.weight = torch.nn.Parameter(torch.randn(32, 8))  # Transformers ties it all the same
    model.save_pretrained(tmp_path / "model")
    assert capibara("save", tmp_path / "model", "--model", "t5", "--step", 12).code == 0
    done = capibara("load", "t5", "--format", "t5x", "--names", "t5x", "--out", tmp_path / "t5x")
    assert done.code == 0, done.err
    state = read(tmp_path / "t5x", "t5x").tensors
    assert state["target/encoder/layers_1/mlp/wi_0/kernel"].shape == (8, 16)
    assert int(to_torch(state["state/step"])) == 12
    back = capibara("convert", tmp_path / "t5x", tmp_path / "back", "--to", "huggingface", "--names", "transformers")
    assert back.code == 0, back.err
    assert "equal to the bit" in capibara("diff", "t5", tmp_path / "back").out
    unmapped = capibara("convert", tmp_path / "model", tmp_path / "no", "--to", "pytorch", "--leave-out-optimizer")
    assert unmapped.code == 2 and "--names transformers" in unmapped.err
    other = adapter(tmp_path / "adapter", 1)
    assert capibara("convert", other, tmp_path / "no", "--to", "t5x", "--names", "t5x").code == 2
    assert not (tmp_path / "no").exists()
