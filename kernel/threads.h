// A job cut into parts, one thread each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace croupier {

// Below some 4 MB a part is over before a thread for it has started (50 microseconds at worst).
inline std::size_t parts_for(std::uint64_t bytes, unsigned threads) {
  constexpr std::uint64_t kLeast = 2 << 20;
  constexpr unsigned kMost = 256;
  return static_cast<std::size_t>(
      std::clamp<std::uint64_t>(bytes / kLeast, 1, std::clamp(threads, 1U, kMost)));
}

// job(0), ..., job(parts - 1), the last one on this thread; rethrows what one of them threw.
template <class Job>
void in_parallel(std::size_t parts, const Job& job) {
  if (parts == 1) return job(0);
  std::mutex lock;
  std::exception_ptr failure;
  const auto guarded = [&](std::size_t part) {
    try {
      job(part);
    } catch (...) {
      const std::lock_guard<std::mutex> guard(lock);
      failure = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(parts);
  std::size_t started = 0;
  try {
    for (; started + 1 < parts; ++started) threads.emplace_back(guarded, started);
  } catch (const std::system_error&) {  // no more threads to be had: the rest is done here
  }
  for (std::size_t part = started; part < parts; ++part) guarded(part);
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace croupier
