"""Ports of a private Slurm: nobody else gets them between their choice and the daemons' start, which may take them."""

from __future__ import annotations

import random
import socket

import pytest

from slurm_plugin.lab import private


def test_two_labs_never_choose_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    first, kept = private._free_ports(4)
    real, unlucky = random.randrange, [first + 4]  # of the second lab, at first
    monkeypatch.setattr(private.random, "randrange", lambda *bounds: unlucky.pop() if unlucky else real(*bounds))
    try:
        second, others = private._free_ports(4)
        for each in others:
            each.close()
        assert not unlucky
        assert abs(second - first) >= 4
        with socket.socket() as daemon:
            daemon.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            daemon.bind(("0.0.0.0", first))
            daemon.listen()
    finally:
        for each in kept:
            each.close()
