#include "serve/chat_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/json_value.h"
#include "serve/request_error.h"

namespace hone {
namespace {

constexpr const char* kHello = R"("messages": [{"role": "user", "content": "Hello"}])";

ChatRequest parsed(const std::string& parameters) {
  return parse_chat_request("{" + std::string(kHello) + (parameters.empty() ? "" : ", " + parameters) + "}", {});
}

// Returns the parameter that the refusal of a body names, or "accepted".
std::string refused_parameter(const std::string& body) {
  try {
    (void)parse_chat_request(body, {});
    return "accepted";
  } catch (const RequestError& error) {
    EXPECT_EQ(error.status(), 400);
    return error.param();
  }
}
std::string refused_among(const std::string& parameters) {
  return refused_parameter("{" + std::string(kHello) + ", " + parameters + "}");
}
std::string refused_message(const std::string& message) {
  return refused_parameter(R"({"messages": [)" + message + "]}");
}

TEST(ChatRequest, WhatIsAbsentComesFromTheDefaults) {
  SamplingParams defaults;
  defaults.temperature = 0.6;
  defaults.top_k = 20;
  const ChatRequest request = parse_chat_request(
      R"({"messages": [{"role": "user", "content": "x"}], "temperature": null, "top_k": 5})", defaults);
  EXPECT_EQ(request.sampling.temperature, 0.6);
  EXPECT_EQ(request.sampling.top_k, 5);
  EXPECT_EQ(request.n, 1);
  EXPECT_FALSE(request.has_max_tokens || request.has_seed || request.stream || request.logprobs);
}

TEST(ChatRequest, ReadsEveryParameter) {
  const ChatRequest request = parsed(R"("model": "m", "temperature": 0, "top_p": 0.9, "top_k": -1, "min_p": 0.1,
    "repetition_penalty": 1.1, "max_tokens": 7, "max_completion_tokens": 9, "seed": -1, "n": 3, "stop": ["a", "b"],
    "stop_token_ids": [4], "logprobs": true, "ignore_eos": true, "stream": true,
    "stream_options": {"include_usage": true}, "presence_penalty": 0.5, "frequency_penalty": -0.5,
    "logit_bias": {"7": -3}, "allowed_token_ids": [5, 7], "reasoning_effort": "low", "user": "someone")");
  EXPECT_EQ(request.sampling.presence_penalty, 0.5);
  EXPECT_EQ(request.sampling.frequency_penalty, -0.5);
  EXPECT_EQ(request.sampling.logit_bias.at(7), -3.0);
  EXPECT_THAT(request.sampling.allowed_token_ids, testing::ElementsAre(5, 7));
  EXPECT_EQ((*request.variables)["reasoning_effort"], "low");
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(request.sampling.temperature, 0.0);
  EXPECT_EQ(request.sampling.top_p, 0.9);
  EXPECT_EQ(request.sampling.top_k, 0);
  EXPECT_EQ(request.sampling.min_p, 0.1);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.1);
  EXPECT_EQ(request.sampling.max_tokens, 9);
  EXPECT_EQ(request.sampling.seed, ~std::uint64_t{0});
  EXPECT_EQ(request.n, 3);
  EXPECT_THAT(request.sampling.stop, testing::ElementsAre("a", "b"));
  EXPECT_THAT(request.sampling.stop_token_ids, testing::ElementsAre(4));
  EXPECT_TRUE(request.has_max_tokens && request.has_seed && request.logprobs && request.ignore_eos);
  EXPECT_TRUE(request.stream && request.include_usage);
}

TEST(ChatRequest, MessagesTakeTheFormOfTemplates) {
  const ChatRequest request = parse_chat_request(R"({"messages": [
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function",
      "function": {"name": "add", "arguments": "{\"a\": 1}"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "2"},
    {"role": "assistant", "content": "2", "tool_calls": null}]})",
                                                 {});
  const Json& messages = *request.messages;
  EXPECT_EQ(messages[0]["content"], "a\nb");
  EXPECT_EQ(messages[1]["content"], "");
  EXPECT_EQ(messages[1]["tool_calls"][0]["function"]["arguments"]["a"], 1);
  EXPECT_FALSE(messages[3].contains("tool_calls"));
}

