// scan, and what is done with the bounds that it found, on any bytes.
#include <cstring>
#include <memory>
#include <vector>

#include "frames.h"
#include "naive.h"

namespace {

using namespace croupier;
using naive::require;

Stop reason(naive::Kind kind) {
  switch (kind) {
    case naive::Kind::kBadHeader:
      return Stop::kBadHeader;
    case naive::Kind::kTooLong:
      return Stop::kTooLong;
    case naive::Kind::kBadPayload:
      return Stop::kBadPayload;
    default:
      return Stop::kPartial;
  }
}

void check_scan(Bytes data, std::size_t start, std::size_t room, bool payloads, std::uint64_t limit) {
  const std::unique_ptr<std::uint64_t[]> bounds(
      new std::uint64_t[room]);  // of exact size: ASan sees one more
  const auto [count, why] = scan(data, start, Slots(bounds.get(), room), payloads, limit);
  require(count < room && bounds[0] == start, "bounds begin with start");
  std::size_t at = start;
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t size = 0;
    require(naive::look(data.data(), data.size(), at, limit, payloads, &size) == naive::Kind::kFrame,
            "a frame");
    require(bounds[i + 1] == (at += size), "the next bound");
  }
  std::size_t size = 0;
  const auto kind = naive::look(data.data(), data.size(), at, limit, payloads, &size);
  if (kind == naive::Kind::kFrame || (why == Stop::kFull && count + 1 == room))
    require(why == Stop::kFull && count + 1 == room && data.size() - at >= kHeader,
            "it stops only when full");
  else
    require(why == reason(kind), "why it stopped");
}

// Frames that scan has found go through everything else unharmed.
void check_use(Bytes data) {
  std::vector<std::uint64_t> bounds(data.size() / kOverhead + 2);
  const std::size_t n = scan(data, 0, bounds, true, ~0ULL).first;
  bounds.resize(n + 1);
  const Frames frames{data, bounds};
  Totals checked;
  require(check_frames(frames, 2, checked) == n, "check_frames agrees with scan");
  std::vector<Byte> again(data.size());
  std::size_t position = 0;
  Totals written;
  for (std::size_t i = 0; i < n; ++i) {
    const Bytes payload = frames.payload(i);
    require(append(Room(again).subspan(position), payload, written), "a copy has the size of the original");
    position += payload.size() + kOverhead;
  }
  require(position == bounds[n] && (position == 0 || std::memcmp(again.data(), data.data(), position) == 0),
          "append writes what scan has read");
  const Totals read = fingerprint(frames);
  for (const Totals& other : {written, checked})
    require(read.low == other.low && read.high == other.high && read.bytes == other.bytes &&
                read.frames == other.frames,
            "fingerprints");

  std::vector<std::uint64_t> order(n), edges(n + 1), cursors{0}, limits{position}, bucket(n, 0);
  for (std::size_t i = 0; i < n; ++i) order[i] = n - 1 - i;
  require(gather(frames, order, again, edges, 2) == n && edges[n] == position, "gather has room");
  const Totals turned = fingerprint({again, edges});
  require(turned.low == read.low && turned.high == read.high, "gather keeps the frames");
  require(scatter(frames, bucket, 0, again, cursors, limits) == n && cursors[0] == position,
          "scatter has room");
  if (n == 0) return;
  const std::unique_ptr<Byte[]> tight(new Byte[position - 1]);  // one byte too few for the last frame
  const Room room(tight.get(), position - 1);
  require(gather(frames, order, room, edges, 1) == n - 1, "gather stops at what does not fit");
  cursors[0] = 0, limits[0] = position - 1;
  require(scatter(frames, bucket, 0, room, cursors, limits) == n - 1, "scatter stops at what does not fit");
}

// Arrays made of the input's bytes: refused or harmless.
void check_arrays(Bytes data) {
  std::vector<std::uint64_t> numbers(data.size() / 8 + 1);
  if (data.size() >= 8) std::memcpy(numbers.data(), data.data(), data.size() / 8 * 8);
  if (data[0] & 1)
    for (auto& number : numbers) number %= data.size() + 2;
  const Frames frames{data, numbers};
  std::vector<Byte> out(data.size());
  std::vector<std::uint64_t> room(numbers.size() + 1), cursors = numbers;
  const auto attempt = [](auto&& call) {
    try {
      call();
    } catch (const std::invalid_argument&) {
    }
  };
  Totals totals;
  attempt([&] { check_frames(frames, 2, totals); });
  attempt([&] { fingerprint(frames); });
  attempt([&] { fragments(numbers, 64, 128, room); });
  attempt([&] { gather(frames, numbers, out, room, 2); });
  attempt([&] { scatter(frames, numbers, 0, out, cursors, numbers); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  if (size == 0) return 0;
  const std::unique_ptr<Byte[]> copy(new Byte[size]);  // of exact size
  std::memcpy(copy.get(), input, size);
  const Bytes data(copy.get(), size);
  for (const bool payloads : {false, true}) {
    check_scan(data, 0, size / kOverhead + 2, payloads, ~0ULL);
    check_scan(data, input[0] % (size + 1), 1 + input[size - 1] % 8, payloads, input[size / 2]);
  }
  check_use(data);
  check_arrays(data);
  return 0;
}
