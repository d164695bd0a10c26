#include "huffman.h"

#include <algorithm>

namespace croupier {
namespace {

struct Leaf {
  std::uint32_t count;
  std::uint16_t symbol;
};

// How many codes there are of each length: Huffman's own, where the two rarest nodes are joined until one is left.
// Leaves come sorted, and joined nodes arise sorted, so the rarest is always at the front of one of the two queues.
std::array<unsigned, 33> depths(std::span<const Leaf> leaves) {
  std::array<std::uint64_t, 288> joined;
  std::array<std::uint16_t, 2 * 288> parent;  // of leaves, then of joined nodes
  const std::size_t n = leaves.size();
  for (std::size_t made = 0, leaf = 0, node = 0; made + 1 < n; ++made) {
    std::uint64_t sum = 0;
    for (int child = 0; child < 2; ++child) {
      const bool from_leaves = leaf < n && (node == made || leaves[leaf].count <= joined[node]);
      sum += from_leaves ? leaves[leaf].count : joined[node];
      parent[from_leaves ? leaf++ : n + node++] = static_cast<std::uint16_t>(made);
    }
    joined[made] = sum;
  }
  std::array<std::uint8_t, 288> depth;
  std::array<unsigned, 33> found{};
  depth[n - 2] = 0;
  for (std::size_t i = n - 2; i-- > 0;) depth[i] = static_cast<std::uint8_t>(depth[parent[n + i]] + 1);
  for (std::size_t i = 0; i < n; ++i) ++found[std::min(depth[parent[i]] + 1, 32)];
  return found;
}

// Codes that are too long become as long as allowed; each pair of others that is made longer pays for that.
void limit(std::array<unsigned, 33>& found, unsigned most) {
  for (unsigned bits = most + 1; bits <= 32; ++bits) {
    found[most] += found[bits];
    found[bits] = 0;
  }
  std::uint64_t used = 0;  // of 2^most
  for (unsigned bits = 1; bits <= most; ++bits) used += std::uint64_t{found[bits]} << (most - bits);
  for (; used > std::uint64_t{1} << most; --used) {
    unsigned bits = most - 1;
    while (found[bits] == 0) --bits;
    --found[bits];
    found[bits + 1] += 2;
    --found[most];
  }
}

}  // namespace

void code_lengths(std::span<const std::uint32_t> counts, unsigned most, std::span<std::uint8_t> lengths) {
  std::ranges::fill(lengths, std::uint8_t{0});
  std::array<Leaf, 288> leaves;
  std::size_t n = 0;
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i] > 0) leaves[n++] = {counts[i], static_cast<std::uint16_t>(i)};
  if (n < 2) {
    const std::size_t one = n == 1 ? leaves[0].symbol : 0;
    lengths[one] = lengths[one == 0 ? 1 : 0] = 1;
    return;
  }
  std::sort(leaves.begin(), leaves.begin() + static_cast<std::ptrdiff_t>(n), [](const Leaf& a, const Leaf& b) {
    return a.count != b.count ? a.count < b.count : a.symbol < b.symbol;
  });
  auto found = depths(std::span(leaves).first(n));
  limit(found, most);
  for (unsigned bits = most, i = 0; bits > 0; --bits)
    for (unsigned k = found[bits]; k > 0; --k) lengths[leaves[i++].symbol] = static_cast<std::uint8_t>(bits);
}

void codes_of(std::span<const std::uint8_t> lengths, std::span<std::uint16_t> codes) {
  std::array<std::uint32_t, 17> next{}, found{};
  for (const std::uint8_t bits : lengths) ++found[bits];
  found[0] = 0;
  for (unsigned bits = 1; bits <= 15; ++bits) next[bits + 1] = (next[bits] + found[bits]) << 1;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    if (lengths[i] > 0) codes[i] = static_cast<std::uint16_t>(reversed(next[lengths[i]]++, lengths[i]));
}

}  // namespace croupier
