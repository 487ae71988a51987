"""The six domains as Dagster's partitions, once for every asset."""

import dagster as dg

from capibara_assets.domains import DOMAINS

domains = dg.StaticPartitionsDefinition([domain.value for domain in DOMAINS])
