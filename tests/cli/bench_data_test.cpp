// Tests hone bench tokenizer, data, scaling and all by their command lines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "cli/bench/child_bench.h"
#include "cli/bench/documents.h"
#include "cli/bench/page.h"
#include "cli/program.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "support/miniature.h"
#include "support/paths.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

std::set<std::string> what_of(const Json& rows) {
  std::set<std::string> names;
  for (const Json& row : rows) {
    names.insert(row["what"].get<std::string>());
    EXPECT_GT(row["figure"].get<double>(), 0.0) << row.dump();
  }
  return names;
}

TEST(BenchDocuments, AreTheSameEachTime) {
  const std::vector<std::string> documents = generated_documents(5000);
  EXPECT_EQ(documents, generated_documents(5000));
  std::size_t bytes = 0;
  for (const std::string& document : documents) bytes += document.size();
  EXPECT_GE(bytes, 5000u);
  EXPECT_LT(bytes - documents.back().size(), 5000u);
}

TEST(BenchData, MeasuresATokenizer) {
  const TemporaryDirectory directory;
  const std::string json = directory.path() / "rows.json";
  const Ended ended = run_program({"bench", "tokenizer", "--mebibytes", "1", "--seconds", "0.01", "--json", json});
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_EQ(what_of(read_json(json)),
            (std::set<std::string>{"tokenizer training", "tokenizer encoding, one thread",
                                   "tokenizer encoding, all threads", "tokenizer decoding, one thread"}));
  write_miniature(directory.path());
  write_file(directory.path() / "text", "What is 1 + 2? 3.");
  const Ended other =
      run_program({"bench", "tokenizer", "--tokenizer_name_or_path", (directory.path() / "tokenizer").string(),
                   "--files", (directory.path() / "text").string(), "--seconds", "0.01"});
  ASSERT_EQ(other.code, 0) << other.output;
  EXPECT_THAT(other.output, Not(HasSubstr("training")));
  write_file(directory.path() / "text", "");
  EXPECT_THAT(run_program({"bench", "tokenizer", "--files", (directory.path() / "text").string()}).output,
              HasSubstr("error: files: have no text"));
}

TEST(BenchData, MeasuresEachStageOfData) {
  const TemporaryDirectory directory;
  write_miniature(directory.path());
  const std::string json = directory.path() / "rows.json";
  const std::string data = directory.path() / "data/sft.jsonl";
  const Ended ended = run_program({"bench", "data", "--dataset_name", data, "--tokenizer_name_or_path",
                                   (directory.path() / "tokenizer").string(), "--max_length", "128", "--seconds",
                                   "0.01", "--json", json});
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_EQ(what_of(read_json(json)),
            (std::set<std::string>{"data reading", "data encoding", "data packing", "data batches"}));
  EXPECT_THAT(ended.output, HasSubstr("60 rows read"));
  EXPECT_THAT(run_program({"bench", "data", "--dataset_name", data}).output,
              HasSubstr("tokenizer_name_or_path: is not set"));
  EXPECT_EQ(run_program({"bench", "data", "--mebibytes", "1", "--seconds", "0.01"}).code, 0);
}

TEST(BenchScaling, TrainsInOneAndInTwoProcesses) {
  const TemporaryDirectory directory;
  const std::string json = directory.path() / "rows.json";
  const Ended ended =
      run_program({"bench", "scaling", "--processes", "1,2", "--model", "quickstart", "--layers", "1", "--seq_len",
                   "16", "--device", "cpu", "--seconds", "0.01", "--warmup_seconds", "0", "--json", json});
  ASSERT_EQ(ended.code, 0) << ended.output;
  const Json rows = read_json(json);
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(rows[0]["shape"], "quickstart batch 1 x 16, 1 process");
  EXPECT_EQ(rows[3]["shape"], "quickstart batch 1 x 16, 2 processes");
  EXPECT_EQ(rows[2]["figure"], 100.0);
  const std::size_t second = ended.output.find(", a process of 2: ");
  EXPECT_LT(ended.output.find("1 process: "), second) << "each line as soon as it is measured";
  EXPECT_NE(ended.output.find("2 processes: ", second), std::string::npos) << ended.output;
  EXPECT_EQ(run_program({"bench", "scaling", "--processes", "1", "--model", "no-such-model"}).code, 1);
}

TEST(BenchScaling, MeasuresUpToAllGpus) {
  using Counts = std::vector<std::int64_t>;
  EXPECT_EQ(process_counts(0), (Counts{1, 2})) << "on the CPU";
  EXPECT_EQ(process_counts(1), (Counts{1}));
  EXPECT_EQ(process_counts(6), (Counts{1, 2, 4, 6}));
  EXPECT_EQ(process_counts(8), (Counts{1, 2, 4, 8}));
}

TEST(BenchAll, RunsAllKindsButServe) {
  const TemporaryDirectory directory;
  std::set<std::string> kinds;
  const std::string help = run_program({"bench", "--help"}).output;
  for (const std::string& line : split(help, '\n')) {
    if (line.starts_with("hone bench ")) kinds.insert(line.substr(11, line.find(':') - 11));
  }
  EXPECT_EQ(kinds.erase("serve"), 1u);
  EXPECT_EQ(kinds.erase("all"), 1u);
  const auto with = [&](const std::string& only) {
    return run_program(
        {"bench", "all", "--only", only, "--device", "cpu", "--output_dir", (directory.path() / "out").string()});
  };
  const std::string refused = with("nothing").output;
  const std::size_t list = refused.find("expected ") + 9;
  std::set<std::string> run;
  for (const std::string& name : split(refused.substr(list, refused.find(')', list) - list), ','))
    run.insert(std::string(trim(name)));
  EXPECT_EQ(run, kinds) << refused;
  const Ended ended = with("grpo");
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_EQ(read_json(directory.path() / "out/bench.json")["rows"][0]["what"], "grpo");
}

TEST(BenchAll, WritesOnePage) {
  const TemporaryDirectory directory;
  const std::string folder = directory.path() / "out";
  const Ended ended = run_program({"bench", "all", "--only", "data,decode,collectives", "--device", "cpu", "--seconds",
                                   "0.01", "--output_dir", folder});
  ASSERT_EQ(ended.code, 0) << ended.output;
  const Json result = read_json(fs::path(folder) / "bench.json");
  const std::set<std::string> what = what_of(result["rows"]);
  for (const char* name : {"data reading", "decode", "all_reduce"}) {
    EXPECT_EQ(what.count(name), 1u) << name;
  }
  for (const char* name : {"device", "processor", "logical cores", "memory", "system", "hone", "date"}) {
    EXPECT_FALSE(result["machine"].value(name, "").empty()) << name;
  }
  const std::string page = read_file(fs::path(folder) / "bench.html");
  EXPECT_THAT(page, HasSubstr("<h2>collectives</h2>"));
  EXPECT_THAT(page, HasSubstr("hone bench decode --model quickstart"));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(run_program({"bench", "all", "--only", "serve", "--output_dir", folder}).output,
              HasSubstr("expected matmul, kernels, train"));
}

TEST(BenchAll, ThePageEscapesAndShowsFailures) {
  const std::string page = bench_page(
      {.machine = {{"device", "<b>"}},
       .parts = {{.name = "train", .command = "hone bench train", .rows = Json::array(), .failure = "has <failed>"}}});
  EXPECT_THAT(page, HasSubstr("&lt;b&gt;"));
  EXPECT_THAT(page, HasSubstr("<p class=\"failed\">has &lt;failed&gt;</p>"));
}

}  // namespace
}  // namespace hone::test
