#!/usr/bin/env bash
# All benchmarks, one after the other, into results/. With --quick, a smoke run that leaves results/ alone.
set -euo pipefail
cd "$(dirname "$0")"
python=../.venv/bin/python
export TF_CPP_MIN_LOG_LEVEL=3 TF_ENABLE_ONEDNN_OPTS=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for name in scan checksums gzip_write read index random_reads opening tiny_files examples sweep \
  shuffle shuffle_gzip shuffle_peers shuffle_files shuffle_resume shuffle_memory; do
  $python "$name.py" "$@" | tee "$scratch/$name.md"
  [[ ${1:-} == --quick ]] || mv "$scratch/$name.md" results/
done
