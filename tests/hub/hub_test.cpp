#include "hub/hub.h"
#include "core/json_value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/model_directory.h"
#include "core/error.h"
#include "core/files.h"
#include "data/dataset.h"
#include "support/environment.h"
#include "support/paths.h"
#include "support/small_hub.h"

namespace hone {
namespace {

namespace fs = std::filesystem;
using test::SmallHub;
using test::SmallHubFile;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::SizeIs;

std::string weights_of(std::size_t size) {
  std::string bytes;
  for (std::size_t i = 0; i < size; ++i) bytes += static_cast<char>(i * i >> 3);
  return bytes;
}

// A separate cache, and a hub on loopback.
class HubTest : public testing::Test {
 protected:
  HubTest() {
    hub.add("models/Org/Small", {{"config.json", {.content = "{\"a\": 1}"}},
                                 {"tokenizer.json", {.content = "{}"}},
                                 {"model.safetensors", {.content = weights_of(300'000), .is_lfs = true}},
                                 {"consolidated.safetensors", {.content = "twice", .is_lfs = true}},
                                 {"onnx/model.onnx", {.content = "other"}}});
  }
  [[nodiscard]] fs::path cache() const { return home_.path() / "hub"; }
  [[nodiscard]] fs::path blobs() const { return cache() / "models--Org--Small" / "blobs"; }
  static std::string failure(const std::string& name, const std::string& revision = "main") {
    try {
      return "found " + resolve_model(name, revision).string();
    } catch (const Error& error) {
      return error.what();
    }
  }

  SmallHub hub;
  test::TemporaryDirectory home_;
  test::Environment environment_{hub.variables(home_.path())};
};

TEST_F(HubTest, AModelIsDownloadedIntoTheCacheOnce) {
  const fs::path snapshot = resolve_model("Org/Small");
  EXPECT_EQ(snapshot, cache() / "models--Org--Small" / "snapshots" / test::kSmallHubCommit);
  EXPECT_EQ(read_file(snapshot / "config.json"), "{\"a\": 1}");
  EXPECT_EQ(read_file(snapshot / "model.safetensors"), weights_of(300'000));
  EXPECT_FALSE(fs::exists(snapshot / "consolidated.safetensors"));
  EXPECT_FALSE(fs::exists(snapshot / "onnx"));
  EXPECT_TRUE(fs::is_symlink(snapshot / "config.json"));
  EXPECT_TRUE(fs::read_symlink(snapshot / "config.json").string().starts_with("../../blobs/"));
  EXPECT_EQ(read_file(cache() / "models--Org--Small" / "refs" / "main"), test::kSmallHubCommit);
  const std::size_t requests = hub.requests().size();
  EXPECT_EQ(resolve_model("Org/Small"), snapshot);
  EXPECT_EQ(resolve_model("Org/Small", test::kSmallHubCommit), snapshot);
  EXPECT_EQ(hub.requests().size(), requests);
}

TEST_F(HubTest, AConnectionThatIsCutIsResumed) {
  hub.cut_after = 100'000;
  hub.cuts = 2;
  const fs::path snapshot = resolve_model("Org/Small");
  EXPECT_EQ(read_file(snapshot / "model.safetensors"), weights_of(300'000));
  EXPECT_THAT(hub.requests(), Contains(HasSubstr("storage/Org/Small")).Times(3));
  EXPECT_THAT(hub.requests(), Contains(AllOf(HasSubstr("storage"), EndsWith("Range: bytes=100000-"))));
  EXPECT_THAT(hub.requests(), Contains(AllOf(HasSubstr("storage"), EndsWith("Range: bytes=200000-"))));
}

TEST_F(HubTest, AServerWithoutRangesBeginsAnew) {
  hub.cut_after = 100'000;
  hub.cuts = 1;
  hub.ignores_ranges = true;
  EXPECT_EQ(read_file(resolve_model("Org/Small") / "model.safetensors"), weights_of(300'000));
}

TEST_F(HubTest, ADownloadGoesOnInTheNextProcess) {
  const std::string whole = weights_of(300'000);
  const HubListing listing = list_repo({.name = "Org/Small"});
  const auto file = std::ranges::find(listing.files, "model.safetensors", &HubFile::path);
  hone::create_directories(blobs());
  write_file(blobs() / (file->etag + ".incomplete"), whole.substr(0, 123'456));
  EXPECT_EQ(read_file(resolve_model("Org/Small") / "model.safetensors"), whole);
  EXPECT_THAT(hub.requests(), Contains(AllOf(HasSubstr("storage"), EndsWith("Range: bytes=123456-"))));
  EXPECT_FALSE(fs::exists(blobs() / (file->etag + ".incomplete")));
}

TEST_F(HubTest, WhatWasDamagedBeforeIsFetchedAnew) {
  const HubListing listing = list_repo({.name = "Org/Small"});
  const auto file = std::ranges::find(listing.files, "model.safetensors", &HubFile::path);
  hone::create_directories(blobs());
  write_file(blobs() / (file->etag + ".incomplete"), std::string(5000, 'x'));
  EXPECT_EQ(read_file(resolve_model("Org/Small") / "model.safetensors"), weights_of(300'000));
}

TEST_F(HubTest, ADamagedBlobIsRefused) {
  std::string damaged = weights_of(3000);
  damaged[77] ^= 1;
  for (const bool is_lfs : {true, false}) {
    hub.add("models/Org/Bad",
            {{"config.json", {.content = "{}"}},
             {"model.safetensors", {.content = weights_of(3000), .is_lfs = is_lfs, .served = damaged}}});
    EXPECT_THAT(failure("Org/Bad"),
                AllOf(HasSubstr("'Org/Bad' model.safetensors: its checksum is "), HasSubstr("the hub lists")));
    EXPECT_FALSE(fs::exists(cache() / "models--Org--Bad" / "snapshots"));
    for (const std::string& name : list_folder(cache() / "models--Org--Bad" / "blobs")) {
      EXPECT_FALSE(name.ends_with(".incomplete")) << name;
    }
  }
}

TEST_F(HubTest, ShortAndLongBodiesAreRefused) {
  hub.add("models/Org/Bad", {{"config.json", {.content = "{\"a\": 1}", .served = "{}"}}});
  EXPECT_THAT(failure("Org/Bad"), HasSubstr("config.json"));
  hub.add("models/Org/Bad", {{"config.json", {.content = "{}", .served = "{\"a\": 1}"}}});
  EXPECT_THAT(failure("Org/Bad"), HasSubstr("config.json"));
}

TEST_F(HubTest, WithoutChecksumsInTheListingEachFileIsAsked) {
  hub.lists_blobs = false;
  EXPECT_EQ(read_file(resolve_model("Org/Small") / "model.safetensors"), weights_of(300'000));
  EXPECT_THAT(hub.requests(), Contains(HasSubstr("HEAD /Org/Small/resolve/")).Times(3));
}

TEST_F(HubTest, ABusyServerIsAskedAgain) {
  (void)list_repo({.name = "Org/Small"});
  const HubListing listing = list_repo({.name = "Org/Small"});
  hub.busy = 2;
  const std::vector<std::string> paths = {"config.json"};
  EXPECT_EQ(read_file(download({.name = "Org/Small"}, listing, paths) / "config.json"), "{\"a\": 1}");
}

TEST_F(HubTest, ABusyServerIsNotWaitedForInSilence) {
  hub.lists_blobs = false;
  const HubListing listing = list_repo({.name = "Org/Small"});
  hub.busy = 1;
  const std::vector<std::string> paths = {"config.json"};
  testing::internal::CaptureStderr();
  (void)download({.name = "Org/Small"}, listing, paths);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("Org/Small config.json: the hub answers 503; retrying\n"));
}

TEST_F(HubTest, Refusals) {
  EXPECT_THAT(failure("Org/None"),
              HasSubstr("there is neither such a file or folder nor such a model on the hub (404)"));
  EXPECT_THAT(failure("Org/Small", "v9"), HasSubstr("has no revision 'v9'"));
  hub.gated = "models/Org/Small";
  EXPECT_THAT(failure("Org/Small"), AllOf(HasSubstr("refuses access (403)"), HasSubstr("HF_TOKEN")));
  hub.gated.clear();
  hub.need_token("secret");
  EXPECT_THAT(failure("Org/Small"), AllOf(HasSubstr("it is private (401)"), HasSubstr("HF_TOKEN")));
  environment_.set("HF_TOKEN", "secret");
  EXPECT_THAT(failure("Org/Small"), HasSubstr("found"));
  environment_.set("HF_ENDPOINT", "http://127.0.0.1:1");
  EXPECT_THAT(failure("Org/Other"),
              AllOf(HasSubstr("there is no answer from http://127.0.0.1:1"), HasSubstr("HF_HUB_OFFLINE")));
  EXPECT_THAT(failure("Org/Small"), HasSubstr("found"));
}

TEST_F(HubTest, ATokenInAFile) {
  hub.need_token("secret");
  write_file(cache().parent_path() / "token", "secret\n");
  EXPECT_THAT(failure("Org/Small"), HasSubstr("found"));
}

TEST_F(HubTest, OfflineNothingIsAsked) {
  environment_.set("HF_HUB_OFFLINE", "1");
  EXPECT_THAT(failure("Org/Small"), AllOf(HasSubstr("not found"), HasSubstr("HF_HUB_OFFLINE")));
  EXPECT_THAT(hub.requests(), SizeIs(0));
}

TEST_F(HubTest, ListingsThatAreNone) {
  hub.add("models/Org/Evil", {{"../../evil.json", {.content = "{}"}}});
  EXPECT_THAT(failure("Org/Evil"), HasSubstr("the hub lists an invalid path"));
  hub.add("models/Org/Empty", {{"README.md", {.content = "hello"}}});
  EXPECT_THAT(failure("Org/Empty"), HasSubstr("has no model files"));
}

std::vector<std::string> rows_of(const DatasetName& dataset, const std::string& split) {
  std::vector<std::string> rows;
  BadRows bad;
  open_dataset(dataset, {.split = split}).for_each_row(bad, [&](Json& row, const RowPlace&) {
    rows.push_back(row.dump());
  });
  return rows;
}

TEST_F(HubTest, DatasetsByConfigAndSplit) {
  hub.add(
      "datasets/Org/Data",
      {{"README.md",
        {.content = "---\nconfigs:\n- config_name: all\n  default: true\n  data_files:\n  - split: train\n    path: "
                    "all/train-*\n  - split: test\n    path: all/test-*\n- config_name: few\n  data_files: "
                    "few/*.jsonl\n---\n# Data\n"}},
       {"all/train-00000-of-00002.jsonl", {.content = "{\"n\":1}\n"}},
       {"all/train-00001-of-00002.jsonl", {.content = "{\"n\":2}\n", .is_lfs = true}},
       {"all/test-00000-of-00001.jsonl", {.content = "{\"n\":3}\n"}},
       {"few/one.jsonl", {.content = "{\"n\":4}\n"}}});
  EXPECT_THAT(rows_of({.name = "Org/Data"}, "train"), ElementsAre("{\"n\":1}", "{\"n\":2}"));
  EXPECT_FALSE(fs::exists(cache() / "datasets--Org--Data" / "snapshots" / test::kSmallHubCommit / "few"));
  EXPECT_THAT(rows_of({.name = "Org/Data", .config = "all"}, "test"), ElementsAre("{\"n\":3}"));
  EXPECT_THAT(rows_of({.name = "Org/Data", .config = "few"}, "train"), ElementsAre("{\"n\":4}"));
  EXPECT_TRUE(names_splits({.name = "Org/Data"}));
  const auto message = [](const DatasetName& dataset, const std::string& split) -> std::string {
    try {
      return text_of(rows_of(dataset, split).size(), " rows");
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_THAT(message({.name = "Org/Data", .config = "none"}, "train"), HasSubstr("has no configuration 'none'"));
  EXPECT_THAT(message({.name = "Org/Data"}, "dev"), HasSubstr("has no split 'dev'; it has: train, test"));
  EXPECT_THAT(message({.name = "Org/None"}, "train"), HasSubstr("nor such a dataset on the hub (404)"));
  const std::size_t requests = hub.requests().size();
  environment_.set("HF_HUB_OFFLINE", "1");
  EXPECT_THAT(rows_of({.name = "Org/Data"}, "train"), ElementsAre("{\"n\":1}", "{\"n\":2}"));
  EXPECT_EQ(hub.requests().size(), requests);
}

TEST_F(HubTest, WhatDatasetsHasPreparedIsRead) {
  environment_.set("HF_HUB_OFFLINE", "1");
  const fs::path prepared = cache().parent_path() / "datasets" / "org___data" / "default" / "0.0.0" / "abc";
  hone::create_directories(prepared);
  fs::copy_file(test::fixture("data/tables/delta.stream.arrow"), prepared / "data-train.arrow");
  EXPECT_THAT(rows_of({.name = "Org/Data"}, "train"), SizeIs(6));
}

}  // namespace
}  // namespace hone
