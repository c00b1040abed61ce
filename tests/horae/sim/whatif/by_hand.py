"""What `history` means, a second time: slow, from the raw text, sharing nothing with what it judges."""

from __future__ import annotations

import random
from typing import Any


def reckoned(text: str) -> dict[str, Any]:
    """`history` (but its utilisation) and the cluster's GPUs of a dump whose times are seconds."""
    lines = text.replace("\r\n", "\n").split("\n")[:-1]
    names = [n.lower() for n in lines[0].split("|")]
    rows = [dict(zip(names, line.split("|"), strict=True)) for line in lines[1:]]
    rows = [r for r in rows if "." not in r["jobid"]]
    groups: dict[Any, list[dict[str, str]]] = {}
    for r in rows:
        number = r["jobid"].split("+")[0] if "+" in r["jobid"] else r["jobidraw"]
        rest = "[" in r["jobid"]
        groups.setdefault((number, r["user"], rest), []).append(r)
    out: dict[str, Any] = {"jobs": 0, "gpu_jobs": 0, "no gpus": 0, "never started": 0}
    waits, seconds, accounts, sizes = [], 0, {}, {}
    for (_, _, rest), records in groups.items():
        many = 1
        if rest:
            inside = records[0]["jobid"].split("[")[1].split("]")[0].split("%")[0]
            many = 0
            for word in inside.split(","):
                ends = word.split("-")
                many += int(ends[-1]) - int(ends[0]) + 1
        out["jobs"] += many
        if not any(gpus(r["alloctres"]) or gpus(r["reqtres"]) for r in records):
            out["no gpus"] += many
            continue
        started = [r for r in records if known(r["start"]) and not rest]
        if not started:
            out["never started"] += many
            continue
        out["gpu_jobs"] += 1
        of_parts = {}
        for r in started:
            part = int(r["jobid"].split("+")[1]) if "+" in r["jobid"] else 0
            if part not in of_parts or int(r["start"]) < int(of_parts[part]["start"]):
                of_parts[part] = r
        first = of_parts[min(of_parts)]
        wait = int(first["start"]) - int(first["eligible"] if known(first["eligible"]) else first["submit"])
        size = sum(gpus(r["alloctres"]) for r in of_parts.values())
        ran = sum(gpus(r["alloctres"]) * int(r["elapsedraw"]) for r in records)
        waits.append(wait)
        seconds += ran
        accounts.setdefault(first["account"], []).append((wait, ran))
        sizes.setdefault(str(size), []).append(wait)
    out["gpu_hours"] = seconds / 3600
    out["wait_mean"] = sum(waits) / len(waits) if waits else 0
    out["by_account"] = {
        a: (len(of), sum(ran for _, ran in of) / 3600, sum(w for w, _ in of) / len(of)) for a, of in accounts.items()
    }
    out["by_size"] = {n: (len(of), sum(of) / len(of)) for n, of in sizes.items()}
    out["cluster"] = cluster(rows)
    return out


def cluster(rows: list[dict[str, str]]) -> float:
    """For each node the most held at any start."""
    held: dict[str, list[tuple[int, float, float]]] = {}
    for r in rows:
        if not known(r["start"]) or "[" in r["jobid"] or not gpus(r["alloctres"]):
            continue
        nodes = hosts(r["nodelist"])
        end = int(r["end"]) if known(r["end"]) else float("inf")
        for node in nodes:
            held.setdefault(node, []).append((int(r["start"]), end, gpus(r["alloctres"]) / len(nodes)))
    total = 0.0
    for spans in held.values():
        total += max(sum(n for since, until, n in spans if since <= at < until) for at, _, _ in spans)
    return total


def known(text: str) -> bool:
    return text not in ("Unknown", "None", "")


def gpus(tres: str) -> int:
    words = dict(word.split("=") for word in tres.split(",") if word)
    if "gres/gpu" in words:
        return int(words["gres/gpu"])
    return sum(int(n) for name, n in words.items() if name.startswith("gres/gpu:"))


def hosts(text: str) -> list[str]:
    """Of the lists that `dump` makes: plain names, or `n[1-3]`."""
    if "[" not in text:
        return [h for h in text.split(",") if h and h != "None assigned"]
    name, _, rest = text.partition("[")
    first, last = rest.rstrip("]").split("-")
    return [f"{name}{n}" for n in range(int(first), int(last) + 1)]


