// Tests hone bench: the figures, the file that it writes, and how list_results.sh marks stale figures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>

#include "cli/bench/results.h"
#include "cli/program.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "support/paths.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

TEST(BenchCommand, MeasuresKernelsAndProducts) {
  const TemporaryDirectory directory;
  const std::string kernels = directory.path() / "kernels.json";
  Ended ended = run_program({"bench", "kernels", "--model", "quickstart", "--seq_len", "16", "--seconds", "0.001",
                             "--device", "cpu", "--json", kernels});
  ASSERT_EQ(ended.code, 0) << ended.output;
  std::set<std::string> seen;
  for (const Json& row : read_json(kernels)) {
    seen.insert(row["what"].get<std::string>());
    EXPECT_GT(row["figure"].get<double>(), 0.0);
    for (const char* name : {"shape", "unit", "machine", "command", "commit", "date"}) EXPECT_TRUE(row.contains(name));
    EXPECT_THAT(row["command"].get<std::string>(), HasSubstr("hone bench kernels --model quickstart"));
  }
  for (const char* name :
       {"copy", "matmul", "kernel attention_backward", "kernel adamw", "kernel linear_logprobs_joint"}) {
    EXPECT_THAT(seen, testing::Contains(name));
  }
  const std::string products = directory.path() / "products.json";
  ended = run_program({"bench", "matmul", "--sizes", "16,32", "--dtypes", "float32", "--seconds", "0.001", "--device",
                       "cpu", "--json", products});
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_EQ(read_json(products).size(), 2u);
  EXPECT_EQ(read_json(products)[1]["shape"], "32 x 32 x 32 f32");
  ended = run_program({"bench", "matmul", "--dtypes", "float99"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.output, HasSubstr("expected bfloat16 or float32, saw 'float99'"));
}

TEST(BenchCommand, MeasuresMixtures) {
  const TemporaryDirectory directory;
  const std::string file = directory.path() / "mixtures.json";
  Ended ended =
      run_program({"bench", "grouped_gemm", "--shapes", "32x4,16x2", "--hidden_size", "64", "--intermediate_size", "24",
                   "--dtype", "float32", "--seconds", "0.001", "--device", "cpu", "--json", file});
  ASSERT_EQ(ended.code, 0) << ended.output;
  ASSERT_EQ(read_json(file).size(), 6u);
  EXPECT_EQ(read_json(file)[5]["what"], "grouped_gemm forward and backward");
  EXPECT_EQ(read_json(file)[5]["shape"], "16 tokens, 2 experts of 64 x 24, 6 a token");
  ended = run_program({"bench", "grouped_gemm", "--shapes", "32y4"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.output, HasSubstr("shapes: expected tokens x experts, such as 4096x64, saw '32y4'"));
}

TEST(BenchCommand, MeasuresAttentionToLatentRows) {
  const TemporaryDirectory directory;
  const std::string file = directory.path() / "latent.json";
  const Ended ended = run_program({"bench", "latent_attention", "--heads", "2", "--streams", "1,3", "--contexts", "40",
                                   "--dtype", "float32", "--seconds", "0.001", "--device", "cpu", "--json", file});
  ASSERT_EQ(ended.code, 0) << ended.output;
  ASSERT_EQ(read_json(file).size(), 4u);
  EXPECT_EQ(read_json(file)[3]["what"], "latent_attention");
  EXPECT_EQ(read_json(file)[3]["shape"], "2 heads, streams 3, context 40");
  for (const std::string key : {"heads", "streams", "contexts"}) {
    const Ended refused = run_program({"bench", "latent_attention", "--" + key, "0", "--device", "cpu"});
    EXPECT_EQ(refused.code, 1);
    EXPECT_THAT(refused.output, HasSubstr("--" + key + ": expected"));
    EXPECT_THAT(refused.output, HasSubstr("saw '0'"));
  }
}

TEST(BenchCommand, TrainWritesItsFigures) {
  const TemporaryDirectory directory;
  const std::string file = directory.path() / "train.json";
  const Ended ended =
      run_program({"bench", "train", "--model", "quickstart", "--layers", "1", "--seq_len", "16", "--seconds", "0.01",
                   "--warmup_seconds", "0", "--device", "cpu", "--tune_gemm", "--json", file});
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_EQ(read_json(file)[0]["unit"], "tokens/s");
  EXPECT_THAT(ended.output, HasSubstr("has no effect on the CPU, whose GEMM has one algorithm"));
  EXPECT_THAT(ended.output,
              testing::ContainsRegex("[0-9] [MG]FLOP/s, MFU [0-9.]+% of [0-9.]+ [kMGT]FLOP/s in a large GEMM"));
  EXPECT_THAT(ended.output, testing::Not(HasSubstr(" 0.0 ")));
}

TEST(BenchCommand, TrainsInFp8) {
  const TemporaryDirectory directory;
  const std::string file = directory.path() / "train.json";
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all{"bench",     "train", "--model",   "quickstart", "--layers",         "1",
                                 "--seq_len", "24",    "--seconds", "0.01",       "--warmup_seconds", "0",
                                 "--device",  "cpu",   "--json",    file};
    all.insert(all.end(), more.begin(), more.end());
    return run_program(all);
  };
  const Ended ended = with({"--fp8"});
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_EQ(read_json(file)[0]["unit"], "tokens/s");
  const Ended without = with({"--fp8_weight_quant"});
  EXPECT_EQ(without.code, 0) << without.output;
  EXPECT_THAT(without.output, HasSubstr("--fp8_weight_quant has no effect: fp8 is not set"));
  const Ended half = with({"--fp8", "--fp8_activation_quant=false"});
  EXPECT_EQ(half.code, 1);
  EXPECT_THAT(half.output, HasSubstr("--fp8_activation_quant: is false, but a product in FP8 has both operands"));
  const Ended wide = with({"--fp8", "--dtype", "float32"});
  EXPECT_EQ(wide.code, 1);
  EXPECT_THAT(wide.output, HasSubstr("fp8: is for weights of bfloat16, these are f32"));
}

TEST(BenchCommand, TrainsInSeveralProcesses) {
  const TemporaryDirectory directory;
  const std::string file = directory.path() / "train.json";
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all{"bench",     "train", "--model",   "quickstart", "--layers",         "1",
                                 "--seq_len", "16",    "--seconds", "0.01",       "--warmup_seconds", "0",
                                 "--device",  "cpu",   "--dtype",   "float32",    "--num_processes",  "2",
                                 "--json",    file};
    all.insert(all.end(), more.begin(), more.end());
    return run_program(all);
  };
  for (const char* stage : {"0", "3"}) {
    const Ended ended = with({"--zero_stage", stage});
    ASSERT_EQ(ended.code, 0) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr(", a process of 2"));
    EXPECT_THAT(read_json(file)[0]["shape"].get<std::string>(), HasSubstr(", a process of 2"));
    EXPECT_EQ(read_json(file).size(), 4u);  // rank 0 alone writes
  }
  EXPECT_EQ(with({"--profile", "true"}).code, 1);
}

