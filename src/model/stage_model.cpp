#include "model/stage_model.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "ops/linear_logprobs/linear_logprobs.h"

namespace hone {
namespace {

constexpr const char* kStagesKey = "pipeline_parallel_size";
constexpr const char* kChunksKey = "virtual_pipeline_parallel_size";

[[noreturn]] void refuse_ranges(int stages, int chunks, const std::string& reason) {
  const char* const key = chunks > 1 ? kChunksKey : kStagesKey;
  const std::string with = chunks > 1 ? text_of(" with ", kStagesKey, " ", stages) : "";
  throw Error(key, text_of("is ", chunks > 1 ? chunks : stages, with, ", but ", reason), text_of("--", key, " 1"));
}

// Traces the model with its head over some tokens, of which only the proportions of costs matter.
Program trace_for_stages(const Model& model) {
  constexpr std::int64_t kTokens = 1024;
  Program program;
  DocumentBatch batch(program, {kTokens, 1});
  batch.learns = true;
  WeightBinder weights(program, model.traced_weights(), true);
  const Tensor hidden = model.forward(weights, batch);
  {
    const Scope scope(program, "head");
    program.output("loss", linear_logprobs(hidden, weights(model.head()), batch.targets(), {}).logp);
  }
  return model.adapted(std::move(program), {.trainable = true});
}

}  // namespace

StageModel::Traced StageModel::trace(const Model& all, int stages, int chunks) {
  Program program = trace_for_stages(all);
  const std::int64_t layers = count_layers(program);
  if (layers >= stages && layers < std::int64_t{stages} * chunks) {
    refuse_ranges(stages, chunks, text_of("the model has ", layers, layers == 1 ? " layer" : " layers"));
  }
  if (layers < stages) {
    throw Error(kStagesKey, text_of("is ", stages, ", but the model has ", layers, layers == 1 ? " layer" : " layers"),
                "as many stages as layers, or fewer");
  }
  std::vector<std::int64_t> first_layers = balanced_layers(program, stages * chunks);
  return {std::move(program), std::move(first_layers)};
}

StageModel::StageModel(const std::shared_ptr<const Model>& all, int stage, int stages, int chunks)
    : StageModel(all, stage, stages, trace(*all, stages, chunks)) {}

StageModel::StageModel(std::shared_ptr<const Model> all, int stage, int stages, Traced traced)
    : WrappedModel(std::move(all)), stage_(stage), stages_(stages) {
  const auto ranges = static_cast<int>(traced.first_layers.size());
  for (int range = stage; range < ranges; range += stages) {
    cuts_.push_back(std::make_shared<const StageCut>(StageCut{.stage = range, .first_layers = traced.first_layers}));
  }
  const std::map<std::string, std::vector<int>> readers = stages_of_weights(traced.program, *cut());
  specs_.clear();
  std::vector<bool> trains(static_cast<std::size_t>(ranges), false);
  for (const WeightSpec& spec : base().weights()) {
    const auto found = readers.find(spec.name);
    std::vector<int>& holders = holders_.emplace_back(found != readers.end() ? found->second : std::vector<int>{0});
    for (int& holder : holders) {
      trains[static_cast<std::size_t>(holder)] = trains[static_cast<std::size_t>(holder)] || spec.trainable;
      holder %= stages;  // ranges are of the stages in turn
    }
    const bool is_held = std::ranges::count(holders, stage) > 0;
    if (is_held) specs_.push_back(spec);
    if (holders.size() == 1) continue;
    HONE_ASSERT((holders == std::vector<int>{0, stages - 1}), spec.name, " is read by stages inside the pipeline");
    if (is_held && spec.trainable) shared_.push_back(spec.name);
  }
  const auto idle = std::ranges::find(trains, false);
  if (idle == trains.end()) return;
  const auto range = static_cast<int>(idle - trains.begin());
  const std::string of_chunk = chunks() > 1 ? text_of("chunk ", range / stages, " of ") : "";
  refuse_ranges(stages, chunks(), text_of(of_chunk, "stage ", range % stages, " would have no trained weight"));
}

std::unique_ptr<StageModel> StageModel::other(int stage) const {
  return std::unique_ptr<StageModel>(
      new StageModel(shared_base(), stage, stages_, {trace_for_stages(base()), cut()->first_layers}));
}

bool StageModel::counts(std::string_view weight) const { return first_holder(whole_index(*this, weight)) == stage_; }

const Model& of_all_stages(const Model& model) { return model.stage() != nullptr ? model.stage()->base() : model; }

std::size_t whole_index(const Model& model, std::string_view weight) {
  const std::vector<WeightSpec>& specs = model.whole().weights();
  const auto found = std::ranges::find(specs, weight, &WeightSpec::name);
  HONE_ASSERT(found != specs.end(), "the model has no weight ", weight);
  return static_cast<std::size_t>(found - specs.begin());
}

}  // namespace hone
