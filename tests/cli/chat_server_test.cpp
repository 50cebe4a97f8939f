// Tests hone chat --server on a pseudo-terminal and in a pipe, with servers that behave well and badly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <mutex>

#include "cli/program.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "endpoint/event_stream.h"
#include "support/loopback.h"
#include "support/paths.h"

namespace hone::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kReturnKey = "\r";

std::string event(const Json& delta, const Json& reason = nullptr) {
  return "data: " + Json{{"choices", {{{"index", 0}, {"delta", delta}, {"finish_reason", reason}}}}}.dump() + "\n\n";
}

std::string stream(const std::string& events) {
  return http_answer("200 OK", events, "Content-Type: text/event-stream; charset=utf-8\r\n");
}

// A server that keeps the bodies of requests for completions and answers with fixed bytes.
class ChatServer {
 public:
  explicit ChatServer(std::string answer)
      : answer_(std::move(answer)), server_([this](const LoopbackRequest& request) { return reply(request); }) {}

  [[nodiscard]] std::string url() const { return server_.url(); }
  [[nodiscard]] std::vector<Json> bodies() {
    const std::lock_guard lock(mutex_);
    return bodies_;
  }
  [[nodiscard]] std::string key() {
    const std::lock_guard lock(mutex_);
    return key_;
  }

 private:
  std::string reply(const LoopbackRequest& request) {
    const std::lock_guard lock(mutex_);
    key_ = request.header("Authorization");
    if (request.line == "GET /v1/models")
      return http_answer("200 OK", R"({"data": [{"id": "first"}, {"id": "other"}]})");
    if (request.line != "POST /v1/chat/completions") return http_answer("404 Not Found", "{}");
    bodies_.push_back(Json::parse(request.body));
    return answer_;
  }

  std::string answer_;
  std::mutex mutex_;
  std::vector<Json> bodies_;  // guarded by mutex_
  std::string key_;           // guarded by mutex_
  Loopback server_;
};

