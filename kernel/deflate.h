// What deflate is made of, for who reads it and who writes it.
#pragma once

#include <array>
#include <bit>

#include "frames.h"

namespace croupier {

// Some literals and the match that follows them: literals (7 bits) | length (9) | distance - 1 (16);
// or literals alone, when there are many or nothing follows: 127 (7 bits) | how many (25).
using Token = std::uint32_t;
constexpr Token kMostLiterals = 126, kMostRun = (1U << 25) - 1, kRun = (kMostLiterals + 1) << 25;
constexpr std::size_t kWindow = 1 << 15, kLeastMatch = 3, kMostMatch = 258;

constexpr bool is_run(Token token) { return token >= kRun; }
constexpr Token literals_of(Token token) { return is_run(token) ? token & kMostRun : token >> 25; }
constexpr Token length_of(Token token) { return is_run(token) ? 0 : token >> 16 & 511; }
constexpr Token distance_of(Token token) { return (token & 0xffff) + 1; }
constexpr Token make_token(std::size_t literals, std::size_t length, std::size_t distance) {
  return static_cast<Token>(literals << 25 | length << 16 | (distance - 1));
}

// What deflate's symbols stand for: 29 lengths and 30 distances.
constexpr std::array<std::uint16_t, 29> kLengthBase{3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                                    31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
constexpr std::array<std::uint8_t, 29> kLengthExtra{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                                    2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
constexpr std::array<std::uint16_t, 30> kDistanceBase{1,   2,   3,   4,   5,   7,    9,    13,   17,   25,
                                                      33,  49,  65,  97,  129, 193,  257,  385,  513,  769,
                                                      1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
constexpr std::array<std::uint8_t, 30> kDistanceExtra{0, 0, 0, 0, 1, 1, 2, 2,  3,  3,  4,  4,  5,  5,  6,
                                                      6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13};
constexpr std::array<std::uint8_t, 19> kLengthOrder{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};

constexpr std::uint32_t reversed(std::uint32_t code, unsigned bits) {
  code = (code & 0x5555) << 1 | (code >> 1 & 0x5555);
  code = (code & 0x3333) << 2 | (code >> 2 & 0x3333);
  code = (code & 0x0f0f) << 4 | (code >> 4 & 0x0f0f);
  code = (code & 0x00ff) << 8 | (code >> 8 & 0x00ff);
  return code >> (16 - bits);
}

}  // namespace croupier
