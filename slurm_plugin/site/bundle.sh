#!/bin/sh
# One archive from which Horae is installed without a network:
#
#   slurm_plugin/site/bundle.sh [-p 3.11] [-o FOLDER]      in a checkout, on a host with a network and Python's pip
#   tar xzf horae-VERSION-py311.tar.gz && sudo horae-VERSION-py311/install.sh [/opt/horae]      on the site's host
#
# -p: the site's Python (3.11 or newer). It holds every wheel of Horae and of what it needs on Slurm, for Linux on
# this kind of machine, and their checksums; install.sh makes a venv of its own and touches nothing else.
set -eu
wanted="" out=dist
while getopts p:o: option; do
  case $option in
    p) wanted=$OPTARG ;;
    o) out=$OPTARG ;;
    *) exit 2 ;;
  esac
done
here=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
python=${PYTHON:-python3}
[ -n "$wanted" ] || wanted=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
machine=$(uname -m)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

retry() {
  for pause in 2 5 15 no; do
    "$@" && return 0
    [ "$pause" != no ] || return 1
    sleep "$pause"
  done
}
# What makes the wheel, and every wheel beside it, is one whose SHA-256 the locks know.
"$python" -I -m venv "$work/build"
retry "$work/build/bin/pip" --quiet install --require-hashes --requirement "$here/supply/build.txt"
"$work/build/bin/pip" --quiet wheel --no-deps --no-build-isolation --wheel-dir "$work/own" "$here"
own=$(ls "$work"/own/horae-*.whl)
version=$(basename "$own" | cut -d- -f2)
name=horae-$version-py$(echo "$wanted" | tr -d .)
mkdir -p "$work/$name/wheels" "$out"
(cd "$here" && "$work/build/bin/python" -m supply.locks select supply/slurm.txt "$wanted" "$machine") \
  > "$work/$name/requirements.txt"
retry "$python" -I -m pip --quiet download --only-binary=:all: --python-version "$wanted" --implementation cp \
  --platform "manylinux_2_28_$machine" --platform "manylinux_2_17_$machine" --platform "manylinux2014_$machine" \
  --no-deps --require-hashes --dest "$work/$name/wheels" --requirement "$work/$name/requirements.txt"
cp "$own" "$work/$name/wheels"
(cd "$work/$name/wheels" && sha256sum -- *.whl > SHA256SUMS)
cp "$here/slurm_plugin/site/bundle-install.sh" "$work/$name/install.sh"
chmod 755 "$work/$name/install.sh"
tar -C "$work" -czf "$out/$name.tar.gz" "$name"
echo "$out/$name.tar.gz"
