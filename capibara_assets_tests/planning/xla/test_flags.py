"""XLA flags: libtpu itself accepts or refuses them; without it they are called not checked."""

from importlib.util import find_spec

import pytest

from capibara_assets.errors import InputError
from capibara_assets.planning.xla import flags as xla_flags
from capibara_assets.planning.xla.flags import check_xla_flags

FUSION = "--xla_tpu_enable_async_collective_fusion=true"
needs_libtpu = pytest.mark.skipif(find_spec("libtpu") is None, reason="libtpu is not installed (extra aot)")


@needs_libtpu
def test_a_real_flag_is_accepted() -> None:
    verdict = check_xla_flags([FUSION])
    assert verdict.status == "accepted" and verdict.libtpu


@needs_libtpu
def test_the_specifications_other_flag_does_not_exist() -> None:
    """`xla_tpu_enable_data_parallelism` is no flag of libtpu's; the nearest that is has another name."""
    with pytest.raises(InputError) as refused:
        check_xla_flags([FUSION, "--xla_tpu_enable_data_parallelism=true", "--xla_tpu_no_such=1"])
    message = str(refused.value)
    assert "it has no xla_tpu_enable_data_parallelism" in message
    assert "it has no xla_tpu_no_such" in message
    assert "async_collective_fusion" not in message.split("did you mean")[0]


@needs_libtpu
def test_the_hint_is_a_flag_that_exists() -> None:
    with pytest.raises(InputError, match=r"did you mean xla_tpu_enable_async_collective_fusion\?"):
        check_xla_flags(["--xla_tpu_enable_async_colective_fusion=true"])


@needs_libtpu
def test_a_value_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="xla_tpu_enable_async_collective_fusion does not take 'banana'"):
        check_xla_flags(["--xla_tpu_enable_async_collective_fusion=banana"])


@pytest.mark.parametrize("flag", ["xla_tpu_x=1", "--xla tpu", "", "--xla_a=1 --xla_b=2", "--=1"])
def test_what_is_no_flag_is_refused(flag: str) -> None:
    with pytest.raises(InputError, match="not written as --name=value"):
        check_xla_flags([flag])


def test_without_libtpu_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xla_flags, "find_spec", lambda name: None)
    xla_flags._checked.cache_clear()
    verdict = check_xla_flags([FUSION])
    assert verdict.status == "not checked" and "not checked" in verdict.detail
    xla_flags._checked.cache_clear()


def test_no_flags_need_no_libtpu() -> None:
    assert check_xla_flags([]).status == "no flags"
