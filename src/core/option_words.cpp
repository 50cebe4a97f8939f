// Common names of hone's keys in other tools, for suggestions in error messages.
#include <algorithm>
#include <array>

#include "core/options.h"

namespace hone {
namespace {

struct WordMeaning {
  std::string_view word;
  std::array<std::string_view, 3> keys;  // most likely first; unused entries are empty
};

// These words are suggestions only and are not accepted as keys: some are ambiguous (a batch size can be that of a
// device or of a step), and each key has one spelling in recipes.
constexpr WordMeaning kWordMeanings[] = {
    {"lr", {"learning_rate"}},
    {"min_lr", {"lr_scheduler_kwargs.min_lr", "lr_scheduler_kwargs.min_lr_rate"}},
    {"scheduler", {"lr_scheduler_type"}},
    {"schedule", {"lr_scheduler_type"}},
    {"lr_scheduler", {"lr_scheduler_type"}},
    {"lr_schedule", {"lr_scheduler_type"}},
    {"warmup", {"warmup_steps", "warmup_ratio", "warmup_seconds"}},
    {"wd", {"weight_decay"}},
    {"optimizer", {"optim"}},
    {"beta1", {"adam_beta1"}},
    {"beta2", {"adam_beta2"}},
    {"epochs", {"num_train_epochs"}},
    {"epoch", {"num_train_epochs"}},
    {"num_epochs", {"num_train_epochs"}},
    {"n_epochs", {"num_train_epochs"}},
    {"train_epochs", {"num_train_epochs"}},
    {"steps", {"max_steps", "num_steps"}},
    {"num_steps", {"max_steps"}},
    {"train_steps", {"max_steps"}},
    {"max_iters", {"max_steps"}},
    {"iterations", {"max_steps", "num_iterations"}},
    {"bs", {"per_device_train_batch_size", "batch_size"}},
    {"batch", {"per_device_train_batch_size", "batch_size"}},
    {"batch_size", {"per_device_train_batch_size", "max_num_seqs"}},
    {"micro_batch_size", {"per_device_train_batch_size", "batch_size"}},
    {"train_batch_size", {"per_device_train_batch_size", "batch_size"}},
    {"per_device_batch_size", {"per_device_train_batch_size", "batch_size"}},
    {"per_device_train_batch_size", {"batch_size"}},
    {"eval_batch_size", {"per_device_eval_batch_size"}},
    {"grad_accum", {"gradient_accumulation_steps"}},
    {"grad_accum_steps", {"gradient_accumulation_steps"}},
    {"gradient_accumulation", {"gradient_accumulation_steps"}},
    {"accumulation_steps", {"gradient_accumulation_steps"}},
    {"accumulate_grad_batches", {"gradient_accumulation_steps"}},
    {"grad_clip", {"max_grad_norm"}},
    {"clip_grad", {"max_grad_norm"}},
    {"clip_grad_norm", {"max_grad_norm"}},
    {"grad_checkpointing", {"gradient_checkpointing"}},
    {"precision", {"torch_dtype", "dtype"}},
    {"weights_dtype", {"torch_dtype", "dtype"}},
    {"torch_dtype", {"dtype"}},
    {"seq_len", {"max_length", "block_size", "max_model_len"}},
    {"seq_length", {"max_length", "block_size", "seq_len"}},
    {"sequence_length", {"max_length", "block_size", "seq_len"}},
    {"max_seq_len", {"max_length", "block_size", "max_model_len"}},
    {"max_seq_length", {"max_length", "block_size", "seq_len"}},
    {"max_length", {"block_size", "max_completion_length", "seq_len"}},
    {"context_length", {"max_length", "block_size", "max_model_len"}},
    {"cutoff_len", {"max_length", "block_size"}},
    {"block_size", {"max_length", "seq_len"}},
    {"lora", {"use_peft"}},
    {"use_lora", {"use_peft"}},
    {"peft", {"use_peft"}},
    {"lora_rank", {"lora_r"}},
    {"rank", {"lora_r"}},
    {"lora_dim", {"lora_r"}},
    {"target_modules", {"lora_target_modules"}},
    {"modules_to_save", {"lora_modules_to_save"}},
    {"model", {"model_name_or_path"}},
    {"model_name", {"model_name_or_path"}},
    {"model_path", {"model_name_or_path"}},
    {"base_model", {"model_name_or_path"}},
    {"pretrained_model_name_or_path", {"model_name_or_path"}},
    {"model_config", {"model_config_path"}},
    {"tokenizer", {"tokenizer_name_or_path"}},
    {"data", {"dataset_name", "input"}},
    {"dataset", {"dataset_name", "input"}},
    {"dataset_path", {"dataset_name", "input"}},
    {"data_path", {"dataset_name", "input"}},
    {"train_file", {"dataset_name", "input"}},
    {"train_data", {"dataset_name", "input"}},
    {"validation_file", {"eval_dataset_name"}},
    {"eval_data", {"eval_dataset_name"}},
    {"eval_dataset", {"eval_dataset_name"}},
    {"text_column", {"dataset_text_field"}},
    {"text_field", {"dataset_text_field"}},
    {"prompt_column", {"dataset_prompt_column"}},
    {"out", {"output_dir", "output"}},
    {"output", {"output_dir"}},
    {"output_dir", {"output"}},
    {"out_dir", {"output_dir", "output"}},
    {"output_path", {"output_dir", "output"}},
    {"save_dir", {"output_dir", "output"}},
    {"overwrite", {"overwrite_output_dir"}},
    {"force", {"overwrite_output_dir"}},
    {"resume", {"resume_from_checkpoint"}},
    {"checkpoint", {"resume_from_checkpoint", "model_name_or_path"}},
    {"log_steps", {"logging_steps"}},
    {"log_every", {"logging_steps"}},
    {"eval_every", {"eval_steps"}},
    {"save_every", {"save_steps"}},
    {"random_seed", {"seed"}},
    {"gpu", {"device"}},
    {"cuda", {"device"}},
    {"rewards", {"reward_funcs"}},
    {"reward", {"reward_funcs"}},
    {"reward_function", {"reward_funcs"}},
    {"reward_fn", {"reward_funcs"}},
    {"group_size", {"num_generations"}},
    {"num_samples", {"num_generations", "samples"}},
    {"max_new_tokens", {"max_completion_length", "max_tokens", "max_model_len"}},
    {"max_tokens", {"max_completion_length", "max_model_len"}},
    {"max_response_length", {"max_completion_length"}},
    {"kl_coef", {"beta"}},
    {"kl_coeff", {"beta"}},
    {"kl", {"beta"}},
    {"system", {"system_prompt"}},
    {"tasks", {"task"}},
    {"vram", {"device_memory"}},
    {"gpu_memory", {"device_memory"}},
    {"memory", {"device_memory", "activation_memory_gib"}},
    {"name", {"run_name"}},
};

}  // namespace

std::span<const std::string_view> suggested_keys(std::string_view word) {
  const auto at = std::ranges::find(kWordMeanings, word, &WordMeaning::word);
  if (at == std::end(kWordMeanings)) return {};
  return {at->keys.begin(), std::ranges::find(at->keys, std::string_view())};
}

}  // namespace hone
