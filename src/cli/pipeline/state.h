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

  // Refuses where a stage has begun with other keys than it has now, naming the first that differs, or where the stages
  // are others. Throws Error.
  void check(std::span<const Stage> stages) const;
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

  std::filesystem::path path_;
  std::vector<Entry> entries_;  // of the stages that have begun, in order
};

}  // namespace hone
