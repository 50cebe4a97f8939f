// The reports of trackers, byte by byte for the formats of other programs. scripts/check_trackers.sh reads the same
// files with the readers of TensorBoard and wandb.
#include "core/json_value.h"
#include "tracker/tracker.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "core/error.h"
#include "core/files.h"
#include "support/option_flags.h"
#include "support/paths.h"
#include "tracker/protobuf.h"
#include "tracker/registry.h"
#include "tracker/tensorboard/event_file.h"
#include "tracker/wandb/datastore.h"

namespace hone {
namespace {
namespace fs = std::filesystem;

MetricRow tracked_row(std::int64_t step) {
  MetricRow row{.step = step};
  row.set("loss", 0.5 * static_cast<double>(step));
  row.set("eval_loss", 2.25);
  row.set("mfu", std::numeric_limits<double>::quiet_NaN());
  return row;
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    text += kDigits[static_cast<unsigned char>(c) >> 4];
    text += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

TEST(Trackers, ChecksumsAreThoseOfTheStandards) {
  EXPECT_EQ(crc32("123456789"), 0xCBF43926u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32("6789", crc32("12345")), 0xCBF43926u);
  EXPECT_EQ(crc32(""), 0u);
}

TEST(Trackers, FieldsAreWrittenAsProtocolBuffersHasThem) {
  EXPECT_EQ(hex(ProtobufWriter().number(1, 150).bytes()), "089601");  // example of the documentation
  EXPECT_EQ(hex(ProtobufWriter().text(2, "testing").bytes()), "120774657374696e67");
  EXPECT_EQ(hex(ProtobufWriter().message(3, ProtobufWriter().number(1, 150)).bytes()), "1a03089601");
  EXPECT_EQ(hex(ProtobufWriter().real(2, 0.5f).bytes()), "150000003f");
  EXPECT_EQ(hex(ProtobufWriter().real(1, 1.0).bytes()), "09000000000000f03f");
  EXPECT_EQ(hex(ProtobufWriter().text(200, "").bytes()), "c20c00");
}

// The expected bytes are those of TensorBoard's writer for the same events.
TEST(Trackers, EventsAreTensorBoards) {
  EXPECT_EQ(hex(tf_record(version_event(1.0))),
            "1800000000000000a37f4b2209000000000000f03f1a0d627261696e2e4576656e743a3286bf577a");
  MetricRow row{.step = 7};
  row.set("loss", 3.5);
  row.set("mfu", std::numeric_limits<double>::quiet_NaN());
  row.set("eval_loss", 2.25);
  EXPECT_EQ(hex(tf_record(scalars_event(2.5, row))),
            "3200000000000000241956ec09000000000000044010072a250a110a0a747261696e2f6c6f737315000060400a100a096576616c2f"
            "6c6f737315000010404cee598a");
  EXPECT_EQ(hex(tf_record(start_event(3.0, 8))), "0f000000000000006d532b0909000000000000084010083a02080185c347cd");
}

TEST(Trackers, NamesAreThoseOfTransformers) {
  EXPECT_EQ(tracked_name("loss"), "train/loss");
  EXPECT_EQ(tracked_name("eval_mean_token_accuracy"), "eval/mean_token_accuracy");
  EXPECT_EQ(tracked_name("rewards/accuracy_reward/mean"), "train/rewards/accuracy_reward/mean");
}

TEST(Trackers, ReportToNamesThem) {
  const auto names = [](std::vector<std::string> report_to) { return tracker_names(report_to, "--report_to"); };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names({}), Names());
  EXPECT_EQ(names({"none"}), Names());
  EXPECT_EQ(names({"no"}), Names());
  EXPECT_EQ(names({"wandb", "tensorboard", "wandb"}), (Names{"wandb", "tensorboard"}));
  EXPECT_EQ(names({"all"}).size(), 2u);
  try {
    (void)names({"tensorbord"});
    FAIL() << "an unknown tracker was taken";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "--report_to: hone does not report to 'tensorbord', but to tensorboard, wandb, all or none (did you "
                 "mean tensorboard?)");
  }
}

// Reads a datastore according to its specification: blocks of 32,768 bytes, parts with a checksum.
std::vector<std::string> records_in(const std::string& bytes) {
  EXPECT_EQ(hex(bytes.substr(0, 7)), "3a572642e1be00");
  std::vector<std::string> records;
  std::string record;
  std::size_t at = 7;
  const auto number = [&](std::size_t from, int size) {
    std::uint64_t value = 0;
    for (int i = size; i-- > 0;)
      value = value << 8 | static_cast<unsigned char>(bytes.at(from + static_cast<std::size_t>(i)));
    return value;
  };
  while (at < bytes.size()) {
    const std::size_t left = 32768 - at % 32768;
    if (left < 7) {
      EXPECT_EQ(bytes.substr(at, left), std::string(left, '\0'));
      at += left;
      continue;
    }
    const std::size_t length = number(at + 4, 2);
    const auto type = static_cast<char>(number(at + 6, 1));
    EXPECT_LE(length + 7, left) << "a part crosses a block";
    const std::string data = bytes.substr(at + 7, length);
    EXPECT_EQ(number(at, 4), crc32(data, crc32(std::string(1, type))));
    record += data;
    at += 7 + length;
    if (type == 1 || type == 4) {
      records.push_back(record);
      record.clear();
    }
  }
  EXPECT_TRUE(record.empty());
  return records;
}

TEST(Trackers, RecordsOfAnySizeComeBackFromWandbsFile) {
  const test::TemporaryDirectory folder;
  const fs::path path = folder.path() / "run-x.wandb";
  WandbDatastore store(path);
  std::vector<std::string> records;
  // Sizes near the ends of blocks: 32,768 bytes - 7 of the file header - 7 of the part header.
  for (const std::size_t size : {0u, 1u, 100u, 32'640u, 5u, 0u, 32'754u, 32'761u, 32'755u, 100'000u, 7u, 65'000u}) {
    records.emplace_back(size, static_cast<char>('a' + records.size()));
    store.append(records.back());
  }
  for (std::size_t size = 32'700; size < 32'775; ++size) {
    records.emplace_back(size, 'z');
    store.append(records.back());
  }
  EXPECT_EQ(records_in(read_file(path)), records);
}

class TrackedRunTest : public testing::Test {
 protected:
  [[nodiscard]] std::vector<std::string> folders() const { return list_folder(folder_.path() / "wandb"); }
  [[nodiscard]] std::string wandb_file() const {
    const fs::path run = folder_.path() / "wandb" / folders().back();
    for (const std::string& name : list_folder(run)) {
      if (name.ends_with(".wandb")) return read_file(run / name);
    }
    return {};
  }
  void track(std::int64_t resumed, const std::vector<MetricRow>& history, const std::vector<MetricRow>& rows) const {
    const Json options{{"learning_rate", 0.1}};
    const std::vector<std::string> names{"tensorboard", "wandb"};
    Trackers trackers(names, {.output_dir = folder_.path(),
                              .command = "sft",
                              .run_name = "trial 7",
                              .options = &options,
                              .resumed_step = resumed,
                              .history = history,
                              .keys = test::with_flags(tracker_keys(), {"--wandb_project", "mine"})});
    for (const MetricRow& row : rows) trackers.log(row);
    trackers.finish(true);
  }

