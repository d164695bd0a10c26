#include "crc32c.h"

#include <array>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#ifdef __linux__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#endif

namespace croupier {
namespace {

// Polynomials are bit-reflected: the lowest bit is the highest power.
constexpr std::uint32_t kPolynomial = 0x82f63b78;

constexpr std::uint32_t times_x(std::uint32_t r) { return (r >> 1) ^ (r & 1 ? kPolynomial : 0); }

constexpr std::uint32_t product(std::uint32_t a, std::uint32_t b) {
  std::uint32_t r = 0;
  for (; b != 0; b <<= 1, a = times_x(a)) r ^= b >> 31 ? a : 0;
  return r;
}

// x^(8 * 2^i), which moves a register over 2^i bytes.
constexpr auto kSkips = [] {
  std::array<std::uint32_t, 64> t{0x00800000};
  for (std::size_t i = 1; i < t.size(); ++i) t[i] = product(t[i - 1], t[i - 1]);
  return t;
}();

constexpr auto kTables = [] {
  std::array<std::array<std::uint32_t, 256>, 8> t{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t r = b;
    for (int i = 0; i < 8; ++i) r = times_x(r);
    t[0][b] = r;
  }
  for (std::size_t i = 1; i < 8; ++i)
    for (std::size_t b = 0; b < 256; ++b) t[i][b] = (t[i - 1][b] >> 8) ^ t[0][t[i - 1][b] & 255];
  return t;
}();

}  // namespace

std::uint32_t Table::word(std::uint32_t reg, std::uint64_t w) {
  w ^= reg;
  std::uint32_t r = 0;
  for (unsigned i = 0; i < 8; ++i) r ^= kTables[7 - i][(w >> (8 * i)) & 255];
  return r;
}

std::uint32_t Table::bytes(std::uint32_t reg, const Byte* p, std::size_t n) {
  for (; n >= 8; p += 8, n -= 8) reg = word(reg, load64(p));
  for (; n > 0; ++p, --n) reg = (reg >> 8) ^ kTables[0][(reg ^ *p) & 255];
  return reg;
}

std::uint32_t skip(std::uint32_t reg, std::uint64_t zeros) {
  for (std::size_t i = 0; zeros != 0; ++i, zeros >>= 1)
    if (zeros & 1) reg = product(kSkips[i], reg);
  return reg;
}

#ifdef CROUPIER_CRC_UNIT
namespace {

// The factors that move 16 bytes forward by `distance` bytes: x^(8 distance + 64) for the first 8 bytes,
// x^(8 distance) for the others. One power less, because a carry-less product of two reflected
// 64-bit polynomials comes out multiplied by x; 32 bits up, because that is where 64 bits have x^0 to x^31.
struct Factors {
  std::uint64_t first, second;
};
constexpr std::uint64_t power_of_x(unsigned n) {
  std::uint32_t r = 0x80000000;
  while (n-- > 0) r = times_x(r);
  return std::uint64_t{r} << 32;
}
constexpr Factors forward(unsigned distance) {
  return {power_of_x(8 * distance + 63), power_of_x(8 * distance - 1)};
}

// What is left after folding: 16 bytes that stand for all before p, then n bytes not looked at.
inline std::uint32_t finish(std::uint64_t first, std::uint64_t second, const Byte* p, std::size_t n) {
  return serial(Unit::word(Unit::word(0, first), second), p, n);
}

}  // namespace
#endif

#if defined(__x86_64__)

#define CROUPIER_XMM __attribute__((target("pclmul,sse4.2")))
#define CROUPIER_ZMM __attribute__((target("avx512f,avx512vl,avx512bw,vpclmulqdq,pclmul,sse4.2")))

bool Xmm::runs() { return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.2"); }
bool Zmm::runs() {
  return Xmm::runs() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("vpclmulqdq");
}

namespace {

CROUPIER_XMM inline __m128i load(const Byte* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
CROUPIER_XMM inline __m128i factors(Factors f) {
  return _mm_set_epi64x(static_cast<long long>(f.second), static_cast<long long>(f.first));
}
CROUPIER_XMM inline __m128i moved(__m128i a, __m128i f) {
  return _mm_xor_si128(_mm_clmulepi64_si128(a, f, 0x00), _mm_clmulepi64_si128(a, f, 0x11));
}

// The maskz forms, because those without make gcc 12 warn of its own header (-Wuninitialized).
CROUPIER_ZMM inline __m512i factors512(Factors f) { return _mm512_maskz_broadcast_i32x4(0xffff, factors(f)); }
template <int kIndex>
CROUPIER_ZMM inline __m128i quarter(__m512i a) {
  return _mm512_maskz_extracti32x4_epi32(0xf, a, kIndex);
}
CROUPIER_ZMM inline __m512i load512(const Byte* p) { return _mm512_loadu_si512(p); }
CROUPIER_ZMM inline __m512i moved_onto(__m512i a, __m512i f, __m512i next) {
  constexpr int kXor3 = 0x96;
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(a, f, 0x00), _mm512_clmulepi64_epi128(a, f, 0x11),
                                   next, kXor3);
}

// A block: 4 times 64 bytes, whose foldings overlap.
constexpr unsigned kLanes = 4, kBlock = 64 * kLanes;
constexpr Factors kRoundZmm = forward(kBlock);

CROUPIER_ZMM inline __m512i low512(std::uint32_t reg) {
  return _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(reg)));
}
// What moves each 16 bytes of a block onto the last 16.
alignas(64) constexpr auto kOntoLast = [] {
  std::array<Factors, kBlock / 16> t{};
  for (unsigned i = 0; i + 1 < t.size(); ++i) t[i] = forward(kBlock - 16 * (i + 1));
  return t;
}();
// The register after a block. A product takes 2 cycles on Zen 5, of 64 bytes as of 16, and these 8 do not
// wait for each other.
CROUPIER_ZMM inline std::uint32_t remainder(const __m512i (&a)[kLanes]) {
  __m512i sum = _mm512_maskz_mov_epi64(0xc0, a[kLanes - 1]);  // the last 16 bytes stay
  for (unsigned i = 0; i < kLanes; ++i) sum = moved_onto(a[i], _mm512_load_si512(&kOntoLast[4 * i]), sum);
  const __m128i last = _mm_xor_si128(_mm_xor_si128(quarter<0>(sum), quarter<1>(sum)),
                                     _mm_xor_si128(quarter<2>(sum), quarter<3>(sum)));
  return Unit::word(Unit::word(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(last))),
                    static_cast<std::uint64_t>(_mm_extract_epi64(last, 1)));
}
constexpr auto kPlaces = [] {
  std::array<Byte, kBlock> t{};
  for (unsigned i = 0; i < t.size(); ++i) t[i] = static_cast<Byte>(i);
  return t;
}();
// What becomes of a register of ones.
constexpr auto kOnesAfter = [] {
  std::array<std::uint32_t, kBlock + 1> t{~0U};
  for (std::size_t i = 1; i < t.size(); ++i) t[i] = (t[i - 1] >> 8) ^ kTables[0][t[i - 1] & 255];
  return t;
}();

}  // namespace

