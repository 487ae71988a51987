"""`capibara consensus keys`: made, registered, shown; what is refused exits as bad input."""

import json
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from capibara_assets.cli.checkpoint.consensus import consensus
from capibara_assets.errors import InputError


def _said(*arguments: str | Path) -> str:
    found = CliRunner().invoke(consensus, ["keys", *map(str, arguments)], standalone_mode=False)
    if found.exception is not None:
        raise found.exception
    return found.stdout


def test_from_a_new_key_to_a_registry(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    folder.mkdir(mode=0o700)
    file, registry = folder / "voter-0.key", folder / "registry.json"
    public = _said("new", "voter-0", "--out", file).strip()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert _said("show", file).strip() == public
    assert _said("register", registry, "voter-0", public) == f"{registry}: 1 voter\n"
    assert json.loads(_said("show", registry)) == json.loads(registry.read_text()) == {"voter-0": public}
    for arguments, words in (
        (("new", "voter-0", "--out", file), "never overwritten"),
        (("new", "voter-0", "--out", tmp_path / "none" / "a.key"), "cannot write"),
        (("register", registry, "voter-1", public), "one key is one voter's"),
        (("show", tmp_path / "none.key"), "cannot be read"),
    ):
        with pytest.raises(InputError, match=words):
            _said(*arguments)
