#include "example_part.h"

#include <algorithm>
#include <cstring>

namespace croupier {
namespace {

std::uint64_t load(const Byte* at) {
  std::uint64_t word;
  std::memcpy(&word, at, 8);
  return word;
}

std::uint64_t hash_of(Bytes name) {
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;
  std::uint64_t hash = name.size() * kOdd;
  std::size_t i = 0;
  for (; i + 8 <= name.size(); i += 8) hash = (hash ^ (hash >> 29) ^ load(name.data() + i)) * kOdd;
  std::uint64_t rest = 0;
  for (; i < name.size(); ++i) rest = rest << 8 | name[i];
  hash = (hash ^ (hash >> 29) ^ rest) * kOdd;
  return hash ^ (hash >> 32);
}

bool is_called(const PartColumn& column, Bytes name) {
  return column.name.size() == name.size() &&
         (name.empty() || std::memcmp(column.name.data(), name.data(), name.size()) == 0);
}

// A length, and that so many bytes are left; false for whatever is unusual.
inline bool length(const Byte*& at, const Byte* end, std::size_t& size) {
  if (at == end) return false;
  size = *at++;
  if (size >= 128) {
    size &= 127;
    for (unsigned shift = 7;; shift += 7) {
      if (at == end || shift > 28) return false;
      const std::size_t byte = *at++;
      size |= (byte & 127) << shift;
      if (byte < 128) break;
    }
  }
  return size <= static_cast<std::size_t>(end - at);
}

// A delimited field that must be this one.
inline bool expect(Byte tag, const Byte*& at, const Byte* end, std::size_t& size) {
  return at != end && *at++ == tag && length(at, end, size);
}

// One that is the last in its message.
inline bool expect_last(Byte tag, const Byte*& at, const Byte* end) {
  std::size_t size;
  return expect(tag, at, end, size) && at + size == end;
}

// Where a name stands; one that is not there is empty.
std::uint64_t offset(Bytes name, Bytes payload) {
  return name.empty() ? 0 : static_cast<std::uint64_t>(name.data() - payload.data());
}

constexpr Byte kFirst = 1 << 3 | kDelimited, kSecond = 2 << 3 | kDelimited;

}  // namespace

std::size_t PartColumn::count() const {
  return holds == Holds::kBytes ? items.size() : values.size() / (holds == Holds::kFloat ? 4 : 8);
}

ExamplePart::ExamplePart(const Asked& asked, std::size_t records, std::uint64_t most)
    : all_(asked.all), strict_(asked.strict), records_(records), most_(most) {
  for (const Asked::Feature& feature : asked.features) {
    const Bytes name{reinterpret_cast<const Byte*>(feature.name.data()), feature.name.size()};
    if (!find(name)) add(name, feature.holds);
  }
}

PartColumn* ExamplePart::find(Bytes name) const {
  if (slots_.empty()) return nullptr;
  for (std::size_t at = hash_of(name);; ++at) {
    PartColumn* const column = slots_[at & (slots_.size() - 1)];
    if (!column || is_called(*column, name)) return column;
  }
}

PartColumn* ExamplePart::add(Bytes name, Holds holds) {
  columns_.push_back(std::make_unique<PartColumn>());
  PartColumn* const column = columns_.back().get();
  column->name.assign(reinterpret_cast<const char*>(name.data()), name.size());
  column->holds = holds;
  column->first = record_;
  if (record_ > 0) {  // the records before did not have it
    column->missing = record_;
    column->ragged = true;
    column->rows.assign(records_ + 1, 0);
    column->present.assign(records_, 1);
    std::fill_n(column->present.begin(), record_, std::uint8_t{0});
  }
  if (columns_.size() * 2 > slots_.size()) widen();
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

// The layout that all writers use: each field once, in order, in its shortest form, numbers packed.
bool ExamplePart::quick(Bytes payload) {
  const Byte* at = payload.data();
  const Byte* const end = at + payload.size();
  if (!expect_last(kFirst, at, end)) return false;
  PartColumn* before = &start_;
  while (at != end) {
    std::size_t size;
    if (!expect(kFirst, at, end, size)) return false;
    const Byte* const stop = at + size;
    if (!expect(kFirst, at, stop, size)) return false;
    const Bytes name{at, size};
    at += size;
    if (!expect_last(kSecond, at, stop)) return false;
    PartColumn* column = before->next;
    if (!is_called(*column, name) || column == &start_) {
      column = find(name);
      if (!column) {
        if (all_ || strict_) return false;
        at = stop;
        continue;
      }
      before->next = column;
    }
    before = column;
    if (column->seen == record_ + 1) return false;
    begin(*column);
    if (!quick_value(*column, at, stop)) return false;
    at = stop;
  }
  return true;
}

bool ExamplePart::quick_value(PartColumn& column, const Byte* at, const Byte* end) {
  if (at == end || *at != (static_cast<unsigned>(column.holds) << 3 | kDelimited)) return false;
  if (!expect_last(*at, at, end)) return false;
  if (column.holds == Holds::kBytes) return quick_strings(column, at, end);
  if (at == end) {
    finish(column, 0);
    return true;
  }
  if (!expect_last(kFirst, at, end)) return false;
  if (column.holds == Holds::kInt64) return quick_ints(column, at, end);
  const std::size_t size = static_cast<std::size_t>(end - at);
  if (size % 4 != 0) return false;
  if (size) std::memcpy(column.values.room(size), at, size);
  column.values.add(size);
  finish(column, size / 4);
  return true;
}

bool ExamplePart::quick_strings(PartColumn& column, const Byte* at, const Byte* end) {
  std::size_t count = 0;
  for (; at != end; ++count) {
    std::size_t size;
    if (!expect(kFirst, at, end, size)) return false;
    if (size) std::memcpy(column.values.room(size), at, size);
    column.values.add(size);
    column.items.push(column.values.size());
    at += size;
  }
  finish(column, count);
  return true;
}

bool ExamplePart::quick_ints(PartColumn& column, const Byte* at, const Byte* end) {
  Byte* const out = column.values.room(static_cast<std::size_t>(end - at) * 8);
  std::size_t count = 0;
  while (at != end) {
    std::uint64_t value = *at++;
    if (value >= 128) {
      value &= 127;
      for (unsigned shift = 7;; shift += 7) {
        if (at == end || shift > 63) return false;
        const std::uint64_t byte = *at++;
        value |= (byte & 127) << shift;
        if (byte < 128) break;
      }
    }
    std::memcpy(out + count++ * 8, &value, 8);
  }
  column.values.add(count * 8);
  finish(column, count);
  return true;
}

void ExamplePart::begin(PartColumn& column) {
  column.seen = record_ + 1;
  column.before_values = column.values.size();
  column.before_items = column.items.size();
  ++touched_;
}

void ExamplePart::finish(PartColumn& column, std::size_t count) {
  if (!column.ragged) {
    if (count == column.each) [[likely]] return;
    if (record_ == 0) {
      column.each = count;
      return;
    }
    make_ragged(column);
  }
  column.rows[record_ + 1] = column.count();
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
    column->rows[record_ + 1] = column->count();
  }
}

// As if this record had not been begun.
void ExamplePart::undo() {
  if (touched_ == 0) return;
  for (const auto& column : columns_) {
    if (column->seen != record_ + 1) continue;
    column->values.cut(column->before_values);
    column->items.cut(column->before_items);
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
    if (strict_) return wrong(Flaw::kUnasked, feature.name, payload);
    if ((columns_.size() + 1) * (records_ + 1) > most_) return wrong(Flaw::kMany, feature.name, payload);
    column = add(feature.name, feature.value.holds);
  }
  if (column->holds == Holds::kNothing) {
    column->holds = feature.value.holds;
    column->first = record_;
  }
  if (column->first == record_) column->first_offset = offset(feature.name, payload);
  if (column->holds != feature.value.holds)
    return wrong(Flaw::kHolds, feature.name, payload, column->holds, feature.value.holds);
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
    column.items.push(column.values.size());
  }
  finish(column, value.count());
}

// The first one of a record stands.
bool ExamplePart::wrong(Flaw flaw, Bytes name, Bytes payload, Holds expected, Holds found) {
  if (flaw_.flaw == Flaw::kNone)
    flaw_ = {flaw, record_, offset(name, payload),
             std::string(reinterpret_cast<const char*>(name.data()), name.size()), expected, found};
  return false;
}

}  // namespace croupier
