// Tests training, resuming, merging and using adapters by command lines, on a miniature.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "checkpoint/safetensors.h"
#include "cli/program.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "support/miniature.h"
#include "support/paths.h"
#include "train/metrics.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class LoraCommands : public testing::Test {
 protected:
  void SetUp() override {
    write_miniature(folder_.path());
    run(pretrain_arguments(folder_.path(),
                           {"--max_steps", "2", "--per_device_train_batch_size", "2", "--output_dir", path("model")}));
  }
  [[nodiscard]] std::string path(const std::string& relative) const { return (folder_.path() / relative).string(); }
  static std::string run(const std::vector<std::string>& arguments, int code = 0) {
    const Ended ended = run_program(arguments);
    EXPECT_EQ(ended.code, code) << ended.output;
    return ended.output;
  }
  // Command line of sft that trains an adapter for four steps, followed by `more`.
  [[nodiscard]] std::vector<std::string> sft(const std::string& model, const std::string& output,
                                             std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments{"sft",
                                       "--model_name_or_path",
                                       path(model),
                                       "--dataset_name",
                                       path("data/sft.jsonl"),
                                       "--output_dir",
                                       path(output),
                                       "--max_steps",
                                       "4",
                                       "--per_device_train_batch_size",
                                       "2",
                                       "--logging_steps",
                                       "1",
                                       "--save_steps",
                                       "2",
                                       "--learning_rate",
                                       "1e-2",
                                       "--use_peft",
                                       "--lora_r",
                                       "4",
                                       "--lora_target_modules",
                                       "all-linear"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  [[nodiscard]] std::vector<double> losses(const std::string& output) const {
    return metric_series(read_metrics(path(output + "/metrics.jsonl")), "loss").values;
  }

  TemporaryDirectory folder_;
};

TEST_F(LoraCommands, TrainsResumesAndMerges) {
  const std::string output = run(sft("model", "whole"));
  EXPECT_THAT(output, HasSubstr(" of them trained in f32"));
  EXPECT_FALSE(is_file(path("whole/model.safetensors")));
  EXPECT_FALSE(is_file(path("whole/checkpoint-2/model.safetensors")));
  EXPECT_EQ(read_json(path("whole/adapter_config.json")).at("base_model_name_or_path"),
            fs::canonical(path("model")).string());

  // A resumed run repeats the losses and the dropout masks of the run that was not interrupted.
  fs::create_directories(path("resumed"));
  fs::copy(path("whole/checkpoint-2"), path("resumed/checkpoint-2"), fs::copy_options::recursive);
  EXPECT_THAT(run(sft("model", "resumed")), HasSubstr("resumed from"));
  const std::vector<double> all = losses("whole");
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(losses("resumed"), (std::vector<double>{all[2], all[3]}));
  EXPECT_EQ(read_file(path("resumed/adapter_model.safetensors")), read_file(path("whole/adapter_model.safetensors")));

  // Training from the merged model equals training from the adapter's folder.
  EXPECT_THAT(run({"merge", path("whole"), "--output_dir", path("merged")}), HasSubstr("wrote"));
  EXPECT_TRUE(is_file(path("merged/tokenizer.json")));
  run(sft("merged", "after-merge"));
  run(sft("whole", "after-adapter"));
  EXPECT_EQ(losses("after-merge"), losses("after-adapter"));
  // An adapter whose base is an adapter merges, too.
  run({"merge", path("after-adapter"), "--output_dir", path("merged-twice")});
  run({"merge", path("after-merge"), "--output_dir", path("merged-once-more")});
  EXPECT_EQ(read_file(path("merged-twice/config.json")), read_file(path("merged-once-more/config.json")));
}

// The miniature ties the embedding and the head. An adapter on both makes them two tensors in the merged model.
TEST_F(LoraCommands, TiedTablesTrainResumeAndMerge) {
  const std::vector<std::string> tables{"--lora_target_modules", ".*(embed_tokens|[qv]_proj)|lm_head"};
  run(sft("model", "whole", tables));
  fs::create_directories(path("resumed"));
  fs::copy(path("whole/checkpoint-2"), path("resumed/checkpoint-2"), fs::copy_options::recursive);
  run(sft("model", "resumed", tables));
  EXPECT_EQ(read_file(path("resumed/adapter_model.safetensors")), read_file(path("whole/adapter_model.safetensors")));
  run({"merge", path("whole"), "--output_dir", path("merged")});
  EXPECT_EQ(read_json(path("model/config.json")).at("tie_word_embeddings"), true);
  EXPECT_EQ(read_json(path("merged/config.json")).at("tie_word_embeddings"), false);
  run(sft("merged", "after-merge"));
  run(sft("whole", "after-adapter"));
  EXPECT_EQ(losses("after-merge"), losses("after-adapter"));
}

// convert writes an adapter as an adapter, in the requested dtype.
TEST_F(LoraCommands, ConvertKeepsAnAdapterOne) {
  (void)run(sft("model", "adapter"));
  const std::string output =
      run({"convert", path("adapter"), "--output_dir", path("converted"), "--torch_dtype", "bfloat16"});
  EXPECT_THAT(output, HasSubstr("an adapter (hone merge merges it into its base), "));
  EXPECT_FALSE(is_file(path("converted/model.safetensors")));
  EXPECT_FALSE(is_file(path("converted/config.json")));
  EXPECT_TRUE(is_file(path("converted/tokenizer.json")));
  EXPECT_EQ(read_json(path("converted/adapter_config.json")), read_json(path("adapter/adapter_config.json")));
  const SafetensorsFile before(path("adapter/adapter_model.safetensors"));
  const SafetensorsFile after(path("converted/adapter_model.safetensors"));
  ASSERT_EQ(after.tensors().size(), before.tensors().size());
  for (const StoredTensor& tensor : before.tensors()) {
    const StoredTensor& converted = after.at(tensor.name);
    EXPECT_EQ(converted.type, StoredType::kBf16);
    EXPECT_EQ(converted.shape, tensor.shape);
    std::vector<std::byte> expected(static_cast<std::size_t>(tensor.element_count()) * size_of(DType::kBf16));
    read_as(tensor, DType::kBf16, expected);
    EXPECT_TRUE(std::ranges::equal(converted.bytes, expected)) << tensor.name;
  }
  run({"merge", path("converted"), "--output_dir", path("merged")});
  EXPECT_TRUE(is_file(path("merged/model.safetensors")));

  // A relative path of the base is adjusted to the new folder. The adapter is one file, whatever its size.
  Json config = read_json(path("adapter/adapter_config.json"));
  config["base_model_name_or_path"] = "../model";
  write_json(path("adapter/adapter_config.json"), config);
  fs::create_directories(path("deeper"));
  run({"convert", path("adapter"), "--output_dir", path("deeper/again")});
  EXPECT_EQ(read_json(path("deeper/again/adapter_config.json")).at("base_model_name_or_path"), "../../model");
  EXPECT_EQ(read_file(path("deeper/again/adapter_model.safetensors")),
            read_file(path("adapter/adapter_model.safetensors")));
  EXPECT_THAT(run({"convert", path("adapter"), "--output_dir", path("shards"), "--max_shard_size", "1KB"}, 1),
              HasSubstr("max_shard_size: 1KB, but an adapter is one file, here of "));
  EXPECT_FALSE(fs::exists(path("shards")));

  // From a folder with a model and an adapter, only the model is converted, without the adapter's configuration.
  fs::copy(path("adapter/adapter_config.json"), path("model/adapter_config.json"));
  fs::copy(path("adapter/adapter_model.safetensors"), path("model/adapter_model.safetensors"));
  EXPECT_THAT(run({"convert", path("model"), "--output_dir", path("both")}),
              HasSubstr("holds an adapter next to the model's weights; the adapter is not converted"));
  EXPECT_TRUE(is_file(path("both/model.safetensors")));
  EXPECT_FALSE(is_file(path("both/adapter_config.json")));
}

TEST_F(LoraCommands, GrpoTakesAnAdapterAsItsModel) {
  run(sft("model", "adapter"));
  const std::vector<std::string> grpo{"grpo",
                                      "--model_name_or_path",
                                      path("adapter"),
                                      "--dataset_name",
                                      path("data/prompts.jsonl"),
                                      "--dataset_prompt_column",
                                      "problem",
                                      "--num_generations",
                                      "4",
                                      "--per_device_train_batch_size",
                                      "8",
                                      "--max_completion_length",
                                      "8",
                                      "--max_steps",
                                      "2",
                                      "--reward_funcs",
                                      "length,tag_count",
                                      "--use_peft",
                                      "--output_dir",
                                      path("grpo")};
  run(grpo);
  EXPECT_TRUE(is_file(path("grpo/adapter_model.safetensors")));
  std::vector<std::string> plan = grpo;
  plan.insert(plan.begin(), "plan");
  const std::string text = run(plan);
  EXPECT_THAT(text, HasSubstr("adapter "));
  EXPECT_THAT(text, testing::Not(HasSubstr("reference model")));
  std::vector<std::string> synced = grpo;
  synced.insert(synced.end(), {"--sync_ref_model", "true"});
  EXPECT_THAT(run(synced, 1), HasSubstr("the reference of an adapter is the base model"));
}

TEST_F(LoraCommands, MistakesAreNamed) {
  EXPECT_THAT(run(sft("model", "o", {"--lora_target_modules", "q_porj"}), 1),
              HasSubstr("lora_target_modules: 'q_porj' names no linear layer of this model"));
  EXPECT_THAT(run(sft("model", "o", {"--lora_task_type", "SEQ_CLS"}), 1), HasSubstr("CAUSAL_LM"));
  EXPECT_THAT(run({"merge", path("model"), "--output_dir", path("x")}, 1), HasSubstr("is not an adapter"));
  run(sft("model", "adapter", {"--max_steps", "2"}));
  EXPECT_THAT(run({"merge", path("adapter"), "--output_dir", path("adapter")}, 1),
              HasSubstr("the folder of the adapter itself"));
  EXPECT_THAT(run({"merge", path("adapter")}, 1), HasSubstr("output_dir: is not set"));
  EXPECT_THAT(run(sft("model", "adapter", {"--lora_r", "8"}), 1), HasSubstr("resume with the lora options"));
  fs::rename(path("model"), path("moved"));
  EXPECT_THAT(run({"merge", path("adapter"), "--output_dir", path("y")}, 1), HasSubstr("base_model_name_or_path"));
}

}  // namespace
}  // namespace hone::test
