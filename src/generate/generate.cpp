#include <algorithm>
#include <chrono>
#include <unordered_map>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/progress.h"
#include "core/random.h"
#include "core/strings.h"
#include "data/journal.h"
#include "engine/cache_memory.h"
#include "engine/engine.h"
#include "engine/engine_group.h"
#include "engine/engine_part.h"
#include "generate/collect.h"
#include "generate/endpoint.h"
#include "generate/options.h"
#include "generate/prompts.h"
#include "model/loaded_model.h"
#include "rl/reward_options.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

// Returns the options on which the generations depend. A run does not continue in a folder whose generations were made
// with other values.
Json generation_settings(const GenerateOptions& options) {
  Json settings{{"model_name_or_path", options.model_name_or_path},
                {"endpoint", options.endpoint.empty() ? Json(nullptr) : Json(true)},
                {"chat_template", options.chat_template},
                {"system_prompt", options.system_prompt},
                {"prompt_template", options.prompt_template},
                {"dataset_prompt_column", options.dataset_prompt_column},
                {"num_generations", options.num_generations},
                {"max_new_tokens", options.max_new_tokens},
                {"temperature", options.temperature},
                {"top_p", options.top_p},
                {"top_k", options.top_k},
                {"min_p", options.min_p},
                {"logprobs", options.logprobs ? Json(*options.logprobs) : Json()},
                {"prompt_logprobs", options.prompt_logprobs ? Json(*options.prompt_logprobs) : Json()},
                {"seed", options.seed}};
  // Unset in folders that older programs have made.
  const bool is_fp8 = options.cache.kv_cache_dtype == KvCacheDtype::kFp8;
  settings["kv_cache_dtype"] = is_fp8 ? Json("fp8") : Json();
  const bool quantizes = options.quantization == Quantization::kW8a8Fp8;
  settings["quantization"] = quantizes ? Json("w8a8_fp8") : Json();
  const bool is_absorbed = options.cache.latent_attention == LatentForm::kAbsorbed;
  settings["latent_attention"] = is_absorbed ? Json("absorbed") : Json();
  settings.update(logit_adjustments(options.params(options.max_new_tokens, {})));
  return settings;
}

void claim_settings(const fs::path& folder, const GenerateOptions& options) {
  const fs::path path = folder / "settings.json";
  const Json settings = generation_settings(options);
  if (options.overwrite_output_dir) {
    for (const fs::path& part : parts_of_journal(folder / "generations.jsonl")) remove_path(part);
    for (const char* name : {"generations.jsonl", "data.jsonl", "settings.json"}) remove_path(folder / name);
  }
  if (!is_file(path)) {
    if (is_file(folder / "generations.jsonl")) {
      throw Error((folder / "generations.jsonl").string(), "was made with unknown settings (settings.json is missing)",
                  "use another output_dir, or set overwrite_output_dir");
    }
    write_json(path, settings);
    return;
  }
  const Json before = read_json(path);
  for (const auto& [key, value] : settings.items()) {
    const Json old = before.contains(key) ? before[key] : Json(nullptr);
    if (old == value) continue;
    throw Error(key,
                text_of("is ", value.dump(), ", but ", folder.string(), " contains generations made with ", old.dump()),
                "use another output_dir, or set overwrite_output_dir");
  }
}

// Prompt whose completions are being generated.
struct Running {
  const GeneratePrompt* prompt = nullptr;
  std::vector<RequestId> ids;
  std::size_t ended = 0;  // completions that have ended
};

class Generation {
 public:
  // most_running: requests that the engine runs concurrently.
  Generation(const GenerateOptions& options, Engine& engine, std::int64_t most_running, Journal& journal,
             SamplingParams sampling)
      : options_(options),
        engine_(engine),
        most_running_(most_running),
        journal_(journal),
        sampling_(std::move(sampling)) {}

