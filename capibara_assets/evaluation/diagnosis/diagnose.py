"""Diagnose a model: files, tokenizer, template, adapter, placement and behaviour, in this order.

A later check runs only where no earlier finding explains it, so that NaN in a weight is one finding, not five.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError

from capibara_assets.errors import InputError
from capibara_assets.evaluation.answering.streaming import quiet
from capibara_assets.evaluation.contenders.model_folder import ModelFolder, more_than_pairs, opened
from capibara_assets.evaluation.diagnosis import adapter as adapters
from capibara_assets.evaluation.diagnosis import behaviour as behaving
from capibara_assets.evaluation.diagnosis import files
from capibara_assets.evaluation.diagnosis import text as texts
from capibara_assets.evaluation.diagnosis.catalogue import Diagnosis
from capibara_assets.evaluation.diagnosis.placement import DeviceMap, check_deepspeed, check_placement
from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.modeling.base import Base, load_base, load_tokenizer, running
from capibara_assets.modeling.files import GENERATION, read_config, read_json_object

_HALF = ("float16", "torch.float16")
_INFO = "training_info.json"


@dataclass(frozen=True)
class ExaminationStep:
    """The result of one check.

    Attributes:
        status: `skip` where an earlier finding makes the check meaningless.
        found: the findings with figures, or why the check was skipped.
    """

    name: str
    status: Literal["pass", "fail", "skip"]
    found: str
    diagnoses: tuple[Diagnosis, ...] = ()


@dataclass
class Examination:
    """The results of all checks, in order."""

    steps: list[ExaminationStep] = field(default_factory=list)

    @property
    def diagnoses(self) -> list[Diagnosis]:
        """The diagnoses of all checks."""
        return [diagnosis for step in self.steps for diagnosis in step.diagnoses]

    @property
    def broken(self) -> str:
        """The errors so far, which make further checks meaningless; empty where there are none."""
        return ", ".join(dict.fromkeys(one.id for one in self.diagnoses if one.severity == "error"))

    def run(self, name: str, sound: str, check: Callable[[], list[Diagnosis]]) -> bool:
        """Run a check and record its result; returns whether it passed. An unreadable file is a finding, too."""
        try:
            diagnoses = check()
        except (InputError, SafetensorError) as error:
            diagnoses = [Diagnosis("does_not_load", str(error), {"step": name})]
        if diagnoses:
            words = "; ".join(one.found for one in diagnoses)
            self.steps.append(ExaminationStep(name, "fail", words, tuple(diagnoses)))
        else:
            self.steps.append(ExaminationStep(name, "pass", sound))
        return not diagnoses

    def skip(self, *names: str, why: str) -> None:
        """Record checks as skipped."""
        self.steps += [ExaminationStep(name, "skip", f"not judged: {why}") for name in names]

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "healthy": not self.diagnoses,
            "diagnoses": [one.document() for one in self.diagnoses],
            "steps": [{"name": one.name, "status": one.status, "found": one.found} for one in self.steps],
        }


@dataclass(frozen=True)
class LoadingConditions:
    """How the model is loaded elsewhere, where it fails.

    Attributes:
        device_map: argument of `from_pretrained`; None: none.
        deepspeed: file with DeepSpeed's settings.
        script: source of a training script.
        fp16: whether the model is served in fp16 regardless of its config.
    """

    device_map: DeviceMap | None = None
    deepspeed: Path | None = None
    script: Path | None = None
    fp16: bool = False


def examine(model: ModelFolder, circumstances: LoadingConditions | None = None) -> Examination:
    """Examine a model, or an adapter and its base, without changing or downloading anything.

    Raises:
        InputError: a file of the loading conditions cannot be read.
    """
    how = circumstances or LoadingConditions()
    done = Examination()
    placed = check_deepspeed(how.device_map, how.deepspeed, how.script)
    with quiet():
        if model.is_adapter and model.base is None:
            base = f"the base of {model.folder} is not here: give it with --base"
            done.run(
                "base", "", lambda: [Diagnosis("base_mismatch", base, {"wanted": (model.base_digest or "?")[:12]})]
            )
        folders = [(model.folder, model.is_adapter)]
        if model.base is not None:
            folders.append((model.base, False))
        for folder, adapter in folders:
            name = "weights" if folder == model.folder else "base's weights"
            if done.run(name, "whole", partial(files.check_whole, folder, adapter=adapter)):
                done.run(f"{name}, values", "finite", partial(files.check_finite, folder, adapter=adapter))
        if any(one.id in ("weights_torn", "does_not_load") for one in done.diagnoses) or (
            model.is_adapter and model.base is None
        ):
            done.skip("tokenizer", "template", "loading", "behaviour", why=done.broken)
        else:
            _examine_whole(done, model, how)
    if placed:
        done.run("who places", "", lambda: placed)
    elif how.device_map is not None or how.deepspeed or how.script:
        done.run("who places", "one of them alone", list)
    return done


def _examine_whole(done: Examination, model: ModelFolder, how: LoadingConditions) -> None:
    """The checks that need complete weight files."""
    whole = model.whole
    done.run("tied weights", "as config.json says", lambda: files.check_ties(whole))
    pairs = None
    if model.is_adapter:
        pairs = _examine_adapter(done, model)
    merged = not model.is_adapter and files.is_merge(whole)
    done.run("few bits", "nothing merged into them", lambda: files.check_quantised(whole, pairs, merged=merged))
    _examine_text(done, model)
    if done.broken:
        done.skip("loading", "behaviour", why=f"first mend {done.broken}")
        return
    _examine_loaded(done, model, how)


def _examine_adapter(done: Examination, model: ModelFolder) -> LoraAdapter | None:
    """Check the adapter; returns its pairs where they are sound."""
    pairs = adapters.pairs_of(model.folder)
    beyond = more_than_pairs(model.folder)
    fits = done.run("base", "the one it was trained on", lambda: adapters.check_base(model))
    sound = done.run("adapter", f"{len(pairs.modules)} modules, trained", lambda: adapters.check_factors(pairs))
    if fits:
        fits = done.run("targets", "all in the base", lambda: adapters.check_fits(pairs, model.whole))
    return pairs if sound and fits and not beyond else None


def _examine_text(done: Examination, model: ModelFolder) -> None:
    """Check tokenizer and template: the model's own, or the adapter's where its folder has them, else the base's."""
    where = model.folder if (model.folder / "tokenizer_config.json").is_file() else model.whole
    try:
        tokenizer = load_tokenizer(where)
        compared = model.base if model.base is not None and model.base != where else None
        reference = load_tokenizer(compared) if compared else None
    except InputError as error:
        message = str(error)
        done.run("tokenizer", "", lambda: [Diagnosis("does_not_load", message)])
        return
    if reference is not None and compared is not None:
        sound = done.run("tokenizer", "the base's", lambda: texts.check_tokenizers(tokenizer, reference, compared))
        if not sound:
            done.skip("vocabulary", "special tokens", "template", why="the tokenizer is another model's")
            return
    done.run("vocabulary", "as many rows as tokens", lambda: files.check_vocabulary(model.whole, tokenizer))
    done.run("special tokens", "ids as config.json has them", lambda: texts.check_special_ids(model.whole, tokenizer))
    if not done.run("template", "renders every turn", lambda: texts.check_template(tokenizer)):
        return
    manifest = next((f / _INFO for f in (model.folder, model.folder.parent) if (f / _INFO).is_file()), None)
    if done.run(
        "turns",
        "as the base's and the training's" if reference or manifest else "nothing to compare with",
        lambda: texts.check_template_against(tokenizer, reference, compared, manifest),
    ):
        tokens = texts.template_tokens(tokenizer)
        done.run("turn tokens", f"{len(tokens)} trained", lambda: files.check_token_rows(model.whole, tokens))
        done.run("end of turn", "stops generation", lambda: texts.check_end(tokenizer, _ends(model.whole)))


