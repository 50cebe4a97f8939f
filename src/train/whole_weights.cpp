#include "train/whole_weights.h"

#include <algorithm>
#include <span>
#include <vector>

#include "core/error.h"
#include "model/expert_parallel_model.h"
#include "model/stage_model.h"
#include "model/tensor_parallel_model.h"

namespace hone {
namespace {

// Moves a range of bytes of a rank's part of a weight to rank 0. All ranks call it; rank 0 gets the bytes in `to`.
void move_rows(const Job& job, int from, const TensorStore& stored, const std::string& name, std::span<std::byte> to,
               std::size_t bytes) {
  constexpr std::size_t kPiece = std::size_t{16} << 20;
  std::vector<std::byte> piece;
  for (std::size_t done = 0; done < bytes; done += kPiece) {
    const std::size_t count = std::min(kPiece, bytes - done);
    if (job.rank() == from) {
      piece.resize(count);
      stored.download(name, done, piece);
      const Peers::Transfer transfer{0, piece, {}};
      job.peers()->exchange({&transfer, 1});
    } else if (job.is_first()) {
      const Peers::Transfer transfer{from, {}, to.subspan(done, count)};
      job.peers()->exchange({&transfer, 1});
    }
  }
}

}  // namespace

ByteRange HeldWeights::rows_of(std::size_t index, int data_rank, std::size_t bytes) const {
  const WeightSpec& spec = shards_.model().weights()[index];
  if (!divided_ || !spec.trainable) return {0, bytes};
  const RowRange rows = shards_.rows_of(index, data_rank);
  const std::size_t row = bytes / static_cast<std::size_t>(spec.shape[0]);
  return {static_cast<std::size_t>(rows.first) * row, static_cast<std::size_t>(rows.first + rows.count) * row};
}

void HeldWeights::take(std::size_t index, const TensorStore& weight, TensorStore& stored) const {
  if (shards_.model().stage() != nullptr) {
    const std::string& name = shards_.model().whole().weights()[index].name;
    if (!stored.contains(name)) return;
    stored.upload(name, weight.download(name));
    return stored.device().synchronize();
  }
  const WeightSpec& spec = shards_.model().weights()[index];
  const std::vector<std::byte> part = part_of(shards_.model(), index, weight);
  const ByteRange rows = rows_of(index, rank_, part.size());
  if (rows.begin == rows.end) return;
  stored.upload(spec.name, 0, std::span(part).subspan(rows.begin, rows.end - rows.begin));
  stored.device().synchronize();
}

void HeldWeights::fill_random(std::uint64_t seed, TensorStore& stored) const {
  const Model& whole = shards_.model().whole();
  for (std::size_t i = 0; i < whole.weights().size(); ++i) {
    const WeightSpec& spec = whole.weights()[i];
    if (!stored.contains(spec.name)) continue;  // of another stage
    take(i, random_weight(whole, spec, seed, stored.type(spec.name).dtype, stored.device()), stored);
  }
}

void HeldWeights::load(const ModelDirectory& directory, Vocabulary vocabulary, TensorStore& stored) const {
  load_each_weight(shards_.model().whole(), directory, model_dtype(shards_.model(), stored), vocabulary,
                   [&](std::size_t index, const TensorStore& weight) { take(index, weight, stored); });
}

TensorStore HeldWeights::assemble_stages(const TensorStore& stored, const Job& job) const {
  const StageModel& model = *shards_.model().stage();
  const std::vector<NamedType> types = weight_types(model.whole(), model_dtype(model, stored));
  TensorStore whole;
  if (job.is_first()) whole = TensorStore(cpu_device(), types);
  for (std::size_t i = 0; i < types.size(); ++i) {
    const std::string& name = types[i].name;
    const std::size_t bytes = types[i].type.bytes();
    std::span<std::byte> to;
    if (job.is_first()) to = {whole.data(name), bytes};
    if (const int from = job.rank_of(model.first_holder(i), 0, 0); from > 0) {
      move_rows(job, from, stored, name, to, bytes);
    } else if (job.is_first()) {
      stored.download(name, 0, to);
    }
  }
  return whole;
}

TensorStore HeldWeights::assemble(const TensorStore& stored, const Job& job) const {
  const Model& model = shards_.model();
  if (model.stage() != nullptr) return assemble_stages(stored, job);
  const DType dtype = model_dtype(model, stored);
  const std::vector<NamedType> parts = weight_types(model, dtype);
  const std::vector<NamedType> types = weight_types(model.whole(), dtype);
  TensorStore whole;
  if (job.is_first()) whole = TensorStore(cpu_device(), types);
  std::vector<std::byte> part;  // a tensor rank's part of a weight
  for (std::size_t i = 0; i < types.size(); ++i) {
    const WeightSpec& spec = model.weights()[i];
    const std::size_t bytes = parts[i].type.bytes();
    std::span<std::byte> target;  // on rank 0: the whole weight, or a tensor rank's part of it
    if (job.is_first() && is_divided(spec)) part.resize(bytes);
    if (job.is_first()) target = is_divided(spec) ? std::span(part) : std::span(whole.data(types[i].name), bytes);
    // One of the ranks that have a part of the weight has number t among those of its tensor or expert group.
    const int ranks = is_divided(spec) ? job.tensor_size() * job.expert_size() : 1;
    const int apart = is_divided(spec) ? ranks : job.tensor_size();  // ranks with the same part
    for (int t = 0; t < ranks; ++t) {
      for (int d = 0; d < (divided_ && spec.trainable ? shards_.members(i) : 1); ++d) {
        const int from = d * apart + t;
        const ByteRange rows = rows_of(i, from / job.tensor_size(), bytes);
        const std::span<std::byte> to =
            job.is_first() ? target.subspan(rows.begin, rows.end - rows.begin) : std::span<std::byte>();
        if (from > 0) {
          move_rows(job, from, stored, spec.name, to, rows.end - rows.begin);
        } else if (job.is_first() && !to.empty()) {
          stored.download(spec.name, 0, to);
        }
      }
      if (!job.is_first() || !is_divided(spec)) continue;
      const WeightSpec& all = model.whole().weights()[i];
      const bool by_expert = job.expert_size() > 1;
      put_part(by_expert ? expert_spec(all, t, ranks) : part_spec(all, t, ranks), all, size_of(types[i].type.dtype),
               part, std::span(whole.data(types[i].name), types[i].type.bytes()));
    }
  }
  return whole;
}

TensorStore held_weights(const Model& model, const OptimizerOptions& options, DType dtype, Device& device,
                         const std::function<void(const HeldWeights& held, TensorStore& stored)>& fill) {
  const UpdateShards shards(model, options, options.ranks);
  TensorStore stored(device, stored_weights(model, dtype, options));
  fill(HeldWeights(shards, options), stored);
  return stored;
}

}  // namespace hone
