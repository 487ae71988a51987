"""Bills of materials: one that lacks a distribution or a hash, or holds a copyleft licence, is refused."""

import importlib.metadata
from pathlib import Path
from typing import Any

import pytest

from capibara_assets.errors import InputError
from workshop.supply_chain.bill import OURS, Bill, licences, locks, normal, require_hashes, require_whole


def component(name: str, version: str, *stated: str, hashed: bool = True) -> dict[str, Any]:
    references = [{"type": "distribution", "url": name, "hashes": [{"alg": "SHA-256", "content": "0" * 64}]}]
    entries = [{"license": {"name": text}} for text in stated]
    return {"name": name, "version": version, "licenses": entries, "externalReferences": references if hashed else []}


def installed() -> list[dict[str, Any]]:
    """What a whole bill of this environment lists."""
    versions = {one.metadata["Name"]: one.version for one in importlib.metadata.distributions() if one.metadata["Name"]}
    return [component(name, version, "MIT") for name, version in versions.items() if normal(name) != OURS]


def test_a_whole_bill_is_accepted_and_says_what_states_its_licence():
    bill = Bill(Path("sbom.json"), [*installed(), component("silent", "1")])
    require_whole(bill)
    assert licences(bill).startswith(f"{len(bill.components) - 1} of which state their licence")


@pytest.mark.parametrize("name", ["torch", "dagster"])
def test_a_bill_that_lacks_what_is_installed_or_has_another_version_of_it_is_refused(name: str):
    others = [one for one in installed() if one["name"] != name]
    for listed in (others, [*others, component(name, "0.0.1", "MIT")]):
        with pytest.raises(InputError, match=f"lacks {name} "):
            require_whole(Bill(Path("sbom.json"), listed))


@pytest.mark.parametrize(
    ("stated", "fits"),
    [
        ("GPL-3.0-only", False),
        ("License :: OSI Approved :: GNU General Public License v2 (GPLv2)", False),
        ("AGPL-3.0-or-later", False),
        ("License :: OSI Approved :: GNU Library or Lesser General Public License (LGPL)", False),
        ("SSPL-1.0", False),
        ("Apache-2.0", True),
        ("MPL-2.0", True),
    ],
)
def test_a_copyleft_licence_is_refused_but_where_it_is_allowed_by_name(stated: str, fits: bool):
    def judged(name: str) -> bool:
        try:
            require_whole(Bill(Path("sbom.json"), [*installed(), component(name, "1", stated)]))
        except InputError as error:
            assert name in str(error) and stated in str(error)
            return False
        return True

    assert judged("newcomer") is fits
    assert judged("psycopg2_binary")


def test_every_line_of_an_images_lock_has_its_hashes():
    assert {lock.stem for lock in locks()} == {"build", "cpu", "gpu", "tpu"}
    lock = next(one for one in locks() if one.stem == "build")
    names = [line.split("==")[0] for line in lock.read_text().splitlines() if "==" in line]
    bill = [component(name, "1") for name in names]
    require_hashes(Bill(Path("sbom.json"), bill), lock)
    for changed in (bill[1:], [component(names[0], "1", hashed=False), *bill[1:]]):
        with pytest.raises(InputError, match=f"no hash of {normal(names[0])}"):
            require_hashes(Bill(Path("sbom.json"), changed), lock)
