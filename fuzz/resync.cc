// resync on any bytes.
#include <cstring>
#include <memory>

#include "frames.h"
#include "naive.h"

namespace {

using namespace croupier;
using naive::require;

void check(Bytes data, std::size_t start, std::uint64_t limit, bool final) {
  const auto [position, found] = resync(data, start, limit, final);
  for (std::size_t at = start;; ++at) {
    std::size_t size = 0;
    const auto kind = naive::look(data.data(), data.size(), at, limit, true, &size);
    if (kind == naive::Kind::kFrame) return require(found && position == at, "the first frame is found");
    if (kind == naive::Kind::kCutHeader || (kind == naive::Kind::kCutPayload && !final))
      return require(!found && position == at, "it stops where a frame could begin");
    require(position > at, "it goes on where no frame begins");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  const std::unique_ptr<Byte[]> copy(new Byte[size]);  // of exact size
  if (size > 0) std::memcpy(copy.get(), input, size);
  const Bytes data(copy.get(), size);
  for (const bool final : {false, true}) {
    check(data, 0, ~0ULL, final);
    if (size > 0) check(data, input[size - 1] % (size + 1), input[size / 2] * 256ULL, final);
  }
  return 0;
}
