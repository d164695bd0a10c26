// tf.train.Example: the quick parser and the general one agree, whatever the parts; what is built is read back the
// same; nothing is read or written out of bounds. fuzz/example.py holds the general one against protobuf.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "example_batch.h"
#include "example_build.h"
#include "naive.h"

namespace {

using namespace croupier;
using naive::require;
using Ints = std::vector<std::uint64_t>;

std::string text(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// Of exact size, so that ASan sees one more.
struct Exact {
  explicit Exact(Bytes from) : size(from.size()), data(new Byte[from.size()]) {
    std::copy(from.begin(), from.end(), data.get());
  }
  Bytes bytes() const { return {data.get(), size}; }
  std::size_t size;
  std::unique_ptr<Byte[]> data;
};

// All features, or those that are asked for.
std::optional<std::vector<Named>> read(Bytes payload, const Asked* asked = nullptr) {
  const Wanted wanted = [](const void* self, Bytes name) {
    const auto& features = static_cast<const Asked*>(self)->features;
    return std::any_of(features.begin(), features.end(), [&](const auto& feature) { return feature.name == text(name); });
  };
  try {
    return asked ? read_example(payload, wanted, asked) : read_example(payload);
  } catch (const Flawed& flawed) {
    require(flawed.at >= payload.data() && flawed.at <= payload.data() + payload.size(), "a flaw is in the payload");
    return std::nullopt;
  }
}

// Of one record, as bytes: numbers as they are in memory, each string behind its length.
std::string as_bytes(const Value& value) {
  std::string found;
  const auto add = [&](const void* from, std::size_t size) { found.append(static_cast<const char*>(from), size); };
  if (!value.ints.empty()) add(value.ints.data(), value.ints.size() * 8);
  if (!value.floats.empty()) add(value.floats.data(), value.floats.size() * 4);
  for (const Bytes string : value.strings) found += std::to_string(string.size()) + ':' + text(string);
  return found;
}

bool equal(const std::vector<Named>& a, const std::vector<Named>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Named& x, const Named& y) {
    return text(x.name) == text(y.name) && x.value.holds == y.value.holds && as_bytes(x.value) == as_bytes(y.value);
  });
}

// A column's arrays, of exact size.
struct Filled {
  std::vector<Byte> values;
  Ints rows, items;
  std::vector<std::uint8_t> present;
};

std::vector<Filled> fill(const ExampleColumns& columns, Bytes source) {
  std::vector<Filled> filled;
  for (const ExampleColumns::Column& column : columns.columns()) {
    Filled& one = filled.emplace_back();
    one.values.resize(column.bytes);
    one.rows.resize(columns.records() + 1);
    if (column.holds == Holds::kBytes) one.items.resize(column.values + 1);
    one.present.resize(columns.records());
  }
  std::vector<ExampleColumns::Arrays> arrays;
  for (Filled& one : filled)
    arrays.push_back({one.values.data(), one.rows.data(), one.items.empty() ? nullptr : one.items.data(),
                      one.present.data()});
  columns.fill(source, arrays);
  return filled;
}

std::string of_record(const Filled& column, Holds holds, std::size_t record) {
  const std::size_t begin = column.rows[record], end = column.rows[record + 1];
  const auto part = [&](std::size_t from, std::size_t to) {
    return std::string(reinterpret_cast<const char*>(column.values.data()) + from, to - from);
  };
  if (holds != Holds::kBytes) return part(begin * (holds == Holds::kFloat ? 4 : 8), end * (holds == Holds::kFloat ? 4 : 8));
  std::string found;
  for (std::size_t i = begin; i < end; ++i)
    found += std::to_string(column.items[i + 1] - column.items[i]) + ':' + part(column.items[i], column.items[i + 1]);
  return found;
}

const Value* find(const std::vector<Named>& features, const std::string& name) {
  for (const Named& feature : features)
    if (text(feature.name) == name && feature.value.holds != Holds::kNothing) return &feature.value;
  return nullptr;
}

using Records = std::vector<std::optional<std::vector<Named>>>;

void compare(const ExampleColumns& columns, const std::vector<Filled>& filled, const Records& records) {
  for (std::size_t i = 0; i < filled.size(); ++i) {
    const ExampleColumns::Column& column = columns.columns()[i];
    for (std::size_t record = 0; record < records.size(); ++record) {
      if (!records[record]) continue;
      const Value* const value = find(*records[record], column.name);
      require((value != nullptr) == (filled[i].present[record] != 0), "a feature is where it is");
      require(of_record(filled[i], column.holds, record) == (value ? as_bytes(*value) : ""), "values are the same");
      require(!value || value->holds == column.holds, "kinds are the same");
    }
    if (!column.ragged)
      for (std::size_t k = 0; k < filled[i].rows.size(); ++k)
        require(filled[i].rows[k] == k * column.each, "a column that is not ragged is not");
  }
}

