// Tables that a Huffman code is decoded by.
#pragma once

#include "deflate.h"

namespace croupier {

// An entry of a decoding table: value (16 bits) | kind (4) | bits of the code (4) | with its extra bits (8).
using Entry = std::uint32_t;
enum Kind : Entry { kLiteral = 8 << 12, kBase = 0, kMore = 1 << 12, kEndOfBlock = 2 << 12, kInvalid = 4 << 12 };
constexpr Entry kKind = 15 << 12;

constexpr unsigned taken(Entry e) { return e & 255; }
constexpr unsigned code_bits(Entry e) { return e >> 8 & 15; }
constexpr Entry value_of(Entry e) { return e >> 16; }
constexpr Entry entry(Entry value, Kind kind, unsigned extra = 0) { return value << 16 | kind | extra; }
constexpr Entry with_code(Entry e, unsigned bits) { return e + (bits << 8 | bits); }

inline constexpr auto kLiteralSymbols = [] {
  std::array<Entry, 288> symbols{};
  for (unsigned i = 0; i < 256; ++i) symbols[i] = entry(i, kLiteral);
  symbols[256] = entry(0, kEndOfBlock);
  for (unsigned i = 0; i < 29; ++i) symbols[257 + i] = entry(kLengthBase[i], kBase, kLengthExtra[i]);
  symbols[286] = symbols[287] = entry(0, kInvalid);
  return symbols;
}();
inline constexpr auto kDistanceSymbols = [] {
  std::array<Entry, 32> symbols{};
  for (unsigned i = 0; i < 30; ++i) symbols[i] = entry(kDistanceBase[i], kBase, kDistanceExtra[i]);
  symbols[30] = symbols[31] = entry(0, kInvalid);
  return symbols;
}();
inline constexpr auto kOrderSymbols = [] {
  std::array<Entry, 19> symbols{};
  for (unsigned i = 0; i < 19; ++i) symbols[i] = entry(i, kBase);
  return symbols;
}();

// Fills a table that is looked up by `main` bits; false where the lengths make no code. As zlib has it, a code
// may be incomplete only when it is one of one bit, or of none at all: its other bits are invalid.
bool build(std::span<Entry> table, unsigned main, std::span<const std::uint8_t> lengths,
           std::span<const Entry> symbols, bool may_be_incomplete);

constexpr std::uint64_t low(std::uint64_t bits, unsigned count) { return bits & ((std::uint64_t{1} << count) - 1); }

// The entry for the next bits; those that have not come yet are zeros.
inline Entry look_up(const Entry* table, unsigned main, std::uint64_t bits) {
  const Entry e = table[low(bits, main)];
  return (e & kKind) == kMore ? table[value_of(e) + low(bits >> main, taken(e))] : e;
}

}  // namespace croupier
