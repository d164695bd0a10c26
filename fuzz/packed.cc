// Packed sequences: what was packed comes back, and arrays that lie are refused or harmless.
#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "naive.h"
#include "packed.h"

namespace {

using namespace croupier;
using naive::require;
using Array = std::vector<std::uint64_t>;
using Wide = unsigned __int128;

constexpr Wide kMostSum = Wide{1} << 63;

// Of exact size, so that ASan sees one more.
template <class T>
struct Exact {
  explicit Exact(const std::vector<T>& from) : size(from.size()), data(new T[from.size()]) {
    std::copy(from.begin(), from.end(), data.get());
  }
  std::span<T> span() const { return {data.get(), size}; }
  std::size_t size;
  std::unique_ptr<T[]> data;
};

// The input as an endless row of numbers: its bytes come again, changed.
class Numbers64 {
 public:
  explicit Numbers64(Bytes from) : from_(from) {}
  std::uint64_t byte() {
    const std::uint64_t value = from_[at_ % from_.size()] + at_ / from_.size();
    ++at_;
    return value & 255;
  }
  std::uint64_t word() {
    std::uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | byte();
    return value;
  }
  std::uint64_t some_bits() {
    const unsigned bits = static_cast<unsigned>(byte() % 65);
    return bits == 0 ? 0 : word() >> (64 - bits);
  }

