// What the extension module has of inflate.h and transcode.h.
#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>

#include <atomic>

#include "buffers.h"
#include "inflate.h"
#include "transcode.h"

namespace croupier {
namespace {

// One thread at a time: a second one would find the state half changed.
class PyInflater {
 public:
  std::tuple<std::size_t, std::size_t, std::size_t, int> inflate(nb::handle data, nb::handle out, nb::handle tokens) {
    const Input in(data, "data");
    const Output room(out, "out");
    const Words slots(tokens, "tokens", true, 3);
    if (busy_.test_and_set()) throw nb::value_error("another thread is using this Inflater");
    Inflater::Progress done;
    {
      const nb::gil_scoped_release release;
      done = inflater_.inflate(in.bytes(), room.room(), slots.slots());
    }
    busy_.clear();
    return {done.consumed, done.produced, done.tokens, static_cast<int>(done.why)};
  }
  const char* problem() const { return inflater_.problem(); }
  std::size_t ahead() const { return inflater_.ahead(); }

 private:
  Inflater inflater_;
  std::atomic_flag busy_;
};

nb::object py_transcode(nb::handle frame, nb::handle tokens, std::uint64_t lead) {
  const Input in(frame, "frame");
  const Words words(tokens, "tokens", false);
  std::vector<Byte> made;
  {
    const nb::gil_scoped_release release;
    made = transcode(in.bytes(), words.numbers(), lead);
  }
  return nb::bytes(made.data(), made.size());
}

bool py_find_tokens(nb::handle tokens, nb::handle edges, nb::handle index, nb::handle into) {
  const Words words(tokens, "tokens", false);
  const Integers bounds(edges, "edges", false), first(index, "index", true), before(into, "into", true);
  const nb::gil_scoped_release release;
  return find_tokens(words.numbers(), bounds.numbers(), first.slots(), before.slots());
}

}  // namespace

void add_deflate(nb::module_& m) {
  using nanobind::literals::operator""_a;
  m.attr("NEEDS_INPUT") = static_cast<int>(Inflater::Stop::kInput);
  m.attr("NEEDS_ROOM") = static_cast<int>(Inflater::Stop::kRoom);
  m.attr("ENDED") = static_cast<int>(Inflater::Stop::kEnd);
  m.attr("BAD_STREAM") = static_cast<int>(Inflater::Stop::kBad);
  nb::class_<PyInflater>(m, "Inflater")
      .def(nb::init<>())
      .def("inflate", &PyInflater::inflate, "data"_a, "out"_a, "tokens"_a)
      .def_prop_ro("problem", &PyInflater::problem)
      .def_prop_ro("ahead", &PyInflater::ahead);
  m.def("transcode", py_transcode, "frame"_a, "tokens"_a, "lead"_a);
  m.def("find_tokens", py_find_tokens, "tokens"_a, "edges"_a, "index"_a, "into"_a);
}

}  // namespace croupier
