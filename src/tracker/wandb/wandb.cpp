// The Weights & Biases tracker: writes an offline run, OUTPUT_DIR/wandb/offline-run-TIME-ID, that `wandb sync` uploads.
// Source of the messages: wandb/proto/wandb_internal.proto.
#include <unistd.h>

#include <array>
#include <cmath>
#include <ctime>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/random.h"
#include "system/process.h"
#include "tracker/protobuf.h"
#include "tracker/registry.h"
#include "tracker/wandb/datastore.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

enum RecordField { kNumber = 1, kHistory = 2, kSummary = 3, kMetric = 12, kRun = 17, kExit = 18, kHeader = 21 };
enum RunField {
  kRunId = 1,
  kEntity = 2,
  kProject = 3,
  kConfig = 4,
  kGroup = 6,
  kJobType = 7,
  kDisplayName = 8,
  kHost = 13,
  kStartTime = 17,
};
enum ItemField { kKey = 1, kNestedKey = 2, kValueJson = 16 };
constexpr int kItem = 1, kStep = 2, kUpdate = 1;
constexpr int kRecordInfo = 200, kStreamId = 1;
constexpr std::string_view kGlobalStep = "train/global_step";
constexpr std::string_view kPrefix = "offline-run-";

// Returns the local time in the format "20261122_001003".
std::string time_text(double seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm local{};
  localtime_r(&time, &local);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y%m%d_%H%M%S", &local);
  return text.data();
}

// Returns a random id of eight letters or digits. Ids distinguish the runs of all machines, so the random stream is
// seeded with the time and the process id.
std::string new_run_id(double time) {
  constexpr std::string_view kLetters = "0123456789abcdefghijklmnopqrstuvwxyz";
  const auto moment = static_cast<std::uint64_t>(time * 1e9);
  const RandomStream random(moment, "wandb run", static_cast<std::uint64_t>(::getpid()));
  std::string id;
  for (std::uint64_t i = 0; i < 8; ++i) id += kLetters[random.below(i, kLetters.size())];
  return id;
}

struct WandbKeys {
  std::string project;
  std::string entity;
  std::string run_group;

  template <class Visitor>
  void fields(Visitor& v) {
    v("wandb_project", project, "Project of the wandb run; unset: $WANDB_PROJECT, or huggingface");
    v("wandb_entity", entity, "User or team of the wandb run; unset: $WANDB_ENTITY, or wandb sync's");
    v("wandb_run_group", run_group, "Group of the wandb run; unset: $WANDB_RUN_GROUP");
  }
};

// Returns the value of the key; if it is empty, the environment variable; if that is empty too, `otherwise`.
std::string setting(const std::string& key, const char* variable, const std::string& otherwise = {}) {
  if (!key.empty()) return key;
  const std::string value = environment_variable(variable);
  return value.empty() ? otherwise : value;
}

fs::path root_of(const TrackedRun& run) {
  const std::string folder = environment_variable("WANDB_DIR");
  return (folder.empty() ? run.output_dir : fs::path(folder)) / "wandb";
}

// Returns the folder of the newest run in `root`, or an empty path if there is none.
fs::path newest_run(const fs::path& root) {
  fs::path newest;
  if (!is_folder(root)) return newest;
  for (const std::string& name : list_folder(root)) {
    if (name.starts_with(kPrefix)) newest = root / name;
  }
  return newest;
}

std::string number_json(double value) {
  if (std::isnan(value)) return "\"NaN\"";
  if (std::isinf(value)) return value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  return Json(value).dump();
}

ProtobufWriter item(std::string_view name, std::string_view json) {
  return ProtobufWriter().text(kNestedKey, name).text(kValueJson, json);
}

