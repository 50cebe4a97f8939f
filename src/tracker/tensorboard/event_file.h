// TensorBoard's event files: records of TFRecord, each a tensorflow.Event.
// Sources: https://www.tensorflow.org/tutorials/load_data/tfrecord, tensorboard/compat/proto/{event,summary}.proto
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tracker/metric_row.h"

namespace hone {

// Length, its masked checksum, data, its masked checksum.
[[nodiscard]] std::string tf_record(std::string_view data);

// Events, serialised. `time` is in seconds since 1970.
[[nodiscard]] std::string version_event(double time);  // the first of a file
// What readers have of steps from `step` on, from earlier files, is void.
[[nodiscard]] std::string start_event(double time, std::int64_t step);
[[nodiscard]] std::string scalars_event(double time, const MetricRow& row);  // values that are NaN are left out
// A page of Markdown under the tab "text".
[[nodiscard]] std::string text_event(double time, std::string_view tag, std::string_view markdown);

}  // namespace hone
