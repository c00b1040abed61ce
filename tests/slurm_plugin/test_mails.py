"""A change of shape is neither an end nor a begin: nobody is written to about it."""

from __future__ import annotations

from dataclasses import replace

from slurm_plugin.clients.command import scontrol
from slurm_plugin.comment import parse_tag
from slurm_plugin.jobs import mails
from slurm_plugin.jobs.record import Grant, Memo
from slurm_plugin.jobs.shapes import original, start_writes
from tests.slurm_plugin.rows import NOW, ROW

ALL = "horae=abc,gpus=2,nodes=1,mail=1295"
GRANT = Grant(epoch=2, restarts=1, nodes=("n1",), per_node=2, at_s=NOW)


def test_mails_rest_before_a_stop_and_come_again_with_the_start_but_its_begin() -> None:
    again = replace(ROW, admin_comment=ALL, restarts=1)
    resting = mails.rest("7", parse_tag(ALL))
    assert resting is not None
    assert scontrol(resting) == "update jobid=7 MailType=INVALID_DEPEND"
    assert "MailType=END,FAIL,REQUEUE,STAGE_OUT,INVALID_DEPEND" in scontrol(
        start_writes(again, Memo("7.abc"), GRANT)[0]
    )
    assert "MailType=END,FAIL,REQUEUE,STAGE_OUT,INVALID_DEPEND" in scontrol(original(again, NOW)[0])
    first = replace(ROW, admin_comment=ALL)
    assert "MailType" not in scontrol(start_writes(first, Memo("7.abc"), GRANT)[0]), "as its user made it"


def test_who_wants_no_mails_costs_no_write_and_rigid_jobs_are_never_written() -> None:
    for tag in ("horae=abc,gpus=2,nodes=1", "horae=abc,gpus=2,nodes=1,shape=own,mail=7", "horae=abc,gpus=2,mail=x"):
        assert mails.rest("7", parse_tag(tag)) is None
        assert mails.of_start(parse_tag(tag), first=False) is None
    one = mails.rest("7", parse_tag("horae=abc,gpus=2,mail=2"))
    assert one is not None
    assert scontrol(one) == "update jobid=7 MailType=NONE"
