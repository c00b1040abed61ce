"""What users and administrators do beside sbatch, on a real Slurm: in a managed partition under an arbiter as in a
plain one on the same nodes. Each case is a shell script of its user's and the administrator's commands, run in
both; what it prints of their answers, ends and outputs is the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.contract.harness import starts_in, steps_in
from tests.contract.waiting import wait_for
from tests.real import slurm_accounts as accounts
from tests.real.serving import trainer
from tests.real.slurm import Containers, slurm_site  # noqa: F401 - a fixture

pytestmark = [pytest.mark.real, pytest.mark.soak]

#: U: as an ordinary user. B: sbatch of one GPU. f: a field of a job. st: its states. w: until it is in a state.
#: e: how it ends. t: a command's exit code and words about a job. plain: of the plain side alone.
PRELUDE = r"""
P={partition}; ACC={account}; SIDE={side}; D=/shared/day-$P/{name}
mkdir -p $D; chmod 777 /shared/day-$P $D; cd $D
U() {{ runuser -u alice -- "$@" < /dev/null; }}
O="-p $P --account=$ACC --qos=$ACC"
B() {{ U sbatch --parsable $O --gres=gpu:1 "$@" 2>&1; }}
f() {{ scontrol show job $1 | tr ' ' '\n' | sed -n "s/^$2=//p" | head -1; }}
st() {{ squeue -h -t all -j $1 -o %T 2>&1 | sort -u | tr '\n' ' '; }}
w() {{ for i in $(seq 1 ${{3:-240}}); do squeue -h -t all -j $1 -o %T | grep -qE "^($2)$" && return; sleep .25; done
       echo "NEVER $2: $(st $1)" | sed "s/$1/JOB/g"; }}
e() {{ w $1 'COMPLETED|FAILED|CANCELLED|TIMEOUT|DEADLINE|NODE_FAIL|OUT_OF_MEMORY' ${{2:-320}}
       echo "end $(f $1 JobState) $(f $1 ExitCode) r$(f $1 Restarts)"; }}
t() {{ out=$("${{@:2}}" 2>&1); rc=$?; echo "rc=$rc $out" | sed "s/\b$1\b/JOB/g"; }}
plain() {{ [ $SIDE = plain ] && "$@" > /dev/null; true; }}
"""
#: of sbatch, that the cases below do not have
WORDS = (
    '--spread-job --use-min-nodes --overcommit --distribution=cyclic --mem-bind=none --propagate=NONE "-B 1:4"',
    "--get-user-env --gpu-bind=none --gpu-freq=low --ntasks-per-core=1 --ntasks-per-socket=1 --mincpus=3",
    "--nice=9 --bbf=/x --network=x --reboot --core-spec=1 --thread-spec=1 --stepmgr --oom-kill-step=1 --segment=1",
    "--exclusive=mcs --mcs-label=x --tres-bind=gres/gpu:none --cpus-per-gpu=2 --mem-per-gpu=10 --sockets-per-node=1",
    '"--gpus-per-socket=1 --sockets-per-node=1" --wckey=w --profile=all --hint=nomultithread --switches=1@1:00 --tmp=1',
    "--tmp=0 --gres-flags=enforce-binding --gres-flags=disable-binding --gres-flags=one-task-per-sharing --no-requeue",
    '--wait-all-nodes=1 --acctg-freq=5 --hint=memory_bound "--mail-type=ALL,TIME_LIMIT_50,ARRAY_TASKS --mail-user=x@y"',
)
#: together
CASES = {
    "environments": r"""
for x in NONE NIL FOO=bar; do
  J=$(B --export=$x -o "o-$x" --wrap='/usr/bin/env | /usr/bin/cut -d= -f1 | /usr/bin/sort'); e $J; grep -v ^HORAE_ o-$x
done; printf 'A=1\0B=2\0' > f; J=$(B --export-file=f -o o --wrap='echo $A $B'); e $J; cat o""",
    **{
        f"words of sbatch, {number}": rf"""
for o in {words}; do
  J=$(B $o -o /dev/null --wrap=true | sed 's/job [0-9]*/job J/' | grep -v Ignoring)
  case $J in *error*) echo "$o: $J" ;; *) echo "$o: $(e $J)" ;; esac
done"""
        for number, words in enumerate(WORDS)
    },
    "signals to steps": r"""
