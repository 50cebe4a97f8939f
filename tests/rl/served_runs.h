// GRPO runs whose rollouts come from servers of hone in this process, to which weights go by a fake of NCCL.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <string>
#include <vector>

#include "rl/small_run.h"
#include "serve/small_server.h"
#include "support/device.h"
#include "support/fake_nccl.h"
#include "support/paths.h"

namespace hone::test {

// Tests of such runs. They are skipped on a GPU, which serves one thread of a process at a time.
class ServedTest : public testing::Test {
 protected:
  void SetUp() override {
    if (test_device().kind() != DeviceKind::kCpu) GTEST_SKIP() << "servers and trainer would share a GPU";
  }
};

class ServedRuns {
 public:
  // `servers` servers of one model, with whose weights each run begins.
  explicit ServedRuns(std::size_t servers, bool over_nccl = true);

  [[nodiscard]] SmallServer& at(std::size_t i) { return servers_[i]; }
  [[nodiscard]] FakeNccl& nccl() { return nccl_; }
  // The folder of the model.
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_.path(); }
  // Returns options of a run with rollouts from all servers.
  [[nodiscard]] GrpoOptions options(const std::filesystem::path& output_dir) const;
  [[nodiscard]] GrpoRun run(const GrpoOptions& options, std::int64_t steps = 3);
  // Trains and returns the logged rows.
  std::vector<MetricRow> train(const GrpoOptions& options, std::int64_t steps = 3);

 private:
  TemporaryDirectory folder_;
  FakeNccl nccl_;
  std::deque<SmallServer> servers_;
};

// Expects the bits of the weights and of the completions of all steps.
void expect_same_run(const std::filesystem::path& output, const std::filesystem::path& other, std::int64_t steps = 3);

}  // namespace hone::test
