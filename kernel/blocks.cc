#include "blocks.h"

#include <algorithm>

namespace croupier {
namespace {

constexpr unsigned kEndOfBlock = 256, kFirstLength = 257, kMostStored = 65535;
constexpr std::size_t kMostBlock = 1 << 24;  // bytes: counts of 32 bits hold them

constexpr auto kLengthSymbol = [] {  // of length - 3
  std::array<std::uint8_t, 256> symbols{};
  for (unsigned i = 0; i < 29; ++i)
    for (unsigned j = kLengthBase[i]; j <= kMostMatch; ++j) symbols[j - 3] = static_cast<std::uint8_t>(i);
  return symbols;
}();

constexpr auto kNearSymbol = [] {  // of distance - 1 below 256; then of (distance - 1) / 128
  std::array<std::uint8_t, 512> symbols{};
  for (unsigned i = 0; i < 30; ++i)
    for (unsigned j = kDistanceBase[i] - 1U; j < kWindow; j = j < 255 ? j + 1 : (j / 128 + 1) * 128)
      symbols[j < 256 ? j : 256 + j / 128] = static_cast<std::uint8_t>(i);
  return symbols;
}();

constexpr unsigned distance_symbol(unsigned distance) {
  return kNearSymbol[distance <= 256 ? distance - 1 : 256 + (distance - 1) / 128];
}

constexpr unsigned fixed_length(unsigned symbol) {
  return symbol < 144 ? 8 : symbol < 256 ? 9 : symbol < 280 ? 7 : 8;
}

// Log2 of 1 + i / 256, in 1/65536: whole numbers, so that all processors cut blocks alike.
constexpr auto kLogarithm = [] {
  std::array<std::uint32_t, 256> logs{};
  for (std::uint64_t i = 0; i < 256; ++i) {
    std::uint64_t x = (256 + i) << 22;  // 1 is 2^30; squared, it says the next bit
    for (int bit = 0; bit < 16; ++bit) {
      x = x * x >> 30;
      const std::uint64_t above = x >> 31;
      logs[i] = static_cast<std::uint32_t>(logs[i] << 1 | above);
      x >>= above;
    }
  }
  return logs;
}();

// n log2 n, in 1/65536; 0 for 0.
std::uint64_t entropy(std::uint64_t n) {
  const unsigned whole = 63U - static_cast<unsigned>(std::countl_zero(n | 1));
  return n * ((std::uint64_t{whole} << 16) + kLogarithm[(n << 8 >> whole) & 255]);
}

// How often each symbol stands in some tokens.
struct Counts {
  static constexpr unsigned kLiterals = 286, kDistances = 30;
  std::array<std::uint32_t, kLiterals> literals{};  // and lengths, and the end of the block
  std::array<std::uint32_t, kDistances> distances{};

  void add(std::span<const Token> tokens, Bytes text) {
    for (const Byte value : text) ++literals[value];
    for (const Token token : tokens) {
      if (is_run(token)) continue;
      ++literals[kFirstLength + kLengthSymbol[length_of(token) - kLeastMatch]];
      ++distances[distance_symbol(distance_of(token))];
    }
  }
  void add(const Counts& more) {
    for (unsigned i = 0; i < kLiterals; ++i) literals[i] += more.literals[i];
    for (unsigned i = 0; i < kDistances; ++i) distances[i] += more.distances[i];
  }

  // About what a block of these costs, in 1/65536 bits: 60 bits for itself, and 5 for each symbol's code.
  std::uint64_t cost() const {
    std::uint64_t sum = 60 << 16;
    const auto add = [&](std::span<const std::uint32_t> counts) {
      std::uint64_t all = 0, each = 0, used = 0;
      for (const std::uint32_t n : counts) {
        all += n;
        each += entropy(n);
        used += n > 0;
      }
      sum += entropy(all) - each + (5 * used << 16);
    };
    add(literals);
    add(distances);
    return sum;
  }

  template <class LiteralBits, class DistanceBits>
  std::uint64_t bits(LiteralBits&& literal_bits, DistanceBits&& distance_bits) const {
    std::uint64_t sum = 0;
    for (unsigned i = 0; i < kLiterals; ++i) {
      const unsigned extra = i < kFirstLength ? 0 : kLengthExtra[i - kFirstLength];
      sum += std::uint64_t{literals[i]} * (literal_bits(i) + extra);
    }
    for (unsigned i = 0; i < kDistances; ++i)
      sum += std::uint64_t{distances[i]} * (distance_bits(i) + kDistanceExtra[i]);
    return sum;
  }
};

struct Codes {
  std::array<std::uint8_t, 288> literal_bits{};
  std::array<std::uint8_t, 30> distance_bits{};
  std::array<std::uint16_t, 288> literals;
  std::array<std::uint16_t, 30> distances;

