#include "serve/chat_request.h"

#include <cmath>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "core/json_value.h"
#include "serve/chat_messages.h"
#include "serve/request_error.h"

namespace hone {
namespace {

// Reads the parameters of a body and remembers which were read, so that the others can be refused.
class Parameters {
 public:
  explicit Parameters(const Json& body) : body_(body) {}

  // Returns the value of a key; null if it is absent.
  const Json& value(const char* key) {
    static const Json null;
    known_.insert(key);
    const auto found = body_.find(key);
    return found == body_.end() ? null : *found;
  }

  // The following read into `result` and return true if the key is present and not null.
  bool boolean(const char* key, bool& result) {
    const Json& found = value(key);
    if (found.is_null()) return false;
    if (!found.is_boolean()) refuse(key, found, "true or false");
    result = found.get<bool>();
    return true;
  }
  bool integer(const char* key, std::int64_t& result, std::int64_t least, std::int64_t most) {
    const Json& found = value(key);
    if (found.is_null()) return false;
    result = checked_integer(found, key, least, most);
    return true;
  }
  bool number(const char* key, double& result, double least, double most) {
    const Json& found = value(key);
    if (found.is_null()) return false;
    if (!found.is_number()) refuse(key, found, "a number");
    result = found.get<double>();
    if (!(result >= least && result <= most))
      throw RequestError(key, text_of("is ", found.dump()), text_of("expected ", least, " to ", most));
    return true;
  }

  static std::int64_t checked_integer(const Json& found, const std::string& param, std::int64_t least,
                                      std::int64_t most) {
    if (!found.is_number_integer()) refuse(param, found, "an integer");
    const bool too_large = found.is_number_unsigned() && found.get<std::uint64_t>() > static_cast<std::uint64_t>(most);
    if (too_large || found.get<std::int64_t>() < least || found.get<std::int64_t>() > most)
      throw RequestError(param, text_of("is ", found.dump()), text_of("expected ", least, " to ", most));
    return found.get<std::int64_t>();
  }
  [[noreturn]] static void refuse(const std::string& param, const Json& found, std::string_view expected) {
    throw RequestError(param, text_of("is ", found.type_name(), ", expected ", expected));
  }

  // Accepts a key only if it is absent, null or `neutral`, the value that changes nothing.
  void only(const char* key, const Json& neutral) {
    const Json& found = value(key);
    if (!found.is_null() && found != neutral)
      throw RequestError(key, "is not supported", text_of("leave it out, or give ", neutral.dump()));
  }
  void refuse_others() const {
    for (const auto& [key, unused] : body_.items())
      if (!known_.contains(key)) throw RequestError(key, "is not a parameter that hone supports", "leave it out");
  }

