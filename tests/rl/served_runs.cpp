#include "rl/served_runs.h"

#include "core/error.h"
#include "core/files.h"

namespace hone::test {

namespace fs = std::filesystem;

ServedRuns::ServedRuns(std::size_t servers, bool over_nccl) : nccl_(test_device()) {
  SmallServerOptions options;
  options.allow_weight_updates = true;
  if (over_nccl) options.broadcasts = nccl_.backend();
  for (std::size_t i = 0; i < servers; ++i) servers_.emplace_back(options);
  servers_.front().write_weights(folder_.path(), 1);
}

GrpoOptions ServedRuns::options(const fs::path& output_dir) const {
  GrpoOptions options = small_options(output_dir);
  options.device = DeviceChoice::kCpu;
  options.per_device_train_batch_size = 8;
  options.learning_rate = 1e-2;
  options.rollout = RolloutKind::kServer;
  options.rollout_server = RolloutServer::kHone;
  for (const SmallServer& server : servers_)
    options.vllm_server_url.push_back(text_of("http://127.0.0.1:", server.port()));
  options.vllm_server_timeout = 36'000;  // no server here is late
  return options;
}

GrpoRun ServedRuns::run(const GrpoOptions& options, std::int64_t steps) {
  GrpoRun run = make_run(options, steps, folder_.path().c_str());
  run.stop_token_ids.resize(16);  // a request names no more
  run.broadcasts = nccl_.backend();
  return run;
}

std::vector<MetricRow> ServedRuns::train(const GrpoOptions& options, std::int64_t steps) {
  GrpoRun started = run(options, steps);
  (void)hone::train(started);
  return read_metrics(fs::path(options.output_dir) / "metrics.jsonl");
}

void expect_same_run(const fs::path& output, const fs::path& other, std::int64_t steps) {
  EXPECT_EQ(read_file(output / "model.safetensors"), read_file(other / "model.safetensors"));
  for (std::int64_t step = 1; step <= steps; ++step) {
    const fs::path file = fs::path("completions") / text_of("step-", step, ".jsonl");
    EXPECT_EQ(read_file(output / file), read_file(other / file)) << step;
  }
}

}  // namespace hone::test
