// What the values of a bytes feature are: a hash of each, and what it looks like.
#pragma once

#include "frames.h"

namespace croupier {

// A value's looks: flags in the low half, an image format (or 0) in the high one.
enum Looks : Byte {
  kText = 1,     // UTF-8 without control characters other than white space
  kUtf8 = 2,     // UTF-8
  kProto = 4,    // a protobuf message, by its wire format
  kExample = 8,  // a tf.train.Example with at least one feature
  kJpeg = 1 << 4,
  kPng = 2 << 4,
  kGif = 3 << 4,
  kWebp = 4 << 4,
  kBmp = 5 << 4,
  kTiff = 6 << 4,
};

// hashes[i] and looks[i] of value i = values[edges[i]:edges[i + 1]]. An empty value has all flags.
void inspect_values(Bytes values, Numbers edges, Slots hashes, Room looks);

// 64 bits, alike in every process: what is counted by them must come out the same each time.
std::uint64_t hash_of(Bytes value);
Byte looks_of(Bytes value);

}  // namespace croupier
