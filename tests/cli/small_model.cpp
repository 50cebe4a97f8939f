#include "cli/small_model.h"

#include "cli/program.h"
#include "core/json_value.h"
#include "support/miniature.h"

namespace hone::test {

std::unique_ptr<TemporaryDirectory> SmallModelTest::folder_;

void SmallModelTest::SetUpTestSuite() {
  folder_ = std::make_unique<TemporaryDirectory>();
  write_miniature(folder_->path());
  Json config = read_json(at("model.json"));
  config["num_key_value_heads"] = 2;
  write_json(at("model.json"), config);
  const Ended ended = run_program(pretrain_arguments(
      folder_->path(), {"--max_steps", "1", "--per_device_train_batch_size", "2", "--output_dir", at("model")}));
  ASSERT_EQ(ended.code, 0) << ended.output;
}

void SmallModelTest::TearDownTestSuite() { folder_.reset(); }

std::string SmallModelTest::at(const std::string& name) { return (folder_->path() / name).string(); }

std::vector<std::string> SmallModelTest::serve(const std::vector<std::string>& more) {
  std::vector<std::string> arguments{"serve", at("model"), "--port", "0", "--device", "cpu"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

}  // namespace hone::test
