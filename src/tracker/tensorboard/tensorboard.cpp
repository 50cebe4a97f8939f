// The TensorBoard tracker: writes one event file per start of a run, in logging_dir or OUTPUT_DIR/runs.
#include <unistd.h>

#include <array>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "tracker/registry.h"
#include "tracker/tensorboard/event_file.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

struct TensorBoardKeys {
  std::string logging_dir;

  template <class Visitor>
  void fields(Visitor& v) {
    v("logging_dir", logging_dir, "Folder of TensorBoard's files; unset: runs in output_dir");
  }
};

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

fs::path folder_of(const TrackedRun& run) {
  const std::string& given = run.keys.get<TensorBoardKeys>().logging_dir;
  return given.empty() ? run.output_dir / "runs" : fs::path(given);
}

// Returns the file name in the format of TensorFlow; names sort by start time.
std::string file_name(double time) {
  return text_of("events.out.tfevents.", static_cast<std::int64_t>(time), ".", host_name(), ".", ::getpid(), ".0");
}

class TensorBoard final : public Tracker {
 public:
  explicit TensorBoard(const TrackedRun& run) {
    const fs::path folder = folder_of(run);
    const double time = seconds_now();
    ensure_writable_folder(folder, "logging_dir");
    path_ = folder / file_name(time);
    append(version_event(time));
    append(start_event(time, run.resumed_step > 0 ? run.resumed_step + 1 : 0));
    append(text_event(time, "args", text_of("```json\n", run.options->dump(2), "\n```")));
  }

  void log(const MetricRow& row) override { append(scalars_event(seconds_now(), row)); }
  void finish(bool) override {}

 private:
  void append(const std::string& event) const { append_file(path_, tf_record(event)); }

  fs::path path_;
};

}  // namespace

void register_tensorboard(TrackerRegistry& registry) {
  registry.add(
      {.name = "tensorboard", .note = {}, .keys = OptionSet::of<TensorBoardKeys>(), .make = [](const TrackedRun& run) {
         return std::make_unique<TensorBoard>(run);
       }});
}

}  // namespace hone
