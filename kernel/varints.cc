#include "varints.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace croupier {
namespace {

constexpr std::size_t kChunk = 64, kWord = 8, kMost = 10;  // a varint's bytes
constexpr std::uint64_t kSevens = 0x7f7f7f7f7f7f7f7f;

struct Portable {
  // Which of 64 bytes end a varint.
  static std::uint64_t ends(const Byte* at) {
    std::uint64_t goes_on = 0;
    for (int i = 0; i < 8; ++i) {
      const std::uint64_t tops = load64(at + 8 * i) >> 7 & 0x0101010101010101;
      goes_on |= (tops * 0x0102040810204080 >> 56) << (8 * i);
    }
    return ~goes_on;
  }
  // The number in the first `size` bytes of a word.
  static std::uint64_t number(std::uint64_t word, std::size_t size) {
    return squeeze(word & kSevens >> (64 - 8 * size));
  }
};

#if defined(__x86_64__)
#define CROUPIER_BMI 1
#define CROUPIER_FOR_BMI __attribute__((target("avx2,bmi,bmi2,popcnt")))
struct Bmi {
  CROUPIER_FOR_BMI static std::uint64_t ends(const Byte* at) {
    const auto half = [](const Byte* from) CROUPIER_FOR_BMI {
      const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
      return std::uint64_t{static_cast<unsigned>(_mm256_movemask_epi8(bytes))};
    };
    return ~(half(at) | half(at + 32) << 32);
  }
  CROUPIER_FOR_BMI static std::uint64_t number(std::uint64_t word, std::size_t size) {
    return _pext_u64(word, kSevens >> (64 - 8 * size));
  }
};
#endif

// One byte after the other: null if there is none, or none that ends.
const Byte* one(const Byte* at, const Byte* end, std::uint64_t& value) {
  value = 0;
  for (unsigned shift = 0; shift < 70; shift += 7) {
    if (at == end) return nullptr;
    const std::uint64_t byte = *at++;
    value |= (byte & 127) << shift;
    if (byte < 128) return at;
  }
  return nullptr;
}

// What the ninth byte and the tenth add: of the latter one bit counts.
inline std::uint64_t upper(const Byte* ninth, std::size_t size) {
  const std::uint64_t bits = std::uint64_t{ninth[0] & 127U} << 56;
  return size == kMost ? bits | std::uint64_t{ninth[1]} << 63 : bits;
}

// The ends of 64 bytes at a time: so the next varint's place is known before this one is put together, and a
// processor works on several at once. 1 ns each for lengths that nobody can foresee, where byte by byte takes 5.
template <class How>
[[gnu::always_inline]] inline std::size_t unpack_with(const Byte* at, const Byte* end, const Byte* limit, Slots room) {
  std::uint64_t* out = room.data();
  std::uint64_t* const last = out + room.size();
  const Byte* start = at;
  for (; at < end && static_cast<std::size_t>(limit - at) >= kChunk + kWord; at += kChunk) {
    std::uint64_t mask = How::ends(at);
    if (static_cast<std::size_t>(end - at) < kChunk) mask &= (std::uint64_t{1} << (end - at)) - 1;
    if (std::popcount(mask) > last - out) return kNoVarints;
    while (mask != 0) {
      const Byte* const next = at + std::countr_zero(mask) + 1;
      mask &= mask - 1;
      const auto size = static_cast<std::size_t>(next - start);
      if (size <= kWord) [[likely]] {
        *out++ = How::number(load64(start), size);
      } else if (size <= kMost) {
        *out++ = How::number(load64(start), kWord) | upper(start + kWord, size);
      } else {
        return kNoVarints;
      }
      start = next;
    }
  }
  while (start != end) {
    if (out == last) return kNoVarints;
    start = one(start, end, *out++);
    if (!start) return kNoVarints;
  }
  return static_cast<std::size_t>(out - room.data());
}

// How many varints 64 bytes end, chunk after chunk, and whether each has ten bytes at most.
struct Counted {
  std::size_t count = 0;
  std::uint64_t before = ~std::uint64_t{0};  // the ends in the chunk before
  std::uint64_t doubt = 0;                   // not zero: four bytes there went on

