// Sampling from one row of logits on a GPU, by a block. Probabilities are summed as integers in units of 2^-44 of the
// largest one, so that sums do not depend on their order; tokens below half a unit are never drawn. The CPU sums in
// double: its choice can differ if the random number, or the limit of top_p, is within a rounding error of a token's
// edge. Greedy choices never differ.
#pragma once

#include <limits>

#include "ops/linear_logprobs/log_softmax.cuh"
#include "ops/sample/search.cuh"

namespace hone {

// Sampler for one row; all threads of the block call each public function.
template <class A>
class SampleRow {
  static constexpr double kUnits = 0x1p44;
  enum class Measure : std::uint8_t { kTokens, kMass };

 public:
  using Key = SampleKey<A>;

  __device__ SampleRow(const A* logits, std::int64_t vocab, A temperature, A min_p, SampleShared<A>& shared)
      : logits_(logits),
        vocab_(vocab),
        temperature_(temperature),
        min_p_(min_p),
        max_(shared.softmax.max),
        aligned_(reinterpret_cast<std::uintptr_t>(logits) % 16 == 0),
        shared_(shared) {}

  // Keeps the `count` most probable tokens.
  __device__ void keep_first(std::uint64_t count) { keep(Measure::kTokens, count, A(0)); }
  // Keeps the fewest tokens, most probable first, that have this share of the mass.
  __device__ void keep_share(A share) { keep(Measure::kMass, 0, share); }

  // The mass of a chunk's tokens that are kept.
  [[nodiscard]] __device__ std::uint64_t chunk_mass(int chunk) {
    std::uint64_t mine = 0;
    for_chunk(chunk, [&](const Token& token) { mine += token.mass; });
    std::uint64_t mass;
    (void)block_scan(mine, shared_.warp_sums, mass);
    return mass;
  }
  // The first token in the order of ids at which the cumulative mass exceeds `random` times the total; -1 if there is
  // no mass. `masses`: chunk_mass() of each chunk, or null.
  [[nodiscard]] __device__ std::int32_t draw(double random, const std::uint64_t* masses) {
    // Mass of each chunk, then the chunk in which the random number falls, then the token in it.
    const int chunks = static_cast<int>((vocab_ + kVocabChunk - 1) / kVocabChunk);
    __syncthreads();  // what chunk_mass shares memory with has been read
    for (int chunk = 0; masses == nullptr && chunk < chunks; ++chunk) {
      const std::uint64_t mass = chunk_mass(chunk);
      if (threadIdx.x == 0) shared_.chunk_mass[chunk] = mass;
    }
    for (int chunk = static_cast<int>(threadIdx.x); masses != nullptr && chunk < chunks; chunk += kSampleThreads) {
      shared_.chunk_mass[chunk] = masses[chunk];
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      std::uint64_t all = 0;
      for (int chunk = 0; chunk < chunks; ++chunk) all += shared_.chunk_mass[chunk];
      const auto before = static_cast<std::uint64_t>(random * static_cast<double>(all));
      std::uint64_t left = before < all ? before + 1 : all;
      int chunk = 0;
      while (left > shared_.chunk_mass[chunk]) left -= shared_.chunk_mass[chunk++];
      shared_.chunk = all > 0 ? chunk : -1;
      shared_.left = left;
    }
    __syncthreads();
    if (shared_.chunk < 0) return -1;
    find_in_chunk(shared_.chunk, shared_.left);
    return shared_.token;
  }

 private:
  struct Token {
    SamplePlace<A> place;
    A difference;        // logit / temperature - that of the most probable token
    std::uint64_t mass;  // probability relative to the largest, in units of 1 / kUnits; 0 if not kept
    bool kept;
  };

  __device__ Token token_of(A logit, std::int32_t id) const {
    const A difference = tempered(logit, temperature_) - max_;
    const A mass = std::exp(difference);
    const SamplePlace<A> place{sample_key_of(logit), id};
    const bool kept = mass > A(0) && mass >= min_p_ && (!cut_ || place <= shared_.last);  // false for NaN
    return {place, difference, kept ? __double2ull_rn(static_cast<double>(mass) * kUnits) : 0, kept};
  }

