#include "transcode.h"

#include <algorithm>
#include <cstring>

#include "blocks.h"

namespace croupier {
namespace {

std::uint16_t load16(const Byte* p) {
  std::uint16_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

std::size_t common(const Byte* a, const Byte* b, std::size_t most) {
  std::size_t n = 0;
  for (; n + 8 <= most; n += 8) {
    const std::uint64_t differ = load64(a + n) ^ load64(b + n);
    if (differ != 0) return n + static_cast<std::size_t>(std::countr_zero(differ)) / 8;
  }
  while (n < most && a[n] == b[n]) ++n;
  return n;
}

// Whether `n` bytes, three at least, are the same; the last words of each overlap those before.
bool are_same(const Byte* a, const Byte* b, std::size_t n) {
  if (n < 8) {
    const bool front = n < 4 ? load16(a) == load16(b) : load32(a) == load32(b);
    return front && (n < 4 ? a[2] == b[2] : load32(a + n - 4) == load32(b + n - 4));
  }
  std::uint64_t differ = load64(a + n - 8) ^ load64(b + n - 8);
  for (std::size_t i = 0; i + 8 < n; i += 8) differ |= load64(a + i) ^ load64(b + i);
  return differ == 0;
}

// Where four bytes were seen, at the front of a frame: behind its first 32 KiB no match begins before it.
class Seen {
 public:
  explicit Seen(Bytes frame) : frame_(frame) {}

  // The longest match for frame[at:end] of at least four bytes: (length, distance); or a length of 0.
  std::pair<std::size_t, std::size_t> longest(std::size_t at, std::size_t end) {
    if (end - at < 4 || at >= kFront) return {0, 0};
    add_up_to(at);
    const std::size_t most = std::min(end - at, kMostMatch);
    std::size_t best = 3, distance = 0;
    unsigned tries = kTries;
    for (std::size_t place = first_[hash(at)]; place > 0 && tries > 0; place = before_[place - 1], --tries) {
      const std::size_t back = at - (place - 1);
      if (back > kWindow) break;
      const std::size_t length = common(frame_.data() + at, frame_.data() + at - back, most);
      if (length > best) best = length, distance = back;
      if (length == most) break;
    }
    return {distance > 0 ? best : 0, distance};
  }

 private:
  static constexpr unsigned kBits = 13, kTries = 16;
  static constexpr std::size_t kFront = kWindow + kMostMatch;

  std::size_t hash(std::size_t at) const { return load32(frame_.data() + at) * 0x9e3779b1U >> (32 - kBits); }
  void add_up_to(std::size_t at) {
    for (; added_ < at; ++added_) {
      std::uint16_t& first = first_[hash(added_)];
      before_[added_] = first;
      first = static_cast<std::uint16_t>(added_ + 1);
    }
  }

  Bytes frame_;
  std::size_t added_ = 0;
  std::array<std::uint16_t, 1 << kBits> first_{};  // places are counted from 1
  std::array<std::uint16_t, kFront> before_;
};

// A frame's own tokens. Its literals are copied: they are counted before they are written, and must not change.
class Own {
 public:
  explicit Own(Bytes frame) : frame_(frame), seen_(frame) {}

  void add_literals(std::size_t count) {
    const Bytes some = frame_.subspan(at_, count);
    literals.insert(literals.end(), some.begin(), some.end());
    waiting_ += count;
    at_ += count;
  }
  void add_match(std::size_t length, std::size_t distance) {
    if (!are_same(frame_.data() + at_, frame_.data() + at_ - distance, length))
      refuse("a token does not make the frame's bytes");
    push(length, distance);
  }
  // Bytes whose match is not in the frame.
  void add_sought(std::size_t count) {
    for (const std::size_t end = at_ + count; at_ < end;) {
      const auto [length, distance] = seen_.longest(at_, end);
      if (length > 0)
        push(length, distance);
      else
        add_literals(1);
    }
  }
  void flush_literals() {
    for (std::size_t count; waiting_ > 0; waiting_ -= count) {
      count = std::min(waiting_, kMostTogether);
      tokens.push_back(kRun | static_cast<Token>(count));
    }
  }
  std::size_t at() const { return at_; }
  std::size_t left() const { return frame_.size() - at_; }

  std::vector<Token> tokens;
  std::vector<Byte> literals;

 private:
  void push(std::size_t length, std::size_t distance) {
    if (waiting_ > kMostLiterals) flush_literals();
    tokens.push_back(make_token(waiting_, length, distance));
    waiting_ = 0;
    at_ += length;
  }

  Bytes frame_;
  std::size_t at_ = 0, waiting_ = 0;  // waiting: literals that are in no token yet
  Seen seen_;
};

}  // namespace

std::vector<Byte> transcode(Bytes frame, std::span<const Token> tokens, std::uint64_t lead) {
  Own own(frame);
  for (const Token token : tokens) {
    if (own.left() == 0) break;
    const std::size_t literals = literals_of(token), skipped = std::min<std::size_t>(literals, lead);
    own.add_literals(std::min(literals - skipped, own.left()));
    lead -= skipped;
    if (is_run(token) || own.left() == 0) continue;
    std::size_t length = length_of(token);
    const std::size_t distance = distance_of(token);
    if (length < kLeastMatch || length > kMostMatch || distance > kWindow) refuse("a token is none of deflate's");
    const bool cut = lead > 0;
    const std::size_t before = std::min<std::size_t>(length, lead);
    lead -= before;
    length = std::min(length - before, own.left());
    if (cut || distance > own.at() || length < kLeastMatch)
      own.add_sought(length);
    else
      own.add_match(length, distance);
  }
  if (own.left() > 0) refuse("the tokens end before the frame does");
  own.flush_literals();
  std::vector<Byte> fragment;
  BitWriter out(fragment);
  write_blocks(out, frame, own.tokens, own.literals);
  write_flush(out);
  out.finish();
  return fragment;
}

bool find_tokens(std::span<const Token> tokens, Numbers edges, Slots index, Slots into) {
  if (index.size() < edges.size() || into.size() < edges.size()) refuse("index and into need a slot for each edge");
  std::uint64_t at = 0, last = 0;  // behind where the tokens begin
  std::size_t next = 0;
  for (std::size_t i = 0; i < edges.size(); ++i) {
    const std::uint64_t edge = edges[i];
    if (edge < last) refuse("edges must not fall");
    last = edge;
    for (; next < tokens.size(); ++next) {
      const Token token = tokens[next];
      const std::uint64_t behind = at + literals_of(token) + length_of(token);
      if (behind > edge) break;
      at = behind;
    }
    if (next == tokens.size() && at < edge) return false;
    index[i] = next;
    into[i] = edge - at;
  }
  return true;
}

}  // namespace croupier
