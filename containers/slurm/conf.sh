#!/bin/sh
# /etc/slurm of the cluster that compose.yaml describes, from the templates beside this file: conf.sh ETC SHARED
#
# `horae lab up slurm` does not use it: it writes its own, for any number of nodes. Needs the module and the SDK
# of a checkout or an installation, named by SITE, ELASTIC and ON_NODE.
set -eu
etc=$1 shared=$2 here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$etc/horae" "$shared/horae/spool" "$shared/horae/lib/horae" "$shared/horae/lib/slurm_plugin" \
  "$shared/horae/bin"
isolation='ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none'
accounting='AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=dbd\nAccountingStorageTRES=gres/gpu'
scheduling='SchedulerParameters=batch_sched_delay=0,sched_min_interval=0\nPriorityType=priority/basic'
node='CPUs=16 RealMemory=16000 State=UNKNOWN'
nodes="NodeName=n[1-2] Gres=gpu:v100:4 Feature=v100 $node\\\\nNodeName=n[3-4] Gres=gpu:k80:4 Feature=k80 $node"
managed='PartitionName=dl Nodes=n[1-4] Default=YES MaxTime=INFINITE State=UP PriorityTier=10'
partitions="$managed\\\\nPartitionName=raw Nodes=n[1-4] MaxTime=INFINITE State=UP"
sed -e 's|$CLUSTER|lab|' -e 's|$CONTROLLER_PORT|6817|' -e 's|$CONTROLLER|ctl|' -e 's|$SLURM_USER|slurm|' \
  -e '/^$AUTH_INFO$/d' -e '/^$PLUGIN_DIR$/d' -e 's|$JWT_KEY|/run/slurm/jwt.key|' -e 's|$STATE|/var/lib/slurm|' \
  -e 's|$SLURMD_SPOOL|/var/spool/slurmd|' -e 's|$RUN/slurmd-%n.pid|/run/slurmd.pid|' -e 's|$RUN|/run/slurmctld|' \
  -e 's|$LOG|/var/log/slurm|' -e 's|$SELECT|CR_Core|' -e "s|\$ISOLATION|$isolation|" \
  -e "s|\$ACCOUNTING|$accounting|" -e "s|\$SCHEDULING|$scheduling|" \
  -e "s|\$NODES|$(printf '%b' "$nodes")|" -e "s|\$PARTITIONS|$(printf '%b' "$partitions")|" \
  "$here/conf/slurm.conf.in" > "$etc/slurm.conf.part"
{
  echo AutoDetect=off
  echo 'NodeName=n[1-2] Name=gpu Type=v100 File=/dev/nvidia[0-3]'
  echo 'NodeName=n[3-4] Name=gpu Type=k80 File=/dev/nvidia[0-3]'
} > "$etc/gres.conf"
[ "${RELEASE:-24.11}" = 22.05 ] || echo CgroupPlugin=disabled > "$etc/cgroup.conf"
chmod 1777 "$shared"
cp "$here/conf/slurmdbd.conf.in" "$etc/"
sed 's|$HORAE_LUA|/etc/slurm/horae|' "$here/conf/job_submit.lua" > "$etc/job_submit.lua"
cp "$SITE/horae.lua" "$SITE/release-all.sh" "$etc/horae/"
cat > "$etc/horae/horae_conf.lua" <<'X'
return {
  partitions = {dl = true}, spool = "/shared/horae/spool", stale_s = 120,
  admins = {[0] = true, [64030] = true, [2003] = true}, default_partition = "dl",
}
X
# What `python -m horae.elastic.carry` writes, of Slurm's alone: this image has no Horae to ask.
cp -r "$ELASTIC" "$shared/horae/lib/horae/"
cp -r "$ON_NODE" "$shared/horae/lib/slurm_plugin/"
touch "$shared/horae/lib/horae/__init__.py" "$shared/horae/lib/slurm_plugin/__init__.py"
cat > "$shared/horae/lib/horae/elastic/supervisor/launchers.json" <<'X'
{"$SLURM_JOB_ID": "slurm_plugin.on_node.batch", "--slurm-task": "slurm_plugin.on_node.task"}
X
cat > "$shared/horae/lib/__main__.py" <<'X'
from horae.elastic.supervisor.command import main
raise SystemExit(main())
X
cat > "$shared/horae/bin/horae-exec" <<'X'
#!/bin/sh
here=$(dirname "$(dirname "$(readlink -f "$0")")")
export PATH="${PATH:-/usr/local/bin:/usr/bin:/bin}" PYTHONPATH="$here/lib${PYTHONPATH:+:$PYTHONPATH}"
exec python3 "$here/lib" "$@"  # by its path: `-m` would look for modules in the job's folder first
X
chmod 755 "$shared/horae/bin/horae-exec"
cat > "$etc/horae/config.yaml" <<'X'
state_dir: /var/lib/horae
cluster:
  adapter: slurm
  options: {partitions: [dl], spool: /shared/horae/spool, state: /var/lib/horae/memory}
pools:
  - {name: dl, policy: max-min, mode: enforce}
api: {socket: /run/horae/api.sock}
X
mv "$etc/slurm.conf.part" "$etc/slurm.conf" # last: the daemons wait for it
