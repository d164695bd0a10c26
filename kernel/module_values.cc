// What the extension module has of values.h.
#include "buffers.h"
#include "values.h"

namespace croupier {
namespace {

void py_inspect_values(nb::handle values, nb::handle edges, nb::handle hashes, nb::handle looks) {
  const Input in(values, "values");
  const Integers bounds(edges, "edges", false, 1), sums(hashes, "hashes", true);
  const Output flags(looks, "looks");
  const nb::gil_scoped_release release;
  inspect_values(in.bytes(), bounds.numbers(), sums.slots(), flags.room());
}

}  // namespace

void add_values(nb::module_& m) {
  using nanobind::literals::operator""_a;
  m.def("inspect_values", py_inspect_values, "values"_a, "edges"_a, "hashes"_a, "looks"_a);
}

}  // namespace croupier