 private:
  const Json& body_;
  std::set<std::string, std::less<>> known_;
};

void read_stops(Parameters& parameters, SamplingParams& sampling) {
  const Json& stop = parameters.value("stop");
  if (stop.is_string())
    sampling.stop = {stop.get<std::string>()};
  else if (stop.is_array()) {
    sampling.stop.clear();
    for (const Json& one : stop) {
      if (!one.is_string()) Parameters::refuse("stop", one, "strings");
      sampling.stop.push_back(one.get<std::string>());
    }
  } else if (!stop.is_null())
    Parameters::refuse("stop", stop, "a string or an array of strings");
  for (const std::string& one : sampling.stop)
    if (one.empty()) throw RequestError("stop", "has an empty string", "leave it out");

  const Json& ids = parameters.value("stop_token_ids");
  if (!ids.is_null() && !ids.is_array()) Parameters::refuse("stop_token_ids", ids, "an array of token ids");
  if (ids.is_array()) {
    sampling.stop_token_ids.clear();
    for (const Json& id : ids)
      sampling.stop_token_ids.push_back(static_cast<TokenId>(
          Parameters::checked_integer(id, "stop_token_ids", 0, std::numeric_limits<TokenId>::max())));
  }
  const auto check_count = [](const char* key, std::size_t count) {
    if (count > kMaxStops) throw RequestError(key, text_of("has ", count, " values"), text_of("at most ", kMaxStops));
  };
  check_count("stop", sampling.stop.size());
  check_count("stop_token_ids", sampling.stop_token_ids.size());
}

void read_sampling(Parameters& parameters, ChatRequest& request) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  SamplingParams& sampling = request.sampling;
  parameters.number("temperature", sampling.temperature, 0.0, 100.0);
  parameters.number("top_p", sampling.top_p, 0.0, 1.0);
  if (sampling.top_p <= 0.0) throw RequestError("top_p", "is 0", "expected above 0, at most 1");
  parameters.number("min_p", sampling.min_p, 0.0, 1.0);
  // -1 turns top_k off in vLLM, 0 does in hone.
  if (parameters.integer("top_k", sampling.top_k, -1, kMost) && sampling.top_k < 0) sampling.top_k = 0;
  parameters.number("repetition_penalty", sampling.repetition_penalty, 0.01, 100.0);
  request.has_max_tokens = parameters.integer("max_tokens", sampling.max_tokens, 1, kMost);
  // The newer name counts if both are given.
  request.has_max_tokens |= parameters.integer("max_completion_tokens", sampling.max_tokens, 1, kMost);
  std::int64_t seed = 0;
  request.has_seed = parameters.integer("seed", seed, std::numeric_limits<std::int64_t>::min(),
                                        std::numeric_limits<std::int64_t>::max());
  if (request.has_seed) sampling.seed = static_cast<std::uint64_t>(seed);
  parameters.boolean("ignore_eos", request.ignore_eos);
  read_stops(parameters, sampling);
}

void read_stream(Parameters& parameters, ChatRequest& request) {
  parameters.boolean("stream", request.stream);
  const Json& options = parameters.value("stream_options");
  if (options.is_null()) return;
  if (!options.is_object()) Parameters::refuse("stream_options", options, "an object");
  if (!request.stream) throw RequestError("stream_options", "is given, but stream is not true", "leave it out");
  Parameters inner(options);
  inner.boolean("include_usage", request.include_usage);
  inner.refuse_others();
}

void read_template(Parameters& parameters, ChatRequest& request) {
  request.messages = std::make_shared<Json>(template_messages(parameters.value("messages")));
  Json variables = parameters.value("chat_template_kwargs");
  if (variables.is_null()) variables = Json::object();
  if (!variables.is_object()) Parameters::refuse("chat_template_kwargs", variables, "an object");
  const Json& tools = parameters.value("tools");
  if (!tools.is_null() && !tools.is_array()) Parameters::refuse("tools", tools, "an array");
  const Json& choice = parameters.value("tool_choice");
  if (!choice.is_null() && choice != "auto" && choice != "none")
    throw RequestError("tool_choice", "is not supported", R"(use "auto" or "none")");
  if (choice == "auto" && tools.empty()) throw RequestError("tool_choice", "is \"auto\", but there are no tools");
  for (std::size_t i = 0; i < tools.size(); ++i)
    if (!tools[i].is_object()) Parameters::refuse(text_of("tools[", i, "]"), tools[i], "an object");
  if (!tools.empty() && choice != "none") variables["tools"] = tools;
  request.variables = std::make_shared<Json>(std::move(variables));
}

// Parameters that hone accepts only where they change nothing, and those that can never change a completion.
void read_neutral(Parameters& parameters) {
  parameters.only("presence_penalty", 0);
  parameters.only("frequency_penalty", 0);
  parameters.only("logit_bias", Json::object());
  parameters.only("response_format", Json{{"type", "text"}});
  parameters.only("parallel_tool_calls", true);
  parameters.only("top_logprobs", 0);
  for (const char* key : {"user", "metadata", "store", "service_tier"}) (void)parameters.value(key);
}

}  // namespace

ChatRequest parse_chat_request(std::string_view body, const SamplingParams& defaults) {
  Json json;
  try {
    json = parse_json(body, "body");
  } catch (const Error& error) {
    throw RequestError({}, error.what());
  }
  if (!json.is_object()) throw RequestError({}, text_of("body: is ", json.type_name(), ", expected an object"));
  Parameters parameters(json);
  ChatRequest request;
  request.sampling = defaults;
  const Json& model = parameters.value("model");
  if (!model.is_null() && !model.is_string()) Parameters::refuse("model", model, "a string");
  if (model.is_string()) request.model = model.get<std::string>();
  parameters.integer("n", request.n, 1, kMaxChoices);
  parameters.boolean("logprobs", request.logprobs);
  read_stream(parameters, request);
  read_sampling(parameters, request);
  read_template(parameters, request);
  read_neutral(parameters);
  parameters.refuse_others();
  return request;
}

}  // namespace hone
