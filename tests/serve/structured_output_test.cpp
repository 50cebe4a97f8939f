// Tests of answers that follow a grammar, over HTTP.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/json_value.h"
#include "core/regex.h"
#include "serve/small_server.h"
#include "serve/structured_output.h"
#include "support/json_schemas.h"

namespace hone::test {
namespace {

const Json kMessages = Json::parse(R"([{"role": "user", "content": "What is 1 + 2?"}])");
const Json kAdder = Json::parse(R"([{"type": "function", "function": {"name": "add", "parameters":
    {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["a"]}}},
  {"type": "function", "function": {"name": "now"}}])");
const Json kPoint = Json::parse(R"({"type": "object", "properties": {"x": {"enum": [1, 22]}, "y": {"type": "boolean"}},
    "required": ["x", "y"]})");

// Returns a body for the chat API with more members.
Json chat_body(const Json& more, std::uint64_t seed = 1) {
  Json body{{"messages", kMessages}, {"max_tokens", 150}, {"seed", seed}};
  body.update(more);
  return body;
}

// Posts a body and returns the message of the first choice.
Json message_of(const SmallServer& server, const Json& body) {
  const RawResponse response = server.post("/v1/chat/completions", body);
  EXPECT_EQ(response.status, 200) << response.body;
  const Json answer = Json::parse(response.body);
  EXPECT_NE(answer["choices"][0]["finish_reason"], "length") << response.body;
  return answer["choices"][0]["message"];
}

std::string refused_param(const SmallServer& server, const Json& more) {
  const RawResponse response = server.post("/v1/chat/completions", chat_body(more));
  EXPECT_EQ(response.status, 400) << response.body;
  const Json error = Json::parse(response.body)["error"];
  EXPECT_EQ(error["message"].get<std::string>().find('\n'), std::string::npos);
  return error["param"].get<std::string>();
}

TEST(StructuredOutput, ChatFollowsSchemasExpressionsChoicesAndRules) {
  const SmallServer server;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    for (const Json& more :
         {Json{{"response_format",
                {{"type", "json_schema"}, {"json_schema", {{"name", "p"}, {"strict", true}, {"schema", kPoint}}}}}},
          Json{{"guided_json", kPoint}}, Json{{"guided_json", kPoint.dump()}},
          Json{{"structured_outputs", {{"json", kPoint}}}}}) {
      // The grammar allows any white space; biases end it.
      Json body = chat_body(more, seed);
      body["logit_bias"] = Json::object();
      for (const char* text : {"{", "}", ":", ",", "\""})
        body["logit_bias"][std::to_string(server.model().tokenizer.encode(text).at(0))] = 10;
      const std::string text = message_of(server, body)["content"];
      EXPECT_TRUE(satisfies(Json::parse(text), kPoint, true)) << text;
    }
    for (const Json& more :
         {Json{{"guided_regex", "[a-c]{2,4}"}}, Json{{"structured_outputs", {{"regex", "[a-c]{2,4}"}}}},
          Json{{"guided_grammar", "root ::= [a-c] [a-c] [a-c]?"}}}) {
      const std::string text = message_of(server, chat_body(more, seed))["content"];
      EXPECT_TRUE(Regex("[a-c]{2,4}").fits(text)) << text;
    }
    const std::string choice = message_of(server, chat_body({{"guided_choice", {"yes", "naïve"}}}, seed))["content"];
    EXPECT_TRUE(choice == "yes" || choice == "naïve") << choice;
  }
}

TEST(StructuredOutput, OtherApisFollowGrammars) {
  const SmallServer server;
  const Json completion = Json::parse(
      server.post("/v1/completions", {{"prompt", "What"}, {"max_tokens", 50}, {"n", 3}, {"guided_regex", "ab+c"}})
          .body);
  for (const Json& choice : completion["choices"]) {
    if (choice["finish_reason"] != "stop") continue;
    EXPECT_TRUE(Regex("ab+c").fits(choice["text"].get<std::string>())) << choice;
  }
  const Json answer = Json::parse(
      server
          .post("/v1/responses",
                {{"input", "What"},
                 {"max_output_tokens", 80},
                 {"text", {{"format", {{"type", "json_schema"}, {"name", "n"}, {"schema", {{"enum", {17}}}}}}}}})
          .body);
  EXPECT_EQ(answer["output"][0]["content"][0]["text"], "17") << answer;
  const Json generated = Json::parse(
      server.post("/generate/", {{"prompts", {"What"}}, {"max_tokens", 9}, {"guided_decoding_regex", "x"}}).body);
  EXPECT_EQ(server.model().tokenizer.decode(generated["completion_ids"][0].get<std::vector<TokenId>>(), true), "x");
}

