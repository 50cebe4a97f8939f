// The endpoints over loopback, with a small model.
#include "serve/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/json_value.h"
#include "serve/page.h"
#include "serve/small_server.h"

namespace hone::test {
namespace {

using testing::HasSubstr;
using testing::Not;

Json question(const std::string& text = "What is 1 + 2?") {
  return {{"messages", {{{"role", "user"}, {"content", text}}}}, {"max_tokens", 20}, {"seed", 5}};
}
Json with(Json body, const Json& more) {
  body.update(more);
  return body;
}

TEST(Service, AnswersWithoutTheEngine) {
  SmallServer server;
  EXPECT_EQ(fetch(server.port(), "GET", "/health").status, 200);
  EXPECT_EQ(fetch(server.port(), "GET", "/version").body, R"({"version":"1.2.3"})");
  const Json models = Json::parse(fetch(server.port(), "GET", "/v1/models").body);
  EXPECT_EQ(models["data"].size(), 2U);
  EXPECT_EQ(models["data"][0]["id"], "small");
  EXPECT_EQ(models["data"][0]["max_model_len"], 256);
  EXPECT_EQ(Json::parse(fetch(server.port(), "GET", "/v1/models/other").body)["id"], "other");
  EXPECT_EQ(fetch(server.port(), "GET", "/v1/models/third").status, 404);
  EXPECT_EQ(fetch(server.port(), "GET", "/nothing").status, 404);
  const RawResponse wrong = fetch(server.port(), "GET", "/v1/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_THAT(wrong.head, HasSubstr("Allow: POST"));
  EXPECT_EQ(fetch(server.port(), "POST", "/v1/completions").status, 415);
}

TEST(Service, SendsThePageWithAStrictPolicy) {
  SmallServer server({.api_key = "secret"});
  for (const PageFile& file : page_files()) {
    const RawResponse answer = fetch(server.port(), "GET", "/page/" + std::string(file.name));
    EXPECT_EQ(answer.status, 200) << file.name;
    EXPECT_EQ(answer.body, file.text);
    EXPECT_THAT(answer.head, HasSubstr("default-src 'none'; script-src 'self'; style-src 'self'"));
    EXPECT_THAT(answer.head, HasSubstr("require-trusted-types-for 'script'"));
    EXPECT_THAT(answer.head, HasSubstr("X-Content-Type-Options: nosniff"));
    EXPECT_THAT(answer.head, Not(HasSubstr("octet-stream"))) << file.name;
    EXPECT_THAT(file.text, Not(HasSubstr("innerHTML"))) << file.name;
    EXPECT_THAT(file.text, Not(HasSubstr(" style=\""))) << file.name;
  }
  const RawResponse page = fetch(server.port(), "GET", "/");
  EXPECT_THAT(page.head, HasSubstr("Content-Type: text/html; charset=utf-8"));
  EXPECT_THAT(page.body, HasSubstr("<script type=\"module\" src=\"page/main.js\">"));
  EXPECT_EQ(fetch(server.port(), "GET", "/page/../small").status, 404);
  EXPECT_EQ(fetch(server.port(), "GET", "/page/").status, 404);
  EXPECT_EQ(fetch(server.port(), "POST", "/").status, 405);
}

TEST(Service, SendsNoPageIfItIsOff) {
  SmallServer server({.page = false});
  EXPECT_EQ(fetch(server.port(), "GET", "/").status, 404);
  EXPECT_EQ(fetch(server.port(), "GET", "/page/main.js").status, 404);
}

TEST(Service, TokenizesAsTheModelDoes) {
  SmallServer server;
  const std::string text = "The answer is 3. naïve 🙂";
  const Json tokens = Json::parse(server.post("/tokenize", {{"prompt", text}, {"return_token_strs", true}}).body);
  EXPECT_EQ(tokens["tokens"].get<std::vector<TokenId>>(), server.model().tokenizer.encode(text));
  EXPECT_EQ(tokens["count"], tokens["tokens"].size());
  EXPECT_EQ(tokens["token_strs"].size(), tokens["tokens"].size());
  EXPECT_EQ(Json::parse(server.post("/detokenize", {{"tokens", tokens["tokens"]}}).body)["prompt"], text);
  const Json chat = Json::parse(server.post("/tokenize", {{"messages", question()["messages"]}}).body);
  EXPECT_EQ(server.model().tokenizer.decode(chat["tokens"].get<std::vector<TokenId>>()),
            "<|im_start|>user\nWhat is 1 + 2?<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(server.post("/detokenize", {{"tokens", {1, 320}}}).status, 400);
}

TEST(Service, CompletesAsTheEngineDoes) {
  SmallServer server;
  const std::vector<TokenId> prompt = server.model().tokenizer.encode("What is");
  for (const double temperature : {0.0, 1.0}) {
    Request request{prompt, {.temperature = temperature, .max_tokens = 30, .seed = 7}};
    request.sampling.stop_token_ids = server.model().stop_token_ids;
    const Completion expected = server.generated(request);
    const Json answer = Json::parse(
        server
            .post("/v1/completions",
                  {{"prompt", prompt}, {"max_tokens", 30}, {"temperature", temperature}, {"seed", 7}, {"logprobs", 0}})
            .body);
    const Json& choice = answer["choices"][0];
    EXPECT_EQ(choice["text"], expected.text);
    EXPECT_EQ(choice["finish_reason"], std::string(name_of(expected.finish_reason)));
    ASSERT_EQ(choice["logprobs"]["token_logprobs"].size(), expected.logps.size());
    for (std::size_t i = 0; i < expected.logps.size(); ++i)
      EXPECT_EQ(choice["logprobs"]["token_logprobs"][i].get<float>(), expected.logps[i]);
    EXPECT_EQ(answer["usage"]["completion_tokens"], expected.tokens.size());
    EXPECT_EQ(answer["usage"]["prompt_tokens"], prompt.size());
  }
}

// Puts the text of each choice of a chat stream together; "reason" is the finish reason.
std::map<int, std::map<std::string, std::string>> streamed_choices(const std::string& stream) {
  std::map<int, std::map<std::string, std::string>> choices;
  const std::vector<std::string> events = events_of(stream);
  EXPECT_EQ(events.empty() ? "" : events.back(), "[DONE]");
  for (std::size_t i = 0; i + 1 < events.size(); ++i) {
    const Json event = Json::parse(events[i]);
    for (const Json& choice : event["choices"]) {
      auto& texts = choices[choice["index"].get<int>()];
      for (const char* key : {"content", "reasoning_content"})
        if (choice["delta"].contains(key)) texts[key] += choice["delta"][key].get<std::string>();
      if (choice["finish_reason"].is_string()) texts["reason"] = choice["finish_reason"];
    }
  }
  return choices;
}

TEST(Service, StreamedAnswersEqualWholeOnes) {
  for (const std::string template_end : {"", "<think>\n"}) {
    SmallServer server({.chat_template = "{% for m in messages %}{{ m.content }} {% endfor %}" + template_end});
    for (int seed = 0; seed < 8; ++seed) {
      const Json body = with(question(), {{"seed", seed}, {"n", 3}, {"stop", {"e", "an"}}, {"max_tokens", 40}});
      const Json whole = Json::parse(server.post("/v1/chat/completions", body).body);
      ASSERT_EQ(whole["choices"].size(), 3U) << whole.dump();
      auto streamed = streamed_choices(server.post("/v1/chat/completions", with(body, {{"stream", true}})).body);
      for (int i = 0; i < 3; ++i) {
        const Json& choice = whole["choices"][static_cast<std::size_t>(i)];
        EXPECT_EQ(choice["message"]["content"], streamed[i]["content"]);
        EXPECT_EQ(choice["finish_reason"], streamed[i]["reason"]);
        const bool reasons = choice["message"].contains("reasoning_content");
        EXPECT_EQ(streamed[i]["reasoning_content"],
                  reasons ? choice["message"]["reasoning_content"].get<std::string>() : "");
        EXPECT_TRUE(template_end.empty() || choice["message"]["content"] == "");
        EXPECT_EQ((streamed[i]["content"] + streamed[i]["reasoning_content"]).find('e'), std::string::npos);
      }
    }
  }
}

TEST(Service, EveryCompletionHasItsOwnSeed) {
  SmallServer server;
  const Json first = Json::parse(server.post("/v1/chat/completions", with(question(), {{"n", 2}})).body);
  const Json second = Json::parse(server.post("/v1/chat/completions", with(question(), {{"seed", 6}})).body);
  EXPECT_EQ(first["choices"][1]["message"]["content"], second["choices"][0]["message"]["content"]);
  EXPECT_NE(first["choices"][0]["message"]["content"], second["choices"][0]["message"]["content"]);
  Json unseeded = question();
  unseeded.erase("seed");
  EXPECT_NE(Json::parse(server.post("/v1/chat/completions", unseeded).body)["choices"],
            Json::parse(server.post("/v1/chat/completions", unseeded).body)["choices"]);
}

TEST(Service, ParametersReachTheEngine) {
  SmallServer server({.generation_config = R"({"temperature": 0, "max_new_tokens": 3, "eos_token_id": 0})"});
  const TokenId token = server.model().tokenizer.encode("x")[0];
  const auto text = [&](const Json& more) {
    const RawResponse response = server.post("/v1/completions", with({{"prompt", "What is"}}, more));
    return response.status == 200 ? Json::parse(response.body)["choices"][0]["text"].get<std::string>() : response.body;
  };
  EXPECT_EQ(text({{"logit_bias", {{std::to_string(token), 100}}}}), "xxx");
  EXPECT_EQ(text({{"allowed_token_ids", {token}}, {"max_tokens", 5}}), "xxxxx");
  EXPECT_EQ(text({{"allowed_token_ids", {token}}, {"stop", "xx"}, {"max_tokens", 5}}), "");
  EXPECT_EQ(text({{"allowed_token_ids", {token}}, {"echo", true}}), "What isxxx");
  EXPECT_EQ(text({{"stop_token_ids", {token}}, {"allowed_token_ids", {token}}}), "");
  const TokenId eos = server.model().stop_token_ids[0];
  EXPECT_EQ(text({{"allowed_token_ids", {eos}}}), "");
  EXPECT_NE(text({{"presence_penalty", 2}, {"max_tokens", 12}}), text({{"max_tokens", 12}}));
}

TEST(Service, ListsTheMostProbableTokens) {
  SmallServer server;
  const Json body = with(question(), {{"temperature", 0}, {"logprobs", true}, {"top_logprobs", 3}});
  const Json whole = Json::parse(server.post("/v1/chat/completions", body).body);
  const Json& content = whole["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 20U);
  for (const Json& entry : content) {
    ASSERT_EQ(entry["top_logprobs"].size(), 3U);
    EXPECT_EQ(entry["top_logprobs"][0]["logprob"], entry["logprob"]);
    EXPECT_EQ(entry["top_logprobs"][0]["token"], entry["token"]);
    EXPECT_GE(entry["top_logprobs"][1]["logprob"], entry["top_logprobs"][2]["logprob"]);
  }
  Json streamed = Json::array();
  for (const std::string& event : events_of(server.post("/v1/chat/completions", with(body, {{"stream", true}})).body)) {
    if (event == "[DONE]") continue;
    const Json logprobs = Json::parse(event)["choices"][0]["logprobs"];
    if (!logprobs.is_null()) streamed.insert(streamed.end(), logprobs["content"].begin(), logprobs["content"].end());
  }
  EXPECT_EQ(streamed, content);
  const Json text = Json::parse(
      server.post("/v1/completions", {{"prompt", "What"}, {"logprobs", 2}, {"max_tokens", 4}, {"seed", 1}}).body);
  for (const Json& top : text["choices"][0]["logprobs"]["top_logprobs"]) {
    EXPECT_GE(top.size(), 2U);
    EXPECT_LE(top.size(), 3U);
  }
}

// A prompt that ends in drawn tokens has the log-probabilities with which they were drawn.
TEST(Service, EchoWithLogprobsScoresThePrompt) {
  SmallServer server;
  const Json drawn =
      Json::parse(server
                      .post("/v1/completions", {{"prompt", "What is"},
                                                {"logprobs", 3},
                                                {"max_tokens", 9},
                                                {"seed", 1},
                                                {"allowed_token_ids", server.model().tokenizer.encode("abcdefgh")},
                                                {"return_token_ids", true}})
                      .body)["choices"][0];
  const auto prompt = drawn["prompt_token_ids"].get<std::vector<TokenId>>();
  std::vector<TokenId> tokens = prompt;
  for (const Json& id : drawn["token_ids"]) tokens.push_back(id.get<TokenId>());
  const Json body{{"prompt", tokens}, {"logprobs", 3}, {"max_tokens", 2}, {"seed", 2}, {"echo", true}};
  const Json choice = Json::parse(server.post("/v1/completions", body).body)["choices"][0];
  const Json& logprobs = choice["logprobs"];
  for (const char* list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
    ASSERT_EQ(logprobs[list].size(), tokens.size() + 2) << list;
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null() && logprobs["top_logprobs"][0].is_null());
  for (std::size_t i = 1; i < prompt.size(); ++i) EXPECT_LT(logprobs["token_logprobs"][i].get<float>(), 0);
  for (std::size_t i = 0; i < drawn["token_ids"].size(); ++i) {
    EXPECT_EQ(logprobs["tokens"][prompt.size() + i], drawn["logprobs"]["tokens"][i]);
    EXPECT_EQ(logprobs["token_logprobs"][prompt.size() + i], drawn["logprobs"]["token_logprobs"][i]);
    EXPECT_EQ(logprobs["top_logprobs"][prompt.size() + i], drawn["logprobs"]["top_logprobs"][i]);
  }
  const auto text = choice["text"].get<std::string>();
  EXPECT_TRUE(text.starts_with("What is" + drawn["text"].get<std::string>()));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::string_view bytes = server.model().tokenizer.token_bytes(tokens[i]);
    EXPECT_EQ(text.substr(logprobs["text_offset"][i].get<std::size_t>(), bytes.size()), bytes) << i;
  }
  // A stream has the same lists.
  Json streamed{{"tokens", Json::array()},
                {"token_logprobs", Json::array()},
                {"top_logprobs", Json::array()},
                {"text_offset", Json::array()}};
  for (const std::string& event : events_of(server.post("/v1/completions", with(body, {{"stream", true}})).body)) {
    if (event == "[DONE]") continue;
    const Json part = Json::parse(event)["choices"][0]["logprobs"];
    for (auto& [name, list] : streamed.items()) list.insert(list.end(), part[name].begin(), part[name].end());
  }
  EXPECT_EQ(streamed, logprobs);
}

TEST(Service, SeveralPromptsAndTokensOfPrompts) {
  SmallServer server;
  const std::vector<TokenId> tokens = server.model().tokenizer.encode("abc");
  const Json both =
      Json::parse(server.post("/v1/completions", {{"prompt", {"What is", "abc"}}, {"temperature", 0}, {"n", 2}}).body);
  ASSERT_EQ(both["choices"].size(), 4U);
  const Json one = Json::parse(server.post("/v1/completions", {{"prompt", {tokens}}, {"temperature", 0}}).body);
  EXPECT_EQ(both["choices"][2]["text"], one["choices"][0]["text"]);
  EXPECT_EQ(both["choices"][3]["text"], one["choices"][0]["text"]);
  EXPECT_EQ(one["usage"]["completion_tokens"], 16);
}

TEST(Service, UsageIsTheLastEventIfRequested) {
  SmallServer server;
  const Json body = with(question(), {{"stream", true}, {"stream_options", {{"include_usage", true}}}});
  const std::vector<std::string> events = events_of(server.post("/v1/chat/completions", body).body);
  const Json last = Json::parse(events.at(events.size() - 2));
  EXPECT_TRUE(last["choices"].empty());
  EXPECT_EQ(last["usage"]["completion_tokens"], 20);
  EXPECT_TRUE(Json::parse(events[0])["usage"].is_null());
}

TEST(Service, RefusesWithTheParameterAtFault) {
  SmallServer server;
  const auto refusal = [&](std::string_view path, const Json& body) {
    const RawResponse response = server.post(path, body);
    EXPECT_GE(response.status, 400) << body.dump();
    EXPECT_LT(response.status, 500) << body.dump();
    return std::to_string(response.status) + " " + Json::parse(response.body)["error"]["param"].dump();
  };
  EXPECT_EQ(refusal("/v1/chat/completions", with(question(), {{"model", "nothing"}})), "404 \"model\"");
  EXPECT_EQ(refusal("/v1/chat/completions", with(question(), {{"max_tokens", 250}})), "400 \"max_tokens\"");
  EXPECT_EQ(refusal("/v1/chat/completions", question(std::string(2000, 'x'))), "400 \"messages\"");
  EXPECT_EQ(refusal("/v1/chat/completions", with(question(), {{"logit_bias", {{"320", 1}}}})), "400 \"logit_bias\"");
  EXPECT_EQ(refusal("/v1/completions", Json::object()), "400 \"prompt\"");
  EXPECT_EQ(refusal("/v1/completions", {{"prompt", ""}}), "400 \"prompt\"");
  EXPECT_EQ(refusal("/v1/completions", {{"prompt", {1, 320}}}), "400 \"prompt\"");
  EXPECT_EQ(refusal("/v1/completions", {{"prompt", {1, "a"}}}), "400 \"prompt\"");
  EXPECT_EQ(refusal("/v1/completions", {{"prompt", {"a", 1}}}), "400 \"prompt[1]\"");
  EXPECT_EQ(refusal("/v1/completions", {{"prompt", "a"}, {"suffix", "b"}}), "400 \"suffix\"");
  EXPECT_EQ(refusal("/v1/completions", {{"prompt", "a"}, {"best_of", 2}}), "400 \"best_of\"");
  EXPECT_EQ(refusal("/v1/completions", {{"prompt", "a"}, {"banned", 2}}), "400 \"banned\"");
  EXPECT_EQ(refusal("/tokenize", {{"prompt", 1}}), "400 \"prompt\"");
  EXPECT_EQ(refusal("/detokenize", {{"tokens", "a"}}), "400 \"tokens\"");
}

TEST(Service, HostileBodiesGetErrors) {
  SmallServer server;
  const std::string bodies[] = {
      "{",
      "[]",
      "null",
      "\"a\"",
      "{\"messages\": [{\"role\": \"user\", \"content\": \"\xff\xfe\"}]}",
      std::string(100'000, '['),
      std::string(100'000, '{'),
      "{\"a\":" + std::string(5000, '[') + "1}",
      R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1e400})",
      R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 99999999999999999999999})",
      R"({"messages": [{"role": "user", "content": "a"}], "temperature": "hot"})",
      R"({"messages": {"role": "user"}})",
      R"({"prompt": [[[1]]]})",
      R"({"prompt": [1e99]})",
      R"({"prompt": "\ud800", "max_tokens": 1})",
      R"({"tokens": [-1]})",
      R"({"prompt": [null]})",
  };
  for (const std::string path :
       {"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/tokenize", "/detokenize"}) {
    for (const std::string& body : bodies) {
      const RawResponse response = fetch(server.port(), "POST", path, body);
      EXPECT_GE(response.status, 400) << path << body.substr(0, 80);
      EXPECT_LT(response.status, 500) << path << body.substr(0, 80);
      EXPECT_TRUE(Json::parse(response.body)["error"]["message"].is_string());
    }
  }
  EXPECT_EQ(server.post("/v1/chat/completions", question()).status, 200);
}

TEST(Service, RequiresItsKey) {
  SmallServer server({.api_key = "secret"});
  const std::string body = question().dump();
  EXPECT_EQ(fetch(server.port(), "POST", "/v1/chat/completions", body).status, 401);
  EXPECT_EQ(fetch(server.port(), "POST", "/v1/chat/completions", body, "Authorization: Bearer secreT\r\n").status, 401);
  EXPECT_EQ(fetch(server.port(), "POST", "/v1/chat/completions", body, "Authorization: Bearer \r\n").status, 401);
  EXPECT_EQ(fetch(server.port(), "POST", "/v1/chat/completions", body, "Authorization: bearer secret\r\n").status, 200);
  EXPECT_EQ(fetch(server.port(), "POST", "/v1/chat/completions", body, "X-Api-Key: secret\r\n").status, 200);
  EXPECT_EQ(fetch(server.port(), "GET", "/v1/models").status, 401);
  EXPECT_EQ(fetch(server.port(), "GET", "/health").status, 200);
}

TEST(Service, CountsWhatItDoes) {
  SmallServer server;
  (void)server.post("/v1/chat/completions", with(question(), {{"n", 2}}));
  const std::string metrics = fetch(server.port(), "GET", "/metrics").body;
  const std::string labels = R"({model_name="small",engine="0"})";
  EXPECT_THAT(metrics, HasSubstr("vllm:generation_tokens_total" + labels + " 40\n"));
  EXPECT_THAT(metrics, HasSubstr("vllm:time_to_first_token_seconds_count" + labels + " 2\n"));
  EXPECT_THAT(metrics, HasSubstr("vllm:inter_token_latency_seconds_count" + labels + " 38\n"));
  EXPECT_THAT(metrics,
              HasSubstr("vllm:request_generation_tokens_bucket{model_name=\"small\",engine=\"0\",le=\"20\"} 2\n"));
  EXPECT_THAT(metrics, HasSubstr("finished_reason=\"length\"} 2\n"));
}

}  // namespace
}  // namespace hone::test
