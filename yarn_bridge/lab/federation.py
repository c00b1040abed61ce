"""What Hadoop's files say where a lab has two nameservices: `near`, where everything is unless it says otherwise, and
`far`, whose NameNode is at an address of its own. The DataNode serves both. A mount table puts them together:
viewfs://lab/user is near's, viewfs://lab/far is all of far.
"""

from __future__ import annotations

NEAR, FAR = "near", "far"
TABLE = "lab"


def core(addresses: tuple[str, str], rpc: int) -> dict[str, str]:
    near, far = (f"hdfs://{address}:{rpc}" for address in addresses)
    table = f"fs.viewfs.mounttable.{TABLE}.link"
    return {f"{table}./user": f"{near}/user", f"{table}./far": f"{far}/"}


def hdfs(addresses: tuple[str, str], mine: int, data: str, rpc: int, http: int) -> dict[str, str]:
    """`mine`: whose NameNode this configuration is for, from 0."""
    names = (NEAR, FAR)
    found = {
        "dfs.nameservices": ",".join(names),
        "dfs.nameservice.id": names[mine],
        "dfs.namenode.name.dir": f"file://{data}/{names[mine]}",
    }
    for name, address in zip(names, addresses, strict=True):
        found[f"dfs.namenode.rpc-address.{name}"] = f"{address}:{rpc}"
        found[f"dfs.namenode.http-address.{name}"] = f"{address}:{http}"
    return found
