// Parameters that depend on the tokens so far or report more: min_tokens, bad_words, prompt_logprobs, token ids; and
// the description of the endpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/json_value.h"
#include "serve/routes.h"
#include "serve/small_server.h"

namespace hone::test {
namespace {

using testing::HasSubstr;
using testing::Not;

Json completion(SmallServer& server, Json body) {
  body["return_token_ids"] = true;
  const RawResponse answer = server.post("/v1/completions", body);
  EXPECT_EQ(answer.status, 200) << answer.body;
  return Json::parse(answer.body)["choices"][0];
}

TEST(MinTokens, HoldStopTokensBack) {
  SmallServer server;
  int longer = 0;
  for (int seed = 0; seed < 6; ++seed) {
    // All tokens but a few stop, so that an answer without min_tokens is short.
    Json body{{"prompt", "What is"}, {"max_tokens", 40}, {"seed", seed}};
    for (TokenId token = 0; token < 16; ++token) body["stop_token_ids"].push_back(20 * token + 3);
    const Json before = completion(server, body);
    body["min_tokens"] = 25;
    const Json after = completion(server, body);
    const auto ids = after["token_ids"].get<std::vector<TokenId>>();
    EXPECT_GE(ids.size(), 25U);
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) EXPECT_TRUE(i >= 25 || (ids[i] - 3) % 20 != 0) << i;
    longer += before["token_ids"].size() < 25 ? 1 : 0;
    // The tokens do not depend on other requests.
    EXPECT_EQ(completion(server, body)["token_ids"], after["token_ids"]);
  }
  EXPECT_GT(longer, 0);
}

TEST(MinTokens, HoldStopStringsBack) {
  SmallServer server;
  const Json whole = completion(server, {{"prompt", "What is"}, {"max_tokens", 40}, {"seed", 4}, {"ignore_eos", true}});
  const auto text = whole["text"].get<std::string>();
  const Json cut = completion(
      server,
      {{"prompt", "What is"}, {"max_tokens", 40}, {"seed", 4}, {"ignore_eos", true}, {"stop", text.substr(0, 2)}});
  EXPECT_EQ(cut["text"], "");
  const Json later = completion(server, {{"prompt", "What is"},
                                         {"max_tokens", 40},
                                         {"seed", 4},
                                         {"ignore_eos", true},
                                         {"stop", text.substr(0, 2)},
                                         {"min_tokens", 20}});
  EXPECT_GE(later["token_ids"].size(), 20U);
  EXPECT_TRUE(text.starts_with(later["text"].get<std::string>()));
}

TEST(MinTokens, AreRefusedAboveMaxTokens) {
  SmallServer server;
  const RawResponse answer = server.post("/v1/completions", {{"prompt", "a"}, {"max_tokens", 4}, {"min_tokens", 5}});
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(Json::parse(answer.body)["error"]["param"], "min_tokens");
}

TEST(MinTokens, AGrammarCountsMore) {
  SmallServer server;
  const Json choice = completion(
      server, {{"prompt", "a"}, {"max_tokens", 20}, {"min_tokens", 15}, {"guided_choice", {"yes"}}, {"seed", 1}});
  EXPECT_EQ(choice["text"], "yes");
  EXPECT_EQ(choice["finish_reason"], "stop");
}

TEST(BadWords, AreNeverInTheAnswer) {
  SmallServer server;
  int had = 0;
  for (int seed = 0; seed < 8; ++seed) {
    const Json body{{"prompt", "What is"}, {"max_tokens", 60}, {"seed", seed}, {"ignore_eos", true}};
    const auto ids = completion(server, body)["token_ids"].get<std::vector<TokenId>>();
    // A token of the answer, and two that follow each other in it.
    const std::string one(server.model().tokenizer.token_bytes(ids[7]));
    std::vector<TokenId> pair{ids[20], ids[21]};
    const std::string two = server.model().tokenizer.decode(pair);
    Json restricted = body;
    std::vector<std::vector<TokenId>> banned;
    for (const std::string& word : {one, two}) {
      const std::string bare = word.substr(std::min(word.find_first_not_of(' '), word.size()));
      if (bare.empty() || !Json(bare).is_string() || bare.find("\xEF\xBF\xBD") != std::string::npos) continue;
      bool valid = true;
      try {
        (void)Json(bare).dump();
      } catch (const Json::exception&) {
        valid = false;  // a part of a character
      }
      if (!valid) continue;
      restricted["bad_words"].push_back(word);
      banned.push_back(server.model().tokenizer.encode(bare));
    }
    if (banned.empty()) continue;
    const Json answer = completion(server, restricted);
    const auto drawn = answer["token_ids"].get<std::vector<TokenId>>();
    for (const auto& word : banned) {
      EXPECT_EQ(std::ranges::search(drawn, word).begin(), drawn.end()) << restricted.dump();
      had += std::ranges::search(ids, word).begin() != ids.end() ? 1 : 0;
    }
    EXPECT_EQ(completion(server, restricted)["token_ids"], answer["token_ids"]);
  }
  EXPECT_GT(had, 0) << "no answer had a word that was then banned";
}

TEST(BadWords, AreChecked) {
  SmallServer server;
  for (const Json& words :
       {Json("a"), Json({1}), Json({""}), Json({std::string(300, 'a')}), Json(std::vector<std::string>(65, "a"))}) {
    const RawResponse answer = server.post("/v1/completions", {{"prompt", "a"}, {"bad_words", words}});
    EXPECT_EQ(answer.status, 400) << words.dump();
    EXPECT_EQ(Json::parse(answer.body)["error"]["param"], "bad_words");
  }
}

TEST(PromptLogprobs, AreThoseOfEcho) {
  SmallServer server;
  const std::vector<TokenId> prompt = server.model().tokenizer.encode("What is 1 + 2?");
  const Json echo =
      completion(server, {{"prompt", prompt}, {"max_tokens", 1}, {"echo", true}, {"logprobs", 3}, {"seed", 1}});
  EXPECT_FALSE(echo.contains("prompt_logprobs"));
  const Json listed = completion(
      server, {{"prompt", prompt}, {"max_tokens", 1}, {"prompt_logprobs", 3}, {"seed", 1}})["prompt_logprobs"];
  ASSERT_EQ(listed.size(), prompt.size());
  EXPECT_TRUE(listed[0].is_null());
  for (std::size_t i = 1; i < prompt.size(); ++i) {
    const Json& token = listed[i][std::to_string(prompt[i])];
    EXPECT_EQ(token["logprob"], echo["logprobs"]["token_logprobs"][i]);
    std::vector<int> ranks;
    for (const auto& [id, entry] : listed[i].items()) ranks.push_back(entry["rank"].get<int>());
    std::ranges::sort(ranks);
    // The prompt's token comes after the three most probable ones unless it is among them.
    EXPECT_EQ(ranks, ranks.size() == 3 ? std::vector({1, 2, 3}) : std::vector({1, 2, 3, 4}));
    EXPECT_TRUE(token["rank"].get<int>() <= static_cast<int>(ranks.size()));
  }
  const Json chat = Json::parse(server
                                    .post("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", "a"}}}},
                                                                   {"max_tokens", 2},
                                                                   {"prompt_logprobs", 0},
                                                                   {"return_token_ids", true}})
                                    .body);
  EXPECT_EQ(chat["prompt_logprobs"].size(), chat["prompt_token_ids"].size());
  EXPECT_EQ(server.post("/v1/completions", {{"prompt", "a"}, {"stream", true}, {"prompt_logprobs", 1}}).status, 400);
  EXPECT_EQ(server.post("/v1/completions", {{"prompt", "a"}, {"prompt_logprobs", 21}}).status, 400);
  EXPECT_EQ(
      server.post("/v1/completions", {{"prompt", "a"}, {"echo", true}, {"logprobs", 2}, {"prompt_logprobs", 1}}).status,
      400);
}

