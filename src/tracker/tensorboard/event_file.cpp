#include "tracker/tensorboard/event_file.h"

#include <cmath>

#include "tracker/protobuf.h"
#include "tracker/tracker.h"

namespace hone {
namespace {

// Field numbers of tensorflow.Event, Summary, SessionLog, SummaryMetadata, TensorProto and TensorShapeProto.
enum EventField { kWallTime = 1, kEventStep = 2, kFileVersion = 3, kEventSummary = 5, kSessionLog = 7 };
enum ValueField { kTag = 1, kSimpleValue = 2, kTensor = 8, kMetadata = 9 };
constexpr int kSummaryValue = 1;
constexpr int kSessionStatus = 1, kSessionStart = 1;
constexpr int kPluginData = 1, kPluginName = 1;
enum TensorField { kType = 1, kShape = 2, kStringValue = 8 };
constexpr int kStringType = 7;
constexpr int kDimension = 2, kSize = 1;

std::string masked_crc(std::string_view data) {
  constexpr std::uint32_t kMask = 0xA282EAD8u;
  const std::uint32_t crc = crc32c(data);
  return little_endian(((crc >> 15) | (crc << 17)) + kMask, 4);
}

ProtobufWriter event(double time, std::int64_t step) {
  ProtobufWriter writer;
  writer.real(kWallTime, time);
  if (step != 0) writer.number(kEventStep, static_cast<std::uint64_t>(step));
  return writer;
}

}  // namespace

std::string tf_record(std::string_view data) {
  const std::string length = little_endian(data.size(), 8);
  return length + masked_crc(length) + std::string(data) + masked_crc(data);
}

std::string version_event(double time) { return event(time, 0).text(kFileVersion, "brain.Event:2").bytes(); }

std::string start_event(double time, std::int64_t step) {
  return event(time, step).message(kSessionLog, ProtobufWriter().number(kSessionStatus, kSessionStart)).bytes();
}

std::string scalars_event(double time, const MetricRow& row) {
  ProtobufWriter summary;
  for (const auto& [name, value] : row.values) {
    if (std::isnan(value)) continue;
    summary.message(kSummaryValue,
                    ProtobufWriter().text(kTag, tracked_name(name)).real(kSimpleValue, static_cast<float>(value)));
  }
  return event(time, row.step).message(kEventSummary, summary).bytes();
}

std::string text_event(double time, std::string_view tag, std::string_view markdown) {
  const ProtobufWriter shape = ProtobufWriter().message(kDimension, ProtobufWriter().number(kSize, 1));
  const ProtobufWriter tensor =
      ProtobufWriter().number(kType, kStringType).message(kShape, shape).text(kStringValue, markdown);
  const ProtobufWriter metadata = ProtobufWriter().message(kPluginData, ProtobufWriter().text(kPluginName, "text"));
  const ProtobufWriter value = ProtobufWriter().text(kTag, tag).message(kTensor, tensor).message(kMetadata, metadata);
  return event(time, 0).message(kEventSummary, ProtobufWriter().message(kSummaryValue, value)).bytes();
}

}  // namespace hone