  // Of eleven bytes in two chunks four go on in one of them: so shorter ones are counted at the price of a few bits.
  [[gnu::always_inline]] bool add(std::uint64_t ends) {
    const std::uint64_t on = ~ends, pairs = on & on >> 1, fours = pairs & pairs >> 2;
    count += static_cast<std::size_t>(std::popcount(ends));
    if ((fours | doubt) != 0) [[unlikely]] {
      const std::uint64_t eights = fours & fours >> 4;
      if ((eights & on >> 8 & on >> 9) != 0) return false;
      const int across = std::countl_zero(before) + std::countr_zero(ends);
      if (static_cast<std::size_t>(across) >= kMost) return false;
    }
    before = ends;
    doubt = fours;
    return true;
  }
};

template <class How>
[[gnu::always_inline]] inline std::size_t count_with(const Byte* at, const Byte* end, const Byte* limit) {
  if (at == end) return 0;
  if (end[-1] >= 128) return kNoVarints;
  Counted all;
  std::size_t left = static_cast<std::size_t>(end - at);
  for (; left >= kChunk; at += kChunk, left -= kChunk)
    if (!all.add(How::ends(at))) return kNoVarints;
  if (left == 0) return all.count;
  Byte rest[kChunk];
  if (static_cast<std::size_t>(limit - at) < kChunk) at = static_cast<const Byte*>(std::memcpy(rest, at, left));
  if (!all.add(How::ends(at) | ~std::uint64_t{0} << left)) return kNoVarints;  // what is behind them ends, each
  return all.count - (kChunk - left);
}

std::size_t unpack_portable(const Byte* at, const Byte* end, const Byte* limit, Slots room) {
  return unpack_with<Portable>(at, end, limit, room);
}
std::size_t count_portable(const Byte* at, const Byte* end, const Byte* limit) {
  return count_with<Portable>(at, end, limit);
}

#if defined(CROUPIER_BMI)
CROUPIER_FOR_BMI std::size_t unpack_bmi(const Byte* at, const Byte* end, const Byte* limit, Slots room) {
  return unpack_with<Bmi>(at, end, limit, room);
}
CROUPIER_FOR_BMI std::size_t count_bmi(const Byte* at, const Byte* end, const Byte* limit) {
  return count_with<Bmi>(at, end, limit);
}

// AMD had pext in microcode before its third generation of Zen: eighteen cycles and more.
bool has_bmi() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
         !__builtin_cpu_is("znver1") && !__builtin_cpu_is("znver2");
}

#define CROUPIER_FOR_VBMI \
  __attribute__((target("avx512f,avx512bw,avx512vbmi,avx512vbmi2,avx2,bmi,bmi2,popcnt,lzcnt")))