TEST(TokenIds, OfChatCompletionsAreThoseOfTheAnswer) {
  SmallServer server;
  const Json body{{"messages", {{{"role", "user"}, {"content", "What is 1 + 2?"}}}},
                  {"max_tokens", 20},
                  {"seed", 5},
                  {"n", 2},
                  {"ignore_eos", true},
                  {"logprobs", true},
                  {"return_token_ids", true},
                  {"return_tokens_as_token_ids", true}};
  const Json whole = Json::parse(server.post("/v1/chat/completions", body).body);
  EXPECT_EQ(server.model().tokenizer.decode(whole["prompt_token_ids"].get<std::vector<TokenId>>()),
            "<|im_start|>user\nWhat is 1 + 2?<|im_end|>\n<|im_start|>assistant\n");
  for (const Json& choice : whole["choices"]) {
    ASSERT_EQ(choice["token_ids"].size(), 20U);
    for (std::size_t i = 0; i < 20; ++i)
      EXPECT_EQ(choice["logprobs"]["content"][i]["token"],
                "token_id:" + std::to_string(choice["token_ids"][i].get<TokenId>()));
  }
  Json streamed_body = body;
  streamed_body["stream"] = true;
  std::vector<std::vector<TokenId>> streamed(2);
  int prompts = 0;
  for (const std::string& text : events_of(server.post("/v1/chat/completions", streamed_body).body)) {
    if (text == "[DONE]") continue;
    const Json event = Json::parse(text);
    if (event.contains("prompt_token_ids")) {
      ++prompts;
      EXPECT_EQ(event["prompt_token_ids"], whole["prompt_token_ids"]);
    }
    const Json& choice = event["choices"][0];
    if (choice.contains("token_ids"))
      for (const Json& id : choice["token_ids"]) streamed[choice["index"].get<std::size_t>()].push_back(id);
  }
  EXPECT_EQ(prompts, 2);
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_EQ(streamed[i], whole["choices"][i]["token_ids"].get<std::vector<TokenId>>());
}