// Columns as payloads again.
void rebuild(const ExampleColumns& columns, const std::vector<Filled>& filled, const Records& records) {
  std::vector<BuildColumn> made;
  for (std::size_t i = 0; i < filled.size(); ++i) {
    const ExampleColumns::Column& column = columns.columns()[i];
    const Bytes name{reinterpret_cast<const Byte*>(column.name.data()), column.name.size()};
    made.push_back({name, column.holds, filled[i].values, filled[i].rows, filled[i].items, filled[i].present});
  }
  Ints offsets(records.size() + 1);
  batch_sizes(made, offsets, 1);
  std::vector<Byte> out(offsets.back());
  write_batch(made, offsets, out, 1);
  for (std::size_t record = 0; record < records.size(); ++record) {
    std::vector<Named> there = *records[record];
    std::erase_if(there, [](const Named& feature) { return feature.value.holds == Holds::kNothing; });
    const Exact payload({out.data() + offsets[record], offsets[record + 1] - offsets[record]});
    const auto again = read(payload.bytes());
    require(again && equal(*again, there), "what is built is read back");
    std::vector<Byte> alone(example_size(there));
    write_example(there, alone);
    require(std::equal(alone.begin(), alone.end(), payload.bytes().begin(), payload.bytes().end()), "both write alike");
  }
}

void batch(const Exact& all, const Ints& edges, Byte how) {
  const Frames frames{all.bytes(), edges};
  Records records;
  bool right = true;
  for (std::size_t i = 0; i < frames.count(); ++i) {
    records.push_back(read(frames.at(i)));
    right = right && records.back();
  }
  Asked asked;
  asked.all = how % 3 == 0;
  asked.strict = how % 3 == 1;
  if (!asked.all) asked.features.push_back({"x", Holds::kNothing});  // maybe in wrong records alone
  for (const auto& record : records) {  // every second name, of no kind or of its own
    for (std::size_t i = 0; !asked.all && record && i < record->size(); ++i) {
      const std::string name = text((*record)[i].name);
      const bool known = std::any_of(asked.features.begin(), asked.features.end(), [&](const auto& f) { return f.name == name; });
      if (!known && (i + how) % 2 == 0) asked.features.push_back({name, how & 32 ? (*record)[i].value.holds : Holds::kNothing});
    }
  }
  const ExampleColumns columns(frames, false, asked, 1), parted(frames, false, asked, 1 + how / 64);
  const BatchFlaw &one = columns.flaw(), &two = parted.flaw();
  require(one.flaw == two.flaw && one.record == two.record && one.offset == two.offset && one.name == two.name,
          "a flaw is the same for any number of parts");
  if (!asked.all && !asked.strict) {  // of the others nothing is known
    right = true;
    for (std::size_t i = 0; i < frames.count(); ++i) {
      records[i] = read(frames.at(i), &asked);
      right = right && records[i];
    }
  }
  require(right || one.flaw != Flaw::kNone, "a wrong record is not passed over");
  if (one.flaw != Flaw::kNone) return;
  const std::vector<Filled> filled = fill(columns, all.bytes()), again = fill(parted, all.bytes());
  compare(columns, filled, records);
  require(filled.size() == again.size(), "as many columns for any number of parts");
  for (std::size_t i = 0; i < filled.size(); ++i)
    require(filled[i].values == again[i].values && filled[i].rows == again[i].rows && filled[i].items == again[i].items &&
                filled[i].present == again[i].present, "the same for any number of parts");
  if (asked.all && right) rebuild(columns, filled, records);
  if (asked.all || columns.columns().empty()) return;
  const Exact other(all.bytes().subspan(0, all.size / 2));  // other payloads than before
  try {
    fill(columns, other.bytes());
  } catch (const std::invalid_argument&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::uint32_t drawn = naive::masked_crc(data, size);  // so that all bytes are the payload
  const Byte how = drawn & 255, copies = drawn >> 8 & 7;
  const Exact payload({data, size});
  const auto features = read(payload.bytes());
  try {
    const Sequence sequence = read_sequence(payload.bytes());
    std::vector<Byte> out(sequence_size(sequence));
    write_sequence(sequence, out);
    const Sequence again = read_sequence(out);
    require(equal(sequence.context, again.context) && sequence.lists.size() == again.lists.size(), "a sequence is kept");
  } catch (const Flawed&) {
  }
  // The payload, some copies of it, one that is cut, and an empty one.
  std::vector<Byte> joined;
  Ints edges{0};
  const auto add = [&](std::size_t count) {
    joined.insert(joined.end(), data, data + count);
    if (count && how & 8 && (edges.size() > 1) == ((how & 16) != 0))  // the first one is another, or the others are
      joined[joined.size() - 1 - (drawn >> 11) % count] = static_cast<Byte>((drawn * 0x9e3779b9U) >> 27);
    edges.push_back(joined.size());
  };
  for (int i = 0; i <= copies; ++i) add(size);
  if (how & 1) add(size / 2);
  if (how & 2) add(0);
  if (how & 4) add(size);
  batch(Exact(joined), edges, how);
  return 0;
}
