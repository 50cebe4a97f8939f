// Saves and loads the checkpoints of a training run.
//
// The folder OUTPUT_DIR/checkpoint-N has the model of step N in Hugging Face's layout, the optimizer's tensors
// (optimizer.safetensors, or several files with an index like those of a large model) and training_state.json, which is
// written last and lists the size of every other file. The format (kStateFormat) determines the names of the tensors;
// each of these files records it in __metadata__ as hone_format. Tensors may be stored in pieces
// (checkpoint/tensor_pieces.h).
//
// A folder named checkpoint-N is complete at all times, even if the process is killed:
//   - A new checkpoint is written as .checkpoint-N.partial, synced to disk and then renamed.
//   - A checkpoint to delete is first renamed to .checkpoint-N.removed.
//   - A checkpoint to replace is renamed to .checkpoint-N.replaced. If the run dies before the new one is renamed to
//     checkpoint-N, the next run renames the old one back.
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
#include "checkpoint/weight_files.h"
#include "core/descriptor.h"
#include "core/json.h"

namespace hone {

// Current format. Format 1, which files do not record, names tensors after the blocks of the program that saved them.
// Format 2 names them after the parts of the checkpoint's tensors (model/state_tensors.h).
inline constexpr std::int64_t kStateFormat = 2;

struct CheckpointFolder {
  std::int64_t step = 0;
  std::filesystem::path path;
};

// Returns true for the names of the files that only a checkpoint has, not the folder of a model.
[[nodiscard]] bool is_state_file(const std::string& name);

// Returns the folders named checkpoint-N ordered by step, or none if output_dir does not exist. Does not check their
// content.
[[nodiscard]] std::vector<CheckpointFolder> checkpoints_in(const std::filesystem::path& output_dir);

// Returns the complete checkpoint with the highest step. Skips damaged ones (for example after an interrupted copy)
// with a warning.
[[nodiscard]] std::optional<CheckpointFolder> last_good_checkpoint(const std::filesystem::path& output_dir);

// The part of a checkpoint that is needed to resume. The constructor throws Error with the file if the checkpoint is
// incomplete or has a format that this version does not support.
class TrainingState {
 public:
  explicit TrainingState(const std::filesystem::path& checkpoint);

  [[nodiscard]] std::int64_t step() const { return step_; }
  // The state passed to CheckpointStore::save(), with "step" and "files" added.
  [[nodiscard]] const Json& json() const { return *json_; }
  [[nodiscard]] const WeightFiles& tensors() const { return tensors_; }  // at least one file
  [[nodiscard]] std::int64_t format() const { return format_; }          // format of the tensors' names

 private:
  std::shared_ptr<const Json> json_;
  std::int64_t step_ = 0;
  WeightFiles tensors_;
  std::int64_t format_;
};

// The content of a checkpoint. `state` is a JSON object without "step", "files" and non-finite numbers.
struct CheckpointContent {
  std::int64_t step = 0;
  const Json& state;                      // epoch, data position, seeds, options, running sums
  std::span<const TensorSource> tensors;  // optimizer moments and other large state
  std::function<void(const std::filesystem::path& folder)> write_model;  // writes model and tokenizer; may be empty
  // Largest size of a file of `tensors` without its header. A larger tensor gets a separate file.
  std::uint64_t max_file_bytes = kDefaultShardBytes;
};

// Saves and deletes the checkpoints of a run. While it exists, no other process can open a store on the same folder.
class CheckpointStore {
 public:
  // Creates output_dir if needed, restores checkpoints whose replacement was interrupted and removes unfinished files
  // of a killed run. Throws Error if another store has the folder open.
  explicit CheckpointStore(std::filesystem::path output_dir);
  CheckpointStore(const CheckpointStore&) = delete;
  CheckpointStore& operator=(const CheckpointStore&) = delete;

  // Saves checkpoint-STEP and replaces an existing one of that step. If saving fails or the process dies at any moment,
  // the existing checkpoints stay complete. Returns the folder.
  std::filesystem::path save(const CheckpointContent& content);

  // Deletes complete checkpoints, lowest steps first, until `limit` (at least 1) are left. The last one saved and those
  // of the steps in `keep` (for example the best one) count toward the limit but are never deleted.
  void apply_limit(std::int64_t limit, std::span<const std::int64_t> keep = {});

  // Deletes complete checkpoints that were not saved through this store, that is, those of a run that this run
  // replaces.
  void remove_others();

 private:
  // An exclusive lock on the folder, released by the destructor or the end of the process.
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
  std::vector<std::int64_t> saved_;  // steps saved through this store
};

}  // namespace hone
