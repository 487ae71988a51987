"""The bench `vote`: what the consensus is worth under attack, beside the same steps on the honest voters alone."""

import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmarks.consensus.vote.figures import markdown, summary, write_between
from benchmarks.output import print_result
from capibara_assets.errors import InputError
from capibara_assets.processes.pools import process_pool

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

    from benchmarks.consensus.vote.game import Result, Table
    from benchmarks.consensus.vote.journal import Journal
    from benchmarks.consensus.vote.losses import LossBook
    from benchmarks.consensus.vote.pool import PoolRecipe
    from capibara_assets.consensus.recipe import ConsensusRecipe
    from capibara_assets.modeling.adapters import LoraAdapter
    from capibara_assets.modeling.base import Base
    from capibara_assets.modeling.losses import TokenLosses
    from capibara_assets.modeling.precision import Precision

SEEDS = {4: 100, 7: 100, 13: 20, 16: 20}
Plan = Mapping[int, Iterable[int]]
"""n -> seeds."""
Draw = tuple[int, int, tuple[str, ...]]
"""n, seed, attacks."""
_EVERY_S = 30.0
_SHOWN = 4  # adapters of each kind whose own figures are given


@click.command("vote")
@click.option("--pool", "pool_folder", help="Folder of trained adapters; default: bench-vote in the deployment's home.")
@click.option("--pool-steps", default=60, show_default=True, help="Optimizer steps of each adapter of the pool.")
@click.option("--seeds", type=int, help="Seeds for every n, in place of 100 (n = 4, 7) and 20 (n = 13, 16).")
@click.option("--first-seed", default=0, show_default=True, help="To play other draws than those of the results.")
@click.option("--n", "sizes", type=click.Choice(["4", "7", "13", "16"]), multiple=True, help="Only these.")
@click.option("--attack", "attacks", multiple=True, help="Only these attacks.")
@click.option("--rule", help="In place of the recipe's.")
@click.option("--pre", help="In place of the recipe's; `none` for none.")
@click.option("--games", "games_file", help="File of games: those in it are not played again, others are added to it.")
@click.option("--known", is_flag=True, help="What the file of games holds so far; nothing is played.")
@click.option("--write", "document", help="Markdown file whose marked part is replaced by a table of the results.")
@click.option("--rule-alone", is_flag=True, help="The robust rule's result, not the best of all candidates: faster.")
@click.option("--pool-only", is_flag=True, help="Train the pool and stop.")
@click.option(
    "--precision",
    type=click.Choice(["fp32", "bf16"]),
    default="fp32",
    show_default=True,
    help="Of all losses: bf16 is faster where the processor computes in it, and moves a loss by up to 5e-4 of it.",
)
@click.option("--compiled", is_flag=True, help="Compile the base first: a third faster, takes a C++ compiler.")
@click.option(
    "--processes", default=len(os.sched_getaffinity(0)), help="Draws played at once, one thread each; default: cores."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def vote(
    pool_folder: str | None,
    pool_steps: int,
    seeds: int | None,
    first_seed: int,
    sizes: tuple[str, ...],
    attacks: tuple[str, ...],
    rule: str | None,
    pre: str | None,
    games_file: str | None,
    known: bool,
    document: str | None,
    rule_alone: bool,
    pool_only: bool,
    precision: "Precision",
    compiled: bool,
    processes: int,
    as_json: bool,
) -> None:
    """Games of n voters, f of them bad, out of a pool of really trained adapters: test loss against honest voters'.

    The pool takes a quarter of an hour the first time; losses of adapters are kept beside it, so that a run that was
    stopped goes on where it was.
    """
    import torch

    from benchmarks.consensus.vote.journal import Journal
    from benchmarks.consensus.vote.pool import PoolRecipe

    torch.set_num_threads(1)
    counts = dict(SEEDS)
    if seeds:
        counts = dict.fromkeys(counts, seeds)
    if sizes:
        counts = {n: counts.get(n, SEEDS[n]) for n in map(int, sizes)}
    plan = {n: range(first_seed, first_seed + count) for n, count in counts.items()}
    recipe = chosen_recipe(rule, pre)
    opening: dict[str, Any] = {
        "folder": pool_folder, "recipe": recipe, "sizes": tuple(plan), "kinds": kinds_for(attacks),
        "choose": not rule_alone, "precision": precision, "compiled": compiled, "trained": PoolRecipe(steps=pool_steps),
    }  # fmt: skip
    table, described = open_table(**opening)
    if pool_only:
        print_result(described, as_json)
        return
    journal = Journal(Path(games_file) if games_file else None, settings_of(table, opening))
    if known:
        found = so_far(plan, journal)
    elif processes == 1:
        found = measure(table, plan, attacks, journal)
    else:
        found = measure_apart(opening, plan, attacks, processes, journal)
    if document:
        write_between(Path(document), "python -m benchmarks vote", markdown({**described, **found}))
    print_result({**found, **described}, as_json)


def settings_of(table: "Table", opening: Mapping[str, Any]) -> str:
    """All that decides a game beside attack, n and seed, as one name: the pool's adapters, the recipe, the losses."""
    from benchmarks.consensus.vote.attacks import ATTACKS
    from benchmarks.consensus.vote.losses import key_of
    from capibara_assets import __version__

    pool = {kind: [one.key for one in adapters] for kind, adapters in sorted(table.pool.items()) if kind == "honest"}
    attacks = {name: list(attack.strengths) for name, attack in ATTACKS.items()}
    how = {name: opening[name] for name in ("choose", "precision", "compiled")}
    return key_of(__version__, pool, attacks, table.recipe.model_dump(mode="json"), how)[:16]


def chosen_recipe(rule: str | None, pre: str | None) -> "ConsensusRecipe":
    """The shipped recipe, with another rule or mixing where asked for."""
    from capibara_assets.consensus.recipe import ConsensusRecipe
    from capibara_assets.deployment.declarations import shipped_recipe

    shipped = shipped_recipe("consensus", ConsensusRecipe).model_dump()
    changes = {"rule": rule} if rule else {}
    return ConsensusRecipe.model_validate(
        shipped | changes | ({"pre": None if pre == "none" else pre} if pre is not None else {})
    )


def kinds_for(names: Sequence[str]) -> set[str]:
    """The kinds of adapters that these attacks (none named: all) need.

    Raises:
        InputError: no such attack.
    """
    from benchmarks.consensus.vote.attacks import ATTACKS

    unknown = sorted(set(names) - ATTACKS.keys())
    if unknown:
        raise InputError(f"no attack {', '.join(unknown)}: there are {', '.join(ATTACKS)}")
    needed = {ATTACKS[name].needs for name in names or ATTACKS}
    return {"honest", *(kind for kind in needed if kind is not None)}


def open_table(
    folder: str | None,
    recipe: "ConsensusRecipe",
    sizes: Iterable[int],
    kinds: Collection[str],
    *,
    choose: bool = False,
    precision: "Precision" = "fp32",
    compiled: bool = False,
    trained: "PoolRecipe | None" = None,
) -> "tuple[Table, dict[str, Any]]":
    """The pool (trained where it is not there), the examples games are judged by, and a word on both."""
    from benchmarks.consensus.vote.attacks import Named
    from benchmarks.consensus.vote.data import in_slice, with_trigger
    from benchmarks.consensus.vote.game import TEST, TRIGGERED, VALIDATION, Table, shards_for
    from benchmarks.consensus.vote.losses import LossBook
    from benchmarks.consensus.vote.pool import PoolRecipe, open_pool
    from benchmarks.training.inputs import NANO
    from capibara_assets.checkpoints.inspect.verify import adapter_digest
    from capibara_assets.datasets.tokens.tokenising import encode_examples
    from capibara_assets.deployment.environment import Deployment
    from capibara_assets.deployment.locations import resources_root
    from capibara_assets.modeling.adapters import read_adapter
    from capibara_assets.modeling.base import load_base

    trained = trained or PoolRecipe()
    root = Path(folder) if folder else Deployment.from_environment().home / "bench-vote"
    pool = open_pool(root, NANO, resources_root() / "experience", trained, kinds)
    base = load_base(NANO)
    validation = pool.data.split("validation")
    tables = {
        VALIDATION: validation,
        TEST: pool.data.split("test"),
        TRIGGERED: with_trigger(pool.data.split("test")),
    }
    encoded = {name: encode_examples(frame, base.tokenizer, trained.max_length) for name, frame in tables.items()}
    sets = {name: one.encoded for name, one in encoded.items()}
    book = LossBook(base, sets, pool.folder / "figures", precision, compiled=compiled)
    lengths = [len(one.input_ids) for one in encoded[VALIDATION].encoded]
    sliced = {name: _slice_of(tables[name], encoded[name].example_ids, in_slice) for name in (VALIDATION, TEST)}
    table = Table(
        pool={
            kind: [Named(adapter_digest(path), read_adapter(path)) for path in paths]
            for kind, paths in pool.adapters.items()
        },
        book=book,
        recipe=recipe,
        shards={n: shards_for(validation, encoded[VALIDATION].example_ids, lengths, n, recipe) for n in sizes},
        chooser=chooser(base, book, recipe) if choose else None,
        in_slice=sliced,
    )
    described = {
        "pool": {kind: len(paths) for kind, paths in pool.adapters.items()},
        "domain": trained.domain,
        "steps": trained.steps,
        "examples": {name: len(one.encoded) for name, one in encoded.items()},
        "groups": {name: frame["group_id"].n_unique() for name, frame in tables.items()},
        "test_tokens": int(book.tokens(TEST).sum()),
        "losses": pool_losses(table),
        "choosing": choose,
        "precision": precision,
        "compiled": compiled,
        "rule": recipe.rule,
        "pre": recipe.pre,
        "quality_threshold": recipe.quality_threshold,
        "consensus_threshold": recipe.consensus_threshold,
    }
    return table, described


def _slice_of(frame: "pl.DataFrame", ids: Sequence[str], in_slice: "Callable[[str], bool]") -> "np.ndarray":
    """Which of these examples are of the slice, (ids,)."""
    import numpy as np

    messages = dict(frame.select("example_id", "messages").iter_rows())
    return np.array([in_slice(messages[name]) for name in ids])


def chooser(
    base: "Base", book: "LossBook", recipe: "ConsensusRecipe"
) -> "Callable[[Mapping[str, LoraAdapter], int], LoraAdapter]":
    """`consensus.choosing.choose` with the book's losses: an adapter is measured once in a run, not once in a game."""
    from benchmarks.consensus.vote.game import VALIDATION
    from benchmarks.consensus.vote.losses import given
    from capibara_assets.checkpoints.inspect.verify import digest_of
    from capibara_assets.consensus.choose.choosing import BASE, ValidationLosses, choose

    def measuring(adapter: "LoraAdapter") -> "TokenLosses":
        return book.token_losses(VALIDATION, digest_of(adapter), given(adapter))

    def made(accepted: "Mapping[str, LoraAdapter]", f: int) -> "LoraAdapter":
        measured = {key: book.token_losses(VALIDATION, key, given(adapter)) for key, adapter in accepted.items()}
        measured[BASE] = book.token_losses(VALIDATION, BASE, None)
        validation = ValidationLosses(base, book.examples[VALIDATION], measured, measuring)
        return choose(validation, accepted, recipe, f=f).adapter

    return made


def pool_losses(table: "Table") -> dict[str, Any]:
    """Test losses of the base and of four adapters of each kind (least, largest), and how often a back door obeys."""
    from benchmarks.consensus.vote.attacks import BACKDOOR
    from benchmarks.consensus.vote.game import TEST, TRIGGERED
    from benchmarks.consensus.vote.losses import given

    found: dict[str, Any] = {"base": round(table.book.mean(TEST, "base", None), 4)}
    for kind, adapters in table.pool.items():
        losses = [table.book.mean(TEST, one.key, given(one.adapter)) for one in adapters[:_SHOWN]]
        found[kind] = [round(min(losses), 4), round(max(losses), 4)]
    if BACKDOOR in table.pool:
        obeyed = [table.book.success(TRIGGERED, one.key, given(one.adapter)) for one in table.pool[BACKDOOR][:_SHOWN]]
        found["trigger_success"] = [round(min(obeyed), 3), round(max(obeyed), 3)]
    return found


def measure(table: "Table", plan: Plan, names: Sequence[str] = (), journal: "Journal | None" = None) -> dict[str, Any]:
    """All games of a plan, and what came of them."""
    return told(plan, names, journal, lambda missing: (games_of_draw(table, *draw) for draw in missing))


def measure_apart(
    opening: "Mapping[str, Any]", plan: Plan, names: Sequence[str], processes: int, journal: "Journal | None" = None
) -> dict[str, Any]:
    """The same in several processes with one thread each; every one of them opens the table, as `open_table` does."""
    with process_pool(processes, _sit_down, (dict(opening),)) as pool:
        return told(plan, names, journal, lambda missing: pool.map(_play_draw, missing))


def games_of_draw(table: "Table", n: int, seed: int, names: Iterable[str]) -> "list[Result]":
    """Attacks on the same honest voters."""
    from benchmarks.consensus.vote.attacks import ATTACKS
    from benchmarks.consensus.vote.game import play

    return [play(table, ATTACKS[name], n, seed) for name in names]


def told(
    plan: Plan,
    names: Sequence[str],
    journal: "Journal | None",
    play: "Callable[[Sequence[Draw]], Iterable[list[Result]]]",
) -> dict[str, Any]:
    """The figures of a plan's games: those that the journal knows, and the others played and added to it."""
    from benchmarks.consensus.vote.attacks import ATTACKS

    chosen = [name for name in ATTACKS if not names or name in names]
    wanted = [(n, seed) for n, seeds in plan.items() for seed in seeds]
    results = journal.known() if journal else {}
    missing = [(n, seed, tuple(a for a in chosen if (a, n, seed) not in results)) for n, seed in wanted]
    missing = [draw for draw in missing if draw[2]]
    begun = last = time.monotonic()
    for number, (draw, games) in enumerate(zip(missing, play(missing), strict=True), start=1):
        results |= {(game.attack, game.n, game.seed): game for game in games}
        if journal:
            journal.add(games)
        if time.monotonic() - last > _EVERY_S:
            last = time.monotonic()
            sys.stderr.write(f"{number} of {len(missing)} draws, n={draw[0]}, seed {draw[1]}, {last - begun:.0f} s\n")
    games = [results[name, n, seed] for n, seed in wanted for name in chosen]
    return {**summary(games), "games": len(games), "seconds": round(time.monotonic() - begun, 1)}


def so_far(plan: Plan, journal: "Journal") -> dict[str, Any]:
    """The figures of those games of a plan that the journal knows.

    Raises:
        InputError: it knows none.
    """
    from benchmarks.consensus.vote.attacks import ATTACKS

    draws = {(n, seed) for n, seeds in plan.items() for seed in seeds}
    order = {name: place for place, name in enumerate(ATTACKS)}
    games = [game for (_, n, seed), game in journal.known().items() if (n, seed) in draws]
    if not games:
        raise InputError(f"{journal.file or '--games'} holds no game of these settings: leave --known out to play them")
    games.sort(key=lambda game: (order[game.attack], game.n, game.seed))
    return {**summary(games), "games": len(games)}


_TABLE: list["Table"] = []  # of a process that plays


def _sit_down(opening: "dict[str, Any]") -> None:
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)
    threadpool_limits(1, user_api="blas")
    _TABLE.append(open_table(**opening)[0])


def _play_draw(draw: Draw) -> "list[Result]":
    return games_of_draw(_TABLE[0], *draw)
