// hone serve: answers OpenAI-compatible requests with a local model.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>

#include "cli/engine_job.h"
#include "cli/registry.h"
#include "cli/serve/options.h"
#include "cli/serve/replicas.h"
#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/strings.h"
#include "engine/cache_memory.h"
#include "engine/engine.h"
#include "engine/engine_part.h"
#include "http/server.h"
#include "model/loaded_model.h"
#include "serve/request_error.h"
#include "serve/service.h"

namespace hone {
namespace {

constexpr std::int64_t kLongestServed = 32768;

// Replicas on a CPU share its memory. place: null: this process is no replica.
EngineOptions serving_engine(const ServeOptions& options, const LoadedModel& loaded, Device& device, EngineGroup* group,
                             const ReplicaPlace* place) {
  EngineOptions engine;
  engine.max_model_len = model_len(loaded.model->shape(), options.max_model_len, kLongestServed);
  engine.max_num_seqs = num_seqs(options.max_num_seqs, device.kind());
  engine.num_speculative_tokens = options.num_speculative_tokens;
  engine.speculative_method = options.speculative_method;
  engine.max_batch_tokens = std::max(num_batched_tokens(options.max_num_batched_tokens, device.kind()),
                                     engine.max_num_seqs * (1 + options.num_speculative_tokens));
  engine.adjust_logits = true;
  engine.max_logprobs = kMaxTopLogprobs;
  engine.max_prompt_samples = std::min(kPromptSamples, engine.max_batch_tokens);
  engine.enable_prefix_caching = options.enable_prefix_caching;
  engine.adapter_slots = options.max_loras;
  engine.cache = options.cache;
  const DType dtype = model_dtype(*loaded.model, loaded.weights);
  return with_cache_that_fits(engine, *loaded.model, dtype, device, group,
                              {.bytes = options.kv_cache_memory_bytes,
                               .bytes_key = "kv_cache_memory_bytes",
                               .host_share = place != nullptr ? place->count : 1});
}

ServedModel served_model(const ServeOptions& options, const LoadedModel& loaded, const EngineOptions& engine) {
  ServedModel model{.names = options.served_model_name,
                    .path = loaded.path.string(),
                    .tokenizer = loaded.tokenizer,
                    .chat_template = chat_template_of(loaded.tokenizer, options.chat_template),
                    .stop_token_ids = stop_token_ids(loaded.generation_config, *loaded.model, loaded.tokenizer),
                    .defaults = {},
                    .default_max_tokens = std::nullopt,
                    .max_model_len = engine.max_model_len,
                    .vocab_size = loaded.model->shape().vocab_size,
                    .dtype = model_dtype(*loaded.model, loaded.weights),
                    .created = std::time(nullptr),
                    .split_reasoning = options.split_reasoning};
  model.grammars = std::make_shared<GrammarCompiler>(model.tokenizer, model.vocab_size);
  if (model.names.empty()) model.names.push_back(options.model_name_or_path);
  if (options.generation_config == SamplingDefaults::kModel) apply_generation_config(loaded.generation_config, model);
  return model;
}

// Pooling of the hidden states that the model was trained for, if its folder states it for sentence-transformers.
Pooling pooling_of(const ServeOptions& options, const LoadedModel& loaded) {
  if (options.embeddings == EmbeddingChoice::kMean) return Pooling::kMean;
  const std::filesystem::path file = loaded.path / "1_Pooling" / "config.json";
  if (options.embeddings == EmbeddingChoice::kLast || !is_file(file)) return Pooling::kLast;
  const Json config = read_json(file);
  const auto is_set = [&](const char* key) { return config.is_object() && config.value(key, Json()) == true; };
  if (is_set("pooling_mode_lasttoken")) return Pooling::kLast;
  if (is_set("pooling_mode_mean_tokens")) return Pooling::kMean;
  throw Error(file.string(), "pools in a way that hone does not know", "choose --embeddings last or mean");
}

std::optional<EmbedderOptions> embedder_options(const ServeOptions& options, const LoadedModel& loaded,
                                                const EngineOptions& engine) {
  if (options.embeddings == EmbeddingChoice::kNone) return std::nullopt;
  return EmbedderOptions{
      .pooling = pooling_of(options, loaded),
      .max_model_len = engine.max_model_len,
      .max_batch_tokens = options.max_num_batched_tokens > 0 ? options.max_num_batched_tokens : engine.max_batch_tokens,
      .block_size = engine.block_size,
      .adapter_slots = engine.adapter_slots > 0};
}

// Properties of the model's embeddings, by the keys of config.json that vLLM reads.
ServedEmbeddings served_embeddings(const Model& model) {
  ServedEmbeddings served{.size = model.shape().hidden_size};
  const Json& config = model.config();
  served.is_matryoshka = config.value("is_matryoshka", Json()) == true;
  const Json dimensions = config.value("matryoshka_dimensions", Json());
  for (const Json& one : dimensions.is_array() ? dimensions : Json::array())
    if (one.is_number_integer()) served.dimensions.push_back(one.get<std::int64_t>());
  served.is_matryoshka |= !served.dimensions.empty();
  return served;
}

HttpOptions http_options(const ServeOptions& options) {
  HttpOptions http;
  http.host = options.host;
  http.port = static_cast<std::uint16_t>(options.port);
  http.tls = read_tls_identity(options.ssl_certfile, options.ssl_keyfile);
  http.allowed_origins = options.allowed_origins;
  http.max_connections = static_cast<std::size_t>(options.max_connections);
  http.max_body_bytes = static_cast<std::size_t>(options.max_body_mib * (1 << 20));
  http.max_buffered_bytes = std::max(http.max_buffered_bytes, 2 * http.max_body_bytes);
  http.error_body = [](int status, std::string_view message) { return error_body(message, {}, status); };
  if (options.access_log) {
    http.on_access = [](const HttpAccess& access) {
      char seconds[32];
      std::snprintf(seconds, sizeof seconds, "%.3f s", access.seconds);
      log_info(text_of(access.peer, " ", access.method.empty() ? "-" : access.method, " ",
                       access.target.empty() ? "-" : access.target, " ", access.status, " ", access.sent_bytes,
                       " bytes ", seconds));
    };
  }
  return http;
}

// Whoever reaches a server without a key could otherwise replace its weights.
void check_weight_updates(const ServeOptions& options) {
  if (!options.allow_weight_updates || !options.api_key.empty()) return;
  for (const std::string_view local : {"127.0.0.1", "localhost", "::1"})
    if (options.host == local) return;
  throw Error("allow_weight_updates", text_of("needs an API key on the host ", options.host),
              "set api_key or HONE_API_KEY, or host 127.0.0.1");
}

// Gives a model its layer for multi-token prediction and slots for adapters if the options ask for them, and sets
// `model_with_slots` to the latter. In a group it returns this rank's part.
ModelSetup served_parts(const ServeOptions& options, EngineGroup* group, const AdapterSlots*& model_with_slots) {
  ModelSetup setup = engine_part(group, {.num_speculative_tokens = options.num_speculative_tokens,
                                         .speculative_method = options.speculative_method,
                                         .cache = options.cache,
                                         .adapter_slots = options.max_loras});
  if (group != nullptr || options.max_loras == 0) return setup;
  setup.wrap = [&options, &model_with_slots, prepare = std::move(setup.wrap)](std::unique_ptr<Model> model) {
    auto with = std::make_unique<AdapterSlots>(prepare(std::move(model)), options.max_loras, options.max_lora_rank);
    model_with_slots = with.get();
    return with;
  };
  return setup;
}

std::shared_ptr<AdapterTable> adapter_table(const ServeOptions& options, const AdapterSlots& model, DType dtype) {
  auto table = std::make_shared<AdapterTable>(model, dtype);
  for (const std::string& adapter : options.adapters) {
    const std::size_t equals = adapter.find('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == adapter.size())
      throw Error("adapters", text_of("\"", adapter, "\" is no NAME=FOLDER"));
    table->load(adapter.substr(0, equals), adapter.substr(equals + 1));
  }
  return table;
}

// Loads the model, or this rank's part of it.
LoadedModel load_served(const ServeOptions& options, EngineGroup* group, const AdapterSlots*& slots) {
  return load_model(options.model_name_or_path, std::nullopt, open_device(options.device),
                    served_parts(options, group, slots), options.quantization);
}

// Serves until a signal arrives. place: null: this process is no replica.
int serve(const ServeOptions& options, HttpOptions http, EngineGroup* group, const ReplicaPlace* place) {
  http.address = std::make_shared<BoundAddress>(http.host, http.port);
  Device& device = open_device(options.device);
  const AdapterSlots* slots = nullptr;
  LoadedModel loaded = load_served(options, group, slots);
  const EngineOptions engine_options = serving_engine(options, loaded, device, group, place);
  ServedModel model = served_model(options, loaded, engine_options);
  if (slots != nullptr) model.adapters = adapter_table(options, *slots, model_dtype(*slots, loaded.weights));
  const std::optional<EmbedderOptions> embeddings = embedder_options(options, loaded, engine_options);
  if (embeddings) model.embeddings = served_embeddings(*loaded.model);
  ResidentModel resident(*loaded.model, loaded.tokenizer, std::move(loaded.weights), engine_options, embeddings, group);
  catch_interrupts(place != nullptr ? "" : "\nhone: shutting down; press Ctrl+C again to exit immediately\n");
  ServerMetrics metrics(model.names.front(), model.max_model_len, place != nullptr ? place->number : 0);
  EngineLoop loop(resident, metrics, options.max_queued_requests, slots);
  const Service service(model, loop, metrics,
                        {.version = HONE_VERSION,
                         .api_key = options.api_key,
                         .allow_weight_updates = options.allow_weight_updates,
                         .page = options.page,
                         .runs = options.runs,
                         .transfer = options.allow_weight_updates && place == nullptr
                                         ? make_weight_transfer(*loaded.model, device, options.host)
                                         : nullptr});
  HttpServer server(http, [&](const ServerRequest& request, const std::shared_ptr<ServerReply>& reply) {
    service.handle(request, reply);
  });
  const std::string summary = text_of("max_model_len ", format_count(model.max_model_len), ", KV cache of ",
                                      format_count(engine_options.num_blocks * engine_options.block_size), " tokens");
  if (place != nullptr) {
    report_ready(*place, server.port(), summary);
  } else {
    log_info(text_of("serving ", model.names.front(), http.tls ? " on https://" : " on http://", options.host, ":",
                     server.port(), "/v1, ", summary));
  }
  bool drained = false;
  const auto stop = [&] {
    if (interrupted() && !std::exchange(drained, true)) server.drain();
    return interrupted();
  };
  try {
    loop.run(stop, std::chrono::milliseconds(static_cast<std::int64_t>(options.shutdown_timeout * 1000)));
  } catch (const std::exception&) {  // requests under way have an error as their answer, which is to reach the clients
    server.drain();
    server.wait_until_idle(std::chrono::seconds(2));
    throw;
  }
  server.wait_until_idle(std::chrono::seconds(5));
  return 0;
}

// Throws Error for what a tensor group cannot do.
void check_group(const ServeOptions& options) {
  if (options.tensor_parallel_size == 1) return;
  if (options.max_loras > 0) {
    throw Error("tensor_parallel_size",
                text_of("is ", options.tensor_parallel_size, ", but the slots of adapters are not divided"),
                "merge the adapter (hone merge), or --tensor_parallel_size 1");
  }
}

// Serves by one engine, in a tensor group or alone.
int serve_engine(const ServeOptions& options, const HttpOptions& http, const ReplicaPlace* place) {
  const AdapterSlots* slots = nullptr;
  return run_engine_job(
      {.tensor_parallel_size = options.tensor_parallel_size,
       .model = options.model_name_or_path,
       .device = options.device,
       .answer_limit = options.ddp_timeout},
      [&](EngineGroup* group) { return load_served(options, group, slots); },
      [&](EngineGroup* group) { return serve(options, http, group, place); });
}

int run_serve(const ServeOptions& given, const OptionInput& input) {
  const std::optional<ReplicaPlace> place = replica_place();
  ServeOptions options = place ? options_of_replica(given) : given;
  options.model_name_or_path = model_argument("serve", given.model_name_or_path, input);
  if (const char* key = std::getenv("HONE_API_KEY"); options.api_key.empty() && key != nullptr) options.api_key = key;
  check_weight_updates(options);
  const HttpOptions http = http_options(options);
  if (!options.runs.empty() && !is_folder(options.runs))
    throw Error("runs", text_of(options.runs, " is not a folder"), "give a folder that has runs");
  if (options.max_loras == 0) options.max_loras = std::ssize(options.adapters);
  check_group(options);
  if (place) return run_replica(*place, [&] { return serve_engine(options, http, &*place); });
  return options.data_parallel_size > 1 ? serve_replicas(options, http) : serve_engine(options, http, nullptr);
}

}  // namespace

void register_serve(CommandRegistry& registry) {
  registry.add(make_command<ServeOptions>(
      {.name = "serve",
       .summary = "Serve a model to OpenAI's and Anthropic's clients",
       .positionals = "[MODEL]",
       .details = "Endpoints: /v1/chat/completions, /v1/completions, /v1/responses, /v1/messages, /v1/embeddings,\n"
                  "/v1/models, /tokenize, /detokenize, /health, /metrics and /version. Ctrl+C or SIGTERM finishes "
                  "running requests "
                  "and stops."},
      run_serve));
}

}  // namespace hone
