#!/bin/bash
# The one entry of the mini-cluster's containers: entry.sh ROLE [java's words], with /etc/hadoop and the jars mounted.
set -eu
role=$1
shift
export HADOOP_CONF_DIR=/etc/hadoop
JAVA_HOME=$(dirname "$(dirname "$(readlink -f "$(command -v java)")")")
export JAVA_HOME
classpath='/etc/hadoop:/opt/hadoop/jars/*'
hdfs=http://nn:9870/webhdfs/v1

daemon() { exec java -Dservice.libdir=/opt/hadoop/jars -cp "$classpath" "$@"; }
wait_for() { until curl -sf -o /dev/null -m 5 "$@"; do sleep .3; done; }
put() { curl -sf -o /dev/null -X PUT "$hdfs$1&user.name=root"; }

case $role in
  nn)
    [ -d /data/nn/current ] ||
      java -cp "$classpath" org.apache.hadoop.hdfs.server.namenode.NameNode -format -nonInteractive -force
    daemon "$@"
    ;;
  dn) # one that starts before the NameNode answers sleeps ten seconds
    wait_for "$hdfs/?op=LISTSTATUS&user.name=root"
    daemon "$@"
    ;;
  zk | rm | nm) daemon "$@" ;;
  init) # what HDFS must hold: FOLDERS "/tmp=1777 ...", OWNERS "alice ...", the Services' framework at FRAMEWORK
    wait_for "$hdfs/?op=LISTSTATUS&user.name=root"
    for each in $FOLDERS; do
      put "${each%=*}?op=MKDIRS&permission=${each#*=}"
      put "${each%=*}?op=SETPERMISSION&permission=${each#*=}"
    done
    for user in $OWNERS; do
      put "/user/$user?op=MKDIRS&permission=755"
      put "/user/$user?op=SETOWNER&owner=$user"
    done
    query="op=CREATE&overwrite=true&permission=644&user.name=root"
    until curl -sfL -o /dev/null -T /opt/hadoop/framework.tar.gz "$hdfs$FRAMEWORK?$query"; do sleep .3; done
    ;;
  gateway)
    if ! runuser -u horae -- horae --version; then
      echo "Horae does not start here: fetch what it needs by python -m yarn_bridge.lab.fetch, see compose.yaml" >&2
      exit 1
    fi
    install -d -o horae -g horae /var/lib/horae /run/horae
    wait_for "$hdfs$FRAMEWORK?op=GETFILESTATUS&user.name=root"
    wait_for "http://rm:8088/ws/v1/cluster/info?user.name=root"
    exec runuser -u horae -- horae serve /etc/horae/config.yaml
    ;;
  *)
    echo "no such role: $role (zk nn dn rm nm init gateway)" >&2
    exit 2
    ;;
esac
