#!/usr/bin/env bash
# All benchmarks, one after the other, into results/. With --quick, a smoke run that leaves results/ alone.
set -euo pipefail
cd "$(dirname "$0")"
python=../.venv/bin/python
export TF_CPP_MIN_LOG_LEVEL=3 TF_ENABLE_ONEDNN_OPTS=0
out=results
[[ ${1:-} == --quick ]] && out=$(mktemp -d) && trap 'rm -rf "$out"' EXIT
mkdir -p "$out"
for name in scan checksums gzip_write read sweep; do
  $python "$name.py" "$@" >"$out/$name.md.new"
  mv "$out/$name.md.new" "$out/$name.md"
  cat "$out/$name.md"
done
