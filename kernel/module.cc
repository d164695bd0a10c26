// The extension module croupier._kernel: see src/croupier/_kernel.pyi for what each function does.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>

#include "buffers.h"

namespace croupier {
namespace {

using U64 = std::uint64_t;

// `work` without the GIL.
template <class Work>
auto released(Work&& work) {
  const nb::gil_scoped_release release;
  return work();
}

unsigned positive(unsigned threads) {
  if (threads == 0) throw nb::value_error("threads must be at least 1");
  return threads;
}

std::uint32_t py_crc32c(nb::handle data, std::uint32_t crc) {
  const Input input(data, "data");
  const Bytes b = input.bytes();
  return released(
      [&] { return with_cpu([&]<class Cpu>(Cpu) { return crc32c<Cpu>(b.data(), b.size(), crc); }); });
}

std::uint32_t py_masked_crc32c(nb::handle data) { return mask(py_crc32c(data, 0)); }

nb::list py_implementations() {
  nb::list names;
  for (const char* const* name = implementations(); *name; ++name) names.append(nb::str(*name));
  return names;
}

std::uint32_t py_crc32c_with(const std::string& implementation, nb::handle data, std::uint32_t crc) {
  const Input input(data, "data");
  const Bytes b = input.bytes();
  for (const char* const* name = implementations(); *name; ++name) {
    if (implementation != *name) continue;
    if (implementation == Table::kName) return crc32c<Table>(b.data(), b.size(), crc);
    if (implementation == Fast::kName) return crc32c<Fast>(b.data(), b.size(), crc);
    return crc32c<Fastest>(b.data(), b.size(), crc);
  }
  throw nb::value_error("implementation is none that this CPU can run");
}

std::pair<std::size_t, int> py_scan(nb::handle buffer, U64 start, nb::handle bounds, bool payloads,
                                    U64 limit) {
  const Input in(buffer, "buffer");
  const Integers edges(bounds, "bounds", true, 1);
  const auto [count, why] = released([&] { return scan(in.bytes(), start, edges.slots(), payloads, limit); });
  return {count, static_cast<int>(why)};
}

std::size_t py_check_frames(nb::handle buffer, nb::handle bounds, nb::handle totals, unsigned threads) {
  const Input in(buffer, "buffer");
  const Integers edges(bounds, "bounds", false, 1), sums(totals, "totals", true, 4);
  const unsigned n = positive(threads);
  return released([&] {
    const Frames frames{in.bytes(), edges.numbers()};
    Totals added;
    const std::size_t right = check_frames(frames, n, added);
    if (right == frames.count()) added.add_to(sums.slots());
    return right;
  });
}

std::pair<std::size_t, bool> py_resync(nb::handle buffer, U64 start, U64 limit, bool final) {
  const Input in(buffer, "buffer");
  return released([&] { return resync(in.bytes(), start, limit, final); });
}

std::size_t py_gather(nb::handle source, nb::handle bounds, nb::handle index, nb::handle out,
                      nb::handle out_bounds, unsigned threads) {
  const Input in(source, "source");
  const Integers edges(bounds, "bounds", false, 1), order(index, "index", false);
  const Output room(out, "out");
  const Integers out_edges(out_bounds, "out_bounds", true, 1);
  const unsigned n = positive(threads);
  return released([&] {
    return gather({in.bytes(), edges.numbers()}, order.numbers(), room.room(), out_edges.slots(), n);
  });
}

std::size_t py_scatter(nb::handle source, nb::handle bounds, nb::handle bucket, U64 first, nb::handle out,
                       nb::handle cursors, nb::handle limits) {
  const Input in(source, "source");
  const Integers edges(bounds, "bounds", false, 1), buckets(bucket, "bucket", false);
  const Output room(out, "out");
  const Integers from(cursors, "cursors", true), to(limits, "limits", false);
  return released([&] {
    return scatter({in.bytes(), edges.numbers()}, buckets.numbers(), first, room.room(), from.slots(),
                   to.numbers());
  });
}

void py_fingerprint(nb::handle buffer, nb::handle bounds, nb::handle totals) {
  const Input in(buffer, "buffer");
  const Integers edges(bounds, "bounds", false, 1), sums(totals, "totals", true, 4);
  released([&] { fingerprint({in.bytes(), edges.numbers()}).add_to(sums.slots()); });
}

void py_fingerprint_of(nb::handle lengths, nb::handle crcs, nb::handle totals) {
  const Integers sizes(lengths, "lengths", false), checks(crcs, "crcs", false), sums(totals, "totals", true, 4);
  released([&] { fingerprint_of(sizes.numbers(), checks.numbers()).add_to(sums.slots()); });
}

std::size_t py_fragments(nb::handle bounds, U64 large, U64 group, nb::handle ends) {
  const Integers edges(bounds, "bounds", false, 1), out(ends, "ends", true);
  return released([&] { return fragments(edges.numbers(), large, group, out.slots()); });
}

std::int64_t py_append(nb::handle out, U64 position, nb::handle payload, nb::handle totals) {
  const Output room(out, "out");
  const Integers sums(totals, "totals", true, 4);
  if (position > room.room().size()) throw nb::value_error("position is behind the end of out");
  const Input in(payload, "payload");
  if (overlap(in.bytes(), room.room())) throw nb::value_error("payload and out overlap");
  Totals added;
  if (!append(room.room().subspan(position), in.bytes(), added)) return -1;
  added.add_to(sums.slots());
  return static_cast<std::int64_t>(position + kOverhead + in.bytes().size());
}

// The processor goes on by itself.
void fetch_front(Bytes b) {
  for (std::size_t at = 0; at < std::min<std::size_t>(b.size(), 384); at += 64) __builtin_prefetch(b.data() + at);
}

// Views of some payloads at a time, which are then framed without the GIL: else threads that compress would wait.
// Payloads lie anywhere in memory: of a list, they are fetched ahead.
std::pair<std::size_t, std::size_t> py_append_many(nb::handle out, U64 position, nb::handle payloads, U64 first,
                                                   nb::handle totals) {
  constexpr std::size_t kBatch = 128;
  const Output room(out, "out");
  const Integers sums(totals, "totals", true, 4);
  if (position > room.room().size()) throw nb::value_error("position is behind the end of out");
  const auto length = [&] {  // asked each time: a payload's own code could change the sequence
    const Py_ssize_t n = PySequence_Size(payloads.ptr());
    if (n < 0) throw nb::python_error();
    return static_cast<std::size_t>(n);
  };
  if (first > length()) throw nb::value_error("first is behind the last payload");
  constexpr std::size_t kAhead = 16, kNext = 8;
  const bool list = PyList_CheckExact(payloads.ptr());
  const auto fetch = [&](std::size_t i) {
    if (list && i < static_cast<std::size_t>(PyList_Size(payloads.ptr())))
      __builtin_prefetch(PyList_GetItem(payloads.ptr(), static_cast<Py_ssize_t>(i)));
  };
  Totals added;  // so that nothing is counted when a payload is refused
  std::array<std::optional<Input>, kBatch> views;
  std::size_t at = position, next = first;
  for (bool fit = true; fit && next < length();) {
    std::size_t count = 0;
    for (; count < kBatch && next + count < length(); ++count) {
      fetch(next + count + kAhead);
      const nb::object payload = nb::steal(PySequence_GetItem(payloads.ptr(), static_cast<Py_ssize_t>(next + count)));
      if (!payload.is_valid()) throw nb::python_error();
      views[count].emplace(payload, "payload");
      if (overlap(views[count]->bytes(), room.room())) throw nb::value_error("payload and out overlap");
    }
    const std::size_t done = released([&] {
      std::size_t i = 0;
      for (; i < count; ++i) {
        if (i + kNext < count) fetch_front(views[i + kNext]->bytes());
        if (!append(room.room().subspan(at), views[i]->bytes(), added)) break;
        at += kOverhead + views[i]->bytes().size();
      }
      return i;
    });
    for (std::size_t i = 0; i < count; ++i) views[i].reset();
    next += done;
    fit = done == count;
  }
  added.add_to(sums.slots());
  return {next, at};
}

// The caller's spans, or what is inside their frames, as a list of bytes.
nb::object as_list(const Frames& frames, bool framed) {
  const nb::object list = nb::steal(PyList_New(static_cast<Py_ssize_t>(frames.count())));
  if (!list.is_valid()) throw nb::python_error();
  for (std::size_t i = 0; i < frames.count(); ++i) {
    const Bytes span = framed ? frames.payload(i) : frames.at(i);
    PyObject* const bytes = PyBytes_FromStringAndSize(reinterpret_cast<const char*>(span.data()),
                                                      static_cast<Py_ssize_t>(span.size()));
    if (!bytes || PyList_SetItem(list.ptr(), static_cast<Py_ssize_t>(i), bytes) != 0)
      throw nb::python_error();
  }
  return list;
}

nb::object py_payloads(nb::handle buffer, nb::handle bounds) {
  const Input in(buffer, "buffer");
  const Integers edges(bounds, "bounds", false, 1);
  return as_list({in.bytes(), edges.numbers()}, true);
}

nb::object py_slices(nb::handle buffer, nb::handle bounds) {
  const Input in(buffer, "buffer");
  const Integers edges(bounds, "bounds", false, 1);
  return as_list({in.bytes(), edges.numbers()}, false);
}

}  // namespace

void add_files(nb::module_& m);   // module_files.cc
void add_order(nb::module_& m);   // module_order.cc
void add_values(nb::module_& m);  // module_values.cc
void add_example(nb::module_& m);  // module_example.cc
void add_build(nb::module_& m);  // module_build.cc
void add_deflate(nb::module_& m);  // module_deflate.cc
}  // namespace croupier

