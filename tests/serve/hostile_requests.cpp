#include "serve/hostile_requests.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>
#include <string_view>
#include <vector>

#include "core/json_value.h"
#include "core/random.h"
#include "support/raw_client.h"

namespace hone::test {
namespace {

// Random choices of one request.
class Choices {
 public:
  explicit Choices(std::uint64_t seed) : random_(seed, "hostile") {}

  std::uint64_t below(std::uint64_t limit) { return random_.below(at_++, limit); }
  template <class T>
  const T& one_of(std::span<const T> values) {
    return values[below(values.size())];
  }
  std::string bytes(std::size_t count) {
    std::string text(count, '\0');
    for (char& c : text) c = static_cast<char>(below(256));
    return text;
  }

 private:
  RandomStream random_;
  std::uint64_t at_ = 0;
};

// An endpoint, a body that it accepts, a key that it needs, and keys that must have a type.
struct Endpoint {
  const char* path;
  const char* body;
  const char* needed;
  std::vector<std::string> typed;
};

const std::vector<Endpoint>& endpoints() {
  static const std::vector<Endpoint> all = {
      {"/v1/chat/completions",
       R"({"messages": [{"role": "user", "content": "abc"}], "max_tokens": 2})",
       "messages",
       {"max_tokens", "temperature", "top_p", "top_k", "seed", "n", "stream", "stop", "logit_bias", "tools", "model",
        "response_format", "top_logprobs", "min_tokens", "bad_words"}},
      {"/v1/completions",
       R"({"prompt": "abc", "max_tokens": 2})",
       "prompt",
       {"max_tokens", "temperature", "min_p", "seed", "n", "stream", "stop", "stop_token_ids", "echo", "logprobs",
        "logit_bias", "model", "prompt_logprobs", "allowed_token_ids", "stream_options"}},
      {"/v1/responses",
       R"({"input": "abc", "max_output_tokens": 2})",
       "input",
       {"max_output_tokens", "temperature", "top_p", "stream", "tools", "text", "reasoning", "model", "instructions"}},
      {"/v1/messages",
       R"({"messages": [{"role": "user", "content": "abc"}], "max_tokens": 2})",
       "messages",
       {"max_tokens", "temperature", "top_p", "top_k", "stop_sequences", "stream", "tools", "thinking", "model",
        "system"}},
      {"/v1/embeddings",
       R"({"input": "abc"})",
       "input",
       {"encoding_format", "dimensions", "model", "truncate_prompt_tokens"}},
      {"/tokenize", R"({"prompt": "abc"})", "prompt", {"add_special_tokens"}},
      {"/detokenize", R"({"tokens": [1, 2]})", "tokens", {}},
      {"/generate", R"({"prompts": ["abc"], "max_tokens": 2})", "prompts", {"max_tokens", "temperature", "n", "top_k"}},
  };
  return all;
}

std::string post(const Endpoint& endpoint, const std::string& body) {
  std::string text = http_request("POST", endpoint.path, body);
  // http_request() leaves the headers of an empty body out.
  if (body.empty())
    text = std::string("POST ") + endpoint.path +
           " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\r\n";
  return text;
}

const Endpoint& any_endpoint(Choices& choices) { return choices.one_of(std::span(endpoints())); }

// The body of an endpoint with one member replaced by JSON text, valid or not.
std::string with_member(const Endpoint& endpoint, const std::string& key, const std::string& value) {
  Json body = Json::parse(endpoint.body);
  body.erase(key);
  std::string text = body.dump();
  text.pop_back();
  return text + (body.empty() ? "" : ", ") + "\"" + key + "\": " + value + "}";
}

std::string cut_json(Choices& choices) {
  const Endpoint& endpoint = any_endpoint(choices);
  const std::string body = endpoint.body;
  return post(endpoint, body.substr(0, choices.below(body.size())));
}

std::string noise_in_json(Choices& choices) {
  const Endpoint& endpoint = any_endpoint(choices);
  std::string body = endpoint.body;
  body.insert(choices.below(body.size() - 1), choices.bytes(1 + choices.below(8)) + "\x01\"");
  return post(endpoint, body);
}

std::string huge_number(Choices& choices) {
  const Endpoint& endpoint = any_endpoint(choices);
  static const std::vector<std::string> numbers = {"1e400",
                                                   "-1e400",
                                                   "99999999999999999999999999",
                                                   "-99999999999999999999999999",
                                                   "9223372036854775808",
                                                   "-9223372036854775809",
                                                   "1e308",
                                                   std::string(5000, '9'),
                                                   "0." + std::string(5000, '1') + "e5000",
                                                   "1e-999999999e"};
  return post(endpoint, with_member(endpoint, endpoint.needed, choices.one_of(std::span<const std::string>(numbers))));
}

std::string huge_parameter(Choices& choices) {
  const Endpoint& endpoint = endpoints()[choices.below(4)];
  static const std::vector<std::string> numbers = {
      "1e400", "99999999999999999999999999", "-1", "-9223372036854775808", "1e308", "2.5"};
  const std::string key = endpoint.path == std::string("/v1/responses") ? "max_output_tokens" : "max_tokens";
  return post(endpoint, with_member(endpoint, key, choices.one_of(std::span<const std::string>(numbers))));
}

std::string deep_nesting(Choices& choices) {
  const Endpoint& endpoint = any_endpoint(choices);
  const std::size_t depth = 300 + choices.below(60'000);
  std::string nested;
  if (choices.below(2) == 0) {
    nested = std::string(depth, '[') + "1" + (choices.below(2) == 0 ? std::string(depth, ']') : "");
  } else {
    for (std::size_t i = 0; i < std::min<std::size_t>(depth, 9'000); ++i) nested += "{\"a\":";
    nested += "1" + std::string(std::min<std::size_t>(depth, 9'000), '}');
  }
  return post(endpoint, choices.below(2) == 0 ? nested : with_member(endpoint, endpoint.needed, nested));
}

std::string invalid_utf8(Choices& choices) {
  static const std::vector<std::string> texts = {
      "\xff", "\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf5\x80\x80\x80", "a\x80z", "\xe2\x82", "\xf0\x9f\x99"};
  const Endpoint& endpoint = any_endpoint(choices);
  const std::string text = choices.one_of(std::span<const std::string>(texts));
  return post(endpoint, with_member(endpoint, endpoint.needed, "\"a" + text + "b\""));
}

std::string wrong_type(Choices& choices) {
  static const std::vector<std::string> values = {"[[[\"a\"]]]", "{\"a\": [{}]}", "[{\"b\": {}}]", "[null]"};
  const Endpoint& endpoint = any_endpoint(choices);
  const bool of_needed = endpoint.typed.empty() || choices.below(3) == 0;
  const std::string key = of_needed ? endpoint.needed : choices.one_of(std::span(endpoint.typed));
  return post(endpoint, with_member(endpoint, key, choices.one_of(std::span<const std::string>(values))));
}

std::string nothing_needed(Choices& choices) {
  static const std::vector<std::string> bodies = {"", "{}", "[]", "null", "5", "\"a\"", "true", " ", "{\"a\": 1}"};
  return post(any_endpoint(choices), choices.one_of(std::span<const std::string>(bodies)));
}

std::string unknown_parameter(Choices& choices) {
  const Endpoint& endpoint = endpoints()[choices.below(4)];
  return post(endpoint, with_member(endpoint, "unknown_" + std::to_string(choices.below(1000)), "1"));
}

std::string wrong_content_type(Choices& choices) {
  static const std::vector<std::string> types = {"text/plain", "application/x-www-form-urlencoded",
                                                 "multipart/form-data", "application/jsonx", ""};
  const Endpoint& endpoint = any_endpoint(choices);
  const std::string body = endpoint.body;
  return std::string("POST ") + endpoint.path +
         " HTTP/1.1\r\nHost: x\r\nContent-Type: " + choices.one_of(std::span<const std::string>(types)) +
         "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

std::string wrong_target(Choices& choices) {
  static const std::vector<std::string> lines = {"GET /v1/chat/completions",
                                                 "DELETE /v1/models",
                                                 "PUT /v1/completions",
                                                 "GET /../../etc/passwd",
                                                 "GET /page/../serve.h",
                                                 "GET /page/%2e%2e%2fmain",
                                                 "POST /health",
                                                 "GET /v1/models/nothing",
                                                 "GET /runs/../../x",
                                                 "CONNECT example.com:80",
                                                 "GET http://a/",
                                                 "TRACE /v1/models",
                                                 "GET /%00",
                                                 "GET /v1/chat/completions/",
                                                 "OPTIONS *"};
  return choices.one_of(std::span<const std::string>(lines)) + " HTTP/1.1\r\nHost: x\r\n\r\n";
}

// Two readings of where a request ends: a server with the other reading would see a second request.
std::string smuggling(Choices& choices) {
  static const std::string inner = "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n";
  const std::string length = std::to_string(inner.size());
  const std::vector<std::string> headers = {
      "Content-Length: " + length + "\r\nTransfer-Encoding: chunked\r\n",
      "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
      "Content-Length: 0\r\nContent-Length: " + length + "\r\n",
      "Content-Length: 5, " + length + "\r\n",
      "Content-Length: +" + length + "\r\n",
      "Content-Length: 0x10\r\n",
      "Content-Length : " + length + "\r\n",
      "Transfer-Encoding: xchunked\r\n",
      "Transfer-Encoding: chunked, identity\r\n",
      "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
      "Transfer-Encoding : chunked\r\n",
      "Transfer-Encoding:\x0b"
      "chunked\r\n",
      "X: a\nTransfer-Encoding: chunked\r\n",
      "Host: y\r\n",
      " Transfer-Encoding: chunked\r\n",
      "Content-Length: -1\r\n",
      "Content-Length: 99999999999999999999\r\n",
      "Expect: 200-ok\r\nContent-Length: " + length + "\r\n",
  };
  return "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" +
         choices.one_of(std::span<const std::string>(headers)) + "\r\n0\r\n\r\n" + inner;
}

// A request as the body of another one: it must be taken for a body, which is no JSON.
std::string request_in_body(Choices& choices) {
  return post(any_endpoint(choices), "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n" + choices.bytes(choices.below(50)));
}

std::string bad_chunks(Choices& choices) {
  static const std::vector<std::string> chunks = {
      "fffffffffffffffff\r\n", "-1\r\n\r\n", "5\r\nabc\r\n0\r\n\r\n",  "zz\r\n", "3\r\nabcd\r\n",
      "3;\x01\r\nabcx\r\n",    "\r\n\r\n",   "0x3\r\nabc\r\n0\r\n\r\n"};
  return std::string("POST ") + any_endpoint(choices).path +
         " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" +
         choices.one_of(std::span<const std::string>(chunks)) + std::string(64, 'x');
}

std::string noise(Choices& choices) {
  std::string text = choices.bytes(1 + choices.below(300));
  text[0] = static_cast<char>(0x80 | text[0]);  // no beginning of a method
  return text + "\r\n\r\n";
}

std::string bad_head(Choices& choices) {
  static const std::vector<std::string> heads = {"GET / HTTP/1.1\r\n\r\n",
                                                 "GET / HTTP/3.0\r\nHost: x\r\n\r\n",
                                                 "GET  / HTTP/1.1\r\nHost: x\r\n\r\n",
                                                 "GET /\r\nHost: x\r\n\r\n",
                                                 "GET / HTTP/1.1\r\n: x\r\n\r\n",
                                                 "GET / HTTP/1.1\r\nHost: a\x01\r\n\r\n",
                                                 "GET / HTTP/1.1\r\nHo st: x\r\n\r\n",
                                                 "GET / HTTX/1.1\r\nHost: x\r\n\r\n"};
  return choices.one_of(std::span<const std::string>(heads));
}

}  // namespace

HostileRequest hostile_request(std::uint64_t seed, std::size_t max_body_bytes, std::size_t max_header_bytes) {
  struct Maker {
    const char* kind;
    std::string (*make)(Choices&);
    bool ends = false;
  };
  static constexpr auto kMakers = std::to_array<Maker>({
      {"cut JSON", cut_json},
      {"noise in JSON", noise_in_json},
      {"huge number", huge_number},
      {"huge parameter", huge_parameter},
      {"deep nesting", deep_nesting},
      {"invalid UTF-8", invalid_utf8},
      {"wrong type", wrong_type},
      {"nothing needed", nothing_needed},
      {"unknown parameter", unknown_parameter},
      {"wrong content type", wrong_content_type},
      {"wrong target", wrong_target},
      {"request in a body", request_in_body},
      {"smuggling", smuggling, true},
      {"bad chunks", bad_chunks, true},
      {"noise", noise, true},
      {"bad head", bad_head, true},
  });
  Choices choices(seed);
  const std::size_t other = kMakers.size();
  const std::size_t kind = seed % (kMakers.size() + 5);
  const std::string over_body = std::to_string(max_body_bytes + 1);
  if (kind < other)
    return {.kind = kMakers[kind].kind, .bytes = kMakers[kind].make(choices), .ends = kMakers[kind].ends};
  switch (kind - other) {
    case 0:
      return {.kind = "large body",
              .bytes = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " + over_body + "\r\n\r\n" +
                       choices.bytes(choices.below(5000)),
              .ends = true};
    case 1:
      return {.kind = "large headers",
              .bytes = "GET /health HTTP/1.1\r\nHost: x\r\nA: " +
                       std::string(max_header_bytes + choices.below(10'000), 'a') + "\r\n\r\n",
              .ends = true};
    case 2: {  // closes early: within the headers, within the body, or while the answer is computed
      const Endpoint& endpoint = endpoints()[choices.below(4)];
      const std::string whole = post(endpoint, endpoint.body);
      return {.kind = "early close", .bytes = whole.substr(0, 1 + choices.below(whole.size())), .leaves = true};
    }
    case 3: {
      const int before = 1 + static_cast<int>(choices.below(5));
      const Maker& maker = kMakers[choices.below(other)];
      HostileRequest request{.kind = "pipelined", .bytes = {}, .ends = maker.ends, .valid_before = before};
      for (int i = 0; i < before; ++i) request.bytes += http_request("GET", "/health");
      request.bytes += maker.make(choices);
      return request;
    }
    default: {
      const std::size_t size = max_body_bytes + 1;
      char line[32];
      std::snprintf(line, sizeof line, "%zx\r\n", size);
      return {.kind = "large chunk",
              .bytes = "POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + std::string(line) +
                       std::string(2000, ' '),
              .ends = true};
    }
  }
}

}  // namespace hone::test
