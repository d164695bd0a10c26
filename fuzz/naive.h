// What a frame is, written a second time and slowly: the fuzzers hold the kernel against this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace naive {

inline std::uint32_t masked_crc(const std::uint8_t* p, std::size_t n) {
  std::uint32_t crc = ~0U;
  for (std::size_t i = 0; i < n; ++i) {
    crc ^= p[i];
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78 : 0);
  }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8;
}

inline std::uint64_t number(const std::uint8_t* p, int bytes) {
  std::uint64_t v = 0;
  while (bytes-- > 0) v = v << 8 | p[bytes];
  return v;
}

enum class Kind { kFrame, kCutHeader, kBadHeader, kTooLong, kCutPayload, kBadPayload };

// What stands at `at`, and its size if it is a frame.
inline Kind look(const std::uint8_t* data, std::size_t size, std::size_t at, std::uint64_t limit,
                 bool payloads, std::size_t* frame) {
  const std::size_t left = size - at;
  if (left < 12) return Kind::kCutHeader;
  if (number(data + at + 8, 4) != masked_crc(data + at, 8)) return Kind::kBadHeader;
  const std::uint64_t length = number(data + at, 8);
  if (length > limit) return Kind::kTooLong;
  if (left < 16 || length > left - 16) return Kind::kCutPayload;
  *frame = static_cast<std::size_t>(length) + 16;
  const bool right = number(data + at + 12 + length, 4) == masked_crc(data + at + 12, *frame - 16);
  return payloads && !right ? Kind::kBadPayload : Kind::kFrame;
}

inline void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

}  // namespace naive