  // Generates for some prompts. A prompt's row is appended when its last completion has ended. had: other prompts that
  // are done. Calls on_step before each step of the engine.
  void run(std::span<const GeneratePrompt* const> prompts, std::int64_t had, const std::function<void()>& on_step) {
    const std::int64_t total = had + std::ssize(prompts);
    if (had > 0) log_info(text_of(format_count(had), " of ", format_count(total), " prompts are already done"));
    Progress progress("generate", total, "prompt", had);
    const auto start = std::chrono::steady_clock::now();
    std::size_t next = 0;
    const auto show_rate = [&] {
      if (engine_.statistics().steps == 0) return;
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
      const double tokens = static_cast<double>(engine_.statistics().generated_tokens);
      progress.set_postfix(
          text_of(format_count(static_cast<std::int64_t>(tokens / std::max(passed.count(), 1e-3))), " tokens/s"));
    };
    // Keeps twice as many requests as fit into the engine, so that it is always full and memory does not grow with the
    // dataset.
    const auto refill = [&] {
      for (; next < prompts.size() && waiting_ < 2 * most_running_; ++next) begin(*prompts[next]);
    };
    engine_.run(
        [&](const Engine::Update& update) {
          if (update.finish_reason != FinishReason::kNone && end(update.id)) progress.advance();
        },
        [&] {
          if (on_step) on_step();
          show_rate();
          refill();
        });
  }

 private:
  void begin(const GeneratePrompt& prompt) {
    Running running{&prompt, {}, 0};
    const RandomStream seeds(static_cast<std::uint64_t>(options_.seed), "generate " + prompt.key);
    for (std::int64_t i = 0; i < options_.num_generations; ++i) {
      Request request{prompt.tokens, sampling_};
      const auto at = static_cast<std::uint64_t>(2 * i);
      request.sampling.seed = (std::uint64_t{seeds.bits(at)} << 32) | seeds.bits(at + 1);
      request.sampling.logprobs = options_.logprobs.value_or(0);
      if (i == 0) request.sampling.prompt_logprobs = options_.prompt_logprobs;
      running.ids.push_back(engine_.add(std::move(request)));
      owners_[running.ids.back()] = &prompt;
    }
    waiting_ += options_.num_generations;
    running_.emplace(&prompt, std::move(running));
  }

  // Handles the end of a completion. Returns true if it was the last one of its prompt.
  bool end(RequestId id) {
    const auto owner = owners_.extract(id);
    Running& running = running_.at(owner.mapped());
    --waiting_;
    if (++running.ended < running.ids.size()) return false;
    std::vector<GeneratedText> completions;
    for (const RequestId each : running.ids) {
      Completion completion = engine_.take(each);
      completions.push_back({.text = running.prompt->prefill + completion.text,
                             .finish_reason = std::string(name_of(completion.finish_reason)),
                             .tokens = std::ssize(completion.tokens)});
      if (options_.logprobs || options_.prompt_logprobs) completions.back().scored = std::move(completion);
    }
    journal_.append(journal_row(options_, *running.prompt, completions));
    running_.erase(running.prompt);
    return true;
  }

  const GenerateOptions& options_;
  Engine& engine_;
  const std::int64_t most_running_;
  Journal& journal_;
  SamplingParams sampling_;
  std::unordered_map<RequestId, const GeneratePrompt*> owners_;
  std::unordered_map<const GeneratePrompt*, Running> running_;
  std::int64_t waiting_ = 0;  // requests in the engine
};

// Returns the maximum length in tokens of a prompt with its completion. Completions end at the model's last position,
// which is logged. Throws Error if the longest prompt leaves no room, or if max_new_tokens was set explicitly and does
// not fit even after the shortest prompt.
std::int64_t tokens_within(const ModelShape& shape, const GenerateOptions& options,
                           std::span<const GeneratePrompt> prompts) {
  std::int64_t longest = 0;
  std::int64_t shortest = std::ssize(prompts.front().tokens);
  for (const GeneratePrompt& prompt : prompts) {
    longest = std::max<std::int64_t>(longest, std::ssize(prompt.tokens));
    shortest = std::min<std::int64_t>(shortest, std::ssize(prompt.tokens));
  }
  const std::int64_t positions = shape.max_position_embeddings;
  if (longest >= positions) {
    throw Error("dataset_name", text_of("a prompt has ", longest, " tokens, but the model has ", positions,
                                        " positions (max_position_embeddings)"));
  }
  if (longest + options.max_new_tokens <= positions) return longest + options.max_new_tokens;
  const bool was_given = options.max_new_tokens != GenerateOptions{}.max_new_tokens;
  if (was_given) {
    check_positions(shape, shortest + options.max_new_tokens, "max_new_tokens",
                    text_of("the shortest prompt has ", shortest, " tokens: at most ", positions - shortest));
  }
  log_info(text_of("the model has ", positions, " positions (max_position_embeddings): after the longest prompt, ",
                   longest, " tokens, a completion ends at ", positions - longest, " tokens instead of max_new_tokens ",
                   options.max_new_tokens));
  return positions;
}

