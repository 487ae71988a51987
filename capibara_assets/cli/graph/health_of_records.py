"""Checks of what a store records for good, for `capibara doctor`: the history of promotions, the log of certificates.

Both are chains whose every line is read: a store that lost one serves on, and nothing else would tell it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from capibara_assets.deployment.environment import Deployment
from capibara_assets.domains import DOMAINS
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.storage.mirror import is_remote
from capibara_assets.training.plan.preflight import CheckFinding

if TYPE_CHECKING:
    from capibara_assets.storage.store import ArtifactStore


def check_records(deployment: Deployment) -> list[CheckFinding]:
    """Check that promotions and certificates are whole chains, and that each current certificate stands in its log."""
    root = Path(deployment.store)
    if is_remote(deployment.store) or not (root / "artifacts").is_dir():
        return []
    from capibara_assets.checkpoints.artifacts import open_artifacts

    store = open_artifacts(deployment.store, deployment.work)
    return [*_promotions(store, root), *_certificates(store, root)]


def _promotions(store: "ArtifactStore", root: Path) -> Iterator[CheckFinding]:
    from capibara_assets.evaluation.serving.promotion_log import FOLDER, PromotionLog

    if not (root / FOLDER).exists():
        return
    try:
        moves = len(PromotionLog(store).moves())
    except (IntegrityError, InputError) as error:
        todo = f"put {root / FOLDER} back from a copy: until then nothing is promoted, rolled back or exported"
        yield CheckFinding("promotions", "fail", str(error), todo)
    else:
        yield CheckFinding("promotions", "pass", f"{moves} moves, each follows from the one before it")


def _certificates(store: "ArtifactStore", root: Path) -> Iterator[CheckFinding]:
    from capibara_assets.consensus.certificates.certificate_log import CertificateLog, read_log
    from capibara_assets.consensus.certificates.public_record import LOG

    made, log = list(_published(store, root)), CertificateLog()
    try:
        log = read_log(root / LOG) if made or (root / LOG).exists() else log
        problem = log.problem
    except (IntegrityError, InputError) as error:
        problem = str(error)
    absent = [domain for domain, election, digest in made if not problem and digest not in log.of(election)]
    if problem or absent:
        found = problem or f"the certificate of {', '.join(absent)} does not stand in {root / LOG}"
        todo = f"put {root / LOG} back from a copy, and compare its head with one that others keep"
        yield CheckFinding("certificates", "fail", found, todo)
    elif log.lines:
        yield CheckFinding("certificates", "pass", f"{len(log.lines)} lines, the current certificates stand in them")


def _published(store: "ArtifactStore", root: Path) -> Iterator[tuple[str, str, str]]:
    """Domain, election and digest of the latest certificates whose election was published in this store."""
    from capibara_assets.consensus.certificates.public_record import ELECTIONS

    for domain in DOMAINS:
        try:
            latest = store.latest("consensus_checkpoint", domain)
            certificate = latest.document("certificate") if latest and latest.has("certificate") else {}
        except (IntegrityError, InputError):
            continue  # the check of the store tells it
        election = certificate.get("election")
        if election and (root / ELECTIONS / f"{election}.json").exists():
            yield str(domain), election, certificate["digest"]