TEST(Metrics, CountTheTimesOfRequests) {
  SmallServer server;
  (void)completion(server, {{"prompt", "a"}, {"max_tokens", 5}});
  const std::string text = fetch(server.port(), "GET", "/metrics").body;
  for (const char* name : {"queue", "prefill", "decode", "inference"}) {
    const std::string metric = std::string("vllm:request_") + name + "_time_seconds";
    EXPECT_THAT(text, HasSubstr("# TYPE " + metric + " histogram\n"));
    EXPECT_THAT(text, HasSubstr(metric + "_count{model_name=\"small\",engine=\"0\"} 1\n"));
    EXPECT_THAT(text, Not(HasSubstr(metric + "_sum{model_name=\"small\",engine=\"0\"} -")));
  }
}

TEST(Openapi, DescribesTheRoutesAndWhatTheyRead) {
  SmallServer server({.api_key = "secret"});
  const Json description = Json::parse(fetch(server.port(), "GET", "/openapi.json").body);
  EXPECT_EQ(description["openapi"], "3.1.0");
  const Json& paths = description["paths"];
  std::size_t operations = 0;
  for (const auto& [path, methods] : paths.items()) operations += methods.size();
  EXPECT_EQ(operations,
            std::ranges::count_if(routes(), [](const Route& one) { return one.access != Access::kControl; }));
  EXPECT_FALSE(paths.contains("/sleep"));
  EXPECT_TRUE(paths.contains("/v1/models/{name}"));
  const Json chat = paths["/v1/chat/completions"]["post"];
  EXPECT_TRUE(chat.contains("security"));
  const Json schema = chat["requestBody"]["content"]["application/json"]["schema"];
  EXPECT_EQ(schema["required"], Json({"messages"}));
  EXPECT_EQ(schema["properties"]["top_logprobs"],
            Json::parse(R"({"type": ["integer", "null"], "minimum": 0, "maximum": 20})"));
  EXPECT_EQ(schema["properties"]["stream"], Json::parse(R"({"type": ["boolean", "null"]})"));
  EXPECT_EQ(schema["properties"]["priority"], Json::parse(R"({"enum": [0, null]})"));
  EXPECT_FALSE(schema["properties"].contains("include_usage")) << "a parameter of stream_options";
  // Every example is answered.
  for (const Route& route : routes()) {
    if (route.body.parse == nullptr || route.path == "/v1/embeddings") continue;
    EXPECT_EQ(fetch(server.port(), "POST", route.path, route.body.example, "Authorization: Bearer secret\r\n").status,
              200)
        << route.path;
  }
  SmallServer control({.allow_weight_updates = true});
  EXPECT_TRUE(Json::parse(fetch(control.port(), "GET", "/openapi.json").body)["paths"].contains("/sleep"));
}

}  // namespace
}  // namespace hone::test
