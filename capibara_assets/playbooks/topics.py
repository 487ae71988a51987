"""Which of the six domains a bullet speaks of: by few general words in its section, tags and content."""

import re
from functools import cache

from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.playbooks.schema import GENERAL

ENOUGH = 2
# a strong word names the domain and decides alone; weak words decide in pairs
_STRONG: dict[Domain, str] = {
    Domain.PYTHON: r"python|pytest|pip install|pep ?8|f-strings?|__init__|asyncio|list comprehensions?|docstrings?",
    Domain.SQL: r"sql|sqlite|postgres(?:ql)?|mysql|group by|order by|left join|inner join|select \*|pragma|foreign key",
    Domain.JAVASCRIPT: r"javascript|typescript|node\.?js|npm|console\.log|shadow ?root|queryselector|=== ?",
    Domain.DEBUG: r"debug(?:ging)?|traceback|stack ?trace|root cause|troubleshoot(?:ing)?|error handling|bug(?:s|fix)?",
    Domain.ML: r"machine learning|pytorch|tensorflow|scikit-learn|sklearn|numpy|neural net(?:work)?s?|overfit(?:ting)?",
    Domain.API: r"apis?|endpoints?|fastapi|http requests?|access_token|status codes?|pagination|webhooks?",
}
_WEAK: dict[Domain, str] = {
    Domain.PYTHON: r"dict|tuple|import|def|lambda|generator|decorator|itertools|class|none|list",
    Domain.SQL: r"join|query|queries|table|tables|column|columns|schema|index|transaction|null",
    Domain.JAVASCRIPT: r"promise|await|async|const|let|undefined|dom|closure|callback|prototype|array",
    Domain.DEBUG: r"error|errors|exception|fail|fails|failed|failure|failures|fix|retry|reproduce|assert|log|logs",
    Domain.ML: r"model|training|dataset|epoch|loss|classifier|regression|feature|features|accuracy|validation",
    Domain.API: r"request|requests|response|responses|http|json|client|server|login|token|header|payload|timeout",
}


def domains_of(section: str, tags: list[str] | tuple[str, ...], content: str) -> list[str]:
    """Domains of a bullet, best first; `["general"]` when none fits.

    A strong word scores 2 and twice that in the section or tags, distinct weak words 1 each; 2 points make a domain.
    """
    heading, body = f"{section} {' '.join(tags)}".lower().replace("_", " "), content.lower()
    scores = {
        domain: 4 * len(set(strong.findall(heading)))
        + 2 * len(set(strong.findall(body)))
        + len(set(weak.findall(body)))
        for domain, (strong, weak) in _patterns().items()
    }
    fitting = [domain for domain in DOMAINS if scores[domain] >= ENOUGH]
    return [domain.value for domain in sorted(fitting, key=lambda domain: -scores[domain])] or [GENERAL]


@cache
def _patterns() -> dict[Domain, tuple[re.Pattern[str], re.Pattern[str]]]:
    def whole_words(words: str) -> re.Pattern[str]:
        return re.compile(rf"(?<!\w)(?:{words})(?!\w)")

    return {domain: (whole_words(_STRONG[domain]), whole_words(_WEAK[domain])) for domain in DOMAINS}
