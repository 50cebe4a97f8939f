#include "model/model.h"

#include "core/error.h"

namespace hone {

WeightBinder::WeightBinder(Program& program, const std::vector<WeightSpec>& specs, bool trainable)
    : program_(program), specs_(specs), trainable_(trainable) {}

Tensor WeightBinder::operator()(std::string_view name) {
  if (const ValueId id = program_.find(Role::weight, name); id != kNoValue) return program_.tensor(id);
  for (const WeightSpec& spec : specs_) {
    if (spec.name != name) continue;
    return program_.weight(spec.name, {DType::f32, Shape(spec.shape.begin(), spec.shape.end())}, trainable_);
  }
  throw Defect(text_of("the model has no weight ", name));
}

std::int64_t parameter_count(const Model& model) {
  std::int64_t total = 0;
  for (const WeightSpec& spec : model.weights()) {
    std::int64_t elements = 1;
    for (const std::int64_t size : spec.shape) elements *= size;
    total += elements;
  }
  return total;
}

}  // namespace hone