 private:
  Bytes from_;
  std::size_t at_ = 0;
};

struct Arrays {
  std::uint64_t count;
  Array least;
  std::vector<Byte> bits;
  Array words;
};

// Number i, one bit after the other.
std::uint64_t value_of(const Arrays& arrays, std::uint64_t i) {
  std::size_t begin = 0;
  for (std::size_t block = 0; block < i / kPack; ++block) begin += arrays.bits[block];
  const unsigned width = arrays.bits[i / kPack];
  std::uint64_t value = 0;
  for (unsigned b = 0; b < width; ++b) {
    const std::size_t bit = i % kPack * width + b;
    value |= (arrays.words[begin + bit / 64] >> bit % 64 & 1) << b;
  }
  return value + arrays.least[i / kPack];
}

template <class Call>
bool refused(const Call& call) {
  try {
    call();
    return false;
  } catch (const std::invalid_argument&) {
    return true;
  }
}

// What `index_packed` must say of a sequence, and what it is then.
bool is_possible(const Arrays& arrays, bool summed) {
  const std::size_t blocks = arrays.least.size();
  if (arrays.bits.size() != blocks || arrays.count > blocks * kPack || (arrays.count + kPack - 1) / kPack != blocks)
    return false;
  std::size_t words = 0;
  for (const Byte width : arrays.bits) {
    if (width > 64) return false;
    words += width;
  }
  if (words != arrays.words.size()) return false;
  Wide sum = 0;
  for (std::uint64_t i = 0; summed && i < arrays.count; ++i) {
    const std::uint64_t value = value_of(arrays, i), least = arrays.least[i / kPack];
    sum += value < least ? (Wide{1} << 64) + value : Wide{value};  // a number that wraps around is too large
    if (sum >= kMostSum) return false;
  }
  return true;
}

void use(const Packed& packed, Numbers64 random, unsigned threads) {
  const std::uint64_t most = packed.count + 2;
  Array places, firsts{0};
  for (int i = 0; i < 40; ++i) places.push_back(i < 35 ? random.word() % most : random.some_bits());
  for (int i = 0; i < 5; ++i) firsts.push_back(std::max(firsts.back(), random.word() % most));
  const Exact<std::uint64_t> from(places), edges(firsts), bases(Array(5));
  const Exact<std::uint64_t> a(Array(40)), b(Array(40)), c(Array(40)), groups(Array(40, 2));
  for (std::size_t i = 34; i < 40; ++i)
    refused([&] { sums_before(packed, from.span().subspan(i, 1), a.span()); });
  refused([&] { sums_before(packed, from.span().first(35), a.span()); });
  refused([&] { unpack(packed, random.word() % most, a.span()); });
  refused([&] { locate(packed, edges.span(), bases.span(), from.span(), a.span(), b.span(), c.span(), threads); });
  refused([&] { search_sums(packed, edges.span(), bases.span(), groups.span(), from.span(), a.span(), b.span()); });
}

// All functions, against the values one by one.
void check_right(const Arrays& arrays, const Packed& packed, Numbers64 random) {
  const std::uint64_t n = arrays.count;
  Array values, sums{0}, all(n + 1), found(n + 1), begin(n + 1), third(n + 1);
  for (std::uint64_t i = 0; i < n; ++i) {
    values.push_back(value_of(arrays, i));
    sums.push_back(sums.back() + values.back());
    all[i + 1] = i + 1;
  }
  const Exact<std::uint64_t> some(Array(static_cast<std::size_t>(n)));
  unpack(packed, 0, some.span());
  require(std::ranges::equal(some.span(), values), "unpack");
  sums_before(packed, all, found);
  require(found == sums, "sums_before");
  const std::uint64_t middle = n == 0 ? 0 : random.word() % n;
  const Array firsts{0, middle, n}, bases{0, sums[middle]};
  const Numbers records(all.data(), n);
  locate(packed, firsts, bases, records, found, begin, third, 2);
  for (std::uint64_t i = 0; i < n; ++i) {
    const std::uint64_t file = i < middle ? 0 : 1;
    require(found[i] == file && third[i] == values[i], "locate: the file and the length");
    require(begin[i] == sums[i] - bases[file] + kOverhead * (i - firsts[file]), "locate: the offset");
  }
  if (n == 0 || middle == 0) return;
  for (int times = 0; times < 20; ++times) {
    const std::uint64_t group = random.byte() % 2, first = firsts[group], last = firsts[group + 1];
    const Array groups{group}, position{random.some_bits() % (sums[last] - sums[first] + 2)};
    search_sums(packed, firsts, bases, groups, position, found, begin);
    std::uint64_t expected = first;
    while (expected + 1 < last && sums[expected + 1] <= bases[group] + position[0]) ++expected;
    require(found[0] == expected && begin[0] == sums[expected] - bases[group], "search_sums");
  }
}

void check(const Arrays& arrays, bool summed, Numbers64 random) {
  const Exact<std::uint64_t> least(arrays.least), words(arrays.words);
  const Exact<Byte> bits(arrays.bits);
  const Exact<std::uint64_t> sums(Array(arrays.least.size() + 1)), at(Array(arrays.least.size() + 1));
  const Packed packed{arrays.count, least.span(), bits.span(), words.span(), sums.span(), at.span()};
  const bool no = refused([&] {
    index_packed(arrays.count, least.span(), bits.span(), words.span(), sums.span(), at.span(), summed);
  });
  require(no != is_possible(arrays, summed), "index_packed refuses what is impossible, and nothing else");
  if (!no && summed) check_right(arrays, packed, random);
  use(packed, random, 1 + static_cast<unsigned>(random.byte() % 3));
  for (int times = 0; times < 6; ++times) {  // as if another thread had written to them
    const auto target = random.byte() % 5;
    const std::span<std::uint64_t> some = target == 0   ? least.span()
                                          : target == 1 ? words.span()
                                          : target == 2 ? sums.span()
                                                        : at.span();
    if (target == 4 && !arrays.bits.empty())
      bits.span()[random.word() % arrays.bits.size()] = static_cast<Byte>(random.byte());
    else if (!some.empty())
      some[random.word() % some.size()] = random.some_bits();
    use(packed, random, 1);
  }
}

void check_round_trip(std::uint64_t count, Numbers64 random) {
  Array values;
  const std::uint64_t base = random.some_bits();
  for (std::uint64_t i = 0; i < count; ++i) values.push_back(base + random.some_bits());
  const std::size_t blocks = (values.size() + kPack - 1) / kPack;
  Array words(blocks * kPack);
  Arrays packed{count, Array(blocks), std::vector<Byte>(blocks), {}};
  const std::size_t used = pack(values, packed.least, packed.bits, words);
  packed.words.assign(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(used));
  for (std::uint64_t i = 0; i < count; ++i) require(value_of(packed, i) == values[i], "pack");
  if (used > 0) {
    const Exact<std::uint64_t> tight(Array(used - 1));
    require(refused([&] { pack(values, packed.least, packed.bits, tight.span()); }), "pack needs room");
  }
  check(packed, true, random);
  check(packed, false, random);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  if (size == 0) return 0;
  const std::unique_ptr<Byte[]> copy(new Byte[size]);  // of exact size
  std::memcpy(copy.get(), input, size);
  Numbers64 random(Bytes(copy.get(), size));
  const std::uint64_t how = random.byte();
  const std::uint64_t count = random.word() % (how & 1 ? 300 : 70);
  if (how & 2) {
    check_round_trip(count, random);
    return 0;
  }
  Arrays arrays{count, Array((count + kPack - 1) / kPack), {}, {}};
  std::size_t words = 0;
  for (std::uint64_t& least : arrays.least) {
    least = random.some_bits() >> (how & 4 ? 0 : 12);
    arrays.bits.push_back(static_cast<Byte>(how & 8 ? random.byte() : random.byte() % 66));
    words += arrays.bits.back();
  }
  if (how & 16 && words > 0) words += random.byte() % 3 - 1;
  for (std::size_t i = 0; i < words; ++i) arrays.words.push_back(random.some_bits());
  if (how & 32) arrays.count = random.some_bits();
  check(arrays, how & 64, random);
  return 0;
}
