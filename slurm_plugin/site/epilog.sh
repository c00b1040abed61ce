#!/bin/sh
# EpilogSlurmctld: tells Horae's arbiter that a job has ended, so that it looks at once instead of at its next round.
#
# It never waits (a full or hanging spool delays nothing: the append is left to a session of its own, for slurmctld
# ends this script's process group with it), never calls Slurm, writes to a plain file alone, and always succeeds.
# Slurm gives no PATH here.
PATH=/usr/bin:/bin
export PATH
events=@SPOOL@/events
if [ -f "$events" ] && [ ! -L "$events" ]; then
  setsid -f sh -c 'echo end >> "$1"' sh "$events" < /dev/null > /dev/null 2>&1
fi
exit 0
