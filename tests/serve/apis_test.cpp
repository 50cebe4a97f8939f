// The APIs next to chat completions: what their bodies mean, and their events.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/json_value.h"
#include "serve/chat_form.h"
#include "serve/messages_form.h"
#include "serve/messages_request.h"
#include "serve/request_error.h"
#include "serve/responses_form.h"
#include "serve/responses_request.h"
#include "serve/small_server.h"

namespace hone::test {
namespace {

template <class Parse>
std::string refused(const Parse& parse, const Json& body) {
  try {
    (void)parse(body.dump(), SamplingParams());
    return "accepted";
  } catch (const RequestError& error) {
    return error.param();
  }
}
std::string refused_messages(const Json& more) {
  Json body{{"max_tokens", 5}, {"messages", {{{"role", "user"}, {"content", "Hi"}}}}};
  body.update(more);
  return refused(parse_messages_request, body);
}
std::string refused_responses(const Json& more) {
  Json body{{"input", "Hi"}};
  body.update(more);
  return refused(parse_responses_request, body);
}

TEST(MessagesRequest, BecomesAChatRequest) {
  const ChatRequest request = parse_messages_request(R"({"model": "m", "max_tokens": 9, "temperature": 0.5, "top_k": 3,
    "stop_sequences": ["x"], "system": [{"type": "text", "text": "s"}], "metadata": {}, "stream": true,
    "tools": [{"name": "f", "input_schema": {"type": "object"}}], "thinking": {"type": "disabled"}, "messages": [
      {"role": "user", "content": "a"},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "t"}, {"type": "text", "text": "b"},
        {"type": "tool_use", "id": "1", "name": "f", "input": {"k": 1}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "r"},
        {"type": "text", "text": "c"}]}]})",
                                                     {});
  EXPECT_EQ(request.sampling.max_tokens, 9);
  EXPECT_EQ(request.sampling.top_k, 3);
  EXPECT_EQ(request.sampling.stop, std::vector<std::string>{"x"});
  EXPECT_TRUE(request.stream && request.has_tools());
  EXPECT_EQ((*request.variables)["tools"][0]["function"]["name"], "f");
  EXPECT_EQ((*request.variables)["enable_thinking"], false);
  const Json& messages = *request.messages;
  ASSERT_EQ(messages.size(), 5U);
  EXPECT_EQ(messages[0]["role"], "system");
  EXPECT_EQ(messages[2]["reasoning_content"], "t");
  EXPECT_EQ(messages[2]["tool_calls"][0]["function"]["arguments"]["k"], 1);
  EXPECT_EQ(messages[3]["role"], "tool");
  EXPECT_EQ(messages[4]["content"], "c");
}

TEST(MessagesRequest, RefusesAndNamesTheParameter) {
  EXPECT_EQ(refused_messages(Json::object()), "accepted");
  EXPECT_EQ(refused_messages({{"max_tokens", nullptr}}), "max_tokens");
  EXPECT_EQ(refused_messages({{"messages", Json::array()}}), "messages");
  EXPECT_EQ(refused_messages({{"messages", {1}}}), "messages[0]");
  EXPECT_EQ(refused_messages({{"messages", {{{"role", "system"}, {"content", "a"}}}}}), "messages[0].role");
  EXPECT_EQ(refused_messages({{"messages", {{{"role", "user"}, {"content", {{{"type", "image"}}}}}}}}),
            "messages[0].content[0].type");
  EXPECT_EQ(refused_messages({{"tool_choice", {{"type", "some"}}}}), "tool_choice.type");
  EXPECT_EQ(refused_messages({{"thinking", {{"type", "enabled"}}}}), "thinking");
  EXPECT_EQ(refused_messages({{"system", 1}}), "system");
  EXPECT_EQ(refused_messages({{"seed", 1}}), "seed");
}

TEST(ResponsesRequest, BecomesAChatRequest) {
  const ResponsesRequest request = parse_responses_request(R"({"instructions": "s", "max_output_tokens": 9,
    "reasoning": {"effort": "low"}, "store": false, "text": {"format": {"type": "text"}},
    "tools": [{"type": "function", "name": "f", "parameters": {}, "strict": true}], "input": [
      {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
      {"type": "reasoning", "id": "r"},
      {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{\"k\": 1}"},
      {"type": "function_call_output", "call_id": "1", "output": "r"}]})",
                                                           {});
  EXPECT_EQ(request.sampling.max_tokens, 9);
  EXPECT_EQ((*request.variables)["reasoning_effort"], "low");
  EXPECT_EQ((*request.variables)["tools"][0]["function"]["name"], "f");
  const Json& messages = *request.messages;
  ASSERT_EQ(messages.size(), 4U);
  EXPECT_EQ(messages[1]["content"], "a");
  EXPECT_EQ(messages[2]["tool_calls"][0]["function"]["arguments"]["k"], 1);
  EXPECT_EQ(messages[3]["role"], "tool");
}

TEST(ResponsesRequest, RefusesAndNamesTheParameter) {
  EXPECT_EQ(refused_responses(Json::object()), "accepted");
  EXPECT_EQ(refused_responses({{"input", 1}}), "input");
  EXPECT_EQ(refused_responses({{"input", {{{"type", "image"}}}}}), "input[0].type");
  EXPECT_EQ(refused_responses({{"previous_response_id", "r"}}), "previous_response_id");
  EXPECT_EQ(refused_responses({{"text", {{"format", {{"type", "json_object"}}}}}}), "accepted");
  EXPECT_EQ(refused_responses({{"text", {{"format", {{"type", "xml"}}}}}}), "text.format.type");
  EXPECT_EQ(refused_responses({{"text", {{"format", {{"type", "json_schema"}}}}}}), "text.format.schema");
  EXPECT_EQ(refused_responses({{"tools", {{{"type", "web_search"}}}}}), "tools[0].type");
  EXPECT_EQ(refused_responses({{"background", true}}), "background");
  EXPECT_EQ(refused_responses({{"max_output_tokens", 0}}), "max_output_tokens");
}

