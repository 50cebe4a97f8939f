// Options of `hone chat`.
#pragma once

#include <cstdint>
#include <string>

#include "backend/device_option.h"
#include "core/options.h"
#include "engine/engine_options.h"
#include "engine/sampling_keys.h"
#include "model/quantization.h"

namespace hone {

struct ChatOptions : SamplingKeys {
  std::string model_name_or_path;
  std::string system_prompt;
  std::string chat_template;
  std::int64_t max_tokens = 1024;
  std::int64_t max_model_len = 0;
  Quantization quantization = Quantization::kAutomatic;
  CacheOptions cache;
  DeviceChoice device = DeviceChoice::kAutomatic;
  std::int64_t tensor_parallel_size = 1;
  std::string server;
  std::string api_key;
  bool fold_thoughts = true;
  bool keep_history = true;

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("Model");
    v("model_name_or_path", model_name_or_path,
      "Folder or Hugging Face name of the model; also the first argument. With server: its name there; unset: the "
      "first "
      "that the server lists");
    v.alias("model", "model_name_or_path");
    v("chat_template", chat_template, "Chat template, as Jinja text or a file; unset: the model's");
    v("system_prompt", system_prompt, "System message at the start of the conversation");
    v("quantization", quantization, kQuantizationHelp);
    cache.fields(v);
    v("device", device, kDeviceHelp);
    v("tensor_parallel_size", tensor_parallel_size, kTensorGroupHelp, within(1, 1024));
    v("max_model_len", max_model_len, "Maximum tokens per conversation; 0: the model's positions, at most 8,192",
      at_least(0));
    v.group("Server");
    v("server", server,
      "URL of a server with OpenAI's API, which answers in place of a local model; sampling keys that are not set are "
      "the server's");
    v("api_key", api_key, "Key of the server; unset: the variable HONE_API_KEY, otherwise OPENAI_API_KEY");
    v.secret("api_key");
    v.group("Terminal");
    v("fold_thoughts", fold_thoughts, "Show a line in place of the text between <think> and </think>");
    v("keep_history", keep_history,
      "Keep typed messages for the arrow keys of later chats, in the cache's chat_history");
    SamplingKeys::fields(v);
    v("max_tokens", max_tokens, "Maximum tokens per answer", at_least(1));
  }
};

}  // namespace hone