def _examine_loaded(done: Examination, model: ModelFolder, how: LoadingConditions) -> None:
    if how.device_map is not None:
        done.run("placement", "one device", lambda: check_placement(_as_mapped(model.whole, how.device_map)))
    own: behaving.Behaviour | None = None
    other: behaving.Behaviour | None = None

    def run() -> list[Diagnosis]:
        nonlocal own, other
        base = load_base(model.base) if model.base is not None else None
        examples = behaving.sane_tokens(base) if base is not None else None
        plain = behaving.logits_of(base.model, examples) if base is not None and examples else None
        other = behaving.behaviour(base, examples) if base is not None and examples else None
        del base
        with opened(model, incomplete=True) as loaded, running(model.whole):
            if diagnoses := _unfit(loaded) + check_placement(loaded.model):
                return diagnoses
            mine = behaving.sane_tokens(loaded)
            logits = behaving.logits_of(loaded.model, mine)
            if diagnoses := behaving.check_logits(logits):
                return diagnoses
            if plain is not None and model.is_adapter and (diagnoses := _effect(plain, logits)):
                return diagnoses
            if _in_fp16(model.whole) or how.fp16:
                diagnoses = behaving.check_fp16(loaded.model, mine)
            own = behaving.behaviour(loaded, mine)
            return diagnoses + behaving.judge(own, other)

    done.run("behaviour", "", run)
    if own is not None and done.steps[-1].status == "pass":
        done.steps[-1] = ExaminationStep("behaviour", "pass", behaving.figures(own, other))