// As in vLLM, tools that may not be called are in the prompt nevertheless.
TEST(ChatRequest, ToolsReachTheTemplate) {
  const std::string tools =
      R"("chat_template_kwargs": {"enable_thinking": false}, "tools": [{"type": "function", "function": {"name": "f"}}])";
  EXPECT_EQ((*parsed(tools).variables)["tools"].size(), 1U);
  EXPECT_EQ((*parsed(tools).variables)["enable_thinking"], false);
  EXPECT_TRUE(parsed(tools + R"(, "tool_choice": "auto")").variables->contains("tools"));
  EXPECT_TRUE(parsed(tools).has_tools());
  EXPECT_TRUE(parsed(tools + R"(, "tool_choice": "none")").variables->contains("tools"));
  EXPECT_FALSE(parsed(tools + R"(, "tool_choice": "none")").has_tools());
  EXPECT_EQ(refused_among(tools + R"(, "tool_choice": "required")"), "accepted");
  EXPECT_EQ(refused_among(tools + R"(, "tool_choice": "any")"), "tool_choice");
  EXPECT_EQ(refused_among(tools + R"(, "tool_choice": {"type": "function", "function": {}})"), "tool_choice");
  EXPECT_EQ(refused_among(R"("tool_choice": "auto")"), "tool_choice");
  EXPECT_EQ(refused_among(R"("tools": [1])"), "tools[0]");
  EXPECT_EQ(refused_among(R"("tools": [{"b": {}}])"), "tools[0].function");
  EXPECT_EQ(refused_among(R"("tools": [{"type": "code", "function": {"name": "f"}}])"), "tools[0].type");
  EXPECT_EQ(refused_among(R"("tools": [{"type": "function", "function": {"name": 1}}])"), "tools[0].function.name");
}

TEST(ChatRequest, RefusesValuesAndNamesTheParameter) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("temperature": -1)", "temperature"},
      {R"("temperature": "1")", "temperature"},
      {R"("presence_penalty": 2.5)", "presence_penalty"},
      {R"("frequency_penalty": "1")", "frequency_penalty"},
      {R"("logit_bias": {"a": 1})", "logit_bias"},
      {R"("logit_bias": {"-1": 1})", "logit_bias"},
      {R"("logit_bias": {"1": "x"})", "logit_bias"},
      {R"("logit_bias": [1])", "logit_bias"},
      {R"("temperature": 1e300)", "temperature"},
      {R"("top_p": 0)", "top_p"},
      {R"("top_k": 1.5)", "top_k"},
      {R"("top_k": -2)", "top_k"},
      {R"("repetition_penalty": 0)", "repetition_penalty"},
      {R"("max_tokens": 0)", "max_tokens"},
      {R"("max_tokens": 18446744073709551615)", "max_tokens"},
      {R"("max_completion_tokens": true)", "max_completion_tokens"},
      {R"("seed": 9223372036854775808)", "seed"},
      {R"("n": 0)", "n"},
      {R"("n": 129)", "n"},
      {R"("stop": "")", "stop"},
      {R"("stop": [1])", "stop"},
      {R"("stop": ["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"])", "stop"},
      {R"("stop_token_ids": [-1])", "stop_token_ids"},
      {R"("stop_token_ids": 1)", "stop_token_ids"},
      {R"("stream": 1)", "stream"},
      {R"("stream_options": {})", "stream_options"},
      {R"("stream": true, "stream_options": {"x": 1})", "stream_options.x"},
      {R"("chat_template_kwargs": [])", "chat_template_kwargs"},
      {R"("model": 1)", "model"},
  };
  for (const auto& [parameters, param] : cases) EXPECT_EQ(refused_among(parameters), param) << parameters;
}

TEST(ChatRequest, StopStringsAreShort) {
  EXPECT_EQ(refused_among("\"stop\": \"" + std::string(kMaxStopBytes, 'a') + "\""), "accepted");
  EXPECT_EQ(refused_among("\"stop\": \"" + std::string(kMaxStopBytes + 1, 'a') + "\""), "stop");
}

