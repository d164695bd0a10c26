#!/bin/bash
# Every fuzz target for $FUZZ_SECONDS: libFuzzer where there is a clang, else fuzz/driver.cc.
# An input that crashes is kept as build/fuzz/<target>-crash*; it belongs into tests/corpus/<target>/, with a name.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${FUZZ_SECONDS:-20}
seed=${FUZZ_SEED:-$(date +%s)}
flags=(-std=c++20 -g -O1 -fno-sanitize-recover=all -Ikernel -Ifuzz -pthread)
mkdir -p build/fuzz
for target in scan resync; do
  sources=("fuzz/$target.cc" kernel/crc32c.cc kernel/frames.cc)
  program=build/fuzz/$target
  if command -v clang++ >/dev/null && clang++ "${flags[@]}" -fsanitize=fuzzer,address,undefined "${sources[@]}" \
      -o "$program" 2>/dev/null; then
    echo "$target: libFuzzer, $seconds s"
    mkdir -p "build/fuzz/$target-corpus"
    "$program" -max_total_time="$seconds" -timeout=10 -print_final_stats=1 \
      -artifact_prefix="build/fuzz/$target-crash-" "build/fuzz/$target-corpus" "tests/corpus/$target"
  else
    echo "$target: driver, $seconds s, seed $seed"
    g++ "${flags[@]}" -fsanitize=address,undefined "${sources[@]}" fuzz/driver.cc -o "$program"
    "$program" -seconds="$seconds" -seed="$seed" -keep="build/fuzz/$target-crash" "tests/corpus/$target"
    rm "build/fuzz/$target-crash"
  fi
done
