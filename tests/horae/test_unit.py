"""The arbiter's systemd unit: it bounds what the arbiter takes of a host, and takes away what it does not need."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from horae.api import limits
from horae.sites import systemd_unit


def service(text: str) -> dict[str, str]:
    part = text.partition("[Service]\n")[2].partition("\n\n[Install]")[0]
    lines = [line for line in part.splitlines() if line and not line.startswith("#")]
    pairs = [line.partition("=")[::2] for line in lines]
    assert max(Counter(key for key, _ in pairs).values()) == 1, "each option once"
    return dict(pairs)


UNIT = systemd_unit("horae", "/opt/horae/bin", "0077", writable="/var/spool/horae")


def test_the_unit_bounds_files_memory_and_tasks() -> None:
    said = service(UNIT)
    assert int(said["LimitNOFILE"]) >= limits.MOST_CONNECTIONS + limits.RESERVE
    assert said["MemoryMax"] == "50%"
    assert int(said["TasksMax"]) > 0
    assert said["LimitCORE"] == "0", "a core would hold everybody's commands"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("User", "horae"), ("NoNewPrivileges", "yes"), ("ProtectSystem", "strict"), ("ProtectHome", "read-only"),
        ("PrivateTmp", "yes"), ("PrivateDevices", "yes"), ("ProtectKernelTunables", "yes"),
        ("StateDirectoryMode", "0700"),
        ("ProtectKernelModules", "yes"), ("ProtectKernelLogs", "yes"), ("ProtectControlGroups", "yes"),
        ("RestrictNamespaces", "yes"), ("RestrictSUIDSGID", "yes"), ("LockPersonality", "yes"), ("RemoveIPC", "yes"),
        ("CapabilityBoundingSet", ""), ("SystemCallFilter", "@system-service"), ("KeyringMode", "private"),
        ("RestrictAddressFamilies", "AF_UNIX AF_INET AF_INET6"), ("ReadWritePaths", "/var/spool/horae"),
    ],
)  # fmt: skip
def test_the_unit_takes_away_what_is_not_needed(option: str, value: str) -> None:
    assert service(UNIT)[option] == value


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    if (verify := shutil.which("systemd-analyze")) is None:
        pytest.skip("no systemd-analyze here")
    (tmp_path / "horae.service").write_text(UNIT.replace("/opt/horae/bin/horae", "/bin/true"))
    done = subprocess.run(
        [verify, "verify", str(tmp_path / "horae.service")], capture_output=True, text=True, check=False
    )
    assert "Unknown" not in done.stderr
    assert "Failed to parse" not in done.stderr