  test::TemporaryDirectory folder_;
};

std::size_t count_of(const std::vector<std::string>& records, const std::string& part) {
  std::size_t count = 0;
  for (const std::string& record : records) count += record.find(part) != std::string::npos ? 1 : 0;
  return count;
}

TEST_F(TrackedRunTest, AResumedRunIsOneRunOfWandb) {
  track(0, {}, {tracked_row(1), tracked_row(2), tracked_row(3)});
  ASSERT_EQ(folders().size(), 1u);
  const std::string first = folders()[0];
  const std::string id = first.substr(first.rfind('-') + 1);
  EXPECT_EQ(id.size(), 8u);
  std::vector<std::string> records = records_in(wandb_file());
  EXPECT_EQ(count_of(records, "train/loss"), 6u) << "history and summary";
  EXPECT_EQ(count_of(records, "mine"), 1u);
  EXPECT_EQ(count_of(records, "trial 7"), 1u);
  EXPECT_EQ(count_of(records, "NaN"), 0u);

  track(2, {tracked_row(1), tracked_row(2)}, {tracked_row(3), tracked_row(4)});
  ASSERT_EQ(folders().size(), 1u);
  EXPECT_TRUE(folders()[0].ends_with(id));
  records = records_in(wandb_file());
  EXPECT_EQ(count_of(records, "train/loss"), 8u);

  track(0, {}, {tracked_row(1)});
  EXPECT_EQ(folders().size(), 2u) << "a run that starts from scratch has a new folder";
}

TEST_F(TrackedRunTest, EventFilesHoldOneRecordARow) {
  track(0, {}, {tracked_row(1), tracked_row(2)});
  const std::vector<std::string> names = list_folder(folder_.path() / "runs");
  ASSERT_EQ(names.size(), 1u);
  EXPECT_TRUE(names[0].starts_with("events.out.tfevents."));
  const std::string bytes = read_file(folder_.path() / "runs" / names[0]);
  std::size_t at = 0;
  std::vector<std::string> events;
  while (at < bytes.size()) {
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data() + at, 8);
    const std::string data = bytes.substr(at + 12, length);
    EXPECT_EQ(tf_record(data), bytes.substr(at, length + 16));
    events.push_back(data);
    at += length + 16;
  }
  ASSERT_EQ(events.size(), 5u) << "version, start, options, two rows";
  EXPECT_NE(events[2].find("learning_rate"), std::string::npos);
  EXPECT_NE(events[3].find("train/loss"), std::string::npos);
  EXPECT_NE(events[3].find("eval/loss"), std::string::npos);
  EXPECT_EQ(events[3].find("train/mfu"), std::string::npos) << "values that are not known are omitted";
}

// A tracker that can no longer write is reported once, and the training continues.
TEST_F(TrackedRunTest, AFailingTrackerEndsNothing) {
  const Json options = Json::object();
  track(0, {}, {tracked_row(1)});
  Trackers trackers(std::vector<std::string>{"tensorboard"},
                    {.output_dir = folder_.path(), .command = "sft", .run_name = "", .options = &options});
  fs::remove_all(folder_.path() / "runs");
  testing::internal::CaptureStderr();
  trackers.log(tracked_row(1));
  trackers.log(tracked_row(2));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(said.find("hone: warning: nothing more is reported to tensorboard: "), 0u) << said;
  EXPECT_EQ(said.find("nothing more", 20), std::string::npos) << "reported once: " << said;
}

}  // namespace
}  // namespace hone
