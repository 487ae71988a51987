"""What lanes import beforehand follows from what is to be made."""

import os
from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import patch

import pytest

from capibara_assets.automation.pipeline import GraphRun
from capibara_assets.cli.graph.instance import open_instance
from capibara_assets.cli.graph.lane import ALWAYS, COMPUTING, FOR_MODELS, lane_settings
from capibara_assets.cli.graph.opened import graph_run
from capibara_assets.domains import Domain
from capibara_assets_tests.home import DOMAINS, MadeHome

CHOSEN = tuple(Domain(name) for name in DOMAINS)


@pytest.fixture
def run(shared_home: MadeHome) -> Iterator[GraphRun]:
    with patch.dict(os.environ, shared_home.environment), open_instance(shared_home.deployment) as instance:
        yield graph_run(shared_home.deployment, instance)


def test_libraries_that_compute_are_imported_only_where_something_is_to_be_computed(
    run: GraphRun, shared_home: MadeHome
):
    def imported(assets: list[str], run: GraphRun = run) -> list[str]:
        settings = lane_settings(run, shared_home.deployment, 2, assets, CHOSEN)
        assert settings.count == 2
        return list(settings.imported)

    everything = [*run.graph.parents]
    assert set(COMPUTING) <= set(everything)
    assert imported(everything) == [*ALWAYS], "all of it is current"
    anew = replace(run, force=True)
    assert imported(["e2b_logs", "moe_dataset"], anew) == [*ALWAYS], "no model is needed"
    assert imported(["evaluation"], anew) == [*ALWAYS, *FOR_MODELS, "transformers.models.llama.modeling_llama"]
