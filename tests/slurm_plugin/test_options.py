"""The options of a Slurm cluster in a site's configuration."""

from __future__ import annotations

from typing import Any

import pytest

from policy.model import BadInput
from slurm_plugin.options import parse_options


def test_lists_may_be_written_as_text() -> None:
    found = parse_options(
        {"partitions": "gpu,big", "prefix": ["sudo", "-n"], "env": {"SLURM_CONF": "/x"}, "path": "/opt/bin"}
    )
    assert (found.partitions, found.prefix, found.path) == (("gpu", "big"), ("sudo", "-n"), "/opt/bin/")
    assert found.environment == {"SLURM_CONF": "/x"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("partitons", ["gpu"]), ("partitions", [1]), ("spool", "here"), ("tenants", "group"), ("client", "telnet"),
        ("stop", "never"), ("timeout_s", 0), ("timeout_s", True), ("hold", "yes"), ("env", ["A=1"]), ("ssh", 22),
    ],
)  # fmt: skip
def test_a_wrong_option_is_named(key: str, value: Any) -> None:
    with pytest.raises(BadInput) as raised:
        parse_options({key: value})
    assert raised.value.field == key
