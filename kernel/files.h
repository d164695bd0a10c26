// Open files, and reading many records of many files at once.
//
// The kernel knows descriptors, not names. What is read is checked like everything else: a file may be
// truncated, replaced or written to at any time by anybody.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "folders.h"
#include "frames.h"

namespace croupier {

// What tells that a file is still the one that was opened.
struct Stamp {
  std::uint64_t size = 0, modified = 0, changed = 0, inode = 0, device = 0;  // times in nanoseconds
  bool regular = false, linked = false;
};

// False, with errno, when the system refuses.
bool stamp_of(int fd, Stamp& stamp);
bool stamp_of(int folder, const char* name, Stamp& stamp);

// Owns a descriptor and, for large files, a mapping of what the page cache has of it: a random read of
// 200 bytes takes 0.1 microseconds there and 0.9 by pread. The mapping is touched only inside a `Touch`.
class File {
 public:
  explicit File(int fd);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int fd() const { return fd_; }
  const Stamp& stamp() const { return stamp_; }
  // Null while there is none: then pread serves.
  const Byte* map() const { return map_.load(std::memory_order_acquire); }
  // Whether the file still has the size and times that it had, and its name has not been given to another. The
  // time of change cannot be set, but moves for a new link or mode as well: then compare contents.
  bool unchanged() const;
  bool broken() const { return broken_.load(std::memory_order_acquire); }
  // Makes the mapping, if that pays; called by whoever will read often.
  void want_map();

 private:
  friend class Touch;
  int fd_;
  Stamp stamp_;
  std::atomic<const Byte*> map_{nullptr};
  std::atomic<bool> wanted_{false}, broken_{false};
};

// Has the handler of SIGBUS in place that `Touch` needs.
void guard_mappings();

// While it lives, this thread may read the mapping: where the file has been truncated, the handler of SIGBUS
// puts a page of zeros and says so in `broken`. Nest them not.
class Touch {
 public:
  explicit Touch(File& file);
  ~Touch();
  Touch(const Touch&) = delete;
  Touch& operator=(const Touch&) = delete;
  // For the handler: whether `address` is in the mapping that this thread touches; if so it is mended.
  static bool mend(void* address);

 private:
  File& file_;
  Touch* const before_;
};

enum class Fault { kNone, kWrongHeader, kWrongPayload, kWrongLength, kEnd, kChanged, kSystem };

struct Fetched {
  std::size_t record = 0;  // the request at fault
  Fault fault = Fault::kNone;
  int error = 0;           // errno, for kSystem
  std::uint64_t cold = 0;  // bytes that the page cache did not have, and has now
};

// Reads the payload of the frame at offsets[k] of files[file[k]], of lengths[k] bytes, to out[places[k]...], for
// every k. The header must be right and say that length; `verify` also
// checks the payload. Warm records come from the mappings; for cold ones many requests are under way at once,
// in the order of the disk. `past_cache`: long cold ones come from the device and leave the page cache as it is.
Fetched fetch(const std::vector<File*>& files, Numbers file, Numbers offsets, Numbers lengths, Numbers places,
              Room out, bool verify, unsigned threads, bool past_cache, bool framed);

// The same from frames that stand in memory.
Fetched take(Bytes source, Numbers offsets, Numbers lengths, Numbers places, Room out, bool verify);

// Lengths of the frames that begin in [begin, end) of a file, as far as they are right.
struct Walked {
  std::uint64_t begin = 0, end = 0;  // of the frames that were found
  Stop why = Stop::kFull;            // kFull: `end` was reached
  int error = 0;                     // errno: the rest does not count
  std::vector<std::uint64_t> lengths;
};
// `sync`: find the first frame at or after `begin`; else one must begin there.
Walked walk(int fd, std::uint64_t size, std::uint64_t begin, std::uint64_t end, bool sync, std::uint64_t limit);

// CRC-32C of some of a file's content: all up to 64 KiB, else sixteen pieces of 4 KiB.
constexpr std::size_t kSmallFile = 1 << 16;
bool digest(int fd, std::uint64_t size, std::uint32_t& crc);

enum class Kind { kPlain, kOther, kFailed };
struct Surveyed {
  Kind kind = Kind::kFailed;
  bool walked = false;  // its lengths are among the others'
  int error = 0;
  Stamp stamp;
  std::uint32_t digest = 0;
  std::uint64_t records = 0;
};
// Opens files by name, one after the other: small plain ones are walked at once. It helps when those of one folder
// stand together.
void survey(Paths paths, std::uint64_t limit, std::vector<Surveyed>& found, std::vector<std::uint64_t>& lengths);

// A file of which there is nothing to say but its records: small, plain, whole and undamaged, payloads as well.
struct Small {
  bool taken = false;
  Stamp stamp;  // all zeros where it could not be opened
  std::uint64_t records = 0;
};
// Opens files by name, one after the other. The frames of small ones go to `room`, one behind the other; `edges` are
// theirs. Ends before a file that there might be no room for.
void read_small(Paths paths, std::uint64_t limit, Room room, std::vector<Small>& found,
                std::vector<std::uint64_t>& edges);

}  // namespace croupier
