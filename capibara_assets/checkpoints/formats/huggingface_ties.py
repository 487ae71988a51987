"""Which tied names a model's files may leave out, since whoever loads them ties them again."""

import json
from collections.abc import Mapping

from capibara_assets.checkpoints.content import Source, to_bytes
from capibara_assets.errors import InputError
from capibara_assets.modeling.files import ADAPTER_CONFIG, CONFIG


def left_out(files: Mapping[str, Source], ties: Mapping[str, str]) -> set[str]:
    """Names among the tied ones that need not be in the weight files, since whoever loads them makes the tie.

    With a `config.json`, the model's own class says which: it is built from the config on the meta device, without
    weights. A class that Transformers lacks ties nothing, for all that is known. With an `adapter_config.json` nothing
    is left out: PEFT takes a missing name for an untrained one, in silence. Without either, a checkpoint is for
    `safetensors.torch.load_model`, which wants each shared tensor once.

    Args:
        files: the checkpoint's files.
        ties: name -> the name whose storage it shares.

    Raises:
        InputError: the config is not JSON, or its class cannot be built from it.
    """
    if not ties or ADAPTER_CONFIG in files:
        return set()
    if CONFIG not in files:
        return set(ties)
    try:
        settings = json.loads(to_bytes(files[CONFIG]))
        names = settings.get("architectures") or []
    except (ValueError, AttributeError) as error:
        raise InputError(
            f"config.json is no JSON object: which of {', '.join(ties)} the model ties is unknown"
        ) from error

    def kept(name: str) -> str:
        return ties.get(name, name)

    known = {name: source for architecture in names for name, source in _ties_of(architecture, settings).items()}
    return {name for name, to in known.items() if kept(name) == kept(to) in ties.values()}


def _ties_of(architecture: str, settings: Mapping[str, object]) -> dict[str, str]:
    import torch
    import transformers

    known = getattr(transformers, architecture, None)
    if known is None or not hasattr(known, "config_class"):
        return {}
    try:
        with torch.device("meta"):
            model = known(known.config_class.from_dict(dict(settings)))
    except (TypeError, ValueError, KeyError, AttributeError, RuntimeError) as error:
        raise InputError(f"config.json does not describe a {architecture} that can be built: {error}") from error
    return dict(model.all_tied_weights_keys)