TEST(BenchCommand, GrpoWritesItsFiguresByPhase) {
  const TemporaryDirectory directory;
  const std::string file = directory.path() / "grpo.json";
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all{"bench",
                                 "grpo",
                                 "--model",
                                 "quickstart",
                                 "--layers",
                                 "1",
                                 "--num_generations",
                                 "4",
                                 "--per_device_train_batch_size",
                                 "4",
                                 "--gradient_accumulation_steps",
                                 "2",
                                 "--prompt_len",
                                 "5",
                                 "--mean_completion_len",
                                 "8",
                                 "--max_completion_length",
                                 "24",
                                 "--steps",
                                 "3",
                                 "--warmup_steps",
                                 "1",
                                 "--device",
                                 "cpu",
                                 "--json",
                                 file};
    all.insert(all.end(), more.begin(), more.end());
    return run_program(all);
  };
  for (const std::string staleness : {"0", "1"}) {
    const Ended ended = with({"--max_staleness", staleness, "--beta", "0.1", "--dtype", "float32"});
    ASSERT_EQ(ended.code, 0) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr("2 prompts x 4 completions of up to 24 tokens"));
    std::map<std::string, double> figures;
    double phases = 0;
    for (const Json& row : read_json(file)) {
      const auto name = row["what"].get<std::string>() + " " + row["unit"].get<std::string>();
      figures[name] = row["figure"].get<double>();
      if (name.starts_with("grpo, ") && name.ends_with(" ms")) phases += figures[name];
    }
    for (const char* phase : {"generation", "loss and backward", "update", "log-probabilities of the reference"})
      EXPECT_GT(figures.at(text_of("grpo, ", phase, " ms")), 0.0) << phase;
    EXPECT_NEAR(phases, figures.at("grpo ms"), 1e-6 * phases);
    EXPECT_GT(figures.at("grpo tokens/s"), 0.0);
    EXPECT_LT(figures.at("grpo, padding rows %"), 100.0);
    EXPECT_LT(figures.at("grpo, device idle %"), 100.0);
    EXPECT_EQ(figures.contains("grpo, stale tokens %"), staleness == "1");
    if (staleness == "1") {
      EXPECT_GT(figures.at("grpo, stale tokens %"), 0.0);
      EXPECT_GT(figures.at("grpo, log-probabilities of the trainer ms"), 0.01) << "a forward pass";
    }
  }
  const Ended refused = with({"--num_generations", "3"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.output, HasSubstr("do not divide by num_generations 3"));
}

