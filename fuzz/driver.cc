// A main for a fuzz target where there is no libFuzzer: replays the corpus, then mutates it for a while.
//   TARGET [-seconds=20] [-seed=1] [-keep=FILE] FILE_OR_DIRECTORY...
// The current input is in FILE whenever the target is running, so that a crash leaves it behind.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "naive.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t*, std::size_t);

namespace {

using Input = std::vector<std::uint8_t>;

struct Random {
  std::uint64_t state;
  std::uint64_t next() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  }
  std::size_t below(std::size_t n) { return n == 0 ? 0 : static_cast<std::size_t>((next() >> 11) % n); }
};

void put(Input& to, std::uint64_t v, int bytes) {
  for (int i = 0; i < bytes; ++i) to.push_back(static_cast<std::uint8_t>(v >> (8 * i)));
}

Input frame(const Input& payload) {
  Input f;
  put(f, payload.size(), 8);
  put(f, naive::masked_crc(f.data(), 8), 4);
  f.insert(f.end(), payload.begin(), payload.end());
  put(f, naive::masked_crc(payload.data(), payload.size()), 4);
  return f;
}

void write_number(Input& data, std::size_t at, std::uint64_t v, int bytes) {
  for (int i = 0; i < bytes; ++i)
    data[at + static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(v >> (8 * i));
}

// A length with its checksum put right, and sometimes its payload's: what random changes never hit upon.
void plant_header(Input& data, Random& random) {
  if (data.size() < 16) return;
  const std::size_t at = random.below(data.size() - 15), left = data.size() - at - 16;
  std::uint64_t length = 0;
  switch (random.below(4)) {
    case 0:
      length = random.below(left + 1);
      break;
    case 1:
      length = left + random.below(20) - 4;
      break;
    case 2:
      length = (1ULL << random.below(64)) + random.below(3) - 1;
      break;
    default:
      length = 0 - random.below(40);
  }
  write_number(data, at, length, 8);
  write_number(data, at + 8, naive::masked_crc(data.data() + at, 8), 4);
  if (length <= left && random.below(4) != 0)
    write_number(data, at + 12 + length, naive::masked_crc(data.data() + at + 12, length), 4);
}

void mutate(Input& data, const std::vector<Input>& corpus, Random& random) {
  const auto place = [&](std::size_t n) { return data.begin() + static_cast<std::ptrdiff_t>(n); };
  const std::size_t at = random.below(data.size()), n = std::min(random.below(40), data.size() - at);
  switch (random.below(8)) {
    case 0:
      if (!data.empty()) data[at] ^= static_cast<std::uint8_t>(1 << random.below(8));
      break;
    case 1:
      if (!data.empty()) data[at] = static_cast<std::uint8_t>(random.next());
      break;
    case 2:
      data.insert(place(at), n, static_cast<std::uint8_t>(random.next()));
      break;
    case 3:
      data.erase(place(at), place(at + n));
      break;
    case 4: {
      const Input block(place(at), place(at + n));
      data.insert(place(random.below(data.size() + 1)), block.begin(), block.end());
      break;
    }
    case 5: {
      const Input& other = corpus[random.below(corpus.size())];
      data.resize(at);
      data.insert(data.end(), other.begin() + static_cast<std::ptrdiff_t>(random.below(other.size())),
                  other.end());
      break;
    }
    case 6:
      data.resize(at);
      break;
    default:
      plant_header(data, random);
  }
  if (data.size() > 4096) data.resize(4096);
}

std::vector<Input> built_in() {
  std::vector<Input> corpus{{}};
  Input file;
  for (const std::size_t n : {0, 1, 7, 8, 63, 64, 255, 256, 300, 700}) {
    Input payload(n);
    for (std::size_t i = 0; i < n; ++i) payload[i] = static_cast<std::uint8_t>(i * 7 + n);
    corpus.push_back(frame(payload));
    file.insert(file.end(), corpus.back().begin(), corpus.back().end());
  }
  corpus.push_back(file);
  corpus.push_back(frame(file));  // frames within a frame
  return corpus;
}

Input read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Keeper {
  int file = -1;
  void keep(const Input& data) const {
    if (file < 0) return;
    if (pwrite(file, data.data(), data.size(), 0) < 0 ||
        ftruncate(file, static_cast<off_t>(data.size())) != 0)
      std::abort();
  }
};

}  // namespace

int main(int argc, char** argv) {
  long seconds = 20;
  Random random{1};
  Keeper keeper;
  std::vector<Input> corpus = built_in();
  const std::size_t own = corpus.size();
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("-seconds=")) {
      seconds = std::stol(argument.substr(9));
    } else if (argument.starts_with("-seed=")) {
      random.state = std::stoull(argument.substr(6)) * 0x9e3779b97f4a7c15 | 1;
    } else if (argument.starts_with("-keep=")) {
      keeper.file = open(argument.c_str() + 6, O_RDWR | O_CREAT | O_TRUNC, 0644);
    } else if (std::filesystem::is_directory(argument)) {
      for (const auto& entry : std::filesystem::recursive_directory_iterator(argument))
        if (entry.is_regular_file()) corpus.push_back(read(entry.path()));
    } else {
      corpus.push_back(read(argument));
    }
  }
  unsigned long executions = 0;
  const auto run = [&](const Input& data) {
    keeper.keep(data);
    LLVMFuzzerTestOneInput(data.data(), data.size());
    ++executions;
  };
  for (const Input& data : corpus) run(data);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (std::chrono::steady_clock::now() < end) {
    Input data = corpus[random.below(corpus.size())];
    for (std::size_t times = 1 + random.below(6); times > 0; --times) mutate(data, corpus, random);
    run(data);
  }
  std::printf("%lu executions, of them %zu files of the corpus\n", executions, corpus.size() - own);
}
