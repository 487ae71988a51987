"""Runs full of hostile text in Dagster's history: metadata, a failed check, tags, log, output and the failure."""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from capibara_assets.checks.results import judged
from capibara_assets.partitions import domains
from capibara_assets_tests.escaping.hostile import HOST, HOSTILE
from capibara_assets_tests.escaping.shown import metadata, table_of

ASSET, CHECK = "moe_dataset", "examples_valid"
ESCAPED, UNESCAPED = "ml", "api"  # of its partitions, which the home has not made
SHOWN = "<img src=x onerror='owned = 1'>"
TEXT = " ".join(
    [
        *HOSTILE.values(),
        SHOWN,
        "<script>owned = 1</script></script><svg onload='owned = 1'>",
        f"[a](javascript:owned=1) [b](JaVaScRiPt:owned=1) <javascript:owned=1> ![p](https://{HOST}/p.png)",
        f"<iframe src=https://{HOST}/f srcdoc='<script>parent.owned = 1</script>'></iframe>",
    ]
)


def report_hostile(instance: dg.DagsterInstance) -> None:
    """Report two partitions of a dataset: one made of the text as our functions write it, one with it as Markdown."""

    @dg.asset(
        key=dg.AssetKey(ASSET), partitions_def=domains, check_specs=[dg.AssetCheckSpec(CHECK, asset=dg.AssetKey(ASSET))]
    )
    def made(context: dg.AssetExecutionContext) -> Iterator[Any]:
        if context.partition_key == UNESCAPED:
            yield dg.MaterializeResult(metadata={"unescaped": dg.MetadataValue.md(f"unescaped {TEXT}")})
            yield dg.AssetCheckResult(check_name=CHECK, passed=True)
            return
        print(TEXT)
        context.log.info(TEXT)
        ours = {f"md {place}": dg.MetadataValue.md(source) for place, source in metadata(TEXT).items()}
        texts = {"text": TEXT, "json": dg.MetadataValue.json({TEXT: [TEXT]}), "table": table_of(TEXT)}
        yield dg.MaterializeResult(metadata={**texts, **ours})
        found = judged([TEXT, TEXT], "", TEXT)
        yield dg.AssetCheckResult(
            check_name=CHECK, passed=found.passed, description=found.description, metadata=found.metadata
        )
        raise dg.Failure(TEXT, metadata=texts)

    for partition in (UNESCAPED, ESCAPED):
        tags = {"capibara/because": TEXT}
        dg.materialize([made], instance=instance, partition_key=partition, tags=tags, raise_on_error=False)


class Watch:
    """What the pages of a browser do that a hostile author wants them to do."""

    def __init__(self, page: Any, address: str):
        self._page, self._did = page, set[str]()
        page.on("dialog", self._dismiss)
        page.route(lambda url: not url.startswith((address, "data:", "blob:")), self._refuse)

    def _dismiss(self, dialog: Any) -> None:
        self._did.add("dialog")
        dialog.dismiss()

    def _refuse(self, route: Any) -> None:
        self._did.add("asked")
        route.abort()

    def did(self) -> set[str]:
        """What has happened, and what stands in the page as it is now and would happen at a click."""
        waits = {
            "ran": "window.owned",
            "handler": "[...document.querySelectorAll('*')].some(e => e.getAttributeNames().some(n => /^on/i.test(n)))",
            # Dagster puts `javascript:void(0)`, which does nothing, in place of a link that it refuses
            "link": r"[...document.querySelectorAll('[href], [src], [action]')].some(e => ['href', 'src', 'action']"
            r".some(n => /^\s*javascript:(?!void\(0\)$)/i.test(e.getAttribute(n) || '')))",
            "frame": "document.querySelector('iframe, object, embed') !== null",
            "script": "[...document.scripts].some(one => /owned ?= ?1|alert.1/.test(one.text))",
            "refresh": "document.querySelector('meta[http-equiv=refresh]') !== null",
        }
        return self._did | {name for name, script in waits.items() if self._page.evaluate(script)}
