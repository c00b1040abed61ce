#!/bin/sh
# Horae on the gateway: its packages from the mounted checkout, what they need from /opt/horae/lib.
export PYTHONPATH=/opt/horae/lib:/opt/horae/src
exec python3 -c 'from horae.cli import main; raise SystemExit(main())' "$@"
