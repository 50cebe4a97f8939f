// All endpoints over TLS: what they answer is what they answer without it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/files.h"
#include "core/json_value.h"
#include "serve/small_server.h"
#include "support/certificate.h"
#include "support/paths.h"
#include "support/tls_client.h"

namespace hone::test {
namespace {

// A server without and one with TLS, otherwise equal.
class ServiceOverTls : public testing::Test {
 protected:
  ServiceOverTls() {
    write_file(folder_.path() / "both.pem", own_.certificate + own_.key);
    hone::create_directories(folder_.path() / "runs" / "one");
    write_file(folder_.path() / "runs" / "one" / "metrics.jsonl", "{\"step\": 1, \"loss\": 2.5}\n");
    SmallServerOptions options{.embeddings = Pooling::kMean, .runs = folder_.path() / "runs"};
    plain_ = std::make_unique<SmallServer>(options);
    options.http.tls = read_tls_identity((folder_.path() / "both.pem").string(), "");
    encrypted_ = std::make_unique<SmallServer>(options);
  }
  [[nodiscard]] RawResponse plain(const char* method, const std::string& path, const std::string& body = {}) const {
    return fetch(plain_->port(), method, path, body);
  }
  [[nodiscard]] RawResponse encrypted(const char* method, const std::string& path, const std::string& body = {}) const {
    return fetch_encrypted(encrypted_->port(), own_.certificate, method, path, body);
  }

  TemporaryDirectory folder_;
  Certificate own_ = make_certificate();
  std::unique_ptr<SmallServer> plain_;
  std::unique_ptr<SmallServer> encrypted_;
};

// The texts of the events of a stream, in order: names and times of answers differ from server to server.
std::string texts_of(const std::string& stream) {
  std::string text;
  for (const std::string& event : events_of(stream)) {
    if (event == "[DONE]") return text + "|done";
    const Json json = Json::parse(event);
    if (!json.contains("choices") || json["choices"].empty()) continue;
    const Json& choice = json["choices"][0];
    text += choice.contains("text") ? choice["text"].get<std::string>() : choice["delta"].value("content", "");
  }
  return text;
}

TEST_F(ServiceOverTls, PagesAndListsAreTheSame) {
  for (const char* path : {"/", "/watch", "/page/main.js", "/runs/metrics?run=one&from=0", "/v1/models", "/health",
                           "/version", "/openapi.json", "/nothing"}) {
    const RawResponse expected = plain("GET", path);
    const RawResponse seen = encrypted("GET", path);
    EXPECT_EQ(seen.status, expected.status) << path;
    EXPECT_EQ(seen.body, expected.body) << path;
    EXPECT_EQ(expected.status == 404, std::string(path) == "/nothing") << path;
  }
  for (const char* path : {"/metrics", "/runs"}) EXPECT_EQ(encrypted("GET", path).status, 200) << path;
}

TEST_F(ServiceOverTls, AnswersAndStreamsAreTheSame) {
  const Json messages{{{"role", "user"}, {"content", "What is 1 + 2?"}}};
  const Json sampling{{"model", "small"}, {"max_tokens", 60}, {"seed", 7}, {"ignore_eos", true}};
  Json completion = sampling;
  completion["prompt"] = "What is";
  Json chat = sampling;
  chat["messages"] = messages;
  for (const bool streams : {false, true}) {
    for (auto& [path, body] : {std::pair{"/v1/completions", &completion}, std::pair{"/v1/chat/completions", &chat}}) {
      (*body)["stream"] = streams;
      const RawResponse expected = plain("POST", path, body->dump());
      const RawResponse seen = encrypted("POST", path, body->dump());
      ASSERT_EQ(seen.status, 200) << seen.body;
      if (streams) {
        EXPECT_EQ(texts_of(seen.body), texts_of(expected.body)) << path;
        EXPECT_TRUE(texts_of(seen.body).ends_with("|done")) << path;
        continue;
      }
      EXPECT_EQ(Json::parse(seen.body)["choices"], Json::parse(expected.body)["choices"]) << path;
    }
  }
  const Json claude{{"model", "small"}, {"max_tokens", 8}, {"messages", messages}};
  EXPECT_EQ(encrypted("POST", "/v1/messages", claude.dump()).status, 200);
  EXPECT_EQ(encrypted("POST", "/v1/responses", R"({"model": "small", "input": "a", "max_output_tokens": 4})").status,
            200);
  const std::string embedded = R"({"model": "small", "input": ["a", "b"]})";
  EXPECT_EQ(Json::parse(encrypted("POST", "/v1/embeddings", embedded).body)["data"],
            Json::parse(plain("POST", "/v1/embeddings", embedded).body)["data"]);
  EXPECT_EQ(encrypted("POST", "/tokenize", R"({"prompt": "a b"})").body,
            plain("POST", "/tokenize", R"({"prompt": "a b"})").body);
  EXPECT_EQ(encrypted("POST", "/v1/completions", "{").status, 400);
}

}  // namespace
}  // namespace hone::test
