#!/bin/sh
# Hand every job that Horae holds or fences back to Slurm's own scheduler. Needs neither Python nor the arbiter.
#
#   release-all.sh [SPOOL]          as SlurmUser, root or an Operator
#
# Removes the heartbeat first, so that the Lua module holds nothing new, then releases all: pending jobs with the
# request their users made, running jobs from the fence (a hold that has no effect while they run).
spool=${1:-/var/spool/horae}
rm -f "$spool/heartbeat"
squeue -h -a -r -t all -O "JobArrayID:|,State:|,admin_comment:|" | awk -F'|' '
  $3 !~ /(^| )horae=/ { next }
  $2 == "PENDING" || $2 == "SPECIAL_EXIT" || $2 == "REQUEUE_HOLD" {
    gpus = 0; nodes = 1; cpus = 0
    n = split($3, word, /[ ,]/)
    for (i = 1; i <= n; i++) {
      if (word[i] ~ /^gpus=[0-9]+$/) gpus = substr(word[i], 6) + 0
      if (word[i] ~ /^nodes=[0-9]+$/) nodes = substr(word[i], 7) + 0
      if (word[i] ~ /^cpus=[0-9]+$/) cpus = substr(word[i], 6) + 0
    }
    each = int(cpus / nodes); if (each < 1) each = 1
    shape = ""
    if (gpus > 0) {
      share = int((gpus + nodes - 1) / nodes)
      shape = sprintf(" NumNodes=%d-%d NumTasks=%d CpusPerTask=%d NumCPUs=%d Gres=gpu:%d", nodes, nodes, nodes, each, nodes * each, share)
    }
    printf "update jobid=%s SiteFactor=0\n", $1
    printf "update jobid=%s StartTime=now ReqNodeList=%s\n", $1, shape
    printf "release %s\n", $1
  }
  $2 == "RUNNING" || $2 == "CONFIGURING" || $2 == "COMPLETING" || $2 == "SUSPENDED" { printf "release %s\n", $1 }
' | scontrol > /dev/null
