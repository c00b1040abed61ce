#!/bin/sh
# Hand every job that Horae holds or fences back to Slurm's own scheduler. Needs neither Python nor the arbiter.
#
#   release-all.sh [SPOOL]          as SlurmUser, root or an Operator
#
# Removes the heartbeat first, so that the Lua module holds nothing new, then releases all: pending jobs with the
# request their users made and at the time they asked for, running jobs from a hold (that older versions left on them).
spool=${1:-/var/spool/horae}
rm -f "$spool/heartbeat"
now=$(date +%s)
hand_back() {
  # An array that waits is one record, and stays one; its list of tasks is not to be cut off.
  SLURM_BITSTR_LEN=0 squeue -h -a -t all -O "JobArrayID:|,State:|,PriorityLong:|,Reason:|,admin_comment:|" | awk -F'|' -v now="$now" '
  BEGIN {
    kinds = split("BEGIN END FAIL REQUEUE TIME_LIMIT TIME_LIMIT_90 TIME_LIMIT_80 TIME_LIMIT_50 STAGE_OUT " \
      "ARRAY_TASKS INVALID_DEPEND", kind, " ")
  }
  $5 !~ /(^| )horae=/ { next }
  { sub(/%[0-9]+/, "", $1) }
  $2 == "PENDING" || $2 == "SPECIAL_EXIT" || $2 == "REQUEUE_HOLD" {
    gpus = 0; nodes = 1; cpus = 0; start = "now"; own = 0; arrived = 0; mail = 0; mails = ""
    n = split($5, word, /[ ,]/)
    for (i = 1; i <= n; i++) {
      if (word[i] ~ /^gpus=[0-9]+$/) gpus = substr(word[i], 6) + 0
      if (word[i] ~ /^nodes=[0-9]+$/) nodes = substr(word[i], 7) + 0
      if (word[i] ~ /^cpus=[0-9]+$/) cpus = substr(word[i], 6) + 0
      if (word[i] ~ /^begin=[0-9]+$/ && substr(word[i], 7) + 0 > now + 0) start = "uts" substr(word[i], 7)
      if (word[i] == "shape=own") own = 1
      if (word[i] == "held=1") arrived = 1
      if (word[i] ~ /^mail=[0-9]+$/) mail = substr(word[i], 6) + 0
    }
    each = int(cpus / nodes); if (each < 1) each = 1
    shape = ""
    if (own) {
      printf "update jobid=%s SiteFactor=0\n", $1
      printf "update jobid=%s StartTime=%s\n", $1, start
      # What its own user holds stays held; what an administrator holds cannot be told from what Horae does.
      if ($3 + 0 == 0 && (arrived || $4 != "JobHeldUser")) printf "release %s\n", $1
      next
    }
    if (gpus > 0) {
      share = int((gpus + nodes - 1) / nodes)
      shape = sprintf(" NumNodes=%d-%d NumTasks=%d CpusPerTask=%d NumCPUs=%d Gres=gpu:%d", nodes, nodes, nodes, each, nodes * each, share)
    }
    printf "update jobid=%s SiteFactor=0\n", $1
    for (bit = 1; bit <= kinds; bit++) if (int(mail / 2 ^ (bit - 1)) % 2) mails = mails "," kind[bit]
    if (mails != "") shape = shape " MailType=" substr(mails, 2)
    printf "update jobid=%s ReqNodeList=%s\n", $1, shape
    printf "update jobid=%s StartTime=%s\n", $1, start
    if ($3 + 0 == 0) printf "release %s\n", $1
  }
  $3 + 0 == 0 && ($2 == "RUNNING" || $2 == "CONFIGURING" || $2 == "SUSPENDED") { printf "release %s\n", $1 }
' | scontrol > /dev/null
}
# A job that starts or ends between the look and its update makes scontrol fail; the next look does not find it waiting.
hand_back || { sleep 1; hand_back; } || { sleep 2; hand_back; }
