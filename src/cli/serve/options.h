// Options of `hone serve`, named as in vLLM if they exist there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/device_option.h"
#include "core/options.h"
#include "engine/cache_memory.h"
#include "engine/engine_options.h"
#include "model/quantization.h"

namespace hone {

// Where requests without sampling parameters get them from.
enum class SamplingDefaults : std::uint8_t {
  kModel,    // generation_config.json of the model
  kNeutral,  // temperature 1 and nothing else
};
template <>
inline constexpr EnumTable kEnumTable<SamplingDefaults>{.names = "auto|neutral", .aliases = "vllm=neutral"};

// Embeddings that a server computes.
enum class EmbeddingChoice : std::uint8_t {
  kNone,
  kAuto,  // pooled as 1_Pooling/config.json of the model says; without that file, as kLast
  kLast,
  kMean,
};
template <>
inline constexpr EnumTable kEnumTable<EmbeddingChoice>{.names = "none|auto|last|mean"};

struct ServeOptions {
  std::string model_name_or_path;
  std::vector<std::string> served_model_name;
  std::string chat_template;
  SamplingDefaults generation_config = SamplingDefaults::kModel;
  bool split_reasoning = true;
  EmbeddingChoice embeddings = EmbeddingChoice::kNone;
  std::vector<std::string> adapters;
  std::int64_t max_loras = 0;
  std::int64_t max_lora_rank = 16;
  Quantization quantization = Quantization::kAutomatic;
  DeviceChoice device = DeviceChoice::kAutomatic;
  std::int64_t tensor_parallel_size = 1;
  std::int64_t data_parallel_size = 1;
  std::int64_t ddp_timeout = 300;

  std::string host = "127.0.0.1";
  std::int64_t port = 8000;
  std::string ssl_certfile;
  std::string ssl_keyfile;
  std::string api_key;
  std::vector<std::string> allowed_origins;
  std::int64_t max_connections = 4096;
  double max_body_mib = 16;
  double shutdown_timeout = 30;
  bool access_log = true;
  bool allow_weight_updates = false;
  bool page = true;
  std::string runs;

  std::int64_t max_model_len = 0;
  std::int64_t max_num_seqs = 0;
  std::int64_t num_speculative_tokens = 0;
  SpeculativeMethod speculative_method = SpeculativeMethod::kNgram;
  std::int64_t max_num_batched_tokens = 0;
  std::int64_t max_queued_requests = 4096;
  std::int64_t kv_cache_memory_bytes = 0;
  bool enable_prefix_caching = true;
  CacheOptions cache;

  template <class Visitor>
  void fields(Visitor& v) {
    model_fields(v);
    server_fields(v);
    engine_fields(v);
  }

 private:
  template <class Visitor>
  void model_fields(Visitor& v) {
    v.group("Model");
    v("model_name_or_path", model_name_or_path, "Folder or Hugging Face name of the model; also the first argument");
    v.alias("model", "model_name_or_path");
    v("served_model_name", served_model_name, "Names that requests may use; unset: the model as given");
    v("chat_template", chat_template, "Chat template, as Jinja text or a file; unset: the model's");
    v("generation_config", generation_config,
      "Sampling parameters of requests that state none: those of generation_config.json, or neutral ones");
    v("split_reasoning", split_reasoning, "Answer chat requests with reasoning apart from content");
    v("embeddings", embeddings,
      "Answer /v1/embeddings: hidden states of the last token, or their mean; auto: as 1_Pooling/config.json of the "
      "model says, otherwise last");
    v("adapters", adapters, "Adapters that requests may name as their model: NAME=FOLDER");
    v.alias("lora_modules", "adapters");
    v("max_loras", max_loras, "Adapters in one batch, others wait; 0: as many as adapters names", within(0, 256));
    v("max_lora_rank", max_lora_rank, "Largest rank of an adapter", within(1, 512));
    v("quantization", quantization, kQuantizationHelp);
    v("device", device, kDeviceHelp);
    v("tensor_parallel_size", tensor_parallel_size, kTensorGroupHelp, within(1, 1024));
    v("data_parallel_size", data_parallel_size,
      "Replicas of the model on this machine, among which requests are distributed; each has tensor_parallel_size GPUs",
      within(1, 1024));
    v("ddp_timeout", ddp_timeout,
      "Seconds after which a process of tensor_parallel_size that does not answer ends the server", at_least(1));
  }

  template <class Visitor>
  void server_fields(Visitor& v) {
    v.group("Server");
    v("host", host, "Name or address of the interface to listen on; 0.0.0.0: all");
    v("port", port, "TCP port; 0: any free one", within(0, 65535));
    v("ssl_certfile", ssl_certfile,
      "File with the server's certificate, in PEM form and followed by those of its authorities; the server then "
      "answers over TLS (HTTPS)");
    v("ssl_keyfile", ssl_keyfile, "File with the certificate's private key; unset: ssl_certfile has it");
    v("api_key", api_key, "Key that clients must send; unset: the variable HONE_API_KEY, if it is set");
    v.secret("api_key");
    v("allowed_origins", allowed_origins,
      "Origins whose web pages may use the server (CORS), such as https://example.com; *: all; unset: none");
    v("max_connections", max_connections, "Connections that are open concurrently", within(1, 1'000'000));
    v("max_body_mib", max_body_mib, "Maximum size of a request's body in MiB", within(0.001, 1024));
    v("shutdown_timeout", shutdown_timeout, "Seconds after Ctrl+C or SIGTERM within which running requests may finish",
      within(0, 86400));
    v("access_log", access_log, "Log a line for each request");
    v("allow_weight_updates", allow_weight_updates,
      "Allow clients to load weights from folders of this host, to pause and to give memory back; needs an API key "
      "unless host is 127.0.0.1");
    v("page", page, "Serve a web page for conversations at /");
    v("runs", runs, "Folder of runs that the page shows at /watch, as hone watch does; unset: none");
  }

  template <class Visitor>
  void engine_fields(Visitor& v) {
    v.group("Engine");
    v("max_model_len", max_model_len,
      "Maximum tokens of prompt and completion; 0: the model's positions, at most 32,768", at_least(0));
    v("max_num_seqs", max_num_seqs, kNumSeqsHelp, within(0, 65536));
    v("max_num_batched_tokens", max_num_batched_tokens,
      "Tokens of one step; longer prompts are computed in chunks of at most this; 0: 2048 on a GPU, 512 on a CPU",
      within(0, 1 << 20));
    v("num_speculative_tokens", num_speculative_tokens, kSpeculativeTokensHelp, within(0, 64));
    v("speculative_method", speculative_method, kSpeculativeMethodHelp);
    v("max_queued_requests", max_queued_requests,
      "Completions that wait or are generated; more requests are refused with status 429", at_least(1));
    v("kv_cache_memory_bytes", kv_cache_memory_bytes,
      "Bytes of the KV cache; 0: enough for max_num_seqs completions of max_model_len, but at most half of the memory "
      "that a GPU has available or an eighth of the host's",
      at_least(0));
    v("enable_prefix_caching", enable_prefix_caching, "Compute the common beginning of prompts once");
    cache.fields(v);
  }
};

}  // namespace hone