// An answer of all kinds of content in three parts.
std::vector<AnswerPart> answer_parts() {
  std::vector<AnswerPart> parts(3);
  parts[0].reasoning = "why";
  parts[1].content = "I ask";
  parts[2].content = ".";
  parts[2].calls = {{"f", R"({"k":1})"}, {"g", "{}"}};
  parts[2].finish_reason = FinishReason::kStop;
  return parts;
}
AnswerPart whole_answer() {
  AnswerPart whole;
  for (const AnswerPart& part : answer_parts()) whole.append(part);
  return whole;
}
std::vector<Json> stream_of(AnswerForm& form) {
  std::string text = form.begin();
  bool first = true;
  for (const AnswerPart& part : answer_parts()) text += form.part(0, std::exchange(first, false), part);
  text += form.end({whole_answer()});
  std::vector<Json> events;
  for (const std::string& event : events_of(text))
    if (event != "[DONE]") events.push_back(Json::parse(event));
  return events;
}
std::string types_of(const std::vector<Json>& events) {
  std::string types;
  for (const Json& event : events) types += event["type"].get<std::string>() + " ";
  return types;
}

TEST(MessagesForm, HasBlocksOfThoughtsTextAndTools) {
  MessagesForm form({.id = "m", .model = "small"}, {});
  const Json whole = Json::parse(form.whole({whole_answer()}));
  EXPECT_EQ(whole["content"][0]["thinking"], "why");
  EXPECT_EQ(whole["content"][1]["text"], "I ask.");
  EXPECT_EQ(whole["content"][2]["input"]["k"], 1);
  EXPECT_EQ(whole["content"][3]["name"], "g");
  EXPECT_EQ(whole["stop_reason"], "tool_use");
  const std::vector<Json> events = stream_of(form);
  const std::string block = "content_block_start content_block_delta content_block_stop ";
  EXPECT_EQ(types_of(events), "message_start " + block +
                                  "content_block_start content_block_delta content_block_delta content_block_stop " +
                                  block + block + "message_delta message_stop ");
  EXPECT_EQ(events[events.size() - 3]["index"], 3);
  EXPECT_EQ(events[events.size() - 2]["delta"]["stop_reason"], "tool_use");
}

TEST(ResponsesForm, HasItemsOfThoughtsTextAndTools) {
  ResponsesForm form({.id = "r", .model = "small"}, std::make_shared<Json>(Json::object()));
  const Json whole = Json::parse(form.whole({whole_answer()}));
  ASSERT_EQ(whole["output"].size(), 4U);
  EXPECT_EQ(whole["output"][0]["content"][0]["text"], "why");
  EXPECT_EQ(whole["output"][1]["content"][0]["text"], "I ask.");
  EXPECT_EQ(whole["output"][2]["arguments"], R"({"k":1})");
  EXPECT_EQ(whole["status"], "completed");
  const std::vector<Json> events = stream_of(form);
  for (std::size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i]["sequence_number"], i);
  const Json& last = events.back();
  EXPECT_EQ(last["type"], "response.completed");
  Json streamed = last["response"]["output"];
  Json expected = whole["output"];
  ASSERT_EQ(streamed.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    for (const char* key : {"id", "call_id"}) {
      streamed[i].erase(key);
      expected[i].erase(key);
    }
  }
  EXPECT_EQ(streamed, expected);
}

TEST(ChatForm, HasToolCalls) {
  ChatForm form({.id = "c", .model = "small"});
  const Json whole = Json::parse(form.whole({whole_answer()}));
  const Json& choice = whole["choices"][0];
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], R"({"k":1})");
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  const std::vector<Json> events = stream_of(form);
  EXPECT_EQ(events[events.size() - 2]["choices"][0]["delta"]["tool_calls"][1]["index"], 1);
  EXPECT_EQ(events.back()["choices"][0]["finish_reason"], "tool_calls");
}

TEST(Service, OtherApisAnswerAsChatDoes) {
  SmallServer server;
  const Json chat = Json::parse(
      server
          .post("/v1/chat/completions",
                {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"max_tokens", 12}, {"temperature", 0}})
          .body);
  const Json& text = chat["choices"][0]["message"]["content"];
  const Json messages = Json::parse(
      server
          .post("/v1/messages",
                {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"max_tokens", 12}, {"temperature", 0}})
          .body);
  EXPECT_EQ(messages["content"][0]["text"], text);
  const Json responses =
      Json::parse(server.post("/v1/responses", {{"input", "Hi"}, {"max_output_tokens", 12}, {"temperature", 0}}).body);
  EXPECT_EQ(responses["output"][0]["content"][0]["text"], text);
  EXPECT_EQ(responses["status"], "incomplete");
  const RawResponse refusal = server.post("/v1/messages", {{"max_tokens", 1}});
  EXPECT_EQ(refusal.status, 400);
  EXPECT_EQ(Json::parse(refusal.body)["type"], "error");
}

}  // namespace
}  // namespace hone::test
