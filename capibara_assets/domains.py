"""The expert domains: the partitions of the asset graph and the experts of the mixture.

A new domain is a new member of `Domain`. If it is named after a programming language, executions in that language
belong to it. If a Python program's imports and calls tell it, add it to `TOLD_BY_LIBRARIES`, and its libraries to
`executions/labels/libraries.py`.
"""

from enum import StrEnum


class Domain(StrEnum):
    """An expert domain; its value is the partition key."""

    PYTHON = "python"
    SQL = "sql"
    JAVASCRIPT = "javascript"
    DEBUG = "debug"
    ML = "ml"
    API = "api"


DOMAINS: tuple[Domain, ...] = tuple(Domain)
WHOLE = "_"  # stands for "not partitioned" where a partition is named

TOLD_BY_LIBRARIES = (Domain.SQL, Domain.API, Domain.ML)
"""Domains that a Python program may belong to instead of plain Python; of equal scores the earlier one counts."""

_NO_LANGUAGE = (Domain.PYTHON, Domain.DEBUG, Domain.ML, Domain.API)  # not decided by an execution's language alone
_OTHER_NAMES = {"typescript": "javascript", "bash": "shell"}  # language -> name of the domain that it would belong to
DOMAIN_OF_LANGUAGE = {domain.value: domain for domain in DOMAINS if domain not in _NO_LANGUAGE}
DOMAIN_OF_LANGUAGE |= {name: Domain(other) for name, other in _OTHER_NAMES.items() if other in DOMAINS}
"""Language of an execution -> its domain; Python programs are told by their libraries, shell commands by what they run
where `shell` is no domain."""
