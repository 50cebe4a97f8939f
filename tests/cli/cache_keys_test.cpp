// Tests that keys of the KV cache that do not suit a model are refused before its weights are read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "core/files.h"
#include "support/paths.h"

namespace hone::test {
namespace {

using testing::HasSubstr;

TEST(CacheKeys, AreRefusedBeforeWeightsAreRead) {
  const TemporaryDirectory folder;
  write_file(folder.path() / "problems.jsonl", R"({"problem": "1 + 1", "answer": "2"})");
  for (const char* name : {"qwen3", "deepseek_v2"}) {
    std::filesystem::create_directories(folder.path() / name);
    for (const char* file : {"config.json", "model.safetensors"})
      std::filesystem::copy_file(fixture("models") / name / file, folder.path() / name / file);
  }
  const auto said = [&](std::vector<std::string> command, const std::string& model, std::vector<std::string> keys) {
    command.insert(command.begin() + 1, (folder.path() / model).string());
    command.insert(command.end(), keys.begin(), keys.end());
    const CommandResult ended = run_commands(command);
    EXPECT_EQ(ended.code, 1);
    return ended.said;
  };
  const std::vector<std::vector<std::string>> commands{
      {"chat"}, {"eval", "--task", "jsonl", "--dataset_name", (folder.path() / "problems.jsonl").string()}, {"serve"}};
  for (const std::vector<std::string>& command : commands) {
    // The folders have no tokenizer, so that nothing after the check succeeds.
    EXPECT_THAT(said(command, "qwen3", {}), HasSubstr("tokenizer.json")) << command[0];
    EXPECT_THAT(said(command, "qwen3", {"--latent_kv_cache", "true"}),
                HasSubstr("latent_kv_cache: is true, but this model has no latent attention"))
        << command[0];
    EXPECT_THAT(said(command, "deepseek_v2", {"--latent_attention", "absorbed"}),
                HasSubstr("latent_attention: is absorbed, but latent_kv_cache is false"))
        << command[0];
    EXPECT_THAT(said(command, "deepseek_v2",
                     {"--latent_kv_cache", "true", "--latent_attention", "absorbed", "--quantization", "fp8"}),
                HasSubstr("latent_attention: is absorbed, but the weights are in FP8"))
        << command[0];
  }
}

}  // namespace
}  // namespace hone::test
