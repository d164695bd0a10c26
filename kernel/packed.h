// Long sequences of lengths in few bits, with access to any of them and to their sums.
//
// Blocks of 64 numbers: each number less the block's smallest, in as many bits as the largest of these needs.
// 64 numbers of w bits are w words exactly, so blocks begin at words. A block whose numbers are alike takes
// none.
#pragma once

#include <vector>

#include "frames.h"

namespace croupier {

constexpr std::size_t kPack = 64;

// A sequence that stands in the caller's arrays. Nothing in them is believed: every access is checked.
struct Packed {
  std::uint64_t count;
  Numbers least;  // of each block: its smallest number,
  Bytes bits;     // the width of the others less that,
  Numbers words;  // (all blocks' bits, one behind the other)
  Numbers sums;   // the sum of all numbers before it, and in the end the sum of all,
  Numbers at;     // and where its words begin, and in the end how many there are.

  std::size_t blocks() const { return static_cast<std::size_t>((count + kPack - 1) / kPack); }
  void check_sizes() const;

  struct Place {
    std::uint64_t sum;    // of all numbers before this one
    std::uint64_t value;  // the number; 0 behind the last
  };
  Place find(std::uint64_t i) const;
  void fetch_ahead(std::uint64_t i) const;
  void fetch_words_ahead(std::uint64_t i) const;
};

// Packs values; gives how many words it filled.
std::size_t pack(Numbers values, Slots least, Room bits, Slots words);
// Fills `sums` and `at` from the rest, after checking that widths are possible and that the words are as many as
// they say. The sum of all must be below 2^63 if it is `summed`, else it wraps around.
void index_packed(std::uint64_t count, Numbers least, Bytes bits, Numbers words, Slots sums, Slots at, bool summed);
// sums[k] = the sum of all numbers before places[k]
void sums_before(const Packed& packed, Numbers places, Slots sums);
// values[k] = the number at `first` + k
void unpack(const Packed& packed, std::uint64_t first, Slots values);

// Where records stand: record i of all files together, the j-th of file f, begins at the sum of the j lengths
// before it and their j frames' overhead.
void locate(const Packed& lengths, Numbers firsts, Numbers bases, Numbers records, Slots file, Slots offset,
            Slots length, unsigned threads);

// For each of `positions`: the last number k whose sum of all before it is not above bases[group] + position,
// searched in [firsts[group], firsts[group + 1]); and that sum less the base.
void search_sums(const Packed& packed, Numbers firsts, Numbers bases, Numbers groups, Numbers positions,
                 Slots found, Slots begin);

}  // namespace croupier
