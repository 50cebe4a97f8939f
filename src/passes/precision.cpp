#include "passes/precision.h"

namespace hone {

Program with_precision(const Program& program, DType dtype) {
  ProgramRewriter rewriter(program, [&](const Value& value) {
    Type type = value.type;
    const bool changes = (value.role == Role::weight && !value.keeps_dtype) || value.role == Role::state;
    if (changes && type.dtype == DType::f32) type.dtype = dtype;
    return type;
  });
  for (const Node& node : program.nodes()) rewriter.replay(node);
  return rewriter.finish();
}

}  // namespace hone
