"""The words between a trainer, its supervisor and the cluster: exit codes, file names, environment variables.

Python 3.7+, standard library only, like everything in this folder.
"""

#: A trainer that wrote a complete checkpoint because it was asked to leave.
EXIT_STOPPED = 86
#: A trainer that found a newer start of its own job alive: it left without writing anything.
EXIT_SUPERSEDED = 87
#: A trainer that was asked to leave and could not write its checkpoint (a full disk, say): EX_IOERR of sysexits.h.
EXIT_NO_CHECKPOINT = 74
#: The supervisor was used wrongly or was given an unusable job folder: EX_USAGE of sysexits.h.
EXIT_USAGE = 64

# Files of a job folder (docs/architecture.md).
SPEC_FILE = "spec.json"
EPOCH_FILE = "epoch"
STOP_FILE = "stop"
CANCEL_FILE = "cancel"
STATE_FILE = "state.json"
LOCK_FILE = "lock"
LOG_FILE = "output.log"

#: What a log says of a working folder that is not there, or that its job's owner may not enter.
NO_FOLDER = "its working folder cannot be entered"

# Environment of a trainer.
ENV_JOB = "HORAE_JOB"
ENV_JOB_DIR = "HORAE_JOB_DIR"
ENV_SUFFIX = "HORAE_JOB_SUFFIX"  # behind the names of the job's own files there, where everybody may write
ENV_EPOCH = "HORAE_EPOCH"
ENV_NODES = "HORAE_NODES"  # JSON: node -> GPUs
ENV_CHECKPOINT = "HORAE_CHECKPOINT"
ENV_STOP_FILE = "HORAE_STOP_FILE"
ENV_FENCE_FILE = "HORAE_FENCE_FILE"
ENV_PORT = "HORAE_PORT"  # the SDK's own coordination, beside the framework's MASTER_PORT
ENV_SECRET = "HORAE_SECRET"  # drawn for each start: by it ranks know each other there
ENV_GRACE = "HORAE_GRACE_S"
ENV_SPEED = "HORAE_SPEED"  # relative speed of this rank's (virtual) GPU type
ENV_HOST = "HORAE_HOST"  # set by the site where a worker's own name for its machine is not the one to reach it by
ENV_NODE_MANAGER = "HORAE_NODE_MANAGER"  # host:port, set by the site where YARN's own words for it do not resolve there
ENV_SCRATCH = "HORAE_SCRATCH"  # set by the site: a folder for what goes with the worker, instead of /tmp
ENV_SUPERVISED = "HORAE_SUPERVISED"  # of a supervisor itself: its job's folder, by which it can be found
#: All of them: none is passed on from an outer job.
ENVIRONMENT = frozenset(
    ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK"]
    + ["MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES"]
    + [ENV_JOB, ENV_JOB_DIR, ENV_EPOCH, ENV_NODES, ENV_CHECKPOINT, ENV_STOP_FILE, ENV_FENCE_FILE, ENV_PORT]
    + [ENV_SUFFIX, ENV_SECRET, ENV_GRACE, ENV_SPEED, ENV_SUPERVISED]
)

#: Words a user may put under `extra` of a specification.
EXTRA_SELF_CHECKPOINTING = "self_checkpointing"  # "true": its checkpoints are not in the SDK's format
EXTRA_STOP_SIGNAL = "stop_signal"  # "USR1" (default) or "TERM"
EXTRA_REQUEUE_AT_LIMIT = "requeue_at_limit"  # "true": at its time limit it checkpoints, leaves and waits again
EXTRA_LOG_LIMIT = "log_limit_bytes"  # size at which the spool is rotated


#: How a supervisor's word about a running job begins that cannot write checkpoints; why follows.
CHECKPOINTS_FAIL = "no checkpoint can be written: "


class State:
    """The supervisor's words in `state.json`; the same as `horae.port.JobState`'s."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"  # written by the adapter, under the lock of a supervisor that died

    FINAL = (STOPPED, COMPLETED, FAILED, CANCELLED, LOST)