NB_MODULE(_kernel, m) {
  using namespace croupier;
  using nanobind::literals::operator""_a;

  m.attr("CRC32C_IMPLEMENTATION") = nb::str(*implementations());
  m.attr("FRAME_OVERHEAD") = kOverhead;
  m.attr("PARTIAL") = static_cast<int>(Stop::kPartial);
  m.attr("FULL") = static_cast<int>(Stop::kFull);
  m.attr("BAD_HEADER") = static_cast<int>(Stop::kBadHeader);
  m.attr("BAD_PAYLOAD") = static_cast<int>(Stop::kBadPayload);
  m.attr("TOO_LONG") = static_cast<int>(Stop::kTooLong);

  m.def("crc32c", py_crc32c, "data"_a, "crc"_a = 0);
  m.def("masked_crc32c", py_masked_crc32c, "data"_a);
  m.def("implementations", py_implementations);
  m.def("crc32c_with", py_crc32c_with, "implementation"_a, "data"_a, "crc"_a = 0);
  m.def("scan", py_scan, "buffer"_a, "start"_a, "bounds"_a, "payloads"_a, "limit"_a);
  m.def("check_frames", py_check_frames, "buffer"_a, "bounds"_a, "totals"_a, "threads"_a);
  m.def("resync", py_resync, "buffer"_a, "start"_a, "limit"_a, "final"_a = false);
  m.def("gather", py_gather, "source"_a, "bounds"_a, "index"_a, "out"_a, "out_bounds"_a, "threads"_a);
  m.def("scatter", py_scatter, "source"_a, "bounds"_a, "bucket"_a, "first"_a, "out"_a, "cursors"_a,
        "limits"_a);
  m.def("fingerprint", py_fingerprint, "buffer"_a, "bounds"_a, "totals"_a);
  m.def("fingerprint_of", py_fingerprint_of, "lengths"_a, "crcs"_a, "totals"_a);
  m.def("fragments", py_fragments, "bounds"_a, "large"_a, "group"_a, "ends"_a);
  m.def("append", py_append, "out"_a, "position"_a, "payload"_a, "totals"_a);
  m.def("append_many", py_append_many, "out"_a, "position"_a, "payloads"_a, "first"_a, "totals"_a);
  m.def("payloads", py_payloads, "buffer"_a, "bounds"_a);
  m.def("slices", py_slices, "buffer"_a, "bounds"_a);
  add_files(m);
  add_order(m);
  add_example(m);
  add_build(m);
  add_values(m);
  add_deflate(m);
}
