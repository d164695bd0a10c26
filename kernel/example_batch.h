// Many Examples at once, as columns: no object per record, and what is not asked for is skipped over.
#pragma once

#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "example.h"

namespace croupier {

// What is asked of the features.
struct Asked {
  struct Feature {
    std::string name;
    Holds holds;  // kNothing: whatever it holds
  };
  std::vector<Feature> features;
  bool all = false;    // others are taken as well,
  bool strict = false; // or are an error.
};

// Grows as bytes really arrive.
template <class T>
class Growing {
 public:
  Growing() = default;
  Growing(Growing&& other) noexcept : data_(other.data_), size_(other.size_), room_(other.room_) {
    other.data_ = nullptr;
    other.size_ = other.room_ = 0;
  }
  Growing(const Growing&) = delete;
  Growing& operator=(const Growing&) = delete;
  ~Growing() { std::free(data_); }

  // The place for the next values, of which there may be `more`.
  T* room(std::size_t more) {
    if (room_ - size_ < more) [[unlikely]] grow(more);
    return data_ + size_;
  }
  void add(std::size_t count) { size_ += count; }
  void push(T value) {
    *room(1) = value;
    ++size_;
  }
  void cut(std::size_t size) { size_ = size; }
  std::size_t size() const { return size_; }
  const T* data() const { return data_; }
  T& operator[](std::size_t i) { return data_[i]; }

 private:
  void grow(std::size_t more) {
    std::size_t room = room_ * 2 < 64 ? 64 : room_ * 2;
    if (room - size_ < more) room = size_ + more;
    T* const data = static_cast<T*>(std::realloc(data_, room * sizeof(T)));
    if (!data) throw std::bad_alloc();
    data_ = data;
    room_ = room;
  }
  T* data_ = nullptr;
  std::size_t size_ = 0, room_ = 0;
};

// A feature of a part's records.
struct PartColumn {
  std::string name;
  Holds holds = Holds::kNothing;
  PartColumn* next = this;        // what followed it in the last record: mostly it does so again
  std::size_t seen = 0;           // the last record that had it, plus one
  std::size_t before_values = 0, before_items = 0;  // as they were before that record
  std::size_t first = 0;          // the first record that had it,
  std::uint64_t first_offset = 0; // and where its name stands there
  Growing<Byte> values;           // 8 bytes each, 4 bytes each, or all strings' bytes
  Growing<std::uint64_t> items;   // strings' ends
  std::size_t each = 0;           // values of every record so far,
  bool ragged = false;            // unless records differ: then
  std::vector<std::uint64_t> rows;   // their ends are here
  std::size_t missing = 0;           // records that lack it;
  std::vector<std::uint8_t> present; // if any: which ones

  std::size_t count() const;  // values
};

struct BatchFlaw {
  Flaw flaw = Flaw::kNone;
  std::size_t record = 0;
  std::uint64_t offset = 0;
  std::string name;
  Holds expected = Holds::kNothing, found = Holds::kNothing;
};

class ExamplePart;

// The columns of all records, still in the parts that were parsed by a thread each.
class ExampleColumns {
 public:
  struct Column {
    std::string name;
    Holds holds;
    std::uint64_t values = 0;  // int64s, floats or strings
    std::uint64_t bytes = 0;   // of all strings
    std::uint64_t missing = 0;
    bool ragged = false;
    std::uint64_t each = 0;
    std::vector<const PartColumn*> parts;  // null where a part has not seen it
  };
  struct Arrays {
    Byte* values = nullptr;
    std::uint64_t* rows = nullptr;   // null: not wanted
    std::uint64_t* items = nullptr;  // null unless strings
    std::uint8_t* present = nullptr;
  };

  ExampleColumns(const Frames& frames, bool framed, const Asked& asked, unsigned threads);
  ~ExampleColumns();
  ExampleColumns(const ExampleColumns&) = delete;
  ExampleColumns& operator=(const ExampleColumns&) = delete;

  const BatchFlaw& flaw() const { return flaw_; }
  std::size_t records() const { return edges_.back(); }
  const std::vector<Column>& columns() const { return columns_; }
  void fill(std::size_t column, const Arrays& to) const;

 private:
  void join(const Asked& asked);
  void find_flaw();
  void describe(Column& column) const;

  std::vector<std::unique_ptr<ExamplePart>> parts_;
  std::vector<std::size_t> edges_;  // of the parts' records
  std::vector<Column> columns_;
  BatchFlaw flaw_;
};

}  // namespace croupier
