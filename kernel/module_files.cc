// The part of croupier._kernel that knows tables and files: see src/croupier/_kernel.pyi.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include <fcntl.h>
#include <cerrno>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "buffers.h"
#include "files.h"
#include "folders.h"
#include "packed.h"

namespace croupier {
namespace {

using U64 = std::uint64_t;
using Gone = nb::gil_scoped_release;

// (count, least, bits, words, sums, at), as `index_packed` made them.
struct PackedArrays {
  explicit PackedArrays(const nb::tuple& arrays)
      : count(checked_count(arrays)),
        least(arrays[1], "least", false),
        bits(arrays[2], "bits"),
        words(arrays[3], "words", false),
        sums(arrays[4], "sums", false),
        at(arrays[5], "at", false) {}
  Packed packed() const {
    return {count, least.numbers(), bits.bytes(), words.numbers(), sums.numbers(), at.numbers()};
  }
  static U64 checked_count(const nb::tuple& arrays) {
    if (nb::len(arrays) != 6) throw nb::value_error("packed must be (count, least, bits, words, sums, at)");
    U64 count = 0;
    if (!nb::try_cast(arrays[0], count)) throw nb::type_error("packed must begin with a count");
    return count;
  }

  U64 count;
  Integers least;
  Input bits;
  Integers words, sums, at;
};

nb::bytes as_bytes(const std::vector<U64>& numbers) {
  return nb::bytes(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(U64));
}

std::size_t py_pack(nb::handle values, nb::handle least, nb::handle bits, nb::handle words) {
  const Integers in(values, "values", false), low(least, "least", true), out(words, "words", true);
  const Output widths(bits, "bits");
  const Gone gone;
  return pack(in.numbers(), low.slots(), widths.room(), out.slots());
}

void py_index_packed(U64 count, nb::handle least, nb::handle bits, nb::handle words, nb::handle sums,
                     nb::handle at, bool summed) {
  const Integers low(least, "least", false), in(words, "words", false), out(sums, "sums", true),
      places(at, "at", true);
  const Input widths(bits, "bits");
  const Gone gone;
  index_packed(count, low.numbers(), widths.bytes(), in.numbers(), out.slots(), places.slots(), summed);
}

void py_sums_before(const nb::tuple& packed, nb::handle places, nb::handle sums) {
  const PackedArrays arrays(packed);
  const Integers in(places, "places", false), out(sums, "sums", true);
  const Gone gone;
  sums_before(arrays.packed(), in.numbers(), out.slots());
}

void py_unpack(const nb::tuple& packed, U64 first, nb::handle values) {
  const PackedArrays arrays(packed);
  const Integers out(values, "values", true);
  const Gone gone;
  unpack(arrays.packed(), first, out.slots());
}

void py_locate(const nb::tuple& lengths, nb::handle firsts, nb::handle bases, nb::handle records, nb::handle file,
               nb::handle offset, nb::handle length, unsigned threads) {
  const PackedArrays arrays(lengths);
  const Integers starts(firsts, "firsts", false), sums(bases, "bases", false), wanted(records, "records", false);
  const Integers files(file, "file", true), offsets(offset, "offset", true), sizes(length, "length", true);
  const Gone gone;
  locate(arrays.packed(), starts.numbers(), sums.numbers(), wanted.numbers(), files.slots(), offsets.slots(),
         sizes.slots(), threads);
}

void py_search_sums(const nb::tuple& packed, nb::handle firsts, nb::handle bases, nb::handle groups,
                    nb::handle positions, nb::handle found, nb::handle begin) {
  const PackedArrays arrays(packed);
  const Integers starts(firsts, "firsts", false), sums(bases, "bases", false), in(groups, "groups", false),
      where(positions, "positions", false);
  const Integers out(found, "found", true), edges(begin, "begin", true);
  const Gone gone;
  search_sums(arrays.packed(), starts.numbers(), sums.numbers(), in.numbers(), where.numbers(), out.slots(),
              edges.slots());
}

using StampTuple = std::tuple<U64, U64, U64, U64>;
StampTuple as_tuple(const Stamp& stamp) { return {stamp.size, stamp.modified, stamp.changed, stamp.inode}; }

[[noreturn]] void raise_errno(int error) {
  errno = error;
  PyErr_SetFromErrno(PyExc_OSError);
  throw nb::python_error();
}

void open_file(File* self, int fd) {
  new (self) File(fd);
  if (self->fd() < 0) {
    const int error = errno;
    self->~File();
    raise_errno(error);
  }
}

std::tuple<std::size_t, int, int, U64> py_fetch(const nb::list& files, nb::handle file, nb::handle offsets,
                                                nb::handle lengths, nb::handle places, nb::handle out, bool verify,
                                                unsigned threads, bool past_cache, bool framed) {
  std::vector<File*> opened;
  std::vector<nb::object> held;  // the caller's list may change meanwhile
  for (nb::handle one : files) {
    if (!nb::isinstance<File>(one) || !nb::inst_ready(one)) throw nb::type_error("files must be a list of File");
    held.push_back(nb::borrow(one));
    opened.push_back(nb::inst_ptr<File>(one));
  }
  const Integers which(file, "file", false), from(offsets, "offsets", false), sizes(lengths, "lengths", false),
      to(places, "places", false);
  const Output room(out, "out");
  Fetched fetched;
  {
    const Gone gone;
    fetched = fetch(opened, which.numbers(), from.numbers(), sizes.numbers(), to.numbers(), room.room(), verify,
                    threads, past_cache, framed);
  }
  return {fetched.record, static_cast<int>(fetched.fault), fetched.error, fetched.cold};
}

// Gives the space of a range of a file back; whether that can be done here.
bool py_punch(int fd, U64 offset, U64 size) {
#ifdef FALLOC_FL_PUNCH_HOLE
  constexpr auto kMost = static_cast<U64>(std::numeric_limits<off_t>::max());
  if (size == 0 || offset > kMost || size > kMost - offset) return false;
  const nb::gil_scoped_release released;
  return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                   static_cast<off_t>(size)) == 0;
#else
  return (void)fd, (void)offset, (void)size, false;
#endif
}

std::pair<std::size_t, int> py_take(nb::handle source, nb::handle offsets, nb::handle lengths, nb::handle places,
                                    nb::handle out, bool verify) {
  const Input in(source, "source");
  const Integers from(offsets, "offsets", false), sizes(lengths, "lengths", false), to(places, "places", false);
  const Output room(out, "out");
  const Gone gone;
  const Fetched taken = take(in.bytes(), from.numbers(), sizes.numbers(), to.numbers(), room.room(), verify);
  return {taken.record, static_cast<int>(taken.fault)};
}

nb::tuple py_walk(int fd, U64 size, U64 begin, U64 end, bool sync, U64 limit) {
  Walked walked;
  {
    const Gone gone;
    walked = walk(fd, size, begin, end, sync, limit);
  }
  if (walked.error) raise_errno(walked.error);
  return nb::make_tuple(walked.begin, walked.end, static_cast<int>(walked.why), as_bytes(walked.lengths));
}

std::uint32_t py_digest(int fd, U64 size) {
  std::uint32_t crc = 0;
  bool well;
  {
    const Gone gone;
    well = digest(fd, size, crc);
  }
  if (!well) raise_errno(errno);
  return crc;
}

// Each ended by a zero byte, in memory that the caller keeps.
std::vector<const char*> as_paths(const nb::bytes& names) {
  const std::string_view all(names.c_str(), names.size());
  if (!all.empty() && all.back() != '\0') throw nb::value_error("the last name is not ended by a zero byte");
  std::vector<const char*> paths;
  for (std::size_t at = 0; at < all.size(); at = all.find('\0', at) + 1) paths.push_back(all.data() + at);
  return paths;
}

void add_stamp(std::vector<U64>& columns, std::size_t row, std::size_t rows, const Stamp& stamp) {
  const U64 values[] = {stamp.size, stamp.modified, stamp.changed, stamp.inode};
  for (std::size_t i = 0; i < 4; ++i) columns[i * rows + row] = values[i];
}

// Columns, one behind the other: see _kernel.pyi.
std::pair<nb::bytes, nb::bytes> py_survey(const nb::bytes& names, U64 limit) {
  const std::vector<const char*> paths = as_paths(names);
  const std::size_t n = paths.size();
  std::vector<U64> lengths, columns(9 * n);
  {
    const Gone gone;
    std::vector<Surveyed> found;
    found.reserve(n);
    survey(paths, limit, found, lengths);
    for (std::size_t i = 0; i < n; ++i) {
      const Surveyed& one = found[i];
      add_stamp(columns, i, n, one.stamp);
      columns[4 * n + i] = one.digest;
      columns[5 * n + i] = one.records;
      columns[6 * n + i] = static_cast<U64>(one.kind);
      columns[7 * n + i] = one.walked;
      columns[8 * n + i] = static_cast<U64>(one.error);
    }
  }
  return {as_bytes(columns), as_bytes(lengths)};
}

// Columns, one behind the other: see _kernel.pyi.
std::pair<nb::bytes, nb::bytes> py_read_small(const nb::bytes& names, U64 limit, nb::handle room) {
  const std::vector<const char*> paths = as_paths(names);
  const Output out(room, "room");
  if (out.room().size() < kSmallFile) throw nb::value_error("room is smaller than a file may be");
  std::vector<U64> edges, columns;
  {
    const Gone gone;
    std::vector<Small> found;
    found.reserve(paths.size());
    read_small(paths, limit, out.room(), found, edges);
    const std::size_t n = found.size();
    columns.resize(5 * n);
    for (std::size_t i = 0; i < n; ++i) {
      const Stamp& stamp = found[i].stamp;
      const U64 values[] = {stamp.size, stamp.modified, stamp.inode, stamp.device,
                            found[i].taken ? found[i].records : ~U64{0}};
      for (std::size_t k = 0; k < 5; ++k) columns[k * n + i] = values[k];
    }
  }
  return {as_bytes(columns), as_bytes(edges)};
}

nb::bytes py_stamps(const nb::bytes& names) {
  const std::vector<const char*> paths = as_paths(names);
  std::vector<U64> columns(4 * paths.size(), ~U64{0});
  {
    const Gone gone;
    Folder folder;
    Stamp stamp;
    for (std::size_t i = 0; i < paths.size(); ++i) {
      const auto [home, name] = folder.at(paths[i]);
      if (stamp_of(home, name, stamp)) add_stamp(columns, i, paths.size(), stamp);
    }
  }
  return as_bytes(columns);
}

// The names in each folder, or errno where it cannot be listed.
nb::list py_list_folders(const nb::bytes& folders, const nb::bytes& part) {
  const std::vector<const char*> paths = as_paths(folders);
  const std::string_view wanted(part.c_str(), part.size());
  std::vector<Listed> listed;
  {
    const Gone gone;
    listed = list_folders(paths, wanted);
  }
  nb::list result;
  for (const Listed& one : listed) {
    if (one.error)
      result.append(one.error);
    else
      result.append(nb::bytes(one.names.data(), one.names.size()));
  }
  return result;
}

}  // namespace

