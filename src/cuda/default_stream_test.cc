#include "cuda/default_stream.h"

#include <gtest/gtest.h>

#include "base/bytes.h"

namespace flyt::cuda {
namespace {

TEST(PerThreadDefaultStream, ChangesTheMeaningOfStreamZeroWhileItLives) {
  EXPECT_EQ(address_of(resolve_default(nullptr)), 1u);
  {
    const PerThreadDefaultStream scope;
    EXPECT_EQ(address_of(resolve_default(nullptr)), 2u);
    { const PerThreadDefaultStream nested; }
    EXPECT_TRUE(PerThreadDefaultStream::active());
    const auto named = static_cast<CUstream>(pointer_at(0x1000));
    EXPECT_EQ(resolve_default(named), named);
  }
  EXPECT_FALSE(PerThreadDefaultStream::active());
}

}  // namespace
}  // namespace flyt::cuda
