#include "passes/precision.h"

namespace hone {

Program with_precision(const Program& program, DType dtype) {
  ProgramRewriter rewriter(program, {.retype = [&](const Value& value) {
                             Type type = value.type;
                             const bool changes =
                                 (value.role == Role::kWeight && !value.keeps_dtype) || value.role == Role::kState;
                             if (changes && type.dtype == DType::kF32) type.dtype = dtype;
                             return type;
                           }});
  for (const Node& node : program.nodes()) rewriter.replay(node);
  return rewriter.finish();
}

}  // namespace hone
