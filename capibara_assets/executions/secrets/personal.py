"""Rules for personal data: e-mail and IP addresses, redacted beside secrets if CAPIBARA_REDACT_ALSO asks for it."""

import ipaddress
import re
from collections.abc import Sequence
from functools import cache

from capibara_assets.errors import InputError
from capibara_assets.executions.secrets.rules import Rule

PERSONAL = ("email", "ip")


def personal_rules(also: Sequence[str]) -> tuple[Rule, ...]:
    """The rules for the named sorts of personal data.

    Raises:
        InputError: a sort is none of `PERSONAL`.
    """
    if unknown := sorted(set(also) - set(PERSONAL)):
        raise InputError(f"cannot redact {', '.join(unknown)}: choose from {', '.join(PERSONAL)}")
    return tuple(rule for sort in PERSONAL if sort in also for rule in _rules()[sort])


@cache
def _rules() -> dict[str, tuple[Rule, ...]]:
    address = re.compile(r"[A-Za-z0-9][A-Za-z0-9._%+-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![\w-])")
    four = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\d)", re.ASCII)
    six = re.compile(r"(?<![\w:.])[0-9A-Fa-f:]{2,39}:[0-9A-Fa-f:.]{0,39}(?![\w:])", re.ASCII)
    return {
        "email": (Rule("EMAIL", ("@",), address, whole_word=False, tail=""),),
        "ip": (
            Rule("IP", (".",), four, plausible=_address, tail=""),
            Rule("IP", (":",), six, plausible=_address, tail=""),
        ),
    }


def _address(text: str) -> bool:
    """Whether an IP address can identify a person: not loopback, unspecified, multicast or reserved."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified or address.is_multicast or address.is_reserved)
