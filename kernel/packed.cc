#include "packed.h"

#include <algorithm>
#include <bit>

#include "threads.h"

namespace croupier {
namespace {

constexpr std::uint64_t kMostSum = std::uint64_t{1} << 63;

std::uint64_t extract(const std::uint64_t* words, std::size_t j, unsigned width) {
  const std::size_t bit = j * width;
  const unsigned shift = bit & 63;
  std::uint64_t value = words[bit >> 6] >> shift;
  if (shift + width > 64) value |= words[(bit >> 6) + 1] << (64 - shift);
  return width == 64 ? value : value & ((std::uint64_t{1} << width) - 1);
}

void fetch(const void* p) { __builtin_prefetch(p); }

}  // namespace

void Packed::check_sizes() const {
  const std::size_t n = blocks();
  if (count >= kMostSum || least.size() != n || bits.size() != n || sums.size() != n + 1 || at.size() != n + 1)
    refuse("the arrays of a packed sequence do not fit each other");
}

Packed::Place Packed::find(std::uint64_t i) const {
  if (i > count) refuse("a number behind the end of a packed sequence");
  const std::size_t block = static_cast<std::size_t>(i / kPack), j = i % kPack;
  if (block == least.size()) return {sums[block], 0};
  const unsigned width = bits[block];
  const std::uint64_t begin = at[block], smallest = least[block];
  if (width > 64 || begin > words.size() || width > words.size() - begin)
    refuse("a packed sequence was changed by another thread");
  Place place{sums[block] + smallest * j, 0};
  if (width == 0) {
    place.value = i < count ? smallest : 0;
    return place;
  }
  const std::uint64_t* const from = words.data() + begin;
  for (std::size_t k = 0; k < j; ++k) place.sum += extract(from, k, width);
  if (i < count) place.value = smallest + extract(from, j, width);
  return place;
}

void Packed::fetch_ahead(std::uint64_t i) const {
  const std::size_t block = static_cast<std::size_t>(std::min(i, count) / kPack);
  fetch(at.data() + block);
  fetch(sums.data() + block);
  fetch(least.data() + block);
  fetch(bits.data() + block);
}

void Packed::fetch_words_ahead(std::uint64_t i) const {
  const std::size_t block = static_cast<std::size_t>(std::min(i, count) / kPack);
  const std::uint64_t begin = at[block];
  if (begin >= words.size()) return;
  for (std::size_t line = 0; line < 3; ++line) fetch(words.data() + std::min(begin + 8 * line, words.size() - 1));
}

std::size_t pack(Numbers values, Slots least, Room bits, Slots words) {
  const std::size_t blocks = (values.size() + kPack - 1) / kPack;
  if (least.size() < blocks || bits.size() < blocks) refuse("least and bits must have a place for every block");
  std::size_t used = 0;
  for (std::size_t block = 0; block < blocks; ++block) {
    std::uint64_t copy[kPack];  // another thread may write to `values`
    const Numbers part = values.subspan(block * kPack, std::min(kPack, values.size() - block * kPack));
    std::copy(part.begin(), part.end(), copy);
    const auto [low, high] = std::minmax_element(copy, copy + part.size());
    const std::uint64_t smallest = *low;
    const auto width = static_cast<unsigned>(std::bit_width(*high - smallest));
    if (width > words.size() - used) refuse("words has no room");
    least[block] = smallest;
    bits[block] = static_cast<Byte>(width);
    std::uint64_t* const out = words.data() + used;
    std::fill(out, out + width, 0);
    for (std::size_t j = 0; width && j < part.size(); ++j) {
      const std::uint64_t value = copy[j] - smallest;
      const std::size_t bit = j * width;
      const unsigned shift = bit & 63;
      out[bit >> 6] |= value << shift;
      if (shift + width > 64) out[(bit >> 6) + 1] |= value >> (64 - shift);
    }
    used += width;
  }
  return used;
}

void index_packed(std::uint64_t count, Numbers least, Bytes bits, Numbers words, Slots sums, Slots at,
                  bool summed) {
  const std::size_t blocks = least.size();
  if (sums.size() != blocks + 1 || at.size() != blocks + 1 || bits.size() != blocks ||
      count > blocks * kPack || count + kPack <= blocks * kPack)
    refuse("the arrays of a packed sequence do not fit each other");
  unsigned __int128 sum = 0;
  std::uint64_t used = 0;
  for (std::size_t block = 0; block < blocks; ++block) {
    const unsigned width = bits[block];
    const std::uint64_t smallest = least[block];
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(kPack, count - block * kPack));
    sums[block] = static_cast<std::uint64_t>(sum);
    at[block] = used;
    if (width > 64 || width > words.size() - used) refuse("a packed sequence has fewer words than its widths need");
    sum += static_cast<unsigned __int128>(smallest) * n;
    for (std::size_t j = 0; width && j < n; ++j) sum += extract(words.data() + used, j, width);
    if (summed && sum >= kMostSum) refuse("a packed sequence has numbers that are too large");
    used += width;
  }
  if (used != words.size()) refuse("a packed sequence has more words than its widths need");
  sums[blocks] = static_cast<std::uint64_t>(sum);
  at[blocks] = used;
}

