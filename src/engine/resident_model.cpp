#include "engine/resident_model.h"

#include <span>
#include <utility>

#include "core/error.h"
#include "core/files.h"
#include "model/weights.h"

namespace hone {
namespace {

// Copies all tensors of a store to host memory, one after the other.
std::vector<std::byte> content_of(const TensorStore& store) {
  std::vector<std::byte> bytes;
  bytes.reserve(store.bytes());
  for (const NamedType& tensor : store.tensors()) {
    const std::size_t begin = bytes.size();
    bytes.resize(begin + tensor.type.bytes());
    store.download(tensor.name, 0, std::span(bytes).subspan(begin));
  }
  return bytes;
}

void fill(TensorStore& store, std::span<const std::byte> bytes) {
  for (const NamedType& tensor : store.tensors()) {
    store.upload(tensor.name, bytes.first(tensor.type.bytes()));
    bytes = bytes.subspan(tensor.type.bytes());
  }
}

}  // namespace

ResidentModel::ResidentModel(const Model& model, const Tokenizer& tokenizer, TensorStore weights,
                             const EngineOptions& options, const std::optional<EmbedderOptions>& embeddings)
    : model_(model),
      tokenizer_(tokenizer),
      options_(options),
      embeddings_(embeddings),
      device_(weights.device()),
      types_(weights.tensors()),
      weights_(std::move(weights)) {
  make_engine();
}

void ResidentModel::make_engine() {
  HONE_ASSERT(weights_.has_value(), "an engine needs weights");
  // Both reserve their share of the arena before either of them runs.
  const auto arena = std::make_shared<Arena>(device_);
  engine_ = std::make_unique<Engine>(model_, tokenizer_, *weights_, arena, options_);
  if (embeddings_) embedder_ = std::make_unique<Embedder>(model_, *weights_, arena, *embeddings_);
  engine_->prepare();
  if (embedder_) embedder_->prepare();
}

std::size_t ResidentModel::bytes() const {
  return (weights_ ? weights_->bytes() : 0) + (engine_ ? static_cast<std::size_t>(engine_->kv_bytes()) : 0);
}

Engine& ResidentModel::engine() {
  HONE_ASSERT(engine_ != nullptr, "the engine is used while the model is asleep");
  return *engine_;
}

Embedder& ResidentModel::embedder() {
  HONE_ASSERT(embedder_ != nullptr, "embeddings are computed without an embedder");
  return *embedder_;
}

TensorStore& ResidentModel::weights() {
  HONE_ASSERT(weights_.has_value(), "the weights are used while they are given back");
  return *weights_;
}

void ResidentModel::sleep(SleepLevel level) {
  HONE_ASSERT(!engine_ || !engine_->has_work(), "a model with requests under way is put to sleep");
  engine_.reset();
  embedder_.reset();
  if (level == SleepLevel::kDropWeights) {
    weights_.reset();
    kept_ = {};
    whole_ = false;
  } else if (weights_) {
    if (whole_) kept_ = content_of(*weights_);
    weights_.reset();
  }
}

void ResidentModel::wake_weights() {
  if (weights_) return;
  weights_.emplace(device_, types_);
  if (!kept_.empty()) fill(*weights_, kept_);
  kept_ = {};
}

void ResidentModel::wake_cache() {
  if (engine_) return;
  if (!weights_)
    throw Error("tags", "the KV cache cannot be woken while the weights are asleep", "wake up the weights first");
  make_engine();
}

void ResidentModel::update(const std::filesystem::path& folder) {
  if (!weights_) throw Error("the weights are asleep", "", "wake up the weights first");
  if (!is_folder(folder)) throw Error(folder.string(), "is not a folder", "give the folder of a model");
  const ModelDirectory directory(folder);
  bool begun = false;
  try {
    reload_weights(model_, directory, *weights_, begun);
  } catch (const std::exception&) {
    if (begun) whole_ = false;
    throw;
  }
  weights_changed(true);
}

void ResidentModel::weights_changed(bool whole) {
  whole_ = whole;
  if (!whole) return;
  ++version_;
  if (engine_) engine_->weights_changed();
}

}  // namespace hone
