// The part of croupier._kernel that makes tf.train.Examples: see src/croupier/_kernel.pyi.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "buffers.h"
#include "example_build.h"

namespace croupier {
namespace {

using Gone = nb::gil_scoped_release;

// Python's values of features. They are held until the payload is written: `plain` may run any code.
class Reader {
 public:
  explicit Reader(nb::handle plain) : plain_(plain) {}

  // In the order of names.
  std::vector<Named> features(nb::handle mapping) {
    std::vector<Named> found;
    const nb::list items = items_of(mapping);
    found.reserve(nb::len(items));
    for (nb::handle item : items) {
      const nb::tuple pair = nb::borrow<nb::tuple>(item);
      found.push_back({name_of(pair[0]), {}});
      read(pair[0], pair[1], found.back().value);
    }
    sort(found);
    return found;
  }

  std::vector<NamedList> lists(nb::handle mapping) {
    std::vector<NamedList> found;
    for (nb::handle item : items_of(mapping)) {
      const nb::tuple pair = nb::borrow<nb::tuple>(item);
      found.push_back({name_of(pair[0]), {}});
      const nb::object steps = hold(PySequence_List(nb::object(pair[1]).ptr()));
      for (nb::handle step : nb::borrow<nb::list>(steps)) read(pair[0], step, found.back().values.emplace_back());
    }
    sort(found);
    return found;
  }

 private:
  nb::object hold(PyObject* object) {
    if (!object) throw nb::python_error();
    held_.push_back(nb::steal(object));
    return held_.back();
  }
  nb::list items_of(nb::handle mapping) { return nb::borrow<nb::list>(hold(PyMapping_Items(mapping.ptr()))); }

  template <class Item>
  static void sort(std::vector<Item>& items) {
    std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return is_before(a.name, b.name); });
  }

  static Bytes text(PyObject* string) {
    Py_ssize_t size = 0;
    const char* const data = PyUnicode_AsUTF8AndSize(string, &size);
    if (!data) throw nb::python_error();
    return {reinterpret_cast<const Byte*>(data), static_cast<std::size_t>(size)};
  }

  static Bytes name_of(const nb::object& name) {
    if (!PyUnicode_Check(name.ptr())) throw nb::type_error("names of features must be str");
    return text(name.ptr());
  }

  static std::int64_t integer(PyObject* object) {
    const long long value = PyLong_AsLongLong(object);
    if (value == -1 && PyErr_Occurred()) throw nb::python_error();
    return value;
  }

  static std::uint32_t single(PyObject* object) {
    const double value = PyFloat_AsDouble(object);
    if (value == -1 && PyErr_Occurred()) throw nb::python_error();
    const float rounded = static_cast<float>(value);
    std::uint32_t bits;
    std::memcpy(&bits, &rounded, 4);
    return bits;
  }

  static bool string(PyObject* object, Value& value) {
    if (PyBytes_CheckExact(object)) {
      char* data = nullptr;
      Py_ssize_t size = 0;
      if (PyBytes_AsStringAndSize(object, &data, &size) != 0) throw nb::python_error();
      value.strings.push_back({reinterpret_cast<const Byte*>(data), static_cast<std::size_t>(size)});
      return true;
    }
    if (!PyUnicode_CheckExact(object)) return false;
    value.strings.push_back(text(object));
    return true;
  }

  // Python's own types at once, what else there is by way of `plain`.
  void read(nb::handle name, nb::handle from, Value& value) {
    PyObject* const object = from.ptr();
    if (string(object, value)) {
      value.holds = Holds::kBytes;
    } else if (PyLong_CheckExact(object) || PyBool_Check(object)) {
      value.holds = Holds::kInt64;
      value.ints.push_back(integer(object));
    } else if (PyFloat_CheckExact(object)) {
      value.holds = Holds::kFloat;
      value.floats.push_back(single(object));
    } else if (!PyList_CheckExact(object) || !list(object, value)) {
      value = {};
      arrays(name, from, value);
    }
  }

  bool list(PyObject* const object, Value& value) {
    bool strings = false, floats = false, ints = false;
    const Py_ssize_t size = PyList_Size(object);
    for (Py_ssize_t i = 0; i < size; ++i) {
      PyObject* const item = PyList_GetItem(object, i);
      if (PyBytes_CheckExact(item) || PyUnicode_CheckExact(item))
        strings = true;
      else if (PyFloat_CheckExact(item))
        floats = true;
      else if (PyLong_CheckExact(item) || PyBool_Check(item))
        ints = true;
      else
        return false;
    }
    if (strings && (floats || ints)) return false;
    if (strings) hold(PyList_AsTuple(object));  // `plain` may empty the list
    for (Py_ssize_t i = 0; i < size; ++i) {
      PyObject* const item = PyList_GetItem(object, i);
      if (strings)
        string(item, value);
      else if (floats)
        value.floats.push_back(single(item));
      else
        value.ints.push_back(integer(item));
    }
    value.holds = strings ? Holds::kBytes : floats ? Holds::kFloat : ints ? Holds::kInt64 : Holds::kNothing;
    return true;
  }

