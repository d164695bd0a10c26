#include "frames.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "threads.h"

namespace croupier {
namespace {

void prefetch(const void* p) { __builtin_prefetch(p); }

template <class Cpu>
bool payload_is_right(const Byte* payload, std::size_t length) {
  return load32(payload + length) == mask(crc32c<Cpu>(payload, length));
}

// Fetches what a walk from length to length will need. The next length is found only when this one has
// arrived; a processor guesses ahead where all records are as long, and nowhere else. So small records are
// fetched whole, by address: 7 ns instead of 128 at 100 to 300 bytes, 29 instead of 159 around 1 KB (256 MB,
// Zen 5). kAll: payloads will be read as well. At some lengths the processor's own guesses are useless even
// there: 57 ns instead of 14 at 400 bytes. Addresses, not pointers: they may lie behind the buffer.
template <bool kAll>
class Lookahead {
 public:
  void at(const Byte* p, std::uint64_t length) {
    const auto here = reinterpret_cast<std::uintptr_t>(p);
    if (!kAll && length == last_) {
      prefetch(reinterpret_cast<const void*>(here + 16 * (kOverhead + length)));
    } else if (length < kSmall) {
      const std::uintptr_t to = here + kDistance + length;
      for (reached_ = std::max(reached_, here); reached_ < to; reached_ += 64)
        prefetch(reinterpret_cast<const void*>(reached_));
    }
    last_ = length;
  }

 private:
  static constexpr std::uintptr_t kSmall = 4096, kDistance = 8192;
  std::uint64_t last_ = 0;
  std::uintptr_t reached_ = 0;
};

template <class Cpu, bool kPayloads>
std::pair<std::size_t, Stop> walk(Bytes buffer, std::size_t start, Slots bounds, std::uint64_t limit) {
  const Byte* p = buffer.data() + start;
  std::size_t left = buffer.size() - start, count = 0;
  Lookahead<kPayloads> lookahead;
  for (;; ++count) {
    bounds[count] = buffer.size() - left;
    if (left < kHeader) return {count, Stop::kPartial};
    if (count + 1 == bounds.size()) return {count, Stop::kFull};
    const std::uint64_t length = load64(p);
    if (load32(p + 8) != mask(crc32c_of_length<Cpu>(length))) return {count, Stop::kBadHeader};
    if (length > limit) return {count, Stop::kTooLong};
    if (left < kOverhead || length > left - kOverhead) return {count, Stop::kPartial};
    if (kPayloads && !payload_is_right<Cpu>(p + kHeader, length)) return {count, Stop::kBadPayload};
    lookahead.at(p, length);
    p += kOverhead + length;
    left -= kOverhead + length;
  }
}

template <class Cpu>
std::size_t first_wrong(const Frames& frames, std::size_t from, std::size_t to, Totals& totals) {
  Lookahead<true> lookahead;
  for (std::size_t i = from; i < to; ++i) {
    const Bytes payload = frames.payload(i);
    const Byte* const p = payload.data() - kHeader;
    const std::uint64_t length = payload.size();
    lookahead.at(p, length);
    if (load64(p) != length || load32(p + 8) != mask(crc32c_of_length<Cpu>(length))) return i;
    const std::uint32_t crc = crc32c<Cpu>(payload.data(), length);
    if (load32(payload.data() + length) != mask(crc)) return i;
    totals.add(length, crc);
  }
  return to;
}

// Checksums of any part of a buffer, each in about a microsecond once the buffer was read up to there.
// Without it, hostile data (a right header every 12 bytes, each of a frame of half the buffer) would make
// `resync` read every byte a million times: 22 s for 8 MB instead of 0.1 s.
template <class Cpu>
class Prefixes {
 public:
  static constexpr std::size_t kStep = 4096;

  Prefixes(Bytes buffer, std::size_t base) : buffer_(buffer), base_(base) {}

  std::uint32_t crc32c(std::size_t from, std::size_t to) {
    return ~(skip(~0U ^ prefix(from), to - from) ^ prefix(to));
  }

