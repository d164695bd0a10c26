// The loops that run once per record. They know nothing of Python and trust nothing that they read.
//
// A frame: length (8 bytes), its masked CRC-32C (4), the payload, the payload's masked CRC-32C (4).
// Callers' mistakes are thrown as std::invalid_argument. Another thread may write to a buffer at any time:
// each length and each bound is read once, checked, and used from a local.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "crc32c.h"

namespace croupier {

using Bytes = std::span<const Byte>;
using Room = std::span<Byte>;
using Numbers = std::span<const std::uint64_t>;
using Slots = std::span<std::uint64_t>;

constexpr std::size_t kHeader = 12, kTrailer = 4, kOverhead = kHeader + kTrailer;

enum class Stop { kPartial, kFull, kBadHeader, kBadPayload, kTooLong };

[[noreturn]] void refuse(const char* why);
bool overlap(Bytes a, Bytes b);

// Frames that stand next to each other: frame i is buffer[bounds[i]:bounds[i + 1]].
struct Frames {
  Bytes buffer;
  Numbers bounds;

  std::size_t count() const { return bounds.size() - 1; }  // the constructor's caller has checked: not empty

  Bytes at(std::size_t i, std::size_t least = 0) const {
    const std::uint64_t from = bounds[i], to = bounds[i + 1];
    if (to > buffer.size() || from > to || to - from < least) refuse_bounds(i);
    return {buffer.data() + from, static_cast<std::size_t>(to - from)};
  }
  Bytes payload(std::size_t i) const {
    const Bytes frame = at(i, kOverhead);
    return {frame.data() + kHeader, frame.size() - kOverhead};
  }
  [[noreturn]] void refuse_bounds(std::size_t i) const;
};

// [frames, payload bytes, low, high]; see fingerprint() in _kernel.pyi.
struct Totals {
  std::uint64_t frames = 0, bytes = 0, low = 0, high = 0;

  void add(std::uint64_t length, std::uint32_t crc);
  void add(const Totals& other);
  void add_to(Slots totals) const;
};

std::pair<std::size_t, Stop> scan(Bytes buffer, std::size_t start, Slots bounds, bool payloads,
                                  std::uint64_t limit);
// The first frame that is wrong, or how many there are; then `totals` has all of them as well.
std::size_t check_frames(const Frames& frames, unsigned threads, Totals& totals);
std::pair<std::size_t, bool> resync(Bytes buffer, std::size_t start, std::uint64_t limit, bool final);
std::size_t gather(const Frames& source, Numbers index, Room out, Slots out_bounds, unsigned threads);
std::size_t scatter(const Frames& source, Numbers bucket, std::size_t first, Room out, Slots cursors,
                    Numbers limits);
Totals fingerprint(const Frames& frames);
Totals fingerprint_of(Numbers lengths, Numbers crcs);
std::size_t fragments(Numbers bounds, std::uint64_t large, std::uint64_t group, Slots ends);

// Writes the frame of `payload` to the start of `out`; false when it does not fit.
bool append(Room out, Bytes payload, Totals& totals);

}  // namespace croupier
