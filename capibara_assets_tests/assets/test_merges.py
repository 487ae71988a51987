"""How merges look in the UI: every number of the report's tables, dead experts by name, gates that were not kept."""

from capibara_assets.metadata.consensus_entries import merge_page, mixture_page

MERGE = {
    "weights": {"python": 1.0, "sql": 1.2},
    "losses": {"base": {"python": 2.0, "sql": 3.0}, "merged": {"python": 1.5, "sql": 2.25}},
    "interference": {"python": {"python": -0.4, "sql": 0.1}, "sql": {"python": 0.125, "sql": -0.5}},
}
MIXTURE = {
    "experts": ["python", "sql"],
    "top_k": 1,
    "utilisation": {"python": 0.995, "sql": 0.005},
    "dead": ["sql"],
    "dead_in": {"sql": [0, 3]},
    "losses": {
        "python": {"base": 2.0, "dense_merge": 2.0, "moe_top1": 1.75},
        "sql": {"base": 3.0, "dense_merge": 3.0, "moe_top1": 2.75},
    },
    "mean_losses": {"base": 2.5, "dense_merge": 2.5, "moe_top1": 2.25},
    "training": None,
}


def test_a_merge_shows_who_disturbs_whom() -> None:
    shown = merge_page(MERGE).entries()
    rows = shown["interference"].value.splitlines()
    assert rows[0].endswith("| python | sql |")
    assert rows[2:] == ["| python | -0.400 | 0.100 |", "| sql | 0.125 | -0.500 |"]
    assert shown["losses"].value.splitlines()[2:] == ["| python | 2.000 | 1.500 |", "| sql | 3.000 | 2.250 |"]
    assert "svg" in shown["interference_plot"].value


def test_a_mixture_shows_its_losses_and_its_dead() -> None:
    shown = mixture_page(MIXTURE).entries()
    assert shown["losses"].value.splitlines()[2:] == [
        "| python | 2.000 | 2.000 | 1.750 |",
        "| sql | 3.000 | 3.000 | 2.750 |",
        "| mean | 2.500 | 2.500 | 2.250 |",
    ]
    assert shown["dead_experts"].value == "sql, sql in layers [0, 3]"
    assert "gates" not in shown


def test_what_the_gates_learnt_is_shown() -> None:
    log = [{"step": step, "utilisation": {"python": 0.5, "sql": 0.5}} for step in (5, 10)]
    trained = {"steps": 10, "kept": False, "mean_loss": {"before": 2.0, "after": 2.1}, "log": log}
    shown = mixture_page({**MIXTURE, "dead": [], "dead_in": {}, "training": trained}).entries()
    assert shown["gates"].value == {"steps": 10, "kept": False, "mean_loss": {"before": 2.0, "after": 2.1}}
    assert shown["dead_experts"].value == "none"
    assert "svg" in shown["gates_plot"].value