CROUPIER_XMM std::uint32_t Xmm::fold(std::uint32_t reg, const Byte* p, std::size_t n) {
  constexpr unsigned kWide = 8;
  constexpr Factors kRound = forward(16 * kWide), kNext = forward(16);
  __m128i a[kWide];
  for (unsigned i = 0; i < kWide; ++i) a[i] = load(p + 16 * i);
  a[0] = _mm_xor_si128(a[0], _mm_cvtsi32_si128(static_cast<int>(reg)));
  const __m128i round = factors(kRound), next = factors(kNext);
  for (p += 16 * kWide, n -= 16 * kWide; n >= 16 * kWide; p += 16 * kWide, n -= 16 * kWide)
    for (unsigned i = 0; i < kWide; ++i) a[i] = _mm_xor_si128(moved(a[i], round), load(p + 16 * i));
  __m128i rest = a[0];
  for (unsigned i = 1; i < kWide; ++i) rest = _mm_xor_si128(moved(rest, next), a[i]);
  for (; n >= 16; p += 16, n -= 16) rest = _mm_xor_si128(moved(rest, next), load(p));
  return finish(static_cast<std::uint64_t>(_mm_cvtsi128_si64(rest)),
                static_cast<std::uint64_t>(_mm_extract_epi64(rest, 1)), p, n);
}

CROUPIER_ZMM std::uint32_t Zmm::fold(std::uint32_t reg, const Byte* p, std::size_t n) {
  __m512i a[kLanes];
  for (unsigned i = 0; i < kLanes; ++i) a[i] = load512(p + 64 * i);
  a[0] = _mm512_xor_si512(a[0], low512(reg));
  const __m512i round = factors512(kRoundZmm);
  for (p += kBlock, n -= kBlock; n >= kBlock; p += kBlock, n -= kBlock)
    for (unsigned i = 0; i < kLanes; ++i) a[i] = moved_onto(a[i], round, load512(p + 64 * i));
  return serial(remainder(a), p, n);
}

