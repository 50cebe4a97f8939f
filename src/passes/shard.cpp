#include "passes/shard.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"
#include "ops/fill/fill.h"
#include "ops/shards/shards.h"
#include "passes/layer_runs.h"

namespace hone {
namespace {

// A stay of a whole weight: the runs `first` to `last`, all of which may read it. Neighbouring runs share a stay.
struct Stay {
  ValueId weight = kNoValue;
  std::size_t first = 0;
  std::size_t last = 0;
};

// The nodes between which a gradient accumulates.
struct Accumulation {
  ValueId gradient = kNoValue;
  std::size_t first = 0;
  std::size_t last = 0;
};

// Rewrites one program. Nodes are copied in their order; operations on shares are inserted at the beginning of runs, in
// front of readers and at the end of runs.
class Sharder {
 public:
  Sharder(const Program& program, const WeightShares& shares)
      : from_(program),
        shares_(shares),
        runs_(layer_runs(program)),
        rewriter_(program, {.retype = [&](const Value& value) { return type_of(value); }}),
        whole_(program.values().size(), false) {}

  Program run() {
    find_stays();
    find_accumulations();
    for (std::size_t n = 0; n < runs_.size(); ++n) {
      const bool begins = n == 0 || runs_[n - 1] != runs_[n];
      const bool ends = n + 1 == runs_.size() || runs_[n + 1] != runs_[n];
      if (begins) begin_run(n);
      place_inputs(n);
      rewriter_.replay(from_.nodes()[n]);
      if (ends) end_run(n);
    }
    if (!summed_.empty()) add_summed(from_.nodes().back());
    return rewriter_.finish();
  }

 private:
  [[nodiscard]] bool is_divided(const Value& value) const {
    if (value.producer >= 0 || !shares_.cuts.contains(value.name)) return false;
    return value.role == Role::kGradient || (value.role == Role::kWeight && shares_.weights);
  }
  [[nodiscard]] RowCuts cuts_of(const Value& value) const {
    return {value.type, shares_.cuts.find(value.name)->second};
  }
  [[nodiscard]] Type type_of(const Value& value) const {
    if (!is_divided(value)) return value.type;
    const bool is_expert = group_of(value) == ShardGroup::kSameExperts;
    return share_of(cuts_of(value), is_expert ? shares_.expert_member : shares_.rank);
  }
  [[nodiscard]] ShardGroup group_of(const Value& value) const {
    return shares_.experts.contains(value.name) ? ShardGroup::kSameExperts : ShardGroup::kData;
  }

  void find_stays() {
    std::map<ValueId, std::size_t> last_of;  // index of the last stay of a weight
    for (std::size_t n = 0; n < runs_.size(); ++n) {
      for (const ValueId id : from_.nodes()[n].inputs) {
        if (id == kNoValue || from_.value(id).role != Role::kWeight || !is_divided(from_.value(id))) continue;
        const auto found = last_of.find(id);
        if (found != last_of.end() && stays_[found->second].last + 1 >= runs_[n]) {
          stays_[found->second].last = runs_[n];
        } else {
          last_of[id] = stays_.size();
          stays_.push_back({id, runs_[n], runs_[n]});
        }
      }
    }
  }

  void find_accumulations() {
    for (std::size_t n = 0; n < runs_.size(); ++n) {
      const Node& node = from_.nodes()[n];
      for (const ValueId id : node.inputs) {
        if (id == kNoValue) continue;
        const ValueId root = from_.storage_of(id);
        const Value& value = from_.value(root);
        if (value.role != Role::kGradient || !is_divided(value)) continue;
        const auto found = std::ranges::find(accumulations_, root, &Accumulation::gradient);
        if (found == accumulations_.end()) {
          accumulations_.push_back({root, n, n});
        } else {
          found->last = n;
        }
      }
    }
  }

  void at(const Node& node) {
    rewriter_.program().set_scope(node.scope);
    rewriter_.program().set_phase(node.phase);
  }

  // Starts gathering what the next run begins to read, and the first run what it reads itself.
  void begin_run(std::size_t n) {
    if (runs_[n] == 0) gather(n, 0);
    gather(n, runs_[n] + 1);
  }

  void gather(std::size_t n, std::size_t run) {
    for (const ShardGroup group : kGroups) gather(n, run, group);
  }

  void gather(std::size_t n, std::size_t run, ShardGroup group) {
    std::vector<std::size_t> indices;
    std::vector<Tensor> inputs;
    std::vector<RowCuts> cuts;
    for (std::size_t s = 0; s < stays_.size(); ++s) {
      if (stays_[s].first != run || group_of(from_.value(stays_[s].weight)) != group) continue;
      indices.push_back(s);
      inputs.push_back(share(stays_[s].weight));
      cuts.push_back(cuts_of(from_.value(stays_[s].weight)));
    }
    if (indices.empty()) return;
    at(from_.nodes()[n]);
    gathered_[{run, group}] = {indices, gather_shares(inputs, cuts, gather_slot(run), group)};
  }

