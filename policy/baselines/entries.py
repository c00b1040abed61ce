"""The baselines in the catalogue."""

from __future__ import annotations

from policy.contract import Entry, Option

ENTRIES = (
    Entry(
        name="fifo",
        summary="First in, first out; a gang that does not fit stops the queue.",
        call="policy.baselines.fifo:decide",
        weighs=False,
        idle=("order", "requested"),
        paper="-",
        section="-",
        guarantees=("jobs start in the order of submission", "a running job is never stopped or resized"),
        notes=("jobs that can never run, and jobs held back by their own tenant's limit, stop nobody",),
    ),
    Entry(
        name="max-min",
        summary="Elastic water-filling: whoever has least, by weight, gets the next GPUs.",
        call="policy.baselines.max_min:decide",
        weighs=True,
        paper="Elastic Resource Sharing for Distributed Deep Learning (NSDI 2021), as a baseline",
        section="§2.2, §5.1",
        needs=("throughput (without it a job is taken to scale linearly)",),
        guarantees=("max-min fair in whole steps of the jobs' sizes", "work-conserving where gangs fit"),
        options=(
            Option("over", str, "tenant", "who is equal: tenants by weight, or all jobs", choices=("tenant", "job")),
        ),
        notes=("over=job is the baseline of AFS §5.1; the default shares between tenants first",),
    ),
    Entry(
        name="fifo-backfill",
        summary="First in, first out; later jobs overtake where they delay nobody they must not delay.",
        call="policy.baselines.backfill:decide",
        weighs=False,
        idle=("order", "reserved", "requested"),
        paper="The ANL/IBM SP Scheduling System (JSSPP 1995); conservative: Mu'alem and Feitelson (TPDS 2001)",
        section="-",
        needs=("work.total", "throughput"),
        guarantees=(
            "easy: the head of the queue starts no later than without backfilling, if estimates hold",
            "conservative: so does every waiting job of the plan",
            "a running job is never stopped or resized",
        ),
        options=(
            Option(
                "variant",
                str,
                "easy",
                "who has a reservation: the head, all, all by Slurm's coarse windows, none",
                choices=("easy", "conservative", "slurm", "aggressive"),
            ),
            Option("depth", int, 100, "waiting jobs that the conservative plan looks at", low=1),
        ),
    ),
    *(
        Entry(
            name=name,
            summary=summary,
            call=f"policy.baselines.shortest:{function}",
            weighs=False,
            paper="Tiresias (NSDI 2019) and AFS (NSDI 2021), as baselines",
            section=section,
            idle=() if name.endswith("-e") else ("requested",),
            needs=("work.total", "throughput"),
            guarantees=guarantees,
        )
        for name, function, summary, section, guarantees in (
            (
                "srtf",
                "srtf",
                "Shortest remaining time first, pre-emptive.",
                "AFS §2.2",
                ("least mean completion time on one resource with known lengths",),
            ),
            ("srsf", "srsf", "Shortest remaining service (time x GPUs) first, pre-emptive.", "AFS §2.2", ()),
            ("srtf-e", "srtf_elastic", "SRTF, then left-over GPUs to whoever's throughput grows most.", "AFS §5.5", ()),
            ("srsf-e", "srsf_elastic", "SRSF, then left-over GPUs to whoever's throughput grows most.", "AFS §5.5", ()),
        )
    ),
    Entry(
        name="las",
        summary="Least attained service first, pre-emptive.",
        call="policy.baselines.attained:las",
        weighs=False,
        idle=("requested",),
        paper="Tiresias: A GPU Cluster Manager for Distributed Deep Learning (NSDI 2019)",
        section="§3; Themis §6.1 with scope=app",
        guarantees=("equal attained GPU time in the long run among jobs that always wait",),
        options=(Option("scope", str, "job", "whose service counts", choices=("job", "app")),),
    ),
    Entry(
        name="tiresias-l",
        summary="Two queues by attained GPU time, first come first served within each, promotion of the starved.",
        call="policy.baselines.attained:tiresias_l",
        weighs=False,
        idle=("requested",),
        paper="Tiresias: A GPU Cluster Manager for Distributed Deep Learning (NSDI 2019)",
        section="§3 (discretised two-dimensional LAS)",
        options=(
            Option(
                "threshold", float, 3600.0, "attained service above which a job is in queue 2", low=0.0, unit="GPU-s"
            ),
            Option("promote_knob", float, 8.0, "waiting, in times of its run, that promotes a job; 0: never", low=0.0),
        ),
    ),
    Entry(
        name="drf",
        summary="Dominant resource fairness over GPUs, CPUs and memory, in whole gangs.",
        call="policy.baselines.drf:decide",
        weighs=True,
        idle=("requested",),
        paper="Dominant Resource Fairness (NSDI 2011)",
        section="§4, Algorithm 1",
        needs=("cpus and memory of nodes and jobs, else GPUs alone count",),
        guarantees=("sharing incentive, envy-freeness and strategy-proofness for divisible demands; gangs round them",),
    ),
    Entry(
        name="optimus",
        summary="Each next GPU to the job whose predicted remaining time it cuts most.",
        call="policy.baselines.optimus:decide",
        weighs=False,
        paper="Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning Clusters (EuroSys 2018)",
        section="§4.1; Themis §6.1 with metric=scaling",
        needs=("throughput", "work.total or loss"),
        options=(
            Option("metric", str, "remaining", "what a step is judged by", choices=("remaining", "scaling")),
            Option(
                "convergence", float, 1e-4, "fall of the loss, as a part of its whole, that counts as none", low=0.0
            ),
        ),
    ),
    Entry(
        name="slaq",
        summary="GPUs to the jobs whose loss falls most by them in the next epoch.",
        call="policy.baselines.slaq:decide",
        weighs=False,
        paper="SLAQ: Quality-Driven Scheduling for Distributed Machine Learning (SoCC 2017)",
        section="§4",
        needs=("throughput", "loss"),
        options=(Option("epoch", float, 180.0, "how far ahead losses are predicted", low=1.0, unit="s"),),
    ),
    Entry(
        name="gandiva",
        summary="Packing by affinity, time-slicing, migration and grow-shrink: efficiency, no fairness.",
        call="policy.baselines.gandiva:decide",
        weighs=False,
        idle=("requested",),
        paper="Gandiva: Introspective Cluster Scheduling for Deep Learning (OSDI 2018)",
        section="§3, §4; Themis §6.1 with variant=themis",
        needs=("throughput (for migration and growing)",),
        options=(
            Option("variant", str, "gandiva", "as published, or as Themis' baseline", choices=("gandiva", "themis")),
            Option("quantum", float, 60.0, "a turn, when jobs wait", low=1.0, unit="s"),
            Option("migration_threshold", float, 0.2, "gain in throughput that moves a job", low=0.0),
            Option("grow", bool, True, "elastic jobs grow on idle GPUs"),
        ),
        quantum=True,
    ),
)
