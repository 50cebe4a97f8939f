#include "train/metrics.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/files.h"
#include "support/paths.h"

namespace hone {
namespace {

MetricRow row_at(std::int64_t step, double loss) {
  MetricRow row{.step = step};
  row.set("loss", loss);
  row.set("gpu", std::numeric_limits<double>::quiet_NaN());
  return row;
}

TEST(Metrics, RowsReadBack) {
  const test::TemporaryDirectory folder;
  const auto path = folder.path() / "metrics.jsonl";
  const MetricsWriter writer(path);
  writer.append(row_at(10, 0.1 + 0.2));
  writer.append(row_at(20, std::numeric_limits<double>::infinity()));
  EXPECT_EQ(read_file(path),
            "{\"step\":10,\"loss\":0.30000000000000004,\"gpu\":null}\n{\"step\":20,\"loss\":null,\"gpu\":null}\n");
  const std::vector<MetricRow> rows = read_metrics(path);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].find("loss"), 0.1 + 0.2);
  EXPECT_TRUE(std::isnan(*rows[0].find("gpu")));
  EXPECT_EQ(rows[0].find("nothing"), std::nullopt);
  const MetricSeries series = metric_series(rows, "loss");
  EXPECT_EQ(series.steps, std::vector<double>{10});
  EXPECT_EQ(series.values, std::vector<double>{0.1 + 0.2});
}

TEST(Metrics, ResumingDropsWhatIsRunAgain) {
  const test::TemporaryDirectory folder;
  const auto path = folder.path() / "metrics.jsonl";
  {
    const MetricsWriter writer(path);
    for (const int step : {10, 20, 30}) writer.append(row_at(step, step));
  }
  append_file(path, "{\"step\":40,\"lo");  // partial line of a killed process
  EXPECT_EQ(read_metrics(path).size(), 3u);
  const MetricsWriter resumed(path, 20);
  resumed.append(row_at(30, 7));
  const std::vector<MetricRow> rows = read_metrics(path);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[2].find("loss"), 7.0);
  const MetricsWriter anew(path);
  EXPECT_EQ(read_metrics(path).size(), 0u);
}

TEST(Metrics, BadFilesNameTheLine) {
  const test::TemporaryDirectory folder;
  const auto path = folder.path() / "m.jsonl";
  const auto error = [&](std::string_view text) -> std::string {
    write_file(path, text);
    try {
      (void)read_metrics(path);
    } catch (const Error& caught) {
      return caught.what();
    }
    return "no error";
  };
  EXPECT_EQ(error("{\"step\":1}\n{]\n"), path.string() + ":2: not valid JSON at line 1, column 2");
  EXPECT_EQ(error("{\"loss\":1}\n"), path.string() + ":1: expected a JSON object with a whole number \"step\"");
  EXPECT_EQ(error("{\"step\":1,\"note\":\"x\"}\n\n"), "no error");
}

TEST(Metrics, LineShowsWhatIsAskedFor) {
  MetricRow row{.step = 40};
  row.set("loss", 2.31417);
  row.set("grad_norm", 0.00051234);
  row.set("learning_rate", 4e-5);
  row.set("num_tokens", 1234567);
  row.set("epoch", 1);
  row.set("mfu", std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(metric_line(row, 100),
            "step 40/100 | loss 2.3142 | grad_norm 0.0005123 | learning_rate 4e-05 | num_tokens 1,234,567 | epoch 1 | "
            "mfu n/a");
  constexpr std::array<std::string_view, 2> kNames{"epoch", "absent"};
  EXPECT_EQ(metric_line(row, 0, kNames), "step 40 | epoch 1");
}

TEST(Metrics, TheBlockIsThatOfTheSource) {
  MetricRow row{.step = 1};
  row.set("loss", 11.99861);
  row.set("tokens_per_second", 5635);
  row.set("step_time", 5.8148);
  row.set("device_utilization", std::numeric_limits<double>::quiet_NaN());
  row.set("device_memory_gib", 45.02);
  row.set("device_memory_total_gib", 191.69);
  row.set("cpu_utilization", 2.1);
  row.set("process_memory_gib", 6.05);
  row.set("system_memory", 6.7);
  const std::string rule(80, '=');
  EXPECT_EQ(metrics_block(row, "GPU: AMD Instinct MI300X VF"),
            rule + "\nStep 1 Metrics (GPU: AMD Instinct MI300X VF):\n" + rule +
                "\n  Loss:           11.9986\n  Tokens/sec:     5635.00\n  Step time:      5.815s\n"
                "  GPU Util:       N/A\n  GPU Mem:        45.02GB / 191.69GB (23.5%)\n  CPU Util:       2.1%\n"
                "  Process Mem:    6.05GB\n  System Mem:     6.7%\n" +
                rule + "\n");
  EXPECT_NE(metrics_block({.step = 3}, "CPU").find("  GPU Mem:        N/A\n"), std::string::npos);
}

}  // namespace
}  // namespace hone
