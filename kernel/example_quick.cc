// Records in the layout that all writers use: each field once, in order, in its shortest form, numbers packed.
#include <bit>
#include <cstring>

#include "example_part.h"

namespace croupier {
namespace {

constexpr Byte kFirst = 1 << 3 | kDelimited, kSecond = 2 << 3 | kDelimited;
constexpr std::size_t kShort = 128;             // lengths below this are one byte
constexpr std::size_t kLarge = 256;
constexpr std::size_t kNear = 2 + kShort + 32;  // what may be read from an entry's begin on, if it is that short

// A length, and that so many bytes are left; false for whatever is unusual.
inline bool length(const Byte*& at, const Byte* end, std::size_t& size) {
  if (at == end) return false;
  size = *at++;
  if (size >= kShort) {
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

// Value, list and numbers or a single string in each other, of less than 128 bytes, are six bytes and what is in
// them: 12 F kind L 0a P, where F, L and P are known from the entry's length. As one number:
constexpr std::uint64_t kSizes = std::uint64_t{1} << 8 | std::uint64_t{1} << 24 | std::uint64_t{1} << 40;
constexpr std::uint64_t kHeads = kSecond | std::uint64_t{kDelimited} << 16 | std::uint64_t{kFirst} << 32;
constexpr std::uint64_t kLess = std::uint64_t{2} << 24 | std::uint64_t{4} << 40;
constexpr std::uint64_t heads(Holds holds, std::uint64_t value_size) {
  return kHeads + (static_cast<std::uint64_t>(holds) << 19) + value_size * kSizes - kLess;
}

}  // namespace

bool ExamplePart::quick(Bytes payload) {
  const Byte* at = payload.data();
  const Byte* const end = at + payload.size();
  if (!expect_last(kFirst, at, end)) return false;
  PartColumn* before = &start_;
  while (at != end) {
    if (static_cast<std::size_t>(limit_ - at) >= kNear) [[likely]] {
      if (const Byte* const next = quick_entry(before, at, end)) [[likely]] {
        at = next;
        continue;
      }
    }
    std::size_t size;
    if (!expect(kFirst, at, end, size)) return false;
    const Byte* const stop = at + size;
    if (!expect(kFirst, at, stop, size)) return false;
    const Bytes name{at, size};
    at += size;
    if (!expect_last(kSecond, at, stop)) return false;
    PartColumn* column = before->next;
    if (column == &start_ || !column->is_called(name)) column = find(name);
    if (column) {
      before = before->next = column;
      if (column->seen == record_ + 1) return false;
      begin(*column);
      if (!quick_value(*column, at, stop)) return false;
    } else if (all_ || strict_) {
      return false;
    }
    at = stop;
  }
  return true;
}

// An entry of less than 128 bytes with some numbers or one string; null for any other. Gives where the next begins.
const Byte* ExamplePart::quick_entry(PartColumn*& before, const Byte* at, const Byte* end) {
  const std::size_t size = at[1], name_size = at[3];
  const Byte* const stop = at + 2 + size;
  if (at[0] != kFirst || at[2] != kFirst || size >= kShort || size < name_size + 8 || stop > end) return nullptr;
  const Byte* const value = at + 4 + name_size;
  const std::uint64_t value_size = size - name_size - 4;
  PartColumn* column = before->next;
  if (!column->is_key(at + 2)) {
    column = find_key(at + 2, name_size);
    if (!column) return !all_ && !strict_ && value[0] == kSecond && value[1] == value_size ? stop : nullptr;
  }
  const std::uint64_t found = load64(value) & 0xffffffffffff;
  if (found != heads(column->holds, value_size) || column->seen == record_ + 1) return nullptr;
  if (column->holds == Holds::kNothing) return nullptr;  // not known yet: and 0 is no field
  before = before->next = column;
  begin(*column);
  const Byte* const data = value + 6;
  const std::size_t data_size = static_cast<std::size_t>(stop - data);
  if (column->holds == Holds::kBytes) {
    copy(*column, data, data_size);
    column->items.push(column->bytes());
    finish(*column, 1);
    return stop;
  }
  const std::uint64_t word = load64(data), ends = ~word & 0x8080808080808080;
  if (column->holds == Holds::kInt64 && ends && static_cast<std::size_t>(std::countr_zero(ends)) == 8 * data_size - 1) {
    const std::uint64_t number = squeeze(word & 0x7f7f7f7f7f7f7f7f & (ends ^ (ends - 1)));
    std::memcpy(column->values.room(8), &number, 8);
    column->values.add(8);
    finish(*column, 1);
    return stop;
  }
  return quick_numbers(*column, data, stop) ? stop : nullptr;
}

bool ExamplePart::quick_value(PartColumn& column, const Byte* at, const Byte* end) {
  const Byte tag = static_cast<Byte>(static_cast<unsigned>(column.holds) << 3 | kDelimited);
  if (column.holds == Holds::kNothing || !expect_last(tag, at, end)) return false;
  if (column.holds == Holds::kBytes) return quick_strings(column, at, end);
  if (at != end && !expect_last(kFirst, at, end)) return false;
  return quick_numbers(column, at, end);
}

bool ExamplePart::quick_strings(PartColumn& column, const Byte* at, const Byte* end) {
  std::size_t count = 0;
  for (; at != end; ++count) {
    std::size_t size;
    if (!expect(kFirst, at, end, size)) return false;
    copy(column, at, size);
    column.items.push(column.bytes());
    at += size;
  }
  finish(column, count);
  return true;
}

bool ExamplePart::quick_numbers(PartColumn& column, const Byte* at, const Byte* end) {
  const std::size_t size = static_cast<std::size_t>(end - at);
  if (column.holds == Holds::kFloat) {
    if (size % 4 != 0) return false;
    copy(column, at, size);
    finish(column, size / 4);
    return true;
  }
  std::size_t count;
  if (size >= kLarge) {
    count = varints_.count(at, end, limit_);
    if (count == kNoVarints) return false;
    defer(column, at, size, count * 8);
  } else {
    auto* const room = reinterpret_cast<std::uint64_t*>(column.values.room(size * 8));
    count = varints_.unpack(at, end, limit_, {room, size});
    if (count == kNoVarints) return false;
    column.values.add(count * 8);
  }
  finish(column, count);
  return true;
}

inline void ExamplePart::copy(PartColumn& column, const Byte* at, std::size_t size) {
  constexpr std::size_t kFew = 16;
  if (size >= kLarge) return defer(column, at, size, size);
  Byte* const to = column.values.room(size + kFew);
  if (size <= kFew && static_cast<std::size_t>(limit_ - at) >= kFew)
    std::memcpy(to, at, kFew);  // so many always, which is two instructions
  else
    std::memcpy(to, at, size);
  column.values.add(size);
}

void ExamplePart::defer(PartColumn& column, const Byte* at, std::size_t size, std::uint64_t bytes) {
  column.large.push_back({record_, column.values.size(), static_cast<std::uint64_t>(at - source_), size, bytes});
  column.deferred += bytes;
}

}  // namespace croupier
