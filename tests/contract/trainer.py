"""The contract suite's real trainer: `python trainer.py BEHAVIOUR [STEP_SECONDS]`.

Standard library and `horae.elastic` alone, any Python from 3.7 on, so that it runs on the nodes of every cluster.
"""

# Python 3.7:
# ruff: noqa: PTH103, PTH118, UP031

import os
import sys
import time

from horae import elastic

FAILURE_CODE = 7


def main() -> int:
    behaviour = sys.argv[1]
    step_s = float(sys.argv[2]) if len(sys.argv) > 2 else 0.02
    steps = 6 if behaviour in ("finishes", "fails", "fails-once") else 1_000_000
    counted = [0]

    def save(folder: str) -> None:
        with open(os.path.join(folder, "count"), "w") as file:
            file.write(str(counted[0]))

    def load(folder: str) -> None:
        with open(os.path.join(folder, "count")) as file:
            counted[0] = int(file.read())

    training = elastic.Training(
        steps=steps, global_batch=64, save=save, load=load, checkpoint_every_steps=5, log_every_s=0.0
    )
    if behaviour == "ignores":
        training.ignore_requests()
    fails = behaviour == "fails" or (behaviour == "fails-once" and first_run())
    for step in training:
        time.sleep(step_s)
        counted[0] += 1
        if counted[0] != step.number + 1:
            print("state and position differ: %d steps counted before step %d" % (counted[0], step.number + 1))
            return 3
        step.report(1.0 / counted[0])
        if fails and step.number >= 3:
            return FAILURE_CODE
    return 0


def first_run() -> bool:
    """Whether this is the job's first run: leaves a mark beside its checkpoints."""
    folder = os.environ["HORAE_CHECKPOINT"]
    os.makedirs(folder, exist_ok=True)
    try:
        os.close(os.open(os.path.join(folder, "ran-before"), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


if __name__ == "__main__":
    raise SystemExit(main())
