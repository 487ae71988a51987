"""Reference cases to compile: steps near a chip's memory limit, drawn from a seed, and the steps of plans.

Every choice is the seed's; a draw is kept where OUR figure lies within BAND of the limit, whatever the compiler will
say of it. So nobody picks the cases that come out right, and anyone can draw others
(`python -m benchmarks plan-xla --draw`).
"""

from collections.abc import Iterator
from itertools import islice
from math import gcd, prod
from random import Random

from benchmarks.planning.xla_cases import known_cases, step_of
from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.errors import InputError
from capibara_assets.modeling.jax.sizes import check_supported
from capibara_assets.planning.accounting import Method, Optimizer, Remat
from capibara_assets.planning.hardware.declaration import HardwareTarget
from capibara_assets.planning.hardware.families import TpuFamily, slice_target
from capibara_assets.planning.hardware.targets import find_target, load_families
from capibara_assets.planning.mesh import Mesh, divisors, largest_tensor, submesh
from capibara_assets.planning.models import ModelShape
from capibara_assets.planning.recipe import PlanningRecipe
from capibara_assets.planning.tpu.configuration import plan_tpu
from capibara_assets.planning.tpu.memory import tpu_memory
from capibara_assets.planning.xla.case import XlaCase, case_of

BAND = (0.85, 1.15)  # of the chip's memory: where our figure has to lie
NEAREST = 0.02  # how far from the share that was drawn a batch may take it
FAMILIES = ("tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e")
MOST_CHIPS = 256
MOST_ROWS = 256  # a chip and pass; larger batches are nobody's plan
ENCODER_DECODERS = 0.15  # share of T5; the rest are decoders
SEQUENCES = {"decoder": (512, 1024, 2048, 4096, 8192), "t5": (256, 512, 1024)}
RANKS = (8, 16, 64)
EXAMPLES, TOKENS = 5000, 1024  # of the dataset that the plans are made for
CHOICES = (
    ("capibara-nano", "tpu-v5e-64"),
    ("t5_1_1-base", "tpu-v5e-64"),
    ("t5_1_1-large", "tpu-v4-64"),
    ("llama3.2-1b", "tpu-v4-64"),
    ("qwen3-1.7b", "tpu-v6e-64"),
    ("t5_1_1-xl", "tpu-v6e-64"),
    ("llama3.2-3b", "tpu-v5e-64"),
    ("phi3-mini", "tpu-v6e-64"),
    ("llama2-7b", "tpu-v5e-64"),
    ("mistral-7b", "tpu-v4-64"),
    ("llama3.1-8b", "tpu-v6e-64"),
    ("qwen3-8b", "tpu-v5e-64"),
    ("llama2-13b", "tpu-v6e-64"),
    ("yi-34b", "tpu-v6e-64"),
    ("llama3.1-70b", "tpu-v6e-256"),
)


def drawn_cases(seed: int, count: int, band: tuple[float, float] = BAND) -> list[tuple[str, XlaCase]]:
    """`count` cases by name, the same for the same seed (and the same figures of ours: they decide what is near)."""
    return list(islice(_cases(seed, band), count))


def chosen_cases() -> list[tuple[str, XlaCase]]:
    """The step of the plan that trains every weight of each of CHOICES: the search's first choice.

    Of the shipped recipe, but for the method: these plans' verdicts were asked for before decoders got adapters.
    """
    shapes = {one.case.shape.name: one.case.shape for one in known_cases().cases}
    shipped = shipped_recipe("planning", PlanningRecipe)
    recipe = shipped.model_copy(update={"tpu": shipped.tpu.model_copy(update={"method": "full"})})
    statistics = {
        "examples": EXAMPLES,
        "by_split": {"train": EXAMPLES},
        "tokens": {"p50": TOKENS, "p95": TOKENS, "max": TOKENS},
    }
    plans = (plan_tpu("python", statistics, shapes[model], find_target(target), recipe) for model, target in CHOICES)
    return [(f"P{number}", case_of(plan)) for number, plan in enumerate(plans, 1)]


def _cases(seed: int, band: tuple[float, float]) -> Iterator[tuple[str, XlaCase]]:
    shapes = _shapes()
    number = 0
    while True:
        number += 1
        # A chance of its own for each try: what one try uses up does not move the next.
        case = _case(Random(f"{seed}/{number}"), shapes, band)
        if case is not None:
            yield f"D{seed}-{number}", case


