"""What tools on the way do to a log changes no number of it, and costs few."""

from __future__ import annotations

import pytest

from tests.profiler.mutations import MUTATIONS, harm, usable
from tests.profiler.others import OTHERS, PASTED, UNSEEN, labelled

LOGS = [e for path in (OTHERS, PASTED, UNSEEN) for e in labelled(path) if usable(e["log"])]
FEW = 30  #: logs that a mutation changes, from which every third is enough
#: What `name | ` before each line makes of a table, whose own columns `|` may part, is not known.
TABLES = "compose"


@pytest.mark.parametrize("name", MUTATIONS)
def test_no_number_changes_and_few_are_lost(name: str) -> None:
    some = [e for e in LOGS if MUTATIONS[name](e["log"]).strip() != e["log"].strip()]
    some = some[1::3] if len(some) > FEW else some
    assert some, "it changes none of the logs"
    found = {e["name"]: harm(e["log"], name) for e in some}
    lost = {log: away for log, (_, away) in found.items() if away}
    assert len(lost) <= (0.15 if name == TABLES else 0.03) * len(some), lost
    if name != TABLES:
        assert not {log: changed for log, (changed, _) in found.items() if changed}
