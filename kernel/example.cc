#include "example.h"

#include <algorithm>
#include <cstring>

namespace croupier {

std::uint64_t Wire::varint(int most) {
  std::uint64_t value = 0;
  const Byte* const begin = at_;
  for (int i = 0; i < most; ++i) {
    if (at_ == end_) throw Flawed{Flaw::kCut, begin};
    const Byte byte = *at_++;
    value |= static_cast<std::uint64_t>(byte & 127) << (7 * i);  // the tenth's upper bits fall off, as in upb
    if (byte < 128) return value;
  }
  throw Flawed{Flaw::kVarint, begin};
}

std::uint64_t Wire::varint() { return varint(10); }

Wire::Field Wire::field() {
  const Byte* const at = at_;
  const std::uint64_t tag = varint(5);
  if (tag > 0xffffffff) throw Flawed{Flaw::kTag, at};
  return {static_cast<std::uint32_t>(tag >> 3), static_cast<unsigned>(tag & 7), at};
}

void Wire::pass(std::size_t count) {
  if (static_cast<std::size_t>(end_ - at_) < count) throw Flawed{Flaw::kCut, at_};
  at_ += count;
}

std::uint32_t Wire::fixed32() {
  const Byte* const at = at_;
  pass(4);
  return static_cast<std::uint32_t>(at[0] | at[1] << 8 | at[2] << 16) | static_cast<std::uint32_t>(at[3]) << 24;
}

Bytes Wire::bytes() {
  const Byte* const at = at_;
  const std::uint64_t size = varint();
  if (size > static_cast<std::uint64_t>(end_ - at_)) throw Flawed{Flaw::kCut, at};
  const Bytes inside{at_, static_cast<std::size_t>(size)};
  at_ += size;
  return inside;
}

void Wire::skip(const Field& field) {
  if (field.number == 0) throw Flawed{Flaw::kTag, field.at};
  switch (field.wire) {
    case kVarint:
      varint();
      return;
    case kFixed64:
      return pass(8);
    case kDelimited:
      bytes();
      return;
    case kStartGroup:
      return skip_group(field.number, field.at);
    case kEndGroup:
      throw Flawed{Flaw::kGroup, field.at};
    case kFixed32:
      return pass(4);
    default:
      throw Flawed{Flaw::kTag, field.at};
  }
}

void Wire::skip_group(std::uint32_t number, const Byte* at) {
  if (--depth_ < 0) throw Flawed{Flaw::kDeep, at};
  for (;;) {
    if (done()) throw Flawed{Flaw::kGroup, at};
    const Field inner = field();
    if (inner.wire == kEndGroup) {
      if (inner.number != number) throw Flawed{Flaw::kGroup, inner.at};
      ++depth_;
      return;
    }
    skip(inner);
  }
}

void Value::hold(Holds kind) {
  if (holds == kind) return;
  holds = kind;
  ints.clear();
  floats.clear();
  strings.clear();
}

namespace {

void read_strings(Wire list, std::vector<Bytes>& values) {
  while (!list.done()) {
    const Wire::Field field = list.field();
    if (field.is(1, kDelimited))
      values.push_back(list.bytes());
    else
      list.skip(field);
  }
}

void read_floats(Wire list, std::vector<std::uint32_t>& values) {
  while (!list.done()) {
    const Wire::Field field = list.field();
    if (field.is(1, kDelimited)) {
      const Bytes packed = list.bytes();
      if (packed.size() % 4 != 0) throw Flawed{Flaw::kPacked, packed.data()};
      for (Wire in(packed); !in.done();) values.push_back(in.fixed32());
    } else if (field.is(1, kFixed32)) {
      values.push_back(list.fixed32());
    } else {
      list.skip(field);
    }
  }
}

void read_ints(Wire list, std::vector<std::int64_t>& values) {
  while (!list.done()) {
    const Wire::Field field = list.field();
    if (field.is(1, kDelimited)) {
      for (Wire in = list.message(); !in.done();) values.push_back(static_cast<std::int64_t>(in.varint()));
    } else if (field.is(1, kVarint)) {
      values.push_back(static_cast<std::int64_t>(list.varint()));
    } else {
      list.skip(field);
    }
  }
}

}  // namespace

void read_feature(Wire wire, Value& value) {
  while (!wire.done()) {
    const Wire::Field field = wire.field();
    if (field.wire != kDelimited || field.number < 1 || field.number > 3) {
      wire.skip(field);
      continue;
    }
    value.hold(static_cast<Holds>(field.number));
    switch (value.holds) {
      case Holds::kBytes:
        read_strings(wire.message(), value.strings);
        break;
      case Holds::kFloat:
        read_floats(wire.message(), value.floats);
        break;
      default:
        read_ints(wire.message(), value.ints);
    }
  }
}

Entry read_entry(Wire wire) {
  Entry entry;
  entry.depth = wire.depth() - 1;
  while (!wire.done()) {
    const Wire::Field field = wire.field();
    if (field.is(1, kDelimited)) {
      entry.name = wire.bytes();
      if (!entry.foul && !is_utf8(entry.name)) entry.foul = entry.name.data();
    } else if (field.is(2, kDelimited)) {
      entry.values.push_back(wire.bytes());
    } else {
      wire.skip(field);
      entry.strange = true;
    }
  }
  return entry;
}

namespace {

bool same(Bytes a, Bytes b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

// In the order of names; of those that are called the same, the last.
template <class Item>
void as_map(std::vector<Item>& items) {
  std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return is_before(a.name, b.name); });
  std::size_t kept = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i + 1 < items.size() && same(items[i].name, items[i + 1].name)) continue;
    if (kept != i) items[kept] = std::move(items[i]);
    ++kept;
  }
  items.resize(kept);
}