// Prompts of this process, whose rows it appends to a journal.
struct OwnPrompts {
  std::vector<const GeneratePrompt*> missing;  // that no journal has
  std::int64_t had = 0;
  std::function<void()> on_step = {};  // called before each step of the engine
  std::size_t processes = 1;           // among which the work is divided
};

OwnPrompts own_prompts(std::span<const GeneratePrompt> prompts, const Share& share, const Journal& known) {
  OwnPrompts own{.missing = {}, .processes = share.count};
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (known.contains(prompts[i].key)) {
      ++own.had;
    } else if (share.has(i)) {
      own.missing.push_back(&prompts[i]);
    }
  }
  return own;
}

void generate_missing(const GenerateOptions& options, std::span<const GeneratePrompt> prompts, const OwnPrompts& own,
                      Journal& journal, EngineGroup* group) {
  Device& device = open_device(options.device);
  const LoadedModel loaded = load_generator(options, group);
  EngineOptions capacities =
      engine_options({.max_model_len = tokens_within(loaded.model->shape(), options, prompts),
                      .max_num_seqs = num_seqs(options.max_num_seqs, device.kind()),
                      .max_batch_tokens = num_batched_tokens(0, device.kind()),
                      .adjust_logits = options.adjusts_logits() || options.prompt_logprobs.has_value(),
                      .num_speculative_tokens = options.num_speculative_tokens,
                      .speculative_method = options.speculative_method,
                      .cache = options.cache});
  capacities.max_logprobs = std::max(options.logprobs.value_or(0), options.prompt_logprobs.value_or(0));
  if (options.prompt_logprobs) capacities.max_prompt_samples = std::min(kPromptSamples, capacities.max_batch_tokens);
  capacities =
      with_cache_that_fits(capacities, *loaded.model, model_dtype(*loaded.model, loaded.weights), device, group,
                           {.length_key = "max_new_tokens", .host_share = static_cast<std::int64_t>(own.processes)});
  Engine engine(*loaded.model, loaded.tokenizer, loaded.weights, std::make_shared<Arena>(device), capacities, group);
  SamplingParams sampling =
      options.params(options.max_new_tokens, stop_token_ids(loaded.generation_config, *loaded.model, loaded.tokenizer));
  Generation(options, engine, capacities.max_num_seqs, journal, std::move(sampling))
      .run(own.missing, own.had, own.on_step);
}

// Generates this process's share and, if it has the first, has the others generate theirs.
void generate_share(const GenerateOptions& options, std::span<const GeneratePrompt> prompts, Journal& journal,
                    EngineGroup* group, const GenerateShare& share) {
  const std::unique_ptr<OtherShares> others = share.start_others ? share.start_others() : nullptr;
  OwnPrompts own = own_prompts(prompts, share.own, journal);
  if (others) own.on_step = [&others] { others->check(); };
  generate_missing(options, prompts, own, journal, group);
  if (!others) return;
  others->finish();
  take_parts(journal);
}

}  // namespace

std::string output_folder(const GenerateOptions& options) {
  return options.output_dir.empty() ? options.output_dataset_name : options.output_dir;
}