  // Maps the divided inputs of a node: weights to the whole weights, which are waited for at their first use, and a
  // gradient at its first use to zeros.
  void place_inputs(std::size_t n) {
    const Node& node = from_.nodes()[n];
    for (const ValueId id : node.inputs) {
      if (id == kNoValue || from_.value(id).producer >= 0 || !is_divided(from_.value(id))) continue;
      if (from_.value(id).role == Role::kWeight) {
        place_weight(n, id);
      } else if (!whole_[static_cast<std::size_t>(id)]) {
        at(node);
        (void)share(id);
        whole_[static_cast<std::size_t>(id)] = true;
        rewriter_.map(id, fill(rewriter_.program(), from_.value(id).type, 0.0));
      }
    }
  }

  void place_weight(std::size_t n, ValueId id) {
    const auto covers = [&](const Stay& stay) {
      return stay.weight == id && stay.first <= runs_[n] && runs_[n] <= stay.last;
    };
    const auto stay = std::ranges::find_if(stays_, covers);
    const ShardGroup group = group_of(from_.value(id));
    const auto gathered = gathered_.find({stay->first, group});
    if (gathered != gathered_.end()) {  // not waited for yet
      at(from_.nodes()[n]);
      const std::vector<Tensor> whole = wait_for_shares(gathered->second.tensors, gather_slot(stay->first), group);
      for (std::size_t i = 0; i < whole.size(); ++i) ready_[gathered->second.stays[i]] = whole[i];
      gathered_.erase(gathered);
    }
    rewriter_.map(id, ready_.at(static_cast<std::size_t>(stay - stays_.begin())));
  }

  // Adds the sums that the run before has started, and starts those of the gradients that this run has completed.
  void end_run(std::size_t n) {
    if (!summed_.empty()) add_summed(from_.nodes()[n]);
    for (const ShardGroup group : kGroups) {
      Sums sums{.gradients = {}, .whole = {}, .run = runs_[n], .group = group};
      std::vector<Tensor> whole;
      for (const Accumulation& each : accumulations_) {
        if (runs_[each.last] != runs_[n] || group_of(from_.value(each.gradient)) != group) continue;
        sums.gradients.push_back(each.gradient);
        whole.push_back(rewriter_.mapped(last_value(each)));
      }
      if (whole.empty()) continue;
      at(from_.nodes()[n]);
      sums.whole = sum_shares(whole, cuts_of(sums), sum_slot(sums.run), group);
      summed_.push_back(std::move(sums));
    }
  }

  void add_summed(const Node& node) {
    at(node);
    for (const Sums& sums : summed_) {
      std::vector<Tensor> shares;
      shares.reserve(sums.gradients.size());
      for (const ValueId id : sums.gradients) shares.push_back(share(id));
      (void)add_shares(sums.whole, shares, cuts_of(sums), sum_slot(sums.run), sums.group);
    }
    summed_.clear();
  }

  // Returns the value of the old program that holds a completed gradient.
  [[nodiscard]] ValueId last_value(const Accumulation& each) const {
    for (const ValueId id : from_.nodes()[each.last].outputs) {
      if (from_.storage_of(id) == each.gradient) return id;
    }
    throw Defect(text_of("the gradient of ", from_.value(each.gradient).name, " is read after its last update"));
  }

  // Returns the bound value with this rank's rows, which the map of the rewriter no longer has once a whole tensor has
  // taken its place.
  Tensor share(ValueId id) {
    const auto [found, is_new] = shares_of_.try_emplace(id);
    if (is_new) found->second = rewriter_.mapped(id);
    return found->second;
  }

  [[nodiscard]] std::int64_t gather_slot(std::size_t run) const { return static_cast<std::int64_t>(2 * run); }
  [[nodiscard]] std::int64_t sum_slot(std::size_t run) const { return static_cast<std::int64_t>(2 * run + 1); }

  static constexpr std::array kGroups{ShardGroup::kData, ShardGroup::kSameExperts};

  // Whole weights whose gathering has started, in the order of its outputs.
  struct Gathered {
    std::vector<std::size_t> stays;
    std::vector<Tensor> tensors;
  };
  // Gradients whose sums over a group are under way.
  struct Sums {
    std::vector<ValueId> gradients;
    std::vector<Tensor> whole;
    std::size_t run = 0;
    ShardGroup group = ShardGroup::kData;
  };
  [[nodiscard]] std::vector<RowCuts> cuts_of(const Sums& sums) const {
    std::vector<RowCuts> cuts;
    cuts.reserve(sums.gradients.size());
    for (const ValueId id : sums.gradients) cuts.push_back(cuts_of(from_.value(id)));
    return cuts;
  }

  const Program& from_;
  const WeightShares& shares_;
  std::vector<std::size_t> runs_;  // [nodes]
  ProgramRewriter rewriter_;
  std::vector<Stay> stays_;
  std::vector<Accumulation> accumulations_;
  std::map<std::pair<std::size_t, ShardGroup>, Gathered> gathered_;  // by the first run that reads it
  std::map<std::size_t, Tensor> ready_;                              // whole weights by stay
  std::map<ValueId, Tensor> shares_of_;                              // by the old bound value
  std::vector<bool> whole_;   // [values]: the gradient accumulates in zeros already
  std::vector<Sums> summed_;  // of the last run that completed gradients
};

}  // namespace

Program shard_weights(const Program& program, const WeightShares& shares) { return Sharder(program, shares).run(); }

}  // namespace hone
