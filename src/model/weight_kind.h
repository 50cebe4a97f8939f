// What a block of weights is to its model. Adapters, Muon, weight decay, tied heads, vocabularies that grow and plans
// decide by it, never by a name or a shape.
#pragma once

#include <cstdint>
#include <string_view>

namespace hone {

// What Muon does with a weight.
enum class MuonUse : std::uint8_t {
  matrices,  // moves each matrix that the checkpoint names by itself
  adamw,     // leaves it to AdamW
  refused,   // has no form for it
};

// Whether a low-rank adapter may lie beside a weight.
enum class AdapterUse : std::uint8_t {
  none,  // nobody expects one: norms, biases
  allowed,
  refused,  // one belongs there, and hone has no form for it: "all-linear" may not pass it over
};

// All that is asked of a kind. A kind that none of hone's fits says it of itself: const WeightTraits kTraits{.name =
// "codebook", ...}; const WeightKind kCodebook(kTraits).
struct WeightTraits {
  std::string_view name;
  bool decays = true;     // by weight_decay
  bool by_token = false;  // it has a row for each token of the vocabulary
  bool has_axes = false;  // its parts must say along which axes several devices may share them (PartAxis)
  AdapterUse adapter = AdapterUse::none;
  MuonUse muon = MuonUse::adamw;
};

class WeightKind {
 public:
  constexpr WeightKind() = default;                                                // WeightKind::unset
  constexpr explicit WeightKind(const WeightTraits& traits) : traits_(&traits) {}  // which live as long as the kind

  [[nodiscard]] constexpr bool is_set() const { return traits_ != nullptr; }
  [[nodiscard]] constexpr const WeightTraits& traits() const { return *traits_; }
  constexpr bool operator==(const WeightKind&) const = default;

  static const WeightKind unset;      // a family must say: check_specs() refuses it
  static const WeightKind linear;     // matrices of linear layers
  static const WeightKind expert;     // the same of the experts of a mixture
  static const WeightKind router;     // scores a mixture's experts
  static const WeightKind embedding;  // rows by token; the head of a tied model, too
  static const WeightKind head;       // logits by token
  static const WeightKind norm;
  static const WeightKind bias;
  static const WeightKind table;  // all else: learned positions, parts of adapters

 private:
  const WeightTraits* traits_ = nullptr;
};

namespace weight_traits {

inline constexpr WeightTraits kLinear{
    .name = "linear", .has_axes = true, .adapter = AdapterUse::allowed, .muon = MuonUse::matrices};
inline constexpr WeightTraits kExpert{
    .name = "expert", .has_axes = true, .adapter = AdapterUse::refused, .muon = MuonUse::refused};
inline constexpr WeightTraits kRouter{.name = "router"};
inline constexpr WeightTraits kEmbedding{
    .name = "embedding", .by_token = true, .has_axes = true, .adapter = AdapterUse::allowed};
inline constexpr WeightTraits kHead{.name = "head", .by_token = true, .has_axes = true, .adapter = AdapterUse::allowed};
inline constexpr WeightTraits kNorm{.name = "norm", .decays = false};
inline constexpr WeightTraits kBias{.name = "bias", .decays = false};
inline constexpr WeightTraits kTable{.name = "table"};

}  // namespace weight_traits

inline constexpr WeightKind WeightKind::unset{};
inline constexpr WeightKind WeightKind::linear{weight_traits::kLinear};
inline constexpr WeightKind WeightKind::expert{weight_traits::kExpert};
inline constexpr WeightKind WeightKind::router{weight_traits::kRouter};
inline constexpr WeightKind WeightKind::embedding{weight_traits::kEmbedding};
inline constexpr WeightKind WeightKind::head{weight_traits::kHead};
inline constexpr WeightKind WeightKind::norm{weight_traits::kNorm};
inline constexpr WeightKind WeightKind::bias{weight_traits::kBias};
inline constexpr WeightKind WeightKind::table{weight_traits::kTable};

}  // namespace hone
