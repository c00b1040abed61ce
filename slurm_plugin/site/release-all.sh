#!/bin/sh
# Hand every job that Horae holds or fences back to Slurm's own scheduler. Needs neither Python nor the arbiter.
#
#   release-all.sh [SPOOL]          as SlurmUser, root or an Operator
#
# Removes the heartbeat first, so that the Lua module holds nothing new, then releases all: pending jobs with the
# request their users made and at the time they asked for, running jobs from a hold (that older versions left on them).
# What its owner or an administrator holds stays held, and is named at the end: Horae holds whom SPOOL/holds names, whom
# the module held at submission, and elastic jobs that have run, unless an administrator held them beside their exit code.
# SPOOL/marks has the marks of those whose AdminComment somebody wrote over.
# SPOOL/ordered names whose SiteFactor was written, also of jobs that bear no tag: mode `order` writes nothing else.
spool=${1:-/var/spool/horae}
# What its caller set for himself would show fewer jobs than there are, or another cluster's.
unset SLURM_CLUSTERS $(env | sed -n 's/^\(SQUEUE_[A-Z0-9_]*\)=.*/\1/p; s/^\(SCONTROL_[A-Z0-9_]*\)=.*/\1/p')
rm -f -- "$spool/heartbeat"
# Who orders nothing has no SiteFactor to take back.
factor= loses=
config=$(scontrol show config)
printf '%s\n' "$config" | grep -qi '^PriorityType.*multifactor' && factor=" SiteFactor=0"
# Between 22.05 and 26.05 each update counts the tasks of --ntasks-per-gpu (and of GPUs a task) anew, and wrongly, unless it says them.
version=$(printf '%s\n' "$config" | sed -n 's/^SLURM_VERSION *= *\([0-9]*\)[.]\([0-9]*\).*/\1\2/p')
[ "${version:-0}" -gt 2205 ] && [ "$version" -lt 2605 ] && loses=yes
now=$(date +%s)
# Of `update jobid=RECORD ... NumTasks=?JOB` the tasks that Slurm shows, where they follow from the GPUs. Of a job that
# cannot be seen the order stays as it is: scontrol refuses it, and it is looked for again.
with_tasks() {
  while IFS= read -r order; do
    case $order in
      *" NumTasks=?"*)
        shown=$(scontrol show job "${order##*\?}") && order=${order%" NumTasks="*}$(printf '%s\n' "$shown" | awk '
          /^   JobState=/ { waits = index($1, "=PENDING") && !done }
          waits && /^ +NumNodes=/ { for (i = 1; i <= NF; i++) if ($i ~ /^NumTasks=[0-9]+$/) tasks = " " $i }
          waits && /^ +(NtasksPerTRES=[1-9]|TresPerTask=.*gpu)/ { done = 1; print tasks }') ;;
    esac
    printf '%s\n' "$order"
  done
}
hand_back() {
  # An array that waits is one record, and stays one; its list of tasks is not to be cut off.
  jobs=$(SLURM_BITSTR_LEN=0 SLURM_TIME_FORMAT=%s squeue -h -a -t all \
    -O "JobArrayID:|,State:|,PriorityLong:|,restartcnt:|,EligibleTime:|,SubmitTime:|,Partition:|,admin_comment:|,Reason:|") || return
  orders=$(printf '%s\n' "$jobs" | awk -F'|' -v now="$now" -v lever="$factor" -v loses="$loses" \
    -v holds="$spool/holds" -v ordered="$spool/ordered" -v marks="$spool/marks" '
  BEGIN {
    kinds = split("BEGIN END FAIL REQUEUE TIME_LIMIT TIME_LIMIT_90 TIME_LIMIT_80 TIME_LIMIT_50 STAGE_OUT " \
      "ARRAY_TASKS INVALID_DEPEND", kind, " ")
    by_hand["JobHeldAdmin"] = by_hand["job requeued in held state"] = 1
    while ((getline line < holds) > 0) ours[line] = 1
    while ((told = (getline line < ordered)) > 0) lifted[line] = 1
    while ((getline line < marks) > 0) if (split(line, part, " ") == 4) {
      since[part[1]] = part[2]; starts[part[1]] = part[3]; mark[part[1]] = part[4]
    }
  }
  NF > 10 { # its site wrote bars before the mark
    for (i = 9; i < NF - 1; i++) $8 = $8 "|" $i
    $9 = $(NF - 1)
  }
  { # tasks that an array record stands for have been ordered alike: the first tells
    sub(/%[0-9]+/, "", $1)
    name = $1; sub(/\[/, "", name); sub(/[],-].*/, "", name)
    if ((name in mark) && $8 !~ /(^| )horae=/ && ($6 == since[name] || $4 + 0 > starts[name] + 0)) $8 = mark[name]
    if (match(" " $8, / horae=[0-9A-Za-z]+/)) name = name "." substr($8, RSTART + 6, RLENGTH - 7)
    lives = $2 == "RUNNING" || $2 == "CONFIGURING" || $2 == "SUSPENDED"
    # without the note all that wait are taken to have a factor: none that lasts is to be left
    factor = (name in lifted) || (told < 0 && !lives) ? lever : ""
  }
  $8 !~ /(^| )horae=/ {
    if (name in lifted && lever != "" && (lives || $2 == "PENDING" || $2 == "SPECIAL_EXIT" || $2 == "REQUEUE_HOLD"))
      printf "update jobid=%s%s%s\n", $1, lever, (loses == "" || lives ? "" : " NumTasks=?" name)
    next
  }
  lives && factor != "" { printf "update jobid=%s%s\n", $1, factor } # requeued later, it would be first again
  $2 == "PENDING" || $2 == "SPECIAL_EXIT" || $2 == "REQUEUE_HOLD" {
    nonce = ""; gpus = 0; nodes = 1; cpus = 0; start = "now"; own = 0; arrived = 0; mail = 0; mails = ""
    beside = ""; list = ""; tasks = ""
    n = split($8, word, /[ ,]/)
    for (i = 1; i <= n; i++) {
      if (word[i] ~ /^horae=[0-9A-Za-z]+$/) nonce = substr(word[i], 7)
      if (word[i] ~ /^gpus=[0-9]+$/) gpus = substr(word[i], 6) + 0
      if (word[i] ~ /^nodes=[0-9]+$/) nodes = substr(word[i], 7) + 0
      if (word[i] ~ /^cpus=[0-9]+$/) cpus = substr(word[i], 6) + 0
      if (word[i] ~ /^begin=[0-9]+$/ && substr(word[i], 7) + 0 > now + 0) start = "uts" substr(word[i], 7)
      if (word[i] ~ /^beside=[A-Za-z0-9_.\/-]+$/) beside = substr(word[i], 8)
      if (word[i] ~ /^list=[A-Za-z0-9_.\/-]+$/) list = substr(word[i], 6)
      if (word[i] == "shape=own") own = 1
      if (word[i] ~ /^tasks=[0-9]+$/) tasks = " NumTasks=" substr(word[i], 7) # some releases lose them in an update
      if (word[i] == "held=1") arrived = 1
      if (word[i] ~ /^mail=[0-9]+$/) mail = substr(word[i], 6) + 0
    }
    # Of a job that never ran: another begin time than that of the module was given by an administrator.
    if ($4 + 0 == 0 && $5 + 0 > now + 0 && $5 - $6 < 365 * 86400) start = "uts" $5
    if (nodes < 1) nodes = 1
    each = int(cpus / nodes); if (each < 1) each = 1
    shape = ""
    gsub("/", ",", beside); gsub("/", ",", list)
    if (beside != "" && $7 == beside) { # it waits there as anybody does: what holds it is not ours
      if ($3 + 0 == 0) left = left (left == "" ? "" : ",") $1
      printf "update jobid=%s Partition=%s%s\n", $1, list, tasks
      next
    }
    others = $3 + 0 == 0 && !arrived && !(($1 "." nonce) in ours) && (own || $4 + 0 == 0 || by_hand[$9])
    if (others) left = left (left == "" ? "" : ",") $1
    if (own) {
      when = sprintf("update jobid=%s StartTime=%s%s%s\n", $1, start, factor, tasks)
      if ($3 + 0 == 0 && !others && tasks != "") printf "update jobid=%s StartTime=uts%d\nrelease %s\n%s", $1, now + 60, $1, when
      else if ($3 + 0 == 0 && !others) printf "%srelease %s\n", when, $1
      else printf "%s", when
      next
    }
    if (gpus > 0) {
      share = int((gpus + nodes - 1) / nodes)
      shape = sprintf(" NumNodes=%d-%d NumTasks=%d CpusPerTask=%d NumCPUs=%d Gres=gpu:%d", nodes, nodes, nodes, each, nodes * each, share)
    }
    for (bit = 1; bit <= kinds; bit++) if (int(mail / 2 ^ (bit - 1)) % 2) mails = mails "," kind[bit]
    if (mails != "") shape = shape " MailType=" substr(mails, 2)
    printf "update jobid=%s ReqNodeList=%s%s\n", $1, shape, factor
    printf "update jobid=%s StartTime=%s\n", $1, start
    if ($3 + 0 == 0 && !others) printf "release %s\n", $1
  }
  $3 + 0 == 0 && lives { printf "release %s\n", $1 }
  END { if (left != "") print "release-all.sh: left held, by their owners or an administrator: " left > "/dev/stderr" }
') || return
  case $orders in *" NumTasks=?"*) orders=$(printf '%s\n' "$orders" | with_tasks) ;; esac
  [ -n "$orders" ] || return 0
  said=$(printf '%s\n' "$orders" | scontrol 2>&1 > /dev/null) && return
  # What 26.05 says of an update that it makes all the same, for a job that its partition cannot hold now, is no failure.
  said=$(printf '%s\n' "$said" | grep -v 'Requested partition configuration not available now') || return 0
  printf '%s\n' "$said" >&2
  return 1
}
# A job that starts or ends between the look and its update makes scontrol fail; the next look does not find it waiting.
hand_back || { sleep 1; hand_back; } || { sleep 2; hand_back; }
