#include "engine/resident_model.h"

#include <exception>
#include <utility>

#include "core/error.h"

namespace hone {
ResidentModel::ResidentModel(const Model& model, const Tokenizer& tokenizer, TensorStore weights,
                             const EngineOptions& options, const std::optional<EmbedderOptions>& embeddings,
                             EngineGroup* group)
    : model_(model),
      tokenizer_(tokenizer),
      options_(options),
      embeddings_(embeddings),
      group_(group),
      weights_(model, std::move(weights), group) {
  make_engine();
}

void ResidentModel::make_engine() {
  // Both reserve their share of the arena before either of them runs.
  const auto arena = std::make_shared<Arena>(weights_.device());
  try {
    engine_ = std::make_unique<Engine>(model_, tokenizer_, weights_.store(), arena, options_, group_);
    if (embeddings_) embedder_ = std::make_unique<Embedder>(model_, weights_.store(), arena, *embeddings_, group_);
    if (group_ != nullptr) group_->send(GroupOrder::kAllocate);
    const std::exception_ptr error = run_together(group_, [&] { (void)arena->base(); });
    if (error) std::rethrow_exception(error);
  } catch (const Error&) {
    embedder_.reset();
    engine_.reset();
    throw;
  }
  engine_->prepare();
  if (embedder_) embedder_->prepare();
}

std::size_t ResidentModel::bytes() const {
  return weights_.bytes() + (engine_ ? static_cast<std::size_t>(engine_->kv_bytes()) : 0);
}

Engine& ResidentModel::engine() {
  HONE_ASSERT(engine_ != nullptr, "the engine is used while the model is asleep");
  return *engine_;
}

Embedder& ResidentModel::embedder() {
  HONE_ASSERT(embedder_ != nullptr, "embeddings are computed without an embedder");
  return *embedder_;
}

void ResidentModel::check_ranks() const {
  if (group_ != nullptr) group_->check();
}

void ResidentModel::sleep(SleepLevel level) {
  HONE_ASSERT(!engine_ || !engine_->has_work(), "a model with requests under way is put to sleep");
  if (group_ != nullptr) group_->send_value(GroupOrder::kSleep, level);
  // No rank drops anything before all ranks have their copies.
  if (level == SleepLevel::kKeepWeights)
    if (const std::exception_ptr error = weights_.keep()) std::rethrow_exception(error);
  engine_.reset();
  embedder_.reset();
  weights_.give_back(level);
}

void ResidentModel::wake_weights() {
  if (weights_.are_there()) return;
  if (group_ != nullptr) group_->send(GroupOrder::kWakeWeights);
  if (const std::exception_ptr error = weights_.take_back()) std::rethrow_exception(error);
}

void ResidentModel::wake_cache() {
  if (engine_) return;
  if (!weights_.are_there())
    throw Error("tags", "the KV cache cannot be woken while the weights are asleep", "wake up the weights first");
  make_engine();
}

void ResidentModel::update(const std::filesystem::path& folder) {
  if (!weights_.are_there()) throw Error("the weights are asleep", "", "wake up the weights first");
  if (group_ != nullptr) group_->send(GroupOrder::kUpdateWeights, folder.string());
  if (const std::exception_ptr error = weights_.update(folder)) std::rethrow_exception(error);
  weights_changed(true);
}

void ResidentModel::load(ReceivedTensors& tensors, std::span<const TensorNotice> notices, std::byte* data) {
  if (group_ != nullptr) {
    group_->send(GroupOrder::kReceiveTensors, text_of_notices(notices));
    group_->share(data, bytes_of(notices));
  }
  tensors.load_all(notices, data, weights());
}

void ResidentModel::weights_changed(bool whole) {
  if (group_ != nullptr) group_->send_value(GroupOrder::kWeightsReceived, whole);
  weights_.set_whole(whole);
  if (!whole) return;
  ++version_;
  if (engine_) engine_->weights_changed();
}

}  // namespace hone
