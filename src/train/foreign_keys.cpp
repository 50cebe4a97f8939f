#include "train/foreign_keys.h"

#include <array>

namespace hone {
namespace {

constexpr auto kNoEffect = ForeignKey::Kind::kNoEffect;
constexpr auto kNotYet = ForeignKey::Kind::kNotYet;
constexpr auto kNever = ForeignKey::Kind::kNever;

constexpr std::string_view kOwnKernels = "hone has one implementation of it";
constexpr std::string_view kOwnLoader = "hone reads and tokenises data in its own way";
constexpr std::string_view kOwnDivision = "zero_stage and the sizes of groups divide a model";
constexpr std::string_view kLayerSums = "gradients of a layer are summed while those before it are computed";
constexpr std::string_view kOwnCompletions = "completions are kept in output_dir/completions";
constexpr std::string_view kOwnEngine = "completions come from hone's engine in this process";
constexpr std::string_view kRolloutSays = "the key rollout says what generates, unset hone's engine in this process";
constexpr std::string_view kOwnSandbox = "programs run in hone's own sandbox";
constexpr std::string_view kTrainersNumbers =
    "completions are drawn with the keys and values of training, so that their probabilities are the trainer's";
constexpr std::string_view kFirstRank = "rank 0 logs and saves";
constexpr std::string_view kNoPadding = "hone lays sequences end to end and pads nothing";

constexpr std::array kTrainingKeys = std::to_array<ForeignKey>({
    // The model.
    {"attn_implementation", kNoEffect, kOwnKernels, "eager"},
    {"use_liger_kernel", kNoEffect, kOwnKernels},
    {"use_liger_loss", kNoEffect, kOwnKernels},
    {"liger_kernel_config", kNoEffect, kOwnKernels},
    {"trust_remote_code", kNoEffect, "no code is loaded with a model"},
    {"use_cache", kNoEffect, "training needs no KV cache"},
    {"use_fast", kNoEffect, "hone has one tokenizer", "true"},
    {"cache_implementation", kNoEffect, kOwnEngine},
    {"cache_dir", kNoEffect, "models are read where they are stored"},
    {"gradient_checkpointing_kwargs", kNoEffect, "both kinds give the same numbers here"},
    {"gradient_checkpointing_use_reentrant", kNoEffect, "both kinds give the same numbers here"},
    {"tf32", kNoEffect, "products are f32 or bfloat16"},
    {"bf16_full_eval", kNoEffect, "evaluation computes as training does"},
    {"half_precision_backend", kNoEffect, "hone has one", "auto"},
    {"torch_compile", kNoEffect, "hone is compiled"},
    {"torch_compile_backend", kNoEffect, "hone is compiled"},
    {"torch_compile_mode", kNoEffect, "hone is compiled"},
    {"disable_dropout", kNoEffect, "GRPO drops nothing"},
    {"config_overrides", kNever, "existing weights have fixed shapes; hone pretrain has this option"},
    {"model_init_kwargs", kNever,
     "no model's constructor is called: torch_dtype and revision are the keys torch_dtype and model_revision"},
    {"fp16", kNever, "float16 training is not offered, use bf16"},
    {"fp16_full_eval", kNever, "float16 is not offered, use bf16"},
    {"load_in_8bit", kNever, "8-bit weights are not offered"},
    {"load_in_4bit", kNever, "4-bit weights are not offered"},
    {"quantization", kNever, "FP8 weights are for generation"},
    // LoRA.
    {"lora_target_parameters", kNever,
     "the models that hone knows have no parameters outside of modules: name modules by lora_target_modules"},
    {"bnb_4bit_quant_type", kNoEffect, "4-bit weights are not offered"},
    {"use_bnb_nested_quant", kNoEffect, "4-bit weights are not offered"},
    // Data.
    {"dataset_num_proc", kNoEffect, kOwnLoader},
    {"dataset_batch_size", kNoEffect, kOwnLoader},
    {"dataloader_num_workers", kNoEffect, kOwnLoader},
    {"dataloader_pin_memory", kNoEffect, kOwnLoader, "true"},
    {"dataloader_persistent_workers", kNoEffect, kOwnLoader},
    {"dataloader_prefetch_factor", kNoEffect, kOwnLoader},
    {"preprocessing_num_workers", kNoEffect, kOwnLoader},
    {"remove_unused_columns", kNoEffect, "columns that are not needed are not read", "true"},
    {"label_names", kNoEffect, "columns are named by the dataset keys"},
    {"group_by_length", kNoEffect, kNoPadding},
    {"padding_free", kNoEffect, kNoPadding},
    {"pad_to_multiple_of", kNoEffect, kNoPadding},
    {"pad_token", kNoEffect, kNoPadding},
    {"dataset_kwargs", kNever, "hone sft has it"},
    {"dataset_streaming", kNoEffect, "all data is encoded before the first step, and mapped from the token cache"},
    {"ignore_data_skip", kNotYet, "resuming at the start of the data is"},
    // Optimization.
    {"optim_target_modules", kNotYet, "choosing the optimizer's modules is"},
    {"label_smoothing_factor", kNotYet, "label smoothing is", "0|0.0"},
    {"neftune_noise_alpha", kNotYet, "NEFTune is"},
    {"average_tokens_across_devices", kNoEffect, "the loss is always the mean over all target tokens", "true"},
    {"auto_find_batch_size", kNoEffect, "the memory of a run is known before it starts"},
    {"torch_empty_cache_steps", kNoEffect, "memory is laid out once"},
    {"full_determinism", kNoEffect, "a run is always repeatable", "true"},
    {"do_train", kNoEffect, "the command trains", "true"},
    {"do_predict", kNotYet, "prediction after training is"},
    // Evaluation, logs, checkpoints.
    {"eval_delay", kNotYet, "delaying evaluation is", "0|0.0"},
    {"eval_accumulation_steps", kNoEffect, "evaluation keeps no logits"},
    {"prediction_loss_only", kNoEffect, "evaluation computes the loss"},
    {"save_safetensors", kNoEffect, "weights are always saved as safetensors", "true"},
    {"save_on_each_node", kNoEffect, kFirstRank},
    {"log_level", kNoEffect, "hone has one", "info|passive"},
    {"log_level_replica", kNoEffect, kFirstRank, "warning"},
    {"log_on_each_node", kNoEffect, kFirstRank, "true"},
    {"logging_nan_inf_filter", kNoEffect, "on_nonfinite says what happens", "true"},
    {"include_num_input_tokens_seen", kNoEffect, "num_tokens is always logged"},
    {"include_tokens_per_second", kNoEffect, "tokens_per_second is always logged"},
    {"skip_memory_metrics", kNoEffect, "memory is always logged", "true"},
    {"disable_tqdm", kNoEffect, "the bar is drawn on a terminal only"},
    {"wandb_log_unique_prompts", kNoEffect, kOwnCompletions},
    // Several devices.
    {"deepspeed", kNoEffect, kOwnDivision},
    {"fsdp", kNoEffect, kOwnDivision},
    {"fsdp_config", kNoEffect, kOwnDivision},
    {"accelerator_config", kNoEffect, "batches are divided by num_processes"},
    {"ddp_backend", kNoEffect, "gradients are summed by NCCL between GPUs and over TCP between CPUs"},
    {"ddp_bucket_cap_mb", kNoEffect, kLayerSums},
    {"ddp_find_unused_parameters", kNoEffect, kLayerSums},
    {"ddp_broadcast_buffers", kNoEffect, "models have no buffers that training changes"},
    {"ds3_gather_for_generation", kNoEffect, "grpo has whole weights", "true"},
    {"local_rank", kNoEffect, "the launcher sets LOCAL_RANK", "-1|0"},
    {"use_cpu", kNoEffect, "device: cpu runs on the host"},
    // GRPO: generation.
    {"use_vllm", kNoEffect, kRolloutSays},
    {"vllm_mode", kNoEffect, kRolloutSays},
    {"vllm_device", kNoEffect, kOwnEngine},
    {"vllm_dtype", kNoEffect, kOwnEngine},
    {"vllm_max_model_len", kNoEffect, kOwnEngine},
    {"vllm_group_port", kNoEffect, kOwnEngine},
    {"vllm_gpu_memory_utilization", kNoEffect, kOwnEngine},
    {"vllm_tensor_parallel_size", kNoEffect, kOwnEngine},
    {"vllm_enable_prefix_caching", kNoEffect, "hone's engine always has a prefix cache, which changes no completion"},
    {"vllm_enable_sleep_mode", kNoEffect, kOwnEngine},
    {"vllm_model_impl", kNoEffect, kOwnEngine},
    {"vllm_guided_decoding_regex", kNotYet, "guided decoding in rollouts is"},
    {"kv_cache_dtype", kNever, kTrainersNumbers, "auto"},
    {"latent_attention", kNever, kTrainersNumbers, "expanded"},
    {"use_transformers_paged", kNoEffect, kOwnEngine},
    {"generation_kwargs", kNotYet, "passing arguments to generation is"},
    {"wandb_log_completions", kNoEffect, kOwnCompletions},
    // GRPO: code rewards.
    {"code_provider", kNoEffect, kOwnSandbox},
    {"parallel_code_exec_per_proc", kNoEffect, "as many programs run at a time as there are threads", "2"},
    {"ioi_provider", kNoEffect, kOwnSandbox},
    {"e2b_router_url", kNoEffect, kOwnSandbox},
    {"morph_router_url", kNoEffect, kOwnSandbox},
    {"enforce_same_language", kNoEffect, "the language is the row's, else code_language"},
});

}  // namespace

std::span<const ForeignKey> training_foreign_keys() { return kTrainingKeys; }

}  // namespace hone
