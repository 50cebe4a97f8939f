// hone profile and hone bench: what they say adds up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <set>

#include "cli/bench/results.h"
#include "cli/bench/training_step.h"
#include "cli/profile/categories.h"
#include "cli/profile/one_op.h"
#include "cli/profile/report.h"
#include "cli/profile/timeline.h"
#include "cli/program.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "support/miniature.h"
#include "support/paths.h"
#include "train/setup.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

StepOptions small_step() {
  StepOptions options;
  options.model = "quickstart";
  options.layers = 2;
  options.batch_size = 2;
  options.seq_len = 16;
  options.device = DeviceChoice::cpu;
  return options;
}

TEST(Profile, SortsOperations) {
  EXPECT_EQ(category_of("linear"), "GEMM");
  EXPECT_EQ(category_of("linear_weight_gradient"), "GEMM");
  EXPECT_EQ(category_of("linear_logprobs_backward"), "loss");
  EXPECT_EQ(category_of("add_rms_norm_backward"), "normalization");
  EXPECT_EQ(category_of("rope_table"), "RoPE");
  EXPECT_EQ(category_of("adamw_8bit"), "optimizer");
  EXPECT_EQ(category_of("linearly"), "other");
  EXPECT_EQ(category_of(""), "other");
}

TEST(Profile, TakesLayersAsOne) {
  EXPECT_EQ(module_of_scope("layers.3.attention"), "layers.*.attention");
  EXPECT_EQ(module_of_scope("layers.31"), "layers.*");
  EXPECT_EQ(module_of_scope("head"), "head");
  EXPECT_EQ(module_of_scope(""), "model");
}

TEST(Profile, CountsPairsOfDocumentsOnly) {
  StepOptions options = small_step();
  const std::unique_ptr<Model> model = open_shape(options);
  const StepPrograms programs = trace_step(options, *model);
  const HostBatch batch = random_batch(options, 512);
  bool found = false;
  for (const Node& node : programs.training.nodes()) {
    if (node.op->name() != "attention") continue;
    found = true;
    const double whole = work_of(programs.training, node, {}).flops;
    const double share = (2.0 * 16 * 17) / (32 * 33);
    EXPECT_NEAR(work_of(programs.training, node, batch).flops, whole * share, 1e-6 * whole);
  }
  EXPECT_TRUE(found);
}

TEST(Profile, PacksDocumentsOfRandomLengths) {
  StepOptions options = small_step();
  options.batch_size = 3;
  options.seq_len = 200;
  options.document_len = 21;
  const std::vector<std::int64_t> lengths = document_lengths(options);
  std::int64_t sum = 0;
  for (const std::int64_t length : lengths) {
    const std::int64_t left = options.seq_len - sum % options.seq_len;  // of the sequence
    EXPECT_LE(length, std::min<std::int64_t>(left, 32));
    EXPECT_GE(length, std::min<std::int64_t>(left, 11));
    sum += length;
  }
  EXPECT_EQ(sum, 600);
  EXPECT_NE(lengths[0], lengths[1]);
  const HostBatch batch = random_batch(options, 512);
  ASSERT_EQ(batch.document_count(), static_cast<std::int64_t>(lengths.size()));
  EXPECT_EQ(batch.target_tokens, 600 - batch.document_count());
  for (std::size_t d = 0; d < lengths.size(); ++d) {
    const auto begin = static_cast<std::size_t>(batch.cu_seqlens[d]);
    const auto last = static_cast<std::size_t>(batch.cu_seqlens[d + 1]) - 1;
    EXPECT_EQ(batch.positions[begin], 0);
    EXPECT_EQ(batch.positions[last], lengths[d] - 1);
    EXPECT_EQ(batch.targets[last], -1);
    EXPECT_EQ(batch.loss_weights[last], 0.0f);
    if (lengths[d] > 1) {
      EXPECT_EQ(batch.targets[begin], batch.tokens[begin + 1]);
    }
  }
}

// Two profiled steps of two micro-steps.
Timeline profiled() {
  const StepOptions options = small_step();
  const std::unique_ptr<Model> model = open_shape(options);
  StepPrograms programs = trace_step(options, *model);
  const std::vector<HostBatch> batches(2, random_batch(options, 512));
  TrainingStep step(*model, std::move(programs.training), optimizer_options(options.training()), DType::bf16,
                    cpu_device());
  Timeline timeline;
  for (int i = 0; i < 2; ++i) step.run_profiled(batches, timeline);
  return timeline;
}

