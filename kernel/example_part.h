// A run of records parsed by one thread: for example_batch.cc.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "example_batch.h"
#include "varints.h"

namespace croupier {

// Grows as bytes really arrive.
template <class T>
class Growing {
 public:
  Growing() = default;
  Growing(const Growing&) = delete;
  Growing& operator=(const Growing&) = delete;
  ~Growing() { std::free(begin_); }

  // The place for the next values, of which there may be `more`.
  T* room(std::size_t more) {
    if (static_cast<std::size_t>(end_ - top_) < more) [[unlikely]] grow(more);
    return top_;
  }
  void add(std::size_t count) { top_ += count; }
  void push(T value) {
    *room(1) = value;
    ++top_;
  }
  void cut(std::size_t size) { top_ = begin_ + size; }
  std::size_t size() const { return static_cast<std::size_t>(top_ - begin_); }
  const T* data() const { return begin_; }

 private:
  void grow(std::size_t more) {
    const std::size_t size = this->size(), room = std::max({std::size_t{64}, 2 * size, size + more});
    T* const data = static_cast<T*>(std::realloc(begin_, room * sizeof(T)));
    if (!data) throw std::bad_alloc();
    begin_ = data;
    top_ = data + size;
    end_ = data + room;
  }
  T *begin_ = nullptr, *top_ = nullptr, *end_ = nullptr;
};

// Values that stay in the payload until their place is known: copied once instead of twice.
struct Large {
  std::size_t record;
  std::uint64_t before;  // bytes of the column's small values that stand before them
  std::uint64_t offset, size;  // in all payloads
  std::uint64_t bytes;         // as values
};

// A feature of a part's records.
struct PartColumn {
  explicit PartColumn(Bytes of);
  bool is_called(Bytes other) const;
  // Whether the field at this place is the name; so many words may be read there.
  bool is_key(const Byte* at) const {
    if (words == 0) return false;
    std::size_t i = 0;
    for (; i + 1 < words; ++i)
      if (load64(at + 8 * i) != key[i]) return false;
    return (load64(at + 8 * i) & mask) == key[i];
  }

  // Tag, length and name as they stand on the wire, in words, if they are at most this many.
  static constexpr std::size_t kWords = 4;
  std::uint64_t key[kWords] = {};
  std::uint64_t mask = 0;        // of the last word
  std::uint8_t words = 0;        // 0: too many
  Holds holds = Holds::kNothing;
  bool ragged = false;           // records differ in how many values they have: then
  std::vector<std::uint64_t> rows;  // their ends are here, else
  std::size_t each = 0;          // all have as many
  PartColumn* next = this;       // what followed it in the last record: mostly it does so again
  std::size_t seen = 0;          // the last record that had it, plus one
  Growing<Byte> values;          // 8 bytes each, 4 bytes each, or all strings' bytes, without
  std::vector<Large> large;      // these,
  std::uint64_t deferred = 0;    // which are so many bytes
  Growing<std::uint64_t> items;  // strings' ends
  std::string name;
  std::size_t first = 0;          // the first record that had it,
  std::uint64_t first_offset = 0; // and where its name stands there
  std::size_t missing = 0;           // records that lack it;
  std::vector<std::uint8_t> present; // if any: which ones

  std::uint64_t bytes() const { return values.size() + deferred; }
  std::uint64_t count() const;  // values
  std::size_t before(std::size_t record) const { return ragged ? rows[record] : each * record; }
};

class ExamplePart {
 public:
  // Of this many records in `source`; at most `most` rows in all columns together: names come from the data.
  ExamplePart(const Asked& asked, Bytes source, std::size_t records, std::uint64_t most);

  // The next record. False when something is wrong with it: see `flaw`.
  bool parse(Bytes payload);
  // The values of one of its columns.
  void fill(const PartColumn& column, Bytes source, Byte* to) const;

  const std::vector<std::unique_ptr<PartColumn>>& columns() const { return columns_; }
  const BatchFlaw& flaw() const { return flaw_; }
  std::size_t records() const { return records_; }

 private:
  // The layout that all writers use (example_quick.cc). False: something is unusual, and nothing is sure.
  bool quick(Bytes payload);
  const Byte* quick_entry(PartColumn*& before, const Byte* at, const Byte* end);
  bool quick_value(PartColumn& column, const Byte* at, const Byte* end);
  bool quick_strings(PartColumn& column, const Byte* at, const Byte* end);
  bool quick_numbers(PartColumn& column, const Byte* at, const Byte* end);
  void copy(PartColumn& column, const Byte* at, std::size_t size);
  void defer(PartColumn& column, const Byte* at, std::size_t size, std::uint64_t bytes);
  // A record of any layout.
  bool general(Bytes payload);
  bool take(const Named& feature, Bytes payload);
  void append(PartColumn& column, const Value& value);
  bool wrong(Flaw flaw, const Named& feature, Bytes payload, Holds expected = Holds::kNothing);

  void undo();
  void begin(PartColumn& column) {
    column.seen = record_ + 1;
    ++touched_;
  }
  void finish(PartColumn& column, std::size_t count) {
    if (count != column.each || column.ragged) [[unlikely]] finish_ragged(column, count);
  }
  void finish_ragged(PartColumn& column, std::size_t count);
  void make_ragged(PartColumn& column);
  void mark_missing();

  PartColumn* find(Bytes name) const;
  // By its field on the wire, of which so much may be read as `is_key` wants.
  PartColumn* find_key(const Byte* at, std::size_t size) const;
  template <class Is>
  PartColumn* look_up(Bytes name, const Is& is) const;
  static std::uint64_t hash_of(Bytes name);
  PartColumn* add(Bytes name, Holds holds);
  void widen();

  const bool all_, strict_;
  const std::size_t records_;
  const std::uint64_t most_;
  const Byte* const source_;
  const Byte* const limit_;  // memory can be read up to here, whatever record it belongs to
  const Varints& varints_ = varints();
  std::size_t record_ = 0, touched_ = 0;
  std::vector<std::unique_ptr<PartColumn>> columns_;
  std::vector<PartColumn*> slots_;  // by a hash of the name, a power of two of them
  PartColumn start_{Bytes{}};       // stands before the first column
  BatchFlaw flaw_;
};

}  // namespace croupier
