"""`capibara promote` and `capibara rollback` on a store and an instance of their own."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner, Result

from capibara_assets.assets.inputs import Origin
from capibara_assets.cli.serving import export
from capibara_assets.cli.serving.promote import promote, rollback
from capibara_assets.datasets.schema import Example
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.evaluation.serving.export import check_export
from capibara_assets.modeling.adapters import LoraAdapter, write_adapter
from capibara_assets.modeling.base import load_base
from capibara_assets.modeling.files import base_digest
from capibara_assets.resources import Store
from capibara_assets.storage.records import table
from capibara_assets_tests.evaluation.contenders.test_contenders import example
from capibara_assets_tests.modeling.random_adapter import adapter
from capibara_assets_tests.modeling.tiny import save_tiny
from capibara_assets_tests.published import Published

SQL = Domain.SQL
Run = Callable[..., Result]


@pytest.fixture
def base(tmp_path: Path, nano: Path) -> Path:
    return save_tiny(tmp_path / "tiny", tokenizer_of=nano)


@pytest.fixture
def published(tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Published]:
    """A consensus adapter of `sql` whose evaluation rejected it, in a deployment that the commands open."""
    monkeypatch.setenv("CAPIBARA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CAPIBARA_BASE_MODEL", str(base))
    store = Store(root=str(tmp_path / "home" / "store"), work=str(tmp_path / "home" / "work"))
    with dg.DagsterInstance.ephemeral() as instance:
        monkeypatch.setattr("capibara_assets.cli.graph.instance.open_instance", lambda _: _Held(instance))
        made = Published(instance, store)
        _fill(made, base, tmp_path)
        yield made


class _Held:
    """The test's instance, which the command must not close."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._instance = instance

    def __enter__(self) -> dg.DagsterInstance:
        return self._instance

    def __exit__(self, *_: object) -> None:
        pass


def _fill(made: Published, base: Path, folder: Path) -> None:
    found = adapter(load_base(base).model, 1, 2, ("q_proj",))
    write_adapter(LoraAdapter({**found.config, "task_type": "CAUSAL_LM"}, found.tensors), folder / "adapter")
    frame = table(Example, [example(1, split="train", domain="sql", licence="MIT")])
    dataset = made.put("moe_dataset", SQL, tables={"examples": (Example, frame)})
    inputs = made.inputs()
    inputs.upstream[f"moe_dataset|{SQL}"] = dataset.digest
    inputs.settings["base_model"] = base_digest(base)
    agreed = inputs.publish(
        "consensus_checkpoint",
        SQL,
        documents={"certificate": {"context": {}}},
        trees={"adapter": folder / "adapter"},
        checkpoints={"adapter": inputs.checkpointed("sql/consensus", Origin({}, "b"))},
    )
    made.instance.report_runless_asset_event(
        dg.AssetMaterialization("consensus_checkpoint", partition="sql", metadata={"digest": agreed.digest})
    )
    gain = {"estimate": 0.03, "low": -0.01, "high": 0.07, "n": 12, "groups": 6}
    made.put(
        "evaluation",
        SQL,
        documents={"decision": {"verdict": "reject", "reason": "not enough", "gain_over_base": gain}},
        upstream={f"consensus_checkpoint|{SQL}": agreed.digest},
    )


def run(command: Any, *arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments), catch_exceptions=True)


def test_by_hand_there_and_back_again(published: Published, tmp_path: Path):
    assert run(promote, "--history").output == "nothing was promoted yet: the base model serves\n"
    done = run(promote, "--domain", "sql", "--reason", "a customer asked", "--by", "ana")
    assert done.exit_code == 0 and done.output.startswith("promotion 1 (promote by ana): sql base -> ")
    out = tmp_path / "export"
    shown = run(promote, "--export", str(out))
    assert shown.exit_code == 0, shown.exception
    assert "promotion 1" in shown.output and "--lora-modules sql=adapters/sql" in shown.output
    card = (out / "README.md").read_text()
    assert (
        "| MIT | 1 |" in card and "-0.010 to 0.070" in card and "Promoted by ana" in card and "a customer asked" in card
    )
    assert run(promote, "--verify", str(out)).output == f"{len(check_export(out)['files'])} files match their digests\n"
    back = run(rollback, "--reason", "worse", "--by", "bo", "--json")
    assert json.loads(back.output)["moved"]["sql"][1] is None
    told = run(promote, "--history").output
    assert "promotion 2 (rollback by bo): sql" in told and "Back to number 0. worse" in told
    assert [move["number"] for move in json.loads(run(promote, "--history", "--json").output)] == [1, 2]
    nothing = run(promote, "--export", str(tmp_path / "other"))
    assert "nothing is promoted, so there is nothing to export" in str(nothing.exception)


def test_an_export_says_which_datasets_licences_are_not_known(published: Published):
    """A card without a lost dataset's licences and credits would state those of the others as all."""
    sql = published.inputs().store.latest("consensus_checkpoint", "sql")
    assert sql is not None
    dataset = published.put("moe_dataset", Domain.PYTHON, tables={"examples": (Example, table(Example, []))})
    inputs = published.inputs()
    inputs.upstream[f"moe_dataset|{Domain.PYTHON}"] = dataset.digest
    python = inputs.publish("consensus_checkpoint", Domain.PYTHON, documents={"certificate": {"context": {}}})
    both = {"sql": sql, "python": python}
    assert export._examples(inputs.store, both, ["licence", "split"]).height == 1
    shutil.rmtree(Path(dataset.path))
    with pytest.raises(InputError, match=rf"their licences are not known: moe_dataset\[python\] {dataset.digest}"):
        export._examples(inputs.store, both, ["licence", "split"])


def test_who_does_it_makes_no_line_of_their_own(published: Published):
    told = run(promote, "--domain", "sql", "--reason", "x", "--by", "ana\npromotion 9 (promote by bo)")
    assert told.exit_code == 0 and told.output.count("\n") == 1 and told.output.startswith("promotion 1 ")
    assert len(run(promote, "--history").output.splitlines()) == 2


def test_an_adapter_of_another_base_is_not_laid_out(
    published: Published, tmp_path: Path, nano: Path, monkeypatch: pytest.MonkeyPatch
):
    run(promote, "--domain", "sql", "--reason", "x", "--by", "ana")
    monkeypatch.setenv("CAPIBARA_BASE_MODEL", str(nano))
    refused = run(promote, "--export", str(tmp_path / "export"))
    assert "the adapter of sql was made on base model" in str(refused.exception)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give one of --reason TEXT"),
        (("--reason", "x", "--history"), "give one of --reason TEXT"),
        (("--history", "--quantise", "int8"), "--quantise goes with --export"),
        (("--reason", "x", "--domain", "cobol", "--by", "ana"), "'cobol' is not served"),
        (("--reason", "x", "--domain", "python", "--by", "ana"), "nothing to promote for python"),
    ],
)
def test_what_cannot_be_done_says_why(arguments: tuple[str, ...], message: str, published: Published):
    assert message in str(run(promote, *arguments).exception)
