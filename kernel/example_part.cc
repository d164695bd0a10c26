#include "example_part.h"

#include <algorithm>
#include <cstring>

namespace croupier {
namespace {

// Where a name stands; one that is not there is empty.
std::uint64_t offset(Bytes name, Bytes payload) {
  return name.empty() ? 0 : static_cast<std::uint64_t>(name.data() - payload.data());
}

}  // namespace

PartColumn::PartColumn(Bytes of) : name(reinterpret_cast<const char*>(of.data()), of.size()) {
  const std::size_t size = 2 + of.size();
  if (of.size() >= 128 || size > sizeof key) return;
  Byte raw[sizeof key] = {1 << 3 | kDelimited, static_cast<Byte>(of.size())};
  if (!of.empty()) std::memcpy(raw + 2, of.data(), of.size());
  std::memcpy(key, raw, sizeof key);
  words = static_cast<std::uint8_t>((size + 7) / 8);
  mask = ~std::uint64_t{0} >> (64 - 8 * (size - 8 * (words - 1U)));
}

bool PartColumn::is_called(Bytes other) const {
  return name.size() == other.size() && (other.empty() || std::memcmp(name.data(), other.data(), other.size()) == 0);
}

std::uint64_t PartColumn::count() const {
  return holds == Holds::kBytes ? items.size() : bytes() / (holds == Holds::kFloat ? 4 : 8);
}

ExamplePart::ExamplePart(const Asked& asked, Bytes source, std::size_t records, std::uint64_t most)
    : all_(asked.all),
      strict_(asked.strict),
      records_(records),
      most_(most),
      source_(source.data()),
      limit_(source.data() + source.size()) {
  start_.words = 0;
  for (const Asked::Feature& feature : asked.features) {
    add({reinterpret_cast<const Byte*>(feature.name.data()), feature.name.size()}, feature.holds);
  }
}

// All bytes count; those of the last word may be counted twice.
std::uint64_t ExamplePart::hash_of(Bytes name) {
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;
  const Byte* const at = name.data();
  const std::size_t size = name.size();
  std::uint64_t hash = size * kOdd, rest = 0;
  if (size >= 8) {
    for (std::size_t i = 0; i + 8 < size; i += 8) hash = ((hash ^ load64(at + i)) * kOdd) ^ (hash >> 32);
    rest = load64(at + size - 8);
  } else if (size >= 4) {
    rest = std::uint64_t{load32(at)} << 32 | load32(at + size - 4);
  } else if (size > 0) {
    rest = static_cast<std::uint64_t>(at[0] | at[size / 2] << 8 | at[size - 1] << 16);
  }
  hash = (hash ^ rest) * kOdd;
  return hash ^ (hash >> 32);
}

template <class Is>
PartColumn* ExamplePart::look_up(Bytes name, const Is& is) const {
  if (slots_.empty()) return nullptr;
  for (std::size_t at = hash_of(name);; ++at) {
    PartColumn* const column = slots_[at & (slots_.size() - 1)];
    if (!column || is(*column)) return column;
  }
}

PartColumn* ExamplePart::find(Bytes name) const {
  return look_up(name, [&](const PartColumn& column) { return column.is_called(name); });
}

PartColumn* ExamplePart::find_key(const Byte* at, std::size_t size) const {
  const Bytes name{at + 2, size};
  return look_up(name, [&](const PartColumn& column) { return column.words ? column.is_key(at) : column.is_called(name); });
}

PartColumn* ExamplePart::add(Bytes name, Holds holds) {
  columns_.push_back(std::make_unique<PartColumn>(name));
  PartColumn* const column = columns_.back().get();
  column->holds = holds;
  column->first = record_;
  if (record_ > 0) {  // the records before did not have it
    column->missing = record_;
    column->ragged = true;
    column->rows.assign(records_ + 1, 0);
    column->present.assign(records_, 1);
    std::fill_n(column->present.begin(), record_, std::uint8_t{0});
  }
  const std::size_t few = std::min<std::size_t>(records_ - record_, 512);
  column->values.room(few * 8);
  if (holds == Holds::kBytes) column->items.room(few);
  if (columns_.size() * 8 > slots_.size()) widen();  // sparse, so that the first slot is mostly the right one
  std::size_t at = hash_of(name);
  while (slots_[at & (slots_.size() - 1)]) ++at;
  slots_[at & (slots_.size() - 1)] = column;
  return column;
}

void ExamplePart::widen() {
  std::vector<PartColumn*> wider(std::max<std::size_t>(16, slots_.size() * 2), nullptr);
  for (PartColumn* column : slots_) {
    if (!column) continue;
    std::size_t at = hash_of({reinterpret_cast<const Byte*>(column->name.data()), column->name.size()});
    while (wider[at & (wider.size() - 1)]) ++at;
    wider[at & (wider.size() - 1)] = column;
  }
  slots_.swap(wider);
}

bool ExamplePart::parse(Bytes payload) {
  touched_ = 0;
  if (!payload.empty() && !quick(payload)) {
    undo();
    if (!general(payload)) return false;
  }
  if (touched_ != columns_.size()) mark_missing();
  ++record_;
  return true;
}

void ExamplePart::finish_ragged(PartColumn& column, std::size_t count) {
  if (!column.ragged && record_ == 0) {
    column.each = count;
    return;
  }
  if (!column.ragged) make_ragged(column);
  column.rows[record_ + 1] = column.rows[record_] + count;
}

void ExamplePart::make_ragged(PartColumn& column) {
  column.ragged = true;
  column.rows.resize(records_ + 1);
  for (std::size_t i = 0; i <= record_; ++i) column.rows[i] = i * column.each;
}

void ExamplePart::mark_missing() {
  for (const auto& column : columns_) {
    if (column->seen == record_ + 1) continue;
    if (column->missing++ == 0) column->present.assign(records_, 1);
    column->present[record_] = 0;
    if (!column->ragged) make_ragged(*column);
    column->rows[record_ + 1] = column->rows[record_];
  }
}

// As if this record had not been begun.
void ExamplePart::undo() {
  for (const auto& column : columns_) {
    if (column->seen != record_ + 1) continue;
    for (; !column->large.empty() && column->large.back().record == record_; column->large.pop_back())
      column->deferred -= column->large.back().bytes;
    const std::size_t count = column->before(record_);
    std::uint64_t bytes = count * (column->holds == Holds::kFloat ? 4 : 8);
    if (column->holds == Holds::kBytes) {
      column->items.cut(count);
      bytes = count == 0 ? 0 : column->items.data()[count - 1];
    }
    column->values.cut(bytes - column->deferred);
    column->seen = 0;
  }
  touched_ = 0;
}

bool ExamplePart::general(Bytes payload) {
  const Wanted wanted = [](const void* self, Bytes name) {
    return static_cast<const ExamplePart*>(self)->find(name) != nullptr;
  };
  try {
    bool right = true;
    for (const Named& feature : read_example(payload, all_ || strict_ ? nullptr : wanted, this))
      right = take(feature, payload) && right;
    return right;
  } catch (const Flawed& flawed) {
    flaw_ = {flawed.flaw, record_, static_cast<std::uint64_t>(flawed.at - payload.data()), {}, {}, {}};
    return false;
  }
}

bool ExamplePart::take(const Named& feature, Bytes payload) {
  if (feature.value.holds == Holds::kNothing) return true;  // as if it were not there
  PartColumn* column = find(feature.name);
  if (!column) {
    if (strict_) return wrong(Flaw::kUnasked, feature, payload);
    if ((columns_.size() + 1) * (records_ + 1) > most_) return wrong(Flaw::kMany, feature, payload);
    column = add(feature.name, feature.value.holds);
  }
  if (column->holds == Holds::kNothing) {
    column->holds = feature.value.holds;
    column->first = record_;
  }
  if (column->first == record_) column->first_offset = offset(feature.name, payload);
  if (column->holds != feature.value.holds)
    return wrong(Flaw::kHolds, feature, payload, column->holds);
  begin(*column);
  append(*column, feature.value);
  return true;
}

void ExamplePart::append(PartColumn& column, const Value& value) {
  const auto copy = [&](const void* from, std::size_t size) {
    if (size) std::memcpy(column.values.room(size), from, size);
    column.values.add(size);
  };
  copy(value.ints.data(), value.ints.size() * 8);
  copy(value.floats.data(), value.floats.size() * 4);
  for (const Bytes string : value.strings) {
    copy(string.data(), string.size());
    column.items.push(column.bytes());
  }
  finish(column, value.count());
}

void ExamplePart::fill(const PartColumn& column, Bytes source, Byte* to) const {
  std::uint64_t done = 0;
  const auto small = [&](std::uint64_t end) {
    if (end > done) std::memcpy(to, column.values.data() + done, end - done);
    to += end - done;
    done = end;
  };
  for (const Large& large : column.large) {
    small(large.before);
    if (large.offset > source.size() || large.size > source.size() - large.offset) refuse("these are other payloads");
    const Byte* const at = source.data() + large.offset;
    if (column.holds != Holds::kInt64) {
      std::memcpy(to, at, large.bytes);
    } else {
      const Slots room{reinterpret_cast<std::uint64_t*>(to), large.bytes / 8};
      const std::size_t count = varints_.unpack(at, at + large.size, source.data() + source.size(), room);
      if (count != room.size()) refuse("the payloads were changed while they were read");
    }
    to += large.bytes;
  }
  small(column.values.size());
}

// The first one of a record stands.
bool ExamplePart::wrong(Flaw flaw, const Named& feature, Bytes payload, Holds expected) {
  const std::string name(reinterpret_cast<const char*>(feature.name.data()), feature.name.size());
  if (flaw_.flaw == Flaw::kNone)
    flaw_ = {flaw, record_, offset(feature.name, payload), name, expected, feature.value.holds};
  return false;
}

}  // namespace croupier
