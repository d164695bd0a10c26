// What values look like, against a second, slow reading of them, in buffers of exact size.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "naive.h"
#include "values.h"

namespace {

using namespace croupier;
using naive::require;
using Value = std::vector<Byte>;

// The code points of UTF-8; false where it is none.
bool points(const Value& value, std::vector<std::uint32_t>& found) {
  for (std::size_t at = 0; at < value.size();) {
    const Byte c = value[at];
    const std::size_t more = c < 0x80 ? 0 : c >> 5 == 6 ? 1 : c >> 4 == 14 ? 2 : c >> 3 == 30 ? 3 : 4;
    if (more == 4 || value.size() - at <= more) return false;
    std::uint32_t point = more == 0 ? c : c & (0x3fU >> more);
    for (std::size_t i = 1; i <= more; ++i) {
      if (value[at + i] >> 6 != 2) return false;
      point = point << 6 | (value[at + i] & 0x3fU);
    }
    const std::uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    if (point < least[more] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) return false;
    found.push_back(point);
    at += more + 1;
  }
  return true;
}

bool varint(const Value& value, std::size_t& at, std::uint64_t& number) {
  unsigned __int128 whole = 0;
  for (int i = 0; i < 10 && at < value.size(); ++i) {
    whole |= static_cast<unsigned __int128>(value[at] & 127) << (7 * i);
    if (value[at++] < 128) {
      number = static_cast<std::uint64_t>(whole);
      return whole >> 64 == 0;
    }
  }
  return false;
}

bool is_message(const Value& value) {
  for (std::size_t at = 0; at < value.size();) {
    std::uint64_t tag = 0, size = 0;
    if (!varint(value, at, tag) || tag < 8 || tag >> 3 > 100'000) return false;
    switch (tag & 7) {
      case 0:
        if (!varint(value, at, size)) return false;
        size = 0;
        break;
      case 1:
        size = 8;
        break;
      case 2:
        if (!varint(value, at, size)) return false;
        break;
      case 5:
        size = 4;
        break;
      default:
        return false;
    }
    if (size > value.size() - at) return false;
    at += static_cast<std::size_t>(size);
  }
  return true;
}

void check(const Value& value, std::uint64_t hash, Byte looks) {
  require(hash == hash_of(value), "a hash depends on where its value stands");
  require((looks & 15) == 0 || looks < 16, "both an image and something else");
  if (looks >= 16) return;
  std::vector<std::uint32_t> found;
  const bool utf8 = points(value, found);
  const auto odd = [](std::uint32_t c) { return c < 32 && (c < 9 || c > 13); };
  require(utf8 == ((looks & kUtf8) != 0), "UTF-8");
  require((utf8 && std::none_of(found.begin(), found.end(), odd)) == ((looks & kText) != 0), "text");
  require(is_message(value) == ((looks & kProto) != 0), "a message");
  require((looks & kProto) != 0 || (looks & kExample) == 0, "an Example that is no message");
}

}  // namespace

// The first byte says into how many values the others are cut.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t count = 1 + *data % 8, length = size - 1;
  const std::unique_ptr<Byte[]> exact(new Byte[length]);
  std::copy(data + 1, data + size, exact.get());
  std::vector<std::uint64_t> edges, hashes(count);
  std::vector<Byte> looks(count);
  for (std::size_t i = 0; i <= count; ++i) edges.push_back(length * i / count);
  inspect_values({exact.get(), length}, edges, hashes, looks);
  for (std::size_t i = 0; i < count; ++i)
    check(Value(exact.get() + edges[i], exact.get() + edges[i + 1]), hashes[i], looks[i]);
  return 0;
}
