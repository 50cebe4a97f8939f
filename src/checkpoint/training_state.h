// The checkpoint folders of a training run: OUTPUT_DIR/checkpoint-N holds the model of step N in Hugging Face's layout,
// the optimizer's tensors (optimizer.safetensors) and training_state.json, which is written last and lists the size of
// every other file. What the tensors are called is the format's (kStateFormat), which the tensors' file says in
// __metadata__ as hone_format; how one may lie there in pieces, checkpoint/tensor_pieces tells.
//
// A folder named checkpoint-N is whole from the moment it has that name to the moment it loses it: it is filled as
// .checkpoint-N.partial, synced and renamed; to be deleted it is first renamed to .checkpoint-N.removed; to be
// replaced, to .checkpoint-N.replaced, which becomes checkpoint-N again if the run dies before the new one has that
// name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "core/descriptor.h"
#include "core/json.h"

namespace hone {

// 1, which says no number: tensors are named by the blocks of the program that saved them. 2: by the parts of the
// checkpoint's tensors (model/state_tensors).
inline constexpr std::int64_t kStateFormat = 2;

struct CheckpointFolder {
  std::int64_t step = 0;
  std::filesystem::path path;
};

// The folders named checkpoint-N, by step; none where output_dir does not exist. They need not be whole.
[[nodiscard]] std::vector<CheckpointFolder> checkpoints_in(const std::filesystem::path& output_dir);

// The whole checkpoint of the highest step; damaged ones (cut short by a copy, say) are skipped with a warning.
[[nodiscard]] std::optional<CheckpointFolder> last_good_checkpoint(const std::filesystem::path& output_dir);

// What a checkpoint holds for resuming. Throws Error naming the file where the folder is not whole, or of a format that
// this hone does not know.
class TrainingState {
 public:
  explicit TrainingState(const std::filesystem::path& checkpoint);

  [[nodiscard]] std::int64_t step() const { return step_; }
  // As given to CheckpointStore::save, with "step" and "files" added.
  [[nodiscard]] const Json& json() const { return *json_; }
  [[nodiscard]] const SafetensorsFile& tensors() const { return tensors_; }
  [[nodiscard]] std::int64_t format() const { return format_; }  // of the tensors

 private:
  std::shared_ptr<const Json> json_;
  std::int64_t step_ = 0;
  SafetensorsFile tensors_;
  std::int64_t format_;
};

// What to save. `state` is an object without "step", "files" or numbers that are not finite.
struct CheckpointContent {
  std::int64_t step = 0;
  const Json& state;                      // epoch, data position, seeds, options, running sums
  std::span<const TensorSource> tensors;  // optimizer moments and whatever else is large
  std::function<void(const std::filesystem::path& folder)> write_model;  // model, tokenizer; empty: none
};

// Saves and deletes the checkpoints of one run. While it lives no other process can open a store on the same folder.
class CheckpointStore {
 public:
  // Creates output_dir if need be, restores what was being replaced, and removes what a killed run left unfinished.
  // Throws Error where another store holds the folder.
  explicit CheckpointStore(std::filesystem::path output_dir);
  CheckpointStore(const CheckpointStore&) = delete;
  CheckpointStore& operator=(const CheckpointStore&) = delete;

  // Saves checkpoint-STEP, in place of an older one of that step. Whatever fails, and at whatever moment the process
  // dies, the checkpoints that were there stay whole. Returns the folder.
  std::filesystem::path save(const CheckpointContent& content);

  // Deletes whole checkpoints, lowest steps first, until `limit` (at least 1) are left. The last one saved and those of
  // the steps in `keep` (the best one, say) are never deleted, but counted.
  void apply_limit(std::int64_t limit, std::span<const std::int64_t> keep = {});

  // Deletes whole checkpoints that were not saved through this store: those of a run that this one replaces.
  void remove_others();

 private:
  // Holds the folder until it dies or the process does.
  class Lock {
   public:
    explicit Lock(const std::filesystem::path& folder);

   private:
    Descriptor descriptor_;
  };

  void recover();
  [[nodiscard]] std::vector<std::int64_t> whole_steps() const;
  void remove(std::int64_t step);

  std::filesystem::path output_dir_;
  Lock lock_;
  std::vector<std::int64_t> saved_;
};

}  // namespace hone
