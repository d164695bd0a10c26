// Deflate's blocks, from tokens.
#pragma once

#include "huffman.h"

namespace croupier {

constexpr std::size_t kMostTogether = 1 << 13;  // literals in a run, for write_blocks

// `raw` by these tokens, and the literals that they count: none of the blocks is the last one.
void write_blocks(BitWriter& out, Bytes raw, std::span<const Token> tokens, Bytes literals);

// An empty stored block, up to a byte's edge: a full flush, where no match reaches back over it.
void write_flush(BitWriter& out);

}  // namespace croupier
