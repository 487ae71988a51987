"""The vote in this process: what `polling.hold_vote` does, without isolation, crashes or timeouts."""

from collections.abc import Sequence
from dataclasses import replace

from capibara_assets.consensus.election.ballots import Ballot
from capibara_assets.consensus.election.confirmations import Confirmation
from capibara_assets.consensus.election.polling import Decide, Poll
from capibara_assets.consensus.election.voter import Assignment, Evaluate, answer, confirmation_of, own_key
from capibara_assets.modeling.base import Base


def hold_here(
    base: Base,
    assignments: Sequence[Assignment],
    timeout: float,
    retries: int,
    decide: Decide | None = None,
    *,
    evaluate: Evaluate | None = None,
) -> Poll:
    """Run the same vote in this process, for simulations without isolation, crashes or timeouts."""
    own = {each.voter: own_key(each) for each in assignments}
    answers = {each.voter: answer(each, base, evaluate=evaluate, key=own[each.voter]) for each in assignments}
    ballots = [Ballot.model_validate(ballot) for each in answers.values() for ballot in each["ballots"]]
    poll = Poll({voter: each["public_key"] for voter, each in answers.items()}, tuple(ballots), {})
    asked = {} if decide is None else decide(poll)
    said = {
        each.voter: confirmation_of(each, base, answers[each.voter], proposal, own[each.voter], evaluate=evaluate)
        for each in assignments
        if (proposal := asked.get(each.voter)) is not None
    }
    refused = {voter: f"refused: {each['refused']}" for voter, each in sorted(said.items()) if "refused" in each}
    given = [Confirmation.model_validate(each["confirmation"]) for v, each in sorted(said.items()) if v not in refused]
    return replace(poll, confirmations=tuple(given), unconfirmed=refused)