TEST(BenchCommand, DecodeWritesItsFigures) {
  const TemporaryDirectory directory;
  const std::string file = directory.path() / "decode.json";
  const auto with = [](std::vector<std::string> more) {
    more.insert(more.begin(),
                {"bench", "decode", "--model", "quickstart", "--layers", "1", "--steps", "4", "--device", "cpu"});
    return run_program(more);
  };
  const Ended ended = with({"--contexts", "20", "--streams", "1,3", "--profile", "--json", file});
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("streams 3, context 20: "));
  EXPECT_THAT(ended.output, HasSubstr("paged_attention"));
  EXPECT_THAT(ended.output, HasSubstr(" of which some 22 are in use"));
  EXPECT_THAT(ended.output, HasSubstr("% of a read's "));
  EXPECT_EQ(read_json(file).size(), 8u);
  EXPECT_EQ(read_json(file)[0]["unit"], "tokens/s");
  EXPECT_THAT(with({"--contexts", "2"}).output,
              HasSubstr("--contexts: 2 is no longer than half of the 4 measured steps"));
  EXPECT_THAT(with({"--contexts", "100000"}).output, HasSubstr("error: contexts: sequences of up to"));
}

TEST(BenchResults, FindsTheCommit) {
  const TemporaryDirectory directory;
  const fs::path root = directory.path();
  const std::string commit(40, 'a');
  EXPECT_EQ(commit_of(root / "deeper"), commit_of(root));
  hone::create_directories(root / ".git/refs/heads");
  write_file(root / ".git/HEAD", "ref: refs/heads/main\n");
  EXPECT_EQ(commit_of(root), "");
  write_file(root / ".git/packed-refs", "# pack-refs\n" + commit + " refs/heads/main\n");
  EXPECT_EQ(commit_of(root), commit);
  write_file(root / ".git/refs/heads/main", std::string(40, 'b') + "\n");
  EXPECT_EQ(commit_of(root / "not/there"), std::string(40, 'b'));
  write_file(root / ".git/HEAD", std::string(40, 'c') + "\n");
  EXPECT_EQ(commit_of(root), std::string(40, 'c'));
  hone::create_directories(root / "linked");
  write_file(root / "linked/.git", "gitdir: " + (root / ".git").string() + "\n");
  EXPECT_EQ(commit_of(root / "linked"), std::string(40, 'c'));
}

int shell(const std::string& command) { return std::system(command.c_str()); }

TEST(BenchResults, AreStaleOnceTheirKernelsChange) {
  if (shell("git --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "git is not installed";
  const TemporaryDirectory directory;
  const fs::path root = directory.path();
  const auto git = [&](const std::string& arguments) {
    return shell("cd '" + root.string() +
                 "' && git -c user.name=n -c user.email=e -c init.defaultBranch=main -c commit.gpgsign=false " +
                 arguments + " > /dev/null 2>&1");
  };
  ASSERT_EQ(git("init"), 0);
  for (const char* folder : {"src/ops/rms_norm", "src/ops/add_rms_norm", "src/backend", "bench/results"}) {
    hone::create_directories(root / folder);
    write_file(root / folder / "file", "1");
  }
  ASSERT_EQ(git("add -A") + git("commit -m first"), 0);
  const std::string commit = commit_of(root);
  ASSERT_EQ(commit.size(), 40u);
  const auto row = [](const std::string& what, const std::string& at) {
    return Json{{"what", what},   {"shape", "of \"" + what + "\""},
                {"figure", 12.5}, {"unit", "us"},
                {"machine", "m"}, {"command", "c"},
                {"commit", at},   {"date", "2026-01-02"}}
        .dump();
  };
  write_file(root / "bench/results/a.json", "[\n" + row("kernel rms_norm_backward", commit) + ",\n" +
                                                row("kernel add_rms_norm", commit) + ",\n" + row("train", commit) +
                                                ",\n" + row("copy", commit) + ",\n" +
                                                row("matmul", std::string(40, 'f')) + "\n]\n");
  write_file(root / "src/ops/rms_norm/file", "2");
  ASSERT_EQ(git("commit -am second"), 0);
  const auto listed = [&](const std::string& arguments) {
    const std::string script = (source_dir() / "bench/list_results.sh").string();
    const int status = shell("HONE_CHECKOUT='" + root.string() + "' '" + script + "' " + arguments + " > '" +
                             (root / "log").string() + "'");
    EXPECT_NE(status, 0) << "rows are stale";
    return split(read_file(root / "log"), '\n');
  };
  const std::vector<std::string> all = listed("");
  ASSERT_EQ(all.size(), 6u);  // five rows and the empty string after the last line break
  EXPECT_THAT(all[0], HasSubstr("[stale: src/ops/rms_norm changed since"));
  EXPECT_THAT(all[0], HasSubstr("12.5 us"));
  EXPECT_THAT(all[1], testing::Not(HasSubstr("stale")));
  EXPECT_THAT(all[2], HasSubstr("[stale: src/ops src/backend changed"));
  EXPECT_THAT(all[3], testing::Not(HasSubstr("stale")));
  EXPECT_THAT(all[4], HasSubstr("unknown commit"));
  EXPECT_EQ(listed("--stale").size(), 4u);
}

}  // namespace
}  // namespace hone::test
