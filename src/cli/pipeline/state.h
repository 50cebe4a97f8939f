// Records which stages of a pipeline have begun and which are done, in OUTPUT_DIR/pipeline.json, so that an interrupted
// pipeline resumes.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "cli/pipeline/stages.h"

namespace hone {

// Every change is written atomically and is on disk when the call returns.
class PipelineState {
 public:
  // Reads pipeline.json if it exists. Throws Error if it is damaged.
  explicit PipelineState(const std::filesystem::path& output_dir);

  // Removes the last stage that began, with its folder, if it has left nothing to resume from: no checkpoint, no
  // completion, no answer. A stage that failed or was killed before its first step can therefore start again with
  // changed keys.
  void discard_unstarted_stage();

  // Throws Error if a stage that has begun now has another name or other keys; the message shows the first difference.
  // Ignores a stage that discard_unstarted_stage() would remove and the stages from index `first_restarted` on, which
  // start over.
  void check(std::span<const Stage> stages, std::size_t first_restarted) const;
  [[nodiscard]] bool is_done(std::size_t stage) const;
  // Records that a stage has begun, with its keys. Does nothing if it had begun before.
  void begin(std::span<const Stage> stages, std::size_t stage);
  // Records that a stage is done.
  void finish(std::size_t stage);
  // Removes this stage and all later ones from the record.
  void forget_from(std::size_t stage);

 private:
  struct Entry {
    std::string name;
    std::string recipe;
    bool done = false;
  };
  void write() const;
  // Returns true if stage `stage` is done or has left something to resume from.
  [[nodiscard]] bool has_begun(std::size_t stage) const;
  [[nodiscard]] std::filesystem::path folder_of(std::size_t stage) const;

  std::filesystem::path output_dir_;
  std::filesystem::path path_;
  std::vector<Entry> entries_;  // the stages that have begun, in order
};

}  // namespace hone
