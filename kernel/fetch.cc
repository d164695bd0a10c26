// Reading many records at once: see files.h.
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <compare>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <string>

#include "files.h"
#include "threads.h"

namespace croupier {
namespace {

// Neighbours on disk that stand closer than this are read together, up to kMostRun bytes.
constexpr std::uint64_t kGap = 16 << 10, kMostRun = 1 << 20;
// From this size on a payload is read to where it belongs, smaller ones by way of a buffer that stays in cache.
constexpr std::uint64_t kAlone = 64 << 10;
// Requests that one thread has under way, where the page cache has nothing.
constexpr std::size_t kDepth = 64;
// Past the page cache: whole pages, so many bytes at once, by threads that wait for the device; where runs are
// shorter than this on average, that is no faster.
constexpr std::size_t kPage = 4096, kPiece = 256 << 10, kWaiting = 64;
constexpr std::uint64_t kLeastPast = 6 << 10;

struct Batch {
  std::vector<File*> files;
  Numbers file, offsets, lengths, places;
  Room out;
  bool verify;
  bool framed;  // what stands around the payload in its frame goes around its place, too

  std::size_t count() const { return file.size(); }
  File& of(std::size_t k) const {
    const std::uint64_t f = file[k];
    if (f >= files.size()) refuse("file has a number that is no file's");
    return *files[f];
  }
  Room place(std::size_t k) const {
    const std::uint64_t from = places[k], length = lengths[k];
    if (from > out.size() || length > out.size() - from) refuse("a place is not within out");
    if (framed && (from < kHeader || out.size() - from - length < kTrailer)) refuse("a frame is not within out");
    return {out.data() + from, static_cast<std::size_t>(length)};
  }
};

struct Wrong {  // thrown from deep inside, caught once a part
  Fetched what;
};
[[noreturn]] void fail(std::size_t record, Fault fault, int error = 0) { throw Wrong{{record, fault, error}}; }

// The frame's ends, copied; the payload stands in its place already.
void check_frame(const Batch& batch, std::size_t k, const Byte* header, const Byte* trailer, Room payload) {
  with_cpu([&]<class Cpu>(Cpu) {
    const std::uint64_t length = load64(header);
    if (load32(header + 8) != mask(crc32c_of_length<Cpu>(length))) fail(k, Fault::kWrongHeader);
    if (length != payload.size()) fail(k, Fault::kWrongLength);
    if (batch.verify && load32(trailer) != mask(crc32c<Cpu>(payload.data(), payload.size())))
      fail(k, Fault::kWrongPayload);
  });
  if (batch.framed) {
    std::memcpy(payload.data() - kHeader, header, kHeader);
    std::memcpy(payload.data() + payload.size(), trailer, kTrailer);
  }
}

void take_frame(const Batch& batch, std::size_t k, const Byte* frame, Room payload) {
  Byte header[kHeader], trailer[kTrailer];
  std::memcpy(header, frame, kHeader);
  if (!payload.empty()) std::memcpy(payload.data(), frame + kHeader, payload.size());
  std::memcpy(trailer, frame + kHeader + payload.size(), kTrailer);
  check_frame(batch, k, header, trailer, payload);
}

void check_end(std::size_t k, const File& file, std::uint64_t offset, std::uint64_t size) {
  const std::uint64_t end = file.stamp().size;
  if (offset > end || size > end - offset) fail(k, Fault::kEnd);
}

// What is read from: with a piece of aligned memory if the descriptor bypasses the page cache.
struct Source {
  int fd;
  Byte* aligned = nullptr;
};

// As preadv, by way of whole pages.
ssize_t read_pages(Source source, std::span<const struct iovec> pieces, std::uint64_t offset) {
  std::size_t wanted = 0, done = 0;
  for (const struct iovec& piece : pieces) wanted += piece.iov_len;
  const std::size_t skipped = offset % kPage;
  const std::size_t pages = std::min(wanted, kPiece) + skipped + kPage - 1;
  const auto at = static_cast<off_t>(offset - skipped);
  const ssize_t got = pread(source.fd, source.aligned, std::min(kPiece, pages / kPage * kPage), at);
  if (got < 0) return got;
  const std::size_t have = static_cast<std::size_t>(got) - std::min<std::size_t>(skipped, static_cast<std::size_t>(got));
  for (const struct iovec& piece : pieces) {
    const std::size_t count = std::min(piece.iov_len, have - done);
    if (count) std::memcpy(piece.iov_base, source.aligned + skipped + done, count);
    done += count;
  }
  return static_cast<ssize_t>(done);
}

// All of `pieces`, from `offset` on.
void read_all(std::size_t k, Source source, std::span<struct iovec> pieces, std::uint64_t offset) {
  while (!pieces.empty()) {
    ssize_t got = source.aligned ? read_pages(source, pieces, offset)
                                 : preadv(source.fd, pieces.data(), static_cast<int>(pieces.size()), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(k, Fault::kSystem, errno);
    if (got == 0) fail(k, Fault::kChanged);
    offset += static_cast<std::uint64_t>(got);
    for (; !pieces.empty() && static_cast<std::size_t>(got) >= pieces.front().iov_len; pieces = pieces.subspan(1))
      got -= static_cast<ssize_t>(pieces.front().iov_len);
    if (!pieces.empty()) {
      pieces.front().iov_base = static_cast<Byte*>(pieces.front().iov_base) + got;
      pieces.front().iov_len -= static_cast<std::size_t>(got);
    }
  }
}

void read_alone(const Batch& batch, std::size_t k, Source source, std::uint64_t offset, Room payload) {
  Byte header[kHeader], trailer[kTrailer];
  struct iovec pieces[3] = {{header, kHeader}, {payload.data(), payload.size()}, {trailer, kTrailer}};
  read_all(k, source, pieces, offset);
  check_frame(batch, k, header, trailer, payload);
}

// From the page cache: in the caller's order, as there is no disk to please.
void take_warm(const Batch& batch, std::size_t from, std::size_t to) {
  constexpr std::size_t kAhead = 16, kLines = 6;
  for (std::size_t k = from; k < to; ++k) {
    if (k + kAhead < to) {
      const File& later = batch.of(k + kAhead);
      const std::uint64_t at = batch.offsets[k + kAhead];
      if (const Byte* const map = later.map(); map && at < later.stamp().size)
        for (std::size_t line = 0; line < kLines; ++line) __builtin_prefetch(map + at + 64 * line);
    }
    File& file = batch.of(k);
    const Room payload = batch.place(k);
    const std::uint64_t offset = batch.offsets[k];
    check_end(k, file, offset, kOverhead + payload.size());
    if (const Byte* const map = file.map()) {
      const Touch touch(file);
      take_frame(batch, k, map + offset, payload);
    } else {
      read_alone(batch, k, {file.fd()}, offset, payload);
    }
  }
}

// A request by where it begins; copied, as the caller's other threads may write to the arrays meanwhile.
struct Place {
  std::uint64_t file, offset;
  std::size_t k;
  auto operator<=>(const Place&) const = default;
};

// Requests that one read serves.
struct Run {
  std::size_t from, to;  // in the order of the disk
  std::uint64_t begin, end;
};

void read_run(const Batch& batch, const std::vector<Place>& order, const Run& run, Source source,
              std::vector<Byte>& buffer) {
  const std::size_t k = order[run.from].k;
  const auto size = static_cast<std::size_t>(run.end - run.begin);
  if (run.to - run.from == 1 && size >= kAlone) {
    const Room payload = batch.place(k);
    if (kOverhead + payload.size() != size) refuse("lengths were changed by another thread");
    return read_alone(batch, k, source, run.begin, payload);
  }
  if (buffer.size() < size) buffer.resize(size);
  struct iovec whole[1] = {{buffer.data(), size}};
  read_all(k, source, whole, run.begin);
  for (std::size_t i = run.from; i < run.to; ++i) {
    const auto [f, offset, request] = order[i];
    const Room payload = batch.place(request);
    if (kOverhead + payload.size() > run.end - offset) refuse("lengths were changed by another thread");
    take_frame(batch, request, buffer.data() + (offset - run.begin), payload);
  }
}

void advise([[maybe_unused]] int fd, [[maybe_unused]] std::uint64_t begin, [[maybe_unused]] std::uint64_t end) {
#ifdef POSIX_FADV_WILLNEED
  posix_fadvise(fd, static_cast<off_t>(begin), static_cast<off_t>(end - begin), POSIX_FADV_WILLNEED);
#endif
}

void read_cold(const Batch& batch, const std::vector<Place>& order, const std::vector<Run>& runs, std::size_t from,
               std::size_t to) {
  std::vector<Byte> buffer;
  std::size_t asked = from;
  const auto fd = [&](std::size_t i) { return batch.files[order[runs[i].from].file]->fd(); };
  for (std::size_t i = from; i < to; ++i) {
    for (; asked < to && asked < i + kDepth; ++asked) advise(fd(asked), runs[asked].begin, runs[asked].end);
    read_run(batch, order, runs[i], {fd(i)}, buffer);
  }
}

// The same files once more, to be read past the page cache.
class Past {
 public:
  ~Past() {
    for (const int fd : fds_) close(fd);
  }
  // False where the system cannot, or has no more descriptors.
  bool open(const std::vector<File*>& files) {
#if defined(__linux__) && defined(O_DIRECT)
    for (const File* file : files) {
      const std::string name = "/proc/self/fd/" + std::to_string(file->fd());  // whatever its name is by now
      const int fd = ::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_DIRECT);
      if (fd < 0) return false;
      fds_.push_back(fd);
    }
    return true;
#else
    return files.empty();
#endif
  }
  int fd(std::size_t file) const { return fds_[file]; }

 private:
  std::vector<int> fds_;
};

void read_past(const Batch& batch, const std::vector<Place>& order, const std::vector<Run>& runs, const Past& past,
               std::atomic<std::size_t>& next) {
  const std::unique_ptr<void, decltype(&std::free)> pages(std::aligned_alloc(kPage, kPiece), &std::free);
  if (!pages) throw std::bad_alloc();
  std::vector<Byte> buffer;
  for (std::size_t i; (i = next.fetch_add(1)) < runs.size();)
    read_run(batch, order, runs[i], {past.fd(order[runs[i].from].file), static_cast<Byte*>(pages.get())}, buffer);
}

std::vector<Run> runs_of(const Batch& batch, const std::vector<Place>& order) {
  std::vector<Run> runs;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto [f, begin, k] = order[i];
    const std::uint64_t size = kOverhead + batch.place(k).size();
    check_end(k, *batch.files[f], begin, size);
    if (!runs.empty() && order[runs.back().from].file == f) {
      Run& last = runs.back();
      const std::uint64_t end = std::max(last.end, begin + size);
      if (begin >= last.begin && begin <= last.end + kGap && end - last.begin <= kMostRun) {
        last.end = end;
        last.to = i + 1;
        continue;
      }
    }
    runs.push_back({i, i + 1, begin, begin + size});
  }
  return runs;
}

// Whether a few of the records are in the page cache: the middles of their payloads, as who walked from header to
// header has brought the edges there. (A mapping that is not reads page after page: 100 KB at 0.1 GB/s.) Where the
// system cannot say, they are not.
bool is_warm(const Batch& batch) {
#ifdef RWF_NOWAIT
  constexpr std::size_t kSamples = 8;
  const std::size_t step = batch.count() / kSamples + 1;
  for (std::size_t k = step / 2; k < batch.count(); k += step) {
    Byte byte;
    struct iovec one = {&byte, 1};
    const std::uint64_t middle = batch.offsets[k] + kHeader + batch.lengths[k] / 2;
    if (preadv2(batch.of(k).fd(), &one, 1, static_cast<off_t>(middle), RWF_NOWAIT) != 1)
      return false;
  }
  return true;
#else
  return true;
#endif
}

// job(0) ... job(parts - 1) in parallel; gives what went wrong first in the caller's order.
template <class Job>
Fetched guarded(std::size_t parts, const Job& job) {
  Fetched worst;
  std::mutex lock;
  in_parallel(parts, [&](std::size_t part) {
    try {
      job(part);
    } catch (const Wrong& wrong) {
      const std::lock_guard<std::mutex> held(lock);
      if (worst.fault == Fault::kNone || wrong.what.record < worst.record) worst = wrong.what;
    }
  });
  return worst;
}

Fetched fetch_warm(const Batch& batch, unsigned threads) {
  constexpr std::uint64_t kCost = 512;  // a record of no bytes takes as long as copying so many
  for (File* file : batch.files) file->want_map();
  guard_mappings();
  const std::size_t n = batch.count(), parts = parts_for(batch.out.size() + n * kCost, threads);
  return guarded(parts, [&](std::size_t part) { take_warm(batch, n * part / parts, n * (part + 1) / parts); });
}

Fetched fetch_cold(const Batch& batch, unsigned threads, bool past_cache) {
  std::vector<Place> order;
  order.reserve(batch.count());
  for (std::size_t k = 0; k < batch.count(); ++k) {
    order.push_back({batch.file[k], batch.offsets[k], k});
    if (order.back().file >= batch.files.size()) refuse("file was changed by another thread");
  }
  if (!std::is_sorted(order.begin(), order.end())) std::sort(order.begin(), order.end());
  std::vector<Run> runs;
  Fetched wrong = guarded(1, [&](std::size_t) { runs = runs_of(batch, order); });
  if (wrong.fault != Fault::kNone) return wrong;
  std::uint64_t bytes = 0;
  for (const Run& run : runs) bytes += run.end - run.begin;
  if (Past past; past_cache && bytes >= kLeastPast * runs.size() && past.open(batch.files)) {
    std::atomic<std::size_t> next{0};
    return guarded(std::clamp<std::size_t>(runs.size() / 4, 1, kWaiting),
                   [&](std::size_t) { read_past(batch, order, runs, past, next); });
  }
  const std::size_t parts = std::clamp<std::size_t>(runs.size() / 16, 1, std::clamp(threads, 1U, 256U));
  wrong = guarded(parts, [&](std::size_t part) {
    read_cold(batch, order, runs, runs.size() * part / parts, runs.size() * (part + 1) / parts);
  });
  wrong.cold = bytes;
  return wrong;
}

}  // namespace

