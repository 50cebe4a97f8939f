#include "train/whole_weights.h"

#include <algorithm>
#include <span>
#include <vector>

#include "core/error.h"
#include "model/adapter_files.h"
#include "model/expert_parallel_model.h"
#include "model/stage_model.h"
#include "model/tensor_parallel_model.h"

namespace hone {
namespace {

void send_to_first(const Job& job, std::span<const std::byte> bytes) {
  const Peers::Transfer transfer{0, bytes, {}};
  job.peers()->exchange({&transfer, 1});
}
void receive_from(const Job& job, int rank, std::span<std::byte> bytes) {
  const Peers::Transfer transfer{rank, {}, bytes};
  job.peers()->exchange({&transfer, 1});
}

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
      send_to_first(job, piece);
    } else if (job.is_first()) {
      receive_from(job, from, to.subspan(done, count));
    }
  }
}

// Returns the number of the parts into which an expert group divides a weight, or a tensor rank's part of it.
int expert_parts(const WeightSpec& spec, const Job& job) {
  return spec.kind == WeightKind::expert ? job.expert_size() : 1;
}

}  // namespace

ByteRange HeldWeights::rows_of(const WeightSpec& spec, std::size_t bytes) const {
  if (!divided_ || !spec.trainable) return {0, bytes};
  const std::vector<WeightSpec>& own = shards_.model().weights();
  const auto index = static_cast<std::size_t>(std::ranges::find(own, spec.name, &WeightSpec::name) - own.begin());
  HONE_ASSERT(index < own.size(), spec.name, " is a weight of another stage");
  const RowRange rows = shards_.rows_of(index, rank_);
  const std::size_t row = bytes / static_cast<std::size_t>(spec.shape[0]);
  return {static_cast<std::size_t>(rows.first) * row, static_cast<std::size_t>(rows.first + rows.count) * row};
}