  void set_fixed() {
    for (unsigned i = 0; i < 288; ++i) literal_bits[i] = static_cast<std::uint8_t>(fixed_length(i));
    distance_bits.fill(5);
  }
  void make() {
    codes_of(literal_bits, literals);
    codes_of(distance_bits, distances);
  }
};

// The codes' lengths, as a dynamic block begins with them.
class Head {
 public:
  explicit Head(const Codes& codes) {
    literals_ = used(codes.literal_bits, 257);
    distances_ = used(codes.distance_bits, 1);
    std::array<std::uint8_t, 288 + 32> all;
    std::copy_n(codes.literal_bits.begin(), literals_, all.begin());
    std::copy_n(codes.distance_bits.begin(), distances_, all.begin() + literals_);
    const std::size_t n = literals_ + distances_;
    for (std::size_t at = 0; at < n;) {
      std::size_t same = 1;
      while (at + same < n && all[at + same] == all[at]) ++same;
      add(all[at], static_cast<unsigned>(same));
      at += same;
    }
    code_lengths(counts_, 7, bits_);
    while (order_ > 4 && bits_[kLengthOrder[order_ - 1]] == 0) --order_;
  }

  std::uint64_t bits() const {
    std::uint64_t sum = 5 + 5 + 4 + 3 * order_;
    for (unsigned i = 0; i < 19; ++i) sum += std::uint64_t{counts_[i]} * (bits_[i] + repeat_bits(i));
    return sum;
  }

  void write(BitWriter& out) const {
    std::array<std::uint16_t, 19> codes;
    codes_of(bits_, codes);
    out.put((literals_ - 257) | (distances_ - 1) << 5 | std::uint64_t{order_ - 4} << 10, 14);
    out.flush();
    for (unsigned i = 0; i < order_; ++i) {
      out.put(bits_[kLengthOrder[i]], 3);
      out.flush();
    }
    for (std::size_t i = 0; i < size_; ++i) {
      const auto [symbol, times] = steps_[i];
      out.put(codes[symbol] | static_cast<unsigned>(times) << bits_[symbol], bits_[symbol] + repeat_bits(symbol));
      out.flush();
    }
  }

 private:
  struct Step {
    std::uint8_t symbol, times;  // times: as it is written
  };

  static constexpr unsigned repeat_bits(unsigned symbol) {
    return symbol < 16 ? 0 : symbol == 16 ? 2 : symbol == 17 ? 3 : 7;
  }
  template <std::size_t n>
  static std::size_t used(const std::array<std::uint8_t, n>& bits, std::size_t least) {
    std::size_t size = n;
    while (size > least && bits[size - 1] == 0) --size;
    return size;
  }
  void step(unsigned symbol, unsigned times) {
    steps_[size_++] = {static_cast<std::uint8_t>(symbol), static_cast<std::uint8_t>(times)};
    ++counts_[symbol];
  }
  void add(unsigned bits, unsigned same) {
    if (bits == 0) {
      for (; same >= 11; same -= std::min(same, 138U)) step(18, std::min(same, 138U) - 11);
      if (same >= 3) return step(17, same - 3);
    } else {
      step(bits, 0);
      --same;
      for (; same >= 3; same -= std::min(same, 6U)) step(16, std::min(same, 6U) - 3);
    }
    for (; same > 0; --same) step(bits, 0);
  }