class Wandb final : public Tracker {
 public:
  explicit Wandb(const TrackedRun& run) : start_(seconds_now()) {
    const fs::path root = root_of(run);
    ensure_writable_folder(root, "output_dir");
    const fs::path before = run.resumed_step > 0 ? newest_run(root) : fs::path();
    id_ = before.empty() ? new_run_id(start_)
                         : before.filename().string().substr(before.filename().string().rfind('-') + 1);
    folder_ = root / text_of(kPrefix, time_text(start_), "-", id_);
    if (folder_ == before) folder_ = root / text_of(kPrefix, time_text(start_ + 1), "-", id_);
    hone::create_directories(folder_ / "files");
    store_ = std::make_unique<WandbDatastore>(folder_ / text_of("run-", id_, ".wandb"));
    begin(run);
    for (const MetricRow& row : run.history) log(row);
    // The new folder now contains all rows of the interrupted run, so the old folder is not needed.
    if (!before.empty()) remove_path(before);
    log_info(text_of("wandb sync ", folder_.string(), " uploads the run to wandb"));
  }

  void log(const MetricRow& row) override {
    const double now = seconds_now();
    ProtobufWriter history;
    ProtobufWriter summary;
    const auto add = [&](std::string_view name, const std::string& json) {
      history.message(kItem, item(name, json));
      summary.message(kUpdate, item(name, json));
    };
    for (const auto& [name, value] : row.values) {
      if (!std::isnan(value)) add(tracked_name(name), number_json(value));
    }
    add(kGlobalStep, Json(row.step).dump());
    add("_timestamp", number_json(now));
    add("_runtime", number_json(now - start_));
    add("_step", Json(rows_).dump());
    history.message(kStep, ProtobufWriter().number(1, rows_));
    ++rows_;
    append(kSummary, summary);
    append(kHistory, history);
  }

  void finish(bool succeeded) override {
    ProtobufWriter exit;
    if (!succeeded) exit.number(1, 1);
    exit.number(2, static_cast<std::uint64_t>(seconds_now() - start_));
    append(kExit, exit);
  }

 private:
  void append(int field, const ProtobufWriter& message) {
    const ProtobufWriter info = ProtobufWriter().text(kStreamId, id_);
    store_->append(
        ProtobufWriter().number(kNumber, ++records_).message(field, message).message(kRecordInfo, info).bytes());
  }

  void begin(const TrackedRun& run) {
    const ProtobufWriter version = ProtobufWriter().text(1, "hone").text(2, "0.70.0");
    append(kHeader, ProtobufWriter().message(1, version));
    const auto& keys = run.keys.get<WandbKeys>();
    ProtobufWriter config;
    for (const auto& [key, value] : run.options->items()) {
      config.message(kUpdate, ProtobufWriter().text(kKey, key).text(kValueJson, value.dump(-1, ' ', true)));
    }
    ProtobufWriter record;
    record.text(kRunId, id_);
    const auto add = [&](int field, const std::string& text) {
      if (!text.empty()) record.text(field, text);
    };
    add(kEntity, setting(keys.entity, "WANDB_ENTITY"));
    add(kProject, setting(keys.project, "WANDB_PROJECT", "huggingface"));
    record.message(kConfig, config);
    add(kGroup, setting(keys.run_group, "WANDB_RUN_GROUP"));
    add(kJobType, run.command);
    add(kDisplayName, setting(run.run_name, "WANDB_NAME"));
    std::array<char, 256> host{};
    if (::gethostname(host.data(), host.size() - 1) == 0) add(kHost, host.data());
    const double whole = std::floor(start_);
    record.message(kStartTime, ProtobufWriter()
                                   .number(1, static_cast<std::uint64_t>(whole))
                                   .number(2, static_cast<std::uint64_t>((start_ - whole) * 1e9)));
    append(kRun, record);
    // As in transformers, the x-axis of every metric is the optimizer step.
    const ProtobufWriter options_of_metric = ProtobufWriter().number(1, 1);
    append(kMetric, ProtobufWriter().text(1, kGlobalStep));
    append(kMetric, ProtobufWriter().text(2, "*").text(4, kGlobalStep).message(6, options_of_metric));
  }

  double start_;
  std::string id_;
  fs::path folder_;
  std::unique_ptr<WandbDatastore> store_;
  std::uint64_t rows_ = 0;
  std::uint64_t records_ = 0;
};

}  // namespace

void register_wandb(TrackerRegistry& registry) {
  registry.add(
      {.name = "wandb", .note = "offline", .keys = OptionSet::of<WandbKeys>(), .make = [](const TrackedRun& run) {
         return std::make_unique<Wandb>(run);
       }});
}

}  // namespace hone
