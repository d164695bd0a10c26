#include "varints.h"

#include <algorithm>

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
#endif

}  // namespace

const Varints kPortableVarints = {unpack_portable, count_portable};

const Varints& varints() {
#if defined(CROUPIER_BMI)
  static const Varints best = has_bmi() ? Varints{unpack_bmi, count_bmi} : kPortableVarints;
  return best;
#else
  return kPortableVarints;
#endif
}

}  // namespace croupier
