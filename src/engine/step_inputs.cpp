#include "engine/step_inputs.h"

#include <cstdint>
#include <vector>

namespace hone {

namespace {

void set_penalties(Executable& program, std::span<const ScheduledChunk> chunks) {
  std::vector<float> penalties;          // [samples]
  std::vector<std::int32_t> offsets{0};  // [samples + 1]
  std::vector<std::int32_t> ids;         // occurred ids of all samples
  for (const ScheduledChunk& chunk : chunks) {
    if (!chunk.samples) continue;
    penalties.push_back(static_cast<float>(chunk.sequence->sampling.repetition_penalty));
    if (chunk.sequence->occurred) {
      const std::span<const TokenId> occurred = chunk.sequence->occurred->ids();
      ids.insert(ids.end(), occurred.begin(), occurred.end());
    }
    offsets.push_back(static_cast<std::int32_t>(ids.size()));
  }
  program.set<float>("penalties", penalties);
  program.set<std::int32_t>("occurred_offsets", offsets);
  program.set<std::int32_t>("occurred_ids", ids);
}

}  // namespace

void set_step_inputs(Executable& program, std::span<const ScheduledChunk> chunks, const EngineOptions& options) {
  const std::int64_t max_blocks = kv_layout(options).max_blocks;
  const ValueId cu_id = program.program().find(Role::kInput, "cu_seqlens");
  const auto cu_entries = static_cast<std::size_t>(program.program().value(cu_id).type.elements());
  // tokens, positions, slots: [tokens]; starts: [sequences]; cu_seqlens: [sequences + 1];
  // table: [sequences, max_blocks]; rows: [samples].
  std::vector<std::int32_t> tokens, positions, slots, starts, cu_seqlens{0}, table, rows;
  std::vector<float> parameters;   // [samples, 4]: temperature, top_p, min_p, top_k
  std::vector<std::int64_t> keys;  // [samples, 2]: seed, index of the token to draw
  for (const ScheduledChunk& chunk : chunks) {
    const Sequence& sequence = *chunk.sequence;
    starts.push_back(static_cast<std::int32_t>(sequence.computed));
    for (std::int64_t i = sequence.computed; i < sequence.computed + chunk.count; ++i) {
      tokens.push_back(sequence.tokens[static_cast<std::size_t>(i)]);
      positions.push_back(static_cast<std::int32_t>(i));
      const BlockId block = sequence.blocks[static_cast<std::size_t>(i / options.block_size)];
      slots.push_back(static_cast<std::int32_t>(block * options.block_size + i % options.block_size));
    }
    cu_seqlens.push_back(static_cast<std::int32_t>(tokens.size()));
    table.insert(table.end(), sequence.blocks.begin(), sequence.blocks.end());
    table.resize(starts.size() * static_cast<std::size_t>(max_blocks), 0);
    if (!chunk.samples) continue;
    rows.push_back(static_cast<std::int32_t>(tokens.size()) - 1);
    const SamplingParams& s = sequence.sampling;
    parameters.insert(parameters.end(), {static_cast<float>(s.temperature), static_cast<float>(s.top_p),
                                         static_cast<float>(s.min_p), static_cast<float>(s.top_k)});
    keys.insert(keys.end(), {static_cast<std::int64_t>(s.seed), sequence.length()});
  }
  cu_seqlens.resize(cu_entries, cu_seqlens.back());
  program.set_count(Count::tokens, static_cast<std::int64_t>(tokens.size()));
  program.set_count(Count::sequences, static_cast<std::int64_t>(starts.size()));
  program.set_count(Count::samples, static_cast<std::int64_t>(rows.size()));
  program.set<std::int32_t>("tokens", tokens);
  program.set<std::int32_t>("positions", positions);
  program.set<std::int32_t>("slots", slots);
  program.set<std::int32_t>("starts", starts);
  program.set<std::int32_t>("cu_seqlens", cu_seqlens);
  program.set<std::int32_t>("block_table", table);
  program.set<std::int32_t>("sample_rows", rows);
  program.set<float>("parameters", parameters);
  program.set<std::int64_t>("keys", keys);
  if (options.repetition_penalty) set_penalties(program, chunks);
}

}  // namespace hone
