"""What a job claims against what the clock and its likes say. A claim that cannot be true is not used.

Three checks, each with a reason for people:

* the clock: iterations it claims to have done since the last look, over the seconds that passed while it ran, are a
  rate that no claim of its own may exceed (a step time that would have allowed more iterations than were done is a
  lie or the time of something else), nor fall short of by much (then it counts more iterations than it trains);
* its likes: a rate far above that of other jobs with the same model key, GPU type and count;
* itself: progress beyond its own total, or backwards without a restart.

The tolerances are wide: a false alarm takes a job's own numbers away from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

#: a claimed rate may exceed the clock's by this factor (pauses for validation and checkpoints lie between)
CLOCK_FACTOR = 1.5
#: the clock may exceed a claimed rate by this factor (the claim may be an average with slow first steps)
SLOW_FACTOR = 1.5
#: a rate above that of its likes by this factor is not believed, if there are enough of them
PEER_FACTOR = 2.0
FEWEST_PEERS = 2
#: seconds that the clock must have run before it judges
LONG_ENOUGH_S = 30.0


@dataclass(frozen=True, slots=True)
class Claim:
    """What a job says of itself."""

    done: float  #: iterations
    total: float | None = None
    seconds: float | None = None  #: an iteration


@dataclass(frozen=True, slots=True)
class Watched:
    """What was seen from outside between two looks, while the job ran without a break."""

    seconds: float
    done_before: float
    restarted: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """`rate`: iterations/s to use, None when nothing can be believed. `reasons` are empty when all is well."""

    rate: float | None
    claimed_used: bool
    progress_believed: bool
    reasons: tuple[str, ...] = ()


def judge(claim: Claim, watched: Watched | None, peers: Sequence[float] = ()) -> Verdict:
    """`peers`: rates (iterations/s) of other jobs with the same key at the same GPU type and count."""
    if not math.isfinite(claim.done) or claim.done < 0:
        return Verdict(None, False, False, ("it claims a progress that is no number",))
    reasons: list[str] = []
    believed = claim.total is None or claim.done <= claim.total * 1.001 + 1
    if not believed:
        reasons.append(f"it claims {claim.done:.0f} of {claim.total:.0f} iterations")
    claimed = 1 / claim.seconds if claim.seconds and claim.seconds > 0 and math.isfinite(claim.seconds) else None
    use = _by_the_clock(claim, claimed, watched, reasons)
    own = claimed is not None and use is claimed
    known = [p for p in peers if p > 0 and math.isfinite(p)]
    if use is not None and len(known) >= FEWEST_PEERS and use > PEER_FACTOR * max(known):
        reasons.append(
            f"{use:.3g} iterations/s is {use / median(known):.1f} times what {len(known)} other jobs with the same "
            "model key reach at the same place: their rate is used"
        )
        use, own, believed = median(known), False, False
    return Verdict(use, own, believed, tuple(reasons))


def _by_the_clock(claim: Claim, claimed: float | None, watched: Watched | None, reasons: list[str]) -> float | None:
    """The claimed rate, or the clock's where the claim cannot be true; why, into `reasons`."""
    clocked = _clocked(claim, watched, reasons)
    if clocked is None or clocked <= 0:
        return claimed
    if claimed is None:
        return clocked
    if claimed > clocked * CLOCK_FACTOR:
        reasons.append(
            f"it claims {1 / claimed:.3g} s an iteration, but {claim.done:.0f} - {watched_from(watched):.0f} "
            f"iterations took {1 / clocked:.3g} s each by the clock"
        )
        return clocked
    if clocked > claimed * SLOW_FACTOR:
        reasons.append(
            f"its progress is {clocked / claimed:.1f} times as fast as the iterations it times: "
            "it counts more than it trains, or times something else"
        )
        return clocked
    return claimed


def _clocked(claim: Claim, watched: Watched | None, reasons: list[str]) -> float | None:
    """The rate of its progress by the clock; None where that was not watched for long enough, or went back."""
    if watched is None or watched.seconds < LONG_ENOUGH_S:
        return None
    moved = claim.done - watched.done_before
    if moved >= 0:
        return moved / watched.seconds
    if not watched.restarted:
        reasons.append(f"its progress went back from {watched.done_before:.0f} to {claim.done:.0f}")
    return None


def watched_from(watched: Watched | None) -> float:
    return 0.0 if watched is None else watched.done_before
