#include "order.h"

#include <algorithm>
#include <array>

namespace croupier {
namespace {

using Four = std::array<std::uint64_t, 4>;

// Salmon and others, "Parallel Random Numbers: As Easy as 1, 2, 3", 2011.
Four philox(std::uint64_t counter, std::uint64_t key0, std::uint64_t key1) {
  constexpr std::uint64_t kMultiply0 = 0xD2E7470EE14C6C93, kMultiply1 = 0xCA5A826395121157;
  constexpr std::uint64_t kBump0 = 0x9E3779B97F4A7C15, kBump1 = 0xBB67AE8584CAA73B;
  constexpr int kRounds = 10;
  Four c{counter, 0, 0, 0};
  for (int round = 0; round < kRounds; ++round) {
    const auto a = static_cast<unsigned __int128>(kMultiply0) * c[0];
    const auto b = static_cast<unsigned __int128>(kMultiply1) * c[2];
    c = {static_cast<std::uint64_t>(b >> 64) ^ c[1] ^ key0, static_cast<std::uint64_t>(b),
         static_cast<std::uint64_t>(a >> 64) ^ c[3] ^ key1, static_cast<std::uint64_t>(a)};
    key0 += kBump0;
    key1 += kBump1;
  }
  return c;
}

}  // namespace

void record_keys(std::uint64_t seed, Numbers files, Numbers firsts, Numbers counts, Slots keys) {
  if (firsts.size() != files.size() || counts.size() != files.size())
    refuse("files, firsts and counts differ in length");
  constexpr std::uint64_t kMost = std::uint64_t{1} << 63;  // then counters do not wrap around
  std::size_t done = 0;
  for (std::size_t run = 0; run < files.size(); ++run) {
    const std::uint64_t file = files[run], first = firsts[run], count = counts[run];
    if (count > keys.size() - done) refuse("keys has no room for all of the runs");
    if (first > kMost || count > kMost - first) refuse("a record's number is too large");
    for (std::uint64_t at = first; at < first + count;) {
      const Four four = philox(at / 4 + 1, seed, file);  // numpy's first counter is 1
      for (std::uint64_t i = at % 4; i < 4 && at < first + count; ++i, ++at) keys[done++] = four[i];
    }
  }
  if (done != keys.size()) refuse("keys has room for more than the runs");
}

}  // namespace croupier
