// Builds the records of TensorBoard's event files: TFRecords that each hold a tensorflow.Event.
// Sources: https://www.tensorflow.org/tutorials/load_data/tfrecord, tensorboard/compat/proto/{event,summary}.proto
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tracker/metric_row.h"

namespace hone {

// Returns a TFRecord: length (8 bytes), masked CRC-32C of the length, data, masked CRC-32C of the data.
[[nodiscard]] std::string tf_record(std::string_view data);

// The functions below return serialised events. time: seconds since 1970.
// The first event of a file.
[[nodiscard]] std::string version_event(double time);
// Marks the start of a run; readers discard events of steps from `step` on that earlier files contain.
[[nodiscard]] std::string start_event(double time, std::int64_t step);
// The values of a row, without NaN.
[[nodiscard]] std::string scalars_event(double time, const MetricRow& row);
// A Markdown text, which TensorBoard shows in the tab "text".
[[nodiscard]] std::string text_event(double time, std::string_view tag, std::string_view markdown);

}  // namespace hone