std::vector<std::string> chat(const std::string& url, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments{"chat", "--server", url};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(EventStream, ReadsEventsOfAnyPieces) {
  const std::string text =
      ": comment\n\nevent: x\ndata: one\n\ndata:two\r\ndata:  three\r\n\r\nid: 1\n\ndata\n\ndata: [DONE]\r\rdata: cut";
  for (std::size_t size = 1; size <= text.size(); ++size) {
    EventStream stream;
    std::vector<std::string> events;
    for (std::size_t at = 0; at < text.size(); at += size)
      for (std::string& one : stream.add(std::string_view(text).substr(at, size))) events.push_back(std::move(one));
    EXPECT_THAT(events, ElementsAre("one", "two\n three", "", "[DONE]")) << size;
  }
}

TEST(EventStream, RefusesEndlessEvents) {
  EventStream stream;
  const std::string piece(1 << 20, 'x');
  EXPECT_THROW(for (int i = 0; i < 20; ++i)(void) stream.add(piece), Error);
}

TEST(ChatServerTest, StreamsAnswersAndFoldsThoughts) {
  ChatServer server(stream(event({{"role", "assistant"}, {"content", ""}}) + event({{"reasoning", "first\x1b[31m "}}) +
                           event({{"reasoning", "this"}}) + event({{"content", "\n\nForty"}}) +
                           event({{"content", "-two\x1b[2J"}}) + event(Json::object(), "stop") + "data: [DONE]\n\n"));
  TemporaryDirectory folder;
  const std::string saved = (folder.path() / "saved.json").string();
  TerminalProgram program(chat(server.url(), {"--api_key", "secret", "--temperature", "0.5"}),
                          {{"HONE_CACHE", folder.path().string()}});
  ASSERT_TRUE(program.sees("chatting with first on http://127.0.0.1:")) << program.output();
  ASSERT_TRUE(program.sees("> "));
  program.type(std::string("What is it?") + kReturnKey);
  ASSERT_TRUE(program.sees(", 15 characters; /thoughts shows them)")) << program.output();
  ASSERT_TRUE(program.sees("Forty-two\\x1b[2J")) << program.output();
  ASSERT_TRUE(program.sees("> "));
  program.type(std::string("/thoughts") + kReturnKey);
  ASSERT_TRUE(program.sees("first\\x1b[31m this")) << program.output();
  program.type(std::string("/set max_tokens 7") + kReturnKey + "/set top_k 3" + kReturnKey + "again" + kReturnKey);
  ASSERT_TRUE(program.sees("Forty-two")) << program.output();
  program.type("/save " + saved + kReturnKey + "/quit" + kReturnKey);
  EXPECT_EQ(program.wait(), 0) << program.output();
  EXPECT_EQ(server.key(), "Bearer secret");
  const std::vector<Json> bodies = server.bodies();
  ASSERT_EQ(bodies.size(), 2U);
  EXPECT_EQ(
      bodies[0].dump(),
      R"({"model":"first","messages":[{"role":"user","content":"What is it?"}],"stream":true,"temperature":0.5})");
  EXPECT_EQ(bodies[1]["messages"].size(), 3U);
  EXPECT_EQ(bodies[1]["messages"][1], Json::parse(R"({"role": "assistant", "content": "\n\nForty-two\u001b[2J"})"));
  EXPECT_EQ(bodies[1]["max_tokens"], 7);
  EXPECT_EQ(bodies[1]["top_k"], 3);
  EXPECT_FALSE(bodies[1].contains("seed"));
  EXPECT_EQ(read_json(saved).size(), 4U);
}

TEST(ChatServerTest, ThoughtsInTagsAreFoldedToo) {
  ChatServer server(stream(event({{"content", "<thi"}}) + event({{"content", "nk>in</th"}}) +
                           event({{"content", "ink>\nout <b> "}}) + event({{"content", "<thin"}}) +
                           event(Json::object(), "length") + "data: [DONE]\n\n"));
  TemporaryDirectory folder;
  TerminalProgram program(chat(server.url(), {"--model", "named"}), {{"HONE_CACHE", folder.path().string()}});
  program.type(std::string("a") + kReturnKey);
  ASSERT_TRUE(program.sees(", 2 characters; /thoughts shows them)")) << program.output();
  ASSERT_TRUE(program.sees("out <b> <thin")) << program.output();
  ASSERT_TRUE(program.sees("(cut by the server;")) << program.output();
  program.type(std::string("/set fold_thoughts false") + kReturnKey + "b" + kReturnKey);
  ASSERT_TRUE(program.sees("\x1b[2min\x1b[0m")) << program.output();
  program.type(std::string("/quit") + kReturnKey);
  EXPECT_EQ(program.wait(), 0);
  EXPECT_EQ(server.bodies()[0]["model"], "named");
}

TEST(ChatServerTest, ProblemsAreOneLineAndTheChatContinues) {
  struct Case {
    std::string answer;
    std::string line;
  };
  const std::vector<Case> cases{
      {http_answer("400 Bad Request", R"({"error": {"message": "too long"}})"), "answers 400: too long"},
      {http_answer("401 Unauthorized", "no"), "answers 401: no (set --api_key or HONE_API_KEY)"},
      {stream(event({{"content", "half"}})), "the answer has ended early"},
      {stream("data: {\"error\": {\"message\": \"the engine has failed\"}}\n\n"), "reports: the engine has failed"},
      {stream("data: {nonsense\n\n"), "an event of the answer"},
      {http_answer("200 OK", "<html>"), "an event of the answer"},
  };
  for (const Case& one : cases) {
    ChatServer server(one.answer);
    TemporaryDirectory folder;
    TerminalProgram program(chat(server.url(), {"--model", "m"}), {{"HONE_CACHE", folder.path().string()}});
    ASSERT_TRUE(program.sees("> "));
    program.type(std::string("a") + kReturnKey);
    ASSERT_TRUE(program.sees(one.line)) << program.output();
    ASSERT_TRUE(program.sees("> "));
    program.type(std::string("b") + kReturnKey);
    ASSERT_TRUE(program.sees(one.line)) << program.output();
    program.type(std::string("/quit") + kReturnKey);
    EXPECT_EQ(program.wait(), 0);
    EXPECT_EQ(server.bodies().back()["messages"].size(), 1U) << "a question without an answer is removed";
  }
}

TEST(ChatServerTest, AServerThatIsNotThereIsOneLine) {
  std::string url;
  {
    const ChatServer gone("");
    url = gone.url();
  }
  const Ended ended = run_program(chat(url));
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.output, HasSubstr(url + "/v1/models: gives no answer: "));
  EXPECT_EQ(std::ranges::count(ended.output, '\n'), 1) << ended.output;
  EXPECT_THAT(run_program(chat("nonsense")).output, HasSubstr("is not an http(s) URL"));
  EXPECT_THAT(run_program(chat(url, {"--max_model_len", "5"})).output, HasSubstr("has no effect with --server"));
}

TEST(ChatServerTest, ReadsAWholeAnswer) {
  ChatServer server(http_answer(
      "200 OK", R"({"choices": [{"message": {"content": "whole", "reasoning": "r"}, "finish_reason": "stop"}]})",
      "Content-Type: application/json\r\n"));
  TemporaryDirectory folder;
  TerminalProgram program(chat(server.url()), {{"HONE_CACHE", folder.path().string()}});
  program.type(std::string("a") + kReturnKey);
  ASSERT_TRUE(program.sees("whole")) << program.output();
  program.type(std::string("/quit") + kReturnKey);
  EXPECT_EQ(program.wait(), 0);
}

TEST(ChatServerTest, TypedMessagesAreThereInLaterChats) {
  ChatServer server(stream(event({{"content", "yes"}}, "stop") + "data: [DONE]\n\n"));
  TemporaryDirectory folder;
  const std::map<std::string, std::string> variables{{"HONE_CACHE", (folder.path() / "cache").string()}};
  for (const bool keeps : {false, true}) {
    TerminalProgram program(chat(server.url(), {"--keep_history", keeps ? "true" : "false"}), variables);
    ASSERT_TRUE(program.sees("> "));
    program.type(std::string("naïve 日本 \\") + kReturnKey + "second line" + kReturnKey);
    ASSERT_TRUE(program.sees("yes")) << program.output();
    program.type(std::string("/quit") + kReturnKey);
    EXPECT_EQ(program.wait(), 0);
    const std::filesystem::path file = folder.path() / "cache" / "chat_history";
    EXPECT_EQ(is_file(file), keeps);
    struct stat status{};
    if (keeps && ::stat(file.c_str(), &status) == 0) {
      EXPECT_EQ(status.st_mode & 0777U, 0600U);
    }
  }
  TerminalProgram program(chat(server.url()), variables);
  ASSERT_TRUE(program.sees("> "));
  program.type(std::string("\x1b[A\x1b[A") + kReturnKey);  // /quit, and the message before it
  ASSERT_TRUE(program.sees("yes")) << program.output();
  program.type(std::string("/quit") + kReturnKey);
  EXPECT_EQ(program.wait(), 0);
  EXPECT_EQ(server.bodies().back()["messages"][0]["content"], "naïve 日本 \nsecond line");
}

}  // namespace
}  // namespace hone::test
