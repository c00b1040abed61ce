"""A slurmrestd that never ends its answers, or sends us elsewhere, at the process boundary."""

from __future__ import annotations

import pytest

from slurm_plugin.clients import rest
from slurm_plugin.clients.base import ClientAway
from slurm_plugin.clients.rest import RestClient
from slurm_plugin.clients.tokens import NoToken
from tests.endless import ENDLESS, Says, raw
from tests.yarn_bridge.fake import Asked, Reply, serving


class Secret(NoToken):
    def headers(self) -> dict[str, str]:
        return {"X-SLURM-USER-NAME": "horae", "X-SLURM-USER-TOKEN": "secret"}


@pytest.mark.parametrize("says", ENDLESS)
def test_an_answer_without_an_end_is_given_up(says: Says, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "_MOST_BYTES", 1 << 20)
    monkeypatch.setattr(rest, "_MOST_S", 0.2)
    with raw(says) as url:
        client = RestClient(url)
        with pytest.raises(ClientAway, match="too much, or too slowly"):
            client.jobs(["dl"])
        client.close()


def test_a_token_goes_nowhere_else() -> None:
    with serving(lambda asked: Reply(200, {})) as stranger:

        def elsewhere(asked: Asked) -> Reply:
            return Reply(307, None, {"Location": f"{stranger.url}{asked.path}"})

        with serving(elsewhere) as fake:
            client = RestClient(fake.url, Secret())
            with pytest.raises(ClientAway):
                client.jobs(["dl"])
            client.close()
        assert fake.asked[0].headers["X-SLURM-USER-TOKEN"] == "secret"
        assert stranger.asked == []


def test_what_slurmrestd_warns_of_is_written_out() -> None:
    body = {"jobs": [], "warnings": [{"description": "\x1b]0;x\x07 \u202e \ud800"}]}
    with serving(lambda asked: Reply(200, body, {"Content-Type": "application/json"})) as fake:
        client = RestClient(fake.url)
        client.jobs(["dl"])
        client.close()
    assert all(text.isprintable() for text in client.warnings)
    assert client.warnings