  // Calls body(token) for each of this thread's tokens in a chunk that are kept.
  template <class Body>
  __device__ void for_chunk(int chunk, const Body& body) const {
    const std::int64_t first = chunk * kVocabChunk;
    const auto count = static_cast<int>(vocab_ - first < kVocabChunk ? vocab_ - first : kVocabChunk);
    LogitChunk<A> values;
    values.load(logits_ + first, count, aligned_, -std::numeric_limits<A>::infinity());
#pragma unroll
    for (int i = 0; i < kLogSoftmaxPacks; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const auto id = static_cast<std::int32_t>(first) + LogitChunk<A>::place(i) + e;
        const Token token = token_of(values.values[i][e], id);
        if (token.kept) body(token);
      }
    }
  }
  template <class Body>
  __device__ void for_tokens(const Body& body) const {
    for (int chunk = 0; chunk * kVocabChunk < vocab_; ++chunk) for_chunk(chunk, body);
  }

  // Digits of a token's rank for a radix search. The first digit is the distance of the logit to the largest one in
  // 64ths, which spreads tokens well over few bins; then come the digits of the key, then those of the id. Later digits
  // may repeat bits of earlier ones.
  static constexpr int kKeyBits = 8 * sizeof(Key);
  static constexpr int kKeyDigits = (kKeyBits + kSampleDigitBits - 1) / kSampleDigitBits;
  static constexpr int kIdDigits = 3;
  static constexpr int kDigits = 1 + kKeyDigits + kIdDigits;

  static __device__ int digit(const Token& token, int level) {
    if (level == 0) {
      const A bin = token.difference * A(-64);
      return bin < A(kSampleBins - 1) ? static_cast<int>(bin) : kSampleBins - 1;
    }
    const int of_key = kKeyBits - kSampleDigitBits * level;
    if (level <= kKeyDigits) return static_cast<int>(token.place.key >> (of_key > 0 ? of_key : 0)) & (kSampleBins - 1);
    const int of_id = kSampleDigitBits * (kDigits - 1 - level);
    return static_cast<int>(static_cast<std::int64_t>(token.place.id) >> of_id) & (kSampleBins - 1);
  }

  // Returns true if a token is in the bins chosen so far.
  static __device__ bool within(const Token& token, const int (&bins)[kDigits], int levels) {
    for (int level = 0; level < levels; ++level) {
      if (digit(token, level) != bins[level]) return false;
    }
    return true;
  }

  // Finds the token at which the cumulative amount (tokens or mass), in the order of ranks, reaches `wanted`, and
  // filters out the tokens after it. Narrows its bin down by one digit after the other until few candidates remain. For
  // mass, `wanted` follows from `share`.
  __device__ void keep(Measure measure, std::uint64_t wanted, A share) {
    int bins[kDigits];
    int levels = 0;
    do {
      // A histogram of the candidates by their next digit; a prefix sum finds the bin in which `wanted` is reached.
      count_bins(measure, bins, levels);
      std::uint64_t amounts[kSampleBinsAThread];
      std::uint64_t mine = 0;
#pragma unroll
      for (int i = 0; i < kSampleBinsAThread; ++i) {
        amounts[i] = amount_in(measure, static_cast<int>(threadIdx.x) * kSampleBinsAThread + i);
        mine += amounts[i];
      }
      std::uint64_t all;
      const std::uint64_t up_to = block_scan(mine, shared_.warp_sums, all);
      if (levels == 0) {
        if (measure == Measure::kMass) wanted = mass_of_share(share, all);
        if (all == 0 || wanted >= all) return;
      }
      if (up_to >= wanted && up_to - mine < wanted) {
        std::uint64_t left = wanted - (up_to - mine);
        int i = 0;
#pragma unroll
        for (int k = 0; k < kSampleBinsAThread - 1; ++k) {
          if (i == k && left > amounts[k]) {
            left -= amounts[k];
            ++i;
          }
        }
        shared_.bin = static_cast<int>(threadIdx.x) * kSampleBinsAThread + i;
        shared_.left = left;
        shared_.found = shared_.histogram.tokens[shared_.bin];
        shared_.listed = 0;
      }
      __syncthreads();
      bins[levels++] = shared_.bin;
      wanted = shared_.left;
    } while (shared_.found > kSampleListed && levels < kDigits);
    choose_last(measure, bins, levels, wanted);
  }

