#!/bin/bash
# Build pyslurm against Debian's Slurm 26.05 and install it into /opt/pyslurm: pyslurm.sh CACHE [CA_BUNDLE]
#
# PyPI's newest pyslurm is for Slurm 25.11; it builds against 26.05's headers when they call themselves 25.11 and
# slurm.h's own switch for older callers is on. The wheel is kept in CACHE, since its name does not tell the Slurm
# that it was built for.
set -euo pipefail
cache=$1
slurm=$(dpkg-query -W -f '${Version}' slurm-client | sed 's/-.*//')
case $slurm in 26.05.*) ;; *) echo "pyslurm 25.11.2 builds against Slurm 26.05 alone; this is $slurm" >&2; exit 3 ;; esac
[ $# -lt 2 ] || export PIP_CERT=$2
export DEBIAN_FRONTEND=noninteractive
python3 -c 'import ensurepip' 2>/dev/null || {
  apt-get -qq update
  apt-get -qq install -y --no-install-recommends python3 python3-venv >/dev/null
}
folder=$cache/pyslurm-for-$slurm-python-$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
if ! ls "$folder"/*.whl >/dev/null 2>&1; then
  apt-get -qq update
  apt-get -qq install -y --no-install-recommends libslurm-dev slurm-wlm-basic-plugins-dev gcc libc6-dev python3-dev \
    >/dev/null
  work=$(mktemp -d)
  mkdir -p "$work/include/slurm" "$work/wheel"
  ln -s /usr/include/slurm/* "$work/include/slurm/"
  rm "$work/include/slurm/slurm_version.h"
  sed 's/^#define SLURM_VERSION_NUMBER .*/#define SLURM_VERSION_NUMBER 0x190b02/' /usr/include/slurm/slurm_version.h \
    >"$work/include/slurm/slurm_version.h"
  printf '[build_ext]\nparallel=2\n' >"$work/dist.cfg"
  export SLURM_INCLUDE_DIR=$work/include SLURM_LIB_DIR=/usr/lib/x86_64-linux-gnu
  export PYSLURM_BUILD_JOBS=2 DIST_EXTRA_CONFIG=$work/dist.cfg
  export CFLAGS="-O0 -g0 -w -DSLURM_BACKWARD_COMPAT -Dslurm_free_ctl_conf=slurm_free_conf"
  CFLAGS+=" -DESLURM_ERROR_ON_DESC_TO_RECORD_COPY=2007"
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" -q wheel --no-cache-dir --no-deps --no-binary pyslurm -w "$work/wheel" pyslurm==25.11.2
  mkdir -p "$cache" && mv "$work/wheel" "$folder"
fi
python3 -m venv /opt/pyslurm
/opt/pyslurm/bin/pip -q install --no-index --no-deps "$folder"/*.whl