J=$(B -o o --wrap='trap "echo got" USR1; touch up; until [ -e go ]; do sleep .2; done
  srun sh -c "trap \"echo step\" USR2; touch up2; until [ -e go2 ]; do sleep .2; done"')
for i in $(seq 240); do [ -e up ] && break; sleep .25; done; t $J U scancel -b -s USR1 $J; sleep 1; touch go
for i in $(seq 240); do [ -e up2 ] && break; sleep .25; done; t $J U scancel -s USR2 $J
t $J runuser -u bob -- scancel -s USR2 $J; sleep 1; touch go2; e $J; sort o""",
    "a rank that fails": r"""
J=$(U sbatch --parsable $O --gres=gpu:2 -n2 -o o --wrap='srun --kill-on-bad-exit=1 sh -c \
  "[ \$SLURM_PROCID = 0 ] && exit 5; sleep 60"; echo rc $?'); e $J; grep -o "^rc.*" o""",
    "signal": r"""
J=$(B -t1 --signal=B:USR1@55 -o o --wrap="trap 'echo got; exit 3' USR1; sleep 100 & wait"); e $J; grep got o""",
    "aftercorr": r"""
A=$(B -o /dev/null --array=1-3 --wrap='sleep 1; [ $SLURM_ARRAY_TASK_ID != 2 ]')
C=$(B -o /dev/null --array=1-3 -d aftercorr:$A --kill-on-invalid-dep=yes --wrap=true)
for i in 1 2 3; do e ${A}_$i; e ${C}_$i; done""",
    "throttle": r"""
A=$(B -o /dev/null --array=1-4%1 --wrap="sleep 45"); w ${A}_1 RUNNING; sleep 1; squeue -h -j $A -t R | wc -l
t $A U scontrol update jobid=$A ArrayTaskThrottle=3
for i in $(seq 160); do n=$(squeue -h -j $A -t R | wc -l); [ $n -ge 2 ] && break; sleep .25; done; echo $((n >= 2))
U scancel $A""",
    "holds": r"""
J=$(B -o /dev/null --begin=now+1hour --wrap=true)
for c in hold hold release release uhold release top; do t $J U scontrol $c $J; done
for c in nice=50 nice=0; do t $J U scontrol update jobid=$J $c; done; st $J; t $J U scancel $J; st $J""",
    "release": r"""
J=$(B -o /dev/null --wrap="sleep 3"); t $J U scontrol hold $J; t $J U scontrol release $J; e $J""",
    "held by an administrator": r"""
J=$(B -o /dev/null --hold --wrap=true); t $J scontrol hold $J; t $J U scontrol release $J; st $J
t $J scontrol release $J; e $J""",
    "held by both": r"""
J=$(B -o /dev/null --begin=now+2 --wrap=true)
for c in "U scontrol hold" "scontrol hold" "U scontrol release" "scontrol uhold" "U scontrol release"; do
  t $J $c $J; st $J; f $J Reason
done; sleep 3; e $J""",
    "several at once": r"""
L="$(B -J a$P -o /dev/null --begin=now+1hour --wrap=true) $(B -J b$P -o /dev/null --begin=now+1hour --wrap=true)"
for c in "hold ${L/ /,}" "release ${L/ /,}" "hold jobname=a$P" "release jobname=a$P" "update jobname=b$P TimeLimit=3" \
    "top ${L/ /,}"; do
  echo "${c%% *}: $(U scontrol $c 2>&1 | sed 's/job [0-9,]*/job J/')"; for j in $L; do st $j; f $j TimeLimit; done
done; U scancel -n a$P; U scancel ${L#* }; for j in $L; do st $j; done""",
    "special": r"""
J=$(B -o /dev/null --requeue --wrap='sleep 20'); w $J RUNNING; sleep 1
t $J U scontrol requeuehold State=SpecialExit $J; w $J SPECIAL_EXIT; f $J Reason; t $J U scontrol release $J
plain scontrol update jobid=$J StartTime=now; w $J RUNNING; sleep 1; t $J U scontrol requeue State=SpecialExit $J
sleep 4; st $J; U scancel $J; e $J""",
    "another's": r"""
J=$(B -o /dev/null --begin=now+1hour --wrap=true)
for c in hold release requeue requeuehold suspend top; do t $J runuser -u bob -- scontrol $c $J; done
t $J runuser -u bob -- scontrol update jobid=$J Nice=3; t $J runuser -u bob -- scancel $J; U scancel $J""",
    "only tried": r"""
for c in "sbatch --test-only $O --gres=gpu:1 --wrap=true" "srun --test-only $O --gres=gpu:1 true"; do
  U $c 2>&1 | sed -E "s/Job [0-9]+ to start at [^ ]+/JOB at T/; s/nodes n[0-9]/NODE/"
done; squeue -h -p $P -u alice -n true | wc -l""",
    "held array": r"""
A=$(B -o /dev/null --array=1-3 --hold --wrap=true); t $A U scontrol release ${A}_2; e ${A}_2
squeue -h -j $A -t PD -o "%K %r"; U scontrol release $A 2> /dev/null; e ${A}_1; e ${A}_3""",
    "requeue of a task": r"""
A=$(B -o /dev/null --requeue --array=1-2 --wrap='[ "${SLURM_RESTART_COUNT:-0}" = 1 ] && exit 4; sleep 30')
w ${A}_1 RUNNING; w ${A}_2 RUNNING; sleep 1; t $A U scontrol requeue ${A}_1; w ${A}_1 PENDING
plain scontrol update jobid=${A}_1 StartTime=now; e ${A}_1; t $A U scancel ${A}_2; e ${A}_2""",
    "requeuehold": r"""
J=$(B -o /dev/null --requeue --wrap='[ "${SLURM_RESTART_COUNT:-0}" = 1 ] && exit 0; sleep 30'); w $J RUNNING
sleep 1; t $J U scontrol requeuehold $J; w $J PENDING; squeue -h -j $J -o "%r"; t $J U scontrol release $J
plain scontrol update jobid=$J StartTime=now; e $J""",
    "exit 86": r"""
J=$(B -o /dev/null --requeue --wrap='[ "${SLURM_RESTART_COUNT:-0}" = 1 ] && exit 0; sleep 1; exit 86')
w $J SPECIAL_EXIT; sleep 3; st $J; f $J Priority; t $J U scontrol release $J
plain scontrol update jobid=$J StartTime=now; e $J""",
    "kills": r"""
J=$(B -o /dev/null --wrap='trap "" TERM; while :; do sleep .2; done'); w $J RUNNING; sleep 2
t $J U scancel -s KILL $J; e $J
for s in --full "-f -s INT"; do
  J=$(B -o o --open-mode=append --wrap='trap "echo asked; exit 5" TERM INT; sleep 60 & wait'); w $J RUNNING; sleep 2
  t $J U scancel $s $J; e $J
done; grep -c asked o""",
    "a signal to one that waits": r"""
J=$(B -o /dev/null --begin=now+1hour --wrap=true); t $J timeout 6 runuser -u alice -- scancel -s USR1 $J; st $J
U scancel $J""",
    "cancelled at once": r"""
for i in 1 2 3 4; do J=$(B -o /dev/null --wrap="sleep 30"); U scancel $J; e $J; done""",
    "tasks cancelled": r"""
A=$(B -o /dev/null --array=1-6 --begin=now+1hour --wrap=true); t $A U scancel ${A}_[2-3]; squeue -h -j $A -o %K
t $A U scancel ${A}_1 ${A}_6; squeue -h -j $A -o %K; t $A U scancel -t PENDING -p $P -n wrap -u nobody
U scancel $A; sleep .5; squeue -h -j $A -t PD | wc -l""",
    "tasks changed": r"""
A=$(B -o /dev/null -t 20 --array=1-4 --begin=now+1hour --wrap=true)
t $A U scontrol update jobid=${A}_2 TimeLimit=5; t $A U scontrol hold ${A}_3
t $A U scontrol update jobid=$A JobName=x; squeue -h -r -j $A -o "%K %l %j %T" | sort; U scancel $A""",
    "singleton": r"""
for i in 1 2 3; do
  L="$L $(B -J one$P -d singleton -o o --open-mode=append --wrap="echo begin; sleep 1; echo end")"
done; for j in $L; do e $j; done; cat o""",
    "either of two": r"""
X=$(B -o /dev/null --wrap="exit 1"); Y=$(B -o /dev/null --wrap="sleep 2")
Z=$(B -o /dev/null -d "afterok:$X?afterok:$Y" --wrap=true)
V=$(B -o /dev/null -d afternotok:$X,afterok:$Y --wrap=true); e $Z; e $V""",
    "a dependency that cannot be": r"""
X=$(B -o /dev/null --wrap="exit 1"); Y=$(B -o /dev/null -d afterok:$X --kill-on-invalid-dep=yes --wrap=true)
Z=$(B -o /dev/null -d afterok:$X --kill-on-invalid-dep=no --wrap=true); e $Y; sleep 2; squeue -h -j $Z -o "%T %r"
U scancel $Z""",
    "a dependency taken back": r"""
X=$(B -o /dev/null --hold --wrap=true); Y=$(B -o /dev/null -d afterok:$X --wrap=true)
t $Y U scontrol update jobid=$Y Dependency=; e $Y; U scancel $X""",
    "after its begin": r"""
X=$(B -o /dev/null --wrap="sleep 30"); Y=$(B -o o -d after:$X --wrap="squeue -h -j $X -o %T"); e $Y; cat o
U scancel $X""",
    "an owner's changes": r"""
J=$(B -o /dev/null -t 30 --begin=now+1hour --wrap=true)
for c in TimeLimit=20 TimeLimit=5000 JobName=n Comment=c Dependency=singleton Dependency= WCKey=w Account=nosuch \
    QOS=nosuch MailType=END TimeMin=5 Switches=1 Requeue=1 Requeue=0 Deadline=now+1day Contiguous=1 Licenses=matlab \
    Licenses= StdOut=/tmp/x EndTime=now Features=v100 ExcNodeList=n1 OverSubscribe=yes Prefer=v100 BurstBuffer=x \
    NodeList=n2 ReservationName=nosuch Extra=x; do
  echo "$c: $(t $J U scontrol update jobid=$J $c)"
done; U scancel $J""",
    "where it runs": r"""
J=$(B -o /dev/null --begin=now+4 --wrap=true)
for c in Features=v100 'Features=v100|k80' ExcNodeList=n1 NodeList=n2; do t $J U scontrol update jobid=$J $c; done
e $J; f $J NodeList; f $J Features""",
    "a smaller one": r"""
J=$(U sbatch --parsable $O --gres=gpu:1 -N3 -o /dev/null --wrap='sleep 6'); w $J RUNNING; sleep 1
t $J U scontrol update jobid=$J NumNodes=2 | head -1; sleep 1; f $J NumNodes
t $J U scontrol update jobid=$J NumNodes=4; e $J""",
    "its limit": r"""
J=$(B -o /dev/null -t 5 --wrap="exec sleep 60"); w $J RUNNING; sleep 2; t $J U scontrol update jobid=$J TimeLimit=3
f $J TimeLimit; t $J U scontrol update jobid=$J TimeLimit=30; t $J U scontrol update jobid=$J Comment=x Nice=5
U scancel $J; e $J""",
    "over its limit": r"""J=$(B -o /dev/null -t 1 --wrap="sleep 300"); e $J 500""",
    "suspended": r"""
J=$(B -o /dev/null --wrap="sleep 5"); w $J RUNNING; sleep 1; t $J scontrol suspend $J; sleep 3; st $J
t $J scontrol resume $J; e $J""",
    "opened how": r"""
for m in append append truncate append; do J=$(B -o o --open-mode=$m --wrap="echo $m"); e $J; cat o; done""",
    "time at least": r"""J=$(B -o /dev/null -t 30 --time-min=10 --wrap="sleep 1"); e $J; f $J TimeMin""",
    "no limit": r"""for m in 0 UNLIMITED; do J=$(B -o /dev/null -t $m --wrap=true); e $J; f $J TimeLimit; done""",
    "all that is shown": r"""
J=$(B -J shown -o /dev/null -e /dev/null --delay-boot=10 --no-kill --mail-type=END,FAIL --mail-user=x@y --nice=3 \
    --kill-on-invalid-dep=yes --comment="my job" --contiguous --wrap="sleep 3"); w $J RUNNING; sleep .5
scontrol show job $J | tr ' ' '\n' | grep -vE "Time=|JobId|AdminComment|NodeList|BatchHost|AllocNode|Priority=" |
  grep -vE "Partition|^Account|QOS|LastSched|StdOut|MCS|^$" ; e $J""",
    "sbcast": r"""
echo text > b; J=$(B -o o --wrap='sbcast b /tmp/b-$SLURM_JOB_ID && srun cat /tmp/b-$SLURM_JOB_ID'); e $J; cat o""",
    "sattach": r"""
J=$(B -o /dev/null --wrap='srun sh -c "sleep 12; echo out"'); w $J RUNNING
for i in $(seq 40); do squeue -h -s -j $J | grep -q "\.0 " && break; sleep .2; done; sleep 2
t $J timeout 30 runuser -u alice -- sattach $J.0; e $J""",
    "steps": r"""
J=$(U sbatch --parsable $O --gres=gpu:2 -n2 -o o --wrap='for i in 1 2; do srun -n1 --gres=gpu:1 --exact echo step &
  done; wait; srun -n2 --overlap sh -c "echo rank \$SLURM_PROCID"'); e $J; sort o""",
    "a step from outside": r"""
J=$(B -o /dev/null --wrap="sleep 8"); w $J RUNNING; sleep 1
t $J timeout 30 runuser -u alice -- srun -Q --jobid=$J --overlap echo in; t $J U scontrol notify $J hello; e $J""",
    "tasks by both": r"""
J=$(U sbatch --parsable $O --gres=gpu:2 --gpus-per-task=1 -n4 -o o --wrap='srun sh -c "echo \$SLURM_PROCID"'); e $J
sort o""",
    "salloc in salloc": r"""
t 0 timeout 90 runuser -u alice -- salloc -Q $O --gres=gpu:1 sh -c \
  "salloc -Q $O --gres=gpu:1 srun echo in; srun echo outer; exit 4" """,
    "no shell": r"""
U salloc -Q $O --gres=gpu:1 --no-shell -J ns$P 2>&1 | sed 's/[0-9]*//g'; J=$(squeue -h -n ns$P -o %i); st $J
t $J timeout 30 runuser -u alice -- srun --jobid=$J --overlap echo in; U scancel $J; e $J""",
    "srun": r"""
timeout 60 runuser -u alice -- srun -Q $O --gres=gpu:1 sh -c 'exit 9' > /dev/null 2>&1; echo $?
timeout -s INT 3 runuser -u alice -- srun -Q $O -J i$P --gres=gpu:1 --begin=now+1hour true > /dev/null 2>&1
sleep 3; squeue -h -n i$P -t PD,R | wc -l""",
    "wait": r"""t 0 timeout 60 runuser -u alice -- sbatch -Q -W $O --gres=gpu:1 -o /dev/null --wrap="exit 7" """,
    "a script": r"""
printf '#!/bin/bash\n#SBATCH -o o\n#PBS -N other\necho "$SLURM_JOB_NAME $1 $2"\nenv | cut -d= -f1 | sort\n' > s.sh
J=$(B s.sh "a b" c); e $J; grep -v ^HORAE_ o; scontrol write batch_script $J - | cmp - s.sh && echo same""",
    "files": r"""
echo in > i; J=$(B -J files -i i -o "out-%x-%u-%a-%t-%n" -e err --wrap="cat; echo err >&2"); e $J
ls | sed "s/$J/JOB/"; cat out* err""",
    "by its environment": r"""
J=$(runuser -u alice -- env SBATCH_PARTITION=$P SBATCH_ACCOUNT=$ACC SBATCH_QOS=$ACC SBATCH_GRES=gpu:1 \
  sbatch --parsable -o o --wrap='echo $SLURM_GPUS_ON_NODE'); e $J; cat o""",
    "from within": r"""
J=$(B -o o --wrap="sbatch --parsable $O --gres=gpu:1 -o $D/inner --wrap='echo inner' > $D/id; echo rc \$?"); e $J
cat o; K=$(cat id); e $K; cat inner""",
    "no GPU": r"""J=$(U sbatch --parsable $O -o /dev/null --wrap=true); e $J; scontrol show job $J | grep -c Admin""",
    "features": r"""
for c in "--prefer=k80" "-C v100|k80" "-C [v100*1&k80*1] -N2" "-C [v100|k80] -N2" "-C v100&k80"; do
  J=$(B -o /dev/null $c --wrap=true); case $J in *error*) echo "$J" ;; *) e $J ;; esac
done""",
    "names": r"""
for n in "a'b" 'x"y' 'ünï 名' '$(touch pwned)' '`id`' 'a;b|c&d' '%x%j' ' lead' 'horae=abc,gpus=9' \
    "$(printf 'x%.0s' {1..900})"; do
  J=$(B -J "$n" -o "o-%x-%t" --wrap=true); e $J; squeue -h -t all -j $J -O name:1000
done; ls | sort; B -J "$(printf 'x%.0s' {1..2000})" --wrap=true""",
    "long words": r"""
L=$(printf 'y%.0s' {1..900}); J=$(B --comment="$L" -o /dev/null --begin=now+1hour --wrap=true)
B --comment="$(printf 'y%.0s' {1..2000})" -o /dev/null --wrap=true
t $J U scontrol update jobid=$J Comment="$(printf 'z%.0s' {1..65000})" | cut -c1-300; f $J Comment | wc -c
t $J U scontrol update jobid=$J JobName="$(printf 'z%.0s' {1..65000})" | cut -c1-300; f $J JobName | wc -c
U scancel $J""",
    "a large script": r"""
for n in 4000000 5000000; do
  { echo '#!/bin/bash'; head -c $n /dev/zero | tr '\0' '#' | fold -w 200; echo; echo 'exit 5'; } > s.sh
  J=$(B -o /dev/null s.sh); case $J in *error*) echo "$J" ;; *) e $J ;; esac
done; rm s.sh""",
    "patterns of a path": r"""
J=$(B -J pat -o "o-%%-%5j-%A-%s-%t-%n-%u-%x-%b" --wrap=true); e $J; ls | sed "s/$J/JOB/g"; rm -f o-*
A=$(B -J pat -o "o-%A-%a-%3a-%N" --array=2 --wrap=true); e ${A}_2; ls | sed "s/$A/JOB/g; s/n[1-4]$/NODE/"
J=$(B -o nowhere/o --wrap=true); e $J; f $J Reason""",
    "a folder that is gone": r"""
U mkdir w; J=$(B --begin=now+4 --chdir=$D/w -o $D/o --wrap=pwd); U rmdir w; e $J; cat o""",
    "a mask": r"""
J=$(U bash -c "umask 027; sbatch --parsable $O --gres=gpu:1 -o o --wrap='umask; touch made'"); e $J; cat o
stat -c %a o made""",
    "a trigger": r"""
J=$(B -o /dev/null --begin=now+1hour --wrap=true); t $J U strigger --set --jobid=$J --fini --program=/bin/true
t $J strigger --set --jobid=$J --fini --program=/bin/true | sed "s/[0-9]*$//"; U scancel $J""",
    "a part of several": r"""
H=$(U sbatch --parsable $O --gres=gpu:1 --begin=now+1hour : --gres=gpu:1 -o /dev/null --wrap=true)
t $H U scancel $H+1; st $H+1; st $H; U scancel $H; st $H""",
    "again after its end": r"""
for x in 0 3; do
  J=$(B -o o --open-mode=append --requeue --wrap="echo run; exit $x"); e $J; t $J U scontrol requeue $J; sleep 1
  st $J; f $J Restarts; plain scontrol update jobid=$J StartTime=now
  for i in $(seq 160); do [ "$(f $J Restarts)$(st $J)" = "1PENDING " ] || break; sleep .25; done; e $J
done; wc -l < o; J=$(B -o /dev/null --requeue --wrap="sleep 60"); w $J RUNNING; U scancel $J; e $J
t $J U scontrol requeue $J; U scancel $J; e $J
J=$(B -o /dev/null --requeue --wrap=true); e $J; t $J U scontrol requeuehold $J; sleep 3; st $J
t $J U scontrol release $J; plain scontrol update jobid=$J StartTime=now; sleep 1; e $J""",
    "many tasks": r"""
A=$(B -o /dev/null --array=1-60 --wrap='exit $((SLURM_ARRAY_TASK_ID % 3 == 0))')
for i in $(seq 1000); do squeue -h -t PD,R,CG,CF -r -j $A 2> /dev/null | grep -q . || break; sleep .25; done
squeue -h -t all -r -j $A -o %T | sort | uniq -c""",
    "an administrator's suspension": r"""
J=$(B -o o --wrap='for i in 1 2 3 4 5 6; do echo $i; sleep 2; done'); w $J RUNNING; sleep 1
for c in suspend suspend resume resume; do t $J scontrol $c $J; sleep 1; st $J; done
t $J U scontrol suspend $J; e $J; wc -l < o""",
    "top by an administrator": r"""
J=$(B -o /dev/null --begin=now+1hour --wrap=true); K=$(B -o /dev/null --begin=now+1hour --wrap=true)
t $K scontrol top $K; U scancel $J $K; st $K""",
    "refused": r"""
for o in -n0 -N5 --gres=gpu:9 --bb=x --time=x --account=nosuch --qos=nosuch "-M nosuch" --array=1-99999999 "-t 999-0" \
    --reservation=nosuch --uid=root --mem=99999999 "-w nosuch" --licenses=matlab:9 --gpus=0 --gres=none; do
  echo "$o: $(U sbatch $O --gres=gpu:1 -o /dev/null $o --wrap=true 2>&1 | sed 's/job [0-9]*/job J/')"
done""",
}
#: one after the other: they change the partition or its nodes
ALONE = {
    "a reservation that draws": r"""
scontrol create reservation=m$P user=alice starttime=now duration=60 nodes=n4 flags=ignore_jobs,magnetic > /dev/null
X=$(U sbatch --parsable $O --qos=normal --gres=gpu:4 -N3 -t 5 -o /dev/null --wrap="sleep 12"); w $X RUNNING
J=$(B -o /dev/null -t 5 --wrap="sleep 2"); e $J; for j in $X $J; do f $j NodeList; done; e $X
scontrol delete reservation=m$P""",
    "states of the partition": r"""
for s in DRAIN INACTIVE DOWN; do
  scontrol update PartitionName=$P State=$s; J=$(B -o /dev/null --wrap=true)
  echo "$s $(echo $J | sed 's/^[0-9]*$/in/')"
done; sleep 6; st $J; scontrol update PartitionName=$P State=UP; e $J""",
    "a reservation that comes and goes": r"""
scontrol create reservation=r$P user=alice starttime=now+1hour duration=60 nodes=n4 flags=ignore_jobs > /dev/null
J=$(B -o /dev/null --reservation=r$P -t 5 --wrap=true); sleep 1; f $J Reservation | sed "s/r$P/R/"
t $J scontrol delete reservation=r$P | sed "s/r$P/R/"; sleep 2; st $J; f $J Reason
t $J U scontrol release $J; sleep 1; st $J; U scancel $J; scontrol delete reservation=r$P 2> /dev/null; e $J
scontrol create reservation=r$P user=alice starttime=now duration=60 nodes=n4 flags=ignore_jobs > /dev/null
J=$(B -o /dev/null --reservation=r$P -t 5 --wrap="sleep 4"); w $J RUNNING
for c in delete "update nodes=n3"; do t $J scontrol ${c%% *} reservation=r$P ${c#* } | sed "s/r$P/R/"; done
e $J; sleep 1; scontrol delete reservation=r$P""",
    "licences that are reserved": r"""
scontrol create reservation=l$P user=root starttime=now duration=60 licenses=matlab:2 nodecnt=0 2>&1 | wc -l
J=$(B -o /dev/null -L matlab:1 --wrap=true); sleep 6; st $J; scontrol delete reservation=l$P; e $J""",
    "an account that may have less": r"""
J=$(U sbatch --parsable $O --gres=gpu:2 -o /dev/null --wrap="sleep 12"); w $J RUNNING
sacctmgr -iQ modify account $ACC set GrpTRES=gres/gpu=1 > /dev/null; K=$(B -o /dev/null --wrap=true); sleep 5
st $J; st $K; e $J; e $K; sacctmgr -iQ modify account $ACC set GrpTRES=gres/gpu=-1 > /dev/null""",
    "a user who leaves": r"""
J=$(B -o /dev/null --begin=now+1hour --wrap=true); K=$(B -o /dev/null --wrap="sleep 5"); w $K RUNNING
sacctmgr -i remove user alice account=$ACC 2>&1 | grep -o "Job(s) active.*"; e $K; U scancel $J; e $J
J=$(B -o /dev/null --begin=now+4 --wrap=true); sacctmgr -iQ modify user alice account=$ACC set qos=normal > /dev/null
sleep 7; st $J; sacctmgr -iQ modify user alice account=$ACC set qos=normal,$ACC > /dev/null; e $J""",
    "a QOS that is removed": r"""
sacctmgr -iQ add qos q$P > /dev/null; sacctmgr -iQ modify user alice account=$ACC set qos+=q$P > /dev/null; sleep 1
J=$(U sbatch --parsable -p $P --account=$ACC --qos=q$P --gres=gpu:1 -o /dev/null --begin=now+4 --wrap=true)
K=$(U sbatch --parsable -p $P --account=$ACC --qos=q$P --gres=gpu:1 -o /dev/null --wrap="sleep 4"); w $K RUNNING
sacctmgr -iQ remove qos q$P > /dev/null; e $K; sleep 6; st $J; f $J Reason; U scancel $J; e $J""",
    **{
        f"nodes that {state}": rf"""
K=$(B -o /dev/null --wrap="sleep 8"); w $K RUNNING
scontrol update nodename=n[1-4] state={state} reason=t 2>&1; J=$(B -o /dev/null --wrap=true); sleep 4; st $J; st $K
e $K; sleep 1; scontrol update nodename=n[1-4] state={back} 2>&1; e $J"""
        for state, back in (("fail", "resume"), ("power_down_asap", "resume"))
    },
    "a reboot": r"""
scontrol reboot ASAP nextstate=resume reason=t n1 2>&1; J=$(B -o /dev/null -w n1 --wrap=true); sleep 3; st $J
scontrol cancel_reboot n1 2>&1; e $J""",
    "a partition without a node": r"""
J=$(B -o /dev/null -w n4 --wrap="sleep 8"); w $J RUNNING; scontrol update PartitionName=$P Nodes=n[1-3]
K=$(B -o /dev/null --wrap="sleep 1"); e $K; st $J; scontrol update PartitionName=$P Nodes=n[1-4]; e $J""",
    "read anew": r"""
J=$(B -o /dev/null --wrap="sleep 6"); w $J RUNNING; K=$(B -o /dev/null --begin=now+3 --wrap=true)
H=$(B -o /dev/null --hold --wrap=true); scontrol reconfigure; sleep 1; scontrol reconfigure; e $J; e $K; st $H
U scontrol release $H; e $H""",
    "a controller that dies": r"""
J=$(B -o /dev/null --wrap="sleep 12"); w $J RUNNING; K=$(B -o /dev/null --begin=now+9 --wrap=true)
H=$(B -o /dev/null --hold --wrap=true); A=$(B -o /dev/null -d afterany:$J --wrap=true); sleep 7
kill -9 $(cat /run/slurmctld/slurmctld.pid); sleep 1; runuser -u slurm -- slurmctld
for i in $(seq 40); do scontrol ping | grep -q UP && break; sleep .25; done
e $J; e $K; e $A; st $H; U scontrol release $H; e $H""",
    "all of a user's": r"""
J=$(B -o /dev/null --wrap="sleep 60"); w $J RUNNING; K=$(B -o /dev/null --hold --wrap=true)
A=$(B -o /dev/null --array=1-3 --begin=now+1hour --wrap=true)
M=$(B -o /dev/null --begin=now+1hour -J other --wrap=true)
U scancel --state=PENDING --partition=$P --jobname=wrap; sleep 1; st $J; st $K; st $A; st $M
U scancel -u alice -p $P; e $J; e $M""",
    "another default": r"""
scontrol update PartitionName=$P Default=YES
J=$(U sbatch --parsable --account=$ACC --qos=$ACC --gres=gpu:1 -o /dev/null --begin=now+1hour --wrap=true)
scontrol update PartitionName=raw Default=YES; K=$(U sbatch --parsable --gres=gpu:1 -o /dev/null --wrap=true); e $K 40
scontrol update PartitionName=dl Default=YES; f $J Partition
scontrol show job $J | grep -q "part=$P" && taken=managed || taken=plain; [ $taken = $SIDE ] && echo right
U scancel $J""",
    "nobody's time": r"""
scontrol update PartitionName=$P DefaultTime=7; J=$(B -o /dev/null --begin=now+4 --wrap=true); f $J TimeLimit
scontrol update PartitionName=$P DefaultTime=9 MaxTime=5; sleep 7; st $J
scontrol update PartitionName=$P MaxTime=UNLIMITED DefaultTime=60; e $J; f $J TimeLimit""",
    "drained": r"""
scontrol update nodename=n[1-4] state=drain reason=t; J=$(B -o /dev/null --wrap=true); sleep 8; st $J
scontrol update nodename=n[1-4] state=resume; e $J""",
    **{
        f"{word} of the partition": rf"""
scontrol update PartitionName=$P {word}={most}; J=$(B -o /dev/null {asked} --wrap=true); echo $J | sed 's/^[0-9]*$/in/'
sleep 3; scontrol update PartitionName=$P {word}={back}; case $J in *error*) ;; *) e $J ;; esac"""
        for word, most, asked, back in (
            ("MaxTime", "10", "-t 20", "UNLIMITED"),
            ("MaxNodes", "1", "-N2", "UNLIMITED"),
            ("AllowAccounts", "root", "-t 2", "ALL"),
            ("Nodes", "n[1-3]", "-w n4", "n[1-4]"),
        )
    },
}


@pytest.fixture
def day(slurm_site: Containers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[accounts.Day]:  # noqa: F811
    for side in accounts.SIDES:
        monkeypatch.setitem(accounts.SIDES, side, "n[1-4]")
    conf = slurm_site.lab.folder / "etc/slurm.conf"
    before = conf.read_text()
    made = accounts.Day(slurm_site, tmp_path)
    # What was made by a command alone is gone once slurm.conf is read again, and its jobs with it.
    lines = (f"PartitionName={each} {' '.join(accounts.KIND)} Nodes=n[1-4]\n" for each in made.partitions.values())
    conf.write_text(before + "".join(lines))
    yield made
    conf.write_text(before)
    made.end()


def told(day: accounts.Day, side: str, name: str, script: str) -> str:
    """What it prints there, without the side's own names and times."""
    partition, account = day.partitions[side], day.name(side)
    begins = PRELUDE.format(partition=partition, account=account, side=side, name=re.sub(r"\W", "-", name))
    text = day.cluster.run("timeout", "280", "bash", "-c", f"{begins}{script}\ntrue")
    text = text.replace(partition, "PART").replace(account, "ACC")
    return re.sub(r"\b20\d\d-\d\d-\d\dT[\d:]+", "TIME", text)


def test_a_day_of_commands_is_as_in_a_plain_partition(day: accounts.Day) -> None:
    both = [(name, side) for name in CASES for side in accounts.SIDES]
    with ThreadPoolExecutor(6) as pool:
        found = dict(zip(both, pool.map(lambda each: told(day, each[1], each[0], CASES[each[0]]), both), strict=True))
    for name, script in ALONE.items():
        found |= {(name, side): told(day, side, name, script) for side in accounts.SIDES}
    apart = [
        f"{name}\n--- plain\n{found[name, 'plain']}\n--- managed\n{found[name, 'managed']}"
        for name in (*CASES, *ALONE)
        if found[name, "plain"] != found[name, "managed"]
    ]
    assert not apart, "\n\n".join(apart)
    assert "end COMPLETED" in found["tasks by both", "managed"]


def test_an_elastic_job_needs_nothing_of_its_users_environment(day: accounts.Day) -> None:
    """`--export=NONE`, as some sites would have it of everybody, and NIL, which leaves not even a PATH."""
    exec_ = f"exec {day.cluster.tool()} --checkpoint /shared/{day.partitions['managed']} -- /bin/true\n"
    jobs = {
        kind: day.submit("managed", f"--gres=gpu:2 --comment=horae:min=1,max=2 --export={kind}", exec_)
        for kind in ("NONE", "NIL")
    }
    for kind, job in jobs.items():
        over = ("squeue", "-h", "-t", "all", "-j", job, "-o", "%T")
        ended = partial(re.search, "COMPLETED|FAILED|CANCELLED")
        wait_for(f"{kind} ends", lambda over=over, ended=ended: ended(day.cluster.run(*over)), 240)  # type: ignore[misc]
        assert day.cluster.run(*over) == "COMPLETED", kind


#: what is done in the middle of a resize, and some seconds later
DEEDS = {
    "read anew": ("scontrol reconfigure", "scontrol reconfigure"),
    "a node less": ("scontrol update PartitionName=$P Nodes=n[2-4]", "scontrol update PartitionName=$P Nodes=n[1-4]"),
    "a controller that dies": (
        "sleep 5; kill -9 $(cat /run/slurmctld/slurmctld.pid); sleep 1; runuser -u slurm -- slurmctld",
        "for i in $(seq 40); do scontrol ping | grep -q UP && break; sleep .25; done",
    ),
    "suspended": ("scontrol suspend $E; sleep 3; scontrol resume $E", "true"),
    "drained": ("scontrol update nodename=n[1-2] state=drain reason=t", "scontrol update nodename=n[1-2] state=resume"),
    "failing": ("scontrol update nodename=n[3-4] state=fail reason=t", "scontrol update nodename=n[3-4] state=resume"),
    "closed": ("scontrol update PartitionName=$P State=INACTIVE", "scontrol update PartitionName=$P State=UP"),
    "shut": ("scontrol update PartitionName=$P State=DOWN; sleep 9", "scontrol update PartitionName=$P State=UP"),
    "requeued": ("scontrol requeue $E", "true"),
    "first": ("scontrol top $E", "scontrol update jobid=$E Nice=0"),
    "limited": (
        "sacctmgr -iQ modify qos $ACC set GrpTRES=gres/gpu=3",
        "sacctmgr -iQ modify qos $ACC set GrpTRES=gres/gpu=6",
    ),
}


def test_an_elastic_job_outlives_what_administrators_do_in_the_middle_of_its_resizes(day: accounts.Day) -> None:
    cluster, partition = day.cluster, day.partitions["managed"]
    here, steps = cluster.shared()[0], 100 * len(DEEDS)
    (here / f"{partition}.py").write_text(trainer(steps, 0.12))
    base, out = f"/shared/{partition}", here / f"{partition}.elastic"
    job = day.submit(
        "managed",
        f"--gres=gpu:1 --time=60 --open-mode=append --output={base}.elastic --comment=horae:min=1,max=8,iters={steps}",
        f"exec {cluster.tool()} --checkpoint {base}-e -- python3 {base}.py patient\n",
    )
    says = f"P={partition}; E={job}; ACC={day.name('managed')};"

    def log() -> bytes:
        return out.read_bytes() if out.exists() else b""

    def resized_since(starts: int) -> bool:
        return len(starts_in(log())) > starts

    for name, deed in DEEDS.items():
        starts = len(starts_in(log()))
        wait_for(f"it trains before it is {name}", lambda: steps_in(log().rpartition(b"start step=")[2]), 120)
        day.submit("managed", "--gres=gpu:4 --time=2", "sleep 4\n")
        cluster.run("bash", "-c", f"{says} {deed[0]}; sleep 3; {deed[1]}; true")
        wait_for(f"a resize: {name}", partial(resized_since, starts), 120)
    over = ("squeue", "-h", "-t", "all", "-j", job, "-o", "%T")
    wait_for("all is done", lambda: "COMPLETED" in cluster.run(*over), 240)
    done, epochs = steps_in(log()), [start.epoch for start in starts_in(log())]
    assert done == list(range(1, steps + 1)), "a step was left out, or done again"
    assert epochs == sorted(set(epochs)), "two starts of one number"
