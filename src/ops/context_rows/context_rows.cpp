#include "ops/context_rows/context_rows.h"

#include "core/error.h"
#include "ops/fill/fill.h"
#include "ops/registry.h"
#include "program/gradient_builder.h"
#include "program/kernel.h"

namespace hone {
namespace {

void expect_ids(std::string_view name, const Type& ids, std::string_view what) {
  expect(ids.dtype == DType::kI32 && ids.shape.size() == 1, name,
         text_of(what, " is ", to_text(ids), "; expected one dimension of i32"));
}

std::int64_t columns_of(const Type& type) { return type.shape.size() == 2 ? type.shape[1].size : 1; }

// (sums, to, rows) -> to
class ContextScatter final : public Op {
 public:
  std::string_view name() const override { return "context_rows_scatter"; }
  OpCategory category() const override { return OpCategory::kCommunication; }
  Attributes default_attributes() const override { return ContextColumns{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& sums = required(inputs, ContextScatterIn::sums, name());
    const Type& to = required(inputs, ContextScatterIn::to, name());
    const Type& rows = required(inputs, ContextScatterIn::rows, name());
    const std::int64_t first = attributes.as<ContextColumns>().first;
    expect_ids(name(), rows, "rows");
    expect(is_floating(to.dtype) && sums.dtype == to.dtype && !to.shape.empty() &&
               sums.shape.size() == to.shape.size() && first >= 0 && columns_of(sums) == columns_of(to) - first &&
               sums.rows() == rows.rows() && to.rows() > 0 && rows.rows() % to.rows() == 0,
           name(),
           text_of("sums are ", to_text(sums), ", rows ", to_text(rows), ", to ", to_text(to), ", from column ", first,
                   "; they do not fit"));
    return {to};
  }
  std::optional<std::size_t> alias(std::size_t) const override { return ContextScatterIn::to; }
};

const ContextScatter kScatter;

// (x, rows) -> y
class ContextGather final : public Op {
 public:
  std::string_view name() const override { return "context_rows_gather"; }
  OpCategory category() const override { return OpCategory::kCommunication; }
  Attributes default_attributes() const override { return ContextColumns{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& x = required(inputs, ContextGatherIn::x, name());
    const Type& rows = required(inputs, ContextGatherIn::rows, name());
    const std::int64_t first = attributes.as<ContextColumns>().first;
    expect_ids(name(), rows, "rows");
    expect(!x.shape.empty() && x.shape.size() <= 2 && first >= 0 && first < columns_of(x) && x.rows() > 0 &&
               rows.rows() % x.rows() == 0 && size_of(x.dtype) % 2 == 0,
           name(),
           text_of("x is ", to_text(x), ", rows ", to_text(rows), ", from column ", first,
                   "; expected [capacity, n] or [capacity] and i32[ranks x capacity]"));
    Shape shape{Dim(rows.rows())};
    if (x.shape.size() == 2) shape.emplace_back(x.shape[1].size - first);
    return {Type{x.dtype, std::move(shape)}};
  }
  void gradient(GradientBuilder& builder, const Node& node) const override {
    const Tensor dy = builder.output_gradient(0);
    if (!dy || !builder.needs(ContextGatherIn::x)) return;
    HONE_ASSERT(node.attributes.as<ContextColumns>().first == 0, "a part of the columns has no gradient");
    const Tensor zeros = fill(builder.program(), builder.input(ContextGatherIn::x).type(), 0.0);
    builder.add(ContextGatherIn::x, context_scatter(dy, zeros, builder.input(ContextGatherIn::rows)));
  }
};

const ContextGather kContextGather;

// (x) -> y
class ContextSum final : public Op {
 public:
  std::string_view name() const override { return "context_rows_sum"; }
  OpCategory category() const override { return OpCategory::kCommunication; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& x = required(inputs, 0, name());
    expect(is_floating(x.dtype) && x.count() == Count::none, name(),
           text_of("x is ", to_text(x), "; expected a floating type without a count"));
    return {x};
  }
  void gradient(GradientBuilder& builder, const Node&) const override {
    const Tensor dy = builder.output_gradient(0);
    if (dy && builder.needs(0)) builder.add(0, context_sum(dy));
  }
};

const ContextSum kContextSum;

// (dy, tokens) -> dx
class ContextPlace final : public Op {
 public:
  std::string_view name() const override { return "context_rows_place"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  Attributes default_attributes() const override { return ContextPlaceAttributes{}; }
  std::vector<Type> infer(InputTypes inputs, const Attributes& attributes) const override {
    const Type& dy = required(inputs, ContextPlaceIn::dy, name());
    expect_ids(name(), required(inputs, ContextPlaceIn::tokens, name()), "tokens");
    const std::int64_t tokens = attributes.as<ContextPlaceAttributes>().tokens;
    expect_sizes(name(), {tokens});
    expect(!dy.shape.empty() && tokens >= dy.rows() && size_of(dy.dtype) % 2 == 0, name(),
           text_of("dy is ", to_text(dy), ", tokens ", tokens, "; expected at least as many tokens as rows"));
    Type dx = dy;
    dx.shape[0] = Dim(tokens);
    return {dx};
  }
};

const ContextPlace kPlace;

// (x, tokens) -> y
class ContextTake final : public Op {
 public:
  std::string_view name() const override { return "context_rows_take"; }
  OpCategory category() const override { return OpCategory::kMemory; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override {
    const Type& x = required(inputs, ContextTakeIn::x, name());
    const Type& tokens = required(inputs, ContextTakeIn::tokens, name());
    expect_ids(name(), tokens, "tokens");
    expect(!x.shape.empty() && x.count() == Count::none && size_of(x.dtype) % 2 == 0, name(),
           text_of("x is ", to_text(x), "; expected rows of all tokens"));
    Type y = x;
    y.shape[0] = tokens.shape[0];
    return {y};
  }
  void gradient(GradientBuilder& builder, const Node&) const override {
    const Tensor dy = builder.output_gradient(0);
    if (!dy || !builder.needs(ContextTakeIn::x)) return;
    const ContextPlaceAttributes place{.tokens = builder.input(ContextTakeIn::x).dim(0)};
    builder.add(ContextTakeIn::x, builder.program().append1(kPlace, place, {dy, builder.input(ContextTakeIn::tokens)}));
  }
};

const ContextTake kContextTake;

}  // namespace

Tensor context_gather(Tensor x, Tensor rows, const ContextColumns& columns) {
  return x.program().append1(kContextGather, columns, {x, rows});
}

Tensor context_scatter(Tensor sums, Tensor to, Tensor rows, const ContextColumns& columns) {
  return sums.program().append1(kScatter, columns, {sums, to, rows});
}

Tensor context_sum(Tensor x) { return x.program().append1(kContextSum, {}, {x}); }

Tensor context_take(Tensor x, Tensor tokens) { return x.program().append1(kContextTake, {}, {x, tokens}); }

void register_context_rows(OpRegistry& registry) {
  registry.add(kContextGather);
  registry.add(kScatter);
  registry.add(kContextSum);
  registry.add(kContextTake);
  registry.add(kPlace);
}

}  // namespace hone
