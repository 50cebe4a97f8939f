// The folder of a small trained model, which the tests of a suite share.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "support/paths.h"

namespace hone::test {

class SmallModelTest : public testing::Test {
 protected:
  // Trains the model for a step with hone pretrain: at("model"), of two key heads, so that two processes can divide it.
  static void SetUpTestSuite();
  static void TearDownTestSuite();

  // Returns the path of a file in the folder.
  [[nodiscard]] static std::string at(const std::string& name);
  // Returns the arguments by which a CPU serves the model at any free port.
  [[nodiscard]] static std::vector<std::string> serve(const std::vector<std::string>& more);

 private:
  static std::unique_ptr<TemporaryDirectory> folder_;
};

}  // namespace hone::test