HEADER = "JobIDRaw|JobID|User|Account|State|Submit|Eligible|Start|End|ElapsedRaw|AllocTRES|ReqTRES|NodeList"


def dump(seed: int, jobs: int = 10) -> str:
    """A random one: steps, incarnations, reused numbers, arrays, heterogeneous jobs, all kinds of GPUs and times."""
    chance = random.Random(seed)
    rows: list[dict[str, Any]] = []

    def tres(count: int) -> str:
        kind = chance.choice(["plain", "typed", "both", "two"])
        if not count:
            return "billing=4,cpu=4,mem=8G,node=1"
        if kind == "two" and count > 1:
            return f"cpu=4,gres/gpu:a100=1,gres/gpu:v100={count - 1},node=1"
        typed, plain = f"gres/gpu:a100={count}", f"gres/gpu={count}"
        return "cpu=4," + {"plain": plain, "typed": typed, "both": f"{typed},{plain}"}.get(kind, typed) + ",mem=1G"

    def record(raw: int, name: str, user: str, account: str, state: str = "") -> None:
        submit = chance.randrange(0, 3000)
        eligible = chance.choice([submit, submit + chance.randrange(50), None])
        start = None if chance.random() < 0.25 else (eligible or submit) + chance.choice([0, chance.randrange(900)])
        ran = chance.choice([0, 10, 60, chance.randrange(2000)])
        running = start is not None and chance.random() < 0.15
        end = None if start is None or running else start + ran
        elapsed = 0 if start is None else max(0, ran - chance.choice([0, 0, 5]))
        asked = chance.choice([0, 1, 2, 3, 4, 8])
        alloc = asked if start is not None else 0
        nodes = chance.choice(["n1", "n2", "n1,n3", "n[1-3]", "m4"])
        rows.append(
            {
                "JobIDRaw": raw,
                "JobID": name,
                "User": user,
                "Account": account,
                "State": state or ("RUNNING" if running else "COMPLETED"),
                "Submit": submit,
                "Eligible": "Unknown" if eligible is None else eligible,
                "Start": chance.choice(["Unknown", "None"]) if start is None else start,
                "End": "Unknown" if end is None else end,
                "ElapsedRaw": elapsed,
                "AllocTRES": "" if start is None else tres(alloc),
                "ReqTRES": tres(asked),
                "NodeList": "None assigned" if start is None else nodes,
            }
        )
        for step in chance.sample(["batch", "extern", "0", "interactive"], chance.randrange(3)):
            more = dict(rows[-1], JobIDRaw=f"{raw}.{step}", JobID=f"{name}.{step}", User="")
            rows.append(more)

    number = 100
    for _ in range(jobs):
        user, account = chance.choice(["ann", "bob", "eve"]), chance.choice(["bio", "chem", "ml"])
        kind = chance.choice(["one", "one", "again", "reused", "array", "parts", "parts-again"])
        if kind == "array":
            for task in range(chance.randrange(1, 4)):
                record(number + 1 + task, f"{number}_{task}", user, account)
            inside = chance.choice(["4-6%2", "4,6", "7", "4-5,9-11%1"])
            record(number, f"{number}_[{inside}]", user, account)
            number += 4
        elif kind.startswith("parts"):
            for _ in range(2 if kind == "parts-again" else 1):
                for part in range(chance.randrange(2, 4)):
                    record(number + part, f"{number}+{part}", user, account)
            number += 3
        else:
            for _ in range(chance.randrange(2, 4) if kind == "again" else 1):
                record(number, str(number), user, account)
            if kind == "reused":
                record(number, str(number), chance.choice([u for u in ("ann", "bob", "eve") if u != user]), account)
        number += 1
    for row in rows:
        if "[" in row["JobID"]:
            row.update(Start="Unknown", End="Unknown", ElapsedRaw=0, AllocTRES="", NodeList="None assigned")
    if chance.random() < 0.5:
        chance.shuffle(rows)
    names = HEADER.split("|")
    if chance.random() < 0.5:
        chance.shuffle(names)
    case = chance.choice([str, str.lower, str.upper])
    lines = [case("|".join(names)), *("|".join(str(row[n]) for n in names) for row in rows)]
    end = chance.choice(["\n", "\r\n"])
    return end.join([*lines, ""])
