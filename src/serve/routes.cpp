#include "serve/routes.h"

#include <algorithm>
#include <array>

#include "serve/chat_request.h"
#include "serve/completion_request.h"
#include "serve/embedding_request.h"
#include "serve/messages_request.h"
#include "serve/responses_request.h"

namespace hone {
namespace {

constexpr std::string_view kChat = R"({"messages": [{"role": "user", "content": "What is 17 * 23?"}]})";
constexpr std::string_view kCompletion = R"({"prompt": "The answer is"})";
constexpr std::string_view kEmbedding = R"({"input": "The answer is"})";
constexpr std::string_view kResponse = R"({"input": "What is 17 * 23?"})";
constexpr std::string_view kMessage =
    R"({"messages": [{"role": "user", "content": "What is 17 * 23?"}], "max_tokens": 64})";

void read_chat(std::string_view body) { (void)parse_chat_request(body, {}); }
void read_completion(std::string_view body) { (void)parse_completion_request(body, {}); }
void read_embedding(std::string_view body) { (void)parse_embedding_request(body); }
void read_response(std::string_view body) { (void)parse_responses_request(body, {}); }
void read_message(std::string_view body) { (void)parse_messages_request(body, {}); }

bool matches(const Route& route, std::string_view path) {
  if (!route.path.ends_with('*')) return path == route.path;
  const std::string_view begin = route.path.substr(0, route.path.size() - 1);
  return path.starts_with(begin) && path.size() > begin.size();
}

constexpr auto kRoutes = std::to_array<Route>({
    {"GET", "/", answer_page, Access::kAnyone, "The page for conversations"},
    {"GET", "/page/*", answer_page, Access::kAnyone, "A file of the page"},
    {"GET", "/watch", answer_page, Access::kAnyone, "The page of runs"},
    {"GET", "/runs", answer_run_files, Access::kKey, "The runs that the page shows"},
    {"GET", "/runs/*", answer_run_files, Access::kKey, "Files of a run"},
    {"GET", "/health", answer_health, Access::kAnyone, "Returns status 200"},
    {"GET", "/version", answer_version, Access::kAnyone, "The version of hone"},
    {"GET", "/openapi.json", answer_openapi, Access::kAnyone, "This description"},
    {"GET", "/metrics", answer_metrics, Access::kAnyone, "Counters for Prometheus"},
    {"GET", "/v1/models", answer_models, Access::kKey, "The names of the model and its adapters"},
    {"GET", "/v1/models/*", answer_models, Access::kKey, "One of these names"},
    {"POST", "/v1/chat/completions", answer_chat, Access::kKey, "Chat completions", {kChat, read_chat}},
    {"POST",
     "/v1/completions",
     answer_completions,
     Access::kKey,
     "Completions of texts or token ids",
     {kCompletion, read_completion}},
    {"POST",
     "/v1/embeddings",
     answer_embeddings,
     Access::kKey,
     "Embeddings of texts or token ids",
     {kEmbedding, read_embedding}},
    {"POST", "/v1/responses", answer_responses, Access::kKey, "OpenAI's responses", {kResponse, read_response}},
    {"POST", "/v1/messages", answer_messages, Access::kKey, "Anthropic's messages", {kMessage, read_message}},
    {"POST", "/tokenize", answer_tokenize, Access::kKey, "Tokens of a text or of messages"},
    {"POST", "/detokenize", answer_detokenize, Access::kKey, "The text of tokens"},
    {"POST", "/generate", answer_generate, Access::kKey, "Completions as token ids"},
    {"POST", "/chat", answer_trl_chat, Access::kKey, "Completions of conversations as token ids"},
    {"GET", "/get_world_size", answer_world_size, Access::kKey, "The number of devices"},
    {"POST", "/v1/load_lora_adapter", answer_load_adapter, Access::kControl},
    {"POST", "/v1/unload_lora_adapter", answer_unload_adapter, Access::kControl},
    {"POST", "/sleep", answer_sleep, Access::kControl},
    {"POST", "/wake_up", answer_wake_up, Access::kControl},
    {"GET", "/is_sleeping", answer_is_sleeping, Access::kControl},
    {"POST", "/pause", answer_pause, Access::kControl},
    {"POST", "/resume", answer_resume, Access::kControl},
    {"GET", "/is_paused", answer_is_paused, Access::kControl},
    {"POST", "/reset_prefix_cache", answer_reset_prefix_cache, Access::kControl},
    {"POST", "/update_weights", answer_update_weights, Access::kControl},
    {"POST", "/update_weights_from_disk", answer_update_from_disk, Access::kControl},
    {"POST", "/collective_rpc", answer_collective_rpc, Access::kControl},
    {"POST", "/init_communicator", answer_init_communicator, Access::kControl},
    {"POST", "/update_named_param", answer_update_named_param, Access::kControl},
    {"POST", "/close_communicator", answer_close_communicator, Access::kControl},
    {"GET", "/server_info", answer_server_info, Access::kControl},
    {"POST", "/init_weight_transfer_engine", answer_init_transfer, Access::kControl},
    {"POST", "/start_weight_update", answer_start_update, Access::kControl},
    {"POST", "/finish_weight_update", answer_finish_update, Access::kControl},
});

}  // namespace

std::span<const Route> routes() { return kRoutes; }

const Route* route_of(const ServerRequest& request) {
  std::string_view path = request.path();
  if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);  // TRL's clients end paths with a slash
  const auto found = std::ranges::find_if(kRoutes, [&](const Route& route) { return matches(route, path); });
  return found == kRoutes.end() ? nullptr : &*found;
}

}  // namespace hone
