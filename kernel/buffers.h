// Python objects as spans, through the buffer protocol.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "frames.h"

namespace croupier {

namespace nb = nanobind;

// Holds a view of an object's memory: nobody can free or resize it in the meantime.
class View {
 public:
  View(PyObject* object, const char* name, int flags) {
    if (PyObject_GetBuffer(object, &view_, flags) == 0) return;
    nb::python_error error;  // TypeError, BufferError or ValueError: objects differ in how they refuse
    if (error.matches(PyExc_Exception) && !error.matches(PyExc_MemoryError))
      nb::raise_from(error, PyExc_TypeError, "%s must be a %sC-contiguous buffer", name,
                     flags & PyBUF_WRITABLE ? "writable " : "");
    throw nb::python_error();
  }
  ~View() { PyBuffer_Release(&view_); }
  View(const View&) = delete;
  View& operator=(const View&) = delete;

 protected:
  Py_buffer view_;
};

class Input : public View {
 public:
  Input(nb::handle object, const char* name) : View(object.ptr(), name, PyBUF_SIMPLE) {}
  Bytes bytes() const { return {static_cast<const Byte*>(view_.buf), static_cast<std::size_t>(view_.len)}; }
};

class Output : public View {
 public:
  Output(nb::handle object, const char* name) : View(object.ptr(), name, PyBUF_WRITABLE) {}
  Room room() const { return {static_cast<Byte*>(view_.buf), static_cast<std::size_t>(view_.len)}; }
};

// One-dimensional, of unsigned integers, aligned.
template <class Number>
class Array : public View {
 public:
  Array(nb::handle object, const char* name, bool write, std::size_t least = 0)
      : View(object.ptr(), name, PyBUF_ND | PyBUF_FORMAT | (write ? PyBUF_WRITABLE : 0)) {
    const char* format = view_.format ? view_.format : "B";
    if (*format == '@' || *format == '=' || *format == '<') ++format;
    const bool is_unsigned = std::strlen(format) == 1 && std::strchr("ILQ", *format) != nullptr;
    if (!is_unsigned || view_.itemsize != sizeof(Number) || view_.ndim != 1)
      throw nb::type_error(
          (std::string(name) + " must be a one-dimensional array of uint" + std::to_string(8 * sizeof(Number))).c_str());
    if (reinterpret_cast<std::uintptr_t>(view_.buf) % alignof(Number) != 0)
      throw nb::value_error(
          (std::string(name) + " is not aligned to " + std::to_string(alignof(Number)) + " bytes").c_str());
    if (slots().size() < least)
      throw nb::value_error((name + (" must have at least " + std::to_string(least) + " elements")).c_str());
  }
  std::span<const Number> numbers() const { return slots(); }
  std::span<Number> slots() const {
    return {static_cast<Number*>(view_.buf), static_cast<std::size_t>(view_.len) / sizeof(Number)};
  }
};
using Integers = Array<std::uint64_t>;
using Words = Array<std::uint32_t>;

}  // namespace croupier
