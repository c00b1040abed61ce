"""The locks as a bill of materials: CycloneDX 1.6, JSON, the same bytes for the same locks.

    python -m supply.sbom [--output FILE]

What a plain installation carries is `required`, what an extra brings `optional`, what only builds and tests
`excluded`. Who needs whom comes from the comments that uv writes into the lock, hashes from its lines; a licence is
what the package says about itself, where it is installed here.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
import uuid
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

from supply.locks import HERE, PROJECT, Pin, plain, read, wanted

USER_EXTRAS = ("slurm", "yarn", "top", "plot", "zstd", "demo", "lab")
ROOT = "horae"


def bill() -> dict[str, Any]:
    project = tomllib.loads(PROJECT.read_text())["project"]
    pins = {(pin.name, pin.version): pin for name in ("lock.txt", "build.txt") for pin in read(HERE / name)}
    needs = needed(list(pins.values()))
    required = closure(set(wanted(())), needs)
    optional = closure(set(wanted(USER_EXTRAS)), needs)
    scopes = {**dict.fromkeys(optional, "optional"), **dict.fromkeys(required, "required")}
    references: dict[str, list[str]] = {}
    for name, version in sorted(pins):
        references.setdefault(name, []).append(purl(name, version))
    own = f"pkg:pypi/{ROOT}@{project['version']}"
    components = [component(pins[key], scopes.get(key[0], "excluded")) for key in sorted(pins)]
    told = json.dumps(components, sort_keys=True)
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, own + told)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": ROOT,
                "version": project["version"],
                "description": project["description"],
                "licenses": [{"license": {"id": project["license"]}}],
                "purl": own,
            }
        },
        "components": components,
        "dependencies": [
            {"ref": own, "dependsOn": targets(wanted(("dev",)), references)},
            *(
                {"ref": reference, "dependsOn": targets(needs.get(name, set()), references)}
                for name, found in sorted(references.items())
                for reference in found
            ),
        ],
    }


def component(pin: Pin, scope: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl(pin.name, pin.version),
        "name": pin.name,
        "version": pin.version,
        "scope": scope,
        "purl": purl(pin.name, pin.version),
        "hashes": [{"alg": "SHA-256", "content": each} for each in pin.hashes],
    }
    licence = licence_of(pin)
    if licence:
        found["licenses"] = [{"expression": licence}]
    return found


def licence_of(pin: Pin) -> str:
    """The SPDX expression that the installed package declares; "" where it is another version, or says none."""
    try:
        said = metadata(pin.name)
    except PackageNotFoundError:
        return ""
    if said["Version"] != pin.version or "License-Expression" not in said:
        return ""
    return said["License-Expression"]


def needed(pins: Sequence[Pin]) -> dict[str, set[str]]:
    """Package -> what it needs, from the comments about who needs a line."""
    found: dict[str, set[str]] = {}
    for pin in pins:
        for via in pin.via:
            if not via.startswith(("-r ", "-c ")) and "(" not in via:
                found.setdefault(plain(via), set()).add(pin.name)
    return found


def closure(names: set[str], needs: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = set(names)
    while waiting:
        name = waiting.pop()
        found.add(name)
        waiting |= needs.get(name, set()) - found
    return found


def targets(names: Any, references: Mapping[str, list[str]]) -> list[str]:
    return sorted(reference for name in names for reference in references.get(name, []))


def purl(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the bill of materials of the locks.")
    parser.add_argument("--output", type=Path, help="a file; default: standard output")
    output = parser.parse_args().output
    text = json.dumps(bill(), indent=1, sort_keys=True) + "\n"
    if output is None:
        sys.stdout.write(text)
        return 0
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(text)
    print(output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
