// Tests the file of measured rates: round trips, and files that are ignored.
#include "backend/measured_rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/files.h"
#include "core/parallel.h"
#include "support/environment.h"
#include "support/paths.h"

namespace hone::test {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

class MeasuredRates : public testing::Test {
 protected:
  [[nodiscard]] std::filesystem::path file() const { return folder_.path() / "cache/device_rates.json"; }

  TemporaryDirectory folder_;
  Environment environment_{{{"HONE_CACHE", (folder_.path() / "cache").string()}}};
};

DeviceModel some_figures() {
  DeviceModel model;
  model.f32_flops = {123456789012.5, RateSource::kMeasured};
  model.copy_bytes = {2e10, RateSource::kMeasured};
  model.link_bytes = {5, RateSource::kBuiltIn};
  model.copies = {{524288, 1.5e11}, {134217728, 2e10}};
  return model;
}

TEST_F(MeasuredRates, AreReadAsTheyWereKept) {
  EXPECT_FALSE(measured_model(cpu_device()).f32_flops.is_known());
  store_measured(cpu_device(), some_figures());
  EXPECT_EQ(measured_rates_path(), file());
  const DeviceModel read = measured_model(cpu_device());
  EXPECT_EQ(read.name, "cpu");
  EXPECT_EQ(read.f32_flops.per_second, 123456789012.5);
  EXPECT_EQ(read.f32_flops.source, RateSource::kMeasured);
  EXPECT_EQ(read.copy_bytes.per_second, 2e10);
  EXPECT_FALSE(read.bf16_flops.is_known());
  EXPECT_FALSE(read.link_bytes.is_known()) << "it was not measured";
  ASSERT_EQ(read.copies.size(), 2u);
  EXPECT_EQ(read.copies[0].bytes, 524288);
  EXPECT_EQ(read.copies[1].bytes_per_second, 2e10);
  EXPECT_EQ(device_model(cpu_device()).copy_bytes.source, RateSource::kMeasured);
}

TEST_F(MeasuredRates, KeepWhatTheyDoNotReplace) {
  store_measured(cpu_device(), some_figures());
  DeviceModel products;
  products.f32_flops = {7, RateSource::kMeasured};
  const int threads = thread_count();
  store_measured(cpu_device(), products);
  EXPECT_EQ(measured_model(cpu_device()).f32_flops.per_second, 7);
  EXPECT_EQ(measured_model(cpu_device()).copy_bytes.per_second, 2e10);
  EXPECT_THAT(device_key(cpu_device()), EndsWith(std::to_string(threads) + " threads"));
  set_thread_count(threads + 1);
  EXPECT_FALSE(measured_model(cpu_device()).f32_flops.is_known()) << "the number of threads differs";
  store_measured(cpu_device(), some_figures());
  set_thread_count(threads);
  EXPECT_EQ(measured_model(cpu_device()).f32_flops.per_second, 7);
}

TEST_F(MeasuredRates, ADamagedFileIsLeftAside) {
  store_measured(cpu_device(), some_figures());
  const std::string whole = read_file(file());
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = whole;
    return text.replace(text.find(from), from.size(), to);
  };
  const std::string texts[] = {"",
                               "no JSON",
                               "[]",
                               "{\"devices\": {}}",
                               whole.substr(0, whole.size() / 2),
                               replaced("hone device rates 1", "hone device rates 2"),
                               replaced("123456789012.5", "-1"),
                               replaced("123456789012.5", "1e300"),
                               replaced("123456789012.5", "null"),
                               replaced("524288", "524288000000"),
                               std::string(2 << 20, ' ')};
  for (const std::string& text : texts) {
    write_file(file(), text);
    testing::internal::CaptureStderr();
    EXPECT_FALSE(measured_model(cpu_device()).copy_bytes.is_known()) << text.substr(0, 200);
    (void)testing::internal::GetCapturedStderr();
  }
  write_file(file(), "\n\nanother's");
  testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(device_model(cpu_device()).copy_bytes.is_known());
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("device_rates.json is ignored: not a valid file of device rates"));
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
  store_measured(cpu_device(), some_figures());
  EXPECT_EQ(read_file(file()), whole);
}

TEST_F(MeasuredRates, AreNotKeptWhereNothingCanBeWritten) {
  write_file(folder_.path() / "cache", "no folder");
  testing::internal::CaptureStderr();
  store_measured(cpu_device(), some_figures());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("cannot store the rates of the device: "));
  const Environment none({{"HONE_CACHE", std::nullopt}, {"XDG_CACHE_HOME", std::nullopt}, {"HOME", std::nullopt}});
  EXPECT_TRUE(measured_rates_path().empty());
  store_measured(cpu_device(), some_figures());
  EXPECT_FALSE(measured_model(cpu_device()).copy_bytes.is_known());
}

}  // namespace
}  // namespace hone::test
