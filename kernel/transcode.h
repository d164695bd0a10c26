// Deflating a frame again, with the matches that its first compressor found.
#pragma once

#include <vector>

#include "deflate.h"

namespace croupier {

// `frame` as raw deflate from a fresh state, ended by a full flush: what codec/deflate.fragment makes. `tokens` are
// those of the stream that the frame was cut from, from `lead` bytes before it on, and may go on behind it. Matches
// from before the frame are sought anew. Throws std::invalid_argument where the tokens do not make the frame.
std::vector<Byte> transcode(Bytes frame, std::span<const Token> tokens, std::uint64_t lead);

// Where each frame begins: edge i, counted from where the tokens begin, is into[i] bytes behind the beginning of
// tokens[index[i]]. False when the tokens end before the last edge.
bool find_tokens(std::span<const Token> tokens, Numbers edges, Slots index, Slots into);

}  // namespace croupier
