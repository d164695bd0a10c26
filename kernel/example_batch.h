// Many Examples at once, as columns: no object per record, and what is not asked for is skipped over.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "example.h"

namespace croupier {

// What is asked of the features.
struct Asked {
  struct Feature {
    std::string name;
    Holds holds;  // kNothing: whatever it holds
  };
  std::vector<Feature> features;  // no name twice
  bool all = false;    // others are taken as well,
  bool strict = false; // or are an error.
};

struct BatchFlaw {
  Flaw flaw = Flaw::kNone;
  std::size_t record = 0;
  std::uint64_t offset = 0;
  std::string name;
  Holds expected = Holds::kNothing, found = Holds::kNothing;
};

class ExamplePart;
struct PartColumn;

// The columns of all records, still in the parts that were parsed by a thread each.
class ExampleColumns {
 public:
  struct Column {
    std::string name;
    Holds holds;
    std::uint64_t values = 0;  // int64s, floats or strings
    std::uint64_t bytes = 0;   // of all values
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

  // `payloads` as frames without header and checksum, or `framed` with them; a thread for each part.
  ExampleColumns(const Frames& payloads, bool framed, const Asked& asked, std::size_t parts);
  ~ExampleColumns();
  ExampleColumns(const ExampleColumns&) = delete;
  ExampleColumns& operator=(const ExampleColumns&) = delete;

  const BatchFlaw& flaw() const { return flaw_; }
  std::size_t records() const { return edges_.back(); }
  const std::vector<Column>& columns() const { return columns_; }
  // All columns, of the same payloads as before.
  void fill(Bytes source, const std::vector<Arrays>& to) const;

 private:
  void join(std::size_t asked);
  void find_flaw();
  void describe(Column& column) const;
  void fill_part(std::size_t part, const Column& column, Bytes source, const Arrays& to) const;

  std::vector<std::unique_ptr<ExamplePart>> parts_;
  std::vector<std::size_t> edges_;  // of the parts' records
  std::vector<Column> columns_;
  BatchFlaw flaw_;
};

}  // namespace croupier
