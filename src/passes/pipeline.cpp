#include "passes/pipeline.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>

#include "backend/device_model.h"
#include "core/error.h"
#include "core/strings.h"
#include "ops/fill/fill.h"
#include "passes/gradient.h"
#include "passes/layer.h"

namespace hone {
namespace {

constexpr std::string_view kReceived = "received.";
constexpr std::string_view kSent = "sent.";
constexpr std::string_view kConstant = "constant.";
constexpr std::string_view kGradientOf = "gradient of ";

// Returns the number of the layer of a scope, which is in one.
std::int64_t layer_number(std::string_view scope) {
  const std::string_view number = layer_of(scope).substr(kLayerPrefix.size());
  std::int64_t layer = -1;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), layer);
  HONE_ASSERT(error == std::errc() && end == number.data() + number.size(), "the scope ", scope, " names no layer");
  return layer;
}

std::size_t at(ValueId id) { return static_cast<std::size_t>(id); }

// Returns [nodes], true for those that depend on inputs of the program alone and belong to no layer. Each stage has its
// own copy of them.
std::vector<bool> free_nodes(const Program& program) {
  std::vector<bool> free(program.nodes().size(), false);
  for (std::size_t n = 0; n < free.size(); ++n) {
    const Node& node = program.nodes()[n];
    free[n] = !is_in_layer(node.scope) && !updates_in_place(node) && std::ranges::all_of(node.inputs, [&](ValueId id) {
      if (id == kNoValue) return true;
      const Value& value = program.value(id);
      return value.producer >= 0 ? free[static_cast<std::size_t>(value.producer)] : value.role == Role::kInput;
    });
  }
  return free;
}

constexpr int kEachStage = -1;

// Returns [nodes], the stage of each node, or kEachStage. Stages follow each other in the order of nodes.
std::vector<int> stages_of_nodes(const Program& program, const StageCut& cut) {
  const std::vector<bool> free = free_nodes(program);
  std::vector<int> stages(free.size(), kEachStage);
  int current = 0;
  for (std::size_t n = 0; n < free.size(); ++n) {
    if (free[n]) continue;
    const std::string& scope = program.nodes()[n].scope;
    if (is_in_layer(scope)) current = std::max(current, cut.stage_of(layer_number(scope)));
    stages[n] = current;
  }
  return stages;
}

// The values that cross the cut before each stage, and whether their gradients do.
struct Crossing {
  std::vector<std::vector<ValueId>> before;  // [stages], ascending
  std::set<ValueId> differentiable;
};

Crossing find_crossing(const Program& program, const StageCut& cut, const std::vector<int>& stages) {
  std::vector<int> last_reader(program.values().size(), -1);
  for (std::size_t n = 0; n < stages.size(); ++n) {
    for (const ValueId id : program.nodes()[n].inputs) {
      if (id != kNoValue) last_reader[at(id)] = std::max(last_reader[at(id)], stages[n]);
    }
  }
  for (const Output& output : program.outputs()) last_reader[at(output.value)] = cut.stages() - 1;
  Crossing crossing{.before = std::vector<std::vector<ValueId>>(static_cast<std::size_t>(cut.stages())),
                    .differentiable = {}};
  std::set<ValueId> all;
  for (std::size_t i = 0; i < last_reader.size(); ++i) {
    const std::int32_t producer = program.values()[i].producer;
    if (producer < 0 || stages[static_cast<std::size_t>(producer)] == kEachStage) continue;
    for (int stage = stages[static_cast<std::size_t>(producer)] + 1; stage <= last_reader[i]; ++stage) {
      crossing.before[static_cast<std::size_t>(stage)].push_back(static_cast<ValueId>(i));
      all.insert(static_cast<ValueId>(i));
    }
  }
  // The backward pass of the whole program says which gradients there are.
  Program whole = program;
  for (const Output& output : program.outputs()) {
    if (output.name != cut.loss) continue;
    const Tensor loss = whole.tensor(output.value);
    const GradientSeed seed{loss, fill(whole, loss.type(), 1.0)};
    std::vector<Tensor> wanted;
    wanted.reserve(all.size());
    for (const ValueId id : all) wanted.push_back(whole.tensor(id));
    const std::vector<Tensor> gradients = append_gradients(whole, {&seed, 1}, wanted);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (gradients[i]) crossing.differentiable.insert(wanted[i].id());
    }
  }
  return crossing;
}

std::string crossing_name(std::string_view prefix, const Crossing& crossing, ValueId id, std::size_t index) {
  return text_of(prefix, crossing.differentiable.contains(id) ? "" : kConstant, index);
}

// Builds the program of one stage.
class StageCutter {
 public:
  StageCutter(const Program& program, const StageCut& cut)
      : from_(program),
        cut_(cut),
        stages_(stages_of_nodes(program, cut)),
        crossing_(find_crossing(program, cut, stages_)),
        included_(program.nodes().size(), false),
        read_(program.values().size(), false) {
    for (const ValueId id : received()) read_[at(id)] = true;  // not to be computed here
    for (std::size_t n = stages_.size(); n-- > 0;) {
      if (stages_[n] == cut_.stage) include(n);
    }
    if (cut_.is_last()) {
      for (const Output& output : from_.outputs()) read(output.value);
    }
  }

  Program run() {
    ProgramRewriter rewriter(from_, {.keeps = [&](ValueId id) { return read_[at(id)]; }});
    for (std::size_t i = 0; i < received().size(); ++i) {
      const ValueId id = received()[i];
      rewriter.map(id, rewriter.program().input(crossing_name(kReceived, crossing_, id, i), from_.value(id).type));
    }
    for (std::size_t n = 0; n < included_.size(); ++n) {
      if (included_[n]) rewriter.replay(from_.nodes()[n]);
    }
    if (cut_.is_last()) return rewriter.finish();
    const std::vector<ValueId>& sent = crossing_.before[static_cast<std::size_t>(cut_.stage) + 1];
    for (std::size_t i = 0; i < sent.size(); ++i) {
      rewriter.program().output(crossing_name(kSent, crossing_, sent[i], i), rewriter.mapped(sent[i]));
    }
    return rewriter.take();
  }

