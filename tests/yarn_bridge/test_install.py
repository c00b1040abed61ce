"""`horae install yarn`: a diff first, idempotent, and back as it was; against a ResourceManager of this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from horae import sites
from policy.model import BadInput
from tests.yarn_bridge.fake import Asked, Fake, Reply, recorded, serving
from yarn_bridge.site import YarnSite
from yarn_bridge.site.scheduler_conf import PREFIX, edits, parse, queue_paths, text_of
from yarn_bridge.site.xml import merged, properties

NOT_MUTABLE = "This API only supports to retrieve scheduler configuration from a mutable-conf scheduler, ..."


class Manager:
    """A ResourceManager whose scheduler configuration can be changed, as the real one does it."""

    def __init__(self, stack: ExitStack) -> None:
        self.lane, self.mutable, self.store = "3.4.2", True, "leveldb"
        found = recorded("3.4.2")["sched-conf-get"]["response"]["property"]
        self.conf = {each["name"]: each["value"] for each in found}
        self.stopped: set[str] = set()
        self.fake: Fake = stack.enter_context(serving(self.answer))

    def answer(self, asked: Asked) -> Reply:
        if asked.path.endswith("/scheduler"):
            return Reply(body=recorded(self.lane)["scheduler"]["response"])
        if asked.path == "/conf":
            return Reply(body={"property": {"key": asked.query["name"], "value": self.store}})
        if not self.mutable:
            return Reply(400, NOT_MUTABLE)
        if asked.method == "PUT":
            return self.change(ET.fromstring(asked.body))
        return Reply(body={"property": [{"name": key, "value": value} for key, value in self.conf.items()]})

    def change(self, root: ET.Element) -> Reply:
        for each in root.findall("remove-queue"):
            path = str(each.text)
            if self.conf.get(f"{PREFIX}{path}.state") != "STOPPED":
                return Reply(400, f"Failed to re-init queues : {path} is not in STOPPED state")
            self.conf = {key: value for key, value in self.conf.items() if not key.startswith(f"{PREFIX}{path}.")}
            self._children(path, add=False)
        for tag in ("add-queue", "update-queue"):
            for queue in root.findall(tag):
                path = str(queue.findtext("queue-name"))
                if tag == "add-queue":
                    self._children(path, add=True)
                for entry in queue.iter("entry"):
                    key, value = f"{PREFIX}{path}.{entry.findtext('key')}", entry.findtext("value")
                    if value is None:
                        self.conf.pop(key, None)
                    else:
                        self.conf[key] = value
        total = sum(
            float(self.conf[f"{PREFIX}root.{name}.capacity"]) for name in self.conf[f"{PREFIX}root.queues"].split(",")
        )
        assert total == 100, f"the shares add up to {total}"
        return Reply(body="Configuration change successfully applied.")

    def _children(self, path: str, *, add: bool) -> None:
        parent, _, name = path.rpartition(".")
        known = [each for each in self.conf[f"{PREFIX}{parent}.queues"].split(",") if each != name]
        self.conf[f"{PREFIX}{parent}.queues"] = ",".join([name, *known] if add else known)


@pytest.fixture
def manager() -> Iterator[Manager]:
    with ExitStack() as stack:
        yield Manager(stack)


@pytest.fixture
def options(manager: Manager, tmp_path: Path) -> dict[str, str]:
    return {
        "rm": manager.fake.url,
        "capacity": "30",
        "from": "themis",
        "out": str(tmp_path / "out"),
        "units": str(tmp_path / "units"),
    }


def test_who_may_submit_is_said_where_the_site_says_it(manager: Manager, options: dict[str, str]) -> None:
    key = f"{PREFIX}root.horae.acl_submit_applications"
    silent, named = options, {**options, "submitters": "alice,bob ml,vision"}
    shown = ["".join(sites.diff(each) for each in YarnSite().changes(said)[0]) for said in (silent, named)]
    assert (key in shown[0], f"+{key} = alice,bob ml,vision" in shown[1]) == (False, True)
    for wrong in ("alice; rm -rf", "a b c", "<x>"):
        with pytest.raises(BadInput, match="no list of users and groups"):
            YarnSite().changes({**options, "submitters": wrong})


def test_a_queue_that_the_next_start_forgets_is_refused_or_put_into_the_file_too(
    manager: Manager, options: dict[str, str], tmp_path: Path
) -> None:
    manager.store = "memory"
    with pytest.raises(BadInput, match=r"gone at its next start.*leveldb or zk.*until=restart"):
        YarnSite().changes(options)
    taken, _ = YarnSite().changes({**options, "until": "restart"})
    assert [change.place is not None for change in taken if "queue root.horae" in change.why] == [True]
    text = "".join(f"<property><name>{k}</name><value>{v}</value></property>" for k, v in manager.conf.items())
    file = tmp_path / "capacity-scheduler.xml"
    file.write_text(f"<configuration>{text}</configuration>")
    both, _ = YarnSite().changes({**options, "etc": str(tmp_path)})
    by_rest, in_file = [change for change in both if "queue root.horae" in change.why]
    assert (by_rest.place is not None, in_file.path) == (True, file)
    assert b"root.horae.capacity" in (in_file.after or b"")


def test_install_shows_changes_and_undoes(manager: Manager, options: dict[str, str], tmp_path: Path) -> None:
    site, record, before = YarnSite(), tmp_path / "state/horae/record.json", dict(manager.conf)
    there = set(tmp_path.rglob("*"))
    changes, commands = site.changes(options)
    shown = "".join(sites.diff(change) for change in sites.pending(changes))
    assert f"+{PREFIX}root.horae.capacity = 30" in shown
    assert f"-{PREFIX}root.themis.capacity = 80" in shown
    assert f"+{PREFIX}root.themis.capacity = 50" in shown
    assert "root.default" not in "".join(
        line for line in shown.splitlines() if line[:1] in "+-" and "queues" not in line
    )
    assert "placement-constraints.handler" in shown
    assert any("horae doctor" in command for command in commands)
    assert manager.conf == before, "a dry run changed something"

    sites.apply(changes, record)
    assert manager.conf[f"{PREFIX}root.horae.acl_administer_queue"] == "horae"
    assert manager.conf[f"{PREFIX}root.horae.user-limit-factor"] == "4"
    assert sites.pending(site.changes(options)[0]) == []

    done, left = sites.restore(record, site.place)
    assert (len(done), left) == (4, [])
    assert manager.conf == before
    assert set(tmp_path.rglob("*")) == there, "a folder that came with it stays"


def test_a_folder_into_which_somebody_has_put_something_stays(
    manager: Manager, options: dict[str, str], tmp_path: Path
) -> None:
    site, record = YarnSite(), tmp_path / "record.json"
    out = tmp_path / "new/horae"
    sites.apply(site.changes({**options, "out": str(out)})[0], record)
    (out / "notes").write_text("somebody's")
    sites.restore(record, site.place)
    assert list((tmp_path / "new").rglob("*")) == [out, out / "notes"]


def test_what_somebody_changed_since_is_left_alone(manager: Manager, options: dict[str, str], tmp_path: Path) -> None:
    site, record = YarnSite(), tmp_path / "record.json"
    sites.apply(site.changes(options)[0], record)
    manager.conf[f"{PREFIX}root.themis.maximum-capacity"] = "90"
    done, left = sites.restore(record, site.place)
    assert [name.partition(" of ")[0] for name in left] == ["scheduler-conf"]
    assert len(done) == 3
    assert f"{PREFIX}root.horae.capacity" in manager.conf


def test_a_configuration_in_a_file_is_edited_there_and_keeps_its_text(
    manager: Manager, options: dict[str, str], tmp_path: Path
) -> None:
    manager.mutable = False
    etc = tmp_path / "etc"
    etc.mkdir()
    file = etc / "capacity-scheduler.xml"
    entries = "\n".join(
        f"<!-- kept -->\n<property>\n <name>{key}</name>\n <value>{value}</value>\n</property>"
        for key, value in manager.conf.items()
    )
    file.write_text(f"<configuration>\n{entries}\n</configuration>\n")
    before = file.read_text()
    site, record = YarnSite(), tmp_path / "record.json"
    sites.apply(site.changes({**options, "etc": str(etc)})[0], record)
    after = file.read_text()
    assert after.count("<!-- kept -->") == before.count("<!-- kept -->")
    found = properties(after, str(file))
    assert found[f"{PREFIX}root.queues"] == "default,horae,themis"
    assert (found[f"{PREFIX}root.themis.capacity"], found[f"{PREFIX}root.horae.capacity"]) == ("50", "30")
    assert sites.pending(site.changes({**options, "etc": str(etc)})[0]) == []
    sites.restore(record, site.place)
    assert file.read_text() == before


def test_without_that_file_the_xml_to_merge_is_written(manager: Manager, options: dict[str, str]) -> None:
    manager.mutable = False
    changes, _ = YarnSite().changes(options)
    (snippet,) = [change for change in changes if change.path.name == "capacity-scheduler.xml"]
    assert snippet.after is not None
    found = properties(snippet.after.decode(), "")
    assert found[f"{PREFIX}root.horae.capacity"] == "30"
    assert found[f"{PREFIX}root.queues"] == "default,horae,themis"


def test_the_fair_schedulers_file(manager: Manager, options: dict[str, str], tmp_path: Path) -> None:
    manager.lane = "3.4.2-fair"
    (tmp_path / "fair-scheduler.xml").write_text('<allocations>\n  <queue name="default"/>\n</allocations>\n')
    given = {**options, "capacity": "3w", "etc": str(tmp_path)}
    changes, _ = YarnSite().changes(given)
    (queue,) = [change for change in changes if change.path.name == "fair-scheduler.xml"]
    assert queue.after is not None
    added = ET.fromstring(queue.after).findall("queue")[1]
    assert (added.get("name"), added.findtext("weight"), added.findtext("aclAdministerApps")) == ("horae", "3", "horae")
    sites.apply([queue], tmp_path / "record.json")
    assert sites.pending(YarnSite().changes(given)[0])[:1] != [queue]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rm": ""}, "rm: must be given"),
        ({"nonsense": "1"}, "no such option"),
        ({"capacity": ""}, "is not a share"),
        ({"capacity": "130"}, "is not a share"),
        ({"capacity": "90"}, "root.themis has only 80 %"),
        ({"from": ""}, r"gives up this share \(one of default \(20 %\), themis \(80 %\)\)"),
        ({"from": "root.nope"}, "gives up this share"),
        ({"capacity": "3w"}, "do not mix"),
        ({"queue": "root.no.such"}, "no queue root.no to put it in"),
        ({"queue": "root.a b"}, "is not a queue's path"),
        ({"rm": "not a url"}, "is not a web address"),
    ],
)
def test_what_a_person_can_mend(options: dict[str, str], change: dict[str, str], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        YarnSite().changes({**options, **change})


def test_a_resource_manager_that_does_not_answer(options: dict[str, str]) -> None:
    with serving(lambda asked: Reply()) as gone:
        url = gone.url
    with pytest.raises(BadInput, match="no ResourceManager answers"):
        YarnSite().changes({**options, "rm": url})


def test_an_objection_of_the_resource_manager_is_told(
    manager: Manager, options: dict[str, str], tmp_path: Path
) -> None:
    changes, _ = YarnSite().changes(options)
    known = manager.fake.answers
    manager.fake.answers = lambda asked: (
        Reply(400, "User is not admin of all modified queues.") if asked.method == "PUT" else known(asked)
    )
    with pytest.raises(BadInput, match=r"not admin of all modified queues.*yarn\.admin\.acl"):
        sites.apply(changes, tmp_path / "record.json")


def test_edits_are_the_difference_and_nothing_else() -> None:
    current = parse(
        f"{PREFIX}root.queues = a,b\n{PREFIX}root.a.capacity = 60\n{PREFIX}root.b.capacity = 40\n"
        f"{PREFIX}root.a.accessible-node-labels.K80.capacity = 10\n{PREFIX}resource-calculator = X\n"
    )
    wanted = dict(current) | {
        f"{PREFIX}root.queues": "a,b,c",
        f"{PREFIX}root.a.capacity": "50",
        f"{PREFIX}root.c.capacity": "10",
        f"{PREFIX}resource-calculator": "Y",
    }
    del wanted[f"{PREFIX}root.a.accessible-node-labels.K80.capacity"]
    (step,) = edits(current, wanted)
    assert step.add == {"root.c": {"capacity": "10"}}
    assert step.update == {"root.a": {"capacity": "50", "accessible-node-labels.K80.capacity": None}}
    assert step.globals == {f"{PREFIX}resource-calculator": "Y"}
    stop, back = edits(wanted, current)
    assert stop.update == {"root.c": {"state": "STOPPED"}}
    assert back.remove == ["root.c"]
    assert edits(current, current) == []
    assert parse(text_of(current)) == current
    assert queue_paths({f"{PREFIX}root.queues": "a", f"{PREFIX}root.a.queues": "x, y"}) == [
        "root", "root.a", "root.a.x", "root.a.y",
    ]  # fmt: skip


def test_merging_into_a_site_file_leaves_the_rest_of_its_text() -> None:
    entry = "<property><name>a</name><value>x, y</value></property>"
    text = f"<configuration>\n<!-- <name>a</name> -->\n{entry}\n</configuration>"
    assert merged(text, {"a": "y,x"}) == text
    assert merged(text, {"a": "1 < 2"}).count("1 &lt; 2") == 1
    assert properties(merged(text, {"b": "2"}), "") == {"a": "x, y", "b": "2"}
    with pytest.raises(BadInput, match="is not XML"):
        properties("<configuration>", "x.xml")