void add_files(nb::module_& m) {
  using nanobind::literals::operator""_a;

  m.attr("FETCHED") = static_cast<int>(Fault::kNone);
  m.attr("WRONG_HEADER") = static_cast<int>(Fault::kWrongHeader);
  m.attr("WRONG_PAYLOAD") = static_cast<int>(Fault::kWrongPayload);
  m.attr("WRONG_LENGTH") = static_cast<int>(Fault::kWrongLength);
  m.attr("BEHIND_END") = static_cast<int>(Fault::kEnd);
  m.attr("CHANGED") = static_cast<int>(Fault::kChanged);
  m.attr("REFUSED") = static_cast<int>(Fault::kSystem);
  m.attr("SURVEY_PLAIN") = static_cast<int>(Kind::kPlain);
  m.attr("SURVEY_OTHER") = static_cast<int>(Kind::kOther);
  m.attr("SURVEY_FAILED") = static_cast<int>(Kind::kFailed);
  m.attr("SURVEY_SMALL") = kSmallFile;

  nb::class_<File>(m, "File")
      .def("__init__", open_file, "fd"_a)
      .def_prop_ro("fd", &File::fd)
      .def_prop_ro("stamp", [](const File& file) { return as_tuple(file.stamp()); })
      .def_prop_ro("regular", [](const File& file) { return file.stamp().regular; })
      .def_prop_ro("broken", &File::broken)
      .def("unchanged", [](const File& file) { return !file.broken() && file.unchanged(); });

  m.def("pack", py_pack, "values"_a, "least"_a, "bits"_a, "words"_a);
  m.def("index_packed", py_index_packed, "count"_a, "least"_a, "bits"_a, "words"_a, "sums"_a, "at"_a,
        "summed"_a);
  m.def("sums_before", py_sums_before, "packed"_a, "places"_a, "sums"_a);
  m.def("unpack", py_unpack, "packed"_a, "first"_a, "values"_a);
  m.def("locate", py_locate, "lengths"_a, "firsts"_a, "bases"_a, "records"_a, "file"_a, "offset"_a, "length"_a,
        "threads"_a);
  m.def("search_sums", py_search_sums, "packed"_a, "firsts"_a, "bases"_a, "groups"_a, "positions"_a, "found"_a,
        "begin"_a);
  m.def("fetch", py_fetch, "files"_a, "file"_a, "offsets"_a, "lengths"_a, "places"_a, "out"_a, "verify"_a,
        "threads"_a, "past_cache"_a = false, "framed"_a = false);
  m.def("take", py_take, "source"_a, "offsets"_a, "lengths"_a, "places"_a, "out"_a, "verify"_a);
  m.def("walk", py_walk, "fd"_a, "size"_a, "begin"_a, "end"_a, "sync"_a, "limit"_a);
  m.def("digest", py_digest, "fd"_a, "size"_a);
  m.def("punch", py_punch, "fd"_a, "offset"_a, "size"_a);
  m.def("survey", py_survey, "names"_a, "limit"_a);
  m.def("read_small", py_read_small, "names"_a, "limit"_a, "room"_a);
  m.def("stamps", py_stamps, "names"_a);
  m.def("list_folders", py_list_folders, "folders"_a, "part"_a);
}

}  // namespace croupier