 private:
  [[nodiscard]] const std::vector<ValueId>& received() const {
    return crossing_.before[static_cast<std::size_t>(cut_.stage)];
  }

  void include(std::size_t n) {
    if (included_[n]) return;
    included_[n] = true;
    for (const ValueId id : from_.nodes()[n].inputs) read(id);
  }

  // Marks a value as read, and includes the nodes of each stage that compute it.
  void read(ValueId id) {
    if (id == kNoValue || read_[at(id)]) return;
    read_[at(id)] = true;
    const std::int32_t producer = from_.value(id).producer;
    if (producer < 0) return;
    const auto node = static_cast<std::size_t>(producer);
    if (stages_[node] == kEachStage) include(node);
  }

  const Program& from_;
  const StageCut& cut_;
  std::vector<int> stages_;  // [nodes]
  Crossing crossing_;
  std::vector<bool> included_;  // [nodes]
  std::vector<bool> read_;      // [values]
};

double seconds_of(const Cost& cost) {
  const DeviceModel gpu = built_in_model(DeviceKind::kCuda);
  return cost.flops / gpu.bf16_flops.per_second + (cost.bytes_read + cost.bytes_written) / gpu.copy_bytes.per_second;
}

}  // namespace

int StageCut::stage_of(std::int64_t layer) const {
  return static_cast<int>(std::ranges::upper_bound(first_layers, layer) - first_layers.begin()) - 1;
}

std::int64_t count_layers(const Program& program) {
  std::int64_t layers = 0;
  for (const Node& node : program.nodes()) {
    if (is_in_layer(node.scope)) layers = std::max(layers, layer_number(node.scope) + 1);
  }
  return layers;
}

std::vector<std::int64_t> balanced_layers(const Program& program, int stages) {
  // [layers + 1]: seconds of what comes before a layer.
  const auto layers = static_cast<std::size_t>(count_layers(program));
  const auto count = static_cast<std::size_t>(stages);
  HONE_ASSERT(stages > 0 && layers >= count, layers, " layers, ", stages, " stages");
  std::vector<double> seconds(layers, 0);
  std::size_t layer = 0;
  for (const Node& node : program.nodes()) {
    if (node.op->is_view()) continue;
    if (is_in_layer(node.scope)) layer = static_cast<std::size_t>(layer_number(node.scope));
    seconds[layer] += seconds_of(program.cost(node));
  }
  std::vector<double> before(layers + 1, 0);
  for (std::size_t i = 0; i < layers; ++i) before[i + 1] = before[i] + seconds[i];
  // slowest[s][first]: least time of the slowest of the stages from s on, if stage s begins at layer `first`.
  std::vector<std::vector<double>> slowest(count, std::vector<double>(layers, std::numeric_limits<double>::infinity()));
  std::vector<std::vector<std::size_t>> end(count, std::vector<std::size_t>(layers, layers));
  for (std::size_t s = count; s-- > 0;) {
    for (std::size_t first = s; first < layers; ++first) {
      if (s + 1 == count) {
        slowest[s][first] = before[layers] - before[first];
        continue;
      }
      for (std::size_t next = first + 1; next < layers; ++next) {
        const double time = std::max(before[next] - before[first], slowest[s + 1][next]);
        if (time >= slowest[s][first]) continue;
        slowest[s][first] = time;
        end[s][first] = next;
      }
    }
  }
  std::vector<std::int64_t> firsts;
  std::size_t first = 0;
  for (std::size_t s = 0; s < count; ++s) {
    firsts.push_back(static_cast<std::int64_t>(first));
    first = end[s][first];
  }
  return firsts;
}

std::map<std::string, std::vector<int>> stages_of_weights(const Program& program, const StageCut& cut) {
  const std::vector<int> stages = stages_of_nodes(program, cut);
  std::map<std::string, std::vector<int>> readers;
  for (std::size_t n = 0; n < stages.size(); ++n) {
    for (const ValueId id : program.nodes()[n].inputs) {
      if (id == kNoValue || program.value(id).role != Role::kWeight) continue;
      std::vector<int>& of = readers[program.value(id).name];
      if (of.empty() || of.back() != stages[n]) of.push_back(stages[n]);  // nodes are in the order of stages
    }
  }
  return readers;
}

Program cut_stage(const Program& program, const StageCut& cut) { return StageCutter(program, cut).run(); }

bool is_received(std::string_view name) { return name.starts_with(kReceived); }
bool is_sent(std::string_view name) { return name.starts_with(kSent); }
bool has_gradient(std::string_view name) {
  const std::size_t prefix = is_received(name) ? kReceived.size() : is_sent(name) ? kSent.size() : name.size();
  return prefix < name.size() && !name.substr(prefix).starts_with(kConstant);
}
std::string gradient_name(std::string_view name) { return text_of(kGradientOf, name); }
std::int64_t crossing_number(std::string_view name) {
  return std::stoll(std::string(name.substr(name.rfind('.') + 1)));
}
bool is_received_gradient(std::string_view name) {
  return name.starts_with(kGradientOf) && is_received(name.substr(kGradientOf.size()));
}
bool is_sent_gradient(std::string_view name) {
  return name.starts_with(kGradientOf) && is_sent(name.substr(kGradientOf.size()));
}

}  // namespace hone
