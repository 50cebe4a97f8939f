// The page's files about runs: metrics that grow, runs that begin again, and folders of any content.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "core/files.h"
#include "core/json_value.h"
#include "serve/request_error.h"
#include "serve/runs/jsonl_slice.h"
#include "serve/runs/query.h"
#include "serve/runs/run_answers.h"
#include "serve/runs/run_folders.h"
#include "serve/small_server.h"
#include "serve/watch_service.h"
#include "support/paths.h"

namespace hone::test {
namespace {
namespace fs = std::filesystem;

using testing::ElementsAre;
using testing::HasSubstr;

// Answers a request for a path as the server does.
Json answer(const fs::path& root, const std::string& target) {
  return Json::parse(
      answer_runs(root, {.method = "GET", .target = target, .headers = {}, .body = {}, .peer = {}}).body);
}
int status_of(const fs::path& root, const std::string& target) {
  try {
    return answer_runs(root, {.method = "GET", .target = target, .headers = {}, .body = {}, .peer = {}}).status;
  } catch (const RequestError& error) {
    return error.status();
  }
}

TEST(Query, DecodesValues) {
  const QueryParameters query("/runs?run=a%2Fb+c&from=12&run=second&flag&=x");
  EXPECT_EQ(query.text("run"), "a/b c");
  EXPECT_EQ(query.text("flag"), "");
  EXPECT_EQ(query.integer("from", 0, 0, 100), 12);
  EXPECT_EQ(query.integer("absent", 7, 0, 100), 7);
  EXPECT_THROW((void)query.integer("run", 0, 0, 100), RequestError);
  EXPECT_THROW((void)query.integer("from", 0, 0, 11), RequestError);
  for (const char* bad : {"/?a=%", "/?a=%1", "/?a=%zz", "/?a=%+1", "/?%g0=1"})
    EXPECT_THROW(QueryParameters{bad}, RequestError) << bad;
}

TEST(ReadLines, ContinuesWhereItWas) {
  const TemporaryDirectory folder;
  const fs::path file = folder.path() / "lines";
  write_file(file, "one\ntwo\nthr");
  LineSlice slice = read_lines(file, {});
  EXPECT_THAT(slice.lines, ElementsAre("one", "two"));
  EXPECT_EQ(slice.next.offset, 8U);
  append_file(file, "ee\n\nfour");
  slice = read_lines(file, slice.next);
  EXPECT_THAT(slice.lines, ElementsAre("three", ""));
  EXPECT_FALSE(slice.restarted);
  slice = read_lines(file, slice.next);
  EXPECT_TRUE(slice.lines.empty());
  EXPECT_FALSE(slice.restarted);
}

TEST(ReadLines, NoticesAnotherFile) {
  const TemporaryDirectory folder;
  const fs::path file = folder.path() / "lines";
  write_file(file, "one\ntwo\n");
  const LineSlice before = read_lines(file, {});
  write_file(file, "1\n");  // shorter
  LineSlice slice = read_lines(file, before.next);
  EXPECT_TRUE(slice.restarted);
  EXPECT_THAT(slice.lines, ElementsAre("1"));
  write_file(file, "uno\ndos\ntres\n");  // longer, with other bytes before the position
  slice = read_lines(file, before.next);
  EXPECT_TRUE(slice.restarted);
  EXPECT_THAT(slice.lines, ElementsAre("uno", "dos", "tres"));
  write_file(file, "one\ntwo\nthree\n");  // a copy that continues is the same file
  slice = read_lines(file, before.next);
  EXPECT_FALSE(slice.restarted);
  EXPECT_THAT(slice.lines, ElementsAre("three"));
}

TEST(ReadLines, KeepsItsLimits) {
  const TemporaryDirectory folder;
  const fs::path file = folder.path() / "lines";
  write_file(file, std::string(25, 'x') + "\nshort\n");
  std::string all;
  FilePosition at;
  for (int i = 0; i < 10; ++i) {
    const LineSlice slice = read_lines(file, at, {.bytes = 10, .lines = 1});
    EXPECT_LE(slice.lines.size(), 1U);
    for (const std::string& line : slice.lines) all += line + "|";
    at = slice.next;
  }
  EXPECT_EQ(all, "xxxxxxxxxx|xxxxxxxxxx|xxxxx|short|");
}

TEST(ReadLines, DoesNotWaitForAFifo) {
  const TemporaryDirectory folder;
  const fs::path fifo = folder.path() / "metrics.jsonl";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THROW((void)read_lines(fifo, {}), Error);
  EXPECT_THROW((void)read_lines(folder.path(), {}), Error);
  EXPECT_EQ(status_of(folder.path(), "/runs/metrics?run=."), 404);
}

// A folder with runs as hone quickstart leaves them.
void write_runs(const fs::path& root) {
  for (const char* name : {"pretrain", "grpo"}) hone::create_directories(root / name);
  write_file(root / "pretrain/metrics.jsonl", "{\"step\":1,\"loss\":2.5}\n");
  write_file(root / "grpo/metrics.jsonl", "{\"step\":1,\"reward\":0.5}\n");
  hone::create_directories(root / "grpo/completions");
  for (const char* name : {"step-10", "step-9", "eval-step-9", "notes"})
    write_file(
        root / "grpo/completions" / (std::string(name) + ".jsonl"),
        "{\"step\":9,\"row\":3,\"prompt\":\"p\",\"completion\":\"<b>c</b>\",\"rewards\":{\"accuracy\":1.0,\"none\":"
        "null},\"advantage\":0.5,\"finish_reason\":\"stop\",\"other\":1}\n");
  hone::create_directories(root / "eval-grpo");
  write_file(root / "eval-grpo/results.json",
             R"({"settings": {"model_name_or_path": "m", "key": "k"}, "tasks": {"t": {"avg@1": {"value": 0.5}}}})");
  write_file(root / "eval-grpo/samples.jsonl",
             "{\"task\":\"t\",\"id\":\"0\",\"sample\":0,\"prompt\":\"q\",\"gold\":\"1\",\"completion\":\"" +
                 std::string(2 * kMaxShownBytes, 'a') + "\",\"score\":1.0,\"ended\":true}\n");
  hone::create_directories(root / ".hidden");
  write_file(root / ".hidden/metrics.jsonl", "");
}

TEST(FindRuns, FindsWhatCommandsWrite) {
  const TemporaryDirectory folder;
  write_runs(folder.path());
  hone::create_directories(folder.path() / "a/b/c/d/e");
  write_file(folder.path() / "a/b/c/d/metrics.jsonl", "");
  write_file(folder.path() / "a/b/c/d/e/metrics.jsonl", "");  // too deep
  fs::create_directory_symlink(folder.path(), folder.path() / "pretrain/loop");
  const FoundRuns found = find_runs(folder.path());
  std::vector<std::string> ids;
  for (const RunFolder& run : found.runs) ids.push_back(run.id);
  EXPECT_THAT(ids, ElementsAre("a/b/c/d", "eval-grpo", "grpo", "pretrain"));
  EXPECT_FALSE(found.is_cut);
  const Json list = answer(folder.path(), "/runs");
  EXPECT_EQ(list["root"], folder.path().filename().string());
  for (const Json& run : list["runs"]) {
    if (run["id"] != "grpo") continue;
    EXPECT_EQ(run["completions"], Json({"step-9", "eval-step-9", "step-10"}));
  }
}

TEST(FindRuns, TheFolderItselfMayBeARun) {
  const TemporaryDirectory folder;
  write_file(folder.path() / "metrics.jsonl", "{\"step\":1}\n");
  const FoundRuns found = find_runs(folder.path());
  ASSERT_EQ(found.runs.size(), 1U);
  EXPECT_EQ(found.runs[0].id, ".");
  EXPECT_EQ(answer(folder.path(), "/runs/metrics?run=.")["rows"].size(), 1U);
  EXPECT_THROW((void)find_runs(folder.path() / "metrics.jsonl"), Error);
}

TEST(AnswerRuns, GivesRowsAndCountsWhatIsNone) {
  const TemporaryDirectory folder;
  write_runs(folder.path());
  const fs::path file = folder.path() / "grpo/metrics.jsonl";
  append_file(
      file,
      "{\"step\":2,\"reward\":null,\"run_name\":\"<script>\",\"__proto__\":3}\nnot json\n[1]\n{\"step\":\"x\"}\n"
      "{\"step\":3,\"a\":NaN}\n" +
          std::string(300, '[') + "\n\n{\"step\":4");
  const Json first = answer(folder.path(), "/runs/metrics?run=grpo");
  EXPECT_EQ(first["rows"], Json::parse(R"([{"step":1,"reward":0.5},{"step":2,"reward":null,"__proto__":3}])"));
  EXPECT_EQ(first["bad"], 5);
  append_file(file, ",\"reward\":1}\n");
  const std::string next = text_of("/runs/metrics?run=grpo&from=", first["next"].get<std::int64_t>(),
                                   "&check=", first["check"].get<std::string>());
  EXPECT_EQ(answer(folder.path(), next)["rows"], Json::parse(R"([{"step":4,"reward":1}])"));
  write_file(file, "{\"step\":7}\n");  // the run was started again
  const Json again = answer(folder.path(), next);
  EXPECT_EQ(again["restarted"], true);
  EXPECT_EQ(again["rows"], Json::parse(R"([{"step":7}])"));
}

TEST(AnswerRuns, GivesCompletionsAndEvaluations) {
  const TemporaryDirectory folder;
  write_runs(folder.path());
  const Json completions = answer(folder.path(), "/runs/completions?run=grpo&file=step-9");
  EXPECT_EQ(completions["rows"][0]["completion"], "<b>c</b>");
  EXPECT_EQ(completions["rows"][0]["rewards"], Json::parse(R"({"accuracy":1.0,"none":null})"));
  EXPECT_FALSE(completions["rows"][0].contains("other"));
  const Json results = answer(folder.path(), "/runs/results?run=eval-grpo");
  EXPECT_EQ(results, Json::parse(R"({"model":"m","tasks":{"t":{"avg@1":{"value":0.5}}}})"));
  const Json samples = answer(folder.path(), "/runs/samples?run=eval-grpo&count=1");
  EXPECT_THAT(samples["rows"][0]["completion"].get<std::string>(), HasSubstr("more bytes]"));
  EXPECT_LT(samples["rows"][0]["completion"].get<std::string>().size(), kMaxShownBytes + 100);
}

TEST(AnswerRuns, GivesProfiles) {
  const TemporaryDirectory folder;
  write_runs(folder.path());
  hone::create_directories(folder.path() / "profile");
  const fs::path file = folder.path() / "profile/kernel_summary.json";
  Json rows = Json::array({1, "text", nullptr});
  for (std::size_t i = 0; i < kMaxShownRows + 5; ++i) rows.push_back({{"op", "linear"}, {"ms", 1.5}});
  write_json(file,
             {{"what", std::string(2 * kMaxShownBytes, 'a')}, {"step_ms", 3}, {"other", true}, {"kernels", rows}});
  const Json runs = answer(folder.path(), "/runs");
  for (const Json& run : runs["runs"]) EXPECT_EQ(run["profile"], run["id"] == "profile");
  const Json profile = answer(folder.path(), "/runs/profile?run=profile");
  EXPECT_EQ(profile["kernels"].size(), kMaxShownRows);
  EXPECT_EQ(profile["kernels"][0], Json::parse(R"({"op":"linear","ms":1.5})"));
  EXPECT_EQ(profile["step_ms"], 3);
  EXPECT_FALSE(profile.contains("other"));
  EXPECT_LT(profile["what"].get<std::string>().size(), kMaxShownBytes + 100);
  EXPECT_EQ(status_of(folder.path(), "/runs/profile?run=grpo"), 404);
  EXPECT_EQ(status_of(folder.path(), "/runs/profile?run=.."), 404);
  write_file(file, "{}");
  EXPECT_EQ(status_of(folder.path(), "/runs/profile?run=profile"), 400);
}

TEST(AnswerRuns, ReadsNothingElse) {
  const TemporaryDirectory folder;
  write_runs(folder.path() / "inside");
  write_file(folder.path() / "metrics.jsonl", "{\"step\":1}\n");
  const fs::path root = folder.path() / "inside";
  for (const char* target :
       {"/runs/metrics?run=..", "/runs/metrics?run=%2e%2e", "/runs/metrics?run=grpo/../..", "/runs/metrics?run=/etc",
        "/runs/metrics?run=", "/runs/metrics", "/runs/metrics?run=grpo/", "/runs/metrics?run=.hidden",
        "/runs/metrics?run=a%00b", "/runs/metrics?run=none", "/runs/metrics?run=eval-grpo", "/runs/results?run=grpo",
        "/runs/completions?run=grpo&file=notes", "/runs/completions?run=grpo&file=step-..%2f..%2fx",
        "/runs/completions?run=grpo&file=step-", "/runs/completions?run=grpo&file=step-77", "/runs/other",
        "/runs/metrics?run=1/2/3/4/5"})
    EXPECT_EQ(status_of(root, target), 404) << target;
  for (const char* target : {"/runs/metrics?run=grpo&from=-1", "/runs/metrics?run=grpo&from=x",
                             "/runs/samples?run=eval-grpo&count=0", "/runs/metrics?run=%g"})
    EXPECT_EQ(status_of(root, target), 400) << target;
  write_file(root / "eval-grpo/results.json", "[]");
  EXPECT_EQ(status_of(root, "/runs/results?run=eval-grpo"), 400);
  write_file(root / "eval-grpo/results.json", "{");
  EXPECT_EQ(status_of(root, "/runs/results?run=eval-grpo"), 404);
}

// The answer of `hone watch` to one request.
class KeptReply : public ServerReply {
 public:
  void send(ServerResponse response) override { kept = std::move(response); }
  void begin_events() override {}
  void write(std::string_view) override {}
  void end() override {}
  [[nodiscard]] bool left() const override { return false; }
  [[nodiscard]] bool congested() const override { return false; }
  ServerResponse kept;
};

TEST(WatchService, AnswersLocalRequests) {
  const TemporaryDirectory folder;
  write_runs(folder.path());
  const WatchService service({.version = "1.2.3", .runs = folder.path()});
  const auto get = [&](const std::string& target, const std::string& host, const std::string& method = "GET") {
    const auto reply = std::make_shared<KeptReply>();
    service.handle({.method = method, .target = target, .headers = {{"Host", host}}, .body = {}, .peer = {}}, reply);
    return reply->kept;
  };
  EXPECT_THAT(get("/", "127.0.0.1:8080").body, HasSubstr("page/watch.js"));
  EXPECT_EQ(get("/page/watch.js", "localhost:8080").status, 200);
  EXPECT_EQ(get("/page/../x", "localhost").status, 404);
  EXPECT_EQ(get("/runs", "[::1]:8080").status, 200);
  EXPECT_EQ(get("/runs/metrics?run=grpo", "127.0.0.1").status, 200);
  EXPECT_EQ(get("/runs/metrics?run=gone", "127.0.0.1").status, 404);
  EXPECT_EQ(get("/version", "127.0.0.1").body, R"({"version":"1.2.3","runs":true})");
  EXPECT_EQ(get("/v1/models", "127.0.0.1").status, 404);
  EXPECT_EQ(get("/runs", "127.0.0.1", "POST").status, 405);
  for (const char* host :
       {"attacker.example", "127.0.0.1.attacker.example:8080", "localhost.attacker.example", "", ":80"})
    EXPECT_EQ(get("/runs", host).status, 403) << host;
}

TEST(Service, ShowsRunsIfItHasAFolder) {
  const TemporaryDirectory folder;
  write_runs(folder.path());
  SmallServer with_runs({.api_key = "secret", .runs = folder.path()});
  EXPECT_THAT(fetch(with_runs.port(), "GET", "/watch").body, HasSubstr("page/watch.js"));
  EXPECT_EQ(fetch(with_runs.port(), "GET", "/version").body, R"({"version":"1.2.3","runs":true})");
  EXPECT_EQ(fetch(with_runs.port(), "GET", "/runs").status, 401);
  EXPECT_EQ(fetch(with_runs.port(), "GET", "/runs/metrics?run=grpo").status, 401);
  SmallServer open({.runs = folder.path()});
  EXPECT_EQ(Json::parse(fetch(open.port(), "GET", "/runs").body)["runs"].size(), 3U);
  EXPECT_EQ(fetch(open.port(), "GET", "/runs/metrics?run=grpo").status, 200);
  SmallServer without;
  EXPECT_EQ(fetch(without.port(), "GET", "/watch").status, 404);
  EXPECT_EQ(fetch(without.port(), "GET", "/runs").status, 404);
}

}  // namespace
}  // namespace hone::test
