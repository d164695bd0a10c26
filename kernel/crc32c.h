// CRC-32C (Castagnoli), the checksum of TFRecord, by whatever the processor has for it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

static_assert(std::endian::native == std::endian::little, "the kernel reads TFRecord's integers as they are");

namespace croupier {

using Byte = unsigned char;

inline std::uint64_t load64(const Byte* p) {
  std::uint64_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline std::uint32_t load32(const Byte* p) {
  std::uint32_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void store64(Byte* p, std::uint64_t v) { std::memcpy(p, &v, sizeof v); }
inline void store32(Byte* p, std::uint32_t v) { std::memcpy(p, &v, sizeof v); }

// TFRecord stores checksums rotated, so that the checksum of data that holds checksums stays a good one.
constexpr std::uint32_t kMaskDelta = 0xa282ead8;
constexpr std::uint32_t mask(std::uint32_t crc) { return std::rotr(crc, 15) + kMaskDelta; }
constexpr std::uint32_t unmask(std::uint32_t stored) { return std::rotl(stored - kMaskDelta, 15); }

// An implementation is a type with two static functions on the raw CRC register (no inversion at either end):
//   word(reg, w)      the next 8 bytes
//   bytes(reg, p, n)  any number of bytes
//   whole(p, n)       bytes(~0, p, n): a checksum from its beginning
//   copy(out, p, n)   the same, of what it copies to `out`: what is written is what is summed, whoever writes to p
// Loops over records are templates on it (see with_cpu), so that the short checksums are inlined in them.

struct Table {  // slicing by 8, portable
  static constexpr const char* kName = "table";
  static bool runs() { return true; }
  static std::uint32_t word(std::uint32_t reg, std::uint64_t w);
  static std::uint32_t bytes(std::uint32_t reg, const Byte* p, std::size_t n);
  static std::uint32_t whole(const Byte* p, std::size_t n) { return bytes(~0U, p, n); }
  static std::uint32_t copy(Byte* out, const Byte* p, std::size_t n) {
    if (n > 0) std::memcpy(out, p, n);
    return whole(out, n);
  }
};

#if defined(__x86_64__)
#define CROUPIER_CRC_UNIT 1
// The instructions are written as assembly because an intrinsic needs target("sse4.2") on every function that
// it is inlined into, and these go into loops that exist for other processors as well.
struct Unit {
  static std::uint32_t word(std::uint32_t reg, std::uint64_t w) {
    std::uint64_t r = reg;
    __asm__("crc32q %1, %0" : "+r"(r) : "rm"(w));
    return static_cast<std::uint32_t>(r);
  }
  static std::uint32_t byte(std::uint32_t reg, Byte b) {
    __asm__("crc32b %1, %0" : "+r"(reg) : "rm"(b));
    return reg;
  }
};
#elif defined(__aarch64__)
#define CROUPIER_CRC_UNIT 1
struct Unit {
  static std::uint32_t word(std::uint32_t reg, std::uint64_t w) {
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(reg) : "r"(w));
    return reg;
  }
  static std::uint32_t byte(std::uint32_t reg, Byte b) {
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(reg) : "r"(b));
    return reg;
  }
};
#endif

#ifdef CROUPIER_CRC_UNIT
// 8 bytes an instruction. The odd bytes go first and without a branch: a register of 0 makes leading zeros
// free, so they are shifted to the end of a word; what they do not reach of the old register moves up.
inline std::uint32_t serial(std::uint32_t reg, const Byte* p, std::size_t n) {
  if (n < 8) {
    for (std::size_t i = 0; i < n; ++i) reg = Unit::byte(reg, p[i]);
    return reg;
  }
  const unsigned odd = n & 7, half = 4 * (8 - odd);  // shifted in halves: 64 at once would be undefined
  const std::uint64_t first = load64(p) ^ reg;
  reg = Unit::word(0, (first << half) << half) ^ static_cast<std::uint32_t>(std::uint64_t{reg} >> (8 * odd));
  for (const Byte *q = p + odd, *end = p + n; q != end; q += 8) reg = Unit::word(reg, load64(q));
  return reg;
}

// Long data is folded: blocks are multiplied by the power of x that moves them onto later ones (carry-less
// multiplication), until 16 bytes are left that have the same remainder as all before them.
template <class Folder>
struct Folding : Folder {
  static std::uint32_t word(std::uint32_t reg, std::uint64_t w) { return Unit::word(reg, w); }
  static std::uint32_t bytes(std::uint32_t reg, const Byte* p, std::size_t n) {
    return n < Folder::kFrom ? serial(reg, p, n) : Folder::fold(reg, p, n);
  }
  static std::uint32_t whole(const Byte* p, std::size_t n) {
    if constexpr (requires { Folder::fold_whole(p, n); })
      return n < Folder::kWholeFrom ? serial(~0U, p, n) : Folder::fold_whole(p, n);
    else
      return bytes(~0U, p, n);
  }
  static std::uint32_t copy(Byte* out, const Byte* p, std::size_t n) {
    if constexpr (requires { Folder::fold_copy(out, p, n); })
      if (n >= Folder::kWholeFrom) return Folder::fold_copy(out, p, n);
    if (n > 0) std::memcpy(out, p, n);
    return whole(out, n);
  }
};
#endif

#if defined(__x86_64__)
struct Zmm {
  static constexpr const char* kName = "avx512";
  static constexpr std::size_t kFrom = 256, kWholeFrom = 80;
  static bool runs();
  static std::uint32_t fold(std::uint32_t reg, const Byte* p, std::size_t n);
  static std::uint32_t fold_whole(const Byte* p, std::size_t n);
  static std::uint32_t fold_copy(Byte* out, const Byte* p, std::size_t n);
};
struct Xmm {
  static constexpr const char* kName = "sse4.2";
  static constexpr std::size_t kFrom = 256;
  static bool runs();
  static std::uint32_t fold(std::uint32_t reg, const Byte* p, std::size_t n);
};
using Fastest = Folding<Zmm>;
using Fast = Folding<Xmm>;
#elif defined(__aarch64__)
struct Neon {
  static constexpr const char* kName = "arm64";
  static constexpr std::size_t kFrom = 256;
  static bool runs();
  static std::uint32_t fold(std::uint32_t reg, const Byte* p, std::size_t n);
};
using Fastest = Folding<Neon>;
using Fast = Table;
#else
using Fastest = Table;
using Fast = Table;
#endif

// The register after `zeros` bytes of zero.
std::uint32_t skip(std::uint32_t reg, std::uint64_t zeros);

// What this processor can run, fastest first, ended by a null pointer.
const char* const* implementations();

// Calls f with the best implementation as its argument; asks the processor once.
enum class Choice { kFastest, kFast, kTable };
Choice choice();
template <class F>
auto with_cpu(F&& f) {
  switch (choice()) {
    case Choice::kFastest:
      return f(Fastest{});
    case Choice::kFast:
      return f(Fast{});
    default:
      return f(Table{});
  }
}

template <class Cpu>
inline std::uint32_t crc32c(const Byte* p, std::size_t n, std::uint32_t crc = 0) {
  return crc == 0 ? ~Cpu::whole(p, n) : ~Cpu::bytes(~crc, p, n);
}
// The checksum of the 8 bytes of a length.
template <class Cpu>
inline std::uint32_t crc32c_of_length(std::uint64_t length) {
  return ~Cpu::word(~0U, length);
}

}  // namespace croupier
