#include "model/adapter_slots.h"

#include <algorithm>
#include <set>
#include <utility>

#include "checkpoint/model_directory.h"
#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "model/adapter_config.h"
#include "model/weight_layout.h"
#include "ops/linear/linear.h"
#include "ops/rows.h"
#include "ops/slot_lora/slot_lora.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

LoraConfig layout_config(std::int64_t max_rank) {
  LoraConfig config;
  config.r = max_rank;
  config.alpha = static_cast<double>(max_rank);
  config.target_modules = {"all-linear"};
  return config;
}

const WeightSpec& spec_of(const Model& model, const std::string& name) {
  const auto found = std::ranges::find(model.weights(), name, &WeightSpec::name);
  HONE_ASSERT(found != model.weights().end(), "the layout has no weight ", name);
  return *found;
}

// The tensors of an adapter's file, of which each must be used.
class AdapterTensors {
 public:
  explicit AdapterTensors(const fs::path& folder)
      : config_(read_json(folder / "adapter_config.json"), (folder / "adapter_config.json").string()),
        file_(folder / "adapter_model.safetensors") {
    for (const StoredTensor& tensor : file_.tensors()) unused_.insert(tensor.name);
    if (config_.dora())
      throw Error(text_of(config_.file(), ": use_dora"), "is true, which is not served by name", "serve it merged");
  }

  [[nodiscard]] const AdapterConfig& config() const { return config_; }
  // Returns the values of a tensor, which must have this shape; none if the adapter has no such tensor.
  std::vector<float> values(const std::string& name, std::int64_t rows, std::int64_t columns) {
    const StoredTensor* tensor = file_.find(name);
    if (tensor == nullptr) return {};
    unused_.erase(name);
    const std::vector<std::int64_t> wanted{rows, columns};
    if (tensor->shape != wanted)
      throw Error(tensor->file, text_of("tensor ", name, " is ", shape_text(tensor->shape), ", but ", config_.file(),
                                        " with this model requires ", shape_text(wanted)));
    return read_values<float>(*tensor);
  }
  void check_all_used() const {
    if (unused_.empty()) return;
    throw Error(file_.name(),
                text_of("tensor ", *unused_.begin(), " is none of a linear layer's adapter of this model"),
                "serve the adapter merged, or its base model");
  }

 private:
  AdapterConfig config_;
  SafetensorsFile file_;
  std::set<std::string, std::less<>> unused_;
};

// One part (such as q of q, k and v) of a block's image.
struct PartImage {
  std::int64_t rank, max_rank, columns, width;
  std::int64_t first_down;  // first row of the part in A
  std::int64_t first_up;    // first row of the part in B
  std::int64_t rows;        // of B
  double scale;
};

template <class T>
void write_part(const PartImage& part, std::span<const float> a, std::span<const float> b, AdapterImage::Block& block) {
  T* down = reinterpret_cast<T*>(block.down.data()) + part.first_down * part.columns;
  for (std::size_t i = 0; i < a.size(); ++i) down[i] = static_cast<T>(a[i]);
  T* up = reinterpret_cast<T*>(block.up.data()) + part.first_up * part.width + part.first_down;
  // Rounded as lora_spread rounds B after loading it.
  const auto scale = static_cast<Accumulator<T>>(part.scale);
  for (std::int64_t row = 0; row < part.rows; ++row)
    for (std::int64_t j = 0; j < part.rank; ++j)
      up[row * part.width + j] =
          static_cast<T>(widen(static_cast<T>(b[static_cast<std::size_t>(row * part.rank + j)])) * scale);
}

}  // namespace

AdapterSlots::AdapterSlots(std::unique_ptr<Model> base, std::int64_t slots, std::int64_t max_rank)
    : AdapterSlots(std::make_unique<LoraModel>(std::move(base), layout_config(max_rank)), slots, max_rank) {}

AdapterSlots::AdapterSlots(std::unique_ptr<LoraModel> layout, std::int64_t slots, std::int64_t max_rank)
    : WrappedModel(std::move(layout)),
      layout_(static_cast<const LoraModel&>(base())),
      slots_(slots),
      max_rank_(max_rank) {
  specs_ = layout_.base().weights();
  for (const auto& [block, parts] : layout_.blocks()) {
    for (const bool is_down : {true, false}) {
      const WeightSpec& spec = spec_of(layout_, is_down ? LoraModel::down_name(block) : LoraModel::up_name(block));
      const std::int64_t columns = is_down ? spec.shape[1] : parts.count * max_rank;
      specs_.push_back({.name = is_down ? down_name(block) : up_name(block),
                        .shape = {slots * spec.shape[0], columns},
                        .parts = {},
                        .kind = WeightKind::table,
                        .initializer = Initializer::kZeros,
                        .trainable = false,
                        .in_folder = false});
    }
  }
  check_specs(specs_);
}

