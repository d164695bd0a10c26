// The part of croupier._kernel that knows tf.train.Example: see src/croupier/_kernel.pyi.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <deque>
#include <set>
#include <string>
#include <vector>

#include "buffers.h"
#include "example_batch.h"
#include "threads.h"

namespace croupier {
namespace {

using Gone = nb::gil_scoped_release;

nb::object owned(PyObject* object) {
  if (!object) throw nb::python_error();
  return nb::steal(object);
}

nb::object as_bytes(Bytes bytes) {
  return owned(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(bytes.data()),
                                         static_cast<Py_ssize_t>(bytes.size())));
}

nb::object as_text(Bytes name) {
  return owned(PyUnicode_DecodeUTF8(reinterpret_cast<const char*>(name.data()), static_cast<Py_ssize_t>(name.size()),
                                    nullptr));
}

// Numbers as a bytearray, which an array can be made of that may be written to; strings as a list.
nb::object as_object(const Value& value) {
  const auto array = [](const void* data, std::size_t size) {
    return owned(PyByteArray_FromStringAndSize(static_cast<const char*>(data), static_cast<Py_ssize_t>(size)));
  };
  if (value.holds == Holds::kInt64) return array(value.ints.data(), value.ints.size() * 8);
  if (value.holds == Holds::kFloat) return array(value.floats.data(), value.floats.size() * 4);
  nb::list strings;
  for (const Bytes string : value.strings) strings.append(as_bytes(string));
  return strings;
}

nb::list as_features(const std::vector<Named>& features) {
  nb::list found;
  for (const Named& feature : features)
    found.append(nb::make_tuple(as_text(feature.name), static_cast<int>(feature.value.holds), as_object(feature.value)));
  return found;
}

nb::tuple as_tuple(const Flawed& flawed, Bytes payload) {
  return nb::make_tuple(static_cast<int>(flawed.flaw), flawed.at - payload.data());
}

nb::object py_parse_example(nb::handle payload) {
  const Input in(payload, "payload");
  try {
    return as_features(read_example(in.bytes()));
  } catch (const Flawed& flawed) {
    return as_tuple(flawed, in.bytes());
  }
}

nb::object py_parse_sequence(nb::handle payload) {
  const Input in(payload, "payload");
  try {
    const Sequence sequence = read_sequence(in.bytes());
    nb::list lists;
    for (const NamedList& list : sequence.lists) {
      nb::list values;
      for (const Value& value : list.values)
        values.append(nb::make_tuple(static_cast<int>(value.holds), as_object(value)));
      lists.append(nb::make_tuple(as_text(list.name), values));
    }
    return nb::make_tuple(as_features(sequence.context), lists);
  } catch (const Flawed& flawed) {
    return as_tuple(flawed, in.bytes());
  }
}

Asked as_asked(const nb::list& names, const nb::bytes& kinds, bool all, bool strict) {
  if (nb::len(names) != kinds.size()) throw nb::value_error("names and kinds differ in length");
  Asked asked{{}, all, strict};
  std::set<std::string> known;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    nb::bytes name;
    if (!nb::try_cast(names[i], name)) throw nb::type_error("names must be a list of bytes");
    const auto kind = static_cast<unsigned char>(kinds.c_str()[i]);
    if (kind > 3) throw nb::value_error("kinds must be 0 to 3");
    asked.features.push_back({{name.c_str(), name.size()}, static_cast<Holds>(kind)});
    if (!known.insert(asked.features.back().name).second) throw nb::value_error("a name is there twice");
  }
  return asked;
}

void parse_examples(ExampleColumns* self, nb::handle buffer, nb::handle bounds, const nb::list& names,
                    const nb::bytes& kinds, bool all, bool strict, unsigned threads, bool framed) {
  const Input in(buffer, "buffer");
  const Integers edges(bounds, "bounds", false, 1);
  const Asked asked = as_asked(names, kinds, all, strict);
  if (threads == 0) throw nb::value_error("threads must be at least 1");
  const std::uint64_t work = std::min<std::uint64_t>(in.bytes().size() * 4, edges.slots().size() << 14);
  const Gone gone;
  new (self) ExampleColumns({in.bytes(), edges.numbers()}, framed, asked, parts_for(work, threads));
}

