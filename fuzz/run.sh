#!/bin/bash
# Every fuzz target for $FUZZ_SECONDS: under libFuzzer where there is a clang, and always under fuzz/driver.cc,
# which can put checksums right and so gets where libFuzzer does not. They share the time.
# An input that crashes is kept as build/fuzz/<target>-crash*; it belongs into tests/corpus/<target>/, with a name.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${FUZZ_SECONDS:-20}
seed=${FUZZ_SEED:-$(date +%s)}
flags=(-std=c++20 -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -Ikernel -Ifuzz -pthread)
mkdir -p build/fuzz
for target in scan resync packed values varints example inflate transcode; do
  sources=("fuzz/$target.cc" kernel/crc32c.cc kernel/frames.cc kernel/packed.cc kernel/values.cc
    kernel/example*.cc kernel/varints.cc
    kernel/decoding.cc kernel/inflate.cc kernel/huffman.cc kernel/blocks.cc kernel/transcode.cc)
  program=build/fuzz/$target
  left=$seconds
  if command -v clang++ >/dev/null &&
      clang++ "${flags[@]}" -fsanitize=fuzzer "${sources[@]}" -o "$program-libfuzzer"; then
    left=$(((seconds + 1) / 2))
    echo "$target: libFuzzer, $left s"
    mkdir -p "build/fuzz/$target-corpus"
    "$program-libfuzzer" -max_total_time="$left" -timeout=10 -verbosity=0 -print_final_stats=1 \
      -artifact_prefix="build/fuzz/$target-crash-" "build/fuzz/$target-corpus" "tests/corpus/$target"
  fi
  echo "$target: driver, $left s, seed $seed"
  g++ "${flags[@]}" "${sources[@]}" fuzz/driver.cc -o "$program"
  "$program" -seconds="$left" -seed="$seed" -keep="build/fuzz/$target-crash" "tests/corpus/$target"
  rm "build/fuzz/$target-crash"
done
echo "gzip_read: against zlib, $seconds s, seed $seed"
"${PYTHON:-python3}" fuzz/gzip_read.py --seconds "$seconds" --seed "$seed"
echo "table: offset tables, $seconds s, seed $seed"
"${PYTHON:-python3}" fuzz/table.py --seconds "$seconds" --seed "$seed"
echo "example: against protobuf, $seconds s, seed $seed"
"${PYTHON:-python3}" fuzz/example.py --seconds "$seconds" --seed "$seed"
