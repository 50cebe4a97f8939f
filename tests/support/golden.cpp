#include "support/golden.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "core/files.h"
#include "support/paths.h"

namespace hone::test {

void expect_golden(std::string_view relative, std::string_view text) {
  const auto path = fixture(relative);
  if (std::getenv("HONE_UPDATE_FIXTURES") != nullptr) {
    write_file(path, text);
    FAIL() << "wrote " << path;
  }
  EXPECT_EQ(text, read_file(path)) << "HONE_UPDATE_FIXTURES=1 writes " << relative << " anew";
}

}  // namespace hone::test
