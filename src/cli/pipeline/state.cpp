#include "cli/pipeline/state.h"

#include <algorithm>

#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "core/strings.h"

namespace hone {
namespace {

// Describes the first line that differs between two recipes: "was `learning_rate: 1e-3`, is `learning_rate: 2e-3`".
std::string difference(const std::string& before, const std::string& now) {
  const std::vector<std::string> was = split(before, '\n');
  const std::vector<std::string> is = split(now, '\n');
  for (std::size_t i = 0; i < std::max(was.size(), is.size()); ++i) {
    const std::string a = i < was.size() ? was[i] : "";
    const std::string b = i < is.size() ? is[i] : "";
    if (a != b) return text_of("was `", a, "`, is `", b, "`");
  }
  return "";
}

}  // namespace

PipelineState::PipelineState(const std::filesystem::path& output_dir)
    : output_dir_(output_dir), path_(output_dir / "pipeline.json") {
  if (!is_file(path_)) return;
  const Json state = read_json(path_);
  try {
    for (const Json& entry : state.at("stages")) {
      entries_.push_back({entry.at("name").get<std::string>(), entry.at("recipe").get<std::string>(),
                          entry.at("status").get<std::string>() == "done"});
    }
  } catch (const Json::exception&) {
    throw Error(path_.string(), "is not the state of a pipeline", "delete it to start over");
  }
}

void PipelineState::check(std::span<const Stage> stages, std::size_t first_restarted) const {
  const std::string fix = "--from STAGE runs that stage and all later ones again";
  for (std::size_t i = 0; i < std::min(entries_.size(), first_restarted) && has_begun(i); ++i) {
    if (i >= stages.size() || stages[i].name != entries_[i].name) {
      throw Error(path_.string(),
                  text_of("stage ", i + 1, " was ", entries_[i].name, ", is ",
                          i < stages.size() ? stages[i].name : std::string("missing")),
                  fix);
    }
    if (stages[i].recipe != entries_[i].recipe) {
      throw Error(path_.string(),
                  text_of("stage ", i + 1, " (", stages[i].name,
                          ") began with other keys: ", difference(entries_[i].recipe, stages[i].recipe)),
                  fix);
    }
  }
}

std::filesystem::path PipelineState::folder_of(std::size_t stage) const {
  return stage_folder(output_dir_, stage, entries_.at(stage).name);
}

bool PipelineState::has_begun(std::size_t stage) const {
  const std::filesystem::path folder = folder_of(stage);
  if (entries_.at(stage).done) return true;
  if (!is_folder(folder)) return false;
  // .checkpoint-N.replaced is a checkpoint whose replacement was interrupted. The stage restores it when it resumes.
  return std::ranges::any_of(list_folder(folder), [](const std::string& name) {
    return name.starts_with("checkpoint-") || (name.starts_with(".checkpoint-") && name.ends_with(".replaced")) ||
           name == "generations.jsonl" || name == "answers.jsonl" || name == "results.json";
  });
}

void PipelineState::discard_unstarted_stage() {
  if (entries_.empty() || has_begun(entries_.size() - 1)) return;
  remove_path(folder_of(entries_.size() - 1));
  forget_from(entries_.size() - 1);
}

bool PipelineState::is_done(std::size_t stage) const { return stage < entries_.size() && entries_[stage].done; }

void PipelineState::begin(std::span<const Stage> stages, std::size_t stage) {
  if (stage < entries_.size()) return;
  HONE_ASSERT(stage == entries_.size(), "stage ", stage, " of ", entries_.size());
  entries_.push_back({stages[stage].name, stages[stage].recipe, false});
  write();
}

void PipelineState::finish(std::size_t stage) {
  entries_.at(stage).done = true;
  write();
}

void PipelineState::forget_from(std::size_t stage) {
  entries_.resize(std::min(entries_.size(), stage));
  write();
}

void PipelineState::write() const {
  Json stages = Json::array();
  for (const Entry& entry : entries_) {
    stages.push_back({{"name", entry.name}, {"status", entry.done ? "done" : "running"}, {"recipe", entry.recipe}});
  }
  write_json(path_, {{"stages", std::move(stages)}});
}

}  // namespace hone
