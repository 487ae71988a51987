"""The domains as Dagster partitions, shared by all partitioned assets."""

import dagster as dg

from capibara_assets.domains import DOMAINS

domains = dg.StaticPartitionsDefinition([domain.value for domain in DOMAINS])
