#include "files.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace croupier {
namespace {

// A mapping costs some microseconds to make and to undo: small files are read.
constexpr std::uint64_t kLeastMapped = 1 << 20;

std::uint64_t nanoseconds(const struct timespec& time) {
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

// What this thread touches. In the static part of thread-local storage, as a signal handler may not allocate.
__attribute__((tls_model("initial-exec"))) thread_local Touch* touching = nullptr;

__attribute__((tls_model("initial-exec"))) thread_local int foreign = 0;  // faults of others, being handled

// What was there before our handler. No locks here: one that another thread holds at a fork is held for ever.
std::atomic<const struct sigaction*> handler_before{nullptr};
std::uintptr_t page_size = 4096;

// Others' faults are theirs to handle. faulthandler, say, prints the stack, restores what was there before it
// (us) and raises again: that second time the process must end.
void on_bus_error(int number, siginfo_t* info, void* context) {
  if (Touch::mend(info->si_addr)) return;
  const struct sigaction& previous = *handler_before.load(std::memory_order_acquire);
  const bool handled = previous.sa_flags & SA_SIGINFO || (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN);
  if (foreign > 0 || !handled) {
    const bool sent = info->si_code <= 0 || info->si_code == SI_USER;  // by kill or raise: no instruction runs again
    if (sent && previous.sa_handler == SIG_IGN) return;
    signal(SIGBUS, SIG_DFL);  // the faulting instruction runs again
    if (sent) raise(number);
    return;
  }
  ++foreign;
  if (previous.sa_flags & SA_SIGINFO)
    previous.sa_sigaction(number, info, context);
  else
    previous.sa_handler(number);
  --foreign;
}

Stamp as_stamp(const struct stat& status) {
  Stamp stamp;
#ifdef __APPLE__
  stamp.modified = nanoseconds(status.st_mtimespec);
  stamp.changed = nanoseconds(status.st_ctimespec);
#else
  stamp.modified = nanoseconds(status.st_mtim);
  stamp.changed = nanoseconds(status.st_ctim);
#endif
  stamp.size = static_cast<std::uint64_t>(status.st_size);
  stamp.inode = static_cast<std::uint64_t>(status.st_ino);
  stamp.device = static_cast<std::uint64_t>(status.st_dev);
  stamp.regular = S_ISREG(status.st_mode);
  stamp.linked = status.st_nlink > 0;
  return stamp;
}

}  // namespace

// Somebody else may have put a handler over ours since: looked at before each batch (0.1 microseconds).
void guard_mappings() {
  struct sigaction now = {};
  if (sigaction(SIGBUS, nullptr, &now) != 0) return;
  if (now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_bus_error) return;
  page_size = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  handler_before.store(new (struct sigaction)(now), std::memory_order_release);  // once for each newcomer
  struct sigaction ours = {};
  ours.sa_sigaction = on_bus_error;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&ours.sa_mask);
  sigaction(SIGBUS, &ours, nullptr);
}

bool stamp_of(int fd, Stamp& stamp) {
  struct stat status;
  if (fstat(fd, &status) != 0) return false;
  stamp = as_stamp(status);
  return true;
}

bool stamp_of(int folder, const char* name, Stamp& stamp) {
  struct stat status;
  if (fstatat(folder, name, &status, 0) != 0) return false;
  stamp = as_stamp(status);
  return true;
}

File::File(int fd) : fd_(fd) {
  if (!stamp_of(fd, stamp_)) {
    const int error = errno;
    close(fd);
    errno = error;
    fd_ = -1;
  }
}

File::~File() {
  if (map()) munmap(const_cast<Byte*>(map()), static_cast<std::size_t>(stamp_.size));
  if (fd_ >= 0) close(fd_);
}

bool File::unchanged() const {
  Stamp now;
  return stamp_of(fd_, now) && now.linked && now.size == stamp_.size && now.modified == stamp_.modified &&
         now.changed == stamp_.changed;
}

void File::want_map() {
  if (wanted_.exchange(true, std::memory_order_acq_rel)) return;  // done, or another thread is about to
  if (stamp_.regular && stamp_.size >= kLeastMapped && stamp_.size <= SIZE_MAX / 2) {
    void* const map = mmap(nullptr, static_cast<std::size_t>(stamp_.size), PROT_READ, MAP_SHARED, fd_, 0);
    if (map != MAP_FAILED) {
      madvise(map, static_cast<std::size_t>(stamp_.size), MADV_RANDOM);
      map_.store(static_cast<const Byte*>(map), std::memory_order_release);
    }
  }
}

Touch::Touch(File& file) : file_(file), before_(touching) { touching = this; }
Touch::~Touch() { touching = before_; }

bool Touch::mend(void* address) {
  Touch* const touch = touching;
  if (!touch || !touch->file_.map()) return false;
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const auto begin = reinterpret_cast<std::uintptr_t>(touch->file_.map());
  if (at < begin || at - begin >= touch->file_.stamp_.size) return false;
  touch->file_.broken_.store(true, std::memory_order_release);  // before anybody can see the zeros
  void* const from = reinterpret_cast<void*>(at & ~(page_size - 1));
  return mmap(from, page_size, PROT_READ, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
}

}  // namespace croupier