def _effect(plain: Any, logits: Any) -> list[Diagnosis]:
    import torch

    return adapters.check_effect(torch.cat(list(plain)), torch.cat(list(logits)))


def _unfit(loaded: Base) -> list[Diagnosis]:
    """Diagnose parameters that are in no file, and tensors that have no parameter."""
    diagnoses = []
    if loaded.new_layers:
        output = getattr(loaded.model, "get_output_embeddings", lambda: None)()
        heads = {n for n, module in loaded.model.named_modules() if module is output}
        is_head = any(name.rpartition(".")[0] in heads for name in loaded.new_layers)
        words = f"{len(loaded.new_layers)} parameters are in no file: {', '.join(loaded.new_layers[:3])}"
        evidence = {"parameters": list(loaded.new_layers)}
        diagnoses.append(Diagnosis("head_missing" if is_head else "weights_missing", words, evidence))
    if loaded.unread:
        words = f"{len(loaded.unread)} tensors of the files have no place: {', '.join(loaded.unread[:3])}"
        diagnoses.append(Diagnosis("weights_unread", words, {"tensors": list(loaded.unread)}))
    return diagnoses


def _as_mapped(folder: Path, device_map: DeviceMap | None) -> Any:
    """Load the model with a device_map."""
    import tempfile

    from transformers import AutoModelForCausalLM

    with tempfile.TemporaryDirectory() as offloaded:
        try:
            return AutoModelForCausalLM.from_pretrained(
                folder,
                device_map=dict(device_map) if isinstance(device_map, Mapping) else device_map,
                offload_folder=offloaded,
                local_files_only=True,
                trust_remote_code=False,
            )
        except (OSError, ValueError, RuntimeError) as error:
            raise InputError(f"{folder} cannot be loaded with device_map {device_map!r}: {error}") from error


def _ends(folder: Path) -> set[int]:
    """Tokens at which Transformers' `generate` stops, by the generation config, else the config."""
    ends = read_config(folder).get("eos_token_id")
    if (folder / GENERATION).is_file():
        stated = read_json_object(folder / GENERATION).get("eos_token_id")
        ends = ends if stated is None else stated
    return set(ends) if isinstance(ends, list) else set() if ends in (None, -1) else {ends}  # -1: none


def _in_fp16(folder: Path) -> bool:
    """Whether the model is served in fp16: its config says so, or its files hold it so."""
    config = read_config(folder)
    if (stated := config.get("dtype") or config.get("torch_dtype")) is not None:
        return str(stated) in _HALF
    return any(kind == "F16" for _, kind in files.shapes_of(folder).values())