Fetched fetch(const std::vector<File*>& files, Numbers file, Numbers offsets, Numbers lengths, Numbers places,
              Room out, bool verify, unsigned threads, bool past_cache, bool framed) {
  const Batch batch{files, file, offsets, lengths, places, out, verify, framed};
  if (offsets.size() != file.size() || lengths.size() != file.size() || places.size() != file.size())
    refuse("file, offsets, lengths and places differ in length");
  for (std::size_t k = 0; k < batch.count(); ++k) batch.of(k);  // refuses numbers of no file
  const bool warm = is_warm(batch);
  Fetched found = warm ? fetch_warm(batch, threads) : fetch_cold(batch, threads, past_cache);
  // In the order of the disk another one may have come first.
  if (!warm && found.fault != Fault::kNone) found = fetch_warm(batch, threads);
  // Afterwards, so that no change before or meanwhile goes unnoticed.
  for (std::size_t f = 0; f < files.size(); ++f) {
    if (!files[f]->broken() && files[f]->unchanged()) continue;
    const auto first = std::ranges::find(file, f);
    if (first != file.end()) return {static_cast<std::size_t>(first - file.begin()), Fault::kChanged};
  }
  return found;
}

Fetched take(Bytes source, Numbers offsets, Numbers lengths, Numbers places, Room out, bool verify) {
  const Batch batch{{}, offsets, offsets, lengths, places, out, verify, false};
  if (lengths.size() != offsets.size() || places.size() != offsets.size())
    refuse("offsets, lengths and places differ in length");
  if (overlap(source, out)) refuse("source and out overlap");
  return guarded(1, [&](std::size_t) {
    for (std::size_t k = 0; k < offsets.size(); ++k) {
      const Room payload = batch.place(k);
      const std::uint64_t offset = offsets[k], size = kOverhead + payload.size();
      if (offset > source.size() || size > source.size() - offset) fail(k, Fault::kEnd);
      take_frame(batch, k, source.data() + offset, payload);
    }
  });
}

}  // namespace croupier