TEST(Profile, TimelineHoldsEveryRunInOrder) {
  const Timeline timeline = profiled();
  ASSERT_EQ(timeline.steps.size(), 2u);
  ASSERT_FALSE(timeline.runs.empty());
  double end = timeline.steps[0].begin;
  for (const ProfiledRun& run : timeline.runs) {
    EXPECT_GE(run.begin, end - 1e-6);
    end = run.begin + run.seconds;
  }
  EXPECT_LE(end, timeline.steps[1].begin + timeline.steps[1].seconds + 1e-6);
}

TEST(Profile, SharesAddUpToTheStep) {
  const Timeline timeline = profiled();
  const ProfileReport report = make_report(timeline, {.copy_bytes_per_second = 1e10, .flops_per_second = 1e11});
  EXPECT_NEAR(report.step_seconds, (timeline.steps[0].seconds + timeline.steps[1].seconds) / 2, 1e-12);
  const auto sum = [](const auto& parts) {
    return std::accumulate(parts.begin(), parts.end(), 0.0,
                           [](double total, const auto& part) { return total + part.seconds; });
  };
  EXPECT_NEAR(sum(report.categories), report.step_seconds, 1e-9);
  EXPECT_NEAR(sum(report.kernels) + report.between_seconds, report.step_seconds, 1e-9);
  EXPECT_NEAR(sum(report.modules), sum(report.kernels), 1e-9);
  for (const ShareOfStep& category : report.categories) EXPECT_THAT(kCategories, testing::Contains(category.name));
  double runs = 0;
  for (const KernelSummary& kernel : report.kernels) {
    runs += kernel.runs;
    EXPECT_GT(kernel.runs, 0);
    EXPECT_GE(kernel.floor, std::max(kernel.flops / 1e11, kernel.bytes / 1e10) * (1 - 1e-9));
  }
  EXPECT_NEAR(runs, static_cast<double>(timeline.runs.size()) / 2, 1e-6);
  // Two layers are one module; each micro-step has a product of each kind in each.
  const auto swiglu = std::ranges::find_if(report.kernels, [](const auto& k) { return k.op == "swiglu"; });
  ASSERT_NE(swiglu, report.kernels.end());
  EXPECT_EQ(swiglu->module, "layers.*.mlp");
  EXPECT_EQ(swiglu->category, "activation");
  EXPECT_NEAR(swiglu->runs, 4, 1e-9);
  const Json json = to_json(report);
  EXPECT_EQ(json["kernels"].size(), report.kernels.size());
}

TEST(Profile, TraceHasAnEventForEveryRun) {
  const Timeline timeline = profiled();
  const Json trace = parse_json(chrome_trace(timeline, "a \"title\"").dump(), "trace");
  std::map<int, std::size_t> events;
  double step_end = 0;
  double last = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ++events[event["tid"].get<int>()];
    EXPECT_GE(event["ts"].get<double>(), 0.0);
    EXPECT_GE(event["dur"].get<double>(), 0.0);
    const double end = event["ts"].get<double>() + event["dur"].get<double>();
    (event["tid"] == 1 ? step_end : last) = end;
    if (event["tid"] != 3) continue;
    EXPECT_THAT(kCategories, testing::Contains(event["cat"].get<std::string>()));
    EXPECT_TRUE(event["args"].contains("module"));
  }
  EXPECT_EQ(events[1], 2u);
  EXPECT_EQ(events[3], timeline.runs.size());
  EXPECT_GT(events[2], 4u);
  EXPECT_LT(events[2], events[3]);
  EXPECT_LE(last, step_end + 1);
}

Timeline made_up(double gemm, double norm, double adamw, double step) {
  Timeline timeline;
  const auto add = [&](const char* op, double seconds, double flops, double bytes, Phase phase) {
    timeline.nodes.push_back({.op = op,
                              .category = category_of(op),
                              .scope = "layers.0.mlp",
                              .phase = phase,
                              .shapes = "",
                              .flops = flops,
                              .bytes = bytes});
    timeline.runs.push_back({timeline.nodes.size() - 1, 0, seconds});
  };
  add("linear", gemm, 0.5 * gemm * 1e12, 0, Phase::forward);
  add("rms_norm", norm, 0, 0.2 * norm * 1e9, Phase::forward);
  add("adamw", adamw, 0, 0.95 * adamw * 1e9, Phase::update);
  timeline.steps.push_back({0, step});
  return timeline;
}

