"""Telling systemd how we are (`sd_notify`): a datagram to `$NOTIFY_SOCKET`, nothing where there is none."""

from __future__ import annotations

import os
import socket


def notify(*lines: str) -> bool:
    """Send e.g. `READY=1`, `STATUS=...`. False where nobody listens; never an error."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
            out.sendto("\n".join(lines).encode(), address)
    except OSError:
        return False
    return True


def watchdog_s() -> float | None:
    """How often the watchdog wants a sign of life: half of what it waits."""
    text = os.environ.get("WATCHDOG_USEC", "")
    return int(text) / 2e6 if text.isdecimal() and int(text) > 0 else None
