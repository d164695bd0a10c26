// Names: looked up relative to their folder, and listed.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace croupier {

// Each ended by a zero byte, as the system wants them.
using Paths = std::span<const char* const>;

// Looks names up relative to their folder, from the second of one on: a tenth of the time of a tiny file.
class Folder {
 public:
  Folder() = default;
  ~Folder() { leave(); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  // A descriptor, good until the next call, and what is left of the path: for openat, fstatat.
  std::pair<int, const char*> at(const char* path);
  // For reading; -1 with errno.
  int open(const char* path);

 private:
  void leave();

  std::string folder_;  // with its slash
  int fd_ = -1;
};

struct Listed {
  int error = 0;      // errno
  std::string names;  // in the order of their bytes, each ended by a zero byte
};

// The files in each folder (or links to files) whose names contain `part`; never hidden ones. On as many threads as
// there are cores.
std::vector<Listed> list_folders(Paths folders, std::string_view part);

}  // namespace croupier
