"""The domains as Dagster partitions, shared by all partitioned assets."""

import dagster as dg

from capibara_assets.domains import DOMAINS

domains = dg.StaticPartitionsDefinition([domain.value for domain in DOMAINS])

READS_EVERY = "capibara/reads-every"
"""Tag of an asset: the parent of which it may read all partitions, though its own one alone wakes it."""

DOES_WITHOUT = "capibara/does-without"
"""Tag of an asset: the parent without which it can be made, in some cases."""
