// POST /v1/embeddings over loopback, with a small model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "core/json_value.h"
#include "core/strings.h"
#include "serve/embedding_request.h"
#include "serve/request_error.h"
#include "serve/small_server.h"
#include "support/paths.h"

namespace hone::test {
namespace {

using testing::HasSubstr;

std::vector<float> floats_of(const Json& embedding) {
  if (embedding.is_array()) return embedding.get<std::vector<float>>();
  const std::string bytes = decode_base64(embedding.get<std::string>()).value();
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(Embeddings, AreThoseOfTheModelInEveryForm) {
  for (const Pooling pooling : {Pooling::kLast, Pooling::kMean}) {
    SmallServer server({.embeddings = pooling});
    const std::vector<std::string> texts{"What is 1 + 2?", "naïve 日本 🙂", "The"};
    std::vector<std::vector<TokenId>> tokens;
    std::int64_t count = 0;
    for (const std::string& text : texts) {
      tokens.push_back(server.model().tokenizer.encode(text));
      count += std::ssize(tokens.back());
    }
    const auto expected = server.embedded(tokens);
    for (const Json& input : {Json(texts), Json(tokens)}) {
      for (const char* format : {"float", "base64"}) {
        const Json answer = Json::parse(
            server.post("/v1/embeddings", {{"model", "other"}, {"input", input}, {"encoding_format", format}}).body);
        ASSERT_EQ(answer["data"].size(), 3U) << answer.dump();
        EXPECT_EQ(answer["object"], "list");
        EXPECT_EQ(answer["model"], "other");
        EXPECT_EQ(answer["usage"], Json({{"prompt_tokens", count}, {"total_tokens", count}}));
        for (std::size_t i = 0; i < 3; ++i) {
          EXPECT_EQ(answer["data"][i]["index"], i);
          EXPECT_EQ(answer["data"][i]["object"], "embedding");
          EXPECT_EQ(answer["data"][i]["embedding"].is_string(), format == std::string("base64"));
          EXPECT_EQ(floats_of(answer["data"][i]["embedding"]), expected[i]);
        }
      }
    }
    const Json one = Json::parse(server.post("/v1/embeddings", {{"input", texts[0]}, {"user", "u"}}).body);
    EXPECT_EQ(floats_of(one["data"][0]["embedding"]), expected[0]);
    const Json ids = Json::parse(server.post("/v1/embeddings", {{"input", tokens[1]}}).body);
    EXPECT_EQ(floats_of(ids["data"][0]["embedding"]), expected[1]);
  }
}

TEST(Embeddings, DependOnTheirInputAloneWhileTheServerGenerates) {
  SmallServer server({.embeddings = Pooling::kMean});
  const auto tokens = server.model().tokenizer.encode("What is 1 + 2? The answer is 3.");
  const std::vector<float> expected = server.embedded({tokens})[0];
  const Json completion{{"prompt", "What is"}, {"max_tokens", 100}, {"seed", 3}, {"ignore_eos", true}};
  const std::string alone = Json::parse(server.post("/v1/completions", completion).body)["choices"][0]["text"];
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i)
    clients.emplace_back([&] {
      for (int k = 0; k < 5; ++k)
        EXPECT_EQ(Json::parse(server.post("/v1/completions", completion).body)["choices"][0]["text"], alone);
    });
  for (int i = 0; i < 4; ++i)
    clients.emplace_back([&, i] {
      for (int k = 0; k < 5; ++k) {
        Json inputs = Json::array();
        for (int n = 0; n <= 7 * i + k; ++n) inputs.push_back(std::string(static_cast<std::size_t>(1 + 5 * n), 'a'));
        inputs.push_back(tokens);
        const Json answer = Json::parse(server.post("/v1/embeddings", {{"input", inputs}}).body);
        EXPECT_EQ(floats_of(answer["data"].back()["embedding"]), expected);
      }
    });
  for (std::thread& client : clients) client.join();
}

TEST(Embeddings, RefuseWhatIsNotValid) {
  SmallServer server({.max_model_len = 64, .embeddings = Pooling::kLast});
  const std::string longer(500, 'x');
  struct Case {
    Json body;
    std::string param;
    std::string message;
  };
  const std::vector<Case> cases{
      {Json::object(), "input", "is missing"},
      {{{"input", Json::array()}}, "input", "is empty"},
      {{{"input", ""}}, "input", "has no tokens"},
      {{{"input", {"a", ""}}}, "input[1]", "has no tokens"},
      {{{"input", 5}}, "input", "a string"},
      {{{"input", {"a", 5}}}, "input[1]", "a string"},
      {{{"input", {1, "a"}}}, "input", "an integer"},
      {{{"input", {1, -1}}}, "input", "expected 0"},
      {{{"input", {1, 320}}}, "input", "outside the vocabulary of 320"},
      {{{"input", Json::array({Json::array()})}}, "input", "has no tokens"},
      {{{"input", longer}}, "input", "max_model_len is 64"},
      {{{"input", "a"}, {"encoding_format", "hex"}}, "encoding_format", "float or base64"},
      {{{"input", "a"}, {"dimensions", 0}}, "dimensions", "expected 1"},
      {{{"input", "a"}, {"dimensions", 16}}, "dimensions", "have 32"},
      {{{"input", "a"}, {"truncate_prompt_tokens", 0}}, "truncate_prompt_tokens", "is 0"},
      {{{"input", "a"}, {"normalize", false}}, "normalize", "is not supported"},
      {{{"input", "a"}, {"temperature", 1}}, "temperature", "not a parameter"},
      {{{"input", "a"}, {"model", "third"}}, "model", "is not served"},
      {{{"input", std::vector<std::string>(kMaxEmbeddingInputs + 1, "a")}}, "input", "at most 2048"},
  };
  for (const Case& one : cases) {
    const RawResponse answer = server.post("/v1/embeddings", one.body);
    EXPECT_EQ(answer.status, one.param == "model" ? 404 : 400) << one.body.dump().substr(0, 200);
    const Json error = Json::parse(answer.body)["error"];
    EXPECT_EQ(error["param"], one.param) << error.dump();
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(one.message));
  }
  const auto tokens = server.model().tokenizer.encode(longer);
  const Json kept =
      Json::parse(server.post("/v1/embeddings", {{"input", longer}, {"truncate_prompt_tokens", -1}}).body);
  EXPECT_EQ(kept["usage"]["prompt_tokens"], 64);
  EXPECT_EQ(floats_of(kept["data"][0]["embedding"]),
            server.embedded({std::vector<TokenId>(tokens.end() - 64, tokens.end())})[0]);
  EXPECT_EQ(server.post("/v1/embeddings", {{"input", "a"}, {"dimensions", 32}}).status, 200);
  SmallServer without;
  EXPECT_THAT(without.post("/v1/embeddings", {{"input", "a"}}).body, HasSubstr("--embeddings auto"));
}

TEST(Embeddings, AreCutIfTheModelWasTrainedForIt) {
  SmallServer server({.embeddings = Pooling::kLast, .is_matryoshka = true});
  const std::vector<float> whole =
      floats_of(Json::parse(server.post("/v1/embeddings", {{"input", "The"}}).body)["data"][0]["embedding"]);
  const std::vector<float> part = floats_of(
      Json::parse(server.post("/v1/embeddings", {{"input", "The"}, {"dimensions", 8}}).body)["data"][0]["embedding"]);
  ASSERT_EQ(part.size(), 8U);
  EXPECT_EQ(part, shortened(whole, 8));
  double squares = 0;
  for (const float value : part) squares += static_cast<double>(value) * static_cast<double>(value);
  EXPECT_NEAR(squares, 1, 1e-6);
  EXPECT_EQ(server.post("/v1/embeddings", {{"input", "The"}, {"dimensions", 33}}).status, 400);
}

TEST(Embeddings, NumbersReadBackAsTheSameFloats) {
  const std::vector<float> values{0.1F, -1e-7F, 1.0F, 3.4e-38F, 0.0F};
  EXPECT_EQ(Json::parse(embedding_text(values, false)).get<std::vector<float>>(), values);
  EXPECT_EQ(floats_of(Json::parse(embedding_text(values, true))), values);
  EXPECT_EQ(embedding_text(std::vector<float>{std::nanf("")}, false), "[null]");
  EXPECT_EQ(shortened(std::vector<float>{0, 0, 1}, 2), (std::vector<float>{0, 0}));
}

TEST(Embeddings, FollowTheWeights) {
  TemporaryDirectory folder;
  SmallServer server({.allow_weight_updates = true, .embeddings = Pooling::kMean});
  server.write_weights(folder.path() / "new", 2);
  const auto tokens = server.model().tokenizer.encode("The answer");
  const auto embedding = [&] {
    return floats_of(Json::parse(server.post("/v1/embeddings", {{"input", tokens}}).body)["data"][0]["embedding"]);
  };
  EXPECT_EQ(embedding(), server.embedded({tokens})[0]);
  EXPECT_EQ(
      server.post("/update_weights", {{"update_info", {{"weights_path", (folder.path() / "new").string()}}}}).status,
      200);
  EXPECT_EQ(embedding(), server.embedded({tokens}, 2)[0]);
  EXPECT_EQ(fetch(server.port(), "POST", "/sleep").status, 200);
  std::thread waiting([&] { EXPECT_EQ(embedding(), server.embedded({tokens}, 2)[0]); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(fetch(server.port(), "POST", "/wake_up").status, 200);
  waiting.join();
}

TEST(Embeddings, AdaptersAreRefusedAndTheBaseHasNone) {
  SmallServer server({.adapter_slots = 2, .embeddings = Pooling::kLast});
  const auto tokens = server.model().tokenizer.encode("The answer");
  const Json answer = Json::parse(server.post("/v1/embeddings", {{"input", tokens}}).body);
  EXPECT_EQ(floats_of(answer["data"][0]["embedding"]), server.embedded({tokens})[0]);
}

}  // namespace
}  // namespace hone::test