nb::object flaw_of(const ExampleColumns& self) {
  const BatchFlaw& flaw = self.flaw();
  if (flaw.flaw == Flaw::kNone) return nb::none();
  return nb::make_tuple(static_cast<int>(flaw.flaw), flaw.record, flaw.offset,
                        nb::bytes(flaw.name.data(), flaw.name.size()), static_cast<int>(flaw.expected),
                        static_cast<int>(flaw.found));
}

nb::list columns_of(const ExampleColumns& self) {
  nb::list list;
  for (const ExampleColumns::Column& column : self.columns()) {
    const nb::object name = as_text({reinterpret_cast<const Byte*>(column.name.data()), column.name.size()});
    list.append(nb::make_tuple(name, static_cast<int>(column.holds), column.values, column.bytes, column.missing,
                               column.ragged, column.each));
  }
  return list;
}

// A caller's array for so many elements; null where there is none.
template <class T>
T* array(std::deque<Output>& held, const nb::object& object, const char* name, std::uint64_t elements, bool wanted) {
  if (object.is_none() != !wanted) throw nb::value_error((std::string(name) + " must be there, or not").c_str());
  if (!wanted) return nullptr;
  const Room room = held.emplace_back(object, name).room();
  if (room.size() != elements * sizeof(T) || reinterpret_cast<std::uintptr_t>(room.data()) % alignof(T) != 0)
    throw nb::value_error((std::string(name) + " has not the right size").c_str());
  return reinterpret_cast<T*>(room.data());
}

void fill_columns(const ExampleColumns& self, nb::handle buffer, const nb::list& arrays) {
  const Input in(buffer, "buffer");
  if (self.flaw().flaw != Flaw::kNone || nb::len(arrays) != self.columns().size())
    throw nb::value_error("arrays are not one tuple for each column");
  std::deque<Output> held;
  std::vector<ExampleColumns::Arrays> to;
  for (const ExampleColumns::Column& column : self.columns()) {
    nb::tuple of;
    if (!nb::try_cast(arrays[to.size()], of) || nb::len(of) != 4)
      throw nb::type_error("arrays must be tuples of values, rows, items and present");
    const bool strings = column.holds == Holds::kBytes;
    Byte* const values = strings ? array<Byte>(held, of[0], "values", column.bytes, true)
                                 : reinterpret_cast<Byte*>(array<std::uint32_t>(held, of[0], "values", column.bytes / 4, true));
    to.push_back({values, array<std::uint64_t>(held, of[1], "rows", self.records() + 1, !nb::object(of[1]).is_none()),
                  array<std::uint64_t>(held, of[2], "items", column.values + 1, strings),
                  array<std::uint8_t>(held, of[3], "present", self.records(), !nb::object(of[3]).is_none())});
  }
  const Gone gone;
  self.fill(in.bytes(), to);
}

}  // namespace

void add_example(nb::module_& m) {
  using nanobind::literals::operator""_a;

  m.attr("FLAW_CUT") = static_cast<int>(Flaw::kCut);
  m.attr("FLAW_VARINT") = static_cast<int>(Flaw::kVarint);
  m.attr("FLAW_TAG") = static_cast<int>(Flaw::kTag);
  m.attr("FLAW_GROUP") = static_cast<int>(Flaw::kGroup);
  m.attr("FLAW_DEEP") = static_cast<int>(Flaw::kDeep);
  m.attr("FLAW_PACKED") = static_cast<int>(Flaw::kPacked);
  m.attr("FLAW_NAME") = static_cast<int>(Flaw::kName);
  m.attr("FLAW_HOLDS") = static_cast<int>(Flaw::kHolds);
  m.attr("FLAW_UNASKED") = static_cast<int>(Flaw::kUnasked);
  m.attr("FLAW_MANY") = static_cast<int>(Flaw::kMany);

  nb::class_<ExampleColumns>(m, "ExampleColumns")
      .def("__init__", parse_examples, "buffer"_a, "bounds"_a, "names"_a, "kinds"_a, "others"_a, "strict"_a,
           "threads"_a, "framed"_a = false)
      .def_prop_ro("flaw", flaw_of)
      .def_prop_ro("columns", columns_of)
      .def("fill", fill_columns, "buffer"_a, "arrays"_a);

  m.def("parse_example", py_parse_example, "payload"_a.none());  // None is refused as others are
  m.def("parse_sequence", py_parse_sequence, "payload"_a.none());
}

}  // namespace croupier
