#include "varints.h"

#include <algorithm>
#include <array>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace croupier {
namespace {

constexpr std::size_t kChunk = 64;
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
  static std::uint64_t number(std::uint64_t word, std::size_t size) { return squeeze(word & kSevens >> (64 - 8 * size)); }
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

// The ends of 64 bytes at a time: so the next varint's place is known before this one is put together, and a
// processor works on several at once. 1 ns each for lengths that nobody can foresee, where byte by byte takes 5.
template <class How>
[[gnu::always_inline]] inline std::size_t unpack_with(const Byte* at, const Byte* end, const Byte* limit, Slots room) {
  constexpr std::size_t kWord = 8;
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
      } else if (!one(start, next, *out++)) {
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

template <class How>
[[gnu::always_inline]] inline std::size_t count_with(const Byte* at, const Byte* end, const Byte* limit) {
  constexpr std::size_t kMost = 10;
  std::size_t count = 0, open = 0;  // bytes of a varint that has not ended yet
  for (; at < end && static_cast<std::size_t>(limit - at) >= kChunk; at += kChunk) {
    const std::size_t here = std::min(kChunk, static_cast<std::size_t>(end - at));
    const std::uint64_t mask = How::ends(at) & ~std::uint64_t{0} >> (kChunk - here), on = ~mask;
    std::uint64_t runs = on & on >> 1;  // where two bytes go on, four, eight, ten
    runs &= runs >> 2;
    runs &= runs >> 4;
    runs &= on >> 8 & on >> 9;
    if (mask == 0 || (runs & ~std::uint64_t{0} >> (kChunk - here)) != 0) break;  // one by one will tell
    if (open + static_cast<std::size_t>(std::countr_zero(mask)) >= kMost) return kNoVarints;
    open = here - static_cast<std::size_t>(std::bit_width(mask));
    count += static_cast<std::size_t>(std::popcount(mask));
  }
  for (; at < end; ++at) {
    if (*at < 128) {
      open = 0;
      ++count;
    } else if (++open >= kMost) {
      return kNoVarints;
    }
  }
  return open == 0 ? count : kNoVarints;
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
// The varints that end within 64 bytes, eight at a time: their bytes are brought into a lane each, and the sevens of
// bits put together by multiplying: 0.6 ns each where the way above takes 1.3. A varint of nine bytes or ten is read by
// itself, and the next 64 bytes begin behind it.
CROUPIER_FOR_VBMI std::size_t unpack_vbmi(const Byte* at, const Byte* end, const Byte* limit, Slots room) {
  constexpr int kLanes = 8;
  static constexpr auto kPlaces = bytes_of([](unsigned i) { return i; });
  static constexpr auto kLane = bytes_of([](unsigned i) { return i / 8; });
  static constexpr auto kWithin = bytes_of([](unsigned i) { return i % 8; });
  const __m512i places = _mm512_loadu_si512(kPlaces.data()), within = _mm512_loadu_si512(kWithin.data());
  const __m512i sevens = _mm512_set1_epi8(127), by_128 = _mm512_set1_epi16(static_cast<short>(128 << 8 | 1));
  const __m512i by_2_14 = _mm512_set1_epi32(1 << 30 | 1), low = _mm512_set1_epi64(0xffffffff);
  std::uint64_t* out = room.data();
  std::uint64_t* const last = out + room.size();
  while (at != end) {
    if (static_cast<std::size_t>(limit - at) >= kChunk) {
      const __m512i bytes = _mm512_loadu_si512(at);
      std::uint64_t ends = ~_mm512_movepi8_mask(bytes);
      if (static_cast<std::size_t>(end - at) < kChunk) ends &= (std::uint64_t{1} << (end - at)) - 1;
      const std::uint64_t used = ends == 0 ? 0 : ~std::uint64_t{0} >> std::countl_zero(ends), on = ~ends & used;
      std::uint64_t runs = on & on >> 1;  // where eight bytes go on
      runs &= runs >> 2;
      runs &= runs >> 4;
      if (runs == 0 && ends != 0) [[likely]] {
        const int count = std::popcount(ends);
        if (count > last - out) return kNoVarints;
        const __m512i firsts = _mm512_maskz_compress_epi8((ends << 1 | 1) & used, places);
        const __m512i finals = _mm512_maskz_compress_epi8(ends, places);
        __m512i lane = _mm512_loadu_si512(kLane.data());
        for (int k = 0; k < count; k += kLanes, lane = _mm512_add_epi8(lane, _mm512_set1_epi8(kLanes))) {
          const __m512i index = _mm512_add_epi8(_mm512_permutexvar_epi8(lane, firsts), within);
          const __mmask64 own = _mm512_cmple_epu8_mask(index, _mm512_permutexvar_epi8(lane, finals));
          const __m512i word = _mm512_and_si512(_mm512_maskz_permutexvar_epi8(own, index, bytes), sevens);
          const __m512i half = _mm512_madd_epi16(_mm512_maddubs_epi16(by_128, word), by_2_14);  // 28 bits each
          const __m512i upper = _mm512_srli_epi64(_mm512_andnot_si512(low, half), 4);
          const __m512i whole = _mm512_or_si512(_mm512_and_si512(half, low), upper);
          if (count - k >= kLanes)
            _mm512_storeu_si512(out + k, whole);
          else
            _mm512_mask_storeu_epi64(out + k, static_cast<__mmask8>((1U << (count - k)) - 1), whole);
        }
        out += count;
        at += std::bit_width(used);
        continue;
      }
    }
    if (out == last) return kNoVarints;
    at = one(at, end, *out++);
    if (!at) return kNoVarints;
  }
  return static_cast<std::size_t>(out - room.data());
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
