// Sizes of an engine where the user leaves them out: how much it computes at a time, and how much of the device's
// memory its KV cache takes.
#pragma once

#include <cstdint>
#include <string_view>

#include "backend/device.h"
#include "engine/engine_group.h"
#include "engine/engine_options.h"
#include "model/model.h"

namespace hone {

inline constexpr const char* kNumSeqsHelp = "Completions that are generated concurrently; 0: 256 on a GPU, 64 on a CPU";

// Returns `given`, the max_num_seqs of the user, or if it is 0 (unset) as many requests as keep the device busy.
[[nodiscard]] std::int64_t num_seqs(std::int64_t given, DeviceKind device);
// Returns `given`, the max_num_batched_tokens of the user, or if it is 0 (unset) as many tokens as keep it busy.
[[nodiscard]] std::int64_t num_batched_tokens(std::int64_t given, DeviceKind device);

// Limits of the memory of a KV cache, and the keys that messages name.
struct CacheLimits {
  std::int64_t bytes = 0;           // of bytes_key; 0: a share of the device's free memory
  std::string_view bytes_key = {};  // empty: the command has none
  std::string_view length_key = "max_model_len";
  std::int64_t host_share = 1;  // processes, apart from those of a group, that share a host's memory
};

// Returns the options with a KV cache (num_blocks) for max_num_seqs requests of max_model_len, or as much of it as fits
// into the limits: half of a GPU's free memory, since steps and their inputs, embeddings, arriving weights and other
// programs need some too, an eighth of a host's or up to half for one request. Call it when the weights, of `dtype`,
// have been loaded. The ranks of a group, whose first one calls it, get the same number. Throws Error, which names the
// key, if the cache does not hold one request of max_model_len, or as check_model().
[[nodiscard]] EngineOptions with_cache_that_fits(EngineOptions options, const Model& model, DType dtype, Device& device,
                                                 EngineGroup* group, const CacheLimits& limits = {});

}  // namespace hone
