"""HTML pages from templates: everything is text, nothing is loaded from elsewhere, nothing runs."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from capibara_assets.escaping.languages import visible

# For the `Content-Security-Policy` of each template: styles of its own and drawings in it, and nothing else
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def html_page(package: str, template: str, values: Mapping[str, Any], **filters: Callable[[Any], str]) -> str:
    """A page of a package's `templates/`; values are escaped, but those that the template marks as drawn by us.

    Args:
        values: by name; the template has to find all that it names.
        filters: further filters of the template, by name.
    """
    environment = _environment(package).overlay()
    environment.filters = {**environment.filters, **filters}
    page: str = environment.get_template(template).render(values, policy=POLICY)
    return visible(page)


@cache
def _environment(package: str) -> Environment:
    environment = Environment(
        loader=PackageLoader(package), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["visible"] = visible
    return environment
