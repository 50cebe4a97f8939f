#include <algorithm>
#include <span>

#include "backend/cpu/vector_math.h"
#include "core/random.h"
#include "ops/linear_logprobs/log_softmax.h"
#include "ops/linear_logprobs/parted_softmax.h"
#include "ops/registry.h"
#include "ops/rows.h"
#include "ops/sample/sample.h"

namespace hone {
namespace {

template <class A>
struct Parameters {
  A temperature, top_p, min_p, top_k;

  explicit Parameters(const A* row) {
    const auto at = [row](SampleParameter which) { return row[static_cast<std::size_t>(which)]; };
    temperature = at(SampleParameter::kTemperature);
    top_p = at(SampleParameter::kTopP);
    min_p = at(SampleParameter::kMinP);
    top_k = at(SampleParameter::kTopK);
  }
};

// Uniform random number in (0, 1) with 53 bits, for a seed and position.
double uniform(std::int64_t seed, std::int64_t position) {
  const RandomStream random(static_cast<std::uint64_t>(seed), "sample");
  const auto index = 2 * static_cast<std::uint64_t>(position);
  const std::uint64_t word = (std::uint64_t{random.bits(index)} << 32) | random.bits(index + 1);
  return (static_cast<double>(word >> 11) + 0.5) * 0x1p-53;
}

// Sampler for one row. `mass` [vocab] holds each token's probability relative to that of the most probable token, and 0
// for tokens that have been filtered out; `ids` [vocab] is scratch.
template <class A>
class Row {
 public:
  Row(const A* logits, std::int64_t vocab, A* mass, std::int32_t* ids)
      : logits_(logits), vocab_(vocab), mass_(mass), ids_(ids) {}

  // Draws a token by a random number in (0, 1). `softmax` holds the row's statistics at parameters.temperature.
  std::int32_t draw(const Parameters<A>& parameters, const LogSoftmax<A>& softmax, double random) {
    for (std::int64_t id = 0; id < vocab_; ++id) {
      const A mass = vexp(logits_[id] / parameters.temperature - softmax.max());
      mass_[id] = mass > A(0) && mass >= parameters.min_p ? mass : A(0);  // 0 for NaN
    }
    const bool limited = parameters.top_k >= A(1) && parameters.top_k < static_cast<A>(vocab_);
    if (limited || parameters.top_p < A(1)) {
      list_kept();
      if (limited) keep_top_k(static_cast<std::int64_t>(parameters.top_k));
      if (parameters.top_p < A(1)) keep_top_p(parameters.top_p);
    }
    const auto token = invert(random);
    return token < 0 ? static_cast<std::int32_t>(softmax.argmax()) : token;
  }

 private:
  [[nodiscard]] bool before(std::int32_t a, std::int32_t b) const {
    return logits_[a] != logits_[b] ? logits_[a] > logits_[b] : a < b;
  }

  void list_kept() {
    kept_ = 0;
    for (std::int64_t id = 0; id < vocab_; ++id) {
      if (mass_[id] > A(0)) ids_[kept_++] = static_cast<std::int32_t>(id);
    }
  }

  void keep_top_k(std::int64_t k) {
    if (k >= kept_) return;
    std::nth_element(ids_, ids_ + k, ids_ + kept_, [this](std::int32_t a, std::int32_t b) { return before(a, b); });
    for (std::int64_t i = k; i < kept_; ++i) mass_[ids_[i]] = A(0);
    kept_ = k;
  }

  // Takes the most probable tokens from a heap until their mass reaches the share top_p, and filters out the rest.
  void keep_top_p(A top_p) {
    const auto after = [this](std::int32_t a, std::int32_t b) { return before(b, a); };
    const double wanted = static_cast<double>(top_p) * sum_of(0, vocab_);
    std::make_heap(ids_, ids_ + kept_, after);
    std::int64_t left = kept_;
    double taken = 0;
    while (left > 0 && (left == kept_ || taken < wanted)) {
      taken += static_cast<double>(mass_[ids_[0]]);
      std::pop_heap(ids_, ids_ + left, after);
      --left;
    }
    for (std::int64_t i = 0; i < left; ++i) mass_[ids_[i]] = A(0);
  }

  // Mass of ids [first, last), in a fixed order: chunk by chunk, and within a chunk by lanes.
  [[nodiscard]] double sum_of(std::int64_t first, std::int64_t last) const {
    double sum = 0;
    for (std::int64_t id = first; id < last; id += kVocabChunk) {
      sum += lane_sum<double>(std::min(kVocabChunk, last - id),
                              [&](std::int64_t i) { return static_cast<double>(mass_[id + i]); });
    }
    return sum;
  }

