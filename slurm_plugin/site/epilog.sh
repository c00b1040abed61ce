#!/bin/sh
# EpilogSlurmctld: tells Horae's arbiter that a job has ended, so that it looks at once instead of at its next round.
#
# It never waits (the append is left behind in the background, a full or hanging spool delays nothing), never calls
# Slurm, writes to a plain file alone, and always succeeds. Slurm gives no PATH here.
events=@SPOOL@/events
if [ -f "$events" ] && [ ! -L "$events" ]; then
  (echo end >> "$events") < /dev/null > /dev/null 2>&1 &
fi
exit 0
