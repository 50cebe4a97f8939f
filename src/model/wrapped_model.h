// The base class of models around another model.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "model/model.h"

namespace hone {

// A Model that has another one, its base, and is as the base is. A derived class changes specs_ in its constructor, or
// overrides what differs, usually adapted(). Models of one process may share a base.
class WrappedModel : public Model {
 public:
  const ModelShape& shape() const override { return base_->shape(); }
  const Json& config() const override { return base_->config(); }
  const std::vector<WeightSpec>& weights() const override { return specs_; }
  const std::vector<WeightSpec>& traced_weights() const override { return base_->traced_weights(); }
  Tensor forward(WeightBinder& weights, Batch& batch) const override { return base_->forward(weights, batch); }
  std::string_view head() const override { return base_->head(); }
  std::string_view base_prefix() const override { return base_->base_prefix(); }
  std::string_view left_out(std::string_view tensor) const override { return base_->left_out(tensor); }
  bool predicts_further() const override { return base_->predicts_further(); }
  Tensor predict_further(WeightBinder& weights, Batch& batch, Tensor hidden, Tensor next) const override {
    return base_->predict_further(weights, batch, hidden, next);
  }
  Program adapted(Program program, const TraceUse& use) const override {
    return base_->adapted(std::move(program), use);
  }

  [[nodiscard]] const Model& base() const { return *base_; }

 protected:
  explicit WrappedModel(std::shared_ptr<const Model> base) : base_(std::move(base)), specs_(base_->weights()) {}
  [[nodiscard]] const std::shared_ptr<const Model>& shared_base() const { return base_; }

 private:
  std::shared_ptr<const Model> base_;

 protected:
  std::vector<WeightSpec> specs_;  // weights(), at first those of the base
};

}  // namespace hone
