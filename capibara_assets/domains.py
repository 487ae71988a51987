"""The six expert domains: the partitions of the asset graph and the experts of the mixture."""

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