void check_options(const GenerateOptions& options, const OptionInput& input) {
  if (options.model_name_or_path.empty()) {
    throw Error(
        "model_name_or_path", "is not set",
        options.endpoint.empty() ? "set it to the folder of a model" : "set it to the model's name on the server");
  }
  if (!options.endpoint.empty()) {
    (void)completions_url(options.endpoint);
    if (!options.banned_token_ids.empty()) {
      throw Error(input.place_of("banned_token_ids"), "is set, but servers have no such parameter",
                  "set logit_bias of these tokens to -100");
    }
    for (const char* key : {"num_speculative_tokens", "speculative_method", "latent_kv_cache", "latent_attention",
                            "kv_cache_dtype", "tensor_parallel_size", "data_parallel_size"})
      if (input.was_set(key))
        throw Error(input.place_of(key), "is set, but the server of an endpoint decides on it", "remove it");
    for (const auto& [key, value] :
         {std::pair("logprobs", options.logprobs), std::pair("prompt_logprobs", options.prompt_logprobs)}) {
      if (value) throw Error(input.place_of(key), "is set, but only hone's engine gives them", "remove it or endpoint");
    }
    if (!options.chat_template.empty()) {
      throw Error(input.place_of("chat_template"), "is set, but an endpoint renders prompts with the server's template",
                  "remove it");
    }
  }
  if (options.dataset_name.empty()) throw Error("dataset_name", "is not set", "set it to the file with the prompts");
  if (output_folder(options).empty()) throw Error("output_dir", "is not set", "set it to a folder for the results");
  if (options.dataset_start_index && options.dataset_end_index &&
      *options.dataset_end_index <= *options.dataset_start_index) {
    throw Error(
        input.place_of("dataset_end_index"),
        text_of(*options.dataset_end_index, " is not above dataset_start_index ", *options.dataset_start_index));
  }
  const bool needs_rewards = options.min_reward || options.pass_rate_min || options.pass_rate_max || options.easy_first;
  if (needs_rewards && options.reward_funcs.empty()) {
    throw Error("reward_funcs", "is empty, but min_reward, pass_rate_min, pass_rate_max or easy_first is set",
                "set it, for example to accuracy");
  }
  if (!options.reward_weights.empty() && options.reward_weights.size() != options.reward_funcs.size()) {
    throw Error(input.place_of("reward_weights"), text_of("has ", options.reward_weights.size(), " numbers for ",
                                                          options.reward_funcs.size(), " rewards"));
  }
  if (options.pass_rate_min.value_or(0.1) >= options.pass_rate_max.value_or(0.9)) {
    throw Error(input.place_of("pass_rate_min"),
                text_of("pass_rate_min ", options.pass_rate_min.value_or(0.1), " is not below pass_rate_max ",
                        options.pass_rate_max.value_or(0.9)));
  }
  // Build the rewards once, so that unknown names are reported before anything is generated.
  (void)rewards_of(options, false, {options.dataset_name, output_folder(options)});
}

namespace {

std::vector<GeneratePrompt> prompts_of(const GenerateOptions& options, GenerateCounts& counts) {
  if (!options.endpoint.empty()) return read_prompts(options, nullptr, counts);
  const Tokenizer tokenizer = load_tokenizer(resolve_model(options.model_name_or_path));
  const ChatTemplate chat_template = chat_template_of(tokenizer, options.chat_template);
  const PromptForm form{tokenizer, chat_template};
  return read_prompts(options, &form, counts);
}

}  // namespace

LoadedModel load_generator(const GenerateOptions& options, EngineGroup* group) {
  const ModelSetup setup = engine_part(group, {.num_speculative_tokens = options.num_speculative_tokens,
                                               .speculative_method = options.speculative_method,
                                               .cache = options.cache});
  return load_model(options.model_name_or_path, std::nullopt, open_device(options.device), setup, options.quantization);
}

GenerateCounts generate(const GenerateOptions& options, EngineGroup* group, const GenerateShare& share) {
  const fs::path folder = output_folder(options);
  const fs::path generations = folder / "generations.jsonl";
  GenerateCounts counts;
  if (share.own.number > 0) {
    const std::vector<GeneratePrompt> prompts = prompts_of(options, counts);
    const Journal known(generations, kPromptHash, JournalUse::kRead);
    Journal part(part_of_journal(generations, share.own.number), kPromptHash);
    generate_missing(options, prompts, own_prompts(prompts, share.own, known), part, group);
    return counts;
  }
  ensure_writable_folder(folder, "output_dir");
  std::vector<GeneratePrompt> prompts = prompts_of(options, counts);
  claim_settings(folder, options);
  Journal journal(generations, kPromptHash);
  take_parts(journal);
  const bool whole = std::ranges::all_of(prompts, [&](const auto& prompt) { return journal.contains(prompt.key); });
  if (!whole) try_rewards(options, prompts.front());
  if (!whole && options.endpoint.empty()) generate_share(options, prompts, journal, group, share);
  if (!whole && !options.endpoint.empty()) {
    generate_at_endpoint(options, prompts, journal);
    counts.refused = std::erase_if(prompts, [&](const auto& prompt) { return !journal.contains(prompt.key); });
  }
  collect_data(options, prompts, journal, folder / "data.jsonl", counts);
  return counts;
}

}  // namespace hone
