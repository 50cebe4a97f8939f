// Recipe keys shared by the rewards for programming contests, ioi_code and cf_code.
#pragma once

#include <cstdint>

#include "core/options.h"

namespace hone {

struct ContestKeys {
  std::int64_t code_eval_test_batch_size = 1;  // tests that run before the next check for a failure; -1: all

  template <class Visitor>
  void fields(Visitor& v) {
    v("code_eval_test_batch_size", code_eval_test_batch_size,
      "ioi_code, cf_code: tests that run before the next check for a failure; -1: all", at_least(-1));
  }
};

}  // namespace hone
