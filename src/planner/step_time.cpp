#include "planner/step_time.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/strings.h"
#include "ops/expert_ranks/expert_ranks.h"
#include "ops/grouped_linear/grouped_linear.h"
#include "ops/shards/shards.h"
#include "train/loss_program.h"
#include "train/optimizer.h"

namespace hone {
namespace {

constexpr double kTile = 128;  // rows and columns of a tile of a GEMM
// Steps of k that a tile takes in addition, to fill its buffers and to write its result.
constexpr double kTileStart = 128;
// The product at which the device's rate of a large GEMM counts, in each dimension.
constexpr double kLargeGemm = 8192;
// Share of the peak of bf16 that f32 products reach on devices whose rate is unknown.
constexpr double kF32Share = 1.0 / 20;

// The share of full tiles at a time, and of the time of a tile in which it multiplies.
double gemm_share(double m, double n, double k, double parallel_tiles) {
  const double tiles = std::ceil(m / kTile) * std::ceil(n / kTile);
  const double rounds = std::ceil(tiles / parallel_tiles);
  const double full = m * n / (rounds * parallel_tiles * kTile * kTile);
  return full * k / (k + kTileStart);
}

double bytes_of(const Program& program, std::span<const ValueId> values) {
  double bytes = 0;
  for (const ValueId id : values) {
    if (id != kNoValue) bytes += static_cast<double>(program.value(id).type.bytes());
  }
  return bytes;
}

bool is_head(std::string_view op) { return op.starts_with("linear_logprobs"); }

}  // namespace

StepTime& StepTime::add(const StepTime& other, double times) {
  for (const auto part : {&StepTime::products, &StepTime::attention, &StepTime::kernels, &StepTime::update,
                          &StepTime::exposed, &StepTime::slowed, &StepTime::bubble}) {
    this->*part += times * other.*part;
  }
  return *this;
}

// Work of a group of ranks.
struct CostModel::Transfer {
  double seconds = 0;
  double copies = 0;         // seconds of kernels before and after it
  std::int64_t starts = -1;  // slot of work that runs next to computation from here on
  std::int64_t waits = -1;   // slot of work that must be complete here
};

CostModel::CostModel(DeviceModel device, StepWork work)
    : device_(std::move(device)), gemm_flops_(device_.flops(work.dtype).per_second), work_(work) {
  if (gemm_flops_ == 0) gemm_flops_ = device_.peak_flops.per_second * kF32Share;
  if (!device_.step || gemm_flops_ == 0 || !device_.copy_bytes.is_known()) {
    throw Error("plan", text_of("the rates of ", device_.name, " are unknown"),
                text_of("name a device: ", join(devices_with_step_rates(), " or ")));
  }
  rates_ = *device_.step;
  gemm_flops_ /= gemm_share(kLargeGemm, kLargeGemm, kLargeGemm, rates_.parallel_tiles);
}

double CostModel::product_seconds(const Type& result, double flops) const {
  const auto m = static_cast<double>(std::max<std::int64_t>(result.rows(), 1));
  const auto n = static_cast<double>(std::max<std::int64_t>(result.row_size(), 1));
  const double k = std::max(flops / (2 * m * n), 1.0);
  return flops / (gemm_flops_ * gemm_share(m, n, k, rates_.parallel_tiles));
}

// The last tile of an expert's rows is half full on average.
double CostModel::grouped_seconds(const Program& program, const Node& node, double flops) const {
  const bool of_weights = node.op->name().ends_with("grouped_linear_weight_gradient");
  const bool of_input = node.op->name().ends_with("grouped_linear_input_gradient");
  const double share = of_weights ? rates_.grouped_weight_gradient_share
                       : of_input ? rates_.grouped_input_gradient_share
                                  : rates_.grouped_forward_share;
  const auto& attributes = node.attributes.as<GroupedLinearAttributes>();
  // Products in e4m3 read transposed copies for the weight gradient.
  const Type& operand = program.value(node.inputs[0]).type;
  const bool transposed = of_weights && operand.dtype == DType::kU8;
  const double rows = static_cast<double>(transposed ? operand.row_size() : operand.rows()) * attributes.share;
  const double of_expert = std::max(rows / static_cast<double>(attributes.experts), 1.0);
  const double large = gemm_flops_ * gemm_share(kLargeGemm, kLargeGemm, kLargeGemm, rates_.parallel_tiles);
  return flops / (large * share * of_expert / (of_expert + kTile / 2));
}

// flops: as if the tokens of a micro-batch were one sequence.
double CostModel::attention_seconds(std::string_view op, double flops) const {
  const auto sequence = static_cast<double>(std::min(work_.sequence, work_.tokens));
  const double useful = flops * (sequence + 1) / (static_cast<double>(work_.tokens) + 1);
  const bool backward = op.ends_with("_backward");
  const AttentionRate& rate = backward ? rates_.attention_backward : rates_.attention_forward;
  return useful / (rate.flops * sequence / (sequence + rate.tokens));
}

double CostModel::update_seconds(const Program& program, const Node& node, const Cost& cost) const {
  const double share = node.op->name() == "adamw_8bit" ? rates_.update_8bit_share : rates_.update_share;
  double paged = 0;  // bytes of states in host memory, read and written
  for (const ValueId id : node.inputs) {
    if (id == kNoValue) continue;
    const Value& value = program.value(id);
    if (value.placement == Placement::kHost) paged += static_cast<double>(value.type.bytes());
  }
  // A kernel that reads and writes over the link reaches less than a copy.
  constexpr double kLinkShare = 0.78;
  const double link = device_.link_bytes.per_second * kLinkShare;
  const double there = paged > 0 && link > 0 ? paged / link : 0;
  return std::max(there, (cost.bytes_read + cost.bytes_written) / (device_.copy_bytes.per_second * share)) +
         cost.flops / gemm_flops_;
}

// Interpolates between the sizes of the table; below the smallest one the rate falls with the time that none is below.
double CostModel::collective_seconds(double bytes, double bus_share) const {
  if (bytes == 0 || bus_share == 0) return 0;
  const std::vector<CopyRate>& table = rates_.collectives;
  const double bus = bytes * bus_share;
  const auto above = std::ranges::lower_bound(table, bytes, {}, &CopyRate::bytes);
  if (above == table.begin()) {
    const double seconds = std::max(table[0].bytes / table[0].bytes_per_second - rates_.collective_seconds, 0.0);
    return rates_.collective_seconds + bus * seconds / table[0].bytes;
  }
  if (above == table.end()) return bus / table.back().bytes_per_second;
  const CopyRate& low = *(above - 1);
  const double at = std::log(bytes / low.bytes) / std::log(above->bytes / low.bytes);
  return bus / (low.bytes_per_second + at * (above->bytes_per_second - low.bytes_per_second));
}

CostModel::Transfer CostModel::transfer(const Program& program, const Node& node) const {
  const std::string_view op = node.op->name();
  const auto part = [](double ranks) { return ranks > 1 ? (ranks - 1) / ranks : 0.0; };
  const double in = bytes_of(program, node.inputs);
  const double out = bytes_of(program, node.outputs);
  const double copy = device_.copy_bytes.per_second * rates_.kernel_share;
  if (op.starts_with("shards_")) {
    const auto& attributes = node.attributes.as<ShardsAttributes>();
    const Mesh& mesh = work_.mesh;
    const double ranks = attributes.same_experts ? mesh.same_experts_size() : mesh.data_size();
    if (op == "shards_gather") return {.seconds = collective_seconds(out, part(ranks)), .starts = attributes.slot};
    if (op == "shards_sum") return {.seconds = collective_seconds(in, part(ranks)), .starts = attributes.slot};
    if (op == "shards_sum_whole") {
      return {.seconds = collective_seconds(in, 2 * part(ranks)), .starts = attributes.slot};
    }
    const double added = op == "shards_add" ? 3 * out / copy : 0;  // two are read, one is written
    return {.copies = added, .waits = attributes.slot};
  }
  if (op == "ranks_gather") return {.seconds = collective_seconds(out, part(work_.mesh.tensor_size()))};
  if (op.starts_with("rank_rows_")) {
    const double whole = std::max(in, out);
    return {.seconds = collective_seconds(whole, part(work_.mesh.tensor_size())),
            .copies = (op == "rank_rows_sum" ? 2 * whole : 0) / copy + 2 * std::min(in, out) / copy};
  }
  if (op.starts_with("ranks_")) {
    const double bytes = static_cast<double>(program.value(node.outputs[0]).type.bytes());
    return {.seconds = collective_seconds(bytes, 2 * part(work_.mesh.tensor_size())), .copies = 2 * bytes / copy};
  }
  if (op == "context_rows_sum") return {.seconds = collective_seconds(out, 2 * part(work_.mesh.context_size()))};
  if (op.starts_with("context_rows_")) {
    const double whole = std::max(in, out);
    const bool moves = op == "context_rows_gather" || op == "context_rows_scatter";
    return {.seconds = moves ? collective_seconds(whole, part(work_.mesh.context_size())) : 0,
            .copies = (moves ? 4 : 2) * whole / copy};
  }
  if (op == "expert_ranks_send" || op == "expert_ranks_return") {
    // Each pair exchanges slots of the worst case; kernels write and read the rows that there are, and clear the rest.
    const auto& attributes = node.attributes.as<ExpertRanksAttributes>();
    const Type& x = program.value(node.inputs[ExpertRanksSendIn::x]).type;
    const Type& position = program.value(node.inputs[ExpertRanksSendIn::position]).type;
    const double row = static_cast<double>(x.row_size()) * static_cast<double>(size_of(x.dtype));
    const double slot = static_cast<double>(most_rows_to_rank(position, attributes)) * row;
    const double used = static_cast<double>(position.elements()) / work_.mesh.tensor_size() * row;
    return {.seconds = rates_.collective_seconds + static_cast<double>(attributes.ranks - 1) * slot / rates_.send_bytes,
            .copies = (4 * used + std::max(out - used, 0.0)) / copy};
  }
  return {.seconds = rates_.collective_seconds};
}

void CostModel::add_node(const Program& program, const Node& node, StepTime& time) const {
  const Cost cost = program.cost(node);
  const std::string_view op = node.op->name();
  const double copy = device_.copy_bytes.per_second * rates_.kernel_share;
  const double moved = (cost.bytes_read + cost.bytes_written) / copy;
  const double large = gemm_flops_ * gemm_share(kLargeGemm, kLargeGemm, kLargeGemm, rates_.parallel_tiles);
  time.kernels += rates_.node_seconds;
  if (node.phase == Phase::kUpdate || node.op->category() == OpCategory::kOptimizer) {
    time.update += update_seconds(program, node, cost);
  } else if (is_head(op)) {
    time.products += cost.flops / (large * rates_.head_share);
  } else if (op.starts_with("grouped_linear") || op.starts_with("scaled_grouped_linear")) {
    time.products += std::max(grouped_seconds(program, node, cost.flops), moved);
  } else if (node.op->category() == OpCategory::kGemm) {
    time.products += std::max(product_seconds(program.value(node.outputs[0]).type, cost.flops), moved);
  } else if (node.op->category() == OpCategory::kAttention) {
    time.attention += attention_seconds(op, cost.pair_flops);
  } else {
    time.kernels += moved;
  }
}

StepTime CostModel::run(const Program& program) const {
  StepTime time;
  double now = 0;                                             // of the device's computation
  double link_free = 0;                                       // when collectives next to it are done
  std::map<std::int64_t, std::pair<double, double>> running;  // by slot: the end, and the seconds, of its collectives
  for (const Node& node : program.nodes()) {
    if (node.op->is_view()) continue;
    const double before = time.total();
    const bool communicates = node.op->category() == OpCategory::kCommunication;
    if (!communicates || is_head(node.op->name())) add_node(program, node, time);
    if (communicates) {
      const Transfer work = transfer(program, node);
      time.kernels += work.copies;
      if (work.starts >= 0) {
        link_free = std::max(link_free, now) + work.seconds;
        running[work.starts] = {link_free, work.seconds};
      } else if (work.waits >= 0) {
        const auto [end, seconds] = running[work.waits];
        const double waited = std::clamp(end - now, 0.0, seconds);
        time.exposed += waited;
        time.slowed += rates_.overlap_loss * (seconds - waited);
      } else {
        time.exposed += work.seconds;
      }
    }
    now += time.total() - before;
  }
  return time;
}

double CostModel::gather_seconds() const {
  const auto gather = [&](double bytes, int ranks) {
    return bytes > 0 ? collective_seconds(bytes, static_cast<double>(ranks - 1) / ranks) : 0.0;
  };
  return gather(work_.gathered_bytes, work_.mesh.data_size()) +
         gather(work_.gathered_expert_bytes, work_.mesh.same_experts_size());
}

StepTime CostModel::step(const Workspace& workspace) const {
  const bool sums = workspace.has_program(kSummingProgram);
  const StepTime training = run(workspace.program(kTrainingProgram));
  StepTime time;
  time.add(training, static_cast<double>(work_.micro_batches - (sums ? 1 : 0)));
  if (sums) time.add(run(workspace.program(kSummingProgram)));
  time.add(run(workspace.program(kUpdateProgram)));
  time.exposed += gather_seconds();
  return time;
}

}  // namespace hone
