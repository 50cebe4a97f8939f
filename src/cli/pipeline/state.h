// How far a pipeline has come: OUTPUT_DIR/pipeline.json.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "cli/pipeline/stages.h"

namespace hone {

// Each change is written whole or not at all, and is on the disk when the call returns.
class PipelineState {
 public:
  // Reads what is there. Throws Error where it is damaged.
  explicit PipelineState(const std::filesystem::path& output_dir);

  // Forgets the stage that has begun last, and removes its folder, where it has left nothing to go on from: no
  // checkpoint, no generation, no answer. So a stage that failed or was killed before its first step starts anew, with
  // whatever keys it has then.
  void forget_unbegun();

  // Refuses where a stage has begun with other keys than it has now, naming the first that differs, or where the stages
  // are others; what forget_unbegun() forgets has not begun. Stages from `first_anew` on begin anew. Throws Error.
  void check(std::span<const Stage> stages, std::size_t first_anew) const;
  [[nodiscard]] bool is_done(std::size_t stage) const;
  void begin(std::span<const Stage> stages, std::size_t stage);
  void finish(std::size_t stage);
  // Forgets this stage and all behind it.
  void forget_from(std::size_t stage);

 private:
  struct Entry {
    std::string name;
    std::string recipe;
    bool done = false;
  };
  void write() const;
  // Whether something is left of entry `stage` to go on from.
  [[nodiscard]] bool has_begun(std::size_t stage) const;
  [[nodiscard]] std::filesystem::path folder_of(std::size_t stage) const;

  std::filesystem::path output_dir_;
  std::filesystem::path path_;
  std::vector<Entry> entries_;  // of the stages that have begun, in order
};

}  // namespace hone
