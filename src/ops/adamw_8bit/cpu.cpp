#include <array>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "ops/adamw/step.h"
#include "ops/adamw_8bit/adamw_8bit.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

template <class T, class G>
struct Adamw8bitUpdate {
  T* weight;
  G* gradient;
  std::uint8_t* m;
  std::uint8_t* v;
  float* m_scale;
  float* v_scale;
  std::int64_t elements;
  bool clears;

  void run(const AdamwNumbers<float>& step, std::int64_t block) const {
    const std::int64_t begin = block * kStateBlock;
    const auto count = static_cast<std::size_t>(std::min(kStateBlock, elements - begin));
    std::array<float, kStateBlock> new_m;
    std::array<float, kStateBlock> new_v;
    float largest_m = 0;
    float largest_v = 0;
    RoundingBits bits{};
    for (std::size_t k = 0; k < count; ++k) {
      const auto i = begin + static_cast<std::int64_t>(k);
      if (std::is_same_v<T, BFloat16> && k % 8 == 0) {
        bits = rounding_bits(step.seed, step.stream, step.step, static_cast<std::uint64_t>(step.first + i) / 8);
      }
      const float g = widen(gradient[i]) * step.clip;
      new_m[k] = step.next_m(signed_value(m[i]) * m_scale[block], g);
      new_v[k] = step.next_v(kUnsignedMap.values[v[i]] * v_scale[block], g);
      store_rounded(weight[i], step.next_weight(widen(weight[i]), new_m[k], new_v[k]),
                    bits.piece(static_cast<int>(k % 8)));
      largest_m = std::max(largest_m, std::abs(new_m[k]));
      largest_v = std::max(largest_v, new_v[k]);
      if (clears) gradient[i] = G(0);
    }
    const float inverse_m = inverse_scale(largest_m);
    const float inverse_v = inverse_scale(largest_v);
    for (std::size_t k = 0; k < count; ++k) {
      const auto i = begin + static_cast<std::int64_t>(k);
      m[i] = signed_code(kSignedMap.nearest(std::abs(new_m[k]) * inverse_m), new_m[k] < 0);
      v[i] = static_cast<std::uint8_t>(kUnsignedMap.nearest(new_v[k] * inverse_v));
    }
    m_scale[block] = inverse_m == 0 ? 0 : largest_m;
    v_scale[block] = inverse_v == 0 ? 0 : largest_v;
  }

 private:
  static float signed_value(std::uint8_t code) {
    return code < kZeroCode ? -kSignedMap.values[static_cast<std::size_t>(kZeroCode - code)]
                            : kSignedMap.values[static_cast<std::size_t>(code - kZeroCode)];
  }
};

template <class T, class G>
void adamw_8bit_update(const KernelCall& call) {
  const AdamwNumbers<float> step(call.attributes_as<AdamwAttributes>(), call.in(Adamw8bitIn::hyper).as<float>(),
                                 *call.in(Adamw8bitIn::norm).as<float>());
  const std::int64_t elements = call.out(Adamw8bitOut::m).elements();
  const auto& attributes = call.attributes_as<AdamwAttributes>();
  const TensorView& weight = call.out(Adamw8bitOut::weight);
  const TensorView& gradient = call.out(Adamw8bitOut::gradient);
  const Adamw8bitUpdate<T, G> all{weight.as<T>() + attributes.start_in(weight.elements()),
                                  gradient.as<G>() + attributes.start_in(gradient.elements()),
                                  call.out(Adamw8bitOut::m).as<std::uint8_t>(),
                                  call.out(Adamw8bitOut::v).as<std::uint8_t>(),
                                  call.out(Adamw8bitOut::m_scale).as<float>(),
                                  call.out(Adamw8bitOut::v_scale).as<float>(),
                                  elements,
                                  attributes.clears};
  parallel_for(scales_of(elements), 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) all.run(step, block);
  });
}

void adamw_8bit_forward(const KernelCall& call) {
  if (*call.in(Adamw8bitIn::bad).as<std::int32_t>() != 0) {
    const TensorView& gradient = call.out(Adamw8bitOut::gradient);
    if (call.attributes_as<AdamwAttributes>().clears) std::memset(gradient.data, 0, gradient.type->bytes());
    return;
  }
  const bool narrow_gradient = call.in(Adamw8bitIn::gradient).dtype() == DType::kBf16;
  if (call.in(Adamw8bitIn::weight).dtype() == DType::kF32) return adamw_8bit_update<float, float>(call);
  if (narrow_gradient) return adamw_8bit_update<BFloat16, BFloat16>(call);
  adamw_8bit_update<BFloat16, float>(call);
}

}  // namespace

void register_adamw_8bit_cpu(KernelRegistry& registry) {
  registry.add("adamw_8bit", DeviceKind::kCpu, {adamw_8bit_forward, {}});
}

}  // namespace hone
