"""Loading of a model's tokenizer from files that a stranger made."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capibara_assets.deployment.documents import LARGEST_DOCUMENT
from capibara_assets.errors import InputError, named
from capibara_assets.modeling.files import CONFIG, read_config, read_json_object
from capibara_assets.storage.foreign import read_by_library

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_OF_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                  "chat_template.jinja")  # fmt: skip
_PROBE = "def f(x):\n    return x + 1"


def load_tokenizer(path: Path) -> "PreTrainedTokenizerBase":
    """Load the tokenizer of a folder, without network access and without running code of the folder.

    Raises:
        InputError: it cannot be loaded or makes no tokens of a text; it names the damaged file, where one is.
    """
    from transformers import AutoTokenizer

    if (path / CONFIG).is_file():
        read_config(path)  # by which Transformers chooses the tokenizer's class
    files = ", ".join(name for name in _OF_TOKENIZERS if (path / name).is_file())
    with _naming_files(path), read_by_library(f"the tokenizer of {path} ({files}) cannot be loaded"):
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
        _require_declared(tokenizer, path / "tokenizer.json")
        ids = tokenizer(_PROBE).input_ids  # one that reads no text fails where it is used, deep in a command
    if not ids or not all(isinstance(token, int) for token in ids):
        raise InputError(f"the tokenizer of {path} ({files}) makes {str(ids)[:40]} of {_PROBE!r}")
    return tokenizer


@contextmanager
def _naming_files(path: Path) -> Iterator[None]:
    """Context in which a tokenizer that cannot be loaded is told by its damaged file, where one is."""
    try:
        yield
    except InputError:
        for name in _OF_TOKENIZERS:
            file = path / name
            if not file.is_file() or file.stat().st_size > LARGEST_DOCUMENT:
                continue
            if name.endswith(".json"):
                read_json_object(file)
            elif (text := file.read_bytes()).decode(errors="replace").encode() != text:
                raise InputError(f"{file} is no text in UTF-8") from None
        raise


def _require_declared(tokenizer: Any, file: Path) -> None:
    """Check the tokens that a template puts around a text: of one without an id, the library panics when it is used."""
    processor = getattr(getattr(tokenizer, "backend_tokenizer", None), "post_processor", None)
    stated = json.loads(processor.__getstate__()) if processor is not None else {}
    for one in (stated, *stated.get("processors", ())):
        parts = [*one.get("single", ()), *one.get("pair", ())] if one.get("type") == "TemplateProcessing" else []
        used = {part["SpecialToken"]["id"] for part in parts if "SpecialToken" in part}
        if undeclared := sorted(used - one.get("special_tokens", {}).keys()):
            raise InputError(f"{file}: post_processor puts {named(undeclared[0])!r} around a text, without its id")
