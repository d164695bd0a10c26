#include "folders.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <thread>

#include "threads.h"

namespace croupier {
namespace {

constexpr int kFile = O_RDONLY | O_CLOEXEC | O_NONBLOCK;  // a pipe without a writer must not hang
#ifdef O_PATH
constexpr int kFolder = O_PATH | O_DIRECTORY | O_CLOEXEC;
#else
constexpr int kFolder = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
#endif

// By the folder's own word where it has one: a million files need not be asked.
bool is_file(int folder, const struct dirent& entry) {
  if (entry.d_type != DT_LNK && entry.d_type != DT_UNKNOWN) return entry.d_type == DT_REG;
  struct stat status;
  return fstatat(folder, entry.d_name, &status, 0) == 0 && S_ISREG(status.st_mode);
}

// Names mostly differ in the few bytes behind what all have in common: those make a number, which is compared.
struct Entry {
  std::uint64_t front;
  const char* name;
};

std::uint64_t front_of(const char* name) {
  std::uint64_t front = 0;
  for (int i = 0; i < 8; ++i) front = front << 8 | static_cast<unsigned char>(*name ? *name++ : 0);
  return front;
}

std::string sorted(const std::string& names) {
  std::vector<Entry> entries;
  std::size_t common = names.find('\0');
  for (std::size_t at = 0; at < names.size(); at = names.find('\0', at) + 1) {
    const char* const name = names.data() + at;
    entries.push_back({0, name});
    std::size_t alike = 0;
    while (alike < common && name[alike] == names[alike]) ++alike;
    common = alike;
  }
  for (Entry& entry : entries) entry.front = front_of(entry.name + common);
  std::sort(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
    return a.front != b.front ? a.front < b.front : std::strcmp(a.name + common, b.name + common) < 0;
  });
  std::string result;
  result.reserve(names.size());
  for (const Entry& entry : entries) result.append(entry.name, std::strlen(entry.name) + 1);
  return result;
}

void list(const char* path, std::string_view part, Listed& listed) {
  DIR* const folder = opendir(path);
  if (!folder) {
    listed.error = errno;
    return;
  }
  std::string names;
  errno = 0;
  while (const struct dirent* const entry = readdir(folder)) {
    const std::string_view name(entry->d_name);
    if (name[0] != '.' && name.find(part) != name.npos && is_file(dirfd(folder), *entry))
      names.append(name).push_back('\0');
    errno = 0;  // what tells the end from a failure
  }
  listed.error = errno;
  closedir(folder);
  if (!listed.error) listed.names = sorted(names);
}

}  // namespace

std::pair<int, const char*> Folder::at(const char* path) {
  const char* const slash = std::strrchr(path, '/');
  const std::size_t cut = slash ? static_cast<std::size_t>(slash - path) + 1 : 0;
  if (cut == 0 || path[cut] == '\0' || folder_ != std::string_view(path, cut)) {
    leave();
    folder_.assign(path, cut);
    return {AT_FDCWD, path};
  }
  if (fd_ == -1) fd_ = ::open(folder_.c_str(), kFolder);
  return fd_ < 0 ? std::pair{AT_FDCWD, path} : std::pair{fd_, path + cut};
}

int Folder::open(const char* path) {
  const auto [folder, name] = at(path);
  return ::openat(folder, name, kFile);
}

void Folder::leave() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

std::vector<Listed> list_folders(Paths folders, std::string_view part) {
  std::vector<Listed> listed(folders.size());
  std::atomic<std::size_t> next{0};
  const std::size_t threads = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 16);
  in_parallel(std::clamp<std::size_t>(folders.size(), 1, threads), [&](std::size_t) {
    for (std::size_t i; (i = next.fetch_add(1)) < folders.size();) list(folders[i], part, listed[i]);
  });
  return listed;
}

}  // namespace croupier
