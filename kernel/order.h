// The order of a shuffle: every record has a key of 64 bits, a pseudo-random function of seed, file and record.
#pragma once

#include "frames.h"

namespace croupier {

// keys = those of the records firsts[r], firsts[r] + 1, ... (counts[r] of them) of files[r], one run behind the
// other. The key of a record is that number of Philox4x64-10 under the key (seed, file), as numpy counts them.
void record_keys(std::uint64_t seed, Numbers files, Numbers firsts, Numbers counts, Slots keys);

}  // namespace croupier
