// tf.train.Examples to the wire: the bytes of protobuf's deterministic serialisation. Names in the order of their
// bytes, numbers packed.
#pragma once

#include <vector>

#include "example.h"

namespace croupier {

// What protobuf can hold, and so read back.
constexpr std::uint64_t kMostMessage = 0x7fffffff;

// `features` in the order of their names' bytes, each name once.
std::uint64_t example_size(const std::vector<Named>& features);
void write_example(const std::vector<Named>& features, Room out);
std::uint64_t sequence_size(const Sequence& sequence);
void write_sequence(const Sequence& sequence, Room out);

// A feature of many records, in the caller's arrays. Nothing in them is believed: every access is checked.
struct BuildColumn {
  Bytes name;
  Holds holds;
  Bytes values;   // int64s, floats, or all strings' bytes
  Numbers rows;   // edges of the records' values
  Numbers items;  // edges of the strings
  Bytes present;  // of each record; empty: all have it
};

// offsets[i] = where payload i begins, and at last the size of all.
void batch_sizes(const std::vector<BuildColumn>& columns, Slots offsets, unsigned threads);
void write_batch(const std::vector<BuildColumn>& columns, Numbers offsets, Room out, unsigned threads);

}  // namespace croupier
