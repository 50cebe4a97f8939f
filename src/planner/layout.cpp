#include "planner/layout.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/error.h"
#include "core/json_value.h"
#include "core/strings.h"
#include "planner/sequences.h"
#include "train/launch.h"

namespace hone {
namespace {

constexpr std::int64_t kMostZeroStage = 3;
// Larger micro-batches are no faster per token.
constexpr std::int64_t kMostSequences = 64;

// Chunks of each stage that are tried.
constexpr std::array<std::int64_t, 3> kChunks{1, 2, 4};
constexpr const char* kChunksKey = "virtual_pipeline_parallel_size";
constexpr const char* kSequenceKey = "sequence_parallel";

// A number of a layout and its key.
struct LayoutNumber {
  const char* key;
  std::int64_t Layout::* value;
  const char* shown;  // in a table
};
constexpr std::array<LayoutNumber, 6> kGroups{{
    {"tensor_parallel_size", &Layout::tensor_parallel_size, "tensor"},
    {"pipeline_parallel_size", &Layout::pipeline_parallel_size, "pipeline"},
    {kChunksKey, &Layout::virtual_pipeline_parallel_size, "chunks"},
    {"expert_parallel_size", &Layout::expert_parallel_size, "expert"},
    {"context_parallel_size", &Layout::context_parallel_size, "context"},
    {"zero_stage", &Layout::zero_stage, "zero_stage"},
}};
constexpr std::array<LayoutNumber, 2> kBatches{{
    {"per_device_train_batch_size", &Layout::per_device_train_batch_size, ""},
    {"gradient_accumulation_steps", &Layout::gradient_accumulation_steps, ""},
}};
constexpr const char* kRecomputation = "gradient_checkpointing";

std::vector<std::int64_t> divisors(std::int64_t number, std::int64_t most) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 1; i <= std::min(number, most); ++i) {
    if (number % i == 0) all.push_back(i);
  }
  return all;
}

std::vector<Layout> group_layouts(std::int64_t unit) {
  std::vector<Layout> all;
  const std::vector<std::int64_t> sizes = divisors(unit, unit);
  for (const std::int64_t tensor : sizes) {
    for (const std::int64_t pipeline : sizes) {
      for (const std::int64_t expert : sizes) {
        for (const std::int64_t context : sizes) {
          if (unit % (tensor * context * pipeline) != 0 || unit % (tensor * expert * pipeline) != 0) continue;
          Layout layout{.tensor_parallel_size = tensor,
                        .pipeline_parallel_size = pipeline,
                        .expert_parallel_size = expert,
                        .context_parallel_size = context};
          all.push_back(layout);
          if (tensor == 1) continue;
          layout.sequence_parallel = true;
          all.push_back(layout);
        }
      }
    }
  }
  return all;
}

bool is_allowed(const TrainingOptions& options) {
  try {
    check_mesh(options);
  } catch (const Error&) {
    return false;
  }
  // ZeRO needs ranks that have the same weights.
  return options.zero_stage == 0 || options.shards() > 1;
}

}  // namespace

Layout layout_of(const TrainingOptions& options) {
  return {.tensor_parallel_size = options.tensor_parallel_size,
          .sequence_parallel = options.sequence_parallel,
          .pipeline_parallel_size = options.pipeline_parallel_size,
          .virtual_pipeline_parallel_size = options.virtual_pipeline_parallel_size,
          .expert_parallel_size = options.expert_parallel_size,
          .context_parallel_size = options.context_parallel_size,
          .zero_stage = options.zero_stage.value_or(0),
          .per_device_train_batch_size = options.per_device_train_batch_size,
          .gradient_accumulation_steps = options.gradient_accumulation_steps,
          .gradient_checkpointing = options.gradient_checkpointing};
}

void apply(const Layout& layout, TrainingOptions& options) {
  options.tensor_parallel_size = layout.tensor_parallel_size;
  options.sequence_parallel = layout.sequence_parallel;
  options.pipeline_parallel_size = layout.pipeline_parallel_size;
  options.virtual_pipeline_parallel_size = layout.virtual_pipeline_parallel_size;
  options.expert_parallel_size = layout.expert_parallel_size;
  options.context_parallel_size = layout.context_parallel_size;
  options.zero_stage = layout.zero_stage;
  options.per_device_train_batch_size = layout.per_device_train_batch_size;
  options.gradient_accumulation_steps = layout.gradient_accumulation_steps;
  options.gradient_checkpointing = layout.gradient_checkpointing;
  if (layout.gradient_checkpointing != Recomputation::kAutomatic) options.activation_memory_gib.reset();
}

