#!/bin/sh
# EpilogSlurmctld: tells Horae's arbiter that a job has ended, so that it looks at once instead of at its next round.
#
# It never waits (a full or hanging spool delays nothing: it is looked at and written in a session of its own, for
# slurmctld ends this script's process group with it), never calls Slurm, writes to a plain file alone, and always
# succeeds. Slurm gives no PATH here.
PATH=/usr/bin:/bin
export PATH
# The word that is read says that the session is its own by now: without it slurmctld could end it before.
setsid -f sh -c 'echo; exec > /dev/null; [ -f "$1" ] && [ ! -L "$1" ] && echo end >> "$1"' \
  sh '@SPOOL@/events' < /dev/null 2> /dev/null | read -r _
exit 0
