// Tests every key of the recipes that hone accepts unchanged. A fixture freezes the effect of each key in one line.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/json_value.h"
#include "core/option_value.h"
#include "core/strings.h"
#include "rl/options.h"
#include "support/golden.h"
#include "train/foreign_keys.h"

namespace hone::test {
namespace {

// Keys of open-r1, TRL and the source recipes for both kinds of training.
constexpr std::string_view kCommon =
    "model_name_or_path model_revision torch_dtype attn_implementation chat_template dataset_name dataset_config bf16 "
    "do_eval eval_strategy eval_steps gradient_accumulation_steps gradient_checkpointing gradient_checkpointing_kwargs "
    "hub_model_id hub_strategy learning_rate log_level logging_steps logging_strategy lr_scheduler_type "
    "lr_scheduler_kwargs max_grad_norm max_steps num_train_epochs output_dir overwrite_output_dir "
    "per_device_train_batch_size per_device_eval_batch_size push_to_hub report_to save_strategy save_steps "
    "save_total_limit save_only_model seed data_seed use_liger_kernel warmup_ratio warmup_steps optim adam_beta1 "
    "adam_beta2 adam_epsilon weight_decay load_best_model_at_end metric_for_best_model greater_is_better "
    "resume_from_checkpoint run_name logging_dir logging_first_step trust_remote_code dataset_num_proc "
    "dataset_mixture dataset_train_split dataset_test_split system_prompt callbacks benchmarks hub_model_revision "
    "overwrite_hub_revision push_to_hub_revision hub_always_push hub_token hub_private_repo hub_revision hub_required "
    "wandb_entity wandb_project wandb_run_group "
    "model_init_kwargs dataloader_num_workers dataloader_pin_memory ddp_timeout use_cpu fp16 tf32 full_determinism "
    "use_peft lora_r lora_alpha lora_dropout lora_target_modules lora_modules_to_save use_rslora use_dora "
    "lora_target_parameters "
    "load_in_8bit load_in_4bit quantization use_fp8 fp8_weight_quant fp8_activation_quant activation_offloading";
constexpr std::string_view kSft =
    "packing packing_strategy eval_packing max_length max_seq_length eos_token dataset_text_field "
    "completion_only_loss assistant_only_loss padding_free pad_to_multiple_of pad_token dataset_kwargs "
    "gradient_checkpointing_use_reentrant";
constexpr std::string_view kGrpo =
    "num_generations steps_per_generation generation_batch_size max_prompt_length max_completion_length temperature "
    "top_p top_k min_p repetition_penalty beta num_iterations epsilon epsilon_high delta loss_type "
    "importance_sampling_level scale_rewards mask_truncated_completions top_entropy_quantile sync_ref_model "
    "ref_model_mixup_alpha ref_model_sync_steps shuffle_dataset disable_dropout reward_funcs reward_weights "
    "log_completions num_completions_to_print dataset_prompt_column rollout exact_logprobs use_vllm vllm_device "
    "vllm_mode vllm_server_url vllm_server_base_url vllm_server_host vllm_server_port vllm_server_timeout "
    "vllm_importance_sampling_correction vllm_importance_sampling_mode vllm_importance_sampling_cap "
    "vllm_importance_sampling_clip_max vllm_importance_sampling_clip_min "
    "vllm_gpu_memory_utilization vllm_tensor_parallel_size vllm_guided_decoding_regex wandb_log_unique_prompts "
    "code_language code_provider ioi_provider code_eval_test_batch_size code_eval_scoring_mode "
    "parallel_code_exec_per_proc e2b_router_url morph_router_url enforce_same_language cosine_min_value_wrong "
    "cosine_max_value_wrong cosine_min_value_correct cosine_max_value_correct cosine_max_len repetition_n_grams "
    "repetition_max_penalty max_completion_len soft_punish_cache remove_unused_columns cache_implementation "
    "ds3_gather_for_generation use_liger_loss max_staleness sandbox strip_thoughts strict_equality length_scope";

// Returns a valid value that is not the default.
std::string other_value(const Option& option) {
  if (const auto* enumeration = std::get_if<EnumTarget>(&option.target)) {
    const auto names = alternatives(enumeration->table->names);
    return std::string(names.back() == option.default_text ? names.front() : names.back());
  }
  if (takes_no_value(option)) return option.default_text == "true" ? "false" : "true";
  if (is_list(option)) return "[1, 2]";
  if (is_untyped(option)) return "{datasets: [{id: data.jsonl}]}";
  for (const char* number : {"0.25", "3", "-1"}) {
    YamlValue value{.kind = YamlValue::Kind::kScalar, .scalar = number};
    try {
      set_option(option, value, "");
      return number;
    } catch (const Error&) {
      continue;
    }
  }
  return "text";
}

// Describes the effect of one key: "option, default D; V: read as R", "V: notice ...", "V: error ...".
template <class Options>
std::string outcome(const std::string& key) {
  Options options;
  const OptionTable table(options);
  if (table.is_map(key)) return "a map of options";
  const Option* option = table.find(key);
  const std::string value = option != nullptr ? other_value(*option) : "true";
  std::string line = option == nullptr ? "" : text_of("option, default ", option->default_text, "; ");
  if (option != nullptr && option->name != key) line = text_of("is ", option->name, "; ");
  Options fresh;
  const OptionTable read(fresh);
  OptionInput input;
  const YamlValue document = parse_yaml(text_of(key, ": ", value), "recipe");
  try {
    read_option_keys(read, document, "recipe", training_foreign_keys(), input);
  } catch (const Error& error) {
    return text_of(line, value, ": error ", error.what());
  }
  for (const std::string& notice : notice_lines(input.notices)) line += text_of(value, ": notice ", notice);
  if (option != nullptr) line += text_of(value, ": read as ", value_text(*read.find(key)));
  if (line.empty()) line = text_of(value, ": so it is anyway");
  return line;
}

template <class Options>
std::string table_of(std::string_view command, std::string_view keys) {
  std::string text;
  for (const std::string& key : split(keys, ' ')) text += text_of(command, " ", key, ": ", outcome<Options>(key), "\n");
  return text;
}

TEST(RecipeKeys, EachIsAnOptionANoticeOrAnError) {
  const std::string text = table_of<SftOptions>("sft", kCommon) + table_of<SftOptions>("sft", kSft) +
                           table_of<GrpoOptions>("grpo", kCommon) + table_of<GrpoOptions>("grpo", kGrpo);
  EXPECT_EQ(text.find("unknown key"), std::string::npos) << text.substr(text.rfind('\n', text.find("unknown key")) + 1);
  EXPECT_EQ(text.find("; \n"), std::string::npos);
  expect_golden("cli/recipe_keys.txt", text);
}

TEST(RecipeKeys, HyphensAndUnderscoresAreOne) {
  for (const std::string_view keys : {kCommon, kGrpo}) {
    for (const std::string& key : split(keys, ' ')) {
      std::string hyphens = key;
      std::ranges::replace(hyphens, '_', '-');
      const auto read = [&](const std::string& flag) -> std::string {
        GrpoOptions options;
        OptionInput input;
        const std::vector<std::string> arguments{"--" + flag + "=null"};
        try {
          read_option_flags(OptionTable(options), arguments, training_foreign_keys(), input);
        } catch (const Error& error) {
          return error.what();
        }
        return option_json(OptionTable(options)).dump();
      };
      EXPECT_EQ(read(key), read(hyphens)) << key;
    }
  }
}

// A boolean has the same effect in every spelling of YAML 1.1, quoted or not.
TEST(RecipeKeys, BooleansOfYaml11) {
  const auto json = [](const std::string& text) {
    SftOptions options;
    OptionInput input;
    read_option_keys(OptionTable(options), parse_yaml(text, "r"), "r", training_foreign_keys(), input);
    return option_json(OptionTable(options)).dump();
  };
  for (const char* yes : {"yes", "Yes", "true", "True", "on", "ON", "y", "'true'", "\"yes\""}) {
    EXPECT_EQ(json(text_of("packing: ", yes)), json("packing: true")) << yes;
    EXPECT_EQ(json(text_of("gradient_checkpointing: ", yes)), json("gradient_checkpointing: true")) << yes;
  }
  for (const char* no : {"no", "No", "false", "False", "off", "OFF", "n", "'no'", "\"false\""}) {
    for (const char* key :
         {"packing", "eval_strategy", "save_strategy", "gradient_checkpointing", "push_to_hub", "use_peft", "bf16"}) {
      EXPECT_EQ(json(text_of(key, ": ", no)), json(text_of(key, ": no"))) << key << " " << no;
    }
  }
}

TEST(RecipeKeys, AMisspeltKeyNamesItsNeighbour) {
  const std::vector<std::pair<std::string, std::string>> table{
      {"learning_rat", "learning_rate"},
      {"num_generation", "num_generations"},
      {"reward_func", "reward_funcs"},
      {"use_vlm", "use_vllm"},
      {"gradient_acumulation_steps", "gradient_accumulation_steps"},
      {"wandb_proyect", "wandb_project"},
      {"max_completion_lenght", "max_completion_length"},
      {"warmup_ration", "warmup_ratio"}};
  for (const auto& [wrong, right] : table) {
    const std::string error = outcome<GrpoOptions>(wrong);
    EXPECT_NE(error.find(text_of("unknown key (did you mean ", right, "?)")), std::string::npos) << error;
  }
}

// Every foreign key is accepted silently if its value requests nothing.
TEST(RecipeKeys, WhatAsksForNothingPassesSilently) {
  for (const ForeignKey& key : training_foreign_keys()) {
    for (const std::string value : {"null", "false", "none", "[]", "{}", "''"}) {
      GrpoOptions options;
      OptionInput input;
      EXPECT_NO_THROW(read_option_keys(OptionTable(options), parse_yaml(text_of(key.name, ": ", value), "r"), "r",
                                       training_foreign_keys(), input))
          << key.name;
      EXPECT_TRUE(input.notices.empty()) << key.name << ": " << value;
    }
  }
}

}  // namespace
}  // namespace hone::test
