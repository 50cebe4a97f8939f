#include <gtest/gtest.h>

#include <cstdlib>

#include "support/paths.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const hone::test::TemporaryDirectory cache;  // of this process and of those that it starts
  ::setenv("HONE_CACHE", cache.path().c_str(), 1);
  return RUN_ALL_TESTS();
}
