#include "example_build.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "threads.h"

namespace croupier {
namespace {

constexpr Byte tag(unsigned number) { return static_cast<Byte>(number << 3 | kDelimited); }

std::uint64_t varint_size(std::uint64_t value) {
  return (static_cast<unsigned>(std::bit_width(value | 1)) * 9 + 64) / 64;  // one byte for each seven bits
}

std::uint64_t delimited(std::uint64_t size) { return 1 + varint_size(size) + size; }

// Bytes to a place of known size. The values may be changed by another thread after they were measured.
class Out {
 public:
  explicit Out(Room room) : at_(room.data()), end_(room.data() + room.size()) {}
  void varint(std::uint64_t value) {
    need(varint_size(value));
    for (; value >= 128; value >>= 7) *at_++ = static_cast<Byte>(value | 128);
    *at_++ = static_cast<Byte>(value);
  }
  void begin(unsigned number, std::uint64_t size) {
    need(1);
    *at_++ = tag(number);
    varint(size);
  }
  void copy(const void* from, std::size_t size) {
    need(size);
    if (size) std::memcpy(at_, from, size);
    at_ += size;
  }
  void end() const {
    if (at_ != end_) refuse("values were changed while they were read");
  }

 private:
  void need(std::uint64_t size) const {
    if (size > static_cast<std::uint64_t>(end_ - at_)) refuse("values were changed while they were read");
  }
  Byte* at_;
  Byte* const end_;
};

// The values of one feature of one record, wherever they are: numbers in a row, and strings by `string(i)`.
struct OfValue {
  const Value& value;
  Holds holds() const { return value.holds; }
  std::size_t count() const { return value.count(); }
  std::uint64_t integer(std::size_t i) const { return static_cast<std::uint64_t>(value.ints[i]); }
  const void* floats() const { return value.floats.data(); }
  Bytes string(std::size_t i) const { return value.strings[i]; }
};

struct OfColumn {
  OfColumn(const BuildColumn& of, std::size_t record) : column(of), begin(of.rows[record]) {
    const std::uint64_t end = of.rows[record + 1];
    const std::uint64_t there = of.holds == Holds::kBytes ? of.items.size() - 1
                                : of.values.size() / (of.holds == Holds::kFloat ? 4 : 8);
    if (end < begin || end > there) refuse("rows do not fit the values");
    values = static_cast<std::size_t>(end - begin);
  }
  Holds holds() const { return column.holds; }
  std::size_t count() const { return values; }
  std::uint64_t integer(std::size_t i) const {
    std::uint64_t value;
    std::memcpy(&value, column.values.data() + (begin + i) * 8, 8);
    return value;
  }
  const void* floats() const { return column.values.data() + begin * 4; }
  Bytes string(std::size_t i) const {
    const std::uint64_t from = column.items[begin + i], to = column.items[begin + i + 1];
    if (to < from || to > column.values.size()) refuse("items do not fit the values");
    return column.values.subspan(from, to - from);
  }

