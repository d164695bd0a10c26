// Walking files for the lengths of their records: see files.h.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "files.h"

namespace croupier {
namespace {

// Long records: a page for each header is enough. Short ones: what stays in cache beside the lengths.
constexpr std::size_t kWide = 256 << 10, kNarrow = 4096;
constexpr std::uint64_t kLongRecord = 32 << 10;

// Up to room.size() bytes; -1 with errno.
ssize_t read_at(int fd, Room room, std::uint64_t offset) {
  std::size_t have = 0;
  while (have < room.size()) {
    const ssize_t got = pread(fd, room.data() + have, room.size() - have, static_cast<off_t>(offset + have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  return static_cast<ssize_t>(have);
}

// A window on the file that moves forward.
class Window {
 public:
  Window(int fd, std::uint64_t size) : fd_(fd), size_(size), buffer_(kWide) {}

  // The bytes from `at` on, at least `least` of them unless the file ends; empty on error, with errno.
  Bytes at(std::uint64_t at, std::size_t least, std::size_t want) {
    if (at < begin_ || at > begin_ + have_ || (begin_ + have_ - at < least && begin_ + have_ < size_)) {
      if (buffer_.size() < want) buffer_.resize(want);
      const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(want, size_ - at));
      const ssize_t got = read_at(fd_, {buffer_.data(), count}, at);
      if (got < 0) {
        failed = true;
        return {};
      }
      begin_ = at;
      have_ = static_cast<std::size_t>(got);
    }
    return {buffer_.data() + (at - begin_), static_cast<std::size_t>(begin_ + have_ - at)};
  }
  bool failed = false;

 private:
  int fd_;
  std::uint64_t size_, begin_ = 0;
  std::size_t have_ = 0;
  std::vector<Byte> buffer_;
};

bool header_is_right(const Byte* p) {
  return with_cpu([&]<class Cpu>(Cpu) { return load32(p + 8) == mask(crc32c_of_length<Cpu>(load64(p))); });
}

// The first header at or after `at`, and before `end`, that is right and leads to another one or to the end of
// the file; else `end`. What only looks like one (a TFRecord file as a payload) is found out by whoever walked
// up to here: their walk ends elsewhere.
std::uint64_t find_first(Window& window, std::uint64_t at, std::uint64_t end, std::uint64_t size,
                         std::uint64_t limit) {
  Window beyond(window);
  for (; at < end && size - at >= kOverhead; ++at) {
    const Bytes bytes = window.at(at, kHeader, kWide);
    if (window.failed || bytes.size() < kHeader) break;
    const std::uint64_t length = load64(bytes.data());
    if (length > limit || length > size - at - kOverhead || !header_is_right(bytes.data())) continue;
    const std::uint64_t next = at + kOverhead + length;
    if (next == size) return at;
    const Bytes header = beyond.at(next, kHeader, kNarrow);
    if (header.size() >= kHeader && header_is_right(header.data())) return at;
  }
  return end;
}

}  // namespace

Walked walk(int fd, std::uint64_t size, std::uint64_t begin, std::uint64_t end, bool sync, std::uint64_t limit) {
  Walked walked;
  Window window(fd, size);
  end = std::min(end, size);
  std::uint64_t at = begin;
  if (sync) at = find_first(window, begin, end, size, limit);
  walked.begin = at;
  std::vector<std::uint64_t> bounds(kWide / kOverhead / 4);
  bool narrow = false;
  while (at < end && !window.failed) {
    const Bytes bytes = window.at(at, kHeader, narrow ? kNarrow : kWide);
    if (window.failed) break;
    const auto [count, why] = scan(bytes, 0, bounds, false, limit);
    std::size_t taken = 0;
    while (taken < count && at + bounds[taken] < end) ++taken;
    for (std::size_t i = 0; i < taken; ++i) walked.lengths.push_back(bounds[i + 1] - bounds[i] - kOverhead);
    const std::uint64_t from = at;
    at += bounds[taken];
    if (taken < count || at >= end) break;
    if (why == Stop::kFull) continue;
    if (why != Stop::kPartial) {
      walked.why = why;
      break;
    }
    const Bytes head = window.at(at, kHeader, narrow ? kNarrow : kWide);
    if (window.failed) break;
    if (head.size() < kHeader) {
      walked.why = Stop::kPartial;
      break;
    }
    const std::uint64_t length = load64(head.data());  // of a frame that the window does not hold whole
    if (!header_is_right(head.data())) {
      walked.why = Stop::kBadHeader;
      break;
    }
    if (length > limit) {
      walked.why = Stop::kTooLong;
      break;
    }
    if (kOverhead > size - at || length > size - at - kOverhead) {
      walked.why = Stop::kPartial;
      break;
    }
    walked.lengths.push_back(length);
    at += kOverhead + length;
    narrow = (at - from) / (taken + 1) >= kLongRecord;
  }
  if (window.failed) walked.error = errno;
  walked.end = at;
  return walked;
}

bool digest(int fd, std::uint64_t size, std::uint32_t& crc) {
  constexpr std::size_t kPiece = 4096, kPieces = 16;
  std::vector<Byte> buffer(kSmallFile);
  crc = 0;
  const auto add = [&](std::uint64_t at, std::size_t count) {
    const ssize_t got = read_at(fd, {buffer.data(), count}, at);
    if (got < 0) return false;
    crc = with_cpu([&]<class Cpu>(Cpu) { return crc32c<Cpu>(buffer.data(), static_cast<std::size_t>(got), crc); });
    return true;
  };
  if (size <= kSmallFile) return add(0, static_cast<std::size_t>(size));
  for (std::size_t i = 0; i + 1 < kPieces; ++i)
    if (!add((size - kPiece) / (kPieces - 1) * i, kPiece)) return false;
  return add(size - kPiece, kPiece);
}

void survey(Paths paths, std::uint64_t limit, std::vector<Surveyed>& found, std::vector<std::uint64_t>& lengths) {
  std::vector<Byte> buffer(kSmallFile);
  std::vector<std::uint64_t> bounds(kSmallFile / kOverhead + 1);
  Folder folder;
  for (const char* const path : paths) {
    Surveyed& one = found.emplace_back();
    const int fd = folder.open(path);
    if (fd < 0 || !stamp_of(fd, one.stamp)) {
      one.error = errno;
      if (fd >= 0) close(fd);
      continue;
    }
    const std::uint64_t size = one.stamp.size;
    const auto want = static_cast<std::size_t>(std::min<std::uint64_t>(size, kSmallFile));
    const ssize_t got = one.stamp.regular ? read_at(fd, {buffer.data(), want}, 0) : 0;
    if (got < 0 || !one.stamp.regular) {
      one.error = got < 0 ? errno : 0;
      close(fd);
      continue;
    }
    const Bytes head{buffer.data(), static_cast<std::size_t>(got)};
    const auto [count, why] = scan(head, 0, bounds, false, limit);
    one.kind = head.empty() || count > 0 || (head.size() >= kHeader && why != Stop::kBadHeader) ? Kind::kPlain : Kind::kOther;
    if (size <= kSmallFile) {
      one.digest = with_cpu([&]<class Cpu>(Cpu) { return crc32c<Cpu>(head.data(), head.size()); });
      one.walked = one.kind == Kind::kPlain && why == Stop::kPartial && bounds[count] == size && head.size() == size;
    } else if (!digest(fd, size, one.digest)) {
      one.kind = Kind::kFailed;
      one.error = errno;
    }
    if (one.walked) {
      one.records = count;
      for (std::size_t i = 0; i < count; ++i) lengths.push_back(bounds[i + 1] - bounds[i] - kOverhead);
    }
    close(fd);
  }
}

// Of the open file: its frames at the front of `room`, which has kSmallFile bytes, their edges in `bounds`.
static bool take_small(int fd, std::uint64_t limit, Room room, Slots bounds, Small& one) {
  const std::uint64_t size = one.stamp.size;
  if (!one.stamp.regular || size > kSmallFile) return false;
  const Room whole = room.first(static_cast<std::size_t>(size));
  if (read_at(fd, whole, 0) != static_cast<ssize_t>(size)) return false;
  const auto [count, why] = scan(whole, 0, bounds, true, limit);
  if (why != Stop::kPartial || bounds[count] != size) return false;
  one.records = count;
  // One record's checksum tells whether somebody wrote meanwhile; several may be of different times.
  Stamp now;
  return count < 2 || (stamp_of(fd, now) && now.size == size && now.modified == one.stamp.modified &&
                       now.changed == one.stamp.changed);
}

void read_small(Paths paths, std::uint64_t limit, Room room, std::vector<Small>& found,
                std::vector<std::uint64_t>& edges) {
  std::vector<std::uint64_t> bounds(kSmallFile / kOverhead + 1);
  edges.push_back(0);
  Folder folder;
  for (const char* const path : paths) {
    const std::uint64_t begin = edges.back();
    if (room.size() - begin < kSmallFile) break;
    Small& one = found.emplace_back();
    const int fd = folder.open(path);
    if (fd < 0) continue;
    one.taken = stamp_of(fd, one.stamp) && take_small(fd, limit, room.subspan(begin), bounds, one);
    if (one.taken)
      for (std::size_t i = 1; i <= one.records; ++i) edges.push_back(begin + bounds[i]);
    close(fd);
  }
}

}  // namespace croupier
