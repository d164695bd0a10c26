// Packed varints to int64s.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "frames.h"

namespace croupier {

// The seven lower bits of each byte, one behind the other.
inline std::uint64_t squeeze(std::uint64_t word) {
  word = (word & 0x007f007f007f007f) | (word & 0x7f007f007f007f00) >> 1;
  word = (word & 0x00003fff00003fff) | (word & 0x3fff00003fff0000) >> 2;
  return (word & 0x000000000fffffff) | (word & 0x0fffffff00000000) >> 4;
}

constexpr std::size_t kNoVarints = ~std::size_t{0};

// As fast as this processor can.
struct Varints {
  // The numbers from `at` to `end`, as many as `room` holds; memory can be read up to `limit`. Gives how many there
  // are, or kNoVarints where there are more, or one is cut or has more than ten bytes.
  std::size_t (*unpack)(const Byte* at, const Byte* end, const Byte* limit, Slots room);
  // How many there are, or kNoVarints.
  std::size_t (*count)(const Byte* at, const Byte* end, const Byte* limit);
};
// All ways that this processor has, the best one last.
std::span<const Varints> all_varints();
const Varints& varints();

}  // namespace croupier
