#include "train/scripted_run.h"

#include "core/json_value.h"
#include "support/device.h"
#include "support/models.h"
#include "train/loss_program.h"
#include "train/trainer.h"

namespace hone::test {
namespace {

class ToldTask final : public TrainingTask {
 public:
  ToldTask(Executable& executable, HostBatch batch, const ScriptedRun& run)
      : executable_(executable), batch_(std::move(batch)), run_(run) {}

  MetricValues accumulate(std::int64_t step) override {
    ++steps_;
    if (run_.in_step) run_.in_step(step);
    LossLaunches launches(executable_, 1, 3, step);
    launches.launch(batch_, 1.0 / static_cast<double>(batch_.target_tokens));
    return {{"loss", launches.sums().loss}};
  }
  double epoch() const override { return static_cast<double>(steps_) / static_cast<double>(run_.steps_per_epoch); }
  std::int64_t tokens_seen() const override { return steps_; }
  double flops() const override { return 1; }
  MetricValues evaluate(std::int64_t step) override {
    if (run_.in_evaluation) run_.in_evaluation(step);
    return {{run_.metric, step == 0 ? 9.0 : run_.evaluations.at(static_cast<std::size_t>(step - 1))}};
  }
  Json last_batch() const override { return {}; }
  Json state() const override { return {{"steps", steps_}}; }
  void restore(const Json& state, std::span<const TaskTensor>) override {
    steps_ = state.at("steps").get<std::int64_t>();
  }

 private:
  Executable& executable_;
  HostBatch batch_;
  const ScriptedRun& run_;
  std::int64_t steps_ = 0;
};

}  // namespace

void run_scripted(const std::filesystem::path& folder, ScriptedRun run) {
  FixtureModel fixture("gpt2");
  Json config = fixture.model->config();
  config["resid_pdrop"] = 0.1;
  const std::unique_ptr<Model> model = family_registry().create(config);
  const HostBatch batch = fixture.batch();
  auto arena = std::make_shared<Arena>(test_device());
  Optimizer optimizer(*model, fixture.weights, arena, {});
  Executable executable(trace_training(*model, {.capacity = {batch.token_count(), batch.document_count()}}), arena,
                        {.weights = &fixture.weights, .gradients = &optimizer.gradients()});
  const Tokenizer tokenizer = letter_tokenizer(model->shape().vocab_size);
  run.options.output_dir = folder.string();
  run.options.learning_rate = 1e-3;
  run.options.lr_scheduler_type = SchedulerType::kConstant;
  ToldTask task(executable, batch, run);
  Trainer trainer(run.options, {.command = "test", .total_steps = run.steps, .options = run.options_json},
                  {.model = *model,
                   .weights = fixture.weights,
                   .optimizer = optimizer,
                   .tokenizer = tokenizer,
                   .generation_config = "{}"});
  trainer.run(task);
}

}  // namespace hone::test
