"""Model cards: the Hub's front matter, counts that add up, credits where a licence asks, and nothing volatile."""

from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard

from capibara_assets.domains import Domain
from capibara_assets.lineage.attribution import NONE_STATED, asks_for_attribution, attribution
from capibara_assets.lineage.card import CardSubject, base_name, card, hub_licences, write_model_card, write_voter_cards
from capibara_assets.storage.records import table
from capibara_assets.storage.removal import remove_artifact
from capibara_assets_tests.lineage.conftest import Example, Made, example, own_shard


def owed(*examples: Example):  # type: ignore[no-untyped-def]
    return attribution(table(Example, list(examples)))


def test_counts_are_by_example_and_add_up() -> None:
    found = owed(
        example("a", "g", "train", ["p1", "p2"], licence="MIT; CC-BY-4.0", source="x; y", tenants=["t"]),
        example("b", "g", "train", ["p1"], licence=None, source=None, bullet_ids=["b"]),
        example("c", "g", "train", ["p3"], licence="MIT", source="x"),
    )
    assert (found.examples, found.executions, found.bullets) == (3, 3, 1)
    assert found.licences == {"CC-BY-4.0": 1, "MIT": 2, NONE_STATED: 1}
    assert found.sources == {
        ("none stated", "none stated"): 1, ("x", "MIT"): 1, ("x", "MIT; CC-BY-4.0"): 1, ("y", "MIT; CC-BY-4.0"): 1,
    }  # fmt: skip
    assert found.credits == ("x (MIT; CC-BY-4.0)", "y (MIT; CC-BY-4.0)")


@pytest.mark.parametrize(
    ("stated", "named"),
    [
        ([NONE_STATED], "unknown"), (["MIT"], "mit"), (["MIT License", "mit"], "mit"),
        (["Apache 2.0", "CC BY 4.0"], ["apache-2.0", "cc-by-4.0"]), (["MIT", NONE_STATED], "other"),
        (["my own"], "other"), (["Apache-2.0"], "apache-2.0"),
    ],
)  # fmt: skip
def test_licences_by_the_hubs_names(stated: list[str], named: str | list[str]) -> None:
    assert hub_licences(stated) == named


def test_which_licences_ask_for_credit() -> None:
    assert all(map(asks_for_attribution, ("CC-BY-4.0", "cc by-sa 3.0", "Creative Commons Attribution 4.0", "ODC-BY")))
    assert not any(map(asks_for_attribution, ("MIT", "CC0-1.0", "Apache-2.0")))


def test_a_voters_card_is_about_its_own_part(made: Made, tmp_path: Path) -> None:
    for name in ("v0", "v1"):
        (tmp_path / name).mkdir()
    dataset = made.current["moe_dataset", "python"]
    write_voter_cards(tmp_path, dataset, {"v0": (0, 4), "v1": (1, 4)}, "owner/base", "base-digest")
    texts = {name: (tmp_path / name / "README.md").read_text() for name in ("v0", "v1")}
    front = yaml.safe_load(texts["v0"].split("---\n")[1])
    assert front["base_model"] == "owner/base" and front["library_name"] == "peft"
    assert front["datasets"] == [f"moe_dataset-python-{dataset.digest[:12]}"] and front["language"] == ["code"]
    for number, text in enumerate(texts.values()):
        of_acme = own_shard("g-p00") != number
        assert ("- A. Author, example.org (CC-BY-4.0)" in text) == of_acme
        assert ModelCard(text).data.license == (["cc-by-4.0", "mit"] if of_acme else "mit")
        examples = 39 - sum(own_shard(f"g-p{i:02d}") == number for i in range(39))
        assert f"{examples} examples of" in text and dataset.digest in text and "base-digest" in text
    write_voter_cards(tmp_path, dataset, {"v0": (0, 4)}, "owner/base", "base-digest")
    assert (tmp_path / "v0" / "README.md").read_text() == texts["v0"]


def test_a_card_of_a_voter_of_all_domains_counts_theirs(made: Made, tmp_path: Path) -> None:
    (tmp_path / "v0").mkdir()
    python, sql = made.current["moe_dataset", "python"], made.current["moe_dataset", "sql"]
    others = {"v0": {Domain.SQL: sql}}
    write_voter_cards(tmp_path, python, {"v0": (0, 4)}, "owner/base", "base-digest", others)
    text = (tmp_path / "v0" / "README.md").read_text()
    examples = 39 - sum(own_shard(f"g-p{i:02d}") == 0 for i in range(39)) + 2
    assert f"{examples} examples of" in text and sql.digest in text and python.digest in text


def test_a_merged_models_card_counts_every_domain_and_names_what_is_gone(made: Made, tmp_path: Path) -> None:
    consensus = {domain: made.current["consensus_checkpoint", domain] for domain in ("python", "sql")}
    about = CardSubject(title="merged", what="x", library="transformers", base_model="b", base_digest="d", proof="here")
    write_model_card(tmp_path, made.store, consensus, about)
    text = (tmp_path / "README.md").read_text()
    assert "| MIT | 40 |" in text and "| CC-BY-4.0 | 1 |" in text and "41 examples" in text
    remove_artifact(made.store, "moe_dataset", "sql", made.current["moe_dataset", "sql"].digest)
    write_model_card(tmp_path, made.store, consensus, about)
    text = (tmp_path / "README.md").read_text()
    assert "no longer in the store" in text and "39 examples" in text


def test_text_of_a_record_cannot_break_the_card() -> None:
    odd = example("a", "g", "train", ["p"], licence="CC-BY | x\n---\n# head", source="<script>\n- y: [")
    text = card(CardSubject("t", "w", "peft", "b", "d", "p", {"python": "x" * 64}), owed(odd))
    front = yaml.safe_load(text.split("---\n")[1])
    assert front["license"] == "other" and "<script>" not in text and "\n# head" not in text.split("---\n", 2)[2]


def test_the_base_is_called_by_its_id_or_folder(tmp_path: Path) -> None:
    assert base_name("owner/name@main", Path("/cache/abc123")) == "owner/name"
    assert base_name(str(tmp_path), tmp_path) == tmp_path.name