TEST(Profile, AdviceNamesWhatStandsOut) {
  const DeviceLimits limits{.copy_bytes_per_second = 1e9, .flops_per_second = 1e12};
  const ProfileReport bad = make_report(made_up(0.5, 0.2, 0.2, 1.0), limits);
  const std::string said = join(advice(bad, {.tuned = false, .gpu = true, .gradient_accumulation_steps = 1}), "\n");
  EXPECT_THAT(said, HasSubstr("10.0% of the step lie between operations"));
  EXPECT_THAT(said, HasSubstr("--tune_gemm"));
  EXPECT_THAT(said, HasSubstr("rms_norm (layers.*.mlp, forward) takes 20.0% of the step at 20%"));
  EXPECT_THAT(said, HasSubstr("gradient_accumulation_steps"));
  EXPECT_THAT(join(advice(bad, {.tuned = true, .gpu = true}), "\n"), testing::Not(HasSubstr("--tune_gemm")));
  EXPECT_THAT(to_text(bad), HasSubstr("no matrix products, and above 2% of the step:\n  adamw"));
  const ProfileReport good = make_report(made_up(0.98, 0.01, 0.01, 1.0), limits);
  EXPECT_THAT(join(advice(good, {.tuned = true, .gpu = true}), "\n"), HasSubstr("Nothing stands out"));
}

TEST(ProfileCommand, WritesItsFiles) {
  const TemporaryDirectory directory;
  const std::string folder = directory.path() / "out";
  const Ended ended = run_program({"profile", "--model", "quickstart", "--layers", "1", "--seq_len", "16",
                                   "--gradient_accumulation_steps", "2", "--num_steps", "2", "--warmup_steps", "2",
                                   "--limit_seconds", "0.01", "--device", "cpu", "--output_dir", folder});
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("category"));
  EXPECT_THAT(ended.output, HasSubstr("layers.*.attention"));
  const Json summary = read_json(fs::path(folder) / "kernel_summary.json");
  EXPECT_EQ(summary["num_steps"], 2);
  EXPECT_GT(summary["unprofiled_step_ms"].get<double>(), 0.0);
  double sum = 0;
  for (const Json& category : summary["categories"]) sum += category["ms"].get<double>();
  EXPECT_NEAR(sum, summary["step_ms"].get<double>(), 1e-6);
  EXPECT_FALSE(summary["advice"].empty());
  const Json trace = read_json(fs::path(folder) / "chrome_trace.json");
  std::size_t updates = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["name"] == "gradient_norm") ++updates;
  }
  EXPECT_EQ(updates, 2u);
}

TEST(ProfileCommand, TakesARecipe) {
  const TemporaryDirectory directory;
  write_miniature(directory.path());
  const std::string recipe = directory.path() / "recipe.yaml";
  write_file(recipe, text_of("model_config_path: ", (directory.path() / "model.json").string(),
                             "\ntokenizer_name_or_path: ", (directory.path() / "tokenizer").string(),
                             "\ndataset_name: ", (directory.path() / "data/corpus.jsonl").string(),
                             "\nblock_size: 32\nper_device_train_batch_size: 2\nwarmup_steps: 7\ndevice: cpu\n"));
  const std::string folder = directory.path() / "out";
  const Ended ended = run_program({"profile", "pretrain", recipe, "--num_steps", "1", "--warmup_steps", "2",
                                   "--limit_seconds", "0.01", "--output_dir", folder});
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_EQ(read_json(fs::path(folder) / "kernel_summary.json")["what"], "pretrain");
}

TEST(ProfileCommand, RefusesWhatItDoesNotKnow) {
  const Ended ended = run_program({"profile", "walk", "x"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.output, HasSubstr("expected pretrain or sft and a recipe, saw 'walk x'"));
}

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

TEST(BenchCommand, TrainWritesItsFigures) {
  const TemporaryDirectory directory;
  const std::string file = directory.path() / "train.json";
  const Ended ended =
      run_program({"bench", "train", "--model", "quickstart", "--layers", "1", "--seq_len", "16", "--seconds", "0.01",
                   "--warmup_seconds", "0", "--device", "cpu", "--tune_gemm", "--json", file});
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_EQ(read_json(file)[0]["unit"], "tokens/s");
  EXPECT_THAT(ended.output, HasSubstr("the host's matrix product has one algorithm"));
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
  if (shell("git --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "there is no git";
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
  ASSERT_EQ(all.size(), 6u);  // the last is empty
  EXPECT_THAT(all[0], HasSubstr("[stale: src/ops/rms_norm changed since"));
  EXPECT_THAT(all[0], HasSubstr("12.5 us"));
  EXPECT_THAT(all[1], testing::Not(HasSubstr("stale")));
  EXPECT_THAT(all[2], HasSubstr("[stale: src/ops src/backend changed"));
  EXPECT_THAT(all[3], testing::Not(HasSubstr("stale")));
  EXPECT_THAT(all[4], HasSubstr("its commit is not known"));
  EXPECT_EQ(listed("--stale").size(), 4u);
}

}  // namespace
}  // namespace hone::test