template <class Of>
constexpr std::array<Byte, kChunk> bytes_of(const Of& of) {
  std::array<Byte, kChunk> bytes{};
  for (unsigned i = 0; i < kChunk; ++i) bytes[i] = static_cast<Byte>(of(i));
  return bytes;
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 takes its own headers' undefined lanes for ours
#endif
CROUPIER_FOR_VBMI inline __m512i by_sevens(__m512i bytes) {  // 28 bits in each 32
  const __m512i by_128 = _mm512_set1_epi16(static_cast<short>(128 << 8 | 1)), by_2_14 = _mm512_set1_epi32(1 << 30 | 1);
  return _mm512_madd_epi16(_mm512_maddubs_epi16(by_128, bytes), by_2_14);
}
CROUPIER_FOR_VBMI inline void store(std::uint64_t* out, __m512i numbers, std::ptrdiff_t room) {
  constexpr int kLanes = 8;
  if (room >= kLanes)
    _mm512_storeu_si512(out, numbers);
  else if (room > 0)
    _mm512_mask_storeu_epi64(out, static_cast<__mmask8>((1U << room) - 1), numbers);
}
CROUPIER_FOR_VBMI inline __m512i places_of(std::uint64_t mask) {
  static constexpr auto kPlaces = bytes_of([](unsigned i) { return i; });
  return _mm512_maskz_compress_epi8(mask, _mm512_loadu_si512(kPlaces.data()));
}

// Varints of four bytes at most that begin in a chunk, sixteen at a time: each is brought into a lane of its own, and
// its sevens of bits are put together by multiplying. What is stored behind the last one is overwritten later.
CROUPIER_FOR_VBMI inline void put_short(__m512i bytes, __m512i more, __m512i firsts, int count, std::uint64_t* out,
                                        std::uint64_t* last) {
  constexpr int kLanes = 16;
  static constexpr auto kLane = bytes_of([](unsigned i) { return i / 4; });
  static constexpr auto kWithin = bytes_of([](unsigned i) { return i % 4; });
  const __m512i tops = _mm512_set1_epi8(-128), one = _mm512_set1_epi32(1);
  __m512i lane = _mm512_loadu_si512(kLane.data());
  for (; count > 0; count -= kLanes, out += kLanes, lane = _mm512_add_epi8(lane, _mm512_set1_epi8(kLanes))) {
    const __m512i index = _mm512_add_epi8(_mm512_permutexvar_epi8(lane, firsts), _mm512_loadu_si512(kWithin.data()));
    const __m512i word = _mm512_permutex2var_epi8(bytes, index, more), ends = _mm512_andnot_si512(word, tops);
    const __m512i own = _mm512_xor_si512(ends, _mm512_sub_epi32(ends, one));  // up to its end
    const __m512i found = by_sevens(_mm512_andnot_si512(tops, _mm512_and_si512(word, own)));
    store(out, _mm512_cvtepu32_epi64(_mm512_castsi512_si256(found)), last - out);
    store(out + 8, _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(found, 1)), last - out - 8);
  }
}

// Chunks of such varints, as far as they go: 0.2 ns each, as no chunk waits for what the one before is (the way above
// takes 1.0). The last byte ends one, and `at` begins one; gives where the next one begins, or null: there is no room.
CROUPIER_FOR_VBMI inline const Byte* unpack_short(const Byte* at, const Byte* end, const Byte* limit,
                                                  std::uint64_t*& out, std::uint64_t* last) {
  if (static_cast<std::size_t>(limit - at) < 2 * kChunk) return at;
  __m512i bytes = _mm512_loadu_si512(at);
  for (std::uint64_t on = _mm512_movepi8_mask(bytes), begins = 1;; at += kChunk) {
    const auto left = static_cast<std::size_t>(end - at);
    const std::uint64_t valid = left < kChunk ? ~(~std::uint64_t{0} << left) : ~std::uint64_t{0};
    const std::uint64_t firsts = (~on << 1 | begins) & valid;
    const Byte* const first = at + std::min(static_cast<std::size_t>(std::countr_zero(firsts)), left);
    if (static_cast<std::size_t>(limit - at) < 2 * kChunk) return first;
    const __m512i more = _mm512_loadu_si512(at + kChunk);
    const std::uint64_t on_more = _mm512_movepi8_mask(more);
    const std::uint64_t pairs = on & (on >> 1 | on_more << 63);
    const std::uint64_t fours = pairs & (pairs >> 2 | (on_more & on_more >> 1) << 62);
    if ((fours & valid) != 0) return first;
    const int count = std::popcount(firsts);
    if (count > last - out) return nullptr;
    put_short(bytes, more, places_of(firsts), count, out, last);
    out += count;
    if (left <= kChunk) return end;
    begins = ~on >> 63;
    bytes = more;
    on = on_more;
  }
}

