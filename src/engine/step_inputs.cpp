#include "engine/step_inputs.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "model/adapter_slots.h"
#include "ops/adjust_logits/adjust_logits.h"
#include "ops/sample/sample.h"
#include "ops/token_feedback/token_feedback.h"

namespace hone {

namespace {

// Returns the value's address, or null if there is none.
template <class T>
const T* pointer_to(const std::optional<T>& value) {
  return value ? &*value : nullptr;
}

// Replaces blocks in a table by their indices among the distinct ones, which are returned in order of occurrence.
std::vector<std::int32_t> number_pages(std::span<const ScheduledChunk> chunks, std::int64_t max_blocks,
                                       std::vector<std::int32_t>& table) {
  std::vector<std::int32_t> pages;
  std::unordered_map<std::int32_t, std::int32_t> numbers;
  for (std::size_t row = 0; row < chunks.size(); ++row) {
    const std::size_t used = chunks[row].sequence->blocks.size();
    for (std::int32_t& entry : std::span(table).subspan(row * static_cast<std::size_t>(max_blocks), used)) {
      const auto [found, added] = numbers.try_emplace(entry, static_cast<std::int32_t>(pages.size()));
      if (added) pages.push_back(entry);
      entry = found->second;
    }
  }
  return pages;
}

void set_adjustments(Executable& program, std::span<const ScheduledChunk> chunks) {
  std::vector<float> adjustments;        // [samples, kAdjustmentParameters]
  std::vector<std::int32_t> unread;      // [samples]
  std::vector<std::int32_t> offsets{0};  // [samples + 1]
  std::vector<std::int32_t> ids;         // entries of all samples
  std::vector<std::int32_t> occurrences;
  std::vector<float> biases;
  const auto add_adjustment = [&](std::array<float, kAdjustmentParameters> parameters, std::int32_t unread_sample) {
    adjustments.insert(adjustments.end(), parameters.begin(), parameters.end());
    unread.push_back(unread_sample);
  };
  for (const ScheduledChunk& chunk : chunks) {
    const SamplingParams& s = chunk.sequence->sampling;
    const LogitEntries* entries = pointer_to(chunk.sequence->entries);
    // A token of the prompt is the only one that may be drawn in its place.
    for (std::int64_t i = 1; i <= chunk.prompt_samples; ++i) {
      add_adjustment({1, 0, 0, 1}, -1);
      ids.push_back(chunk.sequence->token_at(chunk.sequence->computed + i));
      occurrences.push_back(0);
      biases.push_back(0);
      offsets.push_back(static_cast<std::int32_t>(ids.size()));
    }
    if (chunk.samples == 0) continue;
    const bool restricts = entries != nullptr && entries->restricts();
    // The entries lack the last token if the host has not read it.
    const TokenId last = chunk.sequence->tokens.back();
    add_adjustment({static_cast<float>(s.repetition_penalty), static_cast<float>(s.frequency_penalty),
                    static_cast<float>(s.presence_penalty), restricts ? 1.0f : 0.0f},
                   entries != nullptr && entries->counts_tokens() && last < 0 ? sample_of_token(last) : -1);
    if (entries != nullptr) {
      ids.insert(ids.end(), entries->ids().begin(), entries->ids().end());
      occurrences.insert(occurrences.end(), entries->occurrences().begin(), entries->occurrences().end());
      biases.insert(biases.end(), entries->biases().begin(), entries->biases().end());
    }
    offsets.push_back(static_cast<std::int32_t>(ids.size()));
    // A request with entries has no draft.
    for (std::int64_t i = 1; i < chunk.samples; ++i) {
      add_adjustment({1, 0, 0, 0}, -1);
      offsets.push_back(offsets.back());
    }
  }
  program.set<float>("adjustments", adjustments);
  program.set<std::int32_t>("unread", unread);
  program.set<std::int32_t>("entry_offsets", offsets);
  program.set<std::int32_t>("entry_ids", ids);
  program.set<std::int32_t>("entry_occurrences", occurrences);
  program.set<float>("entry_biases", biases);
}

// Sets the inputs of the layer for multi-token prediction: the token after each row, which is the one that the step
// draws where it draws one, and the keys of the token after that.
void set_prediction_inputs(Executable& program, std::span<const ScheduledChunk> chunks) {
  std::vector<std::int32_t> next;  // [tokens]
  std::vector<std::int64_t> keys;  // [samples, 2]
  std::int64_t sample = 0;
  for (const ScheduledChunk& chunk : chunks) {
    const Sequence& sequence = *chunk.sequence;
    const std::int64_t end = sequence.computed + chunk.count;
    const std::int64_t first_drawn = end - chunk.samples;  // row of the sequence's last token, or the end
    for (std::int64_t i = 0; i < chunk.prompt_samples; ++i) keys.insert(keys.end(), {0, 0});
    sample += chunk.prompt_samples;
    for (std::int64_t i = sequence.computed; i < end; ++i) {
      next.push_back(i < first_drawn ? sequence.token_at(i + 1) : token_of_sample(sample + i - first_drawn));
    }
    for (std::int64_t i = first_drawn; i < end; ++i) {
      keys.insert(keys.end(), {static_cast<std::int64_t>(sequence.sampling.seed), i + 2});
    }
    sample += chunk.samples;
  }
  program.set<std::int32_t>("next_tokens", next);
  program.set<std::int64_t>("draft_keys", keys);
}

// Sets the rows from which tokens are drawn and how.
void set_samples(Executable& program, std::span<const ScheduledChunk> chunks, const EngineOptions& options) {
  std::vector<std::int32_t> rows;        // [samples]
  std::vector<float> parameters;         // [samples, 4]: temperature, top_p, min_p, top_k
  std::vector<std::int64_t> keys;        // [samples, 2]: seed, index of the token to draw
  std::vector<std::int32_t> top_counts;  // [samples]
  std::int64_t first = 0;                // row of the chunk's first token
  for (const ScheduledChunk& chunk : chunks) {
    const Sequence& sequence = *chunk.sequence;
    const SamplingParams& s = sequence.sampling;
    // Samples from the row of a token, given by its index in the sequence.
    const auto add_sample = [&](std::int64_t index, std::array<float, kSampleParameters> how, std::int64_t listed) {
      rows.push_back(static_cast<std::int32_t>(first - sequence.computed + index));
      parameters.insert(parameters.end(), how.begin(), how.end());
      keys.insert(keys.end(), {static_cast<std::int64_t>(s.seed), index + 1});
      top_counts.push_back(static_cast<std::int32_t>(listed));
    };
    for (std::int64_t i = 0; i < chunk.prompt_samples; ++i) {
      add_sample(sequence.computed + i, {1, 1, 0, 0}, s.prompt_logprobs.value_or(0));
    }
    for (std::int64_t i = 0; i < chunk.samples; ++i) {
      add_sample(sequence.length() - 1 + i,
                 {static_cast<float>(s.temperature), static_cast<float>(s.top_p), static_cast<float>(s.min_p),
                  static_cast<float>(s.top_k)},
                 s.logprobs);
    }
    first += chunk.count;
  }
  program.set_count(Count::samples, static_cast<std::int64_t>(rows.size()));
  program.set<std::int32_t>("sample_rows", rows);
  program.set<float>("parameters", parameters);
  program.set<std::int64_t>("keys", keys);
  if (options.max_logprobs > 0) program.set<std::int32_t>("top_counts", top_counts);
}

}  // namespace

bool waits_for_masks(std::span<const ScheduledChunk> chunks) {
  return std::ranges::any_of(
      chunks, [](const ScheduledChunk& chunk) { return chunk.samples > 0 && chunk.sequence->waits_for_mask(); });
}

void set_masks(Executable& program, std::span<const ScheduledChunk> chunks) {
  std::vector<std::int32_t> rows;   // [samples]
  std::vector<std::int32_t> masks;  // [masked samples, words]
  std::int32_t masked = 0;
  for (const ScheduledChunk& chunk : chunks) {
    rows.resize(rows.size() + static_cast<std::size_t>(chunk.prompt_samples + chunk.samples), -1);
    const std::span<const std::int32_t> mask = chunk.sequence->mask;
    // Without a mask every token may be drawn. One without tokens is that of a completion that has ended with the token
    // before: what is drawn is not used.
    if (chunk.samples == 0 || std::ranges::all_of(mask, [](std::int32_t word) { return word == 0; })) continue;
    rows[rows.size() - static_cast<std::size_t>(chunk.samples)] = masked++;
    masks.insert(masks.end(), mask.begin(), mask.end());
  }
  program.set<std::int32_t>(kLateInput, rows);
  program.set<std::int32_t>("masks", masks);
}

void set_step_inputs(Executable& program, std::span<const ScheduledChunk> chunks, const EngineOptions& options) {
  const std::int64_t max_blocks = kv_layout(options).max_blocks;
  const ValueId cu_id = program.program().find(Role::kInput, "cu_seqlens");
  const auto cu_entries = static_cast<std::size_t>(program.program().value(cu_id).type.elements());
  // tokens, positions, slots: [tokens]; starts: [sequences]; cu_seqlens: [sequences + 1];
  // table: [sequences, max_blocks].
  std::vector<std::int32_t> tokens, positions, slots, starts, cu_seqlens{0}, table;
  std::vector<std::int32_t> adapters;  // [tokens]
  for (const ScheduledChunk& chunk : chunks) {
    const Sequence& sequence = *chunk.sequence;
    starts.push_back(static_cast<std::int32_t>(sequence.computed));
    for (std::int64_t i = sequence.computed; i < sequence.computed + chunk.count; ++i) {
      adapters.push_back(static_cast<std::int32_t>(sequence.adapter.slot));
      tokens.push_back(sequence.token_at(i));
      positions.push_back(static_cast<std::int32_t>(i));
      const BlockId block = sequence.blocks[static_cast<std::size_t>(i / options.block_size)];
      slots.push_back(static_cast<std::int32_t>(block * options.block_size + i % options.block_size));
    }
    cu_seqlens.push_back(static_cast<std::int32_t>(tokens.size()));
    table.insert(table.end(), sequence.blocks.begin(), sequence.blocks.end());
    table.resize(starts.size() * static_cast<std::size_t>(max_blocks), 0);
  }
  cu_seqlens.resize(cu_entries, cu_seqlens.back());
  if (kv_layout(options).expands()) {
    const std::vector<std::int32_t> pages = number_pages(chunks, max_blocks, table);
    program.set_count(PagedBatch::page_count(), std::ssize(pages));
    program.set<std::int32_t>("pages", pages);
  }
  program.set_count(Count::tokens, static_cast<std::int64_t>(tokens.size()));
  program.set_count(Count::sequences, static_cast<std::int64_t>(starts.size()));
  program.set<std::int32_t>("tokens", tokens);
  program.set<std::int32_t>("positions", positions);
  program.set<std::int32_t>("slots", slots);
  program.set<std::int32_t>("starts", starts);
  program.set<std::int32_t>("cu_seqlens", cu_seqlens);
  program.set<std::int32_t>("block_table", table);
  set_samples(program, chunks, options);
  if (options.adapter_slots > 0) program.set<std::int32_t>(kAdapterSlots, adapters);
  if (options.adjust_logits) set_adjustments(program, chunks);
  if (options.drafts_by_prediction()) set_prediction_inputs(program, chunks);
}

}  // namespace hone
