// hone serve: answers OpenAI-compatible requests with a local model.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>

#include "backend/device_memory.h"
#include "cli/registry.h"
#include "cli/serve/options.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "core/strings.h"
#include "engine/engine.h"
#include "http/server.h"
#include "model/loaded_model.h"
#include "serve/request_error.h"
#include "serve/service.h"

namespace hone {
namespace {

constexpr std::int64_t kLongestServed = 32768;

// Returns the blocks of the KV cache: as many as max_num_seqs completions of max_model_len need, or as fit into
// kv_cache_memory_bytes or a share of the device's memory.
std::int64_t kv_blocks(const ServeOptions& options, const EngineOptions& engine, const ModelShape& shape,
                       std::size_t element_bytes, Device& device) {
  const std::int64_t per_sequence = (engine.max_model_len + engine.block_size - 1) / engine.block_size;
  const std::int64_t block_bytes = 2 * shape.num_hidden_layers * shape.num_key_value_heads * shape.head_dim *
                                   engine.block_size * static_cast<std::int64_t>(element_bytes);
  const std::int64_t share = device.kind() == DeviceKind::kCpu ? 8 : 2;
  const std::int64_t most = options.kv_cache_memory_bytes > 0
                                ? options.kv_cache_memory_bytes
                                : static_cast<std::int64_t>(memory_of(device).available) / share;
  const std::int64_t blocks = most / std::max<std::int64_t>(block_bytes, 1);
  if (blocks < per_sequence) {
    throw Error(options.kv_cache_memory_bytes > 0 ? "kv_cache_memory_bytes" : "max_model_len",
                text_of("the KV cache may have ", most, " bytes, but one completion of max_model_len ",
                        engine.max_model_len, " needs ", per_sequence * block_bytes),
                text_of("set max_model_len to at most ", blocks * engine.block_size,
                        ", or kv_cache_memory_bytes to at least ", per_sequence * block_bytes));
  }
  return std::min(blocks, per_sequence * engine.max_num_seqs);
}

EngineOptions serving_engine(const ServeOptions& options, const LoadedModel& loaded, Device& device) {
  EngineOptions engine;
  engine.max_model_len = model_len(loaded.model->shape(), options.max_model_len, kLongestServed);
  engine.max_num_seqs = options.max_num_seqs;
  engine.max_batch_tokens = std::max(options.max_num_batched_tokens, options.max_num_seqs);
  engine.adjust_logits = true;
  engine.max_logprobs = kMaxTopLogprobs;
  engine.enable_prefix_caching = options.enable_prefix_caching;
  check_positions(loaded.model->shape(), engine.max_model_len, "max_model_len");
  engine.num_blocks =
      kv_blocks(options, engine, loaded.model->shape(), size_of(model_dtype(*loaded.model, loaded.weights)), device);
  return resolved(engine);
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
                    .created = std::time(nullptr),
                    .split_reasoning = options.split_reasoning};
  if (model.names.empty()) model.names.push_back(options.model_name_or_path);
  if (options.generation_config == SamplingDefaults::kModel) apply_generation_config(loaded.generation_config, model);
  return model;
}

HttpOptions http_options(const ServeOptions& options) {
  HttpOptions http;
  http.host = options.host;
  http.port = static_cast<std::uint16_t>(options.port);
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

int run_serve(const ServeOptions& given, const OptionInput& input) {
  ServeOptions options = given;
  options.model_name_or_path = model_argument("serve", given.model_name_or_path, input);
  if (const char* key = std::getenv("HONE_API_KEY"); options.api_key.empty() && key != nullptr) options.api_key = key;
  Device& device = open_device(options.device);
  LoadedModel loaded = load_model(options.model_name_or_path, std::nullopt, device);
  const EngineOptions engine_options = serving_engine(options, loaded, device);
  const ServedModel model = served_model(options, loaded, engine_options);
  Engine engine(*loaded.model, loaded.tokenizer, loaded.weights, std::make_shared<Arena>(device), engine_options);
  catch_interrupts("\nhone: shutting down; press Ctrl+C again to exit immediately\n");
  ServerMetrics metrics(model.names.front(), model.max_model_len);
  EngineLoop loop(engine, metrics, options.max_queued_requests);
  const Service service(model, loop, metrics,
                        {.version = HONE_VERSION, .api_key = options.api_key, .page = options.page});
  HttpServer server(
      http_options(options),
      [&](const ServerRequest& request, const std::shared_ptr<ServerReply>& reply) { service.handle(request, reply); });
  log_info(text_of("serving ", model.names.front(), " on http://", options.host, ":", server.port(),
                   "/v1, max_model_len ", format_count(model.max_model_len), ", KV cache of ",
                   format_count(engine_options.num_blocks * engine_options.block_size), " tokens"));
  bool drained = false;
  const auto stop = [&] {
    if (interrupted() && !std::exchange(drained, true)) server.drain();
    return interrupted();
  };
  loop.run(stop, std::chrono::milliseconds(static_cast<std::int64_t>(options.shutdown_timeout * 1000)));
  server.wait_until_idle(std::chrono::seconds(5));
  return 0;
}

}  // namespace

void register_serve(CommandRegistry& registry) {
  registry.add(make_command<ServeOptions>(
      {.name = "serve",
       .summary = "Serve a model to OpenAI's and Anthropic's clients",
       .positionals = "[MODEL]",
       .details = "Endpoints: /v1/chat/completions, /v1/completions, /v1/responses, /v1/messages, /v1/models,\n"
                  "/tokenize, /detokenize, /health, /metrics and /version. Ctrl+C or SIGTERM finishes running requests "
                  "and stops."},
      run_serve));
}

}  // namespace hone
