#include "train/whole_weights.h"

#include <algorithm>
#include <vector>

#include "model/weights.h"

namespace hone {
namespace {

// The bytes of a rank's rows in a whole weight.
ByteRange bytes_of_rows(const UpdateShards& shards, std::size_t index, int rank, const Type& whole) {
  const WeightSpec& spec = shards.model().weights()[index];
  if (!spec.trainable) return {0, whole.bytes()};
  const RowRange rows = shards.rows_of(index, rank);
  const std::size_t row = whole.bytes() / static_cast<std::size_t>(whole.shape[0].size);
  return {static_cast<std::size_t>(rows.first) * row, static_cast<std::size_t>(rows.first + rows.count) * row};
}

// Moves a range of bytes of a whole weight from a rank to rank 0. All ranks count the same exchanges.
void move_rows(Peers& peers, int from, const TensorStore& stored, const std::string& name, const ByteRange& range,
               TensorStore& whole) {
  constexpr std::size_t kPiece = std::size_t{16} << 20;
  std::vector<std::byte> piece;
  for (std::size_t done = 0; done < range.end - range.begin; done += kPiece) {
    const std::size_t bytes = std::min(kPiece, range.end - range.begin - done);
    piece.resize(bytes);
    if (peers.rank() == from) {
      stored.download(name, done, piece);
      const Peers::Transfer transfer{0, piece, {}};
      peers.exchange({&transfer, 1});
    } else if (peers.rank() == 0) {
      const Peers::Transfer transfer{from, {}, piece};
      peers.exchange({&transfer, 1});
      whole.upload(name, range.begin + done, piece);
    } else {
      peers.exchange({});
    }
  }
}

}  // namespace

void fill_random_shares(const Model& model, std::uint64_t seed, const UpdateShards& shards, int rank,
                        TensorStore& stored) {
  for (std::size_t i = 0; i < model.weights().size(); ++i) {
    const WeightSpec& spec = model.weights()[i];
    const TensorStore whole = random_weight(model, spec, seed, stored.type(spec.name).dtype, stored.device());
    const ByteRange rows = bytes_of_rows(shards, i, rank, whole.type(spec.name));
    if (rows.begin == rows.end) continue;
    stored.device().copy(stored.data(spec.name), whole.data(spec.name) + rows.begin, rows.end - rows.begin);
  }
  stored.device().synchronize();
}

void take_shares(const TensorStore& whole, const UpdateShards& shards, int rank, TensorStore& stored) {
  for (std::size_t i = 0; i < shards.model().weights().size(); ++i) {
    const std::string& name = shards.model().weights()[i].name;
    const ByteRange rows = bytes_of_rows(shards, i, rank, whole.type(name));
    if (rows.begin == rows.end) continue;
    stored.upload(name, 0, std::span<const std::byte>(whole.data(name) + rows.begin, rows.end - rows.begin));
  }
  stored.device().synchronize();
}

void load_in_turn(const Job& job, const std::function<void()>& load) {
  const int ranks = job.peers() != nullptr ? job.peers()->place().local_size : 1;
  const int own = job.peers() != nullptr ? job.peers()->place().local_rank : 0;
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == own) load();
    job.barrier();
  }
}

TensorStore assemble_weights(const Model& model, const UpdateShards& shards, const TensorStore& stored,
                             const Job& job) {
  TensorStore whole;
  const std::vector<NamedType> types = weight_types(model, model_dtype(model, stored));
  if (job.is_first()) {
    whole = TensorStore(cpu_device(), types);
    for (std::size_t i = 0; i < types.size(); ++i) {
      const std::vector<std::byte> own = stored.download(types[i].name);
      whole.upload(types[i].name, bytes_of_rows(shards, i, 0, types[i].type).begin, own);
    }
  }
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (!model.weights()[i].trainable) continue;
    for (int rank = 1; rank < job.size(); ++rank) {
      move_rows(*job.peers(), rank, stored, types[i].name, bytes_of_rows(shards, i, rank, types[i].type), whole);
    }
  }
  return whole;
}

}  // namespace hone