  const BuildColumn& column;
  std::uint64_t begin;
  std::size_t values = 0;
};

template <class Of>
std::uint64_t packed_size(const Of& of) {
  if (of.holds() == Holds::kFloat) return std::uint64_t{of.count()} * 4;
  std::uint64_t size = 0;
  for (std::size_t i = 0; i < of.count(); ++i) size += varint_size(of.integer(i));
  return size;
}

template <class Of>
std::uint64_t list_size(const Of& of) {
  if (of.count() == 0) return 0;
  if (of.holds() != Holds::kBytes) return delimited(packed_size(of));
  std::uint64_t size = 0;
  for (std::size_t i = 0; i < of.count(); ++i) size += delimited(of.string(i).size());
  return size;
}

template <class Of>
std::uint64_t feature_size(const Of& of) {
  return of.holds() == Holds::kNothing ? 0 : delimited(list_size(of));
}

std::uint64_t entry_size(Bytes name, std::uint64_t value) { return delimited(name.size()) + delimited(value); }

template <class Of>
void write_feature(const Of& of, Out& out) {
  if (of.holds() == Holds::kNothing) return;
  out.begin(static_cast<unsigned>(of.holds()), list_size(of));
  if (of.count() == 0) return;
  if (of.holds() == Holds::kBytes) {
    for (std::size_t i = 0; i < of.count(); ++i) {
      const Bytes string = of.string(i);
      out.begin(1, string.size());
      out.copy(string.data(), string.size());
    }
    return;
  }
  out.begin(1, packed_size(of));
  if (of.holds() == Holds::kFloat) return out.copy(of.floats(), of.count() * 4);
  for (std::size_t i = 0; i < of.count(); ++i) out.varint(of.integer(i));
}

void write_name(Bytes name, std::uint64_t value, Out& out) {
  out.begin(1, entry_size(name, value));
  out.begin(1, name.size());
  out.copy(name.data(), name.size());
  out.begin(2, value);
}

std::uint64_t features_size(const std::vector<Named>& features) {
  std::uint64_t size = 0;
  for (const Named& feature : features) size += delimited(entry_size(feature.name, feature_size(OfValue{feature.value})));
  return size;
}

void write_features(const std::vector<Named>& features, Out& out) {
  for (const Named& feature : features) {
    write_name(feature.name, feature_size(OfValue{feature.value}), out);
    write_feature(OfValue{feature.value}, out);
  }
}

std::uint64_t steps_size(const NamedList& list) {
  std::uint64_t size = 0;
  for (const Value& value : list.values) size += delimited(feature_size(OfValue{value}));
  return size;
}

std::uint64_t lists_size(const std::vector<NamedList>& lists) {
  std::uint64_t size = 0;
  for (const NamedList& list : lists) size += delimited(entry_size(list.name, steps_size(list)));
  return size;
}

bool is_there(const BuildColumn& column, std::size_t record) {
  return column.present.empty() || column.present[record] != 0;
}

std::uint64_t record_size(const std::vector<BuildColumn>& columns, std::size_t record) {
  std::uint64_t size = 0;
  for (const BuildColumn& column : columns)
    if (is_there(column, record)) size += delimited(entry_size(column.name, feature_size(OfColumn(column, record))));
  return size;
}

void check(const std::vector<BuildColumn>& columns, std::size_t records) {
  for (const BuildColumn& column : columns) {
    if (column.rows.size() != records + 1) refuse("rows are not one more than there are records");
    if (!column.present.empty() && column.present.size() != records) refuse("present is not one for each record");
    if (column.holds == Holds::kBytes && column.items.empty()) refuse("items must have at least one element");
  }
}

}  // namespace

std::uint64_t example_size(const std::vector<Named>& features) { return delimited(features_size(features)); }

void write_example(const std::vector<Named>& features, Room room) {
  Out out(room);
  out.begin(1, features_size(features));
  write_features(features, out);
  out.end();
}

std::uint64_t sequence_size(const Sequence& sequence) {
  return delimited(features_size(sequence.context)) + delimited(lists_size(sequence.lists));
}

void write_sequence(const Sequence& sequence, Room room) {
  Out out(room);
  out.begin(1, features_size(sequence.context));
  write_features(sequence.context, out);
  out.begin(2, lists_size(sequence.lists));
  for (const NamedList& list : sequence.lists) {
    write_name(list.name, steps_size(list), out);
    for (const Value& value : list.values) {
      out.begin(1, feature_size(OfValue{value}));
      write_feature(OfValue{value}, out);
    }
  }
  out.end();
}

void batch_sizes(const std::vector<BuildColumn>& columns, Slots offsets, unsigned threads) {
  const std::size_t records = offsets.size() - 1;
  check(columns, records);
  std::uint64_t bytes = 0;
  for (const BuildColumn& column : columns) bytes += column.values.size();
  const std::size_t parts = parts_for(bytes, threads);
  in_parallel(parts, [&](std::size_t part) {
    for (std::size_t i = records / parts * part; i < (part + 1 == parts ? records : records / parts * (part + 1)); ++i) {
      offsets[i + 1] = delimited(record_size(columns, i));
      if (offsets[i + 1] > kMostMessage) refuse("an Example would be larger than 2 GiB");
    }
  });
  offsets[0] = 0;
  for (std::size_t i = 0; i < records; ++i) offsets[i + 1] += offsets[i];
}

void write_batch(const std::vector<BuildColumn>& columns, Numbers offsets, Room room, unsigned threads) {
  const std::size_t records = offsets.size() - 1, parts = parts_for(room.size(), threads);
  check(columns, records);
  const Frames places{room, offsets};
  in_parallel(parts, [&](std::size_t part) {
    for (std::size_t i = records / parts * part; i < (part + 1 == parts ? records : records / parts * (part + 1)); ++i) {
      const Bytes place = places.at(i);
      Out out({room.data() + (place.data() - room.data()), place.size()});
      out.begin(1, record_size(columns, i));
      for (const BuildColumn& column : columns) {
        if (!is_there(column, i)) continue;
        const OfColumn of(column, i);
        write_name(column.name, feature_size(of), out);
        write_feature(of, out);
      }
      out.end();
    }
  });
}

}  // namespace croupier
