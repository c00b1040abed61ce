"""Files are opened, listed and changed in named modules only, among what runs beside the arbiter.

A job's folder is its owner's. Whoever adds a file call elsewhere is asked here to go through `horae/untrusted.py`, or
to say that the place is one that no user can write.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: What runs in the arbiter's process, or in one of its own.
BESIDE = [*sorted((ROOT / "horae" / "local").glob("*.py")), *sorted((ROOT / "horae" / "arbiter").rglob("*.py"))]
#: Modules with file calls of their own, and what they open.
NAMED = {
    "horae/local/asked.py": "closes and looks at descriptors that the helper hands over; files without a name",
    "horae/local/books.py": "the arbiter's own folder, which nobody else can enter",
    "horae/local/operations.py": "job folders, by descriptors of horae/descriptors/; keepers' notes; /proc",
    "horae/local/helper.py": "descriptors that it is handed, within bounds, and those that it hands over",
    "horae/local/jobfolders.py": "job folders, by descriptors of horae/untrusted.py",
    "horae/local/adapter.py": "the cluster's own folder: claim, heartbeat, health of nodes; closes locks",
    "horae/local/confine.py": "the cluster's own folders, by descriptors of horae/descriptors/, before it serves",
    "horae/local/disks.py": "the kernel's list of mounts; on which disk the cluster's own folders are",
    "horae/local/upkeep.py": "closes locks",
    "horae/machine_gpus.py": "the way to nvidia-smi; /proc",
    "horae/arbiter/decide/apart.py": "pipes of processes in which a policy is tried",
    "horae/arbiter/decide/evidence.py": "the arbiter's state",
    "horae/arbiter/decide/policy_runner.py": "pipes of the policy's process",
    "horae/arbiter/decide/policy_worker.py": "pipes of the policy's process",
    "horae/arbiter/decide/powerless.py": "who may read Python and Horae, where they are installed",
}
#: Functions of `os` that reach files, and methods of paths that no other object of ours has.
OS = frozenset(
    "open fdopen read pread write listdir scandir walk stat lstat mkdir makedirs rmdir remove unlink rename replace "
    "link symlink readlink chmod lchmod fchmod chown lchown fchown mkfifo mknod truncate utime close access".split()
)
METHODS = frozenset(
    "read_text read_bytes write_text write_bytes iterdir glob rglob unlink rmdir mkdir touch chmod lchmod symlink_to "
    "hardlink_to readlink is_file is_dir exists lstat resolve samefile".split()
)
NAMES = frozenset(["open", "read_bytes", "write_atomic", "write_mark", "remove", "sync_folder", "open_store"])
BANNED = (
    "horae.elastic.stores.store",
    "horae.elastic.stores.webhdfs",
    "horae.elastic.stores.checkpoints",
    "urllib.request",
)
MODULES = frozenset(["shutil", "tempfile", "glob", "fileinput", "linecache"])


def calls(path: Path) -> list[str]:
    """File calls of a module, each with its line."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        match node.func:
            case ast.Name(name) if name in NAMES:
                found.append(f"{node.lineno}: {name}")
            case ast.Attribute(ast.Name("os"), name) if name in OS:
                found.append(f"{node.lineno}: os.{name}")
            case ast.Attribute(ast.Name(module), name) if module in MODULES:
                found.append(f"{node.lineno}: {module}.{name}")
            case ast.Attribute(_, name) if name in METHODS:
                found.append(f"{node.lineno}: .{name}")
    return found


@pytest.mark.parametrize("path", BESIDE, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_are_touched_in_named_modules_only(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    found = calls(path)
    if name in NAMED:
        assert found, f"{name} has no file calls any more: take it from the list"
    else:
        assert not found, f"{name} touches files ({', '.join(found)}): go through horae/untrusted.py, or name it here"


def test_a_file_call_does_not_get_by(tmp_path: Path) -> None:
    sly = tmp_path / "sly.py"
    sly.write_text("import os, shutil\nopen('x')\nos.open('x', 0)\nshutil.rmtree('x')\np.read_text()\nos.getpid()\n")
    assert calls(sly) == ["2: open", "3: os.open", "4: shutil.rmtree", "5: .read_text"]


def test_nothing_beside_the_arbiter_opens_what_a_users_address_names() -> None:
    """Stores and connections are for a job's own side."""
    for path in BESIDE:
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for banned in (
                "horae.elastic.stores.store",
                "horae.elastic.stores.webhdfs",
                "horae.elastic.stores.checkpoints",
                "urllib.request",
            ):
                assert banned not in names, f"{path.relative_to(ROOT)} imports {banned}"