  std::size_t literals_, distances_, size_ = 0;
  unsigned order_ = 19;
  std::array<Step, 288 + 32> steps_;
  std::array<std::uint32_t, 19> counts_{};
  std::array<std::uint8_t, 19> bits_{};
};

void write_tokens(BitWriter& out, const Codes& codes, std::span<const Token> tokens, Bytes text) {
  struct Bits {
    std::uint32_t bits, count;
  };
  std::array<Bits, 256> lengths;  // code and extra bits
  for (unsigned i = 0; i < 256; ++i) {
    const unsigned symbol = kLengthSymbol[i], bits = codes.literal_bits[kFirstLength + symbol];
    const unsigned extra = i + 3 - kLengthBase[symbol];
    lengths[i] = {codes.literals[kFirstLength + symbol] | extra << bits, bits + kLengthExtra[symbol]};
  }
  const auto literal = [&](Byte value) { out.put(codes.literals[value], codes.literal_bits[value]); };
  const Byte* at = text.data();
  for (const Token token : tokens) {
    std::size_t left = literals_of(token);
    for (; left >= 3; left -= 3, at += 3) {
      literal(at[0]);
      literal(at[1]);
      literal(at[2]);
      out.flush();
    }
    for (; left > 0; --left) literal(*at++);
    out.flush();
    if (is_run(token)) continue;
    const Bits length = lengths[length_of(token) - kLeastMatch];
    out.put(length.bits, length.count);
    const unsigned distance = distance_of(token), symbol = distance_symbol(distance);
    const unsigned bits = codes.distance_bits[symbol];
    out.put(codes.distances[symbol] | std::uint64_t{distance - kDistanceBase[symbol]} << bits,
            bits + kDistanceExtra[symbol]);
    out.flush();
  }
  out.put(codes.literals[kEndOfBlock], codes.literal_bits[kEndOfBlock]);
  out.flush();
}

std::uint64_t stored_bits(std::size_t size) { return 8 * (size + (size + kMostStored - 1) / kMostStored * 5); }

void write_stored(BitWriter& out, Bytes raw) {
  do {
    const Bytes piece = raw.first(std::min<std::size_t>(raw.size(), kMostStored));
    const auto size = static_cast<std::uint32_t>(piece.size());
    out.put(0, 3);
    out.align();
    out.put(size | (size ^ 0xffff) << 16, 32);
    out.flush();
    out.bytes(piece);
    raw = raw.subspan(piece.size());
  } while (!raw.empty());
}

// With codes of its own, fixed ones or stored, whatever is smallest.
void write_block(BitWriter& out, Counts& counts, Bytes raw, std::span<const Token> tokens, Bytes text) {
  counts.literals[kEndOfBlock] = 1;
  Codes codes;
  code_lengths(counts.literals, 15, std::span(codes.literal_bits).first(Counts::kLiterals));
  code_lengths(counts.distances, 15, codes.distance_bits);
  const Head head(codes);
  const std::uint64_t stored = stored_bits(raw.size()), fixed = counts.bits(fixed_length, [](unsigned) { return 5U; }),
                      dynamic = head.bits() + counts.bits([&](unsigned i) { return codes.literal_bits[i]; },
                                                          [&](unsigned i) { return codes.distance_bits[i]; });
  out.make_room(std::min({stored, fixed, dynamic}));
  if (stored < std::min(fixed, dynamic)) return write_stored(out, raw);
  out.put(fixed <= dynamic ? 2 : 4, 3);
  if (fixed <= dynamic)
    codes.set_fixed();
  else
    head.write(out);
  codes.make();
  write_tokens(out, codes, tokens, text);
}

// Tokens that are counted together. On DeepVariant's examples, blocks that may end behind every 256 tokens make 2 %
// less than one block a record, behind every 1,024 0.9 %; to count costs a quarter of the time.
struct Stretch {
  static constexpr std::size_t kMostTokens = 256;
  std::size_t tokens = 0, bytes = 0, literals = 0;

  explicit Stretch(std::span<const Token> from) {
    while (tokens < std::min(from.size(), kMostTokens) && literals < kMostTogether) {
      const Token token = from[tokens++];
      literals += literals_of(token);
      bytes += literals_of(token) + length_of(token);
    }
  }
};

}  // namespace

void write_blocks(BitWriter& out, Bytes raw, std::span<const Token> tokens, Bytes literals) {
  Counts block;
  std::uint64_t cost = 0;
  std::size_t first = 0, bytes = 0, texts = 0;  // of the block: its first token, how many bytes, and literals
  const auto finish = [&](std::size_t end) {
    write_block(out, block, raw.first(bytes), tokens.subspan(first, end - first), literals.first(texts));
    raw = raw.subspan(bytes);
    literals = literals.subspan(texts);
    first = end;
    bytes = texts = 0;
  };
  for (std::size_t at = 0; at < tokens.size();) {
    const Stretch stretch(tokens.subspan(at));
    Counts more;
    more.add(tokens.subspan(at, stretch.tokens), literals.subspan(texts, stretch.literals));
    const std::uint64_t alone = more.cost();
    Counts both = block;
    both.add(more);
    const std::uint64_t together = both.cost();
    const bool cut = at > first && (together > cost + alone || bytes + stretch.bytes > kMostBlock);
    if (cut) finish(at);
    block = cut ? more : both;
    cost = cut || at == first ? alone : together;
    bytes += stretch.bytes;
    texts += stretch.literals;
    at += stretch.tokens;
  }
  if (first < tokens.size()) finish(tokens.size());
}

void write_flush(BitWriter& out) {
  out.make_room(0);
  write_stored(out, {});
}

}  // namespace croupier