TEST(StructuredOutput, ToolsAreCalledWhereARequestDemandsIt) {
  for (const bool tagged : {true, false}) {
    const SmallServer server(
        {.chat_template = std::string(tagged ? "{# <tool_call> #}" : "") +
                          "{% for message in messages %}{{ message['content'] }}{% endfor %}Answer:"});
    Json body =
        chat_body({{"tools", kAdder}, {"tool_choice", {{"type", "function"}, {"function", {{"name", "add"}}}}}});
    for (const char* text : {"{", "}", ":", ",", "\""})
      body["logit_bias"][std::to_string(server.model().tokenizer.encode(text).at(0))] = 10;
    const Json message = message_of(server, body);
    ASSERT_EQ(message.value("tool_calls", Json::array()).size(), 1U) << message;
    const Json& function = message["tool_calls"][0]["function"];
    EXPECT_EQ(function["name"], "add");
    EXPECT_TRUE(
        satisfies(Json::parse(function["arguments"].get<std::string>()), kAdder[0]["function"]["parameters"], true))
        << function;
    body["tool_choice"] = "required";
    body["tools"] = {kAdder[0]};
    const RawResponse response = server.post("/v1/chat/completions", body);
    const Json choice = Json::parse(response.body)["choices"][0];
    EXPECT_TRUE(choice["finish_reason"] == "length" || choice["message"]["tool_calls"].size() > 0) << response.body;
  }
}

TEST(StructuredOutput, CallsHaveTheFormOfTheTemplate) {
  const DemandedCall any{{}, "tool_choice"};
  const auto text = [&](const DemandedCall& call, const char* chat_template) {
    return grammar_of_calls(kAdder, call, chat_template).spec.text;
  };
  EXPECT_THAT(text(any, "x <tool_call> y"),
              testing::AllOf(testing::HasSubstr("</tool_call>"), testing::HasSubstr("now")));
  EXPECT_THAT(text(any, "x"), testing::Not(testing::HasSubstr("tool_call")));
  EXPECT_THAT(text({"add", "tool_choice"}, "x"), testing::Not(testing::HasSubstr("now")));
}

// The reasoning that a template opens is not a part of what a schema describes.
TEST(StructuredOutput, ReasoningComesBeforeTheGrammar) {
  const SmallServer server({.chat_template = "{{ messages[0]['content'] }}<think>"});
  Json body = chat_body({{"guided_choice", {"yes"}}});
  const RawResponse response = server.post("/v1/chat/completions", body);
  const Json message = Json::parse(response.body)["choices"][0]["message"];
  EXPECT_GT(message["reasoning_content"].get<std::string>().size(), 10U) << response.body;
  EXPECT_TRUE(message["content"].is_null() || message["content"] == "" || message["content"] == "yes") << response.body;
}

TEST(StructuredOutput, RefusesWhatIsWrongAndNamesIt) {
  const SmallServer server;
  EXPECT_EQ(refused_param(server, {{"guided_regex", "(a"}}), "guided_regex");
  EXPECT_EQ(refused_param(server, {{"guided_json", {{"type", "wrong"}}}}), "guided_json");
  EXPECT_EQ(refused_param(server, {{"guided_json", "{"}}), "guided_json");
  EXPECT_EQ(refused_param(server, {{"guided_choice", Json::array()}}), "guided_choice");
  EXPECT_EQ(refused_param(server, {{"guided_grammar", "root ::= x"}}), "guided_grammar");
  EXPECT_EQ(refused_param(server, {{"structured_outputs", {{"structural_tag", {{"type", "x"}}}}}}),
            "structured_outputs.structural_tag");
  EXPECT_EQ(refused_param(
                server, {{"response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", {{"not", 1}}}}}}}}),
            "response_format.json_schema.schema");
  EXPECT_EQ(refused_param(
                server, {{"tools", kAdder}, {"tool_choice", {{"type", "function"}, {"function", {{"name", "sub"}}}}}}),
            "tool_choice");
  EXPECT_EQ(refused_param(server, {{"tool_choice", "required"}}), "tool_choice");
  EXPECT_EQ(refused_param(server, {{"tools", kAdder}, {"tool_choice", "required"}, {"guided_regex", "a"}}),
            "tool_choice");
}

}  // namespace
}  // namespace hone::test
