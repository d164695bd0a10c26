// Huffman codes for deflate's blocks, and the bits that they are written as.
#pragma once

#include <vector>

#include "deflate.h"

namespace croupier {

// Lengths of a prefix code, none of more than `most` bits, that is optimal but for that limit. A code of fewer than
// two symbols gets two of one bit, as zlib's do: some decoders refuse others.
void code_lengths(std::span<const std::uint32_t> counts, unsigned most, std::span<std::uint8_t> lengths);

// The codes of these lengths, as they stand in the stream.
void codes_of(std::span<const std::uint8_t> lengths, std::span<std::uint16_t> codes);

// Appends bits. Whoever writes makes room first: nothing is checked bit by bit.
class BitWriter {
 public:
  explicit BitWriter(std::vector<Byte>& out) : out_(out), at_(out.size()) {}
  // For so many bits, from here on.
  void make_room(std::size_t bits) { out_.resize(at_ + bits / 8 + 24); }
  // Up to 56 bits between two flushes.
  void put(std::uint64_t bits, unsigned count) {
    held_ |= bits << count_;
    count_ += count;
  }
  void flush() {
    store64(out_.data() + at_, held_);
    at_ += count_ / 8;
    held_ >>= count_ & ~7U;
    count_ &= 7;
  }
  void align() {
    count_ = (count_ + 7) & ~7U;
    flush();
  }
  void bytes(Bytes raw) {  // aligned
    if (!raw.empty()) std::memcpy(out_.data() + at_, raw.data(), raw.size());
    at_ += raw.size();
  }
  void finish() { out_.resize(at_); }

 private:
  std::vector<Byte>& out_;
  std::size_t at_;
  std::uint64_t held_ = 0;
  unsigned count_ = 0;
};

}  // namespace croupier
