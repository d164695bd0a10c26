// A run of records parsed by one thread: for example_batch.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "example_batch.h"

namespace croupier {

class ExamplePart {
 public:
  // At most `most` rows in all columns together: names come from the data.
  ExamplePart(const Asked& asked, std::size_t records, std::uint64_t most);

  // The next record. False when something is wrong with it: see `flaw`.
  bool parse(Bytes payload);

  const std::vector<std::unique_ptr<PartColumn>>& columns() const { return columns_; }
  const BatchFlaw& flaw() const { return flaw_; }
  std::size_t parsed() const { return record_; }
  std::size_t records() const { return records_; }

 private:
  bool quick(Bytes payload);
  bool quick_value(PartColumn& column, const Byte* at, const Byte* end);
  bool quick_strings(PartColumn& column, const Byte* at, const Byte* end);
  bool quick_ints(PartColumn& column, const Byte* at, const Byte* end);
  bool general(Bytes payload);
  bool take(const Named& feature, Bytes payload);
  void append(PartColumn& column, const Value& value);
  void undo();
  void begin(PartColumn& column);
  void finish(PartColumn& column, std::size_t count);
  void make_ragged(PartColumn& column);
  void mark_missing();
  bool wrong(Flaw flaw, Bytes name, Bytes payload, Holds expected = Holds::kNothing, Holds found = Holds::kNothing);

  PartColumn* find(Bytes name) const;
  PartColumn* add(Bytes name, Holds holds);
  void widen();

  const bool all_, strict_;
  const std::size_t records_;
  const std::uint64_t most_;
  std::size_t record_ = 0, touched_ = 0;
  std::vector<std::unique_ptr<PartColumn>> columns_;
  std::vector<PartColumn*> slots_;  // by a hash of the name, a power of two of them
  PartColumn start_;                // stands before the first column
  BatchFlaw flaw_;
};

}  // namespace croupier
