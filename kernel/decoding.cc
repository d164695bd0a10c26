#include "decoding.h"

#include <algorithm>

namespace croupier {

bool build(std::span<Entry> table, unsigned main, std::span<const std::uint8_t> lengths,
           std::span<const Entry> symbols, bool may_be_incomplete) {
  std::array<std::uint16_t, 17> counts{}, next{};
  for (const std::uint8_t length : lengths) ++counts[length];
  counts[0] = 0;
  unsigned most = 15;
  while (most > 0 && counts[most] == 0) --most;
  int left = 1;
  for (unsigned bits = 1; bits <= 15; ++bits) {
    left = 2 * left - counts[bits];
    if (left < 0) return false;
    next[bits + 1] = static_cast<std::uint16_t>(next[bits] + counts[bits]);
  }
  if (left > 0 && most > 0 && (most > 1 || !may_be_incomplete)) return false;
  std::array<std::uint16_t, 288> sorted;
  for (std::size_t symbol = 0; symbol < lengths.size(); ++symbol)
    if (lengths[symbol] > 0) sorted[next[lengths[symbol]]++] = static_cast<std::uint16_t>(symbol);

  const std::size_t size = std::size_t{1} << main;
  if (left > 0) std::fill_n(table.begin(), size, with_code(entry(0, kInvalid), 1));
  std::size_t room = size, code = 0, number = 0;
  for (unsigned bits = 1; bits <= most; ++bits, code <<= 1) {
    for (unsigned i = 0; i < counts[bits]; ++i, ++code, ++number) {
      const std::size_t turned = reversed(static_cast<std::uint32_t>(code), bits);
      const Entry e = with_code(symbols[sorted[number]], bits);
      if (bits <= main) {
        for (std::size_t at = turned; at < size; at += std::size_t{1} << bits) table[at] = e;
        continue;
      }
      const std::size_t first = turned & (size - 1), more = std::size_t{1} << (most - main);
      if (turned >> main == 0) {  // a prefix's first code is all zeros behind it
        table[first] = entry(static_cast<Entry>(room), kMore, most - main);
        room += more;
      }
      const std::size_t start = value_of(table[first]);
      for (std::size_t at = turned >> main; at < more; at += std::size_t{1} << (bits - main)) table[start + at] = e;
    }
  }
  return true;
}

}  // namespace croupier
