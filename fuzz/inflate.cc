// Deflate streams: in one piece and in many, in buffers of exact size; tokens must make the bytes.
#include <algorithm>
#include <memory>
#include <vector>

#include "inflate.h"
#include "naive.h"

namespace {

using namespace croupier;
using naive::require;

constexpr std::size_t kMostBytes = 1 << 18;

struct Found {
  std::vector<Byte> bytes;
  std::vector<Token> tokens;
  std::size_t consumed = 0;
  Inflater::Stop why = Inflater::Stop::kInput;
};

// In pieces and rooms of up to so many bytes; the numbers are not random, but hit all edges.
Found inflate(Bytes stream, std::size_t piece, std::size_t room, std::size_t slots) {
  const auto inflater = std::make_unique<Inflater>();
  Found found;
  for (std::size_t turn = 1; found.bytes.size() < kMostBytes; ++turn) {
    const std::size_t in = std::min(stream.size() - found.consumed, 1 + turn * 7919 % piece);
    const std::size_t out = 1 + turn * 104729 % room;
    const std::unique_ptr<Byte[]> from(new Byte[in]), to(new Byte[out]);
    const std::unique_ptr<Token[]> noted(new Token[slots]);
    std::copy_n(stream.begin() + static_cast<std::ptrdiff_t>(found.consumed), in, from.get());
    const auto done = inflater->inflate({from.get(), in}, {to.get(), out}, {noted.get(), slots});
    require(done.consumed <= in && done.produced <= out && done.tokens <= slots, "more than there was room for");
    found.bytes.insert(found.bytes.end(), to.get(), to.get() + done.produced);
    found.tokens.insert(found.tokens.end(), noted.get(), noted.get() + done.tokens);
    found.consumed += done.consumed;
    found.why = done.why;
    require((done.why == Inflater::Stop::kBad) == (*inflater->problem() != 0), "a problem, and no word for it");
    if (done.why == Inflater::Stop::kEnd || done.why == Inflater::Stop::kBad) break;
    if (done.why == Inflater::Stop::kInput) {
      require(done.consumed == in, "input that was not consumed, and is");
      if (found.consumed == stream.size()) break;
    }
  }
  return found;
}

// A match that runs ahead of the bytes is the last token.
void replay(const Found& found) {
  std::vector<Byte> made;
  for (const Token token : found.tokens) {
    require(made.size() <= found.bytes.size(), "tokens go on behind the bytes");
    const std::size_t literals = literals_of(token);
    require(literals <= found.bytes.size() - made.size(), "literals that did not come");
    const auto next = found.bytes.begin() + static_cast<std::ptrdiff_t>(made.size());
    made.insert(made.end(), next, next + static_cast<std::ptrdiff_t>(literals));
    if (is_run(token)) continue;
    require(distance_of(token) <= made.size() && distance_of(token) <= kWindow, "a match from before the stream");
    for (std::size_t left = length_of(token); left > 0; --left) made.push_back(made[made.size() - distance_of(token)]);
  }
  require(made.size() >= found.bytes.size(), "bytes without a token");
  require(std::equal(found.bytes.begin(), found.bytes.end(), made.begin()), "tokens make other bytes");
}

}  // namespace

// The first byte says into what pieces the stream is cut.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Bytes stream{data + 1, size - 1};
  const Found whole = inflate(stream, std::max<std::size_t>(stream.size(), 1), 1 << 16, 1 << 16);
  replay(whole);
  const Found pieces = inflate(stream, std::size_t{1} << *data % 8, std::size_t{1} << *data / 8 % 16, 3 + *data % 5);
  replay(pieces);
  const std::size_t both = std::min(whole.bytes.size(), pieces.bytes.size());
  require(std::equal(whole.bytes.begin(), whole.bytes.begin() + static_cast<std::ptrdiff_t>(both), pieces.bytes.begin()),
          "other bytes in pieces");
  if (std::max(whole.bytes.size(), pieces.bytes.size()) >= kMostBytes) return 0;
  require(whole.why == pieces.why && whole.bytes.size() == pieces.bytes.size(), "another verdict in pieces");
  require(whole.why == Inflater::Stop::kBad || whole.consumed == pieces.consumed, "another end in pieces");
  return 0;
}
