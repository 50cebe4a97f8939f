// A model's weights and the engine on them, both of which can be given back to the device and taken again while the
// process keeps running.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "engine/embedder.h"
#include "engine/engine.h"
#include "engine/resident_weights.h"
#include "model/received_tensors.h"

namespace hone {

class ResidentModel {
 public:
  // `model` and `tokenizer` must outlive the object. `weights` are on the device where the engine is to run.
  // `embeddings`: set if the model also computes embeddings. group: the ranks that have parts of the model, of which
  // this is the first; the others are in follow_engine(). null: this process has the whole model.
  ResidentModel(const Model& model, const Tokenizer& tokenizer, TensorStore weights, const EngineOptions& options,
                const std::optional<EmbedderOptions>& embeddings = std::nullopt, EngineGroup* group = nullptr);

  // Returns true if the engine can generate: weights and KV cache are on the device and the weights are whole.
  [[nodiscard]] bool is_ready() const { return engine_ != nullptr && has_whole_weights(); }
  // Returns true if the KV cache, or the cache and the weights, have been given back.
  [[nodiscard]] bool is_asleep() const { return engine_ == nullptr; }
  // Returns true if every weight has a value from one folder.
  [[nodiscard]] bool has_whole_weights() const { return weights_.are_whole(); }
  // The number of successful updates. No key or value that one version has computed is used with another.
  [[nodiscard]] std::int64_t version() const { return version_; }
  // Bytes of the device that weights and KV cache take now.
  [[nodiscard]] std::size_t bytes() const;
  // To be called when a run may be under way whose results are not wanted any more (EngineGroup::settle()).
  void settle() {
    if (group_ != nullptr) group_->settle();
  }
  // Throws JobFailure if a rank of the group has ended. Waits for nothing.
  void check_ranks() const;
  // Throws Defect while the model is asleep.
  [[nodiscard]] Engine& engine();
  // Likewise; also if the model computes no embeddings. It shares the engine's arena and runs between two of its steps.
  [[nodiscard]] Embedder& embedder();

  // Gives back the KV cache, the activations and the weights. No request may be under way. A sleeping model can be put
  // to sleep again, which changes something only if it drops weights that were kept. Throws Error if a rank has no host
  // memory for weights that are to be kept, and then nothing has changed.
  void sleep(SleepLevel level);
  // Take the weights, or the KV cache, back from the device; nothing happens if they are there. Throw Error if the
  // device, or that of another rank, has no memory for them; wake_cache() also if the weights are not there.
  void wake_weights();
  void wake_cache();
  // Returns the weights, so that the caller can change those that no request under way uses. Throws Defect while they
  // are given back.
  [[nodiscard]] TensorStore& weights() { return weights_.store(); }
  // Replaces the weights by those of another folder of the same model (reload_weights()). Requests under way continue
  // with them as after Engine::weights_changed(). Throws Error, and then nothing has changed if has_whole_weights() is
  // what it was before.
  void update(const std::filesystem::path& folder);
  // Returns true if weights() can be called.
  [[nodiscard]] bool has_weights() const { return weights_.are_there(); }
  // Puts tensors that have passed tensors.check() into the weights, and the other ranks' parts of them into theirs.
  // `tensors`: of this model; data: they follow each other, in memory of the device, which the caller may change once
  // the device has done its work.
  void load(ReceivedTensors& tensors, std::span<const TensorNotice> notices, std::byte* data);
  // To be called after the caller has changed values in weights(). `whole`: has_whole_weights() from now on; if so, the
  // weights are a new version, with which requests under way continue.
  void weights_changed(bool whole);

 private:
  // Makes engine and embedder and gets them ready. Throws Error as wake_cache() does, and then there are none.
  void make_engine();

  const Model& model_;
  const Tokenizer& tokenizer_;
  const EngineOptions options_;
  const std::optional<EmbedderOptions> embeddings_;
  EngineGroup* group_;
  ResidentWeights weights_;
  std::unique_ptr<Engine> engine_;      // null while the KV cache is given back
  std::unique_ptr<Embedder> embedder_;  // likewise, and if there are no embeddings
  std::int64_t version_ = 0;
};

}  // namespace hone
