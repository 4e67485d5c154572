// Mover: a CUDA program of a lease that is busy in every way while its multiprocessors change, and
// can tell from its results whether anything ran out of order, twice or not at all.
#pragma once

namespace flyt::tests {

// Reads commands from its input until that ends. See mover.cc for them.
int run_mover();

}  // namespace flyt::tests
