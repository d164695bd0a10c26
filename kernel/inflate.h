// Raw deflate, inflated piece by piece, with a note of what its compressor found.
#pragma once

#include "deflate.h"

namespace croupier {

// A stream under way. It accepts what zlib accepts, and no more.
class Inflater {
 public:
  enum class Stop { kInput, kRoom, kEnd, kBad };
  struct Progress {
    std::size_t consumed, produced, tokens;
    Stop why;
  };

  // Stops where the input ends (all of it is consumed then), where there is no room for more bytes or tokens,
  // or behind the stream. Tokens cover all bytes that were produced, and may run ahead of them by a match.
  Progress inflate(Bytes in, Room out, std::span<Token> tokens);

  const char* problem() const { return problem_; }
  // Bytes that the tokens cover and that were not produced yet.
  std::size_t ahead() const { return length_; }

 private:
  static constexpr unsigned kMainBits = 11, kDistanceBits = 8, kOrderBits = 7, kMostBits = 15;
  enum class At { kBlock, kStoredSize, kStored, kSizes, kOrder, kLengths, kCodes, kEnd, kBad };
  struct Call;

  bool step(Call& call);
  bool begin_block(Call& call);
  bool begin_stored(Call& call);
  bool copy_stored(Call& call);
  bool read_sizes(Call& call);
  bool read_order(Call& call);
  bool read_lengths(Call& call);
  void build_fixed();
  bool bad(const char* problem);

  bool decode(Call& call);
  bool decode_one(Call& call);
  void decode_fast(Call& call);
  bool finish_match(Call& call);
  void copy(Call& call, std::size_t length, std::size_t distance) const;
  void keep_window(const Call& call);

  bool need(Call& call, unsigned count);
  unsigned take(unsigned count);
  bool find(Call& call, const std::uint32_t* table, unsigned main, unsigned skip, std::uint32_t& e);

  At at_ = At::kBlock;
  const char* problem_ = "";
  bool last_ = false;   // the block under way is
  bool fixed_ = false;  // the tables are those of fixed codes
  unsigned count_ = 0;
  std::uint64_t bits_ = 0;                 // what came and was not used yet: `count_` bits
  std::size_t stored_ = 0;                 // bytes to come of a stored block
  std::size_t length_ = 0, distance_ = 0;  // what there was no room for, of a match
  unsigned literal_codes_ = 0, distance_codes_ = 0, order_codes_ = 0, have_ = 0;
  std::array<std::uint8_t, 320> lengths_{};
  std::array<std::uint32_t, 1 << kOrderBits> order_{};
  // Longer codes, two at least of a prefix, are looked up in 2^(15 - main) entries more.
  std::array<std::uint32_t, (1 << kMainBits) + (144 << (kMostBits - kMainBits))> literal_{};
  std::array<std::uint32_t, (1 << kDistanceBits) + (16 << (kMostBits - kDistanceBits))> distances_{};
  std::size_t window_size_ = 0;
  std::array<Byte, kWindow> window_{};
};

}  // namespace croupier
