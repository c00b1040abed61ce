#!/bin/bash
# The one entry of the mini-cluster's containers: entry.sh ROLE, with /etc/slurm and /shared mounted.
set -e
role=$1
install -d -o munge -g munge -m 755 /run/munge
install -d -o munge -g munge -m 700 /etc/munge /var/log/munge /var/lib/munge
install -d -o slurm -g slurm /var/log/slurm /var/lib/slurm /run/slurm /run/slurmctld
install -d /var/spool/slurmd
secret=/etc/slurm/secret
if [ ! -f $secret/munge.key ] && [ "$role" = dbd ]; then # by hand, without `horae lab`: the first makes the secrets
  mkdir -p $secret
  head -c 32 /dev/urandom > $secret/jwt.key
  head -c 1024 /dev/urandom > $secret/munge.key.part && mv $secret/munge.key.part $secret/munge.key
fi
while [ ! -f $secret/munge.key ]; do sleep .1; done
install -o munge -g munge -m 400 $secret/munge.key /etc/munge/munge.key
install -o slurm -g slurm -m 400 $secret/jwt.key /run/slurm/jwt.key
runuser -u munge -- munged --force
while [ ! -f /etc/slurm/slurm.conf ]; do sleep .1; done

wait_port() { while ! (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null; do sleep .1; done; }

# The lab's users and Horae's Operator: slurmdbd needs a moment before it takes them.
accounts() {
  until sacctmgr -nP show user horae format=adminlevel 2> /dev/null | grep -q Operator; do
    printf 'add account lab Description=lab Organization=lab\nadd user alice,bob account=lab\nadd user horae account=lab adminlevel=Operator\n' |
      sacctmgr -i > /dev/null 2>&1 || sleep .5
  done
}

start_sshd() {
  [ -d $secret/ssh ] || return 0
  install -d /run/sshd
  install -m 600 $secret/ssh/host_key /etc/ssh/ssh_host_ed25519_key
  for user in alice bob horae; do
    install -d -o $user -g $user -m 700 /home/$user/.ssh
    install -o $user -g $user -m 600 $secret/ssh/user_key.pub /home/$user/.ssh/authorized_keys
  done
  printf 'LC_ALL=C\nSLURM_TIME_FORMAT=%%s\n' >> /etc/environment
  printf 'HostKey /etc/ssh/ssh_host_ed25519_key\nUsePAM no\nAcceptEnv SLURM_* LC_*\nMaxSessions 50\nMaxStartups 50\nSubsystem sftp internal-sftp\n' > /etc/ssh/horae.conf
  for user in alice bob horae; do usermod -p '*' $user; done
  /usr/sbin/sshd -f /etc/ssh/horae.conf
}

case $role in
  dbd)
    install -o slurm -g slurm -m 600 /etc/slurm/slurmdbd.conf.in /run/slurm/slurmdbd.conf
    export SLURM_CONF=/etc/slurm/slurm.conf
    wait_port db 3306
    mkdir -p /etc/slurm-dbd && cp /run/slurm/slurmdbd.conf /etc/slurm-dbd/ && cp /etc/slurm/slurm.conf /etc/slurm-dbd/
    chown slurm:slurm /etc/slurm-dbd/slurmdbd.conf && chmod 600 /etc/slurm-dbd/slurmdbd.conf
    SLURM_CONF=/etc/slurm-dbd/slurm.conf exec runuser -u slurm -- slurmdbd -D
    ;;
  ctl)
    start_sshd
    [ -z "$WITH_DBD" ] || wait_port dbd 6819
    # slurmctld may be killed and started again inside the container: bad days need the container to live on
    trap 'kill $(cat /run/slurmctld/slurmctld.pid 2>/dev/null) 2>/dev/null; exit 0' TERM INT
    chown 2003:slurm /shared/horae/spool && chmod 2775 /shared/horae/spool
    runuser -u slurm -- slurmctld
    [ -z "$ACCOUNTS" ] || accounts &
    while :; do sleep 3600 & wait $!; done
    ;;
  rest)
    wait_port ctl 6817
    export SLURM_JWT=daemon SLURMRESTD_SECURITY=disable_unshare_sysv,disable_unshare_files
    exec runuser -u slurmrest -- slurmrestd -a rest_auth/jwt 0.0.0.0:6820
    ;;
  node)
    # With cgroups, devices that exist nowhere: opening one fails as forbidden, or as absent where it was granted.
    device() { [ -z "$CGROUPS" ] && echo 1 3 || echo 195 $1; }
    for i in $(seq 0 15); do [ -e /dev/nvidia$i ] || mknod -m 666 /dev/nvidia$i c $(device $i); done
    [ -z "$CGROUPS" ] || exec unshare --cgroup --mount bash -ec '
      for each in freezer cpuset memory devices cpu cpuacct; do
        umount -l /sys/fs/cgroup/$each
        mount -t cgroup -o $each none /sys/fs/cgroup/$each
      done
      exec slurmd -D -N "$(hostname)"'
    exec slurmd -D -N "$(hostname)"
    ;;
  login)
    start_sshd
    install -d -o horae -g horae /var/lib/horae /run/horae
    for bundle in /bundle/horae-*-py"$(python3 -c 'import sys; print("%d%d" % sys.version_info[:2])')"/install.sh; do
      [ ! -x "$bundle" ] || "$bundle" /opt/horae
    done
    if [ -x /opt/horae/bin/horae ]; then
      ln -sf /opt/horae/bin/horae /opt/horae/bin/horae-exec /usr/local/bin/
      until scontrol ping 2> /dev/null | grep -q UP; do sleep .5; done
      runuser -u horae -- /opt/horae/bin/horae serve /etc/slurm/horae/config.yaml &
    fi
    while :; do sleep 3600 & wait $!; done
    ;;
  *)
    echo "no such role: $role (dbd ctl rest node login)" >&2
    exit 2
    ;;
esac
