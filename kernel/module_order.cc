// The part of croupier._kernel that orders records: see order.h.
#include <nanobind/nanobind.h>

#include "buffers.h"
#include "order.h"

namespace croupier {
namespace {

void py_record_keys(std::uint64_t seed, nb::handle files, nb::handle firsts, nb::handle counts, nb::handle keys) {
  const Integers f(files, "files", false), a(firsts, "firsts", false), n(counts, "counts", false);
  const Integers out(keys, "keys", true);
  const nb::gil_scoped_release release;
  record_keys(seed, f.numbers(), a.numbers(), n.numbers(), out.slots());
}

}  // namespace

void add_order(nb::module_& m) {
  using nanobind::literals::operator""_a;
  m.def("record_keys", py_record_keys, "seed"_a, "files"_a, "firsts"_a, "counts"_a, "keys"_a);
}

}  // namespace croupier
