// Packed varints: each way that this processor has agrees with the definition, in buffers of exact size. First those
// of every length, on every byte around the vectors' edges; then whatever the input makes of it.
#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "naive.h"
#include "varints.h"

namespace {

using namespace croupier;
using naive::require;
using Ints = std::vector<std::uint64_t>;
using Raw = std::vector<Byte>;

// One after the other, by the definition.
std::optional<Ints> plain(Bytes bytes) {
  Ints found;
  for (std::size_t i = 0; i < bytes.size();) {
    std::uint64_t value = 0;
    unsigned shift = 0;
    for (;; shift += 7) {
      if (i == bytes.size() || shift == 70) return std::nullopt;
      const std::uint64_t byte = bytes[i++];
      value |= shift < 64 ? (byte & 127) << shift : 0;
      if (byte < 128) break;
    }
    found.push_back(value);
  }
  return found;
}

// The bytes from `begin` to `end` of a buffer that ends with `all`.
void check(const Raw& all, std::size_t begin, std::size_t end) {
  const std::unique_ptr<Byte[]> exact(new Byte[all.size()]);
  std::copy(all.begin(), all.end(), exact.get());
  const Byte *const at = exact.get() + begin, *const stop = exact.get() + end, *const limit = exact.get() + all.size();
  const auto wanted = plain({at, stop});
  for (const Varints& way : all_varints()) {
    require(way.count(at, stop, limit) == (wanted ? wanted->size() : kNoVarints), "as many varints");
    for (const std::size_t more : {0, 1, 40}) {
      const std::unique_ptr<std::uint64_t[]> room(new std::uint64_t[wanted ? wanted->size() + more : end - begin]);
      const Slots slots{room.get(), wanted ? wanted->size() + more : end - begin};
      const std::size_t count = way.unpack(at, stop, limit, slots);
      require(count == (wanted ? wanted->size() : kNoVarints), "as many are unpacked");
      require(!wanted || std::equal(wanted->begin(), wanted->end(), room.get()), "the same varints");
    }
    if (!wanted || wanted->empty()) continue;
    const std::unique_ptr<std::uint64_t[]> less(new std::uint64_t[wanted->size() - 1]);
    require(way.unpack(at, stop, limit, {less.get(), wanted->size() - 1}) == kNoVarints,
            "no more varints than there is room");
  }
}

// So many varints of a length, behind so many of one byte and before some, and bytes behind that belong to others.
void put(Raw& to, std::size_t size, unsigned content) {
  for (std::size_t i = 0; i + 1 < size; ++i) to.push_back(static_cast<Byte>(128 | content >> i % 7));
  to.push_back(static_cast<Byte>(content & 127));
}

void check_edges() {
  constexpr std::size_t kLongest = 12;
  for (std::size_t size = 1; size <= kLongest; ++size)
    for (std::size_t before = 0; before <= 66; ++before)
      for (const std::size_t count : {1, 2, 17})
        for (const std::size_t after : {0, 3, 64, 130}) {
          Raw all;
          for (std::size_t i = 0; i < before; ++i) put(all, 1, static_cast<unsigned>(i));
          for (std::size_t i = 0; i < count; ++i) put(all, size, static_cast<unsigned>(i * 37 + before + 1));
          const std::size_t end = all.size();
          for (std::size_t i = 0; i < after; ++i) all.push_back(static_cast<Byte>(i % 3 ? 200 : 5));
          check(all, 0, end);
          check(all, before / 2, end);
          check(all, before, end - 1);  // a cut one, unless it has one byte
        }
}

// Every four varints of these lengths one behind the other, at the begin of a vector and at its end.
void check_mixtures() {
  constexpr std::size_t kSizes[] = {1, 2, 4, 5, 9, 10};
  constexpr std::size_t kSome = std::size(kSizes);
  for (std::size_t code = 0; code < kSome * kSome * kSome * kSome; ++code)
    for (const std::size_t before : {0, 48, 57}) {
      Raw all;
      for (std::size_t i = 0; i < before; ++i) put(all, 1, static_cast<unsigned>(i));
      for (std::size_t rest = code, i = 0; i < 4; ++i, rest /= kSome)
        put(all, kSizes[rest % kSome], static_cast<unsigned>(rest + 77));
      const std::size_t end = all.size();
      all.resize(end + (code % 2 ? 0 : 128), 255);
      check(all, 0, end);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool checked = (check_edges(), check_mixtures(), true);
  require(checked, "these come first");
  const std::uint32_t drawn = naive::masked_crc(data, size);
  const std::size_t begin = size ? drawn % std::min<std::size_t>(size, 100) : 0;
  const std::size_t end = std::max(begin, drawn & 1 << 20 ? size : size * (drawn >> 24) / 256);
  const Raw raw(data, data + size);
  check(raw, begin, end);
  Raw sized;  // each byte says how long one is: few are of more than four bytes, or hardly any
  for (const Byte byte : raw) put(sized, byte < 200 || drawn & 1 << 21 ? 1 + byte % 4 : 5 + byte % 7, byte);
  check(sized, 0, sized.size());
  const std::size_t cut = sized.empty() ? 0 : drawn % sized.size();
  check(sized, 0, cut);
  while (!sized.empty() && cut < sized.size() && sized.size() > cut + drawn % 140) sized.pop_back();
  check(sized, 0, cut);
  return 0;
}