// Varints of eight bytes at most that end in a chunk, eight at a time.
CROUPIER_FOR_VBMI inline void put_long(__m512i bytes, __m512i firsts, int count, std::uint64_t* out,
                                       std::uint64_t* last) {
  constexpr int kLanes = 8;
  static constexpr auto kLane = bytes_of([](unsigned i) { return i / 8; });
  static constexpr auto kWithin = bytes_of([](unsigned i) { return i % 8; });
  const __m512i tops = _mm512_set1_epi8(-128), one = _mm512_set1_epi64(1), low = _mm512_set1_epi64(0xffffffff);
  __m512i lane = _mm512_loadu_si512(kLane.data());
  for (; count > 0; count -= kLanes, out += kLanes, lane = _mm512_add_epi8(lane, _mm512_set1_epi8(kLanes))) {
    const __m512i index = _mm512_add_epi8(_mm512_permutexvar_epi8(lane, firsts), _mm512_loadu_si512(kWithin.data()));
    const __m512i word = _mm512_permutexvar_epi8(index, bytes), ends = _mm512_andnot_si512(word, tops);
    const __m512i own = _mm512_xor_si512(ends, _mm512_sub_epi64(ends, one));
    const __m512i half = by_sevens(_mm512_andnot_si512(tops, _mm512_and_si512(word, own)));
    const __m512i upper = _mm512_srli_epi64(_mm512_andnot_si512(low, half), 4);
    store(out, _mm512_or_si512(_mm512_and_si512(half, low), upper), last - out);
  }
}

// Short ones as far as they go, else those that end in a chunk, and the next chunk begins behind them.
CROUPIER_FOR_VBMI std::size_t unpack_vbmi(const Byte* at, const Byte* end, const Byte* limit, Slots room) {
  if (at == end) return 0;
  if (end[-1] >= 128) return kNoVarints;
  std::uint64_t* out = room.data();
  std::uint64_t* const last = out + room.size();
  for (bool try_short = true;;) {
    if (try_short) at = unpack_short(at, end, limit, out, last);
    if (!at) return kNoVarints;
    if (at == end) return static_cast<std::size_t>(out - room.data());
    const Byte* next = end;
    std::size_t count = 0;
    if (static_cast<std::size_t>(limit - at) >= kChunk) {
      const __m512i bytes = _mm512_loadu_si512(at);
      std::uint64_t ends = ~_mm512_movepi8_mask(bytes);
      if (static_cast<std::size_t>(end - at) < kChunk) ends &= (std::uint64_t{1} << (end - at)) - 1;
      if (ends == 0) return kNoVarints;
      const std::uint64_t used = ~std::uint64_t{0} >> std::countl_zero(ends), on = ~ends & used;
      const std::uint64_t pairs = on & on >> 1, fours = pairs & pairs >> 2;
      next = at + std::bit_width(used);
      try_short = fours == 0;
      if ((fours & fours >> 4) == 0) {
        count = static_cast<std::size_t>(std::popcount(ends));
        if (count > static_cast<std::size_t>(last - out)) return kNoVarints;
        put_long(bytes, places_of((ends << 1 | 1) & used), static_cast<int>(count), out, last);
      }
    }
    if (count == 0) count = unpack_with<Bmi>(at, next, limit, {out, last});  // nine bytes or ten, or the last ones
    if (count == kNoVarints) return kNoVarints;
    out += count;
    at = next;
  }
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

bool has_vbmi() {
  return has_bmi() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2");
}
#endif

}  // namespace

std::span<const Varints> all_varints() {
  static const std::vector<Varints> all = [] {
    std::vector<Varints> ways{{unpack_portable, count_portable}};
#if defined(CROUPIER_BMI)
    if (has_bmi()) ways.push_back({unpack_bmi, count_bmi});
    if (has_vbmi()) ways.push_back({unpack_vbmi, count_bmi});
#endif
    return ways;
  }();
  return all;
}

const Varints& varints() { return all_varints().back(); }

}  // namespace croupier