namespace {

// Records have any length, so that every branch on it goes wrong every other time: at 100 to 300 bytes that
// costs as much as all the rest. Here the odd bytes, 1 to 256 of them, are the first block, loaded under
// masks with zeros before them (zeros before a register of 0 change nothing); the other blocks are full, and
// nothing is left over. kCopy: what was loaded is stored as well; a copy that is summed afterwards would be
// loaded from stores that overlap its loads, and waits for them.
template <bool kCopy>
CROUPIER_ZMM inline std::uint32_t fold_from_ones(Byte* out, const Byte* p, std::size_t n) {
  const std::size_t odd = (n - 1) % kBlock + 1;
  const auto before = [odd](auto* at) {  // where the first block would begin: may lie in front of the buffer
    return reinterpret_cast<decltype(at)>(reinterpret_cast<std::uintptr_t>(at) + odd - kBlock);
  };
  __m512i a[kLanes];
  const __m512i missing = _mm512_set1_epi8(static_cast<char>(kBlock - odd));
  for (unsigned i = 0; i < kLanes; ++i) {
    const __mmask64 there = _mm512_cmpge_epu8_mask(load512(&kPlaces[64 * i]), missing);
    a[i] = _mm512_maskz_loadu_epi8(there, before(p) + 64 * i);
    if constexpr (kCopy) _mm512_mask_storeu_epi8(before(out) + 64 * i, there, a[i]);
  }
  // What the register of ones has become after the odd bytes belongs to the next 4.
  const std::uint32_t ones = kOnesAfter[odd];
  if (n == odd) return remainder(a) ^ ones;
  const __m512i round = factors512(kRoundZmm);
  const Byte* const end = p + n;
  p += odd;
  if constexpr (kCopy) out += odd;
  const auto fold_block = [&]() CROUPIER_ZMM {
    for (unsigned i = 0; i < kLanes; ++i) {
      const __m512i next = load512(p + 64 * i);
      if constexpr (kCopy) _mm512_storeu_si512(out + 64 * i, next);
      a[i] = moved_onto(a[i], round, next);
    }
    p += kBlock;
    if constexpr (kCopy) out += kBlock;
  };
  fold_block();
  a[0] = _mm512_xor_si512(a[0], low512(ones));
  while (p != end) fold_block();
  return remainder(a);
}

}  // namespace

CROUPIER_ZMM std::uint32_t Zmm::fold_whole(const Byte* p, std::size_t n) {
  return fold_from_ones<false>(nullptr, p, n);
}
CROUPIER_ZMM std::uint32_t Zmm::fold_copy(Byte* out, const Byte* p, std::size_t n) {
  return fold_from_ones<true>(out, p, n);
}

#elif defined(__aarch64__)

#ifdef __APPLE__
#define CROUPIER_NEON  // every Apple processor has both, and its compiler knows
bool Neon::runs() { return true; }
#else
#define CROUPIER_NEON __attribute__((target("+crc+crypto")))
bool Neon::runs() {
  constexpr unsigned long kNeeded = HWCAP_CRC32 | HWCAP_PMULL;
  return (getauxval(AT_HWCAP) & kNeeded) == kNeeded;
}
#endif

namespace {

CROUPIER_NEON inline uint64x2_t multiplied(std::uint64_t a, std::uint64_t b) {
  return vreinterpretq_u64_p128(vmull_p64(static_cast<poly64_t>(a), static_cast<poly64_t>(b)));
}
CROUPIER_NEON inline uint64x2_t moved(uint64x2_t a, Factors f) {
  return veorq_u64(multiplied(vgetq_lane_u64(a, 0), f.first), multiplied(vgetq_lane_u64(a, 1), f.second));
}
CROUPIER_NEON inline uint64x2_t load(const Byte* p) { return vreinterpretq_u64_u8(vld1q_u8(p)); }

}  // namespace

CROUPIER_NEON std::uint32_t Neon::fold(std::uint32_t reg, const Byte* p, std::size_t n) {
  constexpr unsigned kWide = 8;
  constexpr Factors kRound = forward(16 * kWide), kNext = forward(16);
  uint64x2_t a[kWide];
  for (unsigned i = 0; i < kWide; ++i) a[i] = load(p + 16 * i);
  a[0] = veorq_u64(a[0], vcombine_u64(vcreate_u64(reg), vcreate_u64(0)));
  for (p += 16 * kWide, n -= 16 * kWide; n >= 16 * kWide; p += 16 * kWide, n -= 16 * kWide)
    for (unsigned i = 0; i < kWide; ++i) a[i] = veorq_u64(moved(a[i], kRound), load(p + 16 * i));
  uint64x2_t rest = a[0];
  for (unsigned i = 1; i < kWide; ++i) rest = veorq_u64(moved(rest, kNext), a[i]);
  for (; n >= 16; p += 16, n -= 16) rest = veorq_u64(moved(rest, kNext), load(p));
  return finish(vgetq_lane_u64(rest, 0), vgetq_lane_u64(rest, 1), p, n);
}

#endif

Choice choice() {
#ifdef CROUPIER_CRC_UNIT
  static const Choice chosen = Fastest::runs() ? Choice::kFastest
                               : Fast::runs()  ? Choice::kFast
                                               : Choice::kTable;
  return chosen;
#else
  return Choice::kTable;
#endif
}

const char* const* implementations() {
  static const auto names = [] {
    std::array<const char*, 4> all{};
    std::size_t n = 0;
#ifdef CROUPIER_CRC_UNIT
    if (Fastest::runs()) all[n++] = Fastest::kName;
#endif
#ifdef __x86_64__
    if (Fast::runs()) all[n++] = Fast::kName;
#endif
    all[n++] = Table::kName;
    return all;
  }();
  return names.data();
}

}  // namespace croupier