  // What `plain` gives: (kind, int64s or float32s in a buffer, or a list of bytes).
  void arrays(nb::handle name, nb::handle from, Value& value) {
    held_.push_back(plain_(name, from));
    nb::tuple pair;
    int kind = 0;
    if (!nb::try_cast(held_.back(), pair) || nb::len(pair) != 2 || !nb::try_cast(pair[0], kind) || kind < 0 || kind > 3)
      throw nb::type_error("plain must give a kind and values");
    value.holds = static_cast<Holds>(kind);
    const nb::object values = pair[1];
    if (value.holds == Holds::kBytes) {
      if (!PyList_CheckExact(values.ptr())) throw nb::type_error("plain must give strings as a list");
      const Py_ssize_t size = PyList_Size(values.ptr());
      for (Py_ssize_t i = 0; i < size; ++i)
        if (!string(PyList_GetItem(values.ptr(), i), value)) throw nb::type_error("plain must give strings as bytes");
    } else if (value.holds != Holds::kNothing) {
      const Input in(values, "values");
      const auto copy = [&](auto& to) {
        to.resize(in.bytes().size() / sizeof(to[0]));
        if (!to.empty()) std::memcpy(to.data(), in.bytes().data(), to.size() * sizeof(to[0]));
      };
      if (value.holds == Holds::kInt64)
        copy(value.ints);
      else
        copy(value.floats);
    }
  }

  const nb::handle plain_;
  std::deque<nb::object> held_;
};

template <class Write>
nb::object as_payload(std::uint64_t size, const Write& write) {
  if (size > kMostMessage) throw nb::value_error("an Example would be larger than 2 GiB");
  PyObject* const bytes = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size));
  if (!bytes) throw nb::python_error();
  const nb::object payload = nb::steal(bytes);
  write(Room{reinterpret_cast<Byte*>(PyBytes_AsString(bytes)), static_cast<std::size_t>(size)});
  return payload;
}

nb::object py_build_example(nb::handle features, nb::handle plain) {
  Reader reader(plain);
  const std::vector<Named> found = reader.features(features);
  return as_payload(example_size(found), [&](Room room) { write_example(found, room); });
}

nb::object py_build_sequence(nb::handle context, nb::handle lists, nb::handle plain) {
  Reader reader(plain);
  Sequence sequence{reader.features(context), {}};
  sequence.lists = reader.lists(lists);
  return as_payload(sequence_size(sequence), [&](Room room) { write_sequence(sequence, room); });
}

// (name, kind, values, rows, items, present) of each column, in the order of names.
class Arrays {
 public:
  explicit Arrays(const nb::list& tuples) {
    for (nb::handle handle : tuples) {
      nb::tuple tuple;
      int kind = 0;
      if (!nb::try_cast(handle, tuple) || nb::len(tuple) != 6 || !nb::try_cast(tuple[1], kind) || kind < 1 || kind > 3)
        throw nb::type_error("columns must be tuples of name, kind, values, rows, items and present");
      columns.push_back({input(tuple[0], "name"), static_cast<Holds>(kind), input(tuple[2], "values"),
                         numbers(tuple[3], "rows"), {}, {}});
      if (!nb::object(tuple[4]).is_none()) columns.back().items = numbers(tuple[4], "items");
      if (!nb::object(tuple[5]).is_none()) columns.back().present = input(tuple[5], "present");
    }
  }
  std::vector<BuildColumn> columns;

 private:
  Bytes input(nb::handle object, const char* name) { return inputs_.emplace_back(object, name).bytes(); }
  Numbers numbers(nb::handle object, const char* name) {
    return integers_.emplace_back(object, name, false, 1).numbers();
  }
  std::deque<Input> inputs_;
  std::deque<Integers> integers_;
};

void py_batch_sizes(const nb::list& columns, nb::handle offsets, unsigned threads) {
  const Arrays arrays(columns);
  const Integers out(offsets, "offsets", true, 1);
  const Gone gone;
  batch_sizes(arrays.columns, out.slots(), threads);
}

void py_write_batch(const nb::list& columns, nb::handle offsets, nb::handle out, unsigned threads) {
  const Arrays arrays(columns);
  const Integers edges(offsets, "offsets", false, 1);
  const Output room(out, "out");
  const Gone gone;
  write_batch(arrays.columns, edges.numbers(), room.room(), threads);
}

}  // namespace

void add_build(nb::module_& m) {
  using nanobind::literals::operator""_a;

  m.def("build_example", py_build_example, "features"_a, "plain"_a);
  m.def("build_sequence", py_build_sequence, "context"_a, "lists"_a, "plain"_a);
  m.def("batch_sizes", py_batch_sizes, "columns"_a, "offsets"_a, "threads"_a);
  m.def("write_batch", py_write_batch, "columns"_a, "offsets"_a, "out"_a, "threads"_a);
}

}  // namespace croupier