TEST(ChatRequest, RefusesWhatWouldChangeTheResult) {
  for (const std::string key : {"top_logprobs", "best_of", "bad_words", "use_beam_search", "guided_json"})
    EXPECT_EQ(refused_among("\"" + key + "\": 2"), key);
  EXPECT_EQ(refused_among(R"("response_format": {"type": "json_object"})"), "accepted");
  EXPECT_EQ(refused_among(R"("response_format": {"type": "xml"})"), "response_format.type");
  EXPECT_EQ(refused_among(R"("response_format": {"type": "json_schema"})"), "response_format.schema");
  EXPECT_EQ(refused_among(R"("guided_regex": "a", "guided_choice": ["a"])"), "guided_choice");
  EXPECT_EQ(refused_among(R"("structured_outputs": {"json": 5})"), "structured_outputs.json");
  EXPECT_EQ(refused_among(R"("structured_outputs": {"xml": ""})"), "structured_outputs.xml");
  EXPECT_EQ(refused_among(R"("response_format": {"type": "text"})"), "accepted");
  EXPECT_EQ(refused_among(R"("allowed_token_ids": [])"), "allowed_token_ids");
  EXPECT_EQ(refused_among(R"("logprobs": true, "top_logprobs": 21)"), "top_logprobs");
  EXPECT_EQ(parsed(R"("logprobs": true, "top_logprobs": 20)").sampling.logprobs, 20);
  EXPECT_EQ(refused_among(R"("parallel_tool_calls": false)"), "parallel_tool_calls");
}

TEST(ChatRequest, RefusesMessagesAndNamesTheKey) {
  EXPECT_EQ(refused_parameter("{}"), "messages");
  EXPECT_EQ(refused_parameter(R"({"messages": []})"), "messages");
  EXPECT_EQ(refused_message("1"), "messages[0]");
  EXPECT_EQ(refused_message(R"({"content": "x"})"), "messages[0].role");
  EXPECT_EQ(refused_message(R"({"role": "robot", "content": "x"})"), "messages[0].role");
  EXPECT_EQ(refused_message(R"({"role": "user"})"), "messages[0].content");
  EXPECT_EQ(refused_message(R"({"role": "user", "content": {}})"), "messages[0].content");
  EXPECT_EQ(refused_message(R"({"role": "user", "content": [{"type": "image_url"}]})"), "messages[0].content[0].type");
  EXPECT_EQ(refused_message(R"({"role": "assistant", "tool_calls": 1})"), "messages[0].tool_calls");
  EXPECT_EQ(refused_message(R"({"role": "assistant", "tool_calls": [{"function":
    {"name": "f", "arguments": "[1]"}}]})"),
            "messages[0].tool_calls[0].function.arguments");
  EXPECT_EQ(refused_message(R"({"role": "assistant", "tool_calls": [{"function":
    {"name": "f", "arguments": "{"}}]})"),
            "messages[0].tool_calls[0].function.arguments");
}

TEST(ChatRequest, RefusesBodiesThatAreNotAnObject) {
  for (const std::string& body : {std::string(), std::string("["), std::string("[1]"), std::string("{\"a\": 1e999}"),
                                  std::string("{\"a\": \"\xff\"}"), std::string(100'000, '[')})
    EXPECT_EQ(refused_parameter(body), "") << body.substr(0, 20);
}

TEST(RequestError, HasOpenAisForm) {
  const Json body = Json::parse(error_body("top_p: is 0", "top_p", 400));
  EXPECT_EQ(body["error"]["message"], "top_p: is 0");
  EXPECT_EQ(body["error"]["type"], "invalid_request_error");
  EXPECT_EQ(body["error"]["param"], "top_p");
  EXPECT_EQ(body["error"]["code"], 400);
  EXPECT_TRUE(Json::parse(error_body("\xff", {}, 429))["error"]["param"].is_null());
}

}  // namespace
}  // namespace hone