def _shapes() -> dict[str, list[ModelShape]]:
    """The models of the known cases that the JAX step has, by family; our own small base model is not among them."""
    by_family: dict[str, list[ModelShape]] = {"decoder": [], "t5": []}
    for shape in {one.case.shape.name: one.case.shape for one in known_cases().of("calibration", "judged")}.values():
        by_family[shape.family].append(shape)
    return {family: sorted(shapes, key=lambda one: one.name) for family, shapes in by_family.items()}


def _case(chance: Random, shapes: dict[str, list[ModelShape]], band: tuple[float, float]) -> XlaCase | None:
    """One try; None where its settings cannot be laid out, or no batch takes our figure near the share drawn."""
    shape = chance.choice(shapes["t5" if chance.random() < ENCODER_DECODERS else "decoder"])
    target = _target(chance)
    mesh = _mesh(chance, shape, target)
    sequence = chance.choice(SEQUENCES[shape.family])
    remat = chance.choice(tuple(Remat))
    lora = chance.random() < 0.25
    optimizer = chance.choice((Optimizer.ADAMW, Optimizer.ADAMW, Optimizer.ADAFACTOR))
    every = tuple(sorted({module.name for module in shape.linear_modules}))
    some = ("q", "v") if shape.family == "t5" else ("q_proj", "v_proj")
    rank, modules = chance.choice(RANKS), chance.choice((every, some))
    chunks, micro_steps = chance.choice((1, 4, 8, 16)), chance.choice((1, 1, 1, 4))
    packed = chance.random() < 0.5
    share = chance.uniform(*band)
    if mesh is None or (shape.context is not None and sequence > shape.context):
        return None
    assert target.xla_topology is not None
    case = XlaCase(
        shape=shape,
        topology=target.xla_topology,
        topology_options=target.xla_options,
        mesh=mesh,
        global_batch=mesh.batch_shards * micro_steps,
        sequence=sequence,
        remat=remat,
        method=Method.LORA if lora else Method.FULL,
        optimizer=optimizer,
        chunks=chunks,
        micro_steps=micro_steps,
        packed=packed and shape.family == "decoder",
        lora_rank=rank if lora else 0,
        lora_modules=modules if lora else (),
    )
    try:
        check_supported(shape, case.settings)
    except InputError:
        return None
    return _filled(case, share, target.usable_bytes, band)


def _target(chance: Random) -> HardwareTarget:
    family = load_families()[chance.choice(FAMILIES)]
    assert isinstance(family, TpuFamily)
    sizes = [count for count in family.counts_to() if 1 < count <= MOST_CHIPS]
    axes = family.shape_of(chance.choice(sizes))
    assert axes is not None
    return slice_target(family, "x".join(map(str, axes)))


def _mesh(chance: Random, shape: ModelShape, target: HardwareTarget) -> Mesh | None:
    """Half of the meshes without tensor parallelism, two thirds without repeated weights."""
    assert target.topology is not None
    chips = prod(target.topology.axes)
    tensors = [count for count in divisors(gcd(chips, largest_tensor(shape), 16)) if submesh(count, target.topology)]
    tensor = chance.choice(tensors) if chance.random() < 0.5 else 1
    data = chance.choice((1, 1, 2, 4)) if chance.random() < 0.5 else 1
    if chips // tensor % data or shape.hidden % (chips // tensor // data):
        return None
    return Mesh(data=data, fsdp=chips // tensor // data, tensor=tensor)


def _filled(case: XlaCase, share: float, limit: int, band: tuple[float, float]) -> XlaCase | None:
    """The case with the batch whose memory, by our figure, is nearest to that share of the limit."""
    unit = case.global_batch

    def taken(rows: int) -> float:
        larger = case.model_copy(update={"global_batch": unit * rows})
        return tpu_memory(case.shape, case.mesh, step_of(larger), micro_steps=case.micro_steps).total / limit

    low, high = 1, MOST_ROWS
    while low < high:  # the first batch that is over the share
        middle = (low + high) // 2
        low, high = (low, middle) if taken(middle) >= share else (middle + 1, high)
    rows = min((max(1, low - 1), low), key=lambda count: abs(taken(count) - share))
    near = abs(taken(rows) - share) <= NEAREST and band[0] <= taken(rows) <= band[1]
    return case.model_copy(update={"global_batch": unit * rows}) if near else None
