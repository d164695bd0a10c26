#include "values.h"

#include <algorithm>
#include <string_view>

namespace croupier {
namespace {

using U64 = std::uint64_t;

// The two halves of a 128-bit product, mixed: the step of wyhash (which is in the public domain).
U64 mix(U64 a, U64 b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<U64>(product) ^ static_cast<U64>(product >> 64);
}

constexpr U64 kOne = 0xa0761d6478bd642f, kTwo = 0xe7037ed1a0b428db;

bool begins(Bytes value, std::string_view with, std::size_t at = 0) {
  return value.size() >= at + with.size() && std::memcmp(value.data() + at, with.data(), with.size()) == 0;
}

Byte image_of(Bytes value) {
  using std::literals::operator""sv;
  if (begins(value, "\xff\xd8\xff"sv)) return kJpeg;
  if (begins(value, "\x89PNG\r\n\x1a\n"sv)) return kPng;
  if (begins(value, "GIF87a"sv) || begins(value, "GIF89a"sv)) return kGif;
  if (begins(value, "RIFF"sv) && begins(value, "WEBP"sv, 8)) return kWebp;
  if (begins(value, "II*\0"sv) || begins(value, "MM\0*"sv)) return kTiff;
  // "BM" alone begins many a word: the file's own size, and the zeros behind it, must be right as well.
  if (begins(value, "BM"sv) && value.size() >= 26 && load32(value.data() + 2) == value.size() &&
      load32(value.data() + 6) == 0)
    return kBmp;
  return 0;
}

constexpr U64 kHighs = 0x8080808080808080, kLows = 0x0101010101010101;

// Whether eight bytes are ASCII from the space on.
bool plain(U64 word) { return ((word | (word - kLows * 0x20)) & kHighs) == 0; }

bool is_space(Byte c) { return c >= '\t' && c <= '\r'; }

// The bytes of the character that begins with a byte of 0x80 or more; 0 if it is none in UTF-8.
std::size_t character(const Byte* p, std::size_t left) {
  const Byte c = *p;
  const std::size_t size = c >= 0xc2 && c <= 0xdf ? 2 : c >= 0xe0 && c <= 0xef ? 3 : c >= 0xf0 && c <= 0xf4 ? 4 : 0;
  if (size == 0 || left < size) return 0;
  // What is too long for its character, a surrogate, or beyond the last one shows in the second byte.
  const Byte least = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80, most = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
  if (p[1] < least || p[1] > most) return 0;
  for (std::size_t i = 2; i < size; ++i)
    if ((p[i] & 0xc0) != 0x80) return 0;
  return size;
}

Byte text_of(Bytes value) {
  const Byte* p = value.data();
  const Byte* const end = p + value.size();
  Byte flags = kText | kUtf8;
  while (p != end) {
    if (end - p >= 8 && plain(load64(p))) {
      p += 8;
    } else if (*p < 0x80) {
      if (*p < 0x20 && !is_space(*p)) flags = kUtf8;
      ++p;
    } else {
      const std::size_t size = character(p, static_cast<std::size_t>(end - p));
      if (size == 0) return 0;
      p += size;
    }
  }
  return flags;
}

// A protobuf message's fields, one after the other; `next` is false at the end and where it is not one.
class Fields {
 public:
  explicit Fields(Bytes message) : rest_(message) {}

  bool next() {
    if (rest_.empty()) return false;
    U64 tag = 0, value = 0;
    good_ = varint(tag) && tag >> 3 >= 1 && tag >> 3 <= kLast && field(static_cast<unsigned>(tag & 7), value);
    number_ = tag >> 3;
    return good_;
  }
  bool good() const { return good_; }
  // The bytes of this field, if it is this one and has a length.
  bool is(U64 number) const { return number_ == number && sized_; }
  Bytes bytes() const { return bytes_; }

 private:
  static constexpr U64 kLast = 100'000;  // numbers beyond are allowed, and nobody uses them

  bool field(unsigned type, U64& value) {
    sized_ = type == 2;
    if (type == 0) return varint(value);
    if (type == 1 || type == 5) value = type == 1 ? 8 : 4;
    else if (type != 2 || !varint(value)) return false;  // groups are as rare as they are easy to mistake
    if (value > rest_.size()) return false;
    bytes_ = rest_.first(static_cast<std::size_t>(value));
    rest_ = rest_.subspan(static_cast<std::size_t>(value));
    return true;
  }
  bool varint(U64& value) {
    value = 0;
    for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const Byte c = rest_.front();
      rest_ = rest_.subspan(1);
      if (shift == 63 && c > 1) return false;
      value |= U64{c & 0x7fU} << shift;
      if (c < 0x80) return true;
    }
    return false;
  }

  Bytes rest_, bytes_;
  U64 number_ = 0;
  bool good_ = true, sized_ = false;
};

// An entry of the map of features: a name that is text, and a feature.
bool is_entry(Bytes entry) {
  Fields fields(entry);
  bool named = false;
  while (fields.next()) {
    if (fields.is(1)) named = !fields.bytes().empty() && (text_of(fields.bytes()) & kText);
    else if (!fields.is(2)) return false;
  }
  return fields.good() && named;
}

Byte proto_of(Bytes value) {
  Fields fields(value);
  bool example = true;
  std::size_t features = 0;
  while (fields.next()) {
    example = example && fields.is(1);
    if (!example) continue;
    Fields entries(fields.bytes());
    while (example && entries.next()) {
      example = entries.is(1) && is_entry(entries.bytes());
      ++features;
    }
    example = example && entries.good();
  }
  if (!fields.good()) return 0;
  return example && features ? kProto | kExample : kProto;
}

}  // namespace

U64 hash_of(Bytes value) {
  const Byte* p = value.data();
  std::size_t n = value.size();
  U64 state = kOne ^ n, a = 0, b = 0;
  for (; n > 16; n -= 16, p += 16) state = mix(load64(p) ^ kTwo, load64(p + 8) ^ state);
  if (n >= 8) {
    a = load64(p);
    b = load64(p + n - 8);
  } else if (n >= 4) {
    a = load32(p);
    b = load32(p + n - 4);
  } else if (n > 0) {
    a = U64{p[0]} << 16 | U64{p[n / 2]} << 8 | p[n - 1];
  }
  return mix(kTwo ^ value.size(), mix(a ^ kTwo, b ^ state));
}

Byte looks_of(Bytes value) {
  if (value.empty()) return kText | kUtf8 | kProto | kExample;
  if (const Byte image = image_of(value)) return image;
  return text_of(value) | proto_of(value);
}

void inspect_values(Bytes values, Numbers edges, Slots hashes, Room looks) {
  const std::size_t count = edges.empty() ? 0 : edges.size() - 1;
  if (hashes.size() < count || looks.size() < count) refuse("hashes and looks must have room for all values");
  for (std::size_t i = 0; i < count; ++i) {
    const U64 begin = edges[i], end = edges[i + 1];
    if (end > values.size() || begin > end) refuse("edges must ascend and lie within values");
    const Bytes value = values.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    hashes[i] = hash_of(value);
    looks[i] = looks_of(value);
  }
}

}  // namespace croupier
