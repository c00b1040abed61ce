"""The process in which policies run: a question in, an answer out, until the arbiter closes the pipe.

It dies with the arbiter, also when the arbiter is killed while a policy computes.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys

from horae.arbiter.decide import pickling, powerless, replies
from horae.arbiter.decide.apart import die_with_parent
from horae.arbiter.decide.policy_runner import READY, Decide, Question, asked, packed
from policy import catalogue
from policy.own_file import OwnFile


def main() -> None:
    target, parent = sys.argv[1], int(sys.argv[2])
    powerless.keep_so()
    die_with_parent()
    if os.getppid() != parent:
        return  # it died before we could say so
    # A policy, or its solver, may print: the answer's pipe is not for that.
    answers = os.dup(1)
    os.dup2(2, 1)
    questions = os.fdopen(os.dup(0), "rb")
    module, _, name = target.partition(":")
    decide: Decide = getattr(importlib.import_module(module), name)
    gc.disable()  # an answer makes many values and few cycles; those go when it is given
    with os.fdopen(answers, "wb") as out:
        out.write(READY)
        out.flush()
        while head := questions.read(8):
            body = questions.read(int.from_bytes(head, "big"))
            out.write(answer(decide, body))
            out.flush()
            # What a policy left behind in cycles goes now; what stays (modules) is not looked at again.
            gc.collect()
            gc.freeze()


def answer(decide: Decide, body: bytes) -> bytes:
    question: Question = pickling.loads(body)
    if question.source and catalogue.file(question.policy) is None:
        catalogue.add(OwnFile(question.policy, question.source))
    reply = asked(decide, question)
    try:
        return packed(replies.dumps(reply))
    except Exception as error:  # noqa: BLE001  (whatever cannot be sent is the answer's fault)
        return packed(replies.dumps((None, f"policy {question.policy} answered what cannot be sent: {error}", {})))


if __name__ == "__main__":
    main()
