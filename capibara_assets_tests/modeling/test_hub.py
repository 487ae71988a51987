"""Models of the Hub: no hang without a network, the size before the download, plain words for what is missing."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from capibara_assets.errors import InputError
from capibara_assets.modeling.hub import resolve_base
from capibara_assets_tests.served import QuietHandler, served

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub(QuietHandler):
    """Answers the one question that comes before a download: which files, how large."""

    def do_GET(self) -> None:
        siblings = [
            {"rfilename": "model.safetensors", "size": 5_000_000_000},
            {"rfilename": "pytorch_model.bin", "size": 9_000_000_000},
        ]
        if "pickled" in self.path:
            siblings = siblings[1:]
        status = 404 if "absent" in self.path else 200
        self.send(status, {"id": "some/model", "sha": COMMIT, "siblings": siblings})


@pytest.fixture(scope="module")
def hub() -> Iterator[str]:
    with served(FakeHub) as server:
        yield f"http://127.0.0.1:{server.server_port}"


def fetch_elsewhere(endpoint: str, home: Path, model: str, **environment: str) -> tuple[str, float]:
    """Fetch in a process of its own (the Hub's client reads its environment when imported); the error's text, and the
    seconds that the fetch took, without those of the start."""
    code = (
        "import time\nfrom capibara_assets.errors import InputError\nfrom capibara_assets.modeling.hub import fetch\n"
        f"began = time.monotonic()\ntry:\n    fetch({model!r}, 'main', 1_000_000_000)\n"
        "except InputError as error:\n    print(error)\nprint(time.monotonic() - began)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "PATH": "/usr/bin:/bin"} | environment,
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    error, _, seconds = done.stdout.rstrip().rpartition("\n")
    return error, float(seconds)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("some/model", "is 5,000,000,000 bytes, 1,000,000,000 are allowed"),
        ("some/pickled", "has no safetensors weights"),
        ("some/absent", "the Hub refused some/absent@main"),
        ("not a model", "no Hub model id"),
    ],
)
def test_what_cannot_be_fetched_is_refused_before_any_download(
    hub: str, tmp_path: Path, model: str, message: str
) -> None:
    assert message in fetch_elsewhere(hub, tmp_path, model)[0]


@pytest.mark.parametrize("offline", ["0", "1"])
def test_without_a_network_it_says_so_at_once(tmp_path: Path, offline: str) -> None:
    error, seconds = fetch_elsewhere("http://127.0.0.1:9", tmp_path, "some/model", HF_HUB_OFFLINE=offline)
    assert "cannot reach the Hub for some/model@main" in error
    assert seconds < 30


def test_locations(tmp_path: Path) -> None:
    assert resolve_base(str(tmp_path)) == tmp_path
    with pytest.raises(InputError, match="does not exist"):
        resolve_base("/no/such/folder")
    with pytest.raises(InputError, match="capibara model fetch nobody/nothing@main"):
        resolve_base("nobody/nothing@main")


@pytest.mark.parametrize("location", ["x" * 100_000, "a/" * 5000, "~nobody-of-this-name/x", "a\0b", "x\n\x1b[2J"])
def test_a_location_that_is_no_files_name_does_not_exist(location: str) -> None:
    with pytest.raises(InputError) as caught:
        resolve_base(location)
    said = str(caught.value)
    assert "does not exist" in said and len(said) < 400 and said.isprintable()
