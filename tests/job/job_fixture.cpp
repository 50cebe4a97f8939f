#include "job/job_fixture.h"

#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <thread>
#include <utility>

#include "cli/program.h"
#include "cli/server_program.h"
#include "core/files.h"
#include "core/strings.h"
#include "model/registry.h"
#include "model/weights.h"
#include "support/miniature.h"
#include "support/models.h"
#include "train/metrics.h"

namespace hone::test {
namespace fs = std::filesystem;
namespace {

std::size_t lines_of(const fs::path& file) {
  return is_file(file) ? static_cast<std::size_t>(std::ranges::count(read_file(file), '\n')) : 0;
}

}  // namespace

Flags joined(Flags a, const Flags& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Flags served_by(const std::vector<const ServerProgram*>& servers) {
  std::string urls;
  for (const ServerProgram* server : servers)
    urls += (urls.empty() ? "http://127.0.0.1:" : ",http://127.0.0.1:") + std::to_string(server->port());
  return {"--rollout",         "server", "--rollout_server",      "hone",
          "--vllm_server_url", urls,     "--vllm_server_timeout", "36000"};
}

std::size_t lines_with(std::string_view start, const std::string& text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(split(text, '\n'), [&](const std::string& line) { return line.starts_with(start); }));
}

std::vector<Words> planned_lines(const std::string& plan, std::string_view name) {
  std::vector<Words> lines;
  for (const std::string& line : split(plan, '\n')) {
    if (!trim(line).starts_with(name) || !line.ends_with(" bytes")) continue;
    lines.push_back(split(std::string(trim(line)), ' '));
    std::erase(lines.back(), "");
  }
  return lines;
}

double planned_bytes(const Words& line) {
  std::string digits = line.at(line.size() - 2);
  std::erase(digits, ',');
  return std::stod(digits);
}

JobFixture::JobFixture() { write_miniature(folder_.path()); }

Flags JobFixture::batches(int micro_batches, int processes) {
  return {"--per_device_train_batch_size",
          "2",
          "--gradient_accumulation_steps",
          std::to_string(micro_batches),
          "--num_processes",
          std::to_string(processes)};
}

Flags JobFixture::pretraining(const std::string& output, int max_steps, int eval_steps, const Flags& more) const {
  const Flags run{"--max_steps",       std::to_string(max_steps),
                  "--save_steps",      "4",
                  "--learning_rate",   "2e-3",
                  "--device",          "cpu",
                  "--test_split_size", "0.1",
                  "--eval_strategy",   "steps",
                  "--eval_steps",      std::to_string(eval_steps),
                  "--output_dir",      path(output).string()};
  return pretrain_arguments(folder_.path(), joined(run, more));
}

Flags JobFixture::fine_tuning(const std::string& model, const std::string& output, const Flags& more) const {
  return joined({"sft", "--model_name_or_path", path(model).string(), "--dataset_name", path("data/sft.jsonl").string(),
                 "--logging_steps", "1", "--device", "cpu", "--output_dir", path(output).string()},
                more);
}

Flags JobFixture::reinforcement(const std::string& model, const std::string& output, const Flags& more) const {
  return joined(
      {"grpo", "--model_name_or_path", path(model).string(), "--dataset_name", path("data/prompts.jsonl").string(),
       "--dataset_prompt_column", "problem", "--reward_funcs", "tag_count,length", "--num_generations", "4",
       "--per_device_train_batch_size", "4", "--device", "cpu", "--output_dir", path(output).string()},
      more);
}

void JobFixture::finish(const Flags& command) {
  const Ended ended = run_program(command);
  ASSERT_EQ(ended.code, 0) << ended.output;
}

std::string JobFixture::refusal(const Flags& command) {
  const Ended ended = run_program(command);
  EXPECT_EQ(ended.code, 1) << ended.output;
  return ended.output;
}

std::string JobFixture::plan_of(const Flags& command) {
  const Ended planned = run_program(joined({"plan"}, command));
  EXPECT_EQ(planned.code, 0) << planned.output;
  return planned.output;
}

double JobFixture::finish_as_planned(const Flags& command) {
  const std::string plan = plan_of(command);
  const auto total = planned_lines(plan, "total");
  const auto held = planned_lines(plan, "weights");
  if (total.size() != 1 || held.size() != 1 || total[0].size() != 5 || held[0].size() != 5) {
    ADD_FAILURE() << plan;
    return 0;
  }
  const Ended ran = run_program(command);
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output, ::testing::HasSubstr(total[0][1] + " " + total[0][2] + " on "));
  return planned_bytes(held[0]);
}