void sums_before(const Packed& packed, Numbers places, Slots sums) {
  packed.check_sizes();
  if (sums.size() < places.size()) refuse("sums has fewer places than places");
  for (std::size_t k = 0; k < places.size(); ++k) sums[k] = packed.find(places[k]).sum;
}

void unpack(const Packed& packed, std::uint64_t first, Slots values) {
  packed.check_sizes();
  if (first > packed.count || values.size() > packed.count - first)
    refuse("a number behind the end of a packed sequence");
  for (std::size_t k = 0; k < values.size(); ++k) {  // 64 numbers of a block at a time would be little faster
    const std::uint64_t i = first + k;
    const std::size_t block = static_cast<std::size_t>(i / kPack);
    const unsigned width = packed.bits[block];
    const std::uint64_t begin = packed.at[block];
    if (width > 64 || begin > packed.words.size() || width > packed.words.size() - begin)
      refuse("a packed sequence was changed by another thread");
    values[k] = packed.least[block] + (width ? extract(packed.words.data() + begin, i % kPack, width) : 0);
  }
}

void locate(const Packed& lengths, Numbers firsts, Numbers bases, Numbers records, Slots file, Slots offset,
            Slots length, unsigned threads) {
  lengths.check_sizes();
  const std::size_t n = records.size();
  if (firsts.size() != bases.size() + 1) refuse("firsts must have one number more than bases");
  if (file.size() < n || offset.size() < n || length.size() < n) refuse("an output has fewer places than records");
  constexpr std::size_t kAhead = 12;
  constexpr std::uint64_t kCost = 512;  // a record takes about as long as half a kilobyte does elsewhere
  const std::size_t parts = parts_for(n * kCost, threads);
  in_parallel(parts, [&](std::size_t part) {
    const std::size_t from = n * part / parts, to = n * (part + 1) / parts;
    std::size_t f = 0;
    for (std::size_t k = from; k < to; ++k) {
      if (k + 2 * kAhead < to) lengths.fetch_ahead(records[k + 2 * kAhead]);
      if (k + kAhead < to) lengths.fetch_words_ahead(records[k + kAhead]);
      const std::uint64_t i = records[k];
      if (bases.empty() || i < firsts.front() || i >= firsts.back()) refuse("a record that no file has");
      if (i < firsts[f] || i >= firsts[f + 1]) {
        const auto above = std::ranges::upper_bound(firsts, i) - firsts.begin();
        f = std::clamp<std::size_t>(static_cast<std::size_t>(above), 1, bases.size()) - 1;
      }
      const Packed::Place place = lengths.find(i);
      file[k] = f;
      offset[k] = place.sum - bases[f] + kOverhead * (i - firsts[f]);
      length[k] = place.value;
    }
  });
}

void search_sums(const Packed& packed, Numbers firsts, Numbers bases, Numbers groups, Numbers positions,
                 Slots found, Slots begin) {
  packed.check_sizes();
  if (firsts.size() != bases.size() + 1) refuse("firsts must have one number more than bases");
  if (groups.size() != positions.size() || found.size() < groups.size() || begin.size() < groups.size())
    refuse("groups, positions, found and begin differ in length");
  for (std::size_t k = 0; k < groups.size(); ++k) {
    const std::uint64_t g = groups[k];
    if (g >= bases.size()) refuse("a group that does not exist");
    const std::uint64_t first = firsts[g], last = firsts[g + 1], base = bases[g];
    if (first >= last || last > packed.count) refuse("a group that is empty");
    const std::uint64_t wanted = base + positions[k];
    const auto above = std::ranges::upper_bound(packed.sums, wanted) - packed.sums.begin();
    std::uint64_t i = above == 0 ? 0 : static_cast<std::uint64_t>(above - 1) * kPack;
    i = std::clamp(i, first, last - 1);
    Packed::Place place = packed.find(i);
    while (i + 1 < last && place.sum + place.value <= wanted) place = packed.find(++i);
    found[k] = i;
    begin[k] = place.sum - base;
  }
}

}  // namespace croupier
