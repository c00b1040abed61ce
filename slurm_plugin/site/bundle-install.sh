#!/bin/sh
# Install Horae from this folder, without a network, into a venv of its own:
#
#   install.sh [FOLDER]        default: /opt/horae
#
# PYTHON=... names the interpreter; it must be the one that the bundle was made for. Run again it brings the venv to
# this bundle's versions. To take it away: rm -r FOLDER.
set -eu
# Neither what its caller set (CDPATH, PIP_TARGET) nor what lies in the folder where it is called (venv.py) is heeded.
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
folder=${1:-/opt/horae}
python=${PYTHON:-python3}
"$python" -I -c 'import venv, ensurepip' 2> /dev/null || {
  echo "install.sh: $python has no venv module (Debian and Ubuntu: apt-get install python3-venv)" >&2
  exit 2
}
(cd "$here/wheels" && sha256sum --quiet --check SHA256SUMS) || {
  echo "install.sh: the bundle is damaged: fetch it again" >&2
  exit 3
}
[ -x "$folder/bin/python" ] || "$python" -I -m venv "$folder"
"$folder/bin/python" -I -m pip --isolated --quiet --disable-pip-version-check install --no-index --find-links "$here/wheels" \
  --require-hashes --requirement "$here/requirements.txt" || {
  echo "install.sh: this bundle is for another Python or another kind of machine than $("$python" -V) on $(uname -m)" >&2
  exit 4
}
# our own wheel, whatever is there: a newer bundle may carry the same version
"$folder/bin/python" -I -m pip --isolated --quiet --disable-pip-version-check install --no-index --no-deps --force-reinstall \
  "$here"/wheels/horae-*.whl
"$folder/bin/horae" --version
echo "next: $folder/bin/horae install slurm --set partitions=NAME --set bin=$folder/bin"
