// Fragments from any stream's tokens, and from tokens that are wrong: whatever is made inflates to the frame.
#include <algorithm>
#include <memory>
#include <stdexcept>
#include <vector>

#include "inflate.h"
#include "naive.h"
#include "transcode.h"

namespace {

using namespace croupier;
using naive::require;

constexpr std::size_t kMostBytes = 1 << 18;

struct Found {
  std::vector<Byte> bytes;
  std::vector<Token> tokens;
};

Found inflate(Bytes stream) {
  const auto inflater = std::make_unique<Inflater>();
  Found found{std::vector<Byte>(kMostBytes), std::vector<Token>(kMostBytes)};
  const auto done = inflater->inflate(stream, found.bytes, found.tokens);
  found.bytes.resize(done.produced);
  found.tokens.resize(done.tokens);
  return found;
}

void check(Bytes frame, std::span<const Token> tokens, std::uint64_t lead) {
  const std::unique_ptr<Byte[]> exact(new Byte[frame.size()]);
  std::copy(frame.begin(), frame.end(), exact.get());
  std::vector<Byte> made = transcode({exact.get(), frame.size()}, tokens, lead);
  require(made.size() >= 5 && load32(made.data() + made.size() - 4) == 0xffff0000, "no flush at the end");
  require(made.size() <= frame.size() + frame.size() / 1000 + 32, "larger than stored");
  made.insert(made.end(), {3, 0});
  const Found back = inflate(made);
  require(std::ranges::equal(back.bytes, frame), "another frame");
}

}  // namespace

// The first four bytes say where frames are cut and which tokens are spoilt; a stream follows.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 4) return 0;
  Found found = inflate({data + 4, size - 4});
  const std::size_t n = found.bytes.size(), step = 1 + (data[0] | (data[1] & 15) << 8) * std::size_t{16};
  std::vector<std::uint64_t> edges;
  for (std::size_t at = 0; at < n; at += step) edges.push_back(at);
  edges.push_back(n);
  std::vector<std::uint64_t> index(edges.size()), into(edges.size());
  require(find_tokens(found.tokens, edges, index, into), "bytes without a token");
  for (std::size_t i = 0; i + 1 < edges.size() && i < 40; ++i)
    check(Bytes(found.bytes).subspan(edges[i], edges[i + 1] - edges[i]),
          std::span<const Token>(found.tokens).subspan(index[i]), into[i]);
  if (found.tokens.empty()) return 0;
  for (unsigned i = 2; i < 4; ++i) {
    Token& token = found.tokens[data[i] % found.tokens.size()];
    token ^= data[i] & 1 ? load32(data) : 1U << data[i] / 8;
    try {
      check(found.bytes, found.tokens, data[0] % 3 == 0 ? data[1] : 0);
    } catch (const std::invalid_argument&) {
    }
  }
  return 0;
}