  static __device__ std::uint64_t mass_of_share(A share, std::uint64_t all) {
    const double mass = ceil(static_cast<double>(share) * static_cast<double>(all));
    return mass > 1.0 ? static_cast<std::uint64_t>(mass) : 1;
  }

  __device__ std::uint64_t amount_in(Measure measure, int bin) const {
    const SampleHistogram<A>& histogram = shared_.histogram;
    if (measure == Measure::kTokens) return histogram.tokens[bin];
    return (std::uint64_t{histogram.high[bin]} << 32) + histogram.low[bin];
  }

  __device__ void count_bins(Measure measure, const int (&bins)[kDigits], int levels) {
    SampleHistogram<A>& histogram = shared_.histogram;
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kSampleBins; i += kSampleThreads) {
      histogram.tokens[i] = histogram.low[i] = histogram.high[i] = 0;
    }
    __syncthreads();
    // Tokens in the last bin, which may hold most of a peaked row, are counted in a register first: atomics on one
    // address would be slow.
    std::uint32_t improbable = 0;
    for_tokens([&](const Token& token) {
      if (!within(token, bins, levels)) return;
      const int bin = digit(token, levels);
      if (bin == kSampleBins - 1) {
        ++improbable;
      } else {
        atomicAdd(histogram.tokens + bin, 1u);
      }
      if (measure == Measure::kTokens || token.mass == 0) return;
      const auto low = static_cast<std::uint32_t>(token.mass);
      const std::uint32_t before = atomicAdd(histogram.low + bin, low);
      const std::uint32_t high = static_cast<std::uint32_t>(token.mass >> 32) + (before + low < before ? 1u : 0u);
      if (high != 0) atomicAdd(histogram.high + bin, high);
    });
    if (improbable != 0) atomicAdd(histogram.tokens + kSampleBins - 1, improbable);
    __syncthreads();
  }

  // Finds the last token to keep among the tokens of the chosen bins, at most kSampleListed, by comparing all pairs.
  __device__ void choose_last(Measure measure, const int (&bins)[kDigits], int levels, std::uint64_t wanted) {
    SampleList<A>& list = shared_.list;
    for_tokens([&](const Token& token) {
      if (!within(token, bins, levels)) return;
      const std::uint32_t at = atomicAdd(&shared_.listed, 1u);
      list.place[at] = token.place;
      list.amount[at] = measure == Measure::kTokens ? 1 : token.mass;
    });
    __syncthreads();
    const auto count = static_cast<int>(shared_.listed);
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kSampleThreads) {
      const SamplePlace<A> place = list.place[i];
      std::uint64_t up_to = 0;
      for (int other = 0; other < count; ++other) {
        if (list.place[other] <= place) up_to += list.amount[other];
      }
      if (up_to >= wanted && up_to - list.amount[i] < wanted) shared_.last = place;
    }
    __syncthreads();
    cut_ = true;
  }

  // Finds the token of a chunk at which the cumulative mass reaches `left`, which is at least 1 and at most the mass of
  // the chunk.
  __device__ void find_in_chunk(int chunk, std::uint64_t left) {
    std::uint64_t masses[kLogSoftmaxPacks][4]{};
    const auto first = static_cast<std::int32_t>(chunk * kVocabChunk);
    for_chunk(chunk, [&](const Token& token) {
      // Index among this thread's tokens. After unrolling it is a constant, so that `masses` stays in registers.
      const int at = token.place.id - first - static_cast<int>(threadIdx.x) * 4;
      masses[at / (kSampleThreads * 4)][at % 4] = token.mass;
    });
    std::uint64_t before = 0;
#pragma unroll
    for (int i = 0; i < kLogSoftmaxPacks; ++i) {
      std::uint64_t mine = 0;
#pragma unroll
      for (int e = 0; e < 4; ++e) mine += masses[i][e];
      std::uint64_t all;
      std::uint64_t mass = before + block_scan(mine, shared_.warp_sums, all) - mine;
      before += all;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (mass < left && left <= mass + masses[i][e]) shared_.token = first + LogitChunk<A>::place(i) + e;
        mass += masses[i][e];
      }
    }
    __syncthreads();
  }

  const A* logits_;
  std::int64_t vocab_;
  A temperature_, min_p_, max_;
  bool aligned_;
  bool cut_ = false;  // shared_.last is set
  SampleShared<A>& shared_;
};

}  // namespace hone
