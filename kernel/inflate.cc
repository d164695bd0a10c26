#include "inflate.h"

#include <algorithm>
#include <cstring>

#include "decoding.h"

namespace croupier {
namespace {

constexpr std::size_t kBeyond = 32;  // what copy_fast may write behind a match

void copy16(Byte* to, const Byte* from) {
  const std::uint64_t a = load64(from), b = load64(from + 8);
  store64(to, a);
  store64(to + 8, b);
}

void copy_fast(Byte* to, std::size_t length, std::size_t distance) {
  Byte* const end = to + length;
  if (distance == 1) {
    std::memset(to, to[-1], length);
    return;
  }
  if (distance >= 16) {
    do {
      copy16(to, to - distance);
      copy16(to + 16, to + 16 - distance);
      to += 32;
    } while (to < end);
    return;
  }
  for (int i = 0; i < 16; ++i, ++to) *to = *(to - distance);
  std::size_t period = distance;
  while (period < 16) period += distance;
  for (; to < end; to += 16) copy16(to, to - period);
}

}  // namespace

// What one call works with.
struct Inflater::Call {
  const Byte *at, *end;
  Byte *first, *out, *out_end;
  Token *token, *token_end;
  const Byte* literals;  // the first that is in no token yet
  Stop why;

  std::size_t room() const { return static_cast<std::size_t>(out_end - out); }
  std::size_t produced() const { return static_cast<std::size_t>(out - first); }
  bool has_token_room() const { return token_end - token >= 3; }  // literals, a match, and the last literals
  void note_literals() {
    if (out > literals) *token++ = kRun | static_cast<Token>(out - literals);
    literals = out;
  }
  void note(std::size_t length, std::size_t distance) {
    if (out - literals > std::ptrdiff_t{kMostLiterals}) note_literals();
    *token++ = make_token(static_cast<std::size_t>(out - literals), length, distance);
  }
  bool stop(Stop reason) {
    why = reason;
    return false;
  }
};

Inflater::Progress Inflater::inflate(Bytes in, Room out, std::span<Token> tokens) {
  out = out.first(std::min<std::size_t>(out.size(), kMostRun));
  Call call{in.data(),    in.data() + in.size(),         out.data(), out.data(), out.data() + out.size(),
            tokens.data(), tokens.data() + tokens.size(), out.data(), Stop::kInput};
  if (call.has_token_room())
    while (step(call)) {
    }
  else
    call.why = Stop::kRoom;
  call.note_literals();
  // Bits that came with this call are given back as bytes; before it, they were too few for what follows.
  const auto spare = std::min<std::size_t>(count_ / 8, static_cast<std::size_t>(call.at - in.data()));
  if (call.why != Stop::kInput) {
    call.at -= spare;
    count_ -= static_cast<unsigned>(8 * spare);
    bits_ = low(bits_, count_);
  }
  keep_window(call);
  return {static_cast<std::size_t>(call.at - in.data()), call.produced(),
          static_cast<std::size_t>(call.token - tokens.data()), call.why};
}

// Each step takes bits only when all that it needs have come, and is false when it cannot go on.
bool Inflater::step(Call& call) {
  switch (at_) {
    case At::kBlock:
      return begin_block(call);
    case At::kStoredSize:
      return begin_stored(call);
    case At::kStored:
      return copy_stored(call);
    case At::kSizes:
      return read_sizes(call);
    case At::kOrder:
      return read_order(call);
    case At::kLengths:
      return read_lengths(call);
    case At::kCodes:
      return decode(call);
    case At::kEnd:
      return call.stop(Stop::kEnd);
    case At::kBad:
      break;
  }
  return call.stop(Stop::kBad);
}

bool Inflater::bad(const char* problem) {
  problem_ = problem;
  at_ = At::kBad;
  return true;  // the next step stops
}

bool Inflater::need(Call& call, unsigned count) {
  while (count_ < count) {
    if (call.at == call.end) return call.stop(Stop::kInput);
    bits_ |= std::uint64_t{*call.at++} << count_;
    count_ += 8;
  }
  return true;
}

unsigned Inflater::take(unsigned count) {
  const auto bits = static_cast<unsigned>(low(bits_, count));
  bits_ >>= count;
  count_ -= count;
  return bits;
}

// Blocks

bool Inflater::begin_block(Call& call) {
  if (last_) {
    take(count_ % 8);
    at_ = At::kEnd;
    return true;
  }
  if (!need(call, 3)) return false;
  last_ = take(1) != 0;
  switch (take(2)) {
    case 0:
      take(count_ % 8);
      at_ = At::kStoredSize;
      return true;
    case 1:
      if (!fixed_) build_fixed();
      at_ = At::kCodes;
      return true;
    case 2:
      at_ = At::kSizes;
      return true;
    default:
      return bad("invalid block type");
  }
}

bool Inflater::begin_stored(Call& call) {
  if (!need(call, 32)) return false;
  stored_ = take(16);
  if (take(16) != (stored_ ^ 0xffff)) return bad("invalid stored block lengths");
  at_ = At::kStored;
  return true;
}

bool Inflater::copy_stored(Call& call) {
  while (stored_ > 0 && count_ > 0) {
    if (call.room() == 0) return call.stop(Stop::kRoom);
    *call.out++ = static_cast<Byte>(take(8));
    --stored_;
  }
  const std::size_t count = std::min({stored_, call.room(), static_cast<std::size_t>(call.end - call.at)});
  if (count > 0) std::memcpy(call.out, call.at, count);
  call.out += count;
  call.at += count;
  stored_ -= count;
  if (stored_ > 0) return call.stop(call.room() == 0 ? Stop::kRoom : Stop::kInput);
  at_ = At::kBlock;
  return true;
}

bool Inflater::read_sizes(Call& call) {
  if (!need(call, 14)) return false;
  literal_codes_ = take(5) + 257;
  distance_codes_ = take(5) + 1;
  order_codes_ = take(4) + 4;
  if (literal_codes_ > 286 || distance_codes_ > 30) return bad("too many length or distance symbols");
  lengths_.fill(0);
  have_ = 0;
  at_ = At::kOrder;
  return true;
}

bool Inflater::read_order(Call& call) {
  for (; have_ < order_codes_; ++have_) {
    if (!need(call, 3)) return false;
    lengths_[kLengthOrder[have_]] = static_cast<std::uint8_t>(take(3));
  }
  const auto lengths = std::span(lengths_).first(19);
  if (!build(order_, kOrderBits, lengths, kOrderSymbols, false)) return bad("invalid code lengths set");
  // zlib reads zeros of one bit each where there is no code at all, and then finds no end of block.
  if (std::ranges::all_of(lengths, [](unsigned length) { return length == 0; }))
    order_.fill(with_code(entry(0, kBase), 1));
  have_ = 0;
  at_ = At::kLengths;
  return true;
}

bool Inflater::read_lengths(Call& call) {
  const unsigned all = literal_codes_ + distance_codes_;
  while (have_ < all) {
    Entry e;
    if (!find(call, order_.data(), kOrderBits, 0, e)) return false;
    const unsigned symbol = value_of(e), repeat_bits = symbol < 16 ? 0 : symbol == 16 ? 2 : symbol == 17 ? 3 : 7;
    if (!need(call, code_bits(e) + repeat_bits)) return false;
    take(code_bits(e));
    if (symbol < 16) {
      lengths_[have_++] = static_cast<std::uint8_t>(symbol);
      continue;
    }
    if (symbol == 16 && have_ == 0) return bad("invalid bit length repeat");
    const std::uint8_t length = symbol == 16 ? lengths_[have_ - 1] : 0;
    const unsigned times = take(repeat_bits) + (symbol == 18 ? 11 : 3);
    if (times > all - have_) return bad("invalid bit length repeat");
    std::fill_n(lengths_.begin() + have_, times, length);
    have_ += times;
  }
  const auto lengths = std::span(lengths_);
  if (lengths_[256] == 0) return bad("invalid code -- missing end-of-block");
  fixed_ = false;
  if (!build(literal_, kMainBits, lengths.first(literal_codes_), kLiteralSymbols, true))
    return bad("invalid literal/lengths set");
  if (!build(distances_, kDistanceBits, lengths.subspan(literal_codes_, distance_codes_), kDistanceSymbols, true))
    return bad("invalid distances set");
  at_ = At::kCodes;
  return true;
}

void Inflater::build_fixed() {
  std::array<std::uint8_t, 288 + 32> lengths;
  for (unsigned i = 0; i < 288; ++i) lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
  std::fill_n(lengths.begin() + 288, 32, std::uint8_t{5});
  const auto all = std::span<const std::uint8_t>(lengths);
  build(literal_, kMainBits, all.first(288), kLiteralSymbols, false);
  build(distances_, kDistanceBits, all.subspan(288), kDistanceSymbols, false);
  fixed_ = true;
}

// Symbols

// The entry for the bits behind the next `skip` ones.
bool Inflater::find(Call& call, const std::uint32_t* table, unsigned main, unsigned skip, std::uint32_t& e) {
  for (;;) {
    e = look_up(table, main, bits_ >> skip);
    if (skip + code_bits(e) <= count_) return true;
    if (!need(call, count_ + 1)) return false;
  }
}

bool Inflater::decode(Call& call) {
  if (length_ > 0 && !finish_match(call)) return false;
  while (at_ == At::kCodes) {
    if (!call.has_token_room()) return call.stop(Stop::kRoom);
    decode_fast(call);
    if (at_ == At::kCodes && !decode_one(call)) return false;
  }
  return true;
}

bool Inflater::finish_match(Call& call) {
  const std::size_t count = std::min(length_, call.room());
  copy(call, count, distance_);
  length_ -= count;
  call.literals = call.out;
  return length_ == 0 || call.stop(Stop::kRoom);
}

// One symbol, or a match, with care.
bool Inflater::decode_one(Call& call) {
  if (!call.has_token_room()) return call.stop(Stop::kRoom);
  Entry e;
  if (!find(call, literal_.data(), kMainBits, 0, e)) return false;
  if (e & kLiteral) {
    if (call.room() == 0) return call.stop(Stop::kRoom);
    take(code_bits(e));
    *call.out++ = static_cast<Byte>(value_of(e));
    return true;
  }
  if (e & kInvalid) return bad("invalid literal/length code");
  if (e & kEndOfBlock) {
    take(code_bits(e));
    at_ = At::kBlock;
    return true;
  }
  const unsigned front = taken(e);
  if (!need(call, front)) return false;
  Entry d;
  if (!find(call, distances_.data(), kDistanceBits, front, d)) return false;
  if (d & kInvalid) return bad("invalid distance code");
  if (!need(call, front + taken(d))) return false;
  length_ = value_of(e) + (low(bits_, front) >> code_bits(e));
  take(front);
  distance_ = value_of(d) + (low(bits_, taken(d)) >> code_bits(d));
  take(taken(d));
  if (distance_ > call.produced() + window_size_) return bad("invalid distance too far back");
  call.note(length_, distance_);
  return finish_match(call);
}

// While there are 16 bytes of input, and room for three literals, a match, and what copies write behind it.
void Inflater::decode_fast(Call& call) {
  const Byte* at = call.at;
  std::uint64_t bits = bits_;
  unsigned count = count_;
  const Entry* const literal = literal_.data();
  const Entry* const distances = distances_.data();
  const auto refill = [&] {
    bits |= load64(at) << count;
    at += (63 - count) >> 3;
    count |= 56;
  };
  const auto drop = [&](unsigned n) {
    bits >>= n;
    count -= n;
  };
  while (call.end - at >= 16 && call.room() >= 3 + kMostMatch + kBeyond && call.has_token_room()) {
    refill();
    Entry e = look_up(literal, kMainBits, bits);
    if (e & kLiteral) {
      drop(taken(e));
      *call.out++ = static_cast<Byte>(value_of(e));
      e = look_up(literal, kMainBits, bits);
      if (e & kLiteral) {
        drop(taken(e));
        *call.out++ = static_cast<Byte>(value_of(e));
        e = look_up(literal, kMainBits, bits);
        if (e & kLiteral) {
          drop(taken(e));
          *call.out++ = static_cast<Byte>(value_of(e));
          continue;
        }
      }
      refill();
    }
    if (e & (kEndOfBlock | kInvalid)) break;
    const Entry d = look_up(distances, kDistanceBits, bits >> taken(e));
    if (d & kInvalid) break;
    const std::uint64_t behind = bits >> taken(e);
    const std::size_t length = value_of(e) + (low(bits, taken(e)) >> code_bits(e));
    const std::size_t distance = value_of(d) + (low(behind, taken(d)) >> code_bits(d));
    if (distance > call.produced()) break;  // into the window, or too far
    drop(taken(e) + taken(d));
    call.note(length, distance);
    copy_fast(call.out, length, distance);
    call.out += length;
    call.literals = call.out;
  }
  call.at = at;
  bits_ = low(bits, count);
  count_ = count;
}

// For which there is room; from the window first, where the match begins there.
void Inflater::copy(Call& call, std::size_t length, std::size_t distance) const {
  if (distance > call.produced()) {
    const std::size_t back = distance - call.produced(), count = std::min(length, back);
    std::memcpy(call.out, window_.data() + (window_size_ - back), count);
    call.out += count;
    length -= count;
  }
  for (; length > 0; --length, ++call.out) *call.out = *(call.out - distance);
}

void Inflater::keep_window(const Call& call) {
  const std::size_t count = std::min(call.produced(), kWindow), kept = std::min(window_size_, kWindow - count);
  std::memmove(window_.data(), window_.data() + (window_size_ - kept), kept);
  if (count > 0) std::memcpy(window_.data() + kept, call.out - count, count);
  window_size_ = kept + count;
}

}  // namespace croupier