  // The token at which the cumulative mass exceeds `random` times the total, or -1 if there is no mass. Finds its chunk
  // first, then the token in it.
  [[nodiscard]] std::int32_t invert(double random) const {
    double rest = random * sum_of(0, vocab_);
    double rest_of_chunk = 0;
    std::int64_t chunk = -1;
    for (std::int64_t first = 0; first < vocab_; first += kVocabChunk) {
      const double mass = sum_of(first, std::min(first + kVocabChunk, vocab_));
      if (mass == 0) continue;
      chunk = first;
      rest_of_chunk = rest;
      if (rest < mass) break;
      rest -= mass;
    }
    std::int64_t token = -1;
    for (std::int64_t id = chunk; id >= 0 && id < std::min(chunk + kVocabChunk, vocab_); ++id) {
      if (mass_[id] == A(0)) continue;
      token = id;
      if (rest_of_chunk < static_cast<double>(mass_[id])) break;
      rest_of_chunk -= static_cast<double>(mass_[id]);
    }
    return static_cast<std::int32_t>(token);
  }

  const A* logits_;
  std::int64_t vocab_;
  A* mass_;
  std::int32_t* ids_;
  std::int64_t kept_ = 0;
};

template <class A>
std::size_t slot_bytes(std::int64_t vocab) {
  return align_up(static_cast<std::size_t>(vocab) * (sizeof(A) + sizeof(std::int32_t)));
}

// Draws all rows. Slot i of n takes rows i, i + n, ... and has a separate part of the workspace.
template <class A>
void sample_forward(const KernelCall& call) {
  const TensorView& logits = call.in(SampleIn::logits);
  const std::int64_t vocab = logits.row_size();
  const std::int64_t parts = call.attributes_as<SampleAttributes>().parts;
  const auto* keys = call.in(SampleIn::keys).as<std::int64_t>();
  const auto is_penalized = [&](std::int64_t row) {
    return call.in(SampleIn::penalized) && call.in(SampleIn::penalized_rows).as<std::int32_t>()[row] != 0;
  };
  auto* tokens = call.out(SampleOut::token).as<std::int32_t>();
  A* logps = call.out(SampleOut::logp).as<A>();
  const std::size_t share = slot_bytes<A>(vocab);
  const auto slots = std::min(static_cast<std::int64_t>(call.workspace.size() / share), logits.rows());
  parallel_for(slots, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t slot = begin; slot < end; ++slot) {
      auto* mass = reinterpret_cast<A*>(call.workspace.data() + static_cast<std::size_t>(slot) * share);
      for (std::int64_t row = slot; row < logits.rows(); row += slots) {
        const A* policy = logits.as<A>() + row * vocab;
        const A* values = is_penalized(row) ? call.in(SampleIn::penalized).as<A>() + row * vocab : policy;
        const Parameters<A> parameters(call.in(SampleIn::parameters).as<A>() + row * kSampleParameters);
        const bool greedy = !(parameters.temperature > A(0));
        const A temperature = greedy ? A(1) : parameters.temperature;
        const LogSoftmax<A> softmax = log_softmax(values, vocab, temperature);
        tokens[row] = greedy ? static_cast<std::int32_t>(softmax.argmax())
                             : Row<A>(values, vocab, mass, reinterpret_cast<std::int32_t*>(mass + vocab))
                                   .draw(parameters, softmax, uniform(keys[2 * row], keys[2 * row + 1]));
        if (parts > 1) {
          logps[row] = PartedSoftmax<A>(policy, vocab, temperature, parts).logp(tokens[row]);
          continue;
        }
        const A lse = is_penalized(row) ? log_softmax(policy, vocab, temperature).lse() : softmax.lse();
        logps[row] = log_probability(policy[tokens[row]], temperature, lse);
      }
    }
  });
  zero_tail(call.out(SampleOut::token));
  zero_tail(call.out(SampleOut::logp));
}

std::size_t sample_workspace(InputTypes inputs, std::span<const Type>, const Attributes&) {
  const Type& logits = required(inputs, SampleIn::logits, "sample");
  const std::int64_t vocab = logits.row_size();
  const std::size_t share = logits.dtype == DType::kF64 ? slot_bytes<double>(vocab) : slot_bytes<float>(vocab);
  return share * static_cast<std::size_t>(std::min<std::int64_t>(logits.rows(), thread_count()));
}

}  // namespace

void register_sample_cpu(KernelRegistry& registry) {
  registry.add("sample", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  call.in(SampleIn::logits).dtype() == DType::kF64 ? sample_forward<double>(call)
                                                                   : sample_forward<float>(call);
                },
                sample_workspace});
}

}  // namespace hone
