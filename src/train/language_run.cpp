#include "train/language_run.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/options.h"
#include "core/strings.h"
#include "data/encode.h"
#include "data/split.h"
#include "model/lora.h"
#include "model/registry.h"
#include "train/config_overrides.h"
#include "train/language_task.h"
#include "train/launch.h"
#include "train/memory_fit.h"
#include "train/run_collectives.h"
#include "train/setup.h"
#include "train/stage_programs.h"
#include "train/whole_weights.h"

namespace hone {
namespace {

std::string as_json(auto options) { return option_json(OptionTable(options)).dump(); }

// Returns the optimizer steps of the run. As in transformers, the incomplete last accumulation of an epoch is a step.
std::int64_t steps_of(const TrainingOptions& options, std::int64_t batches_per_epoch) {
  if (options.max_steps > 0) return options.max_steps;
  const std::int64_t per_step = options.batches_per_step();
  const std::int64_t per_epoch = (batches_per_epoch + per_step - 1) / per_step;
  return static_cast<std::int64_t>(std::ceil(options.num_train_epochs * static_cast<double>(per_epoch)));
}

Json default_generation_config(const Tokenizer& tokenizer) {
  Json config = Json::object();
  if (const auto id = tokenizer.bos_token_id()) config["bos_token_id"] = *id;
  if (const auto id = tokenizer.eos_token_id()) config["eos_token_id"] = *id;
  if (const auto id = tokenizer.pad_token_id()) config["pad_token_id"] = *id;
  return config;
}

// Completes the configuration of a new model: vocabulary size and special ids come from the tokenizer if they are not
// set.
Json complete_config(Json config, const Tokenizer& tokenizer) {
  if (!config.contains("vocab_size")) config["vocab_size"] = tokenizer.vocab_size();
  const Json ids = default_generation_config(tokenizer);
  for (const auto& [key, value] : ids.items()) {
    if (!config.contains(key)) config[key] = value;
  }
  return config;
}

void open_model(LanguageRun& run, const ModelOptions& options) {
  const std::filesystem::path path = resolve_model(options.model_name_or_path, options.model_revision);
  run.initial = std::make_unique<ModelDirectory>(path);
  run.model = family_registry().create(run.initial->config());
  run.dtype = weight_dtype(options).value_or(checkpoint_dtype(*run.initial));
  if (run.initial->generation_config() != nullptr) run.generation_config = run.initial->generation_config()->dump();
}

// Gives ChatML to a tokenizer without a template and enlarges the embedding by the new tokens. The vocabulary is not
// padded to a multiple: every row has a token.
void use_chatml(LanguageRun& run, const SftOptions& options) {
  const std::array<std::string, 2> marks{"<|im_start|>", "<|im_end|>"};
  run.tokenizer.add_special_tokens(marks);
  run.tokenizer.set_chat_template(std::string(chatml_template()));
  if (options.eos_token.empty()) run.tokenizer.set_eos_token("<|im_end|>");
  log_info(text_of("the model has no chat template: ChatML is used, and a turn ends with ",
                   options.eos_token.empty() ? "<|im_end|>" : options.eos_token));
  const std::int64_t rows = run.model->shape().vocab_size;
  if (run.tokenizer.vocab_size() <= rows) return;
  if (options.use_peft) {
    throw Error("use_peft",
                "the model has no chat template, and LoRA does not train the embeddings of ChatML's new tokens",
                "set a chat_template that uses only tokens of the model, or train all weights");
  }
  Json config = run.model->config();
  config["vocab_size"] = run.tokenizer.vocab_size();
  run.model = family_registry().create(config);
  log_info(text_of("the vocabulary grows from ", format_count(rows), " to ", format_count(run.tokenizer.vocab_size()),
                   " tokens; a new token's embedding starts as the mean of all"));
}

// Checks that documents fit into the positions of the model. capacity: tokens at which sequences are cut; 0: not cut.
// Each document starts at position 0, so a row of several documents may have more tokens than the model has positions;
// this is logged if `asked`, the length that the user set (0: not set), exceeds the positions.
void check_lengths(const LanguageRun& run, const ExampleSet& set, std::int64_t capacity, std::string_view where,
                   std::int64_t asked) {
  std::int64_t longest = 0;
  for (std::int64_t i = 0; i < set.size(); ++i) longest = std::max(longest, set.length(i));
  check_positions(run.model->shape(), capacity > 0 ? std::min(longest, capacity) : longest, where);
  const std::int64_t positions = run.model->shape().max_position_embeddings;
  if (asked <= positions) return;
  log_once(text_of(where, " is ", asked, ", but the model has ", positions,
                   " positions (max_position_embeddings): no document is that long, the longest has ", longest,
                   " tokens"));
}

// Returns max_length if it differs from its default, otherwise 0: the default, TRL's, exceeds the positions of small
// models.
std::int64_t asked_length(const SftOptions& options) {
  return options.max_length == SftOptions{}.max_length ? 0 : options.max_length.value_or(0);
}

ExampleSet encode(const Source& source, const LanguageRun& run, const TokenCache& cache,
                  const ChatTemplate& chat_template, const EncodeOptions& options) {
  EncodingReport report;
  ExampleSet set = cache.examples(source, run.tokenizer, chat_template, options, report);
  report.log(source.name(), text_of("max_length ", options.max_length));
  return set;
}

std::string data_text(const Source& source, const ExampleSet& set) {
  return text_of(source.name(), " (", format_count(set.size()), set.size() == 1 ? " document, " : " documents, ",
                 format_count(set.token_count()), " tokens)");
}

Packing packing_of(const SftOptions& options, bool packs) {
  if (!packs) return Packing::kNone;
  return packing_from_name(name_of(options.packing_strategy));
}

std::unique_ptr<BatchLoader> rows_in_order(const ExampleSet& set, Packing packing, std::int64_t capacity,
                                           const TrainingOptions& options) {
  return make_row_loader(set, pack(set, all_examples(set.size()), packing, capacity),
                         {.rows_per_batch = options.per_device_eval_batch_size,
                          .seed = options.order_seed(),
                          .shuffle = false,
                          .drop_last = options.dataloader_drop_last});
}

}  // namespace

LanguageRun prepare_pretrain(const PretrainOptions& options) {
  LanguageRun run{.command = "pretrain",
                  .options = options,
                  .options_json = as_json(options),
                  .model_name = options.model_config_path.empty() ? options.model_name_or_path
                                                                  : "a new model of " + options.model_config_path,
                  .tokenizer = tokenizer_of(options)};
  run.generation_config = default_generation_config(run.tokenizer).dump();
  if (options.model_config_path.empty()) {
    open_model(run, options);
  } else {
    Json config = complete_config(read_json(options.model_config_path), run.tokenizer);
    override_config(config, options.config_overrides);
    run.model = family_registry().create(config);
    run.dtype = weight_dtype(options).value_or(DType::kF32);
  }
  prepare_experts(*run.model, options.experts, false, kPretrainBiasSpeed);
  check_vocabulary(*run.model, run.tokenizer);

  // Encode the training data, and the evaluation data: the end of the same text or a separate source.
  const ChatTemplate chat_template = chat_template_of(run.tokenizer);
  const EncodeOptions encoding{
      .columns = {.text_field = options.dataset_text_field}, .loss = LossOn::kAll, .eos_optional = true};
  const std::uint64_t seed = options.order_seed();
  const TokenCache cache = token_cache_of(options, options);
  const Source source = open_training_data(options, options.sample_by);
  ExampleSet train = encode(source, run, cache, chat_template, encoding);
  run.data_text = data_text(source, train);
  std::optional<ExampleSet> test;
  if (options.test_split_size > 0) {
    const std::array<double, 2> fractions{1.0 - options.test_split_size, options.test_split_size};
    std::vector<ExampleSet> parts = split_in_order(train, fractions);
    train = std::move(parts[0]);
    test = std::move(parts[1]);
  } else if (options.evaluates()) {
    test = encode(open_eval_data(options, options, options.sample_by), run, cache, chat_template, encoding);
  }
  check_lengths(run, train, options.block_size, "block_size", options.block_size);
  if (test) check_lengths(run, *test, options.block_size, "block_size", options.block_size);
  // Cut the text into rows or windows of block_size tokens.
  const std::int64_t rows = options.per_device_train_batch_size;
  if (options.sampling == WindowSampling::kWindows) {
    run.batches =
        make_window_loader(train, {.block_size = options.block_size, .windows_per_batch = rows, .seed = seed});
  } else {
    run.batches = make_row_loader(train, pack(train, all_examples(train.size()), Packing::kWrapped, options.block_size),
                                  {.rows_per_batch = rows, .seed = seed, .drop_last = options.dataloader_drop_last});
  }
  if (test) {
    run.eval_batches = rows_in_order(*test, Packing::kWrapped, options.block_size, options);
  }
  run.total_steps = steps_of(options, run.batches->batches_per_epoch());
  run.model = divided_model(options, std::move(run.model));
  run.benchmark_bytes_held = benchmark_bytes_held(options, *run.model, run.dtype);
  return run;
}

namespace {

// Opens model and tokenizer. The template may add tokens and enlarge the model, so it is settled before the adapter is
// attached.
void open_for_sft(LanguageRun& run, const SftOptions& options) {
  open_model(run, options);
  check_vocabulary(*run.model, run.tokenizer);
  if (run.tokenizer.chat_template().empty() && options.chat_template.empty()) use_chatml(run, options);
  prepare_experts(*run.model, options.experts, options.use_peft);
  run.model = with_adapter(std::move(run.model), options, options);
  if (!options.eos_token.empty()) run.tokenizer.set_eos_token(options.eos_token);
  if (const auto id = run.tokenizer.eos_token_id()) {
    Json generation_config = parse_json(run.generation_config, "generation_config.json");
    generation_config["eos_token_id"] = *id;
    run.generation_config = generation_config.dump();
  }
}

// Returns how examples are encoded for a packing. Strategies that cut long examples do so here; others split them when
// packing.
EncodeOptions sft_encoding(const SftOptions& options, Packing packing) {
  EncodeOptions encoding{.columns = {.text_field = options.dataset_text_field,
                                     .prompt_column = options.dataset_prompt_column,
                                     .system_prompt = options.system_prompt}};
  const bool prepared = options.dataset_kwargs.skip_prepare_dataset;
  encoding.tokens_only = prepared;
  encoding.max_length = cuts_long_examples(packing) && !prepared ? options.max_length.value_or(0) : 0;
  if (options.assistant_only_loss) {
    encoding.loss = LossOn::kAssistant;
  } else if (options.completion_only_loss) {
    encoding.loss = *options.completion_only_loss ? LossOn::kCompletion : LossOn::kAll;
  }
  return encoding;
}

void log_packing(const ExampleSet& documents, const PackedRows& rows, std::int64_t capacity) {
  log_info(text_of(
      "packed ", documents.size(), " documents into ", rows.size(), " rows of ", capacity, " tokens, ",
      std::floor(1000.0 * static_cast<double>(rows.token_count()) / static_cast<double>(rows.size() * capacity)) / 10.0,
      "% full"));
}

}  // namespace

LanguageRun prepare_sft(const SftOptions& options) {
  LanguageRun run{.command = "sft",
                  .options = options,
                  .options_json = as_json(options),
                  .model_name = options.model_name_or_path,
                  .tokenizer = tokenizer_of(options)};
  open_for_sft(run, options);
  run.loss = options.loss_type;

  // Encode documents, and check their lengths against what a row may hold.
  const ChatTemplate chat_template = chat_template_of(run.tokenizer, options.chat_template);
  const TokenCache cache = token_cache_of(options, options);
  const std::int64_t capacity = options.max_length.value_or(run.model->shape().max_position_embeddings);
  const auto read = [&](const Source& source, Packing packing) {
    const EncodeOptions encoding = sft_encoding(options, packing);
    ExampleSet documents = encode(source, run, cache, chat_template, encoding);
    check_lengths(run, documents, packing == Packing::kNone ? encoding.max_length : capacity, "max_length",
                  asked_length(options));
    return documents;
  };
  const Packing packing = packing_of(options, options.packing);
  const Source source = open_training_data(options);
  const ExampleSet train = read(source, packing);
  run.data_text = data_text(source, train);

  // Pack documents into rows and batch the rows.
  const PackedRows rows = pack(train, all_examples(train.size()), packing, capacity);
  if (packing != Packing::kNone) log_packing(train, rows, capacity);
  run.batches = make_row_loader(train, rows,
                                {.rows_per_batch = options.per_device_train_batch_size,
                                 .seed = options.order_seed(),
                                 .drop_last = options.dataloader_drop_last});
  if (options.evaluates()) {
    const Packing eval_packing = packing_of(options, options.eval_packing.value_or(options.packing));
    const ExampleSet test = read(open_eval_data(options, options), eval_packing);
    run.eval_batches = rows_in_order(test, eval_packing, capacity, options);
  }
  run.total_steps = steps_of(options, run.batches->batches_per_epoch());
  run.model = divided_model(options, std::move(run.model));
  run.benchmark_bytes_held = benchmark_bytes_held(options, *run.model, run.dtype);
  return run;
}

LanguageSizes sizes_of(const LanguageRun& run) {
  LanguageSizes sizes{.model = run.model.get(),
                      .dtype = run.dtype,
                      .loss = run.loss,
                      .steps = step_sizes(*run.batches, run.options.gradient_accumulation_steps),
                      .benchmark_bytes_held = run.benchmark_bytes_held};
  if (run.eval_batches != nullptr) sizes.eval_steps = step_sizes(*run.eval_batches, kEvaluationBatches);
  return sizes;
}

Workspace trace_run(const LanguageRun& run) { return trace_run(sizes_of(run), run.options); }

RunBytes bytes_of(const LanguageRun& run) {
  LanguageSizes sizes = sizes_of(run);
  const TokenRange range = token_range(sizes, run.options);
  return {.with =
              [sizes = std::move(sizes)](const TrainingOptions& options) {
                return trace_run(sizes, options).memory().total() + sizes.benchmark_bytes_held;
              },
          .micro_batch = range};
}

namespace {

// Loads or initialises what this rank has of the weights, weight by weight.
void provide_parts(const LanguageRun& run, Workspace& workspace, Device& device) {
  const auto fill = [&](const HeldWeights& held, TensorStore& stored) {
    if (run.initial == nullptr) {
      held.fill_random(static_cast<std::uint64_t>(run.options.seed), stored);
    } else {
      held.load(*run.initial, Vocabulary::kMayGrow, stored);
    }
  };
  workspace.provide(kWeightStore, held_weights(*run.model, optimizer_options(run.options), run.dtype, device, fill));
}

// Loads or initialises the weights and those of the adapter.
void provide_weights(const LanguageRun& run, Workspace& workspace, Device& device) {
  const auto seed = static_cast<std::uint64_t>(run.options.seed);
  if (run.options.divides_weights() || &run.model->whole() != run.model.get()) {
    provide_parts(run, workspace, device);
  } else {
    workspace.provide(kWeightStore, run.initial != nullptr ? load_weights(*run.model, *run.initial, run.dtype, device,
                                                                          Vocabulary::kMayGrow)
                                                           : random_weights(*run.model, seed, run.dtype, device));
  }
  if (run.model->whole().adapter() != nullptr) {
    initialize_adapter(*run.model, workspace.store(kWeightStore), seed);
  }
}

// Logs the line that a run starts with. bytes: of its memory.
void announce(const LanguageRun& run, const std::string& title, std::size_t bytes, const Device& device) {
  const std::int64_t step_tokens = run.batches->limits().tokens * run.options.batches_per_step();
  log_info(start_line({.title = title,
                       .model = run.model_name,
                       .data = run.data_text,
                       .work = text_of(format_count(run.total_steps), run.total_steps == 1 ? " step" : " steps",
                                       " of at most ", format_count(step_tokens), " tokens",
                                       run.job.size() > 1 ? text_of(" in ", run.job.size(), " processes") : ""),
                       .bytes = bytes,
                       .output_dir = run.options.output_dir},
                      *run.model, run.dtype, device));
}

}  // namespace

MetricValues train(LanguageRun& run) {
  Device& device = open_device(run.options.device);
  const RunCollectives collectives(device, run.job);
  agree(run.job, run.options, run.options_json, device);
  // Trace all programs, so that the memory of the run is known, logged and checked before anything is allocated.
  const LanguageSizes sizes = sizes_of(run);
  Workspace workspace = trace_run(sizes, run.options);
  const std::size_t bytes = workspace.memory().total();
  const BatchLimits limits = training_shape(sizes, run.options).limits;
  const std::string title = run_title(run.command, run.options);
  announce(run, title, bytes, device);
  set_gemm_tuning(device, run.options.gemm.tuning());
  check_fits(run.options, run.dtype, device, bytes + run.benchmark_bytes_held, bytes_of(run));
  // Load or initialise the weights, then allocate gradients, states and activations.
  provide_weights(run, workspace, device);
  workspace.allocate(device);
  Optimizer optimizer(workspace, *run.model, optimizer_options(run.options));
  if (collectives.data() != nullptr) optimizer.join(*collectives.data(), true);
  const std::unique_ptr<Pipeline> pipeline = make_pipeline(workspace, *run.model, run.job);
  LanguageTask::Setup setup{.training = {workspace, kTrainingProgram},
                            .work = work_of_training(workspace, *run.model, limits.tokens, run.job.context_size()),
                            .limits = limits,
                            .batches = *run.batches,
                            .gradient_accumulation_steps = run.options.gradient_accumulation_steps,
                            .seed = static_cast<std::uint64_t>(run.options.seed),
                            .job = run.job,
                            .training_communicates = run.job.size() > 1,
                            .evaluation_communicates = run.options.divides_weights() || collectives.has_model_group()};
  if (run.options.sums_in_programs() && !pipeline) setup.summing.emplace(workspace, kSummingProgram);
  if (workspace.has_program(kQuantizationProgram)) setup.quantization = &workspace.executable(kQuantizationProgram);
  if (run.eval_batches != nullptr) {
    setup.evaluation.emplace(workspace, kEvaluationProgram);
    setup.eval_limits = evaluation_shape(sizes, run.options).limits;
    setup.eval_batches = run.eval_batches.get();
  }
  LanguageTask task(std::move(setup), pipeline.get());
  Trainer trainer(run.options,
                  {.command = run.command,
                   .title = title,
                   .total_steps = run.total_steps,
                   .options = run.options_json,
                   .observers = run.observers,
                   .job = run.job},
                  {.model = *run.model,
                   .weights = workspace.store(kWeightStore),
                   .optimizer = optimizer,
                   .tokenizer = run.tokenizer,
                   .generation_config = run.generation_config});
  return trainer.run(task);
}

}  // namespace hone