void HeldWeights::take(std::size_t index, const TensorStore& weight, TensorStore& stored) const {
  const Model& parts = of_all_stages(shards_.model());
  const WeightSpec& spec = parts.weights()[index];
  if (const LoraModel* lora = parts.whole().adapter()) {
    // The stage that trains a copy need not have the base's weight.
    for (const SavedModule& saved : lora->saved()) {
      if (saved.block == spec.name && stored.contains(saved.copy)) {
        stored.upload(saved.copy, part_of(parts, index, weight));
        stored.device().synchronize();
      }
    }
    // Norms of rows of which this rank has some columns.
    if (lora->lora().dora && lora->blocks().contains(spec.name) && stored.contains(spec.name) &&
        spec.shape[0] == parts.whole().weights()[index].shape[0]) {
      initialize_magnitudes(weight, spec.name, stored);
    }
  }
  if (!stored.contains(spec.name) || !spec.in_folder) return;  // of another stage, or of an adapter
  const std::vector<std::byte> part = part_of(parts, index, weight);
  const ByteRange rows = rows_of(spec, part.size());
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

void HeldWeights::load_adapter(const std::filesystem::path& folder, TensorStore& stored) const {
  const Model& parts = of_all_stages(shards_.model());
  const LoraModel& lora = *parts.whole().adapter();
  std::vector<NamedType> types = weight_types(lora, model_dtype(shards_.model(), stored));
  std::erase_if(types, [&](const NamedType& type) {
    const auto is_it = [&](const WeightSpec& spec) { return spec.name == type.name && !spec.in_folder; };
    return std::ranges::none_of(lora.weights(), is_it);
  });
  TensorStore all(cpu_device(), types);
  hone::load_adapter(folder, lora, all);
  for (std::size_t i = 0; i < lora.weights().size(); ++i) {
    const WeightSpec& spec = parts.weights()[i];
    if (spec.in_folder || !stored.contains(spec.name)) continue;
    std::vector<std::byte> held = stored.download(spec.name);  // rows that belong to no part stay
    take_part(spec, lora.weights()[i], size_of(all.type(spec.name).dtype), all.download(spec.name), held);
    stored.upload(spec.name, held);
  }
  stored.device().synchronize();
}

TensorStore HeldWeights::assemble(const TensorStore& stored, const Job& job) const {
  const Model& all = of_all_stages(shards_.model());
  const std::vector<WeightSpec>& wholes = all.whole().weights();
  const DType dtype = model_dtype(shards_.model(), stored);
  const std::vector<NamedType> types = weight_types(all.whole(), dtype);
  const std::vector<NamedType> part_types = weight_types(all, dtype);
  TensorStore whole;
  if (job.is_first()) whole = TensorStore(cpu_device(), types);
  std::vector<std::byte> part;  // a tensor or expert rank's part of a weight
  for (std::size_t i = 0; i < types.size(); ++i) {
    const std::size_t bytes = part_types[i].type.bytes();
    const bool has_parts = is_divided(all.weights()[i]);
    std::span<std::byte> target;  // on rank 0: the whole weight, or the part
    if (job.is_first() && has_parts) part.resize(bytes);
    if (job.is_first()) target = has_parts ? std::span(part) : std::span(whole.data(types[i].name), bytes);
    const int tensor_parts = is_divided(part_spec(wholes[i], 0, job.tensor_size())) ? job.tensor_size() : 1;
    for (int t = 0; t < tensor_parts; ++t) {
      for (int e = 0; e < expert_parts(wholes[i], job); ++e) {
        assemble_part(i, {t, e}, job, stored, target, bytes);
        if (!job.is_first() || !has_parts) continue;
        put_part(expert_spec(part_spec(wholes[i], t, job.tensor_size()), e, job.expert_size()), wholes[i],
                 size_of(types[i].type.dtype), part, std::span(whole.data(types[i].name), types[i].type.bytes()));
      }
    }
  }
  return whole;
}

void HeldWeights::assemble_part(std::size_t index, PartPlace place, const Job& job, const TensorStore& stored,
                                std::span<std::byte> target, std::size_t bytes) const {
  const WeightSpec& spec = of_all_stages(shards_.model()).weights()[index];
  const StageModel* const stage = shards_.model().stage();
  const int first_stage = stage != nullptr ? stage->first_holder(index) : 0;
  const int parts = expert_parts(spec, job);
  const int members = divided_ && spec.trainable ? job.data_size() / parts : 1;
  for (int member = 0; member < members; ++member) {
    // Data ranks with the same experts have the same number modulo the size of an expert group.
    const int from = job.rank_of(first_stage, member * parts + place.expert_rank, place.tensor_rank);
    ByteRange rows;
    if (job.rank() == from) rows = rows_of(spec, bytes);
    if (from == 0) {
      if (job.is_first() && rows.begin < rows.end) {
        stored.download(spec.name, 0, target.subspan(rows.begin, rows.end - rows.begin));
      }
      continue;
    }
    // The rows of a rank of another stage are not known here.
    const std::span<std::byte> range = std::as_writable_bytes(std::span(&rows, 1));
    if (job.rank() == from) send_to_first(job, range);
    if (!job.is_first() && job.rank() != from) continue;
    if (job.is_first()) receive_from(job, from, range);
    const std::span<std::byte> to =
        job.is_first() ? target.subspan(rows.begin, rows.end - rows.begin) : std::span<std::byte>();
    move_rows(job, from, stored, spec.name, to, rows.end - rows.begin);
  }
}

TensorStore held_weights(const Model& model, const OptimizerOptions& options, DType dtype, Device& device,
                         const std::function<void(const HeldWeights& held, TensorStore& stored)>& fill) {
  const UpdateShards shards(model, options, options.ranks);
  TensorStore stored(device, stored_weights(model, dtype, options));
  fill(HeldWeights(shards, options), stored);
  return stored;
}

}  // namespace hone