std::string to_text(const Layout& layout) {
  std::vector<std::string> parts;
  for (const LayoutNumber& number : kGroups) {
    const std::int64_t value = layout.*number.value;
    const std::int64_t unset = Layout{}.*number.value;
    if (value != unset) parts.push_back(text_of(number.shown, " ", value));
    if (number.value == &Layout::tensor_parallel_size && layout.sequence_parallel) parts.emplace_back("sequence");
  }
  if (parts.empty()) parts.emplace_back("data parallel");
  parts.push_back(text_of(layout.per_device_train_batch_size, " x ", layout.gradient_accumulation_steps));
  if (layout.gradient_checkpointing == Recomputation::kOn) parts.emplace_back("recomputing layers");
  if (layout.gradient_checkpointing == Recomputation::kAutomatic) parts.emplace_back("recomputing what must be");
  return join(parts, ", ");
}

std::string flags_of(const Layout& layout) {
  std::string flags;
  const auto add = [&](std::string_view key, std::string_view value) {
    flags += text_of(flags.empty() ? "--" : " --", key, " ", value);
  };
  for (const LayoutNumber& number : kGroups) {
    if (layout.*number.value != Layout{}.*number.value) add(number.key, std::to_string(layout.*number.value));
  }
  if (layout.sequence_parallel) add(kSequenceKey, "true");
  for (const LayoutNumber& number : kBatches) add(number.key, std::to_string(layout.*number.value));
  add(kRecomputation, name_of(layout.gradient_checkpointing));
  return flags;
}

Json to_json(const Layout& layout) {
  Json json = Json::object();
  for (const LayoutNumber& number : kGroups) json[number.key] = layout.*number.value;
  for (const LayoutNumber& number : kBatches) json[number.key] = layout.*number.value;
  json[kSequenceKey] = layout.sequence_parallel;
  json[kRecomputation] = name_of(layout.gradient_checkpointing);
  return json;
}

Layout layout_from_json(const Json& options) {
  Layout layout;
  const auto at = [&](const char* key) -> const Json& {
    const auto found = options.find(key);
    if (found == options.end()) throw Error("layout", text_of("the saved options have no ", key), "--layout search");
    return *found;
  };
  const auto read = [&](const LayoutNumber& number) {
    if (std::string_view(number.key) == kChunksKey && !options.contains(kChunksKey))
      return;  // saved before there were chunks
    const Json& value = at(number.key);
    if (value.is_null()) return;  // zero_stage that is unset
    if (!value.is_number_integer()) {
      throw Error("layout", text_of("the saved options have ", number.key, " ", value.dump()), "--layout search");
    }
    layout.*number.value = value.get<std::int64_t>();
  };
  for (const LayoutNumber& number : kGroups) read(number);
  for (const LayoutNumber& number : kBatches) read(number);
  if (const auto rows = options.find(kSequenceKey); rows != options.end()) {  // older checkpoints have none
    if (!rows->is_boolean()) {
      throw Error("layout", text_of("the saved options have ", kSequenceKey, " ", rows->dump()), "--layout search");
    }
    layout.sequence_parallel = rows->get<bool>();
  }
  const Json& recomputation = at(kRecomputation);
  if (!recomputation.is_boolean() && !recomputation.is_string()) {
    throw Error("layout", text_of("the saved options have ", kRecomputation, " ", recomputation.dump()),
                "--layout search");
  }
  const std::string name =
      recomputation.is_boolean() ? (recomputation.get<bool>() ? "true" : "false") : recomputation.get<std::string>();
  const std::vector<std::string_view> names = names_of<Recomputation>();
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) {
    throw Error("layout", text_of("the saved options have ", kRecomputation, " ", shown(std::string_view(name))),
                "--layout search");
  }
  layout.gradient_checkpointing = static_cast<Recomputation>(found - names.begin());
  return layout;
}

std::vector<Layout> possible_layouts(const TrainingOptions& options, std::int64_t unit, std::int64_t sequence_tokens,
                                     std::optional<std::int64_t> batch_size) {
  const std::int64_t sequences =
      options.per_device_train_batch_size * options.gradient_accumulation_steps * options.processes();
  std::vector<Layout> all;
  for (Layout layout : group_layouts(unit)) {
    layout.gradient_checkpointing = options.gradient_checkpointing;
    for (layout.zero_stage = 0; layout.zero_stage <= kMostZeroStage; ++layout.zero_stage) {
      TrainingOptions changed = options;
      apply(layout, changed);
      if (!is_allowed(changed)) continue;
      const std::int64_t of_reader = sequences / changed.mesh().readers();
      for (const std::int64_t size : divisors(of_reader, batch_size.value_or(kMostSequences))) {
        if (size != batch_size.value_or(size)) continue;
        layout.per_device_train_batch_size = size;
        layout.gradient_accumulation_steps = of_reader / size;
        apply(layout, changed);
        const std::int64_t stages = layout.pipeline_parallel_size;
        const bool fills_chunks = stages > 1 && micro_batches_of_step(changed, sequence_tokens) % stages == 0;
        for (const std::int64_t chunks : kChunks) {
          if (chunks > 1 && !fills_chunks) continue;
          layout.virtual_pipeline_parallel_size = chunks;
          all.push_back(layout);
        }
        layout.virtual_pipeline_parallel_size = 1;
      }
    }
  }
  std::ranges::sort(all);
  return all;
}

}  // namespace hone
