// The dft loss, compared with torch (tests/fixtures/train/make_dft.py).
#include <gtest/gtest.h>

#include "support/device.h"
#include "support/models.h"
#include "support/paths.h"
#include "train/loss_program.h"
#include "train/optimizer.h"

namespace hone::test {
namespace {

TEST(Dft, LossAndGradientsAreTorchs) {
  const SafetensorsFile reference(fixture("train/dft.safetensors"));
  for (const std::string name : {"qwen2", "llama_tied"}) {
    FixtureModel fixture(name);
    const HostBatch batch = fixture.batch();
    const LossProgramOptions options{.capacity = {batch.token_count(), batch.document_count()}, .dynamic = true};
    const double weight = 1.0 / static_cast<double>(batch.target_tokens);
    auto arena = std::make_shared<Arena>(test_device());
    Optimizer optimizer(*fixture.model, fixture.weights, arena, {});
    Executable training(trace_training(*fixture.model, options), arena,
                        {.weights = &fixture.weights, .gradients = &optimizer.gradients()});
    Executable evaluation(trace_evaluation(*fixture.model, options), arena, {.weights = &fixture.weights});
    const auto expected = static_cast<double>(read_values<float>(reference.at(name + ".loss"))[0]);
    EXPECT_NEAR(run_loss(training, batch, weight).loss, expected, 1e-4 * expected);
    EXPECT_NEAR(run_loss(evaluation, batch, weight).loss, expected, 1e-4 * expected);
    int compared = 0;
    for (const WeightSpec& spec : fixture.model->weights()) {
      const std::vector<std::byte> bytes = optimizer.gradients().download(spec.name);
      const auto* values = reinterpret_cast<const float*>(bytes.data());
      const std::int64_t row = optimizer.gradients().type(spec.name).row_size();
      for (const WeightPart& part : spec.parts) {
        const StoredTensor* stored = reference.find(name + ".gradient." + part.name);
        if (stored == nullptr) continue;
        const auto gradient = read_values<float>(*stored);
        EXPECT_LE(relative_difference({values + part.row * row, gradient.size()}, gradient), 1e-3) << part.name;
        ++compared;
      }
    }
    EXPECT_EQ(compared, 3) << name;
  }
}

}  // namespace
}  // namespace hone::test
