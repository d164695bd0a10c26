#include "varints.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace croupier {
namespace {

constexpr std::size_t kChunk = 64;

// Which of 64 bytes end a varint.
std::uint64_t ends(const Byte* at) {
  std::uint64_t goes_on = 0;
#if defined(__SSE2__)
  for (int i = 0; i < 4; ++i) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at) + i);
    goes_on |= static_cast<std::uint64_t>(static_cast<unsigned>(_mm_movemask_epi8(bytes))) << (16 * i);
  }
#else
  for (int i = 0; i < 8; ++i) {
    const std::uint64_t tops = load64(at + 8 * i) >> 7 & 0x0101010101010101;
    goes_on |= (tops * 0x0102040810204080 >> 56) << (8 * i);
  }
#endif
  return ~goes_on;
}

struct Portable {
  // In the first `size` bytes of a word.
  static std::uint64_t number(std::uint64_t word, unsigned size) {
    return squeeze(word << (64 - 8 * size) >> (64 - 8 * size) & 0x7f7f7f7f7f7f7f7f);
  }
  static std::size_t ones(std::uint64_t word) { return static_cast<std::size_t>(std::popcount(word)); }
};

#if defined(__x86_64__)
#define CROUPIER_BMI 1
// As assembly, because an intrinsic needs target("bmi2") on every function that it is inlined into.
struct Bmi {
  static std::uint64_t number(std::uint64_t word, unsigned size) {
    const std::uint64_t mask = std::uint64_t{0x7f7f7f7f7f7f7f7f} >> (64 - 8 * size);
    std::uint64_t result;
    __asm__("pextq %2, %1, %0" : "=r"(result) : "r"(word), "rm"(mask));
    return result;
  }
  static std::size_t ones(std::uint64_t word) {
    std::uint64_t result;
    __asm__("popcntq %1, %0" : "=r"(result) : "rm"(word) : "cc");
    return result;
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
// processor works on several at once. 1.5 ns each for lengths that nobody can foresee, where byte by byte takes 5.
template <class How>
std::size_t unpack_with(const Byte* at, const Byte* end, const Byte* limit, Slots room) {
  constexpr std::size_t kWord = 8;
  std::uint64_t* out = room.data();
  std::uint64_t* const last = out + room.size();
  const Byte* start = at;
  for (; at < end && static_cast<std::size_t>(limit - at) >= kChunk + kWord; at += kChunk) {
    std::uint64_t mask = ends(at);
    if (static_cast<std::size_t>(end - at) < kChunk) mask &= (std::uint64_t{1} << (end - at)) - 1;
    if (How::ones(mask) > static_cast<std::size_t>(last - out)) return kNoVarints;
    while (mask != 0) {
      const Byte* const next = at + std::countr_zero(mask) + 1;
      mask &= mask - 1;
      const auto size = static_cast<std::size_t>(next - start);
      if (size <= kWord) [[likely]] {
        *out++ = How::number(load64(start), static_cast<unsigned>(size));
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
std::size_t count_with(Bytes bytes) {
  constexpr std::size_t kMost = 10;
  std::size_t count = 0, open = 0;  // bytes of a varint that has not ended yet
  const Byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= kChunk; at += kChunk, left -= kChunk) {
    const std::uint64_t mask = ends(at), on = ~mask;
    std::uint64_t runs = on & on >> 1;  // where two bytes go on, four, eight, ten
    runs &= runs >> 2;
    runs &= runs >> 4;
    runs &= on >> 8 & on >> 9;
    if (runs != 0 || open + static_cast<std::size_t>(std::countr_zero(mask)) >= kMost) return kNoVarints;
    open = static_cast<std::size_t>(std::countl_zero(mask));
    count += How::ones(mask);
  }
  for (; left > 0; ++at, --left) {
    if (*at >= 128) {
      if (++open >= kMost) return kNoVarints;
    } else {
      open = 0;
      ++count;
    }
  }
  return open == 0 ? count : kNoVarints;
}

template <class How>
constexpr Varints kVarints = {unpack_with<How>, count_with<How>};

}  // namespace

const Varints kPortableVarints = kVarints<Portable>;

const Varints& varints() {
#if defined(CROUPIER_BMI)
  // AMD had pext in microcode before its third generation of Zen: eighteen cycles and more.
  static const bool fast =
      __builtin_cpu_supports("bmi2") && !__builtin_cpu_is("znver1") && !__builtin_cpu_is("znver2");
  if (fast) return kVarints<Bmi>;
#endif
  return kPortableVarints;
}

}  // namespace croupier