 private:
  // The register at `to`, having begun with 0 at base_.
  std::uint32_t prefix(std::size_t to) {
    const std::size_t step = (to - base_) / kStep;
    while (marks_.size() <= step)
      marks_.push_back(
          Cpu::bytes(marks_.back(), buffer_.data() + base_ + (marks_.size() - 1) * kStep, kStep));
    const std::size_t from = base_ + step * kStep;
    return Cpu::bytes(marks_[step], buffer_.data() + from, to - from);
  }

  Bytes buffer_;
  std::size_t base_;
  std::vector<std::uint32_t> marks_{
      0};  // a thousandth of the buffer, and only as far as payloads were checked
};

template <class Cpu>
std::pair<std::size_t, bool> find_frame(Bytes buffer, std::size_t start, std::uint64_t limit, bool final) {
  constexpr std::size_t kLong = 8 * Prefixes<Cpu>::kStep;
  const std::size_t size = buffer.size();
  std::optional<Prefixes<Cpu>> prefixes;
  for (std::size_t at = start;; ++at) {
    const Byte* const p = buffer.data() + at;
    const std::size_t left = size - at;
    if (left < kHeader) return {at, false};
    const std::uint64_t length = load64(p);
    if (length > limit) [[likely]]
      continue;
    if (load32(p + 8) != mask(crc32c_of_length<Cpu>(length))) [[likely]]
      continue;
    if (left < kOverhead || length > left - kOverhead) {
      if (final) continue;
      return {at, false};
    }
    const std::size_t payload = at + kHeader;
    if (length >= kLong && !prefixes) prefixes.emplace(buffer, payload);
    const std::uint32_t crc = length < kLong ? crc32c<Cpu>(buffer.data() + payload, length)
                                             : prefixes->crc32c(payload, payload + length);
    if (load32(buffer.data() + payload + length) == mask(crc)) return {at, true};
  }
}

void prefetch_bounds(const Frames& frames, std::uint64_t i) {
  prefetch(frames.bounds.data() + std::min<std::uint64_t>(i, frames.count()));
}

// Copies frames index[from..to) to out[position..end), as far as they fit; gives the first not copied.
std::size_t copy_frames(const Frames& source, Numbers index, std::size_t from, std::size_t to, Room out,
                        std::size_t position, std::size_t end, Slots out_bounds) {
  // Far enough ahead for main memory; the bounds themselves are fetched twice as far ahead.
  constexpr std::size_t kAhead = 16;
  const std::size_t n = source.count();
  for (std::size_t k = from; k < to; ++k) {
    if (k + 2 * kAhead < to) prefetch_bounds(source, index[k + 2 * kAhead]);
    if (k + kAhead < to) {
      const std::uint64_t at = source.bounds[std::min<std::uint64_t>(index[k + kAhead], n)];
      if (at < source.buffer.size())
        for (std::size_t line = 0; line < 6; ++line) prefetch(source.buffer.data() + at + 64 * line);
    }
    const std::uint64_t i = index[k];
    if (i >= n) refuse("index has a number that is no frame's");
    const Bytes frame = source.at(i);
    if (frame.size() > end - position) return k;
    std::memcpy(out.data() + position, frame.data(), frame.size());
    position += frame.size();
    out_bounds[k + 1] = position;
  }
  return to;
}

// The first frame of each of `parts` parts that have about as many bytes.
std::size_t cut(Numbers bounds, std::size_t part, std::size_t parts) {
  if (part == 0) return 0;
  if (part == parts) return bounds.size() - 1;
  const std::uint64_t edge = bounds.front() + (bounds.back() - bounds.front()) / parts * part;
  // Bounds that are not ascending give a strange cut, but the parts still cover every frame.
  const auto at = static_cast<std::size_t>(std::ranges::lower_bound(bounds, edge) - bounds.begin());
  return std::min(at, bounds.size() - 1);
}

std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9;
  x ^= x >> 27;
  x *= 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

void refuse(const char* why) { throw std::invalid_argument(why); }

bool overlap(Bytes a, Bytes b) {
  const std::less<const Byte*> before;  // a plain < is defined only within one array
  return !a.empty() && !b.empty() && before(a.data(), b.data() + b.size()) &&
         before(b.data(), a.data() + a.size());
}

void Frames::refuse_bounds(std::size_t i) const {
  throw std::invalid_argument("bounds " + std::to_string(i) + " and " + std::to_string(i + 1) +
                              " are no frame of a buffer of " + std::to_string(buffer.size()) + " bytes");
}

void Totals::add(std::uint64_t length, std::uint32_t crc) {
  const std::uint64_t h = mix(length + 0x9e3779b97f4a7c15);
  const std::uint64_t sum = low + mix(h + crc);
  high += mix(h ^ (crc * 0xd6e8feb86659fd93) ^ 0xa0761d6478bd642f) + (sum < low);
  low = sum;
  bytes += length;
  ++frames;
}

void Totals::add(const Totals& other) {
  const std::uint64_t sum = low + other.low;
  high += other.high + (sum < low);
  low = sum;
  bytes += other.bytes;
  frames += other.frames;
}

void Totals::add_to(Slots totals) const {
  totals[0] += frames;
  totals[1] += bytes;
  const std::uint64_t sum = totals[2] + low;
  totals[3] += high + (sum < low);
  totals[2] = sum;
}

std::pair<std::size_t, Stop> scan(Bytes buffer, std::size_t start, Slots bounds, bool payloads,
                                  std::uint64_t limit) {
  if (start > buffer.size()) refuse("start is behind the end of buffer");
  if (bounds.empty()) refuse("bounds has no room for start");
  return with_cpu([&]<class Cpu>(Cpu) {
    return payloads ? walk<Cpu, true>(buffer, start, bounds, limit)
                    : walk<Cpu, false>(buffer, start, bounds, limit);
  });
}

std::size_t check_frames(const Frames& frames, unsigned threads, Totals& totals) {
  const std::size_t parts = parts_for(frames.bounds.back() - frames.bounds.front(), threads);
  std::size_t wrong = frames.count();
  std::mutex lock;
  in_parallel(parts, [&](std::size_t part) {
    const std::size_t from = cut(frames.bounds, part, parts), to = cut(frames.bounds, part + 1, parts);
    Totals added;
    const std::size_t found =
        with_cpu([&]<class Cpu>(Cpu) { return first_wrong<Cpu>(frames, from, to, added); });
    const std::lock_guard<std::mutex> guard(lock);
    if (found < to) wrong = std::min(wrong, found);
    totals.add(added);
  });
  return wrong;
}

std::pair<std::size_t, bool> resync(Bytes buffer, std::size_t start, std::uint64_t limit, bool final) {
  if (start > buffer.size()) refuse("start is behind the end of buffer");
  return with_cpu([&]<class Cpu>(Cpu) { return find_frame<Cpu>(buffer, start, limit, final); });
}

std::size_t gather(const Frames& source, Numbers index, Room out, Slots out_bounds, unsigned threads) {
  if (overlap(source.buffer, out)) refuse("source and out overlap");
  if (out_bounds.size() <= index.size()) refuse("out_bounds must have one place more than index");
  out_bounds[0] = 0;
  if (parts_for(std::min(source.buffer.size(), out.size()), threads) == 1)
    return copy_frames(source, index, 0, index.size(), out, 0, out.size(), out_bounds);
  constexpr std::size_t kAhead = 32;
  // Where everything goes, so that the threads can start in the middle.
  std::size_t fit = 0;
  for (std::uint64_t position = 0; fit < index.size(); ++fit) {
    if (fit + kAhead < index.size()) prefetch_bounds(source, index[fit + kAhead]);
    const std::uint64_t i = index[fit];
    if (i >= source.count()) refuse("index has a number that is no frame's");
    const std::size_t size = source.at(i).size();
    if (size > out.size() - position) break;
    out_bounds[fit + 1] = position += size;
  }
  const Slots edges = out_bounds.first(fit + 1);
  const std::size_t parts = parts_for(edges.back(), threads);
  in_parallel(parts, [&](std::size_t part) {
    const std::size_t from = cut(edges, part, parts), to = cut(edges, part + 1, parts);
    if (from >= to) return;
    const std::uint64_t position = edges[from], end = edges[to];
    if (position > end || end > out.size()) refuse("out_bounds was changed by another thread");
    copy_frames(source, index, from, to, out, position, end, out_bounds);
  });
  return fit;
}

std::size_t scatter(const Frames& source, Numbers bucket, std::size_t first, Room out, Slots cursors,
                    Numbers limits) {
  constexpr std::size_t kAhead = 16;
  const std::size_t n = source.count();
  if (overlap(source.buffer, out)) refuse("source and out overlap");
  if (bucket.size() < n) refuse("bucket has fewer numbers than there are frames");
  if (cursors.size() != limits.size()) refuse("cursors and limits differ in length");
  if (first > n) refuse("first is behind the last frame");
  for (std::size_t i = first; i < n; ++i) {
    if (i + kAhead < n && bucket[i + kAhead] < cursors.size()) {
      const std::uint64_t at = cursors[bucket[i + kAhead]];
      if (at < out.size()) __builtin_prefetch(out.data() + at, 1);
    }
    const std::uint64_t b = bucket[i];
    if (b >= cursors.size()) refuse("bucket has a number that is not below len(cursors)");
    const std::uint64_t cursor = cursors[b], limit = limits[b];
    if (cursor > limit || limit > out.size()) refuse("cursors and limits must be ascending and within out");
    const Bytes frame = source.at(i);
    if (frame.size() > limit - cursor) return i;
    std::memcpy(out.data() + cursor, frame.data(), frame.size());
    cursors[b] = cursor + frame.size();
  }
  return n;
}

Totals fingerprint(const Frames& frames) {
  Totals totals;
  constexpr std::size_t kAhead = 16;  // 46 ns a record without, at 100 to 300 bytes
  for (std::size_t i = 0; i < frames.count(); ++i) {
    const std::uint64_t later = i + kAhead < frames.count() ? frames.bounds[i + kAhead] : 0;
    if (later >= kTrailer && later <= frames.buffer.size()) prefetch(frames.buffer.data() + later - kTrailer);
    const Bytes payload = frames.payload(i);
    totals.add(payload.size(), unmask(load32(payload.data() + payload.size())));
  }
  return totals;
}

Totals fingerprint_of(Numbers lengths, Numbers crcs) {
  if (lengths.size() != crcs.size()) refuse("lengths and crcs differ in length");
  Totals totals;
  for (std::size_t i = 0; i < lengths.size(); ++i) totals.add(lengths[i], unmask(static_cast<std::uint32_t>(crcs[i])));
  return totals;
}

std::size_t fragments(Numbers bounds, std::uint64_t large, std::uint64_t group, Slots ends) {
  const std::size_t n = bounds.size() - 1;
  if (ends.size() < n) refuse("ends must have a place for every frame");
  std::size_t count = 0;
  std::uint64_t open = 0;  // bytes of the group that is still open; it began at frame `from`
  std::size_t from = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t begin = bounds[i], end = bounds[i + 1];
    if (begin > end) refuse("bounds are not ascending");
    const bool alone = end - begin >= large;
    if (alone && from < i) ends[count++] = i;
    open += end - begin;
    if (!alone && open < group) continue;
    ends[count++] = from = i + 1;
    open = 0;
  }
  return count;
}

bool append(Room out, Bytes payload, Totals& totals) {
  const std::uint64_t length = payload.size();
  if (out.size() < kOverhead || length > out.size() - kOverhead) return false;
  Byte* const p = out.data();
  with_cpu([&]<class Cpu>(Cpu) {
    const std::uint32_t crc = ~Cpu::copy(p + kHeader, payload.data(), length);
    store64(p, length);
    store32(p + 8, mask(crc32c_of_length<Cpu>(length)));
    store32(p + kHeader + length, mask(crc));
    totals.add(length, crc);
  });
  return true;
}

}  // namespace croupier
