// The kind of a block of weights (linear, embedding, norm, ...). Adapters, Muon, weight decay, tied heads, vocabulary
// resizing and plans depend on the kind, never on names or shapes.
#pragma once

#include <cstdint>
#include <string_view>

namespace hone {

// The treatment of a weight by the Muon optimizer.
enum class MuonUse : std::uint8_t {
  kMatrices,  // updates each matrix of the checkpoint separately
  kAdamw,     // updated by AdamW instead
  kRefused,   // not supported: training it with Muon is an error
};

// The support for low-rank adapters on a weight.
enum class AdapterUse : std::uint8_t {
  kNone,  // such weights never have adapters: norms, biases
  kAllowed,
  kRefused,  // PEFT would adapt it, but hone cannot: "all-linear" is an error instead of skipping it
};

// The properties of a kind. A family may define a kind that is not in the list below:
//   const WeightTraits kTraits{.name = "codebook", ...};
//   const WeightKind kCodebook(kTraits);
struct WeightTraits {
  std::string_view name;
  bool decays = true;     // subject to weight_decay
  bool by_token = false;  // has a row for each token of the vocabulary
  bool has_axes = false;  // its parts must declare the axes along which they can be sharded (PartAxis)
  AdapterUse adapter = AdapterUse::kNone;
  MuonUse muon = MuonUse::kAdamw;
};

class WeightKind {
 public:
  constexpr WeightKind() = default;                                                // WeightKind::unset
  constexpr explicit WeightKind(const WeightTraits& traits) : traits_(&traits) {}  // traits must outlive the kind

  [[nodiscard]] constexpr bool is_set() const { return traits_ != nullptr; }
  [[nodiscard]] constexpr const WeightTraits& traits() const { return *traits_; }
  constexpr bool operator==(const WeightKind&) const = default;

  static const WeightKind unset;        // not allowed: check_specs() requires families to set a kind
  static const WeightKind linear;       // matrices of linear layers
  static const WeightKind expert;       // matrices of the experts of a mixture
  static const WeightKind router;       // scores the experts of a mixture
  static const WeightKind router_bias;  // added to the scores for the choice of experts only; moved by load balancing
  static const WeightKind embedding;    // token embedding, in a tied model also the head
  static const WeightKind head;         // output projection to logits
  static const WeightKind norm;
  static const WeightKind bias;
  static const WeightKind table;  // everything else: learned positions, parts of adapters

 private:
  const WeightTraits* traits_ = nullptr;
};

namespace weight_traits {

inline constexpr WeightTraits kLinear{
    .name = "linear", .has_axes = true, .adapter = AdapterUse::kAllowed, .muon = MuonUse::kMatrices};
inline constexpr WeightTraits kExpert{
    .name = "expert", .has_axes = true, .adapter = AdapterUse::kRefused, .muon = MuonUse::kRefused};
inline constexpr WeightTraits kRouter{.name = "router"};
inline constexpr WeightTraits kRouterBias{.name = "router_bias", .decays = false};
inline constexpr WeightTraits kEmbedding{
    .name = "embedding", .by_token = true, .has_axes = true, .adapter = AdapterUse::kAllowed};
inline constexpr WeightTraits kHead{
    .name = "head", .by_token = true, .has_axes = true, .adapter = AdapterUse::kAllowed};
inline constexpr WeightTraits kNorm{.name = "norm", .decays = false};
inline constexpr WeightTraits kBias{.name = "bias", .decays = false};
inline constexpr WeightTraits kTable{.name = "table"};

}  // namespace weight_traits

inline constexpr WeightKind WeightKind::unset{};
inline constexpr WeightKind WeightKind::linear{weight_traits::kLinear};
inline constexpr WeightKind WeightKind::expert{weight_traits::kExpert};
inline constexpr WeightKind WeightKind::router{weight_traits::kRouter};
inline constexpr WeightKind WeightKind::router_bias{weight_traits::kRouterBias};
inline constexpr WeightKind WeightKind::embedding{weight_traits::kEmbedding};
inline constexpr WeightKind WeightKind::head{weight_traits::kHead};
inline constexpr WeightKind WeightKind::norm{weight_traits::kNorm};
inline constexpr WeightKind WeightKind::bias{weight_traits::kBias};
inline constexpr WeightKind WeightKind::table{weight_traits::kTable};

}  // namespace hone