pid_t JobFixture::start_until(const Flags& command, const fs::path& log, const std::string& output,
                              std::size_t lines) const {
  const pid_t job = start_program(command, log);
  while (lines_of(path(output) / "metrics.jsonl") < lines && is_running(job)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return job;
}

void JobFixture::kill_rank(pid_t job, std::size_t processes, int victim, const fs::path& log) {
  const std::vector<pid_t> ranks = ranks_of(job);
  ASSERT_EQ(ranks.size(), processes) << read_file(log);
  ::kill(ranks[static_cast<std::size_t>(victim)], SIGKILL);
  EXPECT_NE(wait_for(job), 0);
  const std::string said = read_file(log);
  EXPECT_THAT(said, ::testing::HasSubstr("hone: error: rank " + std::to_string(victim) + " (")) << said;
  EXPECT_THAT(said, ::testing::HasSubstr("has ended (step ")) << said;
  EXPECT_EQ(lines_with("hone: error", said), 1u) << said;
  for (const pid_t rank : ranks) EXPECT_NE(::kill(rank, 0), 0);
}

void JobFixture::expect_continues_killed(const Flags& command, std::size_t processes, int victim,
                                         std::size_t lines) const {
  const fs::path log = path("log " + std::to_string(victim));
  kill_rank(start_until(command, log, "killed", lines), processes, victim, log);
  finish(command);
  EXPECT_EQ(weights("killed"), weights("whole"));
}

void JobFixture::copy_checkpoint(const std::string& from, const std::string& to, int step) const {
  const std::string checkpoint = "checkpoint-" + std::to_string(step);
  fs::create_directories(path(to));
  fs::copy(path(from) / checkpoint, path(to) / checkpoint, fs::copy_options::recursive);
}

std::vector<double> JobFixture::series(const std::string& output, const std::string& metric) const {
  return metric_series(read_metrics(path(output) / "metrics.jsonl"), metric).values;
}

std::string JobFixture::weights(const std::string& output) const {
  return read_file(path(output) / "model.safetensors");
}

NamedValues JobFixture::weight_values(const std::string& output) const {
  const ModelDirectory directory(path(output));
  const std::unique_ptr<Model> model = family_registry().create(directory.config());
  NamedValues all = values_of(*model, load_weights(*model, directory, DType::kF32, cpu_device()));
  for (auto& [name, values] : all) {
    if (!name.ends_with("qkv_bias")) continue;
    constexpr std::ptrdiff_t kQueries = 32;  // the width of all queries of SmallModel
    const auto keys = (static_cast<std::ptrdiff_t>(values.size()) - kQueries) / 2;
    values.erase(values.begin() + kQueries, values.begin() + kQueries + keys);
  }
  return all;
}

void JobFixture::expect_near(const std::string& output, const std::string& one, const Flags& metrics) const {
  for (const std::string& metric : metrics) {
    const std::vector<double> values = series(output, metric);
    const std::vector<double> expected = series(one, metric);
    ASSERT_EQ(values.size(), expected.size()) << output << ", " << metric;
    ASSERT_FALSE(values.empty()) << output << ", " << metric;
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(values[i], expected[i], 1e-5) << output << ", " << metric << ", line " << i;
    }
  }
}

void JobFixture::expect_near_weights(const std::string& output, const std::string& one, double tolerance) const {
  const auto all = weight_values(output);
  const auto expected = weight_values(one);
  ASSERT_EQ(all.size(), expected.size()) << output;
  for (const auto& [name, values] : expected) {
    EXPECT_LT(relative_difference(all.at(name), values), tolerance) << output << ", " << name;
  }
}

void JobFixture::expect_same_bits(const std::string& output, const std::string& other) const {
  EXPECT_EQ(weights(output), weights(other)) << output;
  EXPECT_EQ(series(output, "loss"), series(other, "loss")) << output;
}

DividedJob::DividedJob(Division division, const Configs& configs) : division_(std::move(division)) {
  for (const auto& [name, config] : configs) write_file(path(name + ".json"), config);
}

Flags DividedJob::layout(int data, int size) const {
  return joined(batches(division_.micro_batches / data, division_.divides_sequences ? data : data * size),
                {division_.size_flag, std::to_string(size)});
}

Flags DividedJob::arguments(const std::string& config, const std::string& output, int data, int size,
                            const Flags& more) const {
  const Flags model{"--model_config_path", path(config + ".json").string()};
  return pretraining(output, division_.max_steps, division_.eval_steps,
                     joined(joined(joined(model, layout(data, size)), division_.pretraining), more));
}

void DividedJob::run(const std::string& config, const std::string& output, int data, int size,
                     const Flags& more) const {
  finish(arguments(config, output, data, size, more));
}

void DividedJob::tune(const std::string& model, const std::string& output, int data, int size,
                      const Flags& more) const {
  finish(fine_tuning(model, output, joined(joined({"--max_steps", "6"}, layout(data, size)), more)));
}

void DividedJob::resume(const std::string& config, const std::string& from, int step, const std::string& to, int data,
                        int size, const Flags& more) const {
  copy_checkpoint(from, to, step);
  run(config, to, data, size, more);
}

void DividedJob::expect_resumes(const std::string& config, const std::string& name, int data, int size,
                                const Flags& more) const {
  run(config, name + " whole", data, size, more);
  resume(config, name + " whole", 4, name + " parts", data, size, more);
  EXPECT_EQ(weights(name + " parts"), weights(name + " whole")) << name;
}

void DividedJob::expect_near_end(const std::string& output, const std::string& one, int step) const {
  const std::vector<double> values = series(output, "loss");
  const std::vector<double> expected = series(one, "loss");
  ASSERT_EQ(expected.size(), static_cast<std::size_t>(division_.max_steps)) << one;
  ASSERT_EQ(values.size(), static_cast<std::size_t>(division_.max_steps - step)) << output;
  for (std::size_t i = 1; i <= values.size(); ++i) {
    EXPECT_NEAR(values[values.size() - i], expected[expected.size() - i], 1e-5)
        << output << ", " << i << " from the end";
  }
}

}  // namespace hone::test