Program AdapterSlots::adapted(Program program, const TraceUse&) const {
  ProgramRewriter rewriter(program);
  const auto weight = [&](const std::string& name) {
    const WeightSpec& spec = spec_of(*this, name);
    return rewriter.program().weight(name, spec.traced_type(), false, spec.dtype.has_value());
  };
  for (const Node& node : program.nodes()) {
    rewriter.program().set_scope(node.scope);
    rewriter.program().set_phase(node.phase);
    rewriter.replay(node);
    if (node.op->name() != "linear") continue;
    const Value& used = program.value(node.inputs[LinearIn::weight]);
    if (used.role != Role::kWeight || !layout_.blocks().contains(used.name)) continue;
    const Tensor x = rewriter.mapped(node.inputs[LinearIn::x]);
    const ValueId known = rewriter.program().find(Role::kInput, kAdapterSlots);
    const Tensor slots = known != kNoValue ? rewriter.program().tensor(known)
                                           : rewriter.program().input(kAdapterSlots, {DType::kI32, {x.shape()[0]}});
    rewriter.map(node.outputs[0], slot_lora(rewriter.mapped(node.outputs[0]), x, slots, weight(down_name(used.name)),
                                            weight(up_name(used.name))));
  }
  return rewriter.finish();
}

AdapterImage AdapterSlots::read(const fs::path& folder, DType dtype) const {
  if (!is_adapter_folder(folder))
    throw Error(folder.string(), "is not the folder of an adapter", "it needs adapter_config.json and its weights");
  AdapterTensors tensors(folder);
  AdapterImage image;
  for (const auto& [name, parts] : layout_.blocks()) {
    const WeightSpec& down = spec_of(layout_, LoraModel::down_name(name));
    const WeightSpec& up = spec_of(layout_, LoraModel::up_name(name));
    const std::int64_t width = parts.count * max_rank_;
    AdapterImage::Block block;
    block.down.resize(static_cast<std::size_t>(width * down.shape[1]) * size_of(dtype));
    block.up.resize(static_cast<std::size_t>(up.shape[0] * width) * size_of(dtype));
    for (std::size_t p = 0; p < down.parts.size(); ++p) {
      const std::string& tensor = down.parts[p].name;
      const std::string module = tensor.substr(kPeftPrefix.size(), tensor.rfind(".lora_A") - kPeftPrefix.size());
      const PartImage part{.rank = tensors.config().rank(module),
                           .max_rank = max_rank_,
                           .columns = down.shape[1],
                           .width = width,
                           .first_down = down.parts[p].row,
                           .first_up = up.parts[p].row,
                           .rows = up.parts[p].rows,
                           .scale = tensors.config().scale(module)};
      const std::vector<float> a = tensors.values(down.parts[p].name, part.rank, part.columns);
      const std::vector<float> b = tensors.values(up.parts[p].name, part.rows, part.rank);
      if (a.empty() && b.empty()) continue;
      if (a.empty() || b.empty())
        throw Error(folder.string(), text_of(module, " has only one of its matrices lora_A and lora_B"));
      if (part.rank > max_rank_)
        throw Error(tensors.config().file(),
                    text_of(module, " has rank ", part.rank, ", but max_lora_rank is ", max_rank_),
                    text_of("set max_lora_rank to at least ", part.rank));
      for_floating(dtype, [&]<class T>() { write_part<T>(part, a, b, block); });
    }
    image.blocks.emplace(name, std::move(block));
  }
  tensors.check_all_used();
  return image;
}

void AdapterSlots::place(const AdapterImage& image, std::int64_t slot, TensorStore& weights) const {
  HONE_ASSERT(slot >= 0 && slot < slots_, "slot ", slot, " of ", slots_);
  for (const auto& [name, block] : image.blocks) {
    const auto at = [slot](const std::vector<std::byte>& bytes) {
      return static_cast<std::size_t>(slot) * bytes.size();
    };
    weights.upload(down_name(name), at(block.down), block.down);
    weights.upload(up_name(name), at(block.up), block.up);
  }
}

}  // namespace hone
