"""`python -m tests.policy.crowded BASE N`: whether what reasons say is true, on N fresh crowds under every policy."""

from __future__ import annotations

import sys
from random import Random

from tests.policy.crowds import crowd
from tests.policy.remedies import untrue, untrue_of_holders
from tests.policy.worlds import NAMES


def main(base: int, count: int) -> int:
    wrong = 0
    for seed in range(base, base + count):
        jobs = Random(seed).randint(2, 14)
        snapshot = crowd(seed, jobs)
        for policy in NAMES:
            for words in untrue(snapshot, policy) + untrue_of_holders(snapshot, policy):
                wrong += 1
                print(seed, jobs, words, flush=True)
    print(f"{count} crowds under {len(NAMES)} policies: {wrong} untrue")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]), int(sys.argv[2])))
