// tf.train.Example and SequenceExample from the wire, without protobuf: what upb accepts, and the same values.
//
//   Example          { Features features = 1; }
//   SequenceExample  { Features context = 1; FeatureLists feature_lists = 2; }
//   Features         { map<string, Feature> feature = 1; }
//   FeatureLists     { map<string, FeatureList> feature_list = 1; }
//   FeatureList      { repeated Feature feature = 1; }
//   Feature          { oneof kind { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3; } }
//   ...List          { repeated ... value = 1; }
//
// This is the general parser: every order, every merge, every kind of packing. example_batch.cc has the quick one.
#pragma once

#include <cstdint>
#include <vector>

#include "frames.h"

namespace croupier {

// What a Feature holds; the numbers are its fields.
enum class Holds : std::uint8_t { kNothing = 0, kBytes = 1, kFloat = 2, kInt64 = 3 };

// Why a payload is none, or is not what it should be.
enum class Flaw : int { kNone, kCut, kVarint, kTag, kGroup, kDeep, kPacked, kName, kHolds, kUnasked, kMany };

struct Flawed {  // thrown
  Flaw flaw;
  const Byte* at;
};

// One message's fields, one after the other. Throws Flawed.
class Wire {
 public:
  static constexpr int kDepth = 100;  // of messages and groups in each other, as upb has it

  explicit Wire(Bytes message, int depth = kDepth)
      : at_(message.data()), end_(message.data() + message.size()), depth_(depth) {}

  struct Field {
    std::uint32_t number;
    unsigned wire;
    const Byte* at;
    bool is(std::uint32_t n, unsigned w) const { return number == n && wire == w; }
  };
  bool done() const { return at_ == end_; }
  Field field();
  std::uint64_t varint();
  std::uint32_t fixed32();
  Bytes bytes();
  Wire message() { const Bytes inside = bytes(); return Wire(inside, depth_ - 1); }
  void skip(const Field& field);
  const Byte* at() const { return at_; }
  int depth() const { return depth_; }

 private:
  std::uint64_t varint(int most);
  void pass(std::size_t count);
  void skip_group(std::uint32_t number, const Byte* at);

  const Byte* at_;
  const Byte* end_;
  int depth_;
};

constexpr unsigned kVarint = 0, kFixed64 = 1, kDelimited = 2, kStartGroup = 3, kEndGroup = 4, kFixed32 = 5;

// One Feature's values. Bytes are views of the payload.
struct Value {
  Holds holds = Holds::kNothing;
  std::vector<std::int64_t> ints;
  std::vector<std::uint32_t> floats;  // their bits
  std::vector<Bytes> strings;

  void hold(Holds kind);
  std::size_t count() const { return ints.size() + floats.size() + strings.size(); }
};

struct Named {
  Bytes name;
  Value value;
};

struct NamedList {
  Bytes name;
  std::vector<Value> values;
};

// An entry of a map, not yet looked into.
struct Entry {
  Bytes name;
  std::vector<Bytes> values;       // are merged
  const Byte* foul = nullptr;      // a name that is not UTF-8
  bool strange = false;            // has a field that a map's entry has not: then upb keeps it out of the map
  int depth = 0;                   // for the values
};
Entry read_entry(Wire wire);
void read_feature(Wire wire, Value& value);

// Whether a feature is wanted; null: all are. What is not wanted is not looked into.
using Wanted = bool (*)(const void* self, Bytes name);

// In the order of their names' bytes.
std::vector<Named> read_example(Bytes payload, Wanted wanted = nullptr, const void* self = nullptr);

struct Sequence {
  std::vector<Named> context;
  std::vector<NamedList> lists;
};
Sequence read_sequence(Bytes payload);

bool is_utf8(Bytes text);
// The order of names: as bytes.
bool is_before(Bytes a, Bytes b);

}  // namespace croupier