void read_features(Wire wire, std::vector<Named>& features, Wanted wanted, const void* self) {
  while (!wire.done()) {
    const Wire::Field field = wire.field();
    if (!field.is(1, kDelimited)) {
      wire.skip(field);
      continue;
    }
    const Entry entry = read_entry(wire.message());
    if (wanted && !wanted(self, entry.name)) continue;
    if (entry.foul) throw Flawed{Flaw::kName, entry.foul};
    Named feature{entry.name, {}};
    for (const Bytes value : entry.values) read_feature(Wire(value, entry.depth), feature.value);
    if (!entry.strange) features.push_back(std::move(feature));
  }
}

void read_list(Wire wire, std::vector<Value>& values) {
  while (!wire.done()) {
    const Wire::Field field = wire.field();
    if (field.is(1, kDelimited))
      read_feature(wire.message(), values.emplace_back());
    else
      wire.skip(field);
  }
}

void read_lists(Wire wire, std::vector<NamedList>& lists) {
  while (!wire.done()) {
    const Wire::Field field = wire.field();
    if (!field.is(1, kDelimited)) {
      wire.skip(field);
      continue;
    }
    const Entry entry = read_entry(wire.message());
    if (entry.foul) throw Flawed{Flaw::kName, entry.foul};
    NamedList list{entry.name, {}};
    for (const Bytes value : entry.values) read_list(Wire(value, entry.depth), list.values);
    if (!entry.strange) lists.push_back(std::move(list));
  }
}

}  // namespace

std::vector<Named> read_example(Bytes payload, Wanted wanted, const void* self) {
  std::vector<Named> features;
  for (Wire wire(payload); !wire.done();) {
    const Wire::Field field = wire.field();
    if (field.is(1, kDelimited))
      read_features(wire.message(), features, wanted, self);
    else
      wire.skip(field);
  }
  as_map(features);
  return features;
}

Sequence read_sequence(Bytes payload) {
  Sequence found;
  for (Wire wire(payload); !wire.done();) {
    const Wire::Field field = wire.field();
    if (field.is(1, kDelimited))
      read_features(wire.message(), found.context, nullptr, nullptr);
    else if (field.is(2, kDelimited))
      read_lists(wire.message(), found.lists);
    else
      wire.skip(field);
  }
  as_map(found.context);
  as_map(found.lists);
  return found;
}

bool is_before(Bytes a, Bytes b) {
  const std::size_t common = std::min(a.size(), b.size());
  const int order = common == 0 ? 0 : std::memcmp(a.data(), b.data(), common);
  return order != 0 ? order < 0 : a.size() < b.size();
}

// Neither overlong forms nor surrogates nor anything above U+10FFFF.
bool is_utf8(Bytes text) {
  std::size_t i = 0;
  const std::size_t n = text.size();
  while (i < n) {
    const unsigned lead = text[i];
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const std::size_t more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
    if (lead < 0xc2 || lead > 0xf4 || n - i <= more) return false;
    const unsigned second = text[i + 1];
    const unsigned least = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const unsigned most = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (second < least || second > most) return false;
    for (std::size_t k = 2; k <= more; ++k)
      if ((text[i + k] & 0xc0) != 0x80) return false;
    i += more + 1;
  }
  return true;
}

}  // namespace croupier
